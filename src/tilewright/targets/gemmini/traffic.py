"""What the moves of a program ask of the bus."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.work import Moves
from tilewright.targets.gemmini.values.machine import moved_bytes, moved_rows


class Rows(NamedTuple):
    """Rows in DRAM, int64 [n] each: groups of equal rows, with the first address, the rows, bytes of one, and the
    distance from row to row; `move` is the index of the move."""

    move: Array
    address: Array
    rows: Array
    width: Array
    apart: Array


def rows_in_dram(moves: Moves, config: Config, out: bool) -> Rows:
    """Return the rows that mvins read, or with `out` those that mvouts write.

    A pooled mvout writes a group for each row of its pixels.
    """
    own, size = moves.own, moved_bytes(moves, config, out)
    outer, rows = moved_rows(moves, out)
    outer = outer * (size > 0)
    move = np.repeat(np.arange(len(outer)), outer)
    nth = np.arange(len(move)) - np.repeat(np.cumsum(outer) - outer, outer)
    apart = own["out_dim"] * own["stride"] if out else np.zeros_like(rows)
    width = size // np.maximum(rows * outer, 1)
    return Rows(move, moves.dram[move] + nth * apart[move], rows[move], width[move], own["stride"][move])


def traffic(moves: Moves, config: Config, out: bool) -> tuple[int, int]:
    """Return the requests of moves, and their beats. Each row is cut into aligned requests [C: DMA.scala]."""
    groups = rows_in_dram(moves, config, out)
    group = np.repeat(np.arange(len(groups.rows)), groups.rows)
    nth = np.arange(len(group)) - np.repeat(np.cumsum(groups.rows) - groups.rows, groups.rows)
    address, left = groups.address[group] + nth * groups.apart[group], groups.width[group]
    sizes = 1 << np.arange(config.bus_bytes.bit_length() - 1, config.dma_bytes.bit_length())
    requests = beats = 0
    while len(left):
        useful = np.minimum(sizes[:, None] - (address & (sizes[:, None] - 1)), left)
        best = useful.argmax(axis=0)  # the smallest of the sizes with the most useful bytes
        requests += len(left)
        beats += int(sizes[best].sum()) // config.bus_bytes
        taken = useful[best, np.arange(len(left))]
        address, left = address + taken, left - taken
        address, left = address[left > 0], left[left > 0]
    return requests, beats
