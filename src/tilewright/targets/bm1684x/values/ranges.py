"""Sets of bytes as disjoint ranges in ascending order: what of a memory something has written."""

from __future__ import annotations

from threading import Lock

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import BASE, COUNT, LENGTH, STRIDE

NONE = np.zeros((0, 2), np.int64)


class Ranges:
    """Bytes from the beginning of a memory; several threads may add some."""

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._lock = Lock()
        self._ranges = merged(np.array(ranges, np.int64).reshape(-1, 2))

    @property
    def array(self) -> Array:
        """int64 [k, 2]: low, high."""
        return self._ranges

    def add(self, ranges: Array) -> None:
        """Bytes low..high - 1 of each row of int64 [k, 2]."""
        with self._lock:
            self._ranges = merged(np.concatenate([self._ranges, ranges]))

    def part(self, low: int, high: int) -> Array:
        """Those within low..high, counted from low."""
        clipped = self._ranges.clip(low, high) - low
        found: Array = clipped[clipped[:, 0] < clipped[:, 1]]
        return found

    def replace(self, low: int, ranges: Array, high: int) -> None:
        """In low..high exactly `ranges`, which are counted from low."""
        with self._lock:
            before, after = self._ranges.clip(None, low), self._ranges.clip(high, None)
            self._ranges = merged(np.concatenate([before, ranges + low, after]))


def merged(ranges: Array) -> Array:
    """The same bytes as few ranges, ascending; empty ones left out."""
    ranges = ranges[ranges[:, 0] < ranges[:, 1]]
    if not len(ranges):
        return NONE
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ranges[:, 1])
    first = np.flatnonzero(np.concatenate([[True], ranges[1:, 0] > reached[:-1]]))
    return np.stack([ranges[first, 0], np.maximum.reduceat(ranges[:, 1], first)], axis=1)


def of_rows(rows: Array) -> Array:
    """The elements of footprint rows (sim.steps.Footprints) as int64 [k, 2]."""
    count = rows[:, COUNT].clip(0)
    row = np.repeat(np.arange(len(rows)), count)
    part = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    low = rows[row, BASE] + part * rows[row, STRIDE]
    return np.stack([low, low + rows[row, LENGTH]], axis=1)


def of_addresses(addresses: Array, size: int) -> Array:
    """Elements of `size` bytes as int64 [k, 2]."""
    low = addresses.reshape(-1)
    first = np.flatnonzero(np.diff(low, prepend=low[:1] - 2 * size) != size)
    last = np.append(first[1:], len(low)) - 1
    return np.stack([low[first], low[last] + size], axis=1)
