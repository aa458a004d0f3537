"""A layer whose tensors do not fit into local memory: rows of its result, one part after the other, through DDR.

Each part is a small layer of its own, with the padding that its rows see. Two parts are there at a time, so that one is
loaded and one stored while another is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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


def slabs(layer: Layer, rows: int) -> Iterator[Slab]:
    """The layer in parts of so many rows."""
    for r0 in range(0, layer.result.h, rows):
        yield slab(layer, r0, min(r0 + rows, layer.result.h))


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


def build_streamed(layer: Layer, config: Config) -> Launch:
    """A launch of one layer, in as few parts as fit. Raises Full."""
    failure = Full("its result has a single row, and does not fit")
    parts = 2
    while parts <= layer.result.h:
        try:
            return _streamed(layer, -(-layer.result.h // parts), config)
        except Full as full:
            failure = full
        parts = min(parts + max(1, parts // 2), layer.result.h) if parts < layer.result.h else parts + 1
    raise failure


def _streamed(layer: Layer, rows: int, config: Config) -> Launch:
    every = list(slabs(layer, rows))
    most = Cut(every[0].layer, config).size[0]  # the last part is smaller, but has the same blocks of constants
    cuts = [Cut(each.layer, config, most) for each in every]
    buffers = []
    for index in range(len(layer.inputs)):
        size = max(each.layer.shapes[index].lane_bytes(config) for each in every)
        buffers += [Buffer(f"x{index}/{copy}", size, 0, 0) for copy in range(COPIES)]
    size = max(each.layer.result.lane_bytes(config) for each in every)
    buffers += [Buffer(f"y/{copy}", size, 0, 0) for copy in range(COPIES)]
    for temp in cuts[0].temps:
        buffers.append(Buffer(f"t{temp}", max(cut.temps[temp] for cut in cuts), 0, 0))
    offsets, end = place(buffers)
    whole = sum(block.shape[1] for block in cuts[0].blocks)
    if end + whole > config.lane_bytes:
        raise Full(f"{rows} rows of it need {end + whole} bytes of each lane, which has {config.lane_bytes}")
    entering = dict(zip(layer.inputs, layer.shapes, strict=True))
    made = Assembly([layer], cuts[:1], entering, {layer.output: layer.result}, end, config)
    turn = 0
    for number in range(config.batch):
        for each, cut in zip(every, cuts, strict=True):
            inputs = []
            for index, (name, shape) in enumerate(zip(layer.inputs, each.layer.shapes, strict=True)):
                inputs.append(offsets[f"x{index}/{turn}"])
                made.load(name, number, sample(shape, inputs[-1], config), 0, each.i0)
            result = offsets[f"y/{turn}"]
            temps = {temp: offsets[f"t{temp}"] for temp in cut.temps}
            for tile in cut.tiles():
                places = Places(tuple(inputs), result, temps, made.block(0, tile.number))
                for command in commands(cut, tile, places):
                    made.stream.compute(command, 0)
            made.store(layer.output, number, sample(each.layer.result, result, config), 0, each.r0)
            turn = (turn + 1) % COPIES
    return made.launch(layer.name, [(cuts[0].size[0], rows)], [(0, 1)])
