"""The DRAM rows that the moves of a program read and write, and the resulting traffic on the bus."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array, numbers
from tilewright.targets.gemmini.config import ACC_BYTES, Config
from tilewright.targets.gemmini.isa.work import Moves

#: All segments are below this DRAM address. The sum of two smaller addresses fits int64.
FARTHEST = 1 << 62


def row_bytes(moves: Moves) -> Array:
    place = moves.local
    wide = place.full & place.acc if moves.out else place.acc & (1 - moves.settings["shrunk"])
    return place.cols * np.where(wide, ACC_BYTES, 1)


def transfers(moves: Moves) -> tuple[Array, Array]:
    """Return the range of DRAM bytes of each move: its start and its end (exclusive), int64 [k] each.

    The range is empty for a move without DRAM access (a load of zeros, or a move of 0 rows).
    """
    place = moves.local
    settings = moves.settings
    steps = place.rows - 1
    rows = place.rows
    if moves.out:
        pooled = settings["pool_stride"] > 0
        steps = np.where(pooled, (settings["porows"] - 1) * settings["out_dim"] + settings["pocols"] - 1, steps)
        rows = np.where(pooled, settings["porows"] * settings["pocols"], rows)
    used = (rows > 0) & (place.cols > 0) & (moves.dram != 0)
    # Strides have 64 bits, so the end of a range could wrap around in int64 and fall inside a segment by chance.
    far = np.abs(moves.dram.astype(np.float64)) + np.abs(steps * settings["stride"].astype(np.float64)) >= FARTHEST
    last = np.where(far, 0, steps * settings["stride"])
    first = np.where(far, -FARTHEST, moves.dram + np.minimum(last, 0))
    return first, np.where(used, first + np.abs(last) + row_bytes(moves), first)


def moved_rows(moves: Moves) -> tuple[Array, Array]:
    """Return the number of row groups of each move in DRAM, and the number of rows in a group, int64 [k] each."""
    # A pooled mvout writes a group of rows for each row of result pixels. An mvin with stride 0 reads a single row.
    settings = moves.settings
    rows = moves.local.rows
    ones = np.ones_like(rows)
    if not moves.out:
        return ones, np.where(settings["stride"] == 0, np.minimum(rows, 1), rows)
    pooled = settings["pool_stride"] > 0
    return np.where(pooled, settings["porows"], ones), np.where(pooled, settings["pocols"], rows)


def moved_bytes(moves: Moves) -> Array:
    outer, rows = moved_rows(moves)
    return outer * rows * row_bytes(moves) * (moves.dram != 0)


class DramRows(NamedTuple):
    """Groups of rows in DRAM, int64 [n] each: `rows` rows of `width` bytes, at distances of `stride` bytes."""

    move: Array
    address: Array
    rows: Array
    width: Array
    stride: Array

    def single(self) -> tuple[Array, Array]:
        """Return the address of each row, and the index of the row's group, int64 [rows] each."""
        nth, group = numbers(np.zeros_like(self.rows), self.rows)
        return self.address[group] + nth * self.stride[group], group


def rows_in_dram(moves: Moves) -> DramRows:
    """Return the DRAM rows that moves read or write. A move without DRAM access has no rows."""
    settings = moves.settings
    outer, rows = moved_rows(moves)
    nth, move = numbers(np.zeros_like(rows), outer * (moved_bytes(moves) > 0))
    stride = settings["out_dim"] * settings["stride"] if moves.out else np.zeros_like(rows)
    address = moves.dram[move] + nth * stride[move]
    return DramRows(move, address, rows[move], row_bytes(moves)[move], settings["stride"][move])


def traffic(moves: Moves, config: Config) -> tuple[int, int]:
    """Return the number of requests and of beats of moves. The DMA cuts each row into aligned requests (DMA.scala)."""
    # Pass i of the loop cuts request i from all rows at once. `packet` in timing/bus.py has the same rule for one row.
    groups = rows_in_dram(moves)
    address, group = groups.single()
    left = groups.width[group]
    sizes = 1 << np.arange(config.bus_bytes.bit_length() - 1, config.dma_bytes.bit_length())
    requests = beats = 0
    while len(left):
        useful = np.minimum(sizes[:, None] - (address & (sizes[:, None] - 1)), left)
        best = useful.argmax(axis=0)  # the smallest size among those with the most useful bytes
        requests += len(left)
        beats += int(sizes[best].sum()) // config.bus_bytes
        taken = useful[best, np.arange(len(left))]
        address = address + taken
        left = left - taken
        address = address[left > 0]
        left = left[left > 0]
    return requests, beats
