"""Layers of neighbouring nodes as one launch: between them tensors stay in local memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby

from tilewright.program.program import Launch
from tilewright.targets.bm1684x.compiler.assembly import Assembly, block_name
from tilewright.targets.bm1684x.compiler.emit import Places, commands, sample
from tilewright.targets.bm1684x.compiler.fold import fold
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.local import Full
from tilewright.targets.bm1684x.compiler.plan import Plan, plan
from tilewright.targets.bm1684x.compiler.slabs import build_streamed, is_chain
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.compiler.tiles import Tile
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import U8, U16, U32


def build(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> Launch:
    """One launch whose tensors stay in local memory. Raises local.Full where that is too small."""
    laid = _laid(layers, config)
    return _Resident(laid, leaving, plan(laid, leaving, config), config).launch()


def build_in_parts(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> Launch:
    """One launch of a chain of layers, rows of it at a time. Raises local.Full."""
    if not is_chain(layers, leaving):
        raise Full("its layers are no chain")
    return build_streamed(_laid(layers, config), config)


def fits(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> bool:
    """Whether there is room for their tensors at once."""
    try:
        plan(_laid(layers, config), leaving, config)
    except Full:
        return False
    return True


def _laid(layers: Sequence[Layer], config: Config) -> list[Layer]:
    """With the input of the network laid out as its first convolution likes it."""
    read = Counter(name for layer in layers for name in layer.inputs)
    inner = {layer.output for layer in layers}
    return [
        fold(layer, config) if read[layer.inputs[0]] == 1 and layer.inputs[0] not in inner else layer
        for layer in layers
    ]


class _Resident:
    def __init__(self, layers: Sequence[Layer], leaving: Collection[str], made: Plan, config: Config) -> None:
        outputs = {layer.output: layer.result for layer in layers}
        entering = {
            name: stored
            for layer in layers
            for name, stored in zip(layer.inputs, layer.shapes, strict=True)
            if name not in outputs
        }
        kept = {name: outputs[name] for name in outputs if name in leaving}
        self._layers, self._plan, self._config = layers, made, config
        self._assembly = Assembly(layers, made.cuts, entering, kept, made.values_end, config)
        self._loaded: set[tuple[str, int]] = set()

    def launch(self) -> Launch:
        for begin, end in self._plan.groups:
            if (begin, end) in self._plan.by_parts:
                self._by_parts(begin)
                continue
            for number in range(self._config.batch):
                for index in range(begin, end):
                    self._layer(index, number)
            for index in range(begin, end):
                self._assembly.done |= {block_name(index, n) for n in range(len(self._plan.cuts[index].blocks))}
        names = [layer.name for layer in self._layers]
        title = names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}"
        return self._assembly.launch(title, [cut.size for cut in self._plan.cuts], self._plan.groups)

    def _layer(self, index: int, number: int) -> None:
        """One sample through one layer."""
        self._enter(index, number)
        for tile in self._plan.cuts[index].tiles():
            self._tile(index, tile, number)
        self._leave(index, number)

    def _by_parts(self, index: int) -> None:
        """All samples through one part of a layer's channels after the other: its constants come and go."""
        for number in range(self._config.batch):
            self._enter(index, number)
        for part, tiles in groupby(self._plan.cuts[index].tiles(), key=lambda tile: tile.number):
            for tile in tiles:
                for number in range(self._config.batch):
                    self._tile(index, tile, number)
            self._assembly.done.add(block_name(index, part))
        for number in range(self._config.batch):
            self._leave(index, number)

    def _tile(self, index: int, tile: Tile, number: int) -> None:
        layer, cut, homes = self._layers[index], self._plan.cuts[index], self._plan.homes
        inputs = tuple(homes[name].of(number) for name in layer.inputs)
        block = self._assembly.block(index, tile.number)
        places = Places(inputs, homes[layer.output].of(number), self._plan.temps[index], block)
        for command in commands(cut, tile, places):
            self._assembly.stream.compute(command, index)

    def _enter(self, index: int, number: int) -> None:
        for name, stored in zip(self._layers[index].inputs, self._layers[index].shapes, strict=True):
            if name in self._assembly.entering and (name, number) not in self._loaded:
                self._loaded.add((name, number))
                self._load(name, stored, number, index)

    def _leave(self, index: int, number: int) -> None:
        layer = self._layers[index]
        if layer.output in self._assembly.leaving:
            self._store(layer.output, layer.result, number, index)

    def _load(self, name: str, stored: Stored, number: int, index: int) -> None:
        near = self._near(name, stored, number)
        if name not in self._plan.turned:
            self._assembly.load(name, number, near, index)
            return
        line = self._line(name, stored)
        self._assembly.load(name, number, line, index)
        self._assembly.stream.compute(_turned(near, line), index)

    def _store(self, name: str, stored: Stored, number: int, index: int) -> None:
        near = self._near(name, stored, number)
        if name in self._plan.turned:
            line = self._line(name, stored)
            self._assembly.stream.compute(_turned(line, near), index)
            near = line
        self._assembly.store(name, number, near, index)

    def _near(self, name: str, stored: Stored, number: int) -> Tensor:
        return sample(stored, self._plan.homes[name].of(number), self._config)

    def _line(self, name: str, stored: Stored) -> Tensor:
        """One pixel with its channels side by side, in lane 0: one run of a transfer, not one a channel."""
        return Tensor.local(0, self._plan.turned[name], (1, 1, 1, stored.c), stored.dtype, self._config)


def _turned(y: Tensor, x: Tensor) -> Command:
    """Channels as columns, or back. Moves are of unsigned elements."""
    bits = {1: U8, 2: U16, 4: U32}[x.dtype.bytes]
    return Command(OPERATIONS["wc_trans"], {"x": replace(x, dtype=bits)}, {"y": replace(y, dtype=bits)})
