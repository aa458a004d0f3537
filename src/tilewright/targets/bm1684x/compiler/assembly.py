"""What all launches are made of: segments of DDR, blocks of constants, transfers, and at last both queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.program.program import Launch
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.local import Ring
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.compiler.stream import Stream
from tilewright.targets.bm1684x.compiler.tiles import Cut
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.meaning import encoded
from tilewright.targets.bm1684x.isa.operations import DMA, OPERATIONS, TIU
from tilewright.targets.bm1684x.isa.stream import queue
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import LARGEST, Tensor
from tilewright.targets.bm1684x.values.dtypes import U8

#: Segments of DDR begin at multiples of so many bytes.
PAGE = 4096
#: Transfers that keep their order among themselves.
CONSTANTS, INPUTS, OUTPUTS = "constants", "inputs", "outputs"


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
        self._layers, self._cuts, self._values_end = layers, cuts, values_end
        self._ring = Ring(values_end, config.lane_bytes)
        self._resident: dict[tuple[int, int], int] = {}
        self._constants: list[Array] = []
        self._block_address: dict[tuple[int, int], int] = {}
        address = DDR_BASE
        for index, cut in enumerate(cuts):
            for number, block in enumerate(cut.blocks):
                self._block_address[index, number] = address
                self._constants.append(block)
                address += block.size
        self.entering = self._segments(entering, address)
        end = max((at + self._bytes(stored) for at, stored in self.entering.values()), default=address)
        self.leaving = self._segments(leaving, end)

    def _bytes(self, stored: Stored) -> int:
        return stored.nbytes * self.config.batch

    def _segments(self, tensors: Mapping[str, Stored], address: int) -> dict[str, tuple[int, Stored]]:
        """Where all samples of each tensor lie in DDR."""
        found = {}
        for name, stored in tensors.items():
            address = -(-address // PAGE) * PAGE
            found[name] = (address, stored)
            address += self._bytes(stored)
        return found

    def block(self, index: int, number: int) -> int:
        """The lane offset of a block of constants, which is loaded where it is not there yet. Raises local.Full."""
        if not self._cuts[index].blocks:
            return 0
        if (index, number) not in self._resident:
            lanes, size = self._cuts[index].blocks[number].shape
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

    def launch(self, name: str, tiles: Sequence[Sequence[int]], groups: Sequence[tuple[int, int]]) -> Launch:
        """What has been emitted, as a launch."""
        made = self.stream.schedule()
        queues = {}
        for engine in (TIU, DMA):
            waiting = zip(made.commands[engine], made.needs[engine], strict=True)
            found = [encoded(command, number, needs) for number, (command, needs) in enumerate(waiting)]
            queues[engine] = queue(engine, found)
        meta: dict[str, Any] = {
            "tiu_bytes": len(queues[TIU]),
            "batch": self.config.batch,
            "values_end": self._values_end,
            "scheduled": made.cycles,
            "inputs": [described(own, *where) for own, where in self.entering.items()],
            "outputs": [described(own, *where) for own, where in self.leaving.items()],
            "notes": [layer.note for layer in self._layers],
            "tiles": [list(size) for size in tiles],
            "groups": [list(group) for group in groups],
        }
        constants = np.concatenate([np.zeros(0, np.uint8), *(block.reshape(-1) for block in self._constants)])
        arrays = {
            "insns": np.concatenate([queues[TIU], queues[DMA]]),
            "constants": constants,
            "layers": np.array([*made.layers[TIU], *made.layers[DMA]], np.int32),
        }
        return Launch(name, tuple(layer.name for layer in self._layers), meta, arrays)


def block_name(index: int, number: int) -> str:
    """How a block of a layer's constants is called."""
    return f"layer {index}, part {number}"


def copy(y: Tensor, x: Tensor) -> Command:
    """A transfer."""
    return Command(OPERATIONS["dma_copy"], {"x": x}, {"y": y})


def described(name: str, address: int, stored: Stored) -> list[Any]:
    """A tensor's segment as JSON values."""
    row = [name, address, stored.c, stored.h, stored.w, str(stored.dtype), stored.add, stored.zero]
    if stored.phases:
        *sizes, offsets = astuple(stored.phases)
        row += [*sizes, *offsets]
    return row
