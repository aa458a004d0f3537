"""Races between two loops that one unroller executes concurrently.

Loads of a loop may enter the reservation station before the last execute commands of the previous loop. In this case,
the station treats the loads as older, so the execute commands read the data of the wrong loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.findings import RACE, Finding
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops.conv import TileShape
from tilewright.targets.gemmini.loops.words import COMMANDS, CONV, MATMUL, OnChip


class OperandRows(NamedTuple):
    """The memory rows of a loop's operand. If `loaded` is False, the loop reuses old data instead of loading."""

    name: str
    memory: str
    low: int
    high: int
    loaded: bool


class Flight(NamedTuple):
    """A loop: its start command, its unroller, whether it is a residual addition, and its operands."""

    command: int
    unroller: int
    residual: bool
    spans: tuple[OperandRows, ...]


def spans(unroller: int, r: Mapping[str, int], place: OnChip, config: Config) -> tuple[OperandRows, ...]:
    """Return the rows of a loop's operands. The last operand also stands for the result."""
    if unroller == CONV:
        shape = TileShape(r, config)
        a = shape.input_rows
        b = shape.weight_rows
        c = shape.out_rows
        names = (("input", "input"), ("weights", "weights"), ("bias", "bias"))
    elif r["resadd"]:
        return (OperandRows("A and B", "acc", place.c, place.c + r["i"] * r["j"] * config.dim, True),)
    else:
        a, b, c = (r[rows] * r[columns] * config.dim for rows, columns in ("ik", "kj", "ij"))
        names = (("A", "a"), ("B", "b"), ("D", "d"))
    rows = (place.a, place.a + a), (place.b_end - b, place.b_end), (place.c, place.c + c)
    memories = ("spad", "spad", "acc")
    return tuple(
        OperandRows(name, memory, *bounds, bool(r[register]))
        for (name, register), memory, bounds in zip(names, memories, rows, strict=True)
    )


def findings(flights: Sequence[Flight], functs: Array) -> Iterator[Finding]:
    """Yield the races between loops that may be in flight together. `functs` has the program's functs."""
    # `passed` has the commands that an unroller accepts while it executes a loop. All other commands wait until the
    # unroller has no loop, so they separate earlier loops from later loops.
    passed = {MATMUL: (*COMMANDS[MATMUL], *COMMANDS[CONV][1:]), CONV: COMMANDS[CONV]}
    separating = {unroller: np.cumsum(~np.isin(functs, some)) for unroller, some in passed.items()}
    last: dict[int, Flight] = {}
    for loop in flights:
        before = last.get(loop.unroller)
        count = separating[loop.unroller]
        last[loop.unroller] = loop
        if before is None or count[before.command] < count[loop.command]:
            continue
        if before.residual != loop.residual:
            message = f"#{loop.command} switches between a product and a residual addition while #{before.command} runs"
            yield Finding(RACE, f"{message}: put a fence between them", (before.command, loop.command))
        for new, old in product(loop.spans, before.spans):
            # The halves of results alternate, unless a result is larger than a half.
            if new.loaded or (new.memory == "acc" and new.low != old.low):
                yield from _race(before, loop, old, new)


def _race(before: Flight, loop: Flight, old: OperandRows, new: OperandRows) -> Iterator[Finding]:
    """Yield a race if the operand `new` of `loop` shares rows with the operand `old` of the loop `before`."""
    low = max(new.low, old.low)
    high = min(new.high, old.high)
    used = old.name if old.memory == "spad" else "C"
    if old.memory == new.memory and low < high:
        loads = f"load {new.name} into" if new.loaded else "write its result to"
        message = (
            f"#{loop.command} may {loads} {new.memory}[{low}:{high}] before the last commands of #{before.command},"
            f" which use {used} there: put a fence between them, or use the other half"
        )
        yield Finding(RACE, message, (before.command, loop.command), new.memory, low, high)
