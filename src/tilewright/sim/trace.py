"""When each step ran and what it waited for: columns, one row a step in stream order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import StepTable

#: Causes of a wait before a step starts: nothing, the command not yet delivered, or CAUSE_TOKEN + queue index.
CAUSE_NONE, CAUSE_COMMAND, CAUSE_TOKEN = 0, 1, 2


@dataclass(frozen=True)
class Part:
    """What one of several layers takes of a launch: cycles, bytes, and stalls of the unit that does the work.

    `serial_cycles` is None where the launch has no serial time (see `LaunchResult`).
    """

    cycles: int
    serial_cycles: int | None
    bytes_read: int
    bytes_written: int
    stalls: Mapping[str, int]


def serial_total(cycles: Iterable[int | None]) -> int | None:
    """The sum of serial times, None where one of them is not defined."""
    total = 0
    for one in cycles:
        if one is None:
            return None
        total += one
    return total


@dataclass(frozen=True, eq=False)
class Trace:
    """int64 [n] columns, cycles from the start of the launch; `cycles` is when the last step ended.

    `wait` is how long the step's unit stood idle before it because of `cause`; `contention` how long its
    transfers waited for the DRAM channel.
    """

    table: StepTable
    start: Array
    end: Array
    wait: Array
    cause: Array
    contention: Array
    bytes_read: Array
    bytes_written: Array
    fetch_bytes: int
    cycles: int

    @cached_property
    def until(self) -> Array:
        """When each step ends or, where steps of a unit overlap, its unit starts the next one: int64 [n].

        A unit starts its steps in order, and they end in order.
        """
        until = self.end.copy()
        first, steps = self.table.by_unit()
        for low, high in zip(first.tolist(), first[1:].tolist(), strict=False):
            mine = steps[low:high]
            until[mine[:-1]] = np.minimum(until[mine[:-1]], self.start[mine[1:]])
        return until

    def busy(self) -> dict[str, int]:
        """Cycles that each unit spent inside steps; in those that overlap once."""
        spent = np.bincount(self.table.unit, self.until - self.start, minlength=len(self.table.units))
        return {name: int(cycles) for name, cycles in zip(self.table.units, spent, strict=True)}

    def stalls(self, unit: str) -> dict[str, int]:
        """Cycles that one unit stood idle, by cause; 'drain' is from its last step to the end of the launch."""
        mine = np.flatnonzero(self.table.unit == self.table.units.index(unit))
        drain = self.cycles - (int(self.end[mine].max()) if len(mine) else 0)
        return {**self._waits(mine), **({"drain": drain} if drain else {})}

    def _waits(self, steps: Array) -> dict[str, int]:
        waits = np.bincount(self.cause[steps], self.wait[steps], minlength=CAUSE_TOKEN + len(self.table.queues))
        return {name: int(waits[code]) for code, name in enumerate(self.cause_names()) if waits[code] and code}

    def parts(self, part: Array, serial: Trace | None, unit: str) -> tuple[Part, ...]:
        """The launch divided: `part` [n] numbers the part of each step, from 0; `serial` is its trace in serial order.

        None: the launch has no such trace, and its parts have no serial time.

        A part's cycles are from the end of those before it to its own end: their sum is the launch's.
        """
        found, before = [], 0
        alone = None if serial is None else np.diff(serial.end, prepend=0)
        works = self.table.unit == self.table.units.index(unit)
        count = int(part.max(initial=0)) + 1
        for index in range(count):
            mine = part == index
            end = max(before, int(self.end[mine].max(initial=0))) if index + 1 < count else self.cycles
            read = int(self.bytes_read[mine].sum()) + self.fetch_bytes * int(mine.sum()) // len(part)
            found.append(
                Part(
                    cycles=end - before,
                    serial_cycles=None if alone is None else int(alone[mine].sum()),
                    bytes_read=read,
                    bytes_written=int(self.bytes_written[mine].sum()),
                    stalls=self._waits(np.flatnonzero(mine & works)),
                )
            )
            before = end
        return tuple(found)

    def cause_names(self) -> list[str]:
        return ["", "instruction fetch", *(f"{queue.name} token" for queue in self.table.queues)]
