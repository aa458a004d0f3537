"""Matrices as tiles in DRAM: [row tile][column tile][row][column] of a memory's tile shape."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.stream import pack_values, unpack_values


def grid(memory: Memory, shape: tuple[int, int], config: Config) -> tuple[int, int]:
    """Rows and columns of tiles that hold a matrix."""
    rows, columns = config.sram(memory).shape
    return -(-shape[0] // rows), -(-shape[1] // columns)


def pack(matrix: Array, memory: Memory, config: Config) -> Array:
    """An integer matrix (M, N) as tiles, uint8 flat; zeros fill the last ones.

    Weights are (outputs, inputs), so that out = inp @ wgt.T. Raises InputError for another shape or type, and
    values that the memory cannot hold.
    """
    chip = config.sram(memory)
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "iu":
        raise InputError("matrix", f"is {matrix.dtype} {list(matrix.shape)}", "give integers (rows, columns)")
    low, high = -(1 << (chip.width - 1)), (1 << (chip.width - 1)) - 1
    if matrix.min() < low or matrix.max() > high:
        raise InputError("matrix", f"has values outside {low}..{high}", f"{chip.name} has {chip.width} bits")
    rows, columns = grid(memory, (matrix.shape[0], matrix.shape[1]), config)
    whole = np.zeros((rows * chip.shape[0], columns * chip.shape[1]), np.int64)
    whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    tiles = whole.reshape(rows, chip.shape[0], columns, chip.shape[1]).swapaxes(1, 2)
    return pack_values(tiles.reshape(-1), chip.width)


def unpack(raw: Array, memory: Memory, shape: tuple[int, int], config: Config) -> Array:
    """The matrix (M, N) of tiles (uint8 flat) as `pack` lays them out."""
    chip = config.sram(memory)
    rows, columns = grid(memory, shape, config)
    need = rows * columns * chip.tile_bytes
    if raw.size < need:
        raise InputError("tiles", f"are {raw.size} bytes", f"{shape[0]}x{shape[1]} in {chip.name} needs {need}")
    tiles = unpack_values(raw[:need], chip.width).reshape(rows, columns, *chip.shape).swapaxes(1, 2)
    return np.ascontiguousarray(tiles.reshape(rows * chip.shape[0], columns * chip.shape[1])[: shape[0], : shape[1]])
