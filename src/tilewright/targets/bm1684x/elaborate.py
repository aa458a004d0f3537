"""Queues as steps: what each command does and touches, and which command of the other engine it waits for.

A command names the number of the other engine's command that it needs. As engines run in order, that is a token: the
first command that needs a newer one than those before it takes the token which the named command gives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.errors import ProgramError
from tilewright.sim.order import Order, order
from tilewright.sim.steps import Footprints, Space, StepTable, TokenQueue
from tilewright.targets.bm1684x.command import Command
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.stream import Encoded, decode
from tilewright.targets.bm1684x.memory import Memories, Region
from tilewright.targets.bm1684x.operations import DMA, TIU

UNITS = (TIU, DMA)


@dataclass(frozen=True, eq=False)
class Step:
    """A command in its engine's queue: its `id` there, counted from 1, and the other engine's one that it `needs`."""

    engine: str
    id: int
    needs: int
    command: Command
    name: str

    def __str__(self) -> str:
        return f"{self.name}: {self.command.operation.name}"


@dataclass(frozen=True, eq=False)
class Elaborated:
    """The commands of all queues in one legal order, and the step table they make."""

    steps: tuple[Step, ...]
    table: StepTable

    @classmethod
    def of(cls, steps: Sequence[Step], regions: Sequence[Region] = ()) -> Elaborated:
        """From steps in an order that they allow; with `regions` (the memories) hazards can be looked for."""
        return cls(tuple(steps), _table(steps, regions))

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(step.command for step in self.steps)

    @cached_property
    def order(self) -> Order:
        return order(self.table)

    def run(self, memories: Memories, sequence: Array | None = None) -> None:
        """Run all commands, in one order that dependencies allow (None: the queues' own). Raises MachineError."""
        with one_thread():
            for row in self.order.sequence if sequence is None else sequence:
                self.steps[row].command.run(memories)


def elaborate(queues: Mapping[str, Array], config: Config, regions: Sequence[Region] = ()) -> Elaborated:
    """Decode queues (uint8 by engine), and order them. Raises ProgramError for what is no queue or never starts."""
    encoded = _merged({unit: decode(unit, queues[unit]) for unit in UNITS if unit in queues})
    return Elaborated.of([Step(c.engine, c.id, c.needs, command_of(c, config), str(c)) for c in encoded], regions)


def _idle(command: Encoded) -> bool:
    """Ends and nops."""
    return command.is_end or command.format.name == "SYSID"


def _merged(decoded: Mapping[str, list[Encoded]]) -> list[Encoded]:
    """Commands in an order that respects what each needs: DMA as early as it can."""
    waiting = {unit: list(reversed(commands)) for unit, commands in decoded.items()}
    ended = dict.fromkeys(UNITS, 0)
    steps: list[Encoded] = []
    while any(waiting.values()):
        for unit, other in ((DMA, TIU), (TIU, DMA)):
            queue = waiting.get(unit, [])
            if queue and queue[-1].needs <= ended[other]:
                command = queue.pop()
                ended[unit] = command.id
                if not _idle(command):
                    steps.append(command)
                break
        else:
            heads = [queue[-1] for queue in waiting.values() if queue]
            waits = "; ".join(f"{head} needs number {head.needs} of the other engine" for head in heads)
            raise ProgramError("queues", f"no command can start: {waits}", "correct cmd_id_dep")
    return steps


def _table(steps: Sequence[Step], regions: Sequence[Region]) -> StepTable:
    unit = np.array([UNITS.index(step.engine) for step in steps], np.int64)
    pops, pushes = np.zeros((2, len(steps)), np.int64)
    rows: dict[str, list[int]] = {engine: [] for engine in UNITS}
    newest = dict.fromkeys(UNITS, 0)  # commands of the other engine that each one knows to have ended
    for row, step in enumerate(steps):
        queue = UNITS.index(step.engine)  # the queue to a unit has the unit's number
        others = rows[UNITS[1 - queue]]
        known = bisect_right(others, step.needs, key=lambda other: steps[other].id)
        if known > newest[step.engine]:
            newest[step.engine] = known
            pops[row] |= 1 << queue
            pushes[others[known - 1]] |= 1 << queue
        rows[step.engine].append(row)
    return StepTable(
        units=UNITS,
        queues=tuple(TokenQueue(f"{UNITS[1 - u]}->{UNITS[u]}", 1 - u, u, len(steps) + 1) for u in range(len(UNITS))),
        spaces=tuple(Space(f"{r.name} {r.base:#x}", len(r.data), ((0, len(r.data)),)) for r in regions),
        unit=unit,
        pops=pops,
        pushes=pushes,
        footprint=np.arange(len(steps), dtype=np.int64),
        footprints=Footprints.of([step.command.footprint(regions) for step in steps]),
        describe=lambda row: str(steps[row]),
    )
