"""The work of a layer in the order in which the engine does it: groups of results, their cycles, and what they read.

A group is the results that are summed together: some positions of one channel (or, with `oc_blocking`, of several), the
columns of an FC layer, or a row of a pool.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.zynq.isa.layer import Kind, Layer
from tilewright.targets.zynq.placement import position_groups, writing_order
from tilewright.targets.zynq.timing.walk import ConvWalk, FcWalk


class Work(NamedTuple):
    """Groups of results in order, each column int64 [groups].

    The engine works on a group from cycle `start` to `end` of its own cycles, without waits, and then has the results
    `first` to `after`. Results have numbers in the order of writing; `order` int64 [results] is the index of each in
    the layer's flat output. A group reads the input rows `top` to `bottom` (exclusive), and the kernels of the channels
    `low` to `high` (exclusive); `row` is its row of the result.
    """

    start: Array
    end: Array
    first: Array
    after: Array
    row: Array
    top: Array
    bottom: Array
    low: Array
    high: Array
    order: Array


def work(layer: Layer) -> Work:
    """Return the work of one run of a layer."""
    if layer.kind == Kind.POOL:
        return _pool(layer)
    return _fc(layer) if layer.kind == Kind.FC else _conv(layer)


def _conv(layer: Layer) -> Work:
    of, cols, channels = ConvWalk(layer), layer["cols"], layer["oc"]
    places = np.array([*position_groups(layer)], np.int64)
    low = np.repeat(np.arange(0, channels, of.together), len(places))
    position, stop = np.tile(places.T, -(-channels // of.together))
    width = np.minimum(of.together, channels - low)
    first = low * layer.positions + width * position
    start, count, row = of.span(first)[0], stop - position, position // cols
    return Work(
        start,
        start + width * of.group(count),
        first,
        first + width * count,
        row,
        np.maximum(row - 1, 0),
        np.minimum((stop - 1) // cols + 2, layer["rows"]),
        low,
        low + width,
        writing_order(layer),
    )


def _fc(layer: Layer) -> Work:
    of = FcWalk(layer)
    low = np.arange(0, layer["l"], of.k)
    high = np.minimum(low + of.k, layer["l"])
    start, end = of.group_span(low)
    none = np.zeros_like(low)
    return Work(start, end, low, high, none, none, none + 1, low, high, writing_order(layer))


def _pool(layer: Layer) -> Work:
    """The engine takes the elements of one channel after the other; a row of results needs two rows of them."""
    rows, cols, channels = layer["rows"] // 2, layer["cols"] // 2, layer["ic"]
    number = np.arange(rows * channels)
    channel, row = np.divmod(number, rows)
    return Work(
        number * 2 * layer["cols"],
        (number + 1) * 2 * layer["cols"],
        number * cols,
        (number + 1) * cols,
        row,
        2 * row,
        2 * row + 2,
        channel,
        channel + 1,
        writing_order(layer),
    )
