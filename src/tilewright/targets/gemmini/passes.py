"""The passes over one launch: loop expansion, hazards, time, values. A pass runs when its result is first needed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tilewright.array import Array
from tilewright.errors import HazardError, MachineError
from tilewright.program.launch_image import Dram
from tilewright.sim.causes import CAUSE_TOKEN
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE, PORTABILITY, Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import StepTable, Trace
from tilewright.targets.gemmini.config import UNITS, Config
from tilewright.targets.gemmini.hazards import Hazards
from tilewright.targets.gemmini.isa.text import line
from tilewright.targets.gemmini.isa.work import QUEUES, Work, work
from tilewright.targets.gemmini.loops import Expansion, expand
from tilewright.targets.gemmini.traffic import moved_bytes, traffic
from tilewright.targets.gemmini.values.machine import Machine, Plan, plan

if TYPE_CHECKING:
    from tilewright.targets.gemmini.timing import Times

#: A request occupies a slot of the DMA for its latency, its beats and this number of cycles [R: gemmini_timing rules 6,
#: 8].
SLOT = 6
#: The number of stages of the scale unit, and the number of rows that these stages contain [R: gemmini_timing rule 9].
SCALE_CYCLES = 8
SCALE_ROWS = 5
#: Why a controller is idle: its next command has not arrived, or waits for a command of one of the UNITS.
IDLE = ("command", *UNITS)


@dataclass(frozen=True, eq=False)
class Passes:
    """The commands of a launch, uint64 [n, 3], on a machine. A step is a primitive command.

    `order` has the execution order of the steps, as indices into the expansion; None stands for the expansion's order.
    """

    cmds: Array
    config: Config
    order: Array | None = None

    @cached_property
    def expansion(self) -> Expansion:
        return expand(self.cmds, self.config)

    @cached_property
    def sequence(self) -> Array:
        """The execution order of the steps, int64 [m]: indices into the primitive commands of the expansion."""
        return self.expansion.order if self.order is None else self.order

    @cached_property
    def prims(self) -> Array:
        """The primitive commands in execution order, uint64 [m, 3]."""
        return self.expansion.prims[self.sequence]

    @cached_property
    def work(self) -> Work:
        return work(self.prims, self.config)

    @cached_property
    def plan(self) -> Plan:
        return plan(self.work, self.config)

    @cached_property
    def hazards(self) -> Hazards:
        return Hazards(self.expansion, self.sequence, self.work, self.config)

    @cached_property
    def times(self) -> Times:
        """The times of all commands. Raises HazardError if the program never ends."""
        from tilewright.targets.gemmini import timing

        return timing.run(self.cmds, self.expansion, self.config, self.config.memory_latency)

    def findings(self, options: RunOptions, placed: bool = True) -> tuple[Finding, ...]:
        """Return the hazards on the implementation that the config selects.

        With `placed`, findings number the primitive commands in the hardware's order, as traces and the debugger do.
        """
        findings = self.hazards.findings if options.check else self.hazards.fatal
        if findings and placed:
            hazards = self.hazards.placed(self.places)
            findings = hazards.findings if options.check else hazards.fatal
        return tuple(finding for finding in findings if finding.kind != PORTABILITY)

    @property
    def every(self) -> tuple[Finding, ...]:
        """All findings, including those about differences between the implementations."""
        findings = self.hazards.findings
        return self.hazards.placed(self.places).findings if findings else findings

    @cached_property
    def places(self) -> Array:
        """The number of each step in traces, int64 [m]. If the program never ends, steps keep their own numbers."""
        place = np.arange(len(self.prims))
        with suppress(MachineError):
            rank = np.empty(len(self.prims), np.int64)
            rank[self.times.order] = place
            place = rank[self.sequence]
        return place

    def refuse(self, options: RunOptions) -> tuple[Finding, ...]:
        """Return the findings. Raises HazardError if the machine cannot execute all commands."""
        findings = self.findings(options)
        for finding in findings:
            if finding.kind in (DEADLOCK, OUT_OF_RANGE):
                raise HazardError("program", str(finding), findings=findings)
        return findings

    def values(self, dram: Dram, samples: int) -> Machine:
        """Compute the values in DRAM, and return the machine. Raises MachineError for an access outside of segments."""
        machine = Machine(self.config, dram, samples)
        machine.run(self.plan, np.arange(len(self.prims)))
        return machine

    @cached_property
    def macs(self) -> int:
        a = self.work.computes.a
        return int((a.rows * a.cols).sum()) * self.config.dim

    @cached_property
    def bound(self) -> int:
        """A lower bound of the cycles for every order of the commands."""
        # The array takes one row per cycle. The bus carries one beat per cycle in each direction; a read request and a
        # write response are one beat each. A DMA request occupies its slot for the latency, its beats and six cycles.
        # Five rows leave the scale unit in eight cycles, because its eight stages contain five rows.
        work = self.work
        config = self.config
        rows = int(work.computes.a.rows.sum())
        stored = work.stores.local
        scaled = int((stored.rows * -(-stored.cols // config.dim) * stored.acc).sum())
        (reads, read), (writes, written) = (traffic(moves, config) for moves in work.moves)
        held = [(config.memory_latency + SLOT) * count for count in (reads, writes)]
        slots = (held[0] + read) // config.reads_in_flight, (held[1] + writes) // config.writes_in_flight
        return max(rows, reads + written, read + writes, scaled * SCALE_CYCLES // SCALE_ROWS, *slots)

    @cached_property
    def trace(self) -> Trace:
        """The times of the primitive commands, in the order in which the reservation station accepted them."""
        times = self.times
        code = np.zeros(len(self.prims), np.int64)
        code[self.sequence] = self.work.code
        unit = QUEUES[code[times.order]]
        taken, start, end = (
            np.where(column[times.order] < 0, times.cycles, column[times.order])  # < 0: a preload without compute
            for column in (times.taken, times.issued, times.done)
        )
        prims = self.expansion.prims[times.order]
        table = StepTable.untracked(UNITS, unit, lambda step: line(prims, step), *IDLE)
        wait, cause = waits(unit, taken, start, end)
        read, written = np.zeros((2, len(prims)), np.int64)
        for column, moves in ((read, self.work.loads), (written, self.work.stores)):
            column[self.sequence[moves.step]] = moved_bytes(moves)
        none = np.zeros(len(prims), np.int64)
        return Trace(table, start, end, wait, cause, none, read[times.order], written[times.order], 0, times.cycles)


def waits(unit: Array, taken: Array, start: Array, end: Array) -> tuple[Array, Array]:
    """Return the idle cycles of the controller before each command, and their cause (an index into IDLE), int64 [m]."""
    # A command is issued one cycle after its arrival, or one cycle after the last command on which it depends (rules 1
    # and 22). So if a command starts later than one cycle after its arrival, the cause is a command that ended one
    # cycle before the start.
    wait = np.zeros(len(unit), np.int64)
    cause = np.zeros(len(unit), np.int64)
    released = [_follows(start, end[unit == source]) for source in range(len(UNITS))]
    for queue in range(len(UNITS)):
        mine = np.flatnonzero(unit == queue)
        before = np.maximum.accumulate(np.append(0, end[mine][:-1]))[: len(mine)]
        wait[mine] = np.maximum(start[mine] - before, 0)
        late = mine[start[mine] > taken[mine] + 1]
        for source, follows in enumerate(released):
            cause[late[follows[late] & (cause[late] == 0)]] = source + 1
    return wait, np.where(wait > 0, cause + CAUSE_TOKEN, 0)


def _follows(start: Array, end: Array) -> Array:
    ends = np.sort(end) + 1
    if not len(ends):
        return np.zeros(len(start), np.bool_)
    return ends[np.minimum(np.searchsorted(ends, start), len(ends) - 1)] == start
