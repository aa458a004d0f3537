"""A profile as a file for speedscope.app: each function with its source lines, weighted by cycles.

Format: https://www.speedscope.app/file-format-schema.json, a sampled profile with one sample a stack.
"""

from __future__ import annotations

from typing import Any

from tilewright.targets.cfu.rv32.core import Run
from tilewright.targets.cfu.rv32.source import Source

from .counts import counts
from .profile import line_name


def speedscope(run: Run, source: Source, name: str) -> dict[str, Any]:
    """JSON values; the stacks are function, then line. Weights are cycles, which the format has no unit for."""
    found = counts(run)
    frames: dict[tuple[str, str, int], int] = {}
    weights: dict[tuple[int, int], int] = {}
    for address, cycles in zip(found.address.tolist(), found.cycles.tolist(), strict=True):
        function, place = source.function(address), source.place(address)
        outer = frames.setdefault((function, "", 0), len(frames))
        inner = frames.setdefault((line_name(function, place), place.file, place.line), len(frames))
        weights[outer, inner] = weights.get((outer, inner), 0) + cycles
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name,
        "exporter": "tilewright",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(*frame) for frame in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": f"{name}, cycles",
                "unit": "none",
                "startValue": 0,
                "endValue": sum(weights.values()),
                "samples": [list(stack) for stack in weights],
                "weights": list(weights.values()),
            }
        ],
    }


def _frame(name: str, file: str, line: int) -> dict[str, Any]:
    return {"name": name, **({"file": file, "line": line} if file else {})}
