"""LOADs and STOREs of a tile: shapes and DRAM addresses in the layout [channel tile][row][column]."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tilewright.array import Array

#: x_size, y_size and x_stride have 16 bits.
LARGEST = (1 << 16) - 1


class Transfer(NamedTuple):
    """`rows` x `length` tiles from DRAM tile `offset` of the tensor, `stride` apart; `at`: first tile of the slot."""

    at: int
    offset: int
    rows: int
    length: int
    stride: int


@lru_cache(maxsize=65536)
def covered(part: Transfer) -> Array:
    """The tensor's tiles that a transfer moves, int64 [rows * length]."""
    rows = part.offset + np.arange(part.rows)[:, None] * part.stride
    tiles: Array = (rows + np.arange(part.length)).reshape(-1)
    return tiles


@lru_cache(maxsize=65536)
def transfers(
    size: tuple[int, int], channel: int, channels: int, row: int, rows: int, column: int, columns: int
) -> tuple[Transfer, ...]:
    """A box of a [channel tile][row][column] tensor of `size` rows and columns, packed on chip."""
    return tuple(_transfers(size, channel, channels, row, rows, column, columns))


def _transfers(
    size: tuple[int, int], channel: int, channels: int, row: int, rows: int, column: int, columns: int
) -> Iterator[Transfer]:
    plane = size[0] * size[1]
    start = channel * plane + row * size[1] + column
    run = rows * columns
    if (columns == size[1] or rows == 1) and run <= LARGEST:  # each channel tile's part is one run
        if run == plane and channels * run <= LARGEST:
            yield Transfer(0, start, 1, channels * run, channels * run)
        elif plane <= LARGEST or channels == 1:
            yield Transfer(0, start, channels, run, min(plane, LARGEST))
        else:
            for c in range(channels):
                yield Transfer(c * run, start + c * plane, 1, run, run)
        return
    if rows == 1 or columns > LARGEST or size[1] > LARGEST:
        raise ValueError(f"a row of {size[1]} tiles is beyond the 16 bits of x_size and x_stride")
    for c in range(channels):
        yield Transfer(c * run, start + c * plane, rows, columns, size[1])
