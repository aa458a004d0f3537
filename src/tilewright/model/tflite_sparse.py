"""Sparse constants of `.tflite` files: the stored values and their positions (schema.fbs, SparsityParameters)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tflite

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.graph.tensor import MAX_ELEMENTS

#: The tables of index vectors, by their type number in a file.
_VECTORS = {1: tflite.Int32Vector, 2: tflite.Uint16Vector, 3: tflite.Uint8Vector}


def dense(name: str, shape: tuple[int, ...], dtype: str, data: Array, sparsity: Any) -> Array:
    """Return the whole tensor; elements that are not stored are 0. Raises ModelError if the format is damaged."""
    where = f"tensor '{name}'"
    order, blocks = (
        [int(n) for n in _array(get())] for get in (sparsity.TraversalOrderAsNumpy, sparsity.BlockMapAsNumpy)
    )
    rank = len(shape)
    fits = sorted(order) == list(range(rank + len(blocks))) and sparsity.DimMetadataLength() == len(order)
    if not fits or not all(0 <= axis < rank for axis in blocks) or not 0 < prod(shape) <= MAX_ELEMENTS:
        raise ModelError(where, f"is stored sparse in an impossible form for the shape {list(shape)}")
    positions = np.zeros((rank, 1), np.int64)
    # The tensor is divided into blocks. `order` has the axes in the order of storage. Axis `rank` + i is axis i inside
    # a block, which belongs to axis `blocks[i]` of the tensor. Each axis is one level of a tree. A level is dense, or
    # lists the indices that follow each position on the level above.
    sizes = [1] * rank  # the size of a block along each axis
    for level, axis in enumerate(order):
        if axis >= rank:
            sizes[blocks[axis - rank]] *= sparsity.DimMetadata(level).DenseSize()
    for level, axis in enumerate(order):
        # Each position branches into the indices of this level. An index of an outer axis counts whole blocks.
        parent, index = _level(where, sparsity.DimMetadata(level), positions.shape[1], prod(shape))
        positions = positions[:, parent]
        positions[axis if axis < rank else blocks[axis - rank]] += index * (sizes[axis] if axis < rank else 1)
    values = np.frombuffer(data, dtype)
    if positions.shape[1] != len(values) or (positions >= np.array(shape)[:, None]).any():
        raise ModelError(where, f"stores {len(values)} values, not at the places of a tensor of shape {list(shape)}")
    result = np.zeros(shape, dtype)
    result[tuple(positions)] = values
    return result


def _level(where: str, level: Any, count: int, most: int) -> tuple[Array, Array]:
    """Extend `count` positions by an index on the next axis. There must not be more than `most` new positions.

    Return two arrays with an element for each new position: the number of the old position that was extended, and the
    index on the next axis.
    """
    size = level.DenseSize()
    if level.Format() == tflite.DimensionType.DENSE:
        if not 0 < size * count <= most:
            raise ModelError(where, f"is stored sparse with an axis of {size}")
        return np.repeat(np.arange(count), size), np.tile(np.arange(size), count)
    segments = _vector(level.ArraySegmentsType(), level.ArraySegments())
    indices = _vector(level.ArrayIndicesType(), level.ArrayIndices())
    steps = np.diff(segments)
    if len(segments) != count + 1 or (steps < 0).any() or segments[0] or segments[-1] != len(indices):
        raise ModelError(where, "is stored sparse with segments that do not fit its indices")
    return np.repeat(np.arange(count), steps), indices


def _array(values: Any) -> Array:
    return np.asarray(values, np.int64) if isinstance(values, np.ndarray) else np.zeros(0, np.int64)


def _vector(kind: int, table: Any) -> Array:
    if kind not in _VECTORS or table is None:
        return np.zeros(0, np.int64)
    vector = _VECTORS[kind]()
    vector.Init(table.Bytes, table.Pos)
    return _array(vector.ValuesAsNumpy())
