"""One network on five VTA machines: cycles of each layer, and what each machine costs in storage.

    python examples/vta_machines.py [MODEL.tflite [TIMING]]

`upstream` stores sums as byte planes and leaves rescaling and additions to the host, at no cost here. `rounding` has
a rounding multiply and shift, `fused` a whole requantisation that reads a parameter memory; both finish on chip,
additions too. With four stages the ALU is a unit of its own, behind the GEMM core.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import tilewright as tw
from tilewright.model import inputs
from tilewright.report.metrics import Result
from tilewright.targets.vta.config import PRESETS

DIGITS = Path(__file__).resolve().parent / "digits" / "digits.tflite"
MACHINES: dict[str, dict[str, str]] = {
    "upstream": {},
    "rounding": {"alu": "rounding"},
    "fused": {"alu": "fused"},
    "4 stages": {"stages": "4"},
    "4, fused": {"stages": "4", "alu": "fused"},
}


def line(name: str, cells: Iterable[str]) -> None:
    print(f"{name:22s}" + "".join(f"{cell:>12s}" for cell in cells))


def main(model: str, timing: str | None = None) -> None:
    """Compile, run and compare; outputs must equal the integer reference on every machine."""
    graph = tw.load(model)
    sample = inputs.random(graph).values
    results: dict[str, Result] = {}
    for name, keys in MACHINES.items():
        program = tw.compile(graph, "vta", overrides=keys)
        results[name] = program.run(sample, timing=timing)
        assert results[name].matches_reference, name
        assert not results[name].findings, name
    base = results["upstream"]
    print(f"{graph.name}: cycles, timing model {base.timing}; all outputs equal the reference, 0 hazards\n")
    line("layer", MACHINES)
    for row in zip(*(result.layers for result in results.values()), strict=True):
        line(row[0].name, (f"{layer.cycles:,d}" if layer.cycles else "host" for layer in row))
    line("all", (f"{result.cycles:,d}" for result in results.values()))
    line("bound", (f"{result.bound:,d}" for result in results.values()))
    line("cycles / bound", (f"{result.cycles / result.bound:.3f}" for result in results.values()))
    line("against upstream", (f"{result.cycles / base.cycles:.2f}" for result in results.values()))
    print()
    storage = {name: PRESETS["pynq"].with_overrides(keys).storage for name, keys in MACHINES.items()}
    for part in dict.fromkeys(part for parts in storage.values() for part in parts):
        line(f"{part}, KiB", (f"{parts.get(part, 0) / 1024:g}" for parts in storage.values()))
    line("storage, KiB", (f"{sum(parts.values()) / 1024:g}" for parts in storage.values()))


if __name__ == "__main__":
    main(*(sys.argv[1:3] or [str(DIGITS)]))
