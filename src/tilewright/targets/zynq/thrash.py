"""Block loads of a convolution whose words lie as the document leaves them: every window may leave the block.

One block is resident. A load is a change of block between two words that the loader reads after each other; the
order of words is the lanes': channel, tap (chw) or tap, channel (hwc), group after group, position after position,
and so again for each output channel. Padding taps read nothing.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq.config import GROUP
from tilewright.targets.zynq.layer import Layer


def data_loads(layer: Layer) -> int:
    """Loads of data blocks in all sweeps, the first one included."""
    first, last = _planes(layer) if layer.config.layout == "chw" else _pixels(layer)
    sweep = int((last != first).sum() if layer.config.layout == "hwc" else (last - first).sum())
    sweep += int((first[1:] != last[:-1]).sum())
    return 1 + layer["oc"] * sweep + (layer["oc"] - 1) * int(last[-1] != first[0])


def _planes(layer: Layer) -> tuple[Array, Array]:
    """The blocks of the first and last word of each (position, channel), in order: rows are read upwards."""
    rows, cols, words = layer["rows"], layer["cols"], layer.config.block_words("data")
    y, x = np.divmod(np.arange(layer.positions), cols)
    first = np.maximum(y - 1, 0) * cols + np.maximum(x - 1, 0)
    last = np.minimum(y + 1, rows - 1) * cols + np.minimum(x + 1, cols - 1)
    plane = np.arange(layer["ic"]) * layer.positions
    return ((first[:, None] + plane) // words).ravel(), ((last[:, None] + plane) // words).ravel()


def _pixels(layer: Layer) -> tuple[Array, Array]:
    """The blocks of the first and last word of each (position, group, tap inside the image), in order."""
    rows, cols, channels = layer["rows"], layer["cols"], layer["ic"]
    words = layer.config.block_words("data")
    y, x = np.divmod(np.arange(layer.positions)[:, None], cols)
    ty, tx = y + np.repeat([-1, 0, 1], 3), x + np.tile([-1, 0, 1], 3)
    inside = (ty >= 0) & (ty < rows) & (tx >= 0) & (tx < cols)
    pixel = (ty * cols + tx) * channels
    start = pixel[:, None, :] + np.arange(layer.depth)[:, None] * GROUP
    kept = np.broadcast_to(inside[:, None, :], start.shape)
    found = start[kept]
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
