"""Random orders in which the hardware may execute a program, found by comparing all pairs of commands.

Here is the second form of what the reservation station does; the target's is `hazards/order.py`. A store's bytes reach
DRAM at any time until the next fence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.targets.gemmini.programs import Program
from tests.targets.gemmini.reference import NOTHING, Fields
from tilewright.array import Array

LOADS = {"mvin": 0, "mvin2": 1, "mvin3": 2}
Range = tuple[bool, int, int]  # whether in the accumulator, the first row, the row behind the last one


@dataclass
class Tracked:
    """A command as the reservation station tracks it."""

    queue: str
    reads: list[Range]
    writes: list[Range]
    zeros: bool = False
    drain: bool = False


def tracked(program: Program, dim: int, bank: int) -> list[Tracked]:
    """Return how each command of a program is tracked, configs by their queue only."""
    loads: dict[int, Fields] = {}
    ex: Fields = {}
    st: Fields = {}
    ranges = []
    for name, f in program:
        if name == "config_ld":
            loads[f["state"]] = f
            ranges.append(Tracked("load", [], []))
        elif name == "config_st":
            st = f
            ranges.append(Tracked("store", [], []))
        elif name == "config_ex":
            ex = f
            ranges.append(Tracked("execute", [], [], drain=True))
        elif name in LOADS:
            settings = loads[LOADS[name]]
            rows = ((f["cols"] + dim - 1) // dim - 1) * settings["block_stride"] + f["rows"]
            back = 0 if f["local"] >> 31 else min(settings["pixels"] - 1, f["local"] & 0xFFFFFF)
            acc, first, end = _range(f["local"], rows)
            ranges.append(Tracked("load", [], [(acc, first - back, end - back)], zeros=not f["dram"]))
        elif name == "mvout":
            rows = ((f["cols"] + dim - 1) // dim - 1) * dim + f["rows"]
            if st["pool_stride"]:
                rows = bank - (f["local"] & 0xFFFFFF) % bank if f["local"] >> 31 else 1
            ranges.append(Tracked("store", [_range(f["local"], rows)], []))
        elif name == "preload":
            reads = [] if f["bd"] == NOTHING else [_range(f["bd"], f["bd_rows"])]
            writes = [] if f["c"] == NOTHING else [_range(f["c"], f["c_rows"] * ex["c_stride"])]
            ranges.append(Tracked("execute", reads, writes))
        elif name.startswith("compute"):
            rows = (f["a_cols"] if ex["transpose_a"] else f["a_rows"]) * ex["a_stride"]
            reads = [_range(f["a"], rows)]
            reads += [] if f["bd"] == NOTHING else [_range(f["bd"], f["bd_rows"])]
            ranges.append(Tracked("execute", reads, []))
        else:
            ranges.append(Tracked("fence", [], []))
    return ranges


def _range(local: int, rows: int) -> Range:
    return bool(local >> 31), local & 0xFFFFFF, (local & 0xFFFFFF) + rows


def meet(first: list[Range], second: list[Range]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in first for b in second)


def waits(early: Tracked, late: Tracked) -> bool:
    """Return whether `late` cannot start before `early` is done."""
    if "fence" in (early.queue, late.queue):
        return True
    if early.queue != late.queue:
        return meet(early.writes, [*late.reads, *late.writes]) or meet(early.reads, late.writes)
    if early.queue == "load":  # zeros overtake data; data stays in order
        return not late.zeros or early.zeros
    return True


def shuffled(program: Program, dim: int, bank: int, rng: np.random.Generator) -> list[tuple[int, str]]:
    """Return a random order of execution: (command, part). The parts of a store are "read" and "write"; else "".

    Each command is executed as a whole; so results that the array itself passes on are not in question.
    """
    ranges = tracked(program, dim, bank)
    parts: list[tuple[int, str]] = []
    for index in range(len(ranges)):
        parts += [(index, "read"), (index, "write")] if program[index][0] == "mvout" else [(index, "")]
    before: dict[int, list[int]] = {
        late: [early for early in range(late) if waits(ranges[early], ranges[late])] for late in range(len(ranges))
    }
    for late, earlier in before.items():  # a preload is done when its compute has written the result
        computes = [early + 1 for early in earlier if program[early][0] == "preload" and early + 1 < late]
        before[late] = sorted({*earlier, *(at for at in computes if program[at][0].startswith("compute"))})
    done: set[tuple[int, str]] = set()
    sequence: list[tuple[int, str]] = []
    while len(sequence) < len(parts):
        ready = [part for part in parts if part not in done and _ready(part, before, done, ranges, program)]
        chosen = ready[int(rng.integers(len(ready)))]
        done.add(chosen)
        sequence.append(chosen)
    return sequence


def _ready(
    part: tuple[int, str],
    before: dict[int, list[int]],
    done: set[tuple[int, str]],
    ranges: list[Tracked],
    program: Program,
) -> bool:
    index, what = part
    if what == "write":
        stores = [store for store in range(index) if program[store][0] == "mvout"]
        return (index, "read") in done and all((store, "write") in done for store in stores)
    for early in before[index]:
        first = "read" if program[early][0] == "mvout" else ""
        if (early, first) not in done:
            return False
        if ranges[index].queue == "fence" and first and (early, "write") not in done:
            return False
    return True


def executed(order: list[tuple[int, str]], program: Program, model: object, dram: Array) -> Array:
    """Run a model (reference.Plain) in an order; return DRAM. A store's bytes are kept until its part "write"."""
    from tests.targets.gemmini.reference import Plain

    assert isinstance(model, Plain)
    states = _states(program)
    kept: dict[int, tuple[Array, Array]] = {}
    for index, what in order:
        name, f = program[index]
        model.loads, model.ex, model.st, pending = states[index]
        model.pending = pending
        if what == "read":
            held = model.dram.copy()
            model.mvout(f)
            changed = np.flatnonzero(model.dram != held)
            kept[index] = changed, model.dram[changed].copy()
            model.dram[:] = held
        elif what == "write":
            at, values = kept[index]
            model.dram[at] = values
        elif not name.startswith(("config", "preload")):
            getattr(model, name, lambda _: None)(f)
    return dram


def _states(program: Program) -> list[tuple[dict[int, Fields], Fields, Fields, Fields]]:
    """Return the configs and the preload that apply to each command, by program order."""
    loads: dict[int, Fields] = {}
    ex: Fields = {}
    st: Fields = {}
    pending: Fields = {}
    states = []
    for name, f in program:
        if name == "config_ld":
            loads = loads | {f["state"]: f}
        elif name == "config_ex":
            ex = f
        elif name == "config_st":
            st = f
        elif name == "preload":
            pending = f
        states.append((loads, ex, st, pending))
    return states
