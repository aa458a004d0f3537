"""Layers of neighbouring nodes as one launch: transfers and tiles in program order, then both queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.program.program import Launch
from tilewright.targets.bm1684x.command import Command
from tilewright.targets.bm1684x.compiler import encode
from tilewright.targets.bm1684x.compiler.emit import Places, commands, sample
from tilewright.targets.bm1684x.compiler.fold import fold
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.local import Ring
from tilewright.targets.bm1684x.compiler.plan import Plan, plan
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.compiler.stream import Stream
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.dtypes import U8, U16, U32
from tilewright.targets.bm1684x.layout import Shape, Stride
from tilewright.targets.bm1684x.operations import DMA, OPERATIONS, TIU
from tilewright.targets.bm1684x.tensor import LARGEST, Tensor

#: Segments of DDR begin at multiples of so many bytes.
PAGE = 4096
#: Transfers that keep their order among themselves.
CONSTANTS, INPUTS, OUTPUTS = "constants", "inputs", "outputs"


def build(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> Launch:
    """One launch. Raises local.Full where local memory is too small."""
    read = Counter(name for layer in layers for name in layer.inputs)
    inner = {layer.output for layer in layers}
    laid = [
        fold(layer, config) if read[layer.inputs[0]] == 1 and layer.inputs[0] not in inner else layer
        for layer in layers
    ]
    made = _Builder(laid, leaving, plan(laid, leaving, config), config)
    made.emit()
    return made.launch()


class _Builder:
    def __init__(self, layers: Sequence[Layer], leaving: Collection[str], made: Plan, config: Config) -> None:
        self._layers, self._plan, self._config = layers, made, config
        self._stream = Stream(config)
        self._ring = Ring(made.values_end, config.lane_bytes)
        self._resident: dict[tuple[int, int], int] = {}  # blocks of constants: lane offset
        self._done: set[str] = set()
        outputs = {layer.output: layer.result for layer in layers}
        entering = {
            name: stored
            for layer in layers
            for name, stored in zip(layer.inputs, layer.shapes, strict=True)
            if name not in outputs
        }
        self._constants: list[Array] = []
        self._block_address: dict[tuple[int, int], int] = {}
        address = DDR_BASE
        for index, cut in enumerate(made.cuts):
            for number, block in enumerate(cut.blocks):
                self._block_address[index, number] = address
                self._constants.append(block)
                address += block.size
        self._entering = self._segments(entering, address)
        end = max((at + self._bytes(stored) for at, stored in self._entering.values()), default=address)
        self._leaving = self._segments({name: outputs[name] for name in outputs if name in leaving}, end)
        self._loaded: set[tuple[str, int]] = set()

    def _bytes(self, stored: Stored) -> int:
        return stored.nbytes * self._config.batch

    def _segments(self, tensors: Mapping[str, Stored], address: int) -> dict[str, tuple[int, Stored]]:
        """Where all samples of each tensor lie in DDR."""
        found = {}
        for name, stored in tensors.items():
            address = -(-address // PAGE) * PAGE
            found[name] = (address, stored)
            address += self._bytes(stored)
        return found

    def emit(self) -> None:
        for begin, end in self._plan.groups:
            for number in range(self._config.batch):
                for index in range(begin, end):
                    self._layer(index, number)
            self._done |= {f"{index}/{n}" for index in range(begin, end) for n in range(len(self._cut_blocks(index)))}

    def _cut_blocks(self, index: int) -> list[Array]:
        return self._plan.cuts[index].blocks

    def _layer(self, index: int, number: int) -> None:
        """One sample through one layer."""
        layer, cut, homes = self._layers[index], self._plan.cuts[index], self._plan.homes
        for name in layer.inputs:
            if name in self._entering and (name, number) not in self._loaded:
                self._loaded.add((name, number))
                self._load(name, number, index)
        inputs = tuple(homes[name].of(number) for name in layer.inputs)
        for tile in cut.tiles():
            block = self._block(index, tile.number) if cut.blocks else 0
            places = Places(inputs, homes[layer.output].of(number), self._plan.temps[index], block)
            for command in commands(cut, tile, places):
                self._stream.compute(command, index)
            if self._config.batch == 1 and tile.number:
                self._done.add(f"{index}/{tile.number - 1}")
        if layer.output in self._leaving:
            self._store(layer.output, number, index)

    def _load(self, name: str, number: int, index: int) -> None:
        """A sample of an input into local memory."""
        stored = self._entering[name][1]
        phases, near, far = stored.phases, *self._ends(name, number, self._entering)
        if phases:
            shape = Shape(1, phases.channels, stored.h, stored.w)
            plane = phases.rows * phases.columns
            for copy, offset in enumerate(phases.offsets):
                start = far.address + offset * stored.dtype.bytes
                from_ = Tensor(start, shape, Stride(0, plane, phases.columns, 1), stored.dtype, self._config)
                into = near[:, copy * phases.channels : (copy + 1) * phases.channels]
                self._stream.move(_copy(into, from_), index, INPUTS)
        elif name in self._plan.turned:
            line = self._line(name, stored)
            self._stream.move(_copy(line, far), index, INPUTS)
            self._stream.compute(_turned(near, line), index)
        else:
            self._stream.move(_copy(near, far), index, INPUTS)

    def _store(self, name: str, number: int, index: int) -> None:
        """A sample of a result into DDR."""
        near, far = self._ends(name, number, self._leaving)
        if name in self._plan.turned:
            line = self._line(name, self._leaving[name][1])
            self._stream.compute(_turned(line, near), index)
            near = line
        self._stream.move(_copy(far, near), index, OUTPUTS)

    def _line(self, name: str, stored: Stored) -> Tensor:
        """One pixel with its channels side by side, in lane 0: one run of a transfer, not one a channel."""
        return Tensor.local(0, self._plan.turned[name], (1, 1, 1, stored.c), stored.dtype, self._config)

    def _ends(self, name: str, number: int, segments: Mapping[str, tuple[int, Stored]]) -> tuple[Tensor, Tensor]:
        """A sample of a tensor in local memory and in DDR."""
        address, stored = segments[name]
        near = sample(stored, self._plan.homes[name].of(number), self._config)
        shape = (1, 1, 1, stored.c) if name in self._plan.turned else near.shape
        return near, Tensor.ddr(address + number * stored.nbytes, shape, stored.dtype, self._config)

    def _block(self, index: int, number: int) -> int:
        """The lane offset of a block of constants, which is loaded where it is not there yet."""
        if (index, number) not in self._resident:
            lanes, size = self._cut_blocks(index)[number].shape
            offset = self._ring.take(f"{index}/{number}", size, self._done)
            self._resident[index, number] = offset
            address = self._block_address[index, number]
            used = min(lanes, self._layers[index].result.c)
            for low in range(0, size, LARGEST - LARGEST % 64):
                width = min(size - low, LARGEST - LARGEST % 64)
                shape = Shape(1, used, 1, width)
                far = Tensor(address + low, shape, Stride(lanes * size, size, size, 1), U8, self._config)
                near = Tensor.local(0, offset + low, shape, U8, self._config)
                self._stream.move(_copy(near, far), index, CONSTANTS)
        return self._resident[index, number]

    def launch(self) -> Launch:
        made = self._stream.schedule()
        queues = {engine: encode.queue(engine, made.commands[engine], made.needs[engine]) for engine in (TIU, DMA)}
        names = tuple(layer.name for layer in self._layers)
        meta: dict[str, Any] = {
            "tiu_bytes": len(queues[TIU]),
            "batch": self._config.batch,
            "values_end": self._plan.values_end,
            "inputs": [described(name, *where) for name, where in self._entering.items()],
            "outputs": [described(name, *where) for name, where in self._leaving.items()],
            "notes": [layer.note for layer in self._layers],
            "tiles": [list(cut.size) for cut in self._plan.cuts],
            "groups": [list(group) for group in self._plan.groups],
        }
        constants = np.concatenate([np.zeros(0, np.uint8), *(block.reshape(-1) for block in self._constants)])
        arrays = {
            "insns": np.concatenate([queues[TIU], queues[DMA]]),
            "constants": constants,
            "layers": np.array([*made.layers[TIU], *made.layers[DMA]], np.int32),
        }
        return Launch(names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}", names, meta, arrays)


def _copy(y: Tensor, x: Tensor) -> Command:
    return Command(OPERATIONS["dma_copy"], {"x": x}, {"y": y})


def _turned(y: Tensor, x: Tensor) -> Command:
    """Channels as columns, or back. Moves are of unsigned elements."""
    bits = {1: U8, 2: U16, 4: U32}[x.dtype.bytes]
    ends = {"x": replace(x, dtype=bits)}, {"y": replace(y, dtype=bits)}
    return Command(OPERATIONS["wc_trans"], *ends)


def described(name: str, address: int, stored: Stored) -> list[Any]:
    """A tensor's segment as JSON values."""
    row = [name, address, stored.c, stored.h, stored.w, str(stored.dtype), stored.add, stored.zero]
    if stored.phases:
        *sizes, offsets = astuple(stored.phases)
        row += [*sizes, *offsets]
    return row
