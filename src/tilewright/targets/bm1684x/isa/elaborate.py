"""Turn queues of commands into the step table that the simulator orders, checks and times.

An encoded command can wait for one command of the other engine: it contains the id of that command. A command of a
kernel may wait for one command of each other engine. Engines run in order, so tokens can express these dependencies.
The awaited command pushes a token, and the waiting command pops it. No token is needed if an earlier command of the
waiting queue already waits for the same command or a newer one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.array import Array, ascending, one_thread
from tilewright.errors import ProgramError
from tilewright.sim.order import Order, order
from tilewright.sim.steps import MODE, SPACE, WRITE, Footprints, Space, StepTable, TokenQueue
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.operations import DMA, HAU, TIU
from tilewright.targets.bm1684x.isa.stream import SYS, EncodedCommand, decode
from tilewright.targets.bm1684x.values.memory import SCRATCH, Knobs, Memories, Region, of_rows

#: UNITS are the engines with encoded queues; ENGINES are all engines.
UNITS = (TIU, DMA)
ENGINES = (TIU, DMA, HAU)


DEFAULT = Knobs()


@dataclass(frozen=True, eq=False)
class Step:
    """A command in the queue of its engine.

    `id` is its number in the queue, from 1. For each engine in `needs`, the command with the given id must end before
    this command starts (0: no command).
    """

    engine: str
    id: int
    needs: Mapping[str, int]
    command: Command
    name: str

    def with_touched(self, touched: Mapping[str, Array]) -> Step:
        """Return a copy of this step whose command has the masks `touched`."""
        return replace(self, command=replace(self.command, touched=touched)) if touched else self

    def __str__(self) -> str:
        return f"{self.name}: {self.command.operation.name}"


@dataclass(frozen=True, eq=False)
class ElaboratedProgram:
    """The commands of all queues in one legal order, and their step table.

    The spaces of the table are the memories `regions`. Without regions, the footprints are empty.
    """

    steps: tuple[Step, ...]
    table: StepTable
    regions: tuple[Region, ...] = ()

    @classmethod
    def of(cls, steps: Sequence[Step], regions: Sequence[Region] = (), knobs: Knobs = DEFAULT) -> ElaboratedProgram:
        """Return the program of `steps` in a legal order. Footprints and hazards need `regions`."""
        return cls(tuple(steps), _table(steps, regions, knobs), tuple(regions))

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(step.command for step in self.steps)

    @cached_property
    def order(self) -> Order:
        return order(self.table)

    def run(self, memories: Memories, sequence: Array | None = None) -> ElaboratedProgram:
        """Run all commands, and return the program with exact footprints.

        `sequence` is a legal order of the steps (None: the order found from the queues). Footprints that depend on
        values are exact only in the returned program. Raises MachineError if a command is refused or accesses bytes
        outside of the memories. All commands before it have run.
        """
        steps = list(self.steps)
        ran = []
        try:
            with one_thread():
                for row in (self.order.sequence if sequence is None else sequence).tolist():
                    touched: dict[str, Array] = {}
                    steps[row].command.run(memories, touched)
                    steps[row] = steps[row].with_touched(touched)
                    ran.append(row)
        finally:  # even if a command is refused: later launches must see the results of the earlier commands
            program = self
            if steps != list(self.steps):
                footprints = [step.command.footprint(self.regions, memories.knobs.ignores_bounds) for step in steps]
                program = replace(
                    self, steps=tuple(steps), table=replace(self.table, footprints=Footprints.of(footprints))
                )
            program.mark_written(ran)
        return program

    def mark_written(self, ran: Sequence[int] | None = None) -> None:
        """Mark as initialised all bytes that the steps with the indices `ran` have written (None: all steps)."""
        footprints = self.table.footprints
        writes = (footprints.rows[:, MODE] & WRITE) > 0
        if ran is not None:
            writes &= np.isin(footprints.owner(), self.table.footprint[ran])
        rows = footprints.rows[writes]
        for space in ascending(rows[:, SPACE]).tolist():
            self.regions[space].written.add(of_rows(rows[rows[:, SPACE] == space]))


def elaborate(
    queues: Mapping[str, Array], config: Config, regions: Sequence[Region] = (), knobs: Knobs = DEFAULT
) -> ElaboratedProgram:
    """Decode the queues to a program in a legal order. Raises ProgramError for damaged queues and deadlocks."""
    encoded = _merge_queues(queues)
    partner_of = {unit: UNITS[1 - number] for number, unit in enumerate(UNITS)}
    steps = [Step(c.engine, c.id, {partner_of[c.engine]: c.needs}, command_of(c, config), str(c)) for c in encoded]
    return ElaboratedProgram.of(steps, regions, knobs)


def step_numbers(queues: Mapping[str, Array]) -> dict[tuple[str, int], int]:
    """Return each command's row in the step table, by engine and id. Raises ProgramError for a deadlock."""
    return {(command.engine, command.id): row for row, command in enumerate(_merge_queues(queues))}


def _merge_queues(queues: Mapping[str, Array]) -> list[EncodedCommand]:
    waiting = {unit: decode(unit, queues[unit])[::-1] for unit in UNITS if unit in queues}
    ended = dict.fromkeys(UNITS, 0)
    steps: list[EncodedCommand] = []
    while any(waiting.values()):
        # As in the vendor's debugger, DMA commands come as early as possible.
        # Ids ascend in each queue. A command can be merged if the other engine's last merged command has at least the
        # id `needs`.
        for unit, partner in ((DMA, TIU), (TIU, DMA)):
            queue = waiting.get(unit, [])
            if queue and queue[-1].needs <= ended[partner]:
                command = queue.pop()
                ended[unit] = command.id
                if not (command.is_end or command.format.name == SYS):  # ends and nops are not steps
                    steps.append(command)
                break
        else:
            heads = [queue[-1] for queue in waiting.values() if queue]
            waits = "; ".join(f"{head} needs command {head.needs} of the other engine" for head in heads)
            raise ProgramError(
                "queues", f"no command can start: {waits}", "correct the field cmd_id_dep of one of them"
            )
    return steps


def _space(region: Region, knobs: Knobs) -> Space:
    scratch = region.name in SCRATCH
    written = [] if knobs.forgets and scratch else region.written.array.tolist()
    ranges = tuple((low, high) for low, high in written)
    scratchpad = f"{region.name} memory" if scratch else ""
    return Space(f"{region.name} {region.base:#x}", len(region.data), ranges, scratchpad)


def _table(steps: Sequence[Step], regions: Sequence[Region], knobs: Knobs) -> StepTable:
    units = UNITS if all(step.engine in UNITS for step in steps) else ENGINES
    # There is one token queue for each ordered pair of engines. A token tells the taker that a command of the giver has
    # ended.
    pairs = [(giver, taker) for taker in units for giver in units if giver != taker]
    unit = np.array([units.index(step.engine) for step in steps], np.int64)
    pops, pushes = np.zeros((2, len(steps)), np.int64)
    rows: dict[str, list[int]] = {engine: [] for engine in units}
    newest = dict.fromkeys(pairs, 0)  # the taker waits for the giver's first N commands
    for row, step in enumerate(steps):
        for queue, (giver, taker) in enumerate(pairs):
            if taker != step.engine:
                continue
            waited = bisect_right(rows[giver], step.needs.get(giver, 0), key=lambda giver_row: steps[giver_row].id)
            # Engines run in order, so a wait for a command includes all earlier commands of its queue. A token is
            # needed only if the awaited command is newer than all commands awaited before.
            if waited > newest[giver, taker]:
                newest[giver, taker] = waited
                pops[row] |= 1 << queue
                pushes[rows[giver][waited - 1]] |= 1 << queue
        rows[step.engine].append(row)
    tokens = [TokenQueue(f"{g}->{t}", units.index(g), units.index(t), len(steps) + 1) for g, t in pairs]
    return StepTable(
        units=units,
        queues=tuple(tokens),
        spaces=tuple(_space(r, knobs) for r in regions),
        unit=unit,
        pops=pops,
        pushes=pushes,
        footprint=np.arange(len(steps), dtype=np.int64),
        footprints=Footprints.of([step.command.footprint(regions, knobs.ignores_bounds) for step in steps]),
        describe=lambda row: str(steps[row]),
    )
