"""The placement of a layer's operands: the blocks of the stores in DDR, and the order in which results are written.

The data of convolutions are planes (chw) or pixels of all channels (hwc, rows). Pools read planes; FC reads a vector. A
kernel has the order [channel][tap] (chw) or [group][tap][channel of the group]. FC weights are stored column by column.
An engine that computes one output at a time reads FC weights in this order. If it computes several outputs, the weights
of an iteration follow each other.

In the layout rows, a data block begins on a row, and neighbouring blocks share two rows (the halo). No kernel is cut.

With `window=1`, operands are lines. An iteration reads one line of weights: 9 taps x 16 channels, or 144 weights of an
FC column. A pixel of data has at least 16 channels. The data of an FC iteration begin at a line of 256 words. The unit
multiplies codes as int8 numbers, without subtracting zero points. Unused words have the zero point of the data, so they
add nothing to a sum.
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
    """The input of a convolution in `blocks` blocks. A block starts on a row and serves `step` output rows."""

    blocks: int
    step: int


def row_blocks(layer: Layer) -> Rows:
    """Cut the input into blocks with as many rows as fit. All layouts except `rows` have one block."""
    # A window has three rows, so neighbouring blocks share two rows: a block of n rows serves n - 2 rows of the result.
    # A block with the whole image serves all rows, because the rows beyond the image are padding.
    if layer.config.layout != "rows":
        return Rows(1, layer["rows"])
    fit = layer.config.block_words("data") // (layer.pixel * layer["cols"])
    if fit >= layer["rows"]:
        return Rows(1, layer["rows"])
    return Rows(-(-layer["rows"] // (fit - 2)), fit - 2)


def kernels_per_block(layer: Layer) -> int:
    """Return the number of whole kernels that fit into a weight block."""
    return layer.config.block_words("weight") // layer.stored_kernel


def data_blocks(layer: Layer) -> int:
    """Return the number of data blocks of a layer's input, for all samples of a batch."""
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
    """Return the placement of a sample's input codes, (rows, cols, ic) or (r), in (blocks, words)."""
    config = layer.config
    words = layer.config.block_words("data")
    codes = Placement.of(layer.input_shape, "uint8")
    zero = layer["zx"] & 255
    # With `window`, an iteration's 144 words begin at a line of 256, so 112 unused words follow the words of each
    # iteration.
    if layer.kind == Kind.FC and config.window:
        lanes = codes.pad((0, layer.depth * LANES - layer["r"]), value=zero).reshape(layer.depth, LANES)
        return _cut(lanes.pad((0, 0), (0, LINE["data"] - LANES)), words)
    if layer.kind == Kind.POOL or (layer.conv and config.layout == "chw"):
        return _cut(codes.transpose(2, 0, 1), words)
    if not layer.conv or config.layout != "rows":
        return _cut(codes, words)
    rows = row_blocks(layer)
    pixels = codes.pad((0, 0), (0, 0), (0, layer.pixel - layer["ic"]), value=zero)
    # The row numbers of each block, in an image with a row of padding at the top. Padding also completes the last
    # block.
    if rows.blocks > 1:
        held = rows.step * np.arange(rows.blocks)[:, None] + np.arange(rows.step + 2)
        pixels = pixels.pad((1, int(held.max()) - layer["rows"]), (0, 0), (0, 0)).take(0, held)
    return _filled(pixels, rows.blocks, words)


def weight(layer: Layer) -> Placement:
    """Return the placement of the weights, (oc, 9, ic) or (l, r), in (blocks, words)."""
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
    # The lanes use all taps of a channel group at once: [output channel][group][tap][channel of the group].
    group = min(GROUP, layer.pixel)
    groups = codes.pad((0, 0), (0, 0), (0, layer.pixel - layer["ic"])).split(2, group).transpose(0, 2, 1, 3)
    if config.layout == "hwc":
        return _cut(groups, words)
    return _filled(groups.split(0, kernels_per_block(layer)), weight_blocks(layer), words)


def bias(layer: Layer) -> Placement:
    """Return the placement of the biases of all channels in int32 (blocks, biases per block)."""
    return _cut(Placement.of((layer.channels,), "int32"), layer.config.block_words("bias"))


def result(layer: Layer) -> Placement:
    """Return the placement of a sample's results: flat, in the order of writing."""
    return Placement.of((layer.outputs,), "uint8").take(0, writing_order(layer))


def blocks(placement: Placement, values: Array) -> Array:
    """Return the values of an operand in blocks: uint8 or int32 [blocks, words]."""
    return placement.read(placement.pack(values.view(placement.dtype).reshape(1, *placement.shape)))[0]


def _cut(placement: Placement, words: int) -> Placement:
    return placement.reshape(prod(placement.slots)).split(0, words)


def _filled(placement: Placement, parts: int, words: int) -> Placement:
    """Divide words into equal parts, and extend each part to the size of a block."""
    size = prod(placement.slots) // parts
    return placement.reshape(parts, size).pad((0, 0), (0, words - size))


def biases(layer: Layer, weights: Array, bias: Array) -> Array:
    """Return the biases with which an engine with `window=1` begins its sums, int32 [channels], modulo 2**32."""
    # Let x and w be the unit's int8 numbers. The sum of (x - zx) * (w - zw) equals the sum of x * w, minus zw times the
    # sum of x (the unit subtracts this term), minus zx times the sum of w, plus zx * zw for each lane.
    zx = centred(layer, "x")
    zw = centred(layer, "w")
    lanes = layer.stored_kernel
    codes = np.ascontiguousarray(weights).view(np.uint8).reshape(layer.channels, -1)
    spare = lanes - codes.shape[1]  # the weight of unused lanes is the code 0
    flip = 0 if layer["w_signed"] else 128
    sums = (codes ^ np.uint8(flip)).view(np.int8).sum(1, dtype=np.int64) - spare * flip
    return (bias.astype(np.int64) + zx * zw * lanes - zx * sums).astype(np.int32)


def centred(layer: Layer, operand: str) -> int:
    """Return the zero point of operand `x` or `w` for the unit. The unit maps the uint8 code 128 to 0."""
    return layer[f"z{operand}"] - (0 if layer[f"{operand}_signed"] else 128)


def writing_order(layer: Layer) -> Array:
    """Return the index of each result in the layer's flat output, in the order of writing, int64 [outputs]."""
    # The order is channel by channel. With oc_blocking, the order is: weight block, position group, channel of the
    # block.
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
    """Yield the first position and the end of each position group. A single block serves the rows of a group."""
    rows = row_blocks(layer)
    outputs = layer.config.outputs
    for top in range(0, layer["rows"], rows.step):
        end = min(top + rows.step, layer["rows"]) * layer["cols"]
        for first in range(top * layer["cols"], end, outputs):
            yield first, min(first + outputs, end)
