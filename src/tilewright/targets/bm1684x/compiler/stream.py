"""Commands of both engines in program order, what each must wait for, and when the DMA engine best does its part.

Commands are given in an order that a single engine could run. What a command touches in local memory is noted in units
of `UNIT` bytes of a lane; so it is known which earlier command of the other engine it needs. Compute commands stay in
this order; transfers into local memory move ahead as far as what they overwrite allows (`schedule`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.layouts.operand import Operand
from tilewright.targets.bm1684x.layouts.tensor import Tensor, storage_of
from tilewright.targets.bm1684x.timing import estimate

#: Bytes of a lane that are told apart.
UNIT = 64


@dataclass(eq=False)
class Issued:
    """A command of one engine. `after`: how many commands of the compute engine must have ended (of a transfer);
    `needs`: transfers that must have ended (of a compute command), or must come before it (of a transfer). `layer` is
    the layer that it works for.
    """

    command: Command
    layer: int
    kind: str
    after: int = 0
    needs: list[int] = field(default_factory=list)
    before: int = 1 << 60  # the first compute command that waits for this transfer


@dataclass(frozen=True, eq=False)
class Scheduled:
    """Both queues: commands, the layer of each, and the number (from 1) of the other engine's command it waits for.
    `cycles`: when the last one ends.
    """

    commands: dict[str, list[Command]]
    layers: dict[str, list[int]]
    needs: dict[str, list[int]]
    cycles: int


class Stream:
    """A program under construction."""

    def __init__(self, config: Config) -> None:
        self._config = config
        units = config.lane_bytes // UNIT
        self._touched = np.zeros(units, np.int64)  # compute commands up to the last that touches it
        self._written = np.full(units, -1, np.int64)  # the last transfer that wrote it
        self._read = np.full(units, -1, np.int64)  # the last transfer that read it
        self._compute: list[Issued] = []
        self._moves: list[Issued] = []

    def compute(self, command: Command, layer: int) -> None:
        """A command of the compute engine."""
        issued = Issued(command, layer, TIU)
        number, found = len(self._compute), set()
        for operand in command.operands.values():
            if not isinstance(operand, Constant):
                found |= self._transfers(self._written, operand)
                self._touch(operand, number + 1)
        for result in command.results.values():
            found |= self._transfers(self._written, result) | self._transfers(self._read, result)
            self._touch(result, number + 1)
        issued.needs = sorted(found - {-1})
        for move in issued.needs:
            self._moves[move].before = min(self._moves[move].before, number)
        self._compute.append(issued)

    def move(self, command: Command, layer: int, kind: str) -> None:
        """A transfer; those of one `kind` keep their order."""
        issued = Issued(command, layer, kind)
        for operand in (*command.operands.values(), *command.results.values()):
            if isinstance(operand, Tensor) and operand.is_local:
                low, high = self._units(operand)
                issued.after = max(issued.after, int(self._touched[low:high].max()))
                into = operand in command.results.values()
                earlier = self._transfers(self._written, operand)
                earlier |= self._transfers(self._read, operand) if into else set()
                issued.needs += sorted(earlier - {-1})
                (self._written if into else self._read)[low:high] = len(self._moves)
        self._moves.append(issued)

    def schedule(self) -> Scheduled:
        """Both queues. The transfer that can start first comes next; of several, the one that is needed first."""
        cost = [estimate.cycles(issued.command, self._config) for issued in self._compute]
        heads: dict[str, deque[int]] = {}
        for number, issued in enumerate(self._moves):
            heads.setdefault(issued.kind, deque()).append(number)
        for queue in heads.values():  # one is as urgent as those behind it
            for earlier, later in pairwise(reversed(queue)):
                self._moves[later].before = min(self._moves[later].before, self._moves[earlier].before)
        ended: list[int] = []  # of compute commands, as far as they can be known
        arrived: dict[int, int] = {}
        order: list[int] = []
        now = 0
        while any(heads.values()):
            self._advance(cost, ended, arrived)
            ready = [
                (max(now, ended[move.after - 1] if move.after else 0), move.before, queue[0])
                for queue in heads.values()
                if queue
                and (move := self._moves[queue[0]]).after <= len(ended)
                and all(other in arrived for other in move.needs)
            ]
            start, _, number = min(ready)
            now = start + estimate.cycles(self._moves[number].command, self._config)
            arrived[number] = now
            order.append(number)
            heads[self._moves[number].kind].popleft()
        self._advance(cost, ended, arrived)
        place = {number: index for index, number in enumerate(order, 1)}
        moves = [self._moves[number] for number in order]
        return Scheduled(
            {TIU: [issued.command for issued in self._compute], DMA: [move.command for move in moves]},
            {TIU: [issued.layer for issued in self._compute], DMA: [move.layer for move in moves]},
            {
                TIU: [max((place[move] for move in issued.needs), default=0) for issued in self._compute],
                DMA: [move.after for move in moves],
            },
            max(now, ended[-1] if ended else 0),
        )

    def _advance(self, cost: list[int], ended: list[int], arrived: dict[int, int]) -> None:
        """Run compute commands until one waits for a transfer that has no place yet."""
        while len(ended) < len(self._compute):
            needs = self._compute[len(ended)].needs
            if any(move not in arrived for move in needs):
                return
            start = max(ended[-1] if ended else 0, max((arrived[move] for move in needs), default=0))
            ended.append(start + cost[len(ended)])

    def _transfers(self, column: Array, operand: Operand) -> set[int]:
        low, high = self._units(operand)
        return set(np.unique(column[low:high]).tolist())

    def _touch(self, operand: Operand, number: int) -> None:
        low, high = self._units(operand)
        self._touched[low:high] = number

    def _units(self, operand: Operand) -> tuple[int, int]:
        """The units of a lane between the first and the last byte of an operand."""
        tensor = storage_of(operand)
        assert tensor is not None
        return tensor.lane_offset // UNIT, -(-tensor.lane_end // UNIT)
