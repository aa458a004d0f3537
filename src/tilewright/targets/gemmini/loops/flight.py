"""Races between two loops that an unroller works on at once.

Loads of a loop may enter the reservation station before the last execute commands of the loop before it. The station
then takes them for the older commands, and the execute commands read what the wrong loop loaded.
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
    """Rows of a memory that hold an operand of a loop; `loaded`: the loop loads it itself."""

    name: str
    memory: str
    low: int
    high: int
    loaded: bool


class Flight(NamedTuple):
    """A loop: the command that starts it, its unroller, whether it is a residual addition, its operands."""

    command: int
    unroller: int
    residual: bool
    spans: tuple[OperandRows, ...]


def spans(unroller: int, r: Mapping[str, int], place: OnChip, config: Config) -> tuple[OperandRows, ...]:
    """Return where a loop keeps its operands; nothing for a residual addition, whose halves always alternate."""
    if unroller == CONV:
        shape = TileShape(r, config)
        a = shape.input_rows
        b = shape.weight_rows
        c = shape.out_rows
        names = (("input", "input"), ("weights", "weights"), ("bias", "bias"))
    elif r["resadd"]:
        return ()
    else:
        a, b, c = (r[rows] * r[columns] * config.dim for rows, columns in ("ik", "kj", "ij"))
        names = (("A", "a"), ("B", "b"), ("D", "d"))
    rows = (place.a, place.a + a), (place.b_end - b, place.b_end), (place.c, place.c + c)
    memories = ("spad", "spad", "acc")
    return tuple(
        OperandRows(name, memory, *own, bool(r[register]))
        for (name, register), memory, own in zip(names, memories, rows, strict=True)
    )


def findings(flights: Sequence[Flight], functs: Array) -> Iterator[Finding]:
    """Yield the races between loops that may be in flight at once; `functs` [n] are those of the program."""
    passed = {MATMUL: (*COMMANDS[MATMUL], *COMMANDS[CONV][1:]), CONV: COMMANDS[CONV]}
    separating = {unroller: np.cumsum(~np.isin(functs, some)) for unroller, some in passed.items()}  # these wait
    last: dict[int, Flight] = {}
    for own in flights:
        before = last.get(own.unroller)
        count = separating[own.unroller]
        last[own.unroller] = own
        if before is None or count[before.command] < count[own.command]:
            continue
        if before.residual != own.residual:
            message = f"#{own.command} switches between a product and a residual addition while #{before.command} runs"
            yield Finding(RACE, f"{message}: put a fence between them", (before.command, own.command))
        for new, old in product(own.spans, before.spans):
            if new.loaded:
                yield from _race(before, own, old, new)


def _race(before: Flight, own: Flight, old: OperandRows, new: OperandRows) -> Iterator[Finding]:
    """Yield the race of an operand that a loop loads with one that the loop before it may still use."""
    low = max(new.low, old.low)
    high = min(new.high, old.high)
    used = old.name if old.memory == "spad" else "C"
    if old.memory == new.memory and low < high:
        message = (
            f"#{own.command} may load {new.name} into {new.memory}[{low}:{high}] before the last execute commands of"
            f" #{before.command}, which use {used} there: put a fence between them, or use the other half"
        )
        yield Finding(RACE, message, (before.command, own.command), new.memory, low, high)
