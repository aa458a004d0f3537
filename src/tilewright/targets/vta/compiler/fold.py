"""Several neighbouring pixels in one tile, where one pixel's channels would leave half of it or more empty.

`p` pixels of C channels are seen as one of p * C; a linear layer stays linear, with wider weights. Its tiles, and
with them resets, shifts and stores, become p times fewer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ops import Window
from tilewright.targets.vta.config import Config

#: Cycles that an output tile takes besides its sums, roughly: reset, two shifts.
TILE_CYCLES = 5


class Fold(NamedTuple):
    """`pixels` to a tile; weights (pixels * O, taps, pixels * C) and, for an image, the window over folded columns."""

    pixels: int
    weights: Array
    window: Window


def rows(w: Array, count: int, config: Config, single: bool = False) -> Fold:
    """A product of `count` rows with w (O, 1, K): as many rows to a tile as their outputs leave room for.

    `single`: one, because the input lies so.
    """
    outputs, _, depth = w.shape
    pixels = 1 if single else min(config.block // outputs, count)
    if pixels < 2:
        return Fold(1, w, Window())
    more_weights = (pixels - 1) * -(-depth // config.block) * config.wgt.tile_bytes * 8 // config.bus_bits
    if more_weights > count * (pixels - 1) // pixels * TILE_CYCLES:
        return Fold(1, w, Window())
    wide = np.zeros((pixels, outputs, 1, pixels, depth), w.dtype)
    for pixel in range(pixels):
        wide[pixel, :, :, pixel] = w
    return Fold(pixels, wide.reshape(pixels * outputs, 1, pixels * depth), Window())


def columns(
    w: Array, start: Array, channels: int, window: Window, width: int, config: Config, single: bool = False
) -> Fold:
    """A window over an image of `width` output columns; output o reads w.shape[2] of `channels` from start[o]."""
    outputs, _, depth = w.shape
    pixels = 1 if single else min(config.block // max(channels, outputs), width)
    if pixels < 2:
        return Fold(1, w, window)
    (high, wide), stride, dilation, left = window.kernel, window.stride[1], window.dilation[1], window.padding[2]
    # Output pixel j of a tile reads, for tap k, the pixel at[j, k] from the tile's first.
    at = np.arange(pixels)[:, None] * stride + np.arange(wide) * dilation - left
    first = int(at.min() // pixels)
    taps = int(at.max() // pixels) - first + 1
    if taps > wide * pixels // 2:
        return Fold(1, w, window)
    dense = np.zeros((outputs, high * wide, channels), w.dtype)
    dense[np.arange(outputs)[:, None], :, start[:, None] + np.arange(depth)] = w.transpose(0, 2, 1)
    by_tap = dense.reshape(outputs, high, wide, channels)
    folded = np.zeros((pixels, outputs, high, taps, pixels, channels), w.dtype)
    for (pixel, tap), position in np.ndenumerate(at):
        folded[pixel, :, :, position // pixels - first, position % pixels] = by_tap[:, :, tap]
    padding = (window.padding[0], window.padding[1], -first, 0)
    return Fold(
        pixels,
        folded.reshape(pixels * outputs, high * taps, pixels * channels),
        replace(window, kernel=(high, taps), padding=padding, dilation=(window.dilation[0], 1)),
    )
