"""Layers whose tensors do not fit into local memory: rows of the last result, one part after the other, through DDR.

Each part is a chain of small layers, with the rows and the padding that it needs; rows that two parts need of what lies
between layers are computed twice. Two parts of inputs and results are there at a time, so that one is loaded and one
stored while another is computed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tilewright.program.program import Launch
from tilewright.targets.bm1684x.compiler.assembly import Assembly
from tilewright.targets.bm1684x.compiler.emit import Places, commands, sample
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.local import Buffer, Full, place
from tilewright.targets.bm1684x.compiler.tiles import Cut
from tilewright.targets.bm1684x.config import Config

#: Parts that are in local memory at a time.
COPIES = 2


@dataclass(frozen=True, eq=False)
class Slab:
    """Rows of the result from r0 on, which need rows of the inputs from i0 on: a layer of these rows alone."""

    r0: int
    i0: int
    layer: Layer


def is_chain(layers: Sequence[Layer], leaving: Collection[str]) -> bool:
    """Whether each layer reads what the one before it gives, row by row, and nothing else does."""
    outputs = [layer.output for layer in layers]
    links = all(
        after.inputs == (before.output,) and after.shapes[0].h == before.result.h for before, after in pairwise(layers)
    )
    return links and not set(outputs[:-1]) & set(leaving)


def slabs(layers: Sequence[Layer], r0: int, r1: int) -> list[Slab]:
    """What each layer of a chain does for rows r0..r1 of the last result."""
    found: list[Slab] = []
    for layer in reversed(layers):
        found.append(slab(layer, r0, r1))
        r0, r1 = found[-1].i0, found[-1].i0 + found[-1].layer.shapes[0].h
    return found[::-1]


def slab(layer: Layer, r0: int, r1: int) -> Slab:
    """Rows r0..r1 of the result."""
    window, i0, i1 = layer.window, r0, r1
    operations = layer.operations
    if window is not None:
        low = r0 * window.stride[0] - window.pads[0]
        high = (r1 - 1) * window.stride[0] - window.pads[0] + (window.kernel[0] - 1) * window.dilation[0] + 1
        h = layer.shapes[0].h
        i0, i1 = min(max(0, low), h - 1), max(min(h, high), 1)
        window = replace(window, pads=(max(0, -low), max(0, high - h), *window.pads[2:]))
        operations = tuple(
            replace(one, attributes={**one.attributes, "window": window}) if "window" in one.attributes else one
            for one in operations
        )
    shapes = tuple(replace(shape, h=i1 - i0) for shape in layer.shapes)
    result = replace(layer.result, h=r1 - r0)
    return Slab(r0, i0, replace(layer, shapes=shapes, result=result, window=window, operations=operations))


def build_streamed(layers: Sequence[Layer], config: Config) -> Launch:
    """A launch of a chain, in as few parts as fit. Raises Full."""
    failure, h = Full("its result has a single row, and does not fit"), layers[-1].result.h
    rows = h
    while rows > 1:
        rows = -(-rows * 2 // 3) if rows > 2 else 1
        try:
            return Streamed(layers, rows, config).launch()
        except Full as full:
            failure = full
    raise failure


class Streamed:
    """A chain in parts of so many rows. Raises Full where they do not fit."""

    def __init__(self, layers: Sequence[Layer], rows: int, config: Config) -> None:
        h = layers[-1].result.h
        self._layers, self._rows, self._config = layers, rows, config
        self._every = [slabs(layers, r0, min(r0 + rows, h)) for r0 in range(0, h, rows)]
        # Parts differ in their rows, but have the same blocks of constants.
        self._slots = [min(Cut(own.layer, config).size[0] for own in each) for each in zip(*self._every, strict=True)]
        cuts = [self._cut(index, own) for index, own in enumerate(self._every[0])]
        self._offsets, end = place(self._buffers())
        whole = sum(block.shape[1] for cut in cuts for block in cut.blocks)
        if end + whole > config.lane_bytes:
            raise Full(f"{rows} rows of it need {end + whole} bytes of each lane, which has {config.lane_bytes}")
        entering = dict(zip(layers[0].inputs, layers[0].shapes, strict=True))
        leaving = {layers[-1].output: layers[-1].result}
        self._assembly = Assembly(layers, cuts, entering, leaving, end, config)

    def _cut(self, index: int, own: Slab) -> Cut:
        return Cut(own.layer, self._config, self._slots[index])

    def _buffers(self) -> list[Buffer]:
        """Inputs and results twice, what lies between, temporary buffers: each as large as any part needs."""
        last, sizes = len(self._layers) - 1, dict[tuple[str, int, int], int]()

        def note(name: str, first: int, end: int, size: int) -> None:
            sizes[name, first, end] = max(sizes.get((name, first, end), 0), size)

        for each in self._every:
            for index, own in enumerate(each):
                for temp, size in self._cut(index, own).temps.items():
                    note(f"t{index}/{temp}", index, index, size)
                result = own.layer.result.lane_bytes(self._config)
                for copy in range(COPIES if index == last else 1):
                    note(f"y{index}/{copy}", *((0, last) if index == last else (index, index + 1)), result)
            for number, shape in enumerate(each[0].layer.shapes):
                for copy in range(COPIES):
                    note(f"x{number}/{copy}", 0, last, shape.lane_bytes(self._config))
        return [Buffer(name, size, first, end) for (name, first, end), size in sizes.items()]

    def launch(self) -> Launch:
        turn = 0
        for number in range(self._config.batch):
            for each in self._every:
                self._part(each, number, turn)
                turn = (turn + 1) % COPIES
        names = [layer.name for layer in self._layers]
        title = names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}"
        sizes = [(slots, own.layer.result.h) for slots, own in zip(self._slots, self._every[0], strict=True)]
        return self._assembly.launch(title, sizes, [(0, len(names))])

    def _part(self, each: Sequence[Slab], number: int, turn: int) -> None:
        """Some rows of one sample through all layers."""
        made, config = self._assembly, self._config
        inputs = []
        for index, (name, shape) in enumerate(zip(self._layers[0].inputs, each[0].layer.shapes, strict=True)):
            inputs.append(self._offsets[f"x{index}/{turn}"])
            made.load(name, number, sample(shape, inputs[-1], config), 0, each[0].i0)
        for index, own in enumerate(each):
            cut = self._cut(index, own)
            result = self._offsets[f"y{index}/{turn if index == len(each) - 1 else 0}"]
            temps = {temp: self._offsets[f"t{index}/{temp}"] for temp in cut.temps}
            for tile in cut.tiles():
                places = Places(tuple(inputs), result, temps, made.block(index, tile.number))
                for command in commands(cut, tile, places):
                    made.stream.compute(command, index)
            inputs = [result]
        store = sample(each[-1].layer.result, result, config)
        made.store(self._layers[-1].output, number, store, len(each) - 1, each[-1].r0)
