"""The coarse pass of the hazard check: the ranges of memories where a race or uninitialised read is possible.

The pass cuts every memory into cells, at the ends of the ranges that are certainly written. A step that reaches into a
cell is assumed to touch all elements of this cell. The assumption only adds accesses, so no conflict is missed, and
most programs have none. A second round cuts the cells with a conflict into smaller cells, and considers each part of a
footprint (such as a row of an image) separately.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, ascending, numbers
from tilewright.sim.jit import compiled, part
from tilewright.sim.order import Order
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, READ, SPACE, STRIDE, WRITE, Footprints, StepTable

#: The largest number of cell accesses for the coarse pass. A scan of all elements is faster for larger numbers.
MAX_ACCESSES = 1 << 24
#: The number of accesses in a block, small enough for the caches of the host's processor.
BLOCK = 1 << 15
#: Shadow of a cell that no step has accessed.
NOBODY = -1
#: The number of accesses that `_conflicts_by_sorting` checks per microsecond.
SORTED_PER_US = 10


def everything(table: StepTable) -> Array:
    """Return the ranges of whole memories, int64 [k, 3]: index of the memory, low, high."""
    return np.array([(index, 0, space.size) for index, space in enumerate(table.spaces)], np.int64).reshape(-1, 3)


def suspects(table: StepTable, order: Order) -> Array:
    """Return the ranges where a race or uninitialised read is possible: int64 [k, 3], memory, low, high, ascending."""
    ranges = _suspect_cells(table, order, everything(table))
    if len(ranges) and (parts := _in_parts(table.footprints, ranges)):
        ranges = _suspect_cells(replace(table, footprints=parts), order, ranges)
    return ranges


def _suspect_cells(table: StepTable, order: Order, ranges: Array) -> Array:
    """Return the cells (pieces of memories) inside some ranges where a race or uninitialised read is possible.

    The result has the form of `suspects`. The footprints need not have the rows that do not touch the ranges.
    """
    rows = table.footprints.rows
    live = table.footprints.live
    offset = np.array([0, *accumulate(space.size for space in table.spaces)])  # the memories are concatenated
    at = offset[rows[:, SPACE]]
    low, high = rows[:, BASE] + at, table.footprints.end + at
    ranges_in_all = ranges[:, 1:] + offset[ranges[:, 0], None]
    # Select the footprint rows that certainly write all elements from their first to their last element. Updates (READ
    # and WRITE) are left out, because an update initialises nothing: it is an uninitialised read unless an earlier step
    # has written its elements.
    surely = live & (rows[:, MODE] == WRITE) & ((rows[:, COUNT] == 1) | (rows[:, STRIDE] <= rows[:, LENGTH]))
    filled = np.array(
        [
            (start + max(a, 0), start + min(b, space.size))
            for start, space in zip(offset.tolist(), table.spaces, strict=False)
            for a, b in space.initialised
        ],
        np.int64,
    ).reshape(-1)
    cuts = np.sort(np.concatenate([offset, low[surely], high[surely], filled, ranges_in_all.reshape(-1)]))
    cuts = cuts[np.concatenate([[True], cuts[1:] > cuts[:-1]])]
    first, last = np.searchsorted(cuts, np.array([low, high - 1]), "right")

    begin = first - 1
    end = np.where(live, last, begin)
    touched = np.concatenate([[0], np.cumsum(end - begin)])[table.footprints.start]
    accesses = int(np.diff(touched)[table.footprint[order.sequence]].sum())
    if accesses > MAX_ACCESSES:
        return ranges
    visits = Visits(
        *(order.sequence, table.unit, order.rank, order.clock, table.footprint, table.footprints.start),
        *(begin, end, (rows[:, MODE] & READ) > 0, (rows[:, MODE] & WRITE) > 0, surely, _covered(cuts, filled)),
    )
    find = _conflicts_by_loop if _mark.due(accesses // SORTED_PER_US) else _conflicts_by_sorting
    conflicts = find(visits, len(table.units))
    cells = np.flatnonzero(conflicts & _covered(cuts, ranges_in_all.reshape(-1)))
    space = np.searchsorted(offset, cuts[cells], "right") - 1
    return np.stack([space, cuts[cells] - offset[space], cuts[cells + 1] - offset[space]], axis=1)


def _covered(cuts: Array, ranges: Array) -> Array:
    """Return whether each cell lies in a range, bool. Cell i begins at `cuts[i]`; all ranges begin and end at cuts."""
    inside = np.zeros(len(cuts), np.bool_)
    for a, b in np.searchsorted(cuts, ranges).reshape(-1, 2).tolist():
        inside[a:b] = True
    return inside


def _in_parts(footprints: Footprints, ranges: Array) -> Footprints | None:
    # A row with a count above 1 has gaps, so it seems to touch more cells than it does. Split such rows, and leave out
    # the rows that reach into no range.
    rows = footprints.rows
    live = footprints.live & reach(footprints, ranges)
    count = np.where(live, rows[:, COUNT], 0)
    total = int(count.sum())
    if not (count > 1).any() or total > MAX_ACCESSES:
        return None
    part, row = numbers(np.zeros(len(rows), np.int64), count)
    parts = rows[row]
    parts[:, BASE] += part * parts[:, STRIDE]
    parts[:, COUNT] = 1
    parts[:, STRIDE] = 0
    return Footprints(parts, np.concatenate([[0], np.cumsum(count)])[footprints.start])


def reach(footprints: Footprints, ranges: Array) -> Array:
    """Return whether each footprint row (from its first to its last element) overlaps with a range, bool [r]."""
    rows = footprints.rows
    reached = np.zeros(len(rows), np.bool_)
    for index in ascending(ranges[:, 0]):
        parts = ranges[ranges[:, 0] == index]
        inside = np.searchsorted(parts[:, 1], footprints.end) > np.searchsorted(parts[:, 2], rows[:, BASE], "right")
        reached |= (rows[:, SPACE] == index) & inside
    return reached


class Visits(NamedTuple):
    """The steps in visiting order (`sequence`), with columns of Order and StepTable, and their accesses to cells.

    Row r of the footprints touches the cells begin[r]..end[r] - 1. `reads`, `writes` and `surely` (bool [rows]) mark
    the rows that read cells, write cells, and write all elements of their cells. `preset` bool [cells] marks the cells
    that the host has filled.
    """

    sequence: Array
    unit: Array
    rank: Array
    clock: Array
    footprint: Array
    start: Array
    begin: Array
    end: Array
    reads: Array
    writes: Array
    surely: Array
    preset: Array


def _conflicts_by_loop(visits: Visits, units: int) -> Array:
    cells = len(visits.preset)
    writer = np.full(cells, NOBODY, np.int32)
    readers = np.full((cells, units), NOBODY, np.int32)
    conflicts = np.zeros(cells, np.bool_)
    _mark(visits, writer, np.zeros(cells, np.bool_), readers, conflicts)
    return conflicts


@compiled
def _mark(visits: Visits, writer: Array, written: Array, readers: Array, conflicts: Array) -> None:
    """Mark the cells in `conflicts` where an access may race with an earlier access, or read uninitialised data.

    For each cell, `writer` is the last step that wrote to the cell, `written` is True if all of its elements are
    certainly written, and `readers` [cells, units] is the last step of each unit that read the cell.
    """
    # It is enough to compare an access with the last write of its cell, and a write with the last read in each unit:
    # `hazards._access` has the reason.
    for position in range(visits.sequence.shape[0]):
        step = visits.sequence[position]
        for row in range(visits.start[visits.footprint[step]], visits.start[visits.footprint[step] + 1]):
            reads, writes = visits.reads[row], visits.writes[row]
            for cell in range(visits.begin[row], visits.end[row]):
                unread = reads and not visits.preset[cell] and not written[cell]
                if unread or _races(visits, writer, readers, step, cell, writes):
                    conflicts[cell] = True
                if writes:
                    writer[cell] = step
                if visits.surely[row]:
                    written[cell] = True
                if reads:
                    readers[cell, visits.unit[step]] = step


@part
def _races(visits: Visits, writer: Array, readers: Array, step: int, cell: int, writes: bool) -> bool:
    """Return whether an access may race with the last write of its cell, or a write with the last reads."""
    # The step's clock has, for each unit, the number of steps that certainly end before this step. An earlier access
    # is unordered if its rank in its unit is not below this number.
    last_writer = writer[cell]
    unit = visits.unit[step]
    if last_writer >= 0:
        writer_unit = visits.unit[last_writer]
        if writer_unit != unit and visits.clock[step, writer_unit] <= visits.rank[last_writer]:
            return True
    if writes:
        for reader_unit in range(readers.shape[1]):
            reader = readers[cell, reader_unit]
            if reader_unit != unit and reader >= 0 and visits.clock[step, reader_unit] <= visits.rank[reader]:
                return True
    return False


def _conflicts_by_sorting(visits: Visits, units: int) -> Array:
    """Return the same result as `_conflicts_by_loop`. For a few accesses, this is faster than loading the loop."""
    footprint_of = visits.footprint[visits.sequence]
    row, visit = numbers(visits.start[footprint_of], np.diff(visits.start)[footprint_of])
    begin = visits.begin[row]
    end = visits.end[row]
    cells = len(visits.preset)
    # Count the accesses of each cell by a running sum: each row adds 1 at its first cell and -1 after its last cell.
    accesses = np.cumsum(np.bincount(begin, minlength=cells) - np.bincount(end, minlength=cells))
    conflicts = np.zeros(cells, np.bool_)
    for low_cell, high_cell in pairwise(_blocks(accesses)):
        part = np.flatnonzero((begin < high_cell) & (end > low_cell))
        start = np.maximum(begin[part], low_cell)
        # The sort by cell is stable, so the accesses of a cell stay in visiting order. For integers of 16 bits, numpy's
        # stable sort is a radix sort; hence the small type.
        cell, access = numbers(start, np.minimum(end[part], high_cell) - start)
        by_cell = np.argsort((cell - low_cell).astype(np.min_scalar_type(high_cell - low_cell)), kind="stable")
        cell = cell[by_cell]
        access = part[access[by_cell]]
        bad = _possible(visits, units, cell, row[access], visits.sequence[visit[access]])
        conflicts[cell[bad]] = True
    return conflicts


def _blocks(accesses: Array) -> list[int]:
    """Return the cells at which blocks of about BLOCK accesses begin, and the number of cells."""
    total = np.cumsum(accesses)
    edges = np.searchsorted(total, np.arange(0, total[-1], BLOCK), "right").tolist()
    return sorted({0, *edges, len(accesses)})


def _possible(visits: Visits, units: int, cell: Array, row: Array, step: Array) -> Array:
    """Return whether each access may race with an earlier access, or read uninitialised data: bool [accesses].

    The accesses are sorted by cell, and the accesses to a cell are in visiting order. See `_mark`.
    """
    unit = visits.unit[step]
    writes = visits.writes[row]
    reads = visits.reads[row]
    last = _LastBefore(cell)
    possible: Array = reads & ~visits.preset[cell] & (last(visits.surely[row]) < 0)
    earlier = last(writes)
    writer_unit = unit[earlier]  # not used where `earlier` is -1 (no writer)
    possible |= (earlier >= 0) & (writer_unit != unit) & (visits.clock[step, writer_unit] <= visits.rank[step[earlier]])
    later = np.flatnonzero(writes)  # only a write races with earlier reads
    for reader in range(units):
        earlier = last(reads & (unit == reader))[later]
        races = (earlier >= 0) & (unit[later] != reader)
        races &= visits.clock[step[later], reader] <= visits.rank[step[earlier]]
        possible[later] |= races
    return possible


class _LastBefore:
    """Finds, for each access, the index of the previous access of a given kind to the same cell, or -1."""

    def __init__(self, cell: Array) -> None:
        self._at = np.arange(len(cell), dtype=np.int32)
        is_first = np.concatenate([[True], cell[1:] != cell[:-1]])
        self._first = np.maximum.accumulate(np.where(is_first, self._at, 0))  # for each access, its cell's first access

    def __call__(self, kind: Array) -> Array:
        # latest[i] is i - 1 if access i - 1 is of this kind. The running maximum is then the last such access before i.
        # Accesses before the first access of this cell are to another cell.
        latest = np.full(len(kind), -1, np.int32)
        np.copyto(latest[1:], self._at[:-1], where=kind[:-1])
        np.maximum.accumulate(latest, out=latest)
        latest[latest < self._first] = -1
        return latest
