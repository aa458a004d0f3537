"""Weights as tiles, a bound on their sums, and which taps lie inside the image."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.graph.ops import Window
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.config import Config

CODE_MIN, CODE_MAX = -128, 127


def planes_of(w: Array, config: Config) -> int | str:
    """Bytes that hold every sum of products of w (O, T, K) with codes, whichever taps take part."""
    positive = np.maximum(w, 0).sum(axis=(1, 2), dtype=np.int64)
    negative = np.maximum(-w, 0).sum(axis=(1, 2), dtype=np.int64)
    high = int((CODE_MAX * positive - CODE_MIN * negative).max())
    low = int((CODE_MIN * positive - CODE_MAX * negative).min())
    bits = max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + 1
    if bits > config.acc.width:
        return f"its sums need {bits} bits; the accumulators have {config.acc.width}"
    return -(-bits // 8)


def tiles_of(w: Array, start: Array, layer: Layer, block: int) -> Array:
    """w (O, T, K) as weight tiles int8 [out tile, k, tap, block, block]; k counts from the tile's first input tile."""
    outputs, taps, depth = w.shape
    wide = np.zeros((layer.out_tiles * block, taps, layer.depth * block), np.int8)
    lows = np.zeros(layer.out_tiles, np.int64)
    if layer.link == "dense" and not start.any():
        wide[:outputs, :, :depth] = w
    else:
        if layer.link != "dense":
            lows = np.arange(layer.out_tiles) if layer.link == "diagonal" else np.array([b[0] for b in layer.bands])
        rows = np.arange(outputs)
        columns = (start - lows[rows // block] * block)[:, None] + np.arange(depth)
        wide[rows[:, None], :, columns] = w.transpose(0, 2, 1)
    split = wide.reshape(layer.out_tiles, block, taps, layer.depth, block)
    return np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4))


def classes_of(size: int, out: int, window: Window, axis: int) -> tuple[Array, Array]:
    """For one axis: the class of each output position, and each class's taps inside the image (0 or 1)."""
    positions = np.arange(out)[:, None] * window.stride[axis] - window.padding[2 * axis]
    taps = positions + np.arange(window.kernel[axis]) * window.dilation[axis]
    masks, index = np.unique((taps >= 0) & (taps < size), axis=0, return_inverse=True)
    return index.reshape(-1).astype(np.int64), masks.astype(np.int64)
