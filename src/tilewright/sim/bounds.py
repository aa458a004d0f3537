"""The part of the memories where hazards are possible at all, from the bounds of footprints: mostly none.

Every memory is cut into cells at the ends of what is certainly written, and each step is taken to touch all of
every cell that a row of its footprint reaches into. The conflicts of such a program include those of the real
one (what is touched only grows), and each lies in the cell where its elements are. So only the cells with a
conflict have to be scanned element by element.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.order import Order
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, PARTLY, READ, SPACE, STRIDE, WRITE, StepTable, end_of

#: Accesses of cells that are sorted; beyond it, a scan of everything is cheaper.
MAX_ACCESSES = 1 << 22


def everything(table: StepTable) -> Array:
    """All elements of all memories: int64 [k, 3] of space, low, high."""
    return np.array([(index, 0, space.size) for index, space in enumerate(table.spaces)], np.int64).reshape(-1, 3)


def suspects(table: StepTable, order: Order) -> Array:
    """Ranges outside which no race and no unwritten read is possible: int64 [k, 3] of space, low, high, ascending."""
    rows = table.footprints.rows
    offset = np.cumsum([0, *(space.size for space in table.spaces)])  # the memories one behind the other
    low, high = rows[:, BASE] + offset[rows[:, SPACE]], end_of(rows) + offset[rows[:, SPACE]]
    live = (rows[:, LENGTH] > 0) & (rows[:, COUNT] > 0)
    whole = ((rows[:, MODE] & PARTLY) == 0) & ((rows[:, COUNT] == 1) | (rows[:, STRIDE] <= rows[:, LENGTH]))
    # What is read and written is either written before or an unwritten read: it need not count as a first write.
    surely = live & whole & ((rows[:, MODE] & (READ | WRITE)) == WRITE)
    filled = [
        (offset[index] + max(a, 0), offset[index] + min(b, space.size))
        for index, space in enumerate(table.spaces)
        for a, b in space.initialised
    ]
    cuts = np.unique(np.concatenate([offset, low[surely], high[surely], np.array(filled, np.int64).reshape(-1)]))
    first = np.searchsorted(cuts, low, "right") - 1
    last = np.where(live, np.searchsorted(cuts, high), first)

    begin, end = (table.footprints.start[table.footprint[order.sequence] + k] for k in (0, 1))
    row, visit = _numbers(begin, end)
    if int((last - first)[row].sum()) > MAX_ACCESSES:
        return everything(table)
    cell, access = _numbers(first[row], last[row])
    by_cell = np.argsort(cell, kind="stable")
    cell, access = cell[by_cell], access[by_cell]
    preset = np.zeros(len(cuts), np.bool_)
    for a, b in filled:
        preset[np.searchsorted(cuts, a) : np.searchsorted(cuts, b)] = True
    step, mode = order.sequence[visit[access]], rows[row[access], MODE]
    bad = _conflicts(table, order, cell, step, mode) | _unwritten(cell, mode, surely[row[access]], preset)
    found = np.unique(cell[bad])
    space = np.searchsorted(offset, cuts[found], "right") - 1
    return np.stack([space, cuts[found] - offset[space], cuts[found + 1] - offset[space]], axis=1)


def _conflicts(table: StepTable, order: Order, cell: Array, step: Array, mode: Array) -> Array:
    """Accesses in no order with the last write of their cell, or writes with any unit's last read of it."""
    unit, writes = table.unit[step], (mode & WRITE) > 0

    def unordered(earlier: Array) -> Array:
        other = unit[earlier]
        return (earlier >= 0) & (other != unit) & (order.clock[step, other] <= order.rank[step[earlier]])

    bad = unordered(_last_before(cell, writes))
    reads = (mode & READ) > 0
    for reader in np.unique(unit[reads]):
        bad |= writes & unordered(_last_before(cell, reads & (unit == reader)))
    return bad


def _unwritten(cell: Array, mode: Array, surely: Array, preset: Array) -> Array:
    """Reads of cells that are not certain to have been written."""
    return ((mode & READ) > 0) & ~preset[cell] & (_last_before(cell, surely) < 0)


def _last_before(cell: Array, which: Array) -> Array:
    """For each access the last earlier one of its cell among `which`, or -1."""
    at = np.arange(len(cell))
    head = np.maximum.accumulate(np.where(np.diff(cell, prepend=-1) != 0, at, 0))
    before = np.maximum.accumulate(np.concatenate([[-1], np.where(which, at, -1)[:-1]])) if len(cell) else at
    return np.where(before >= head, before, -1)


def _numbers(low: Array, high: Array) -> tuple[Array, Array]:
    """The numbers low[i]..high[i]-1 of every i in turn, and the i of each."""
    count = high - low
    owner = np.repeat(np.arange(len(count)), count)
    return np.arange(len(owner)) + (low - np.cumsum(count) + count)[owner], owner
