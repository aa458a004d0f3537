"""The part of the memories where hazards are possible at all, from the bounds of footprints: mostly none.

Every memory is cut into cells at the ends of what is certainly written, and each step is taken to touch all of
every cell that a row of its footprint reaches into. The conflicts of such a program include those of the real
one (what is touched only grows), and each lies in the cell where its elements are. So only the cells with a
conflict have to be scanned element by element. Before that they are cut once more, with what steps touch in parts
(rows of an image, say) taken part by part.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np

from tilewright.array import Array
from tilewright.sim.order import Order
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, READ, SPACE, STRIDE, WRITE, Footprints, StepTable

#: Accesses of cells that are sorted; beyond it, a scan of everything is cheaper.
MAX_ACCESSES = 1 << 20


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
    cells = (last - first + 1) * live

    mine = table.footprint[order.sequence]
    row, visit = _numbers(table.footprints.start[mine], np.diff(table.footprints.start)[mine])
    if int(cells[row].sum()) > MAX_ACCESSES:
        return ranges
    cell, access = _numbers(first[row] - 1, cells[row])
    by_cell = np.argsort(cell, kind="stable")
    cell, access = cell[by_cell], access[by_cell]
    row, step = row[access], order.sequence[visit[access]]
    bad = _possible(table, order, cell, step, rows[row, MODE], surely[row], _covered(cuts, filled)[cell])
    bad &= _covered(cuts, asked.reshape(-1))[cell]
    if not bad.any():
        return np.zeros((0, 3), np.int64)
    found = np.unique(cell[bad])
    space = np.searchsorted(offset, cuts[found], "right") - 1
    return np.stack([space, cuts[found] - offset[space], cuts[found + 1] - offset[space]], axis=1)


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
    readers = reads & (unit == np.arange(len(table.units))[:, None])
    before = _last_before(cell, np.concatenate([surely[None], writes[None], readers]))
    unwritten, earlier = reads & ~preset & (before[0] < 0), before[1:]
    other = unit[earlier]
    races = (earlier >= 0) & (other != unit) & (order.clock[step, other] <= order.rank[step[earlier]])
    races[1:] &= writes
    possible: Array = unwritten | races.any(axis=0)
    return possible


def _last_before(cell: Array, which: Array) -> Array:
    """For each access and each row of `which` (bool [k, n]) the last earlier one of its cell, or -1: int64 [k, n]."""
    at = np.arange(1, len(cell) + 1)
    latest = np.zeros(which.shape, np.int64)
    np.maximum.accumulate((at * which)[:, :-1], axis=1, out=latest[:, 1:])
    head = np.zeros(len(cell), np.int64)
    head[1:] = at[:-1] * (cell[1:] != cell[:-1])
    return np.where(latest > np.maximum.accumulate(head), latest, 0) - 1


def _numbers(low: Array, count: Array) -> tuple[Array, Array]:
    """The count[i] numbers from low[i] for every i in turn, and the i of each."""
    end = np.cumsum(count)
    owner = np.repeat(np.arange(len(count)), count)
    return np.arange(len(owner)) + (low - end + count)[owner], owner
