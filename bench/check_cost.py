"""What the hazard check costs, beside the time and value passes of the same launches, on one core.

Every launch of each network is run as for the first time, with one block of samples (then with 1): nothing of it is
known but the compiled loops. `check` is all that only the check needs: footprints, order, ranges, hazards and what
FINISH awaits. `later` are values of a further block, when all that does not depend on data is known. Processor time,
milliseconds; ratios come from one round each, medians of several; `--json` prints one object. `--first` runs each
launch once, as the command line does: loops run uncompiled until that takes too long (give one network at a time).
Networks: TFLite files, or the digits where none is given.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.program.program import Launch, Program
from tilewright.sim import jit
from tilewright.sim import passes as sim_passes
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta import passes
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.steps import elaborate
from tilewright.targets.vta.timing import Timing
from tilewright.targets.vta.values.machine import Machine

ROUNDS = 9
DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits" / "digits.tflite"
#: What each pass is made of; the rest of a run (decoding, kernels, moves) serves all of them.
PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "check": (
        (elaborate, "footprints"),
        (passes, "order"),
        (passes, "out_of_range"),
        (passes, "unmapped"),
        (sim_passes, "hazards"),
        (passes, "unfinished"),
    ),
    "time": ((Timing, "traces"),),
    "values": ((passes.Prepared, "sequence"), (passes, "plan"), (Machine, "run")),
}


@contextmanager
def clocks() -> Iterator[dict[str, float]]:
    """Seconds spent in each pass while the context lasts."""
    spent: dict[str, float] = defaultdict(float)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            began = thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[part] += thread_time() - began

        return call

    before = [(owner, name, getattr(owner, name)) for parts in PARTS.values() for owner, name in parts]
    for part, names in PARTS.items():
        for owner, name in names:
            setattr(owner, name, timed(part, getattr(owner, name)))
    try:
        yield spent
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def run(launch: Launch, samples: int) -> dict[str, float]:
    """Seconds of one launch's passes on random data, and of the values of a `later` block."""
    image, rng = image_of(launch), np.random.default_rng(1)
    data = {p.name: rng.integers(0, 256, (samples, p.size), np.uint8) for p in image.segments if p.kind == "input"}
    options, config = RunOptions(timing="hls"), PRESETS["pynq"]
    with clocks() as spent:
        known = passes.run_passes(image.insns, config, image.dram(data, samples), image.bases, samples, options)
    with clocks() as again:
        known.run(image.dram(data, samples), samples, options)
    return {**spent, "later": again["values"]}


def measure(program: Program, samples: int, rounds: int) -> dict[str, float]:
    """Medians over the rounds: milliseconds of all launches, and check / (time + values) of all and of the worst."""
    rows, launches = [], []
    for _ in range(rounds):
        parts = [run(launch, samples) for launch in program.launches]
        total = {name: 1e3 * sum(part[name] for part in parts) for name in parts[0]}
        rows.append(
            total
            | {"ratio": total["check"] / (total["time"] + total["values"])}
            | {"ratio_later": total["check"] / (total["time"] + total["later"])}
        )
        launches.append([part["check"] / (part["time"] + part["values"]) for part in parts])
    worst = max(median(ratios) for ratios in zip(*launches, strict=True))
    return {name: median(row[name] for row in rows) for name in rows[0]} | {"ratio_of_worst_launch": worst}


def main() -> None:
    first = "--first" in sys.argv
    files = [Path(name) for name in sys.argv[1:] if not name.startswith("--")] or [DIGITS]
    figures = {}
    for path in files:
        program = tw.compile(path, target="vta")
        if first:
            figures[path.stem] = {f"{passes.BLOCK} samples": measure(program, passes.BLOCK, 1)}
            continue
        jit.PATIENCE = 0  # every loop compiled
        for launch in program.launches:
            run(launch, 1)
        figures[path.stem] = {f"{samples} samples": measure(program, samples, ROUNDS) for samples in (passes.BLOCK, 1)}
    if "--json" in sys.argv:
        print(json.dumps(figures))
        return
    for name, columns in figures.items():
        print(name)
        for samples, values in columns.items():
            print(f"  {samples:10}", ", ".join(f"{key} {value:.2f}" for key, value in values.items()))


if __name__ == "__main__":
    main()
