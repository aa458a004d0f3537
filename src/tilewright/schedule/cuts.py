"""Ways of cutting an extent into parts, and the orders in which parts are visited."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array

#: Numbers of parts that an extent is cut into.
PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)


def extents(total: int, limit: int | None = None) -> Array:
    """The extents of equal parts (the last may be smaller) up to `limit`, largest first: int64 [cuts]."""
    sizes = {-(-total // parts) for parts in PARTS if parts <= total} | {1}
    return np.array(sorted((size for size in sizes if limit is None or size <= limit), reverse=True), np.int64)


class Range(NamedTuple):
    """`size` elements from `first`."""

    first: int
    size: int


def ranges(total: int, size: int) -> list[Range]:
    """Parts of `size`, the last of what is left."""
    return [Range(first, min(size, total - first)) for first in range(0, total, size)]


def to_and_fro(count: int, turn: int) -> range:
    """The parts in order, every other turn from the last to the first: what was used last is used again first."""
    return range(count - 1, -1, -1) if turn % 2 else range(count)


def product(**axes: Array) -> dict[str, Array]:
    """Every combination of the values of some axes, an array [combinations] an axis; the last axis is the fastest."""
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    return {name: values.reshape(-1) for name, values in zip(axes, mesh, strict=True)}
