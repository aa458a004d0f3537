"""The part of the memories where hazards are possible at all, from the bounds of footprints: mostly none.

Every memory is cut into cells at the ends of what is certainly written, and each step is taken to touch all of
every cell that a row of its footprint reaches into. The conflicts of such a program include those of the real
one (what is touched only grows), and each lies in the cell where its elements are. So only the cells with a
conflict have to be scanned element by element. Before that they are cut once more, with what steps touch in parts
(rows of an image, say) taken part by part.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from tilewright.array import Array
from tilewright.sim.order import Order
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, READ, SPACE, STRIDE, WRITE, Footprints, StepTable

#: Accesses of cells that are sorted; beyond it, a scan of everything is cheaper.
MAX_ACCESSES = 1 << 24
#: Accesses that are looked at together: as many as stay in the caches.
BLOCK = 1 << 15


def everything(table: StepTable) -> Array:
    """All elements of all memories: int64 [k, 3] of space, low, high."""
    return np.array([(index, 0, space.size) for index, space in enumerate(table.spaces)], np.int64).reshape(-1, 3)


def suspects(table: StepTable, order: Order) -> Array:
    """Ranges outside which no race and no unwritten read is possible: int64 [k, 3] of space, low, high, ascending."""
    ranges = _suspects(table, order, everything(table))
    if len(ranges) and (parts := _in_parts(table.footprints, ranges)):
        ranges = _suspects(replace(table, footprints=parts), order, ranges)
    return ranges


def _suspects(table: StepTable, order: Order, ranges: Array) -> Array:
    """The same inside some ranges; the footprints need hold no more than what touches them."""
    rows, live = table.footprints.rows, table.footprints.live
    offset = np.array([0, *accumulate(space.size for space in table.spaces)])  # the memories one behind the other
    at = offset[rows[:, SPACE]]
    low, high = rows[:, BASE] + at, table.footprints.end + at
    asked = ranges[:, 1:] + offset[ranges[:, 0], None]
    # A first write, of all that is between its ends: WRITE alone. What is read as well is either written before or
    # an unwritten read.
    surely = live & (rows[:, MODE] == WRITE) & ((rows[:, COUNT] == 1) | (rows[:, STRIDE] <= rows[:, LENGTH]))
    filled = np.array(
        [
            (start + max(a, 0), start + min(b, space.size))
            for start, space in zip(offset.tolist(), table.spaces, strict=False)
            for a, b in space.initialised
        ],
        np.int64,
    ).reshape(-1)
    cuts = np.sort(np.concatenate([offset, low[surely], high[surely], filled, asked.reshape(-1)]))
    cuts = cuts[np.concatenate([[True], cuts[1:] > cuts[:-1]])]
    first, last = np.searchsorted(cuts, np.array([low, high - 1]), "right")

    mine = table.footprint[order.sequence]
    row, visit = _numbers(table.footprints.start[mine], np.diff(table.footprints.start)[mine])
    row, visit = row[live[row]], visit[live[row]]
    begin, end = first[row] - 1, last[row]
    many = np.cumsum(np.bincount(begin, minlength=len(cuts)) - np.bincount(end, minlength=len(cuts)))  # a cell
    if int(many.sum()) > MAX_ACCESSES:
        return ranges
    preset, asked_for = _covered(cuts, filled), _covered(cuts, asked.reshape(-1))
    found = []
    for low_cell, high_cell in pairwise(_blocks(many)):
        part = np.flatnonzero((begin < high_cell) & (end > low_cell))
        start = np.maximum(begin[part], low_cell)
        cell, access = _numbers(start, np.minimum(end[part], high_cell) - start)
        by_cell = np.argsort((cell - low_cell).astype(np.min_scalar_type(high_cell - low_cell)), kind="stable")
        cell, access = cell[by_cell], part[access[by_cell]]
        mine, step = row[access], order.sequence[visit[access]]
        bad = _possible(table, order, cell, step, rows[mine, MODE], surely[mine], preset[cell])
        found.append(np.unique(cell[bad & asked_for[cell]]))
    cells = np.concatenate([np.zeros(0, np.int64), *found])
    space = np.searchsorted(offset, cuts[cells], "right") - 1
    return np.stack([space, cuts[cells] - offset[space], cuts[cells + 1] - offset[space]], axis=1)


def _blocks(many: Array) -> list[int]:
    """Where to cut the cells, of which each has so many accesses, into blocks of about BLOCK accesses."""
    total = np.cumsum(many)
    edges = np.searchsorted(total, np.arange(0, total[-1], BLOCK), "right").tolist()
    return sorted({0, *edges, len(many)})


def _covered(cuts: Array, ranges: Array) -> Array:
    """The cells from each cut on that lie in a range; its ends, low and high in turn, are cuts: bool."""
    inside = np.zeros(len(cuts), np.bool_)
    for a, b in np.searchsorted(cuts, ranges).reshape(-1, 2).tolist():
        inside[a:b] = True
    return inside


def _in_parts(footprints: Footprints, ranges: Array) -> Footprints | None:
    """The rows that reach into some ranges, a row for each of its parts; None where nothing is cut, or too much."""
    rows = footprints.rows
    live = footprints.live & reach(footprints, ranges)
    count = np.where(live, rows[:, COUNT], 0)
    total = int(count.sum())
    if not (count > 1).any() or total > MAX_ACCESSES:
        return None
    part, row = _numbers(np.zeros(len(rows), np.int64), count)
    parts = rows[row]
    parts[:, BASE] += part * parts[:, STRIDE]
    parts[:, COUNT], parts[:, STRIDE] = 1, 0
    return Footprints(parts, np.concatenate([[0], np.cumsum(count)])[footprints.start])


def reach(footprints: Footprints, ranges: Array) -> Array:
    """Whether each row, all of what is between its ends, reaches into one of the ranges: bool [r]."""
    rows = footprints.rows
    reached = np.zeros(len(rows), np.bool_)
    for index in np.unique(ranges[:, 0]):
        parts = ranges[ranges[:, 0] == index]
        inside = np.searchsorted(parts[:, 1], footprints.end) > np.searchsorted(parts[:, 2], rows[:, BASE], "right")
        reached |= (rows[:, SPACE] == index) & inside
    return reached


def _possible(
    table: StepTable, order: Order, cell: Array, step: Array, mode: Array, surely: Array, preset: Array
) -> Array:
    """Accesses, by cell and then in order, that may race with an earlier one or read what is not written: bool.

    A race is with the last write of the cell or, for a write, with the last read of each unit.
    """
    unit, writes, reads = table.unit[step], (mode & WRITE) > 0, (mode & READ) > 0
    last = _LastBefore(cell)
    possible: Array = reads & ~preset & (last(surely) < 0)
    earlier = last(writes)
    other = unit[earlier]
    possible |= (earlier >= 0) & (other != unit) & (order.clock[step, other] <= order.rank[step[earlier]])
    later = np.flatnonzero(writes)
    for reader in range(len(table.units)):
        earlier = last(reads & (unit == reader))[later]
        races = (earlier >= 0) & (unit[later] != reader)
        races &= order.clock[step[later], reader] <= order.rank[step[earlier]]
        possible[later] |= races
    return possible


class _LastBefore:
    """For each access, by cell, the last earlier one of its cell of some kind, or -1."""

    def __init__(self, cell: Array) -> None:
        self._at = np.arange(len(cell), dtype=np.int32)
        first = np.concatenate([[True], cell[1:] != cell[:-1]])
        self._head = np.maximum.accumulate(np.where(first, self._at, 0))

    def __call__(self, kind: Array) -> Array:
        latest = np.full(len(kind), -1, np.int32)
        np.copyto(latest[1:], self._at[:-1], where=kind[:-1])
        np.maximum.accumulate(latest, out=latest)
        latest[latest < self._head] = -1
        return latest


def _numbers(low: Array, count: Array) -> tuple[Array, Array]:
    """The count[i] numbers from low[i] for every i in turn, and the i of each."""
    end = np.cumsum(count)
    owner = np.repeat(np.arange(len(count)), count)
    return np.arange(len(owner)) + (low - end + count)[owner], owner
