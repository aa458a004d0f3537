"""How the PS lays operands out in DDR, as blocks: what the driver writes there and the loader reads.

Data of convolutions: planes (chw), or pixels of channels (hwc, rows). Pools read planes; FC reads a vector. A kernel is
[channel][tap] (chw) or [group][tap][channel of the group]; FC weights are column after column. This is the order of an
engine that computes one output at a time; where it computes several, those of an iteration follow each other.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq.config import GROUP, TAPS
from tilewright.targets.zynq.isa.descriptor import Kind
from tilewright.targets.zynq.isa.layer import Layer
from tilewright.targets.zynq.timing import walk


def data_blocks(layer: Layer, codes: Array) -> Array:
    """uint8 [blocks, words] of codes (rows, cols, ic) or (1, r)."""
    words, raw = layer.config.block_words("data"), np.ascontiguousarray(codes).view(np.uint8)
    if not layer.conv or layer.config.layout != "rows":
        planes = layer.kind == Kind.POOL or (layer.conv and layer.config.layout == "chw")
        return _cut(raw.transpose(2, 0, 1) if planes else raw, words)
    rows, width = walk.row_blocks(layer), layer["cols"] * layer["ic"]
    found = np.zeros((rows.blocks, words), np.uint8)
    for block in range(rows.blocks):
        first = rows.first(block)
        for y in range(max(first, 0), min(first + rows.step + 2, layer["rows"])):
            found[block, (y - first) * width : (y - first + 1) * width] = raw[y].ravel()
    return found


def weight_blocks(layer: Layer, weights: Array) -> Array:
    """uint8 [blocks, words] of codes (oc, 9, ic) or (l, r); with `layout` rows no kernel straddles."""
    raw, size = weights.view(np.uint8), layer.config.block_words("weight")
    if layer.kind == Kind.FC:
        return _cut(raw, size)
    if layer.config.layout == "chw":
        return _cut(raw.transpose(0, 2, 1), size)
    groups = raw.reshape(layer["oc"], TAPS, -1, min(GROUP, layer["ic"])).swapaxes(1, 2)
    if layer.config.layout == "hwc":
        return _cut(groups, size)
    kernels, each = groups.reshape(layer["oc"], layer.kernel), walk.kernels_per_block(layer)
    return np.concatenate([_cut(kernels[first : first + each], size) for first in range(0, layer["oc"], each)])


def bias_blocks(layer: Layer, bias: Array) -> Array:
    """int32 [blocks, biases]."""
    return _cut(bias, layer.config.block_words("bias"))


def _cut(words: Array, size: int) -> Array:
    flat = words.ravel()
    found = np.zeros((-(-flat.size // size), size), flat.dtype)
    found.ravel()[: flat.size] = flat
    return found
