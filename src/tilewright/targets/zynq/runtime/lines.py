"""What the PS lays out for an engine with `window=1`: operands as lines, and biases with the zero points in them.

A line of weights is what an iteration reads: 9 taps x 16 channels, or 144 products of an FC column. A pixel of data has
16 channels at least, and an FC iteration's data begin at a line of 256 words. The unit multiplies codes as int8
numbers, without their zero points: sums of constants are in the bias. Places without a word have the zero point of the
data, so that they add nothing.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq.config import GROUP, LANES, LINE, TAPS
from tilewright.targets.zynq.isa.layer import Kind, Layer
from tilewright.targets.zynq.timing import walk


def pixels(layer: Layer, codes: Array) -> Array:
    """Return the codes of an image, (rows, cols, ic), as uint8 (rows, cols, pixel)."""
    raw = np.full((*layer.input_shape[:2], layer.pixel), layer["zx"] & 255, np.uint8)
    raw[..., : layer["ic"]] = codes.reshape(layer.input_shape).view(np.uint8)
    return raw


def fc_data(layer: Layer, codes: Array) -> Array:
    """Return the codes of a vector, (r), cut into blocks: uint8 [blocks, words]. A line has an iteration's data."""
    lanes = np.full(layer.depth * LANES, layer["zx"] & 255, np.uint8)
    lanes[: layer["r"]] = np.ascontiguousarray(codes).ravel().view(np.uint8)
    found = np.zeros((walk.data_blocks(layer), layer.config.lines("data"), LINE["data"]), np.uint8)
    found.reshape(-1, LINE["data"])[: layer.depth, :LANES] = lanes.reshape(-1, LANES)
    return found.reshape(len(found), -1)


def weights(layer: Layer, codes: Array) -> Array:
    """Return weights, (oc, 9, ic) or (l, r), as lines: uint8 (kernels, depth, 144). Lanes without a weight are 0."""
    raw = np.ascontiguousarray(codes).view(np.uint8)
    if layer.kind == Kind.FC:
        found = np.zeros((layer["l"], layer.depth * LANES), np.uint8)
        found[:, : layer["r"]] = raw
        return found.reshape(layer["l"], layer.depth, LANES)
    found = np.zeros((layer["oc"], TAPS, layer.pixel), np.uint8)
    found[..., : layer["ic"]] = raw
    return found.reshape(layer["oc"], TAPS, -1, GROUP).swapaxes(1, 2).reshape(layer["oc"], -1, LANES)


def weight_blocks(layer: Layer, codes: Array) -> Array:
    """Return weights cut into blocks: uint8 [blocks, words]. A convolution's kernel lies in one block."""
    lines, config = weights(layer, codes), layer.config
    each = config.lines("weight") if layer.kind == Kind.FC else walk.kernels_per_block(layer)
    rows = lines.reshape(-1, LANES) if layer.kind == Kind.FC else lines.reshape(layer["oc"], -1)
    found = np.zeros((walk.weight_blocks(layer), config.block_words("weight")), np.uint8)
    for block, first in zip(found, range(0, len(rows), each), strict=True):
        part = rows[first : first + each].ravel()
        block[: part.size] = part
    return found


def biases(layer: Layer, codes: Array, bias: Array) -> Array:
    """Return the biases that the engine begins its sums with, int32 [channels], modulo 2**32.

    With x and w as the unit's int8 numbers, a sum of (x - zx) * (w - zw) is that of x * w, less zw times the sum of x,
    which the unit subtracts, less zx times the sum of w, plus zx * zw for each lane.
    """
    zx, zw = centred(layer, "x"), centred(layer, "w")
    lines = weights(layer, codes).reshape(layer.channels, -1)
    numbers = lines.view(np.int8) if layer["w_signed"] else (lines ^ 128).view(np.int8)
    constant = zx * zw * lines.shape[1] - zx * numbers.sum(1, dtype=np.int64)
    found: Array = (bias.astype(np.int64) + constant).astype(np.int32)
    return found


def centred(layer: Layer, operand: str) -> int:
    """Return the zero point of operand `x` or `w` for the unit, which takes the code 128 of uint8 as 0."""
    return layer[f"z{operand}"] - (0 if layer[f"{operand}_signed"] else 128)
