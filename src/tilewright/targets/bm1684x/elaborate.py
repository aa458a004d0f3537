"""Queues as steps: what each command does and touches, and which command of the other engine it waits for.

A command names the number of the other engine's command that it needs. As engines run in order, that is a token: the
first command that needs a newer one than those before it takes the token which the named command gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.array import Array
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
class Elaborated:
    """The commands of all queues in one legal order, and the step table they make."""

    commands: tuple[Command, ...]
    encoded: tuple[Encoded, ...]
    table: StepTable

    @cached_property
    def order(self) -> Order:
        return order(self.table)

    def run(self, memories: Memories, sequence: Array | None = None) -> None:
        """Run all commands, in one order that dependencies allow (None: the queues' own). Raises MachineError."""
        for row in self.order.sequence if sequence is None else sequence:
            self.commands[row].run(memories)


def elaborate(queues: Mapping[str, Array], config: Config, regions: Sequence[Region] = ()) -> Elaborated:
    """Decode queues (uint8 by engine) and order them. Raises ProgramError for what cannot be decoded or never starts.

    With `regions` (the memories) the table has footprints, so that hazards can be looked for.
    """
    decoded = {unit: [c for c in decode(unit, queues[unit]) if not _idle(c)] for unit in UNITS if unit in queues}
    steps = _merged(decoded)
    commands = tuple(command_of(step, config) for step in steps)
    return Elaborated(commands, tuple(steps), _table(steps, commands, regions))


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
                steps.append(queue.pop())
                ended[unit] = steps[-1].id
                break
        else:
            heads = [queue[-1] for queue in waiting.values() if queue]
            waits = "; ".join(f"{head} needs number {head.needs} of the other engine" for head in heads)
            raise ProgramError("queues", f"no command can start: {waits}", "correct cmd_id_dep")
    return steps


def _table(steps: Sequence[Encoded], commands: Sequence[Command], regions: Sequence[Region]) -> StepTable:
    unit = np.array([UNITS.index(step.engine) for step in steps], np.int64)
    pops, pushes = np.zeros((2, len(steps)), np.int64)
    place = {(step.engine, step.id): row for row, step in enumerate(steps)}
    newest = dict.fromkeys(UNITS, 0)
    for row, step in enumerate(steps):
        if step.needs > newest[step.engine]:
            newest[step.engine] = step.needs
            queue = UNITS.index(step.engine)  # the queue to a unit has the unit's number
            pops[row] |= 1 << queue
            pushes[place[UNITS[1 - queue], step.needs]] |= 1 << queue
    queues = tuple(TokenQueue(f"{UNITS[1 - u]}->{UNITS[u]}", 1 - u, u, len(steps) + 1) for u in range(len(UNITS)))
    spaces = tuple(
        Space(f"{region.name} {region.base:#x}", len(region.data), ((0, len(region.data)),)) for region in regions
    )
    footprints = Footprints.of([command.footprint(regions) for command in commands])
    return StepTable(
        UNITS,
        queues,
        spaces,
        unit,
        pops,
        pushes,
        np.arange(len(steps), dtype=np.int64),
        footprints,
        lambda row: f"{steps[row]}: {commands[row].operation.name}",
    )
