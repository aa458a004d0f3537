"""A launch under construction: segments of DDR, blocks of constants, transfers, commands, at last both queues.

Commands are given in an order that a single engine could run. What a command touches in local memory is noted in units
of `UNIT` bytes of a lane; so it is known which earlier command of the other engine it needs. Compute commands stay in
this order; transfers into local memory move ahead as far as what they overwrite allows (`schedule`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tilewright.program.program import Launch
from tilewright.sim.steps import WRITE
from tilewright.targets.bm1684x.compiler.layer import Layer, Stored
from tilewright.targets.bm1684x.compiler.plan import Ring
from tilewright.targets.bm1684x.compiler.tiles import Cut, Tile, commands
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.meaning import encoded
from tilewright.targets.bm1684x.isa.operations import DMA, OPERATIONS, TIU
from tilewright.targets.bm1684x.isa.stream import queue
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import LARGEST, Tensor
from tilewright.targets.bm1684x.timing import estimate
from tilewright.targets.bm1684x.values.dtypes import U8

#: Bytes of a lane that are told apart.
UNIT = 64
#: Segments of DDR begin at multiples of so many bytes.
PAGE = 4096
#: Transfers that keep their order among themselves.
CONSTANTS, INPUTS, OUTPUTS = "constants", "inputs", "outputs"


@dataclass(eq=False)
class Issued:
    """A command of one engine. `after`: how many commands of the other engine must have ended: of a compute command,
    known once transfers are ordered. `needs`: transfers that must have ended (of a compute command), or must come
    before it (of a transfer). `layer` is the layer that it works for.
    """

    command: Command
    layer: int
    kind: str
    after: int = 0
    needs: list[int] = field(default_factory=list)
    before: int = 1 << 60  # the first compute command that waits for this transfer


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
        for mode, _, operand in command.in_memory:
            found |= self._transfers(mode, operand)
            low, high = self._units(operand)
            self._touched[low:high] = number + 1
        issued.needs = sorted(found)
        for move in issued.needs:
            self._moves[move].before = min(self._moves[move].before, number)
        self._compute.append(issued)

    def move(self, command: Command, layer: int, kind: str) -> None:
        """A transfer; those of one `kind` keep their order."""
        issued = Issued(command, layer, kind)
        for mode, _, operand in command.in_memory:
            if operand.storage.is_local:
                low, high = self._units(operand)
                issued.after = max(issued.after, int(self._touched[low:high].max()))
                issued.needs += sorted(self._transfers(mode, operand))
                (self._written if mode == WRITE else self._read)[low:high] = len(self._moves)
        self._moves.append(issued)

    def schedule(self) -> tuple[dict[str, list[Issued]], int]:
        """Both queues, and when the last command ends.

        The transfer that can start first comes next; of several, the one that is needed first.
        """
        cost = [estimate.cycles(issued.command, self._config) for issued in self._compute]
        heads: dict[str, deque[int]] = {}
        for number, issued in enumerate(self._moves):
            heads.setdefault(issued.kind, deque()).append(number)
        for waiting in heads.values():  # one is as urgent as those behind it
            for earlier, later in pairwise(reversed(waiting)):
                self._moves[later].before = min(self._moves[later].before, self._moves[earlier].before)
        ended: list[int] = []  # of compute commands, as far as they can be known
        arrived: dict[int, int] = {}
        order: list[int] = []
        now = 0
        while any(heads.values()):
            self._advance(cost, ended, arrived)
            ready = [
                (max(now, ended[move.after - 1] if move.after else 0), move.before, waiting[0])
                for waiting in heads.values()
                if waiting
                and (move := self._moves[waiting[0]]).after <= len(ended)
                and all(other in arrived for other in move.needs)
            ]
            start, _, number = min(ready)
            now = start + estimate.cycles(self._moves[number].command, self._config)
            arrived[number] = now
            order.append(number)
            heads[self._moves[number].kind].popleft()
        self._advance(cost, ended, arrived)
        place = {number: index for index, number in enumerate(order, 1)}
        for issued in self._compute:
            issued.after = max((place[move] for move in issued.needs), default=0)
        queues = {TIU: self._compute, DMA: [self._moves[number] for number in order]}
        return queues, max(now, ended[-1] if ended else 0)

    def _advance(self, cost: list[int], ended: list[int], arrived: dict[int, int]) -> None:
        """Run compute commands until one waits for a transfer that has no place yet."""
        while len(ended) < len(self._compute):
            needs = self._compute[len(ended)].needs
            if any(move not in arrived for move in needs):
                return
            start = max(ended[-1] if ended else 0, max((arrived[move] for move in needs), default=0))
            ended.append(start + cost[len(ended)])

    def _transfers(self, mode: int, operand: Operand) -> set[int]:
        """Those that must have ended before an operand is read or written."""
        low, high = self._units(operand)
        columns = (self._written, self._read) if mode == WRITE else (self._written,)
        return {number for column in columns for number in np.unique(column[low:high]).tolist()} - {-1}

    def _units(self, operand: Operand) -> tuple[int, int]:
        """The units of a lane between the first and the last byte of an operand."""
        tensor = operand.storage
        return tensor.lane_offset // UNIT, -(-tensor.lane_end // UNIT)


class Assembly:
    """A launch under construction. `entering` and `leaving`: address in DDR and storage of tensors."""

    def __init__(
        self,
        layers: Sequence[Layer],
        cuts: Sequence[Cut],
        entering: Mapping[str, Stored],
        leaving: Mapping[str, Stored],
        values_end: int,
        config: Config,
    ) -> None:
        self.config, self.stream = config, Stream(config)
        self.done: set[str] = set()  # blocks of constants that nothing reads any more
        self._layers, self._values_end = layers, values_end
        self._ring = Ring(values_end, config.lane_bytes)
        self._resident: dict[tuple[int, int], int] = {}
        self._blocks = {(at, number): block for at, cut in enumerate(cuts) for number, block in enumerate(cut.blocks)}
        *addresses, end = accumulate((block.size for block in self._blocks.values()), initial=DDR_BASE)
        self._block_address = dict(zip(self._blocks, addresses, strict=True))
        self.entering, end = self._segments(entering, end)
        self.leaving, _ = self._segments(leaving, end)

    def _segments(self, tensors: Mapping[str, Stored], address: int) -> tuple[dict[str, tuple[int, Stored]], int]:
        """Where all samples of each tensor lie in DDR, and where the last one ends."""
        found = {}
        for name, stored in tensors.items():
            address = -(-address // PAGE) * PAGE
            found[name] = (address, stored)
            address += stored.nbytes * self.config.batch
        return found, address

    def block(self, index: int, number: int) -> int:
        """The lane offset of a block of constants, which is loaded where it is not there yet. Raises plan.Full."""
        if (index, number) not in self._blocks:
            return 0
        if (index, number) not in self._resident:
            lanes, size = self._blocks[index, number].shape
            offset = self._ring.take(block_name(index, number), size, self.done)
            self._resident[index, number] = offset
            address = self._block_address[index, number]
            used = min(lanes, self._layers[index].result.c)
            for low in range(0, size, LARGEST - LARGEST % 64):
                width = min(size - low, LARGEST - LARGEST % 64)
                shape = Shape(1, used, 1, width)
                far = Tensor(address + low, shape, Stride(lanes * size, size, size, 1), U8, self.config)
                near = Tensor.local(0, offset + low, shape, U8, self.config)
                self.stream.move(copy(near, far), index, CONSTANTS)
        return self._resident[index, number]

    def load(self, name: str, number: int, near: Tensor, index: int, first: int = 0) -> None:
        """Rows of sample `number` of an input, from row `first` on, into local memory."""
        address, stored = self.entering[name]
        address += number * stored.nbytes
        if stored.phases is None:
            self.stream.move(copy(near, self._rows(address, stored, near, first)), index, INPUTS)
            return
        phases, (_, _, rows, columns) = stored.phases, near.shape
        shape, plane = Shape(1, phases.channels, rows, columns), phases.rows * phases.columns
        for place, offset in enumerate(phases.offsets):
            begin = address + (offset + first * columns) * stored.dtype.bytes
            far = Tensor(begin, shape, Stride(0, plane, columns, 1), stored.dtype, self.config)
            into = near[:, place * phases.channels : (place + 1) * phases.channels]
            self.stream.move(copy(into, far), index, INPUTS)

    def store(self, name: str, number: int, near: Tensor, index: int, first: int = 0) -> None:
        """Rows of sample `number` of a result, from row `first` on, into DDR."""
        address, stored = self.leaving[name]
        address += number * stored.nbytes
        self.stream.move(copy(self._rows(address, stored, near, first), near), index, OUTPUTS)

    def _rows(self, address: int, stored: Stored, near: Tensor, first: int) -> Tensor:
        """Where the elements of a tensor in local memory lie in DDR: layers differ in what they call its rows."""
        columns = near.shape.w
        stride = Stride(0, stored.h * stored.w if near.shape.c > 1 else 0, columns, 1)
        return Tensor(address + first * columns * stored.dtype.bytes, near.shape, stride, stored.dtype, self.config)

    def compute(
        self, cut: Cut, tile: Tile, index: int, inputs: Sequence[int], result: int, temps: Mapping[int, int]
    ) -> None:
        """A tile of layer `index`; lane offsets of its inputs, its result and temporary buffers."""
        for command in commands(cut, tile, inputs, result, temps, self.block(index, tile.number)):
            self.stream.compute(command, index)

    def launch(self, tiles: Sequence[Sequence[int]], groups: Sequence[tuple[int, int]]) -> Launch:
        """What has been emitted, as a launch."""
        issued, cycles = self.stream.schedule()
        queues = {
            engine: queue(engine, [encoded(own.command, number, own.after) for number, own in enumerate(commands)])
            for engine, commands in issued.items()
        }
        meta: dict[str, Any] = {
            "tiu_bytes": len(queues[TIU]),
            "batch": self.config.batch,
            "values_end": self._values_end,
            "scheduled": cycles,
            "inputs": [described(own, *where) for own, where in self.entering.items()],
            "outputs": [described(own, *where) for own, where in self.leaving.items()],
            "notes": [layer.note for layer in self._layers],
            "tiles": [list(size) for size in tiles],
            "groups": [list(group) for group in groups],
        }
        blocks = (block.reshape(-1) for block in self._blocks.values())
        arrays = {
            "insns": np.concatenate([queues[TIU], queues[DMA]]),
            "constants": np.concatenate([np.zeros(0, np.uint8), *blocks]),
            "layers": np.array([own.layer for commands in issued.values() for own in commands], np.int32),
        }
        names = tuple(layer.name for layer in self._layers)
        return Launch(names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}", names, meta, arrays)


def block_name(index: int, number: int) -> str:
    """How a block of a layer's constants is called."""
    return f"layer {index}, part {number}"


def copy(y: Tensor, x: Tensor) -> Command:
    return Command(OPERATIONS["dma_copy"], {"x": x}, {"y": y})


def described(name: str, address: int, stored: Stored) -> list[Any]:
    """A tensor's segment as JSON values."""
    row = [name, address, stored.c, stored.h, stored.w, str(stored.dtype), stored.add, stored.zero]
    if stored.phases:
        *sizes, offsets = astuple(stored.phases)
        row += [*sizes, *offsets]
    return row
