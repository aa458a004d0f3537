"""Where words lie in DDR, and blocks of them: what the PS lays out before a layer and reads back after it.

Data of convolutions: planes (chw), or pixels of channels (hwc, rows). Pools read planes; FC reads vectors. A kernel is
[channel][tap] (chw) or [group][tap][channel of the group]; FC weights are column after column, and where an iteration
computes several columns, their words of one iteration follow each other. Results come in the order of writing.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq import walk
from tilewright.targets.zynq.config import GROUP
from tilewright.targets.zynq.isa import Kind
from tilewright.targets.zynq.layer import Layer


def weights_to_ddr(layer: Layer, weights: Array) -> Array:
    """uint8 [kernel * channels] in the order of reading from codes (oc, 3, 3, ic) or (l, r)."""
    if layer.kind == Kind.FC:
        words = np.ascontiguousarray(weights).view(np.uint8)
        return words.ravel() if layer.config.outputs == 1 else _columns(layer, words)
    taps = weights.reshape(layer["oc"], 9, layer["ic"]).view(np.uint8)
    if layer.config.layout == "chw":
        return np.ascontiguousarray(taps.transpose(0, 2, 1)).ravel()
    group = min(GROUP, layer["ic"])
    return np.ascontiguousarray(taps.reshape(layer["oc"], 9, -1, group).transpose(0, 2, 1, 3)).ravel()


def weights_from_ddr(layer: Layer, words: Array) -> Array:
    """The inverse: codes of the descriptor's type, (oc, 9, ic) or (l, r)."""
    codes = words.view(np.int8 if layer["w_signed"] else np.uint8)
    if layer.kind == Kind.FC:
        return codes.reshape(layer["l"], -1) if layer.config.outputs == 1 else _matrix(layer, codes)
    if layer.config.layout == "chw":
        return codes.reshape(layer["oc"], layer["ic"], 9).transpose(0, 2, 1)
    group = min(GROUP, layer["ic"])
    return codes.reshape(layer["oc"], -1, 9, group).transpose(0, 2, 1, 3).reshape(layer["oc"], 9, layer["ic"])


def _columns(layer: Layer, matrix: Array) -> Array:
    """(l, r) in the order of reading: groups of columns, iterations, columns of the group, lanes."""
    r, full = layer["r"], _full(layer)
    parts = []
    for first, last, width in _groups(layer):
        group = matrix[first:last].reshape(-1, width, r)
        bulk = group[:, :, :full].reshape(len(group), width, -1, layer.config.fc_lanes).swapaxes(1, 2)
        parts.append(
            np.concatenate([bulk.reshape(len(group), -1), group[:, :, full:].reshape(len(group), -1)], 1).ravel()
        )
    return np.concatenate(parts)


def _matrix(layer: Layer, words: Array) -> Array:
    """The inverse of `_columns`."""
    r, full, lanes = layer["r"], _full(layer), layer.config.fc_lanes
    found = np.empty((layer["l"], r), words.dtype)
    for first, last, width in _groups(layer):
        group, out = words[first * r : last * r].reshape(-1, width * r), found[first:last].reshape(-1, width, r)
        bulk = group[:, : width * full].reshape(len(group), -1, width, lanes).swapaxes(1, 2)
        out[:, :, :full] = bulk.reshape(len(group), width, full)
        out[:, :, full:] = group[:, width * full :].reshape(len(group), width, -1)
    return found


def _full(layer: Layer) -> int:
    """Products of a sum in iterations that fill all lanes."""
    return layer["r"] // layer.config.fc_lanes * layer.config.fc_lanes


def _groups(layer: Layer) -> list[tuple[int, int, int]]:
    """Columns from, to, and in an iteration: whole groups together, then the rest."""
    k, columns = min(layer.config.outputs, layer["l"]), layer["l"]
    whole = columns // k * k
    return [(0, whole, k), *([(whole, columns, columns - whole)] if whole < columns else [])]


def data_blocks(layer: Layer, codes: Array) -> Array:
    """uint8 [blocks, words] of codes (rows, cols, ic) or, for FC, of (samples, r)."""
    words, bytes_ = layer.config.block_words("data"), np.ascontiguousarray(codes).view(np.uint8)
    if not layer.conv or layer.config.layout != "rows":
        planes = layer.kind == Kind.POOL or (layer.conv and layer.config.layout == "chw")
        return _cut(bytes_.transpose(2, 0, 1) if planes else bytes_, words)
    rows, width = walk.row_blocks(layer), layer["cols"] * layer["ic"]
    found = np.zeros((rows.blocks, words), np.uint8)
    for block in range(rows.blocks):
        first = rows.first(block)
        for y in range(max(first, 0), min(first + rows.step + 2, layer["rows"])):
            found[block, (y - first) * width : (y - first + 1) * width] = bytes_[y].ravel()
    return found


def weight_blocks(layer: Layer, words: Array) -> Array:
    """uint8 [blocks, words]; with `layout` rows no kernel straddles."""
    size = layer.config.block_words("weight")
    if not layer.conv or layer.config.layout != "rows":
        return _cut(words, size)
    each = walk.kernels_per_block(layer)
    kernels = words.reshape(layer["oc"], layer.kernel)
    found = np.zeros((-(-layer["oc"] // each), size), np.uint8)
    for block in range(len(found)):
        part = kernels[block * each : (block + 1) * each].ravel()
        found[block, : part.size] = part
    return found


def bias_blocks(layer: Layer, bias: Array) -> Array:
    """int32 [blocks, biases]."""
    return _cut(bias, layer.config.block_words("bias"))


def results_in_order(layer: Layer, codes: Array) -> Array:
    """Words in the order of writing from codes (rows, cols, oc), pooled (rows / 2, cols / 2, ic), or (samples, l)."""
    if layer.kind == Kind.FC:
        return _fc_order(layer, codes)
    flat = codes.reshape(-1, codes.shape[-1])
    return np.ascontiguousarray(flat.T).ravel()[_written(layer)]


def results_from_order(layer: Layer, words: Array) -> Array:
    """The inverse, (outputs) as (positions, channels) or (samples, l)."""
    if layer.kind == Kind.FC:
        where = _fc_order(layer, np.arange(layer.outputs * layer.samples).reshape(layer.samples, -1))
        found = np.empty_like(words)
        found[where] = words
        return found.reshape(layer.samples, -1)
    channels = layer["oc"] if layer.conv else layer["ic"]
    found = np.empty_like(words)
    found[_written(layer)] = words
    return np.ascontiguousarray(found.reshape(channels, -1).T)


def _fc_order(layer: Layer, matrix: Array) -> Array:
    """(samples, l): groups of columns, samples, columns of the group."""
    k = min(layer.config.outputs, layer["l"])
    return np.concatenate([matrix[:, first : first + k].ravel() for first in range(0, layer["l"], k)])


def _written(layer: Layer) -> Array:
    """For each result in the order of writing its place in [channel][position]."""
    if not (layer.conv and layer.config.oc_blocking):
        return np.arange(layer.outputs)
    of, size, parts = walk.ConvWalk(layer), layer.positions, []
    ends = np.cumsum(of.positions).tolist()
    for first in range(0, layer["oc"], of.together):
        channels = np.arange(first, min(first + of.together, layer["oc"]))[:, None] * size
        for start, end in zip([0, *ends], ends, strict=False):
            parts += [(channels + np.arange(at, min(at + of.k, end))).ravel() for at in range(start, end, of.k)]
    return np.concatenate(parts)


def _cut(words: Array, size: int) -> Array:
    flat = words.ravel()
    found = np.zeros((-(-flat.size // size), size), flat.dtype)
    found.ravel()[: flat.size] = flat
    return found
