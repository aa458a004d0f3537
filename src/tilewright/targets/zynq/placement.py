"""The placement of a layer's operands: the blocks of the stores in DDR, and the order in which results are written.

The data of a convolution are planes (chw) or pixels of all channels (hwc, rows). The data of a pool are planes, and
those of an FC layer are a vector. A kernel has the order [channel][tap] (chw) or [group][tap][channel of the group]. FC
weights are stored column by column for an engine that computes one output at a time. For several outputs at once, the
weights of an iteration are contiguous.

In the layout `rows`, a data block begins on a row, neighbouring blocks share two rows (the halo), and blocks of weights
contain whole kernels.

With `window=1`, a store is divided into lines. An iteration reads one line of weights: 9 taps x 16 channels, or 144
weights of an FC column. A pixel of data has at least 16 channels. The data of each FC iteration begin at a line of 256
words. The unit multiplies codes as int8 numbers, without subtracting zero points. Unused words of data contain the zero
point, so they add nothing to a sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.program.placement import Placement
from tilewright.targets.zynq.config import GROUP, LANES, LINE, TAPS
from tilewright.targets.zynq.isa.layer import Kind, Layer


class Rows(NamedTuple):
    """The input of a convolution in `blocks` blocks. A block begins on a row and serves `step` output rows."""

    blocks: int
    step: int


def row_blocks(layer: Layer) -> Rows:
    """Cut the input into blocks of rows, as large as fit. Layouts other than `rows` have one block."""
    # Windows have three rows, so a block of n rows serves n - 2 rows of the result. A block with the whole image serves
    # all rows, because the rows outside of the image are padding.
    if layer.config.layout != "rows":
        return Rows(1, layer["rows"])
    fit = layer.config.block_words("data") // (layer.pixel * layer["cols"])
    if fit >= layer["rows"]:
        return Rows(1, layer["rows"])
    return Rows(-(-layer["rows"] // (fit - 2)), fit - 2)


def kernels_per_block(layer: Layer) -> int:
    return layer.config.block_words("weight") // layer.stored_kernel


def data_blocks(layer: Layer) -> int:
    if layer.conv and layer.config.layout == "rows":
        return row_blocks(layer).blocks
    if layer.config.window and layer.kind == Kind.FC:
        return -(-layer.depth * layer.samples // layer.config.lines("data"))
    return -(-layer.inputs * layer.samples // layer.config.block_words("data"))


def weight_blocks(layer: Layer) -> int:
    if layer.conv and layer.config.layout == "rows":
        return -(-layer["oc"] // kernels_per_block(layer))
    if layer.config.window and layer.channels:
        return -(-layer.depth * layer["l"] // layer.config.lines("weight"))
    return -(-layer.kernel * layer.channels // layer.config.block_words("weight"))


def data(layer: Layer) -> Placement:
    """Return the placement of a sample's input, (rows, cols, ic) or (r), in (blocks, words)."""
    config = layer.config
    words = layer.config.block_words("data")
    codes = Placement.of(layer.input_shape, "uint8")
    zero = layer["zx"] & 255
    # With `window`, the 144 words of an FC iteration fill a line of 256 words with 112 unused words.
    if layer.kind == Kind.FC and config.window:
        lanes = codes.pad((0, layer.depth * LANES - layer["r"]), value=zero).reshape(layer.depth, LANES)
        return _cut(lanes.pad((0, 0), (0, LINE["data"] - LANES)), words)
    if layer.kind == Kind.POOL or (layer.conv and config.layout == "chw"):
        return _cut(codes.transpose(2, 0, 1), words)
    if not layer.conv or config.layout != "rows":
        return _cut(codes, words)
    rows = row_blocks(layer)
    pixels = codes.pad((0, 0), (0, 0), (0, layer.pixel - layer["ic"]), value=zero)
    # `held` has the row numbers of each block, for an image with padding above the first row and after the last row.
    if rows.blocks > 1:
        held = rows.step * np.arange(rows.blocks)[:, None] + np.arange(rows.step + 2)
        pixels = pixels.pad((1, int(held.max()) - layer["rows"]), (0, 0), (0, 0)).take(0, held)
    return _filled(pixels, rows.blocks, words)


def weight(layer: Layer) -> Placement:
    config = layer.config
    words = layer.config.block_words("weight")
    if layer.kind == Kind.FC:
        codes = Placement.of((layer["l"], layer["r"]), "uint8")
        if not config.window:
            return _cut(codes, words)
        lines = codes.pad((0, 0), (0, layer.stored_kernel - layer["r"])).reshape(layer["l"] * layer.depth, LANES)
        return _filled(lines.split(0, config.lines("weight")), weight_blocks(layer), words)
    codes = Placement.of((layer["oc"], TAPS, layer["ic"]), "uint8")
    if config.layout == "chw":
        return _cut(codes.transpose(0, 2, 1), words)
    # An iteration uses all taps of a channel group: [output channel][group][tap][channel of the group].
    group = min(GROUP, layer.pixel)
    groups = codes.pad((0, 0), (0, 0), (0, layer.pixel - layer["ic"])).split(2, group).transpose(0, 2, 1, 3)
    if config.layout == "hwc":
        return _cut(groups, words)
    return _filled(groups.split(0, kernels_per_block(layer)), weight_blocks(layer), words)


def bias(layer: Layer) -> Placement:
    return _cut(Placement.of((layer.channels,), "int32"), layer.config.block_words("bias"))


def result(layer: Layer) -> Placement:
    return Placement.of((layer.outputs,), "uint8").take(0, writing_order(layer))


def blocks(placement: Placement, values: Array) -> Array:
    """Arrange the values of an operand in blocks, uint8 or int32 [blocks, words]."""
    return placement.read(placement.pack(values.view(placement.dtype).reshape(1, *placement.shape)))[0]


def _cut(placement: Placement, words: int) -> Placement:
    return placement.reshape(prod(placement.slots)).split(0, words)


def _filled(placement: Placement, parts: int, words: int) -> Placement:
    size = prod(placement.slots) // parts
    return placement.reshape(parts, size).pad((0, 0), (0, words - size))


def biases(layer: Layer, weights: Array, bias: Array) -> Array:
    """Return the biases of an engine with `window=1`, which include zero points, int32 [channels], modulo 2**32."""
    # With the unit's int8 numbers x and w: sum((x - zx) * (w - zw)) = sum(x * w) - zw * sum(x) - zx * sum(w) + n * zx *
    # zw for n lanes. The unit computes the first two terms, and the biases contain the other two terms.
    zx = centred(layer, "x")
    zw = centred(layer, "w")
    lanes = layer.stored_kernel
    codes = np.ascontiguousarray(weights).view(np.uint8).reshape(layer.channels, -1)
    spare = lanes - codes.shape[1]  # the unused lanes, which have the weight code 0
    flip = 0 if layer["w_signed"] else 128
    sums = (codes ^ np.uint8(flip)).view(np.int8).sum(1, dtype=np.int64) - spare * flip
    return (bias.astype(np.int64) + zx * zw * lanes - zx * sums).astype(np.int32)


def centred(layer: Layer, operand: str) -> int:
    """Return the zero point of the unit's int8 numbers `x` or `w`. The unit maps the uint8 code 128 to 0."""
    return layer[f"z{operand}"] - (0 if layer[f"{operand}_signed"] else 128)


def writing_order(layer: Layer) -> Array:
    """Return the order of writing as indices into the layer's flat output, int64 [outputs]."""
    # Results are written channel by channel. With oc_blocking, the loops are, outermost first: weight block, position
    # group, channel of the block.
    channels = layer.outputs if layer.kind == Kind.FC else layer["oc"] or layer["ic"]
    planes = np.arange(layer.outputs).reshape(-1, channels)
    if not (layer.conv and layer.config.oc_blocking):
        return planes.T.reshape(-1)
    kernels = kernels_per_block(layer)
    parts = [
        planes[first:end, top : top + kernels].T.reshape(-1)
        for top in range(0, layer["oc"], kernels)
        for first, end in position_groups(layer)
    ]
    return np.concatenate(parts)


def position_groups(layer: Layer) -> Iterator[tuple[int, int]]:
    """Yield the first position and the end of each position group. A group does not cross data blocks."""
    rows = row_blocks(layer)
    outputs = layer.config.outputs
    for top in range(0, layer["rows"], rows.step):
        end = min(top + rows.step, layer["rows"]) * layer["cols"]
        for first in range(top * layer["cols"], end, outputs):
            yield first, min(first + outputs, end)
