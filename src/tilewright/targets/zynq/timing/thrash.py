"""Block loads of a convolution whose words lie as the document leaves them: every window may leave the block.

One block is resident. A load is a change of block between two words that the loader reads after each other; the
order of words is the lanes': channel, tap (chw) or tap, channel (hwc), group after group, position after position,
and so again for each output channel. Padding taps read nothing.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq.config import GROUP
from tilewright.targets.zynq.isa.layer import Layer


def data_loads(layer: Layer) -> int:
    """Loads of data blocks in all sweeps, the first one included; a row of positions at a time."""
    blocks_of = _planes if layer.config.layout == "chw" else _pixels
    sweep, opening, before = 0, 0, 0
    for row in range(layer["rows"]):
        first, last = blocks_of(layer, row)
        sweep += int((last - first).sum()) + int((first[1:] != last[:-1]).sum()) + int(row > 0 and first[0] != before)
        opening, before = (int(first[0]) if row == 0 else opening), int(last[-1])
    return 1 + layer["oc"] * sweep + (layer["oc"] - 1) * int(before != opening)


def _planes(layer: Layer, row: int) -> tuple[Array, Array]:
    """The blocks of the first and last word of each (column, channel), in order: a window's rows are read upwards."""
    rows, cols, words = layer["rows"], layer["cols"], layer.config.block_words("data")
    x, plane = np.arange(cols)[:, None], np.arange(layer["ic"]) * layer.positions
    first = max(row - 1, 0) * cols + np.maximum(x - 1, 0)
    last = min(row + 1, rows - 1) * cols + np.minimum(x + 1, cols - 1)
    return ((first + plane) // words).ravel(), ((last + plane) // words).ravel()


def _pixels(layer: Layer, row: int) -> tuple[Array, Array]:
    """The blocks of the first and last word of each (column, group, tap inside the image), in order."""
    cols, channels, words = layer["cols"], layer["ic"], layer.config.block_words("data")
    y, x = row + np.repeat([-1, 0, 1], 3), np.arange(cols)[:, None] + np.tile([-1, 0, 1], 3)
    inside = (y >= 0) & (y < layer["rows"]) & (x >= 0) & (x < cols)
    start = ((y * cols + x) * channels)[:, None, :] + np.arange(layer.depth)[:, None] * GROUP
    found = start[np.broadcast_to(inside[:, None, :], start.shape)]
    return found // words, (found + min(GROUP, channels) - 1) // words


def weight_loads(layer: Layer) -> int:
    """Loads of weight blocks: a kernel that straddles swaps back and forth at every position."""
    words, first = layer.config.block_words("weight"), np.arange(layer["oc"]) * layer.kernel
    start, end = first // words, (first + layer.kernel - 1) // words
    crossed = end - start
    inner = layer.positions * crossed + (layer.positions - 1) * (crossed > 0)
    return 1 + int(inner.sum()) + int((start[1:] != end[:-1]).sum())


def straddling(layer: Layer) -> int:
    """Output channels whose kernel, in packed order, crosses a block edge."""
    words, first = layer.config.block_words("weight"), np.arange(layer.channels) * layer.kernel
    return int((first // words != (first + layer.kernel - 1) // words).sum())
