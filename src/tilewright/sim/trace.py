"""When each step ran and what it waited for: columns, one row a step in stream order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import StepTable

#: Causes of a wait before a step starts: nothing, the command not yet delivered, or CAUSE_TOKEN + queue index.
CAUSE_NONE, CAUSE_COMMAND, CAUSE_TOKEN = 0, 1, 2


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

    def busy(self) -> dict[str, int]:
        """Cycles that each unit spent inside steps."""
        spent = np.bincount(self.table.unit, self.end - self.start, minlength=len(self.table.units))
        return {name: int(cycles) for name, cycles in zip(self.table.units, spent, strict=True)}

    def stalls(self, unit: str) -> dict[str, int]:
        """Cycles that one unit stood idle, by cause; 'drain' is from its last step to the end of the launch."""
        index = self.table.units.index(unit)
        mine = np.flatnonzero(self.table.unit == index)
        waits = np.bincount(self.cause[mine], self.wait[mine], minlength=CAUSE_TOKEN + len(self.table.queues))
        stalls = {name: int(waits[code]) for code, name in enumerate(self.cause_names()) if waits[code] and code}
        drain = self.cycles - (int(self.end[mine].max()) if len(mine) else 0)
        return {**stalls, **({"drain": drain} if drain else {})}

    def cause_names(self) -> list[str]:
        return ["", "instruction fetch", *(f"{queue.name} token" for queue in self.table.queues)]
