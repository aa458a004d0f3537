"""Where a network's cycles go, part by part, for one sample: the largest part is the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.targets.zynq.isa.descriptor import Kind
from tilewright.targets.zynq.isa.layer import Layer
from tilewright.targets.zynq.timing import walk
from tilewright.targets.zynq.timing.service import Schedule, schedule

#: The parts of engine time; waits for the PS come by store.
UNIT, LOADER, CONTROL, WRITES, POOL = "compute unit", "loader", "control states", "result writes", "pool"


def account(layers: Sequence[Layer]) -> dict[str, float]:
    """Cycles by part: an iteration is one cycle of the unit, more of the loader, and those of control states."""
    total: dict[str, float] = {}
    for layer in layers:
        found = schedule(layer)
        for part, cycles in {**_engine(layer, found), **_stalls(found)}.items():
            total[part] = total.get(part, 0.0) + cycles / layer.samples
    return total


def bottleneck(parts: dict[str, float]) -> str:
    """The largest part and its share."""
    name = max(parts, key=lambda part: parts[part])
    return f"{name} ({parts[name] / sum(parts.values()):.0%})"


def bound(layers: Sequence[Layer]) -> float:
    """Cycles if engine and PS overlapped perfectly within each layer: the longer of the two. Needs two frames."""
    total = 0.0
    for layer in layers:
        found = schedule(layer)
        busy = int((found.service.end - found.service.start).sum())
        total += max(found.engine, busy) / layer.samples
    return total


def _engine(layer: Layer, found: Schedule) -> dict[str, int]:
    if layer.kind == Kind.POOL:
        return {POOL: found.engine}
    fc, count = layer.kind == Kind.FC, walk.iterations(layer)
    fill, whole = layer.config.fill(fc), layer.config.iteration(fc)
    parts = {UNIT: count, LOADER: (fill - 1) * count, CONTROL: (whole - fill) * count}
    return {**parts, WRITES: found.engine - whole * count}


def _stalls(found: Schedule) -> dict[str, int]:
    return {f"PS: {name}": cycles for name, cycles in found.stalls().items()}
