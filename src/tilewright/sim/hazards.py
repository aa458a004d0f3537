"""Find races and uninitialised reads: check the accesses of a program against the happens-before relation.

A coarse pass comes first. It cuts every memory into cells, at the ends of the ranges that are certainly written, and
assumes that a step touches the whole of every cell that a row of its footprint reaches. This only adds accesses, so
every real conflict shows up in the cell of its elements; most programs have no conflict at all. Cells with a conflict
are cut once more, with each part of a footprint (such as a row of an image) taken separately.

The remaining ranges are scanned element by element. The steps are visited in one legal order with a shadow of every
element: its last writer, and its last reader in each unit. An access conflicts with an earlier one in another unit if
the vector clock does not order them. As happens-before is static, the findings do not depend on the visiting order
(FastTrack, PLDI 2009).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from tilewright.array import Array, numbers
from tilewright.sim.findings import OUT_OF_RANGE, RACE, UNINITIALISED, Finding
from tilewright.sim.jit import compiled
from tilewright.sim.order import Order
from tilewright.sim.steps import (
    BASE,
    COUNT,
    LENGTH,
    MODE,
    READ,
    SPACE,
    STRIDE,
    WRITE,
    Footprints,
    Space,
    StepTable,
    end_of,
    live,
)

#: Most cell accesses that the coarse pass sorts; past it, scanning everything is cheaper.
MAX_ACCESSES = 1 << 24
#: Accesses processed together: as many as stay in the caches.
BLOCK = 1 << 15
#: Most findings kept; a program with more needs no longer list.
MAX_EVENTS = 256
#: Microseconds that uncompiled _scan takes per element.
ELEMENT_US = 6
#: Ranges of one pair of steps that a message lists.
SHOWN = 3
#: States of an element without a writer: not written, filled by the host before the launch, not to be checked.
UNWRITTEN, PRESET, NOT_ASKED = -1, -2, -4


def everything(table: StepTable) -> Array:
    """Return all elements of all memories as ranges, int64 [k, 3]: index of the memory, low, high."""
    return np.array([(index, 0, space.size) for index, space in enumerate(table.spaces)], np.int64).reshape(-1, 3)


def suspects(table: StepTable, order: Order) -> Array:
    """Return the ranges where a race or uninitialised read is possible: int64 [k, 3], memory, low, high, ascending."""
    ranges = _suspects(table, order, everything(table))
    if len(ranges) and (parts := _in_parts(table.footprints, ranges)):
        ranges = _suspects(replace(table, footprints=parts), order, ranges)
    return ranges


def _suspects(table: StepTable, order: Order, ranges: Array) -> Array:
    """Return the cells (pieces of memories) inside some ranges where a race or uninitialised read is possible.

    The result has the form of `suspects`. Rows of footprints that do not touch the ranges may be missing.
    """
    rows, live = table.footprints.rows, table.footprints.live
    offset = np.array([0, *accumulate(space.size for space in table.spaces)])  # the memories are concatenated
    at = offset[rows[:, SPACE]]
    low, high = rows[:, BASE] + at, table.footprints.end + at
    asked = ranges[:, 1:] + offset[ranges[:, 0], None]
    # Rows that certainly write everything between their ends. An update (READ and WRITE) does not count as a first
    # write: its element is either written before, or the update itself is an uninitialised read.
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
    row, visit = numbers(table.footprints.start[mine], np.diff(table.footprints.start)[mine])
    row, visit = row[live[row]], visit[live[row]]
    begin, end = first[row] - 1, last[row]
    many = np.cumsum(np.bincount(begin, minlength=len(cuts)) - np.bincount(end, minlength=len(cuts)))  # per cell
    if int(many.sum()) > MAX_ACCESSES:
        return ranges
    preset, asked_for = _covered(cuts, filled), _covered(cuts, asked.reshape(-1))
    found = []
    for low_cell, high_cell in pairwise(_blocks(many)):
        part = np.flatnonzero((begin < high_cell) & (end > low_cell))
        start = np.maximum(begin[part], low_cell)
        cell, access = numbers(start, np.minimum(end[part], high_cell) - start)
        by_cell = np.argsort((cell - low_cell).astype(np.min_scalar_type(high_cell - low_cell)), kind="stable")
        cell, access = cell[by_cell], part[access[by_cell]]
        mine, step = row[access], order.sequence[visit[access]]
        bad = _possible(table, order, cell, step, rows[mine, MODE], surely[mine], preset[cell])
        found.append(np.unique(cell[bad & asked_for[cell]]))
    cells = np.concatenate([np.zeros(0, np.int64), *found])
    space = np.searchsorted(offset, cuts[cells], "right") - 1
    return np.stack([space, cuts[cells] - offset[space], cuts[cells + 1] - offset[space]], axis=1)


def _blocks(many: Array) -> list[int]:
    """Return the indices that split a list of cells into blocks of about BLOCK accesses; cell i has `many[i]`."""
    total = np.cumsum(many)
    edges = np.searchsorted(total, np.arange(0, total[-1], BLOCK), "right").tolist()
    return sorted({0, *edges, len(many)})


def _covered(cuts: Array, ranges: Array) -> Array:
    """Return, for each cut, whether the cell that starts there lies in a range (bool). Ranges start and end at cuts."""
    inside = np.zeros(len(cuts), np.bool_)
    for a, b in np.searchsorted(cuts, ranges).reshape(-1, 2).tolist():
        inside[a:b] = True
    return inside


def _in_parts(footprints: Footprints, ranges: Array) -> Footprints | None:
    """Return the footprint rows that reach into some ranges, split into rows without gaps (each with a count of 1).

    None if no row has a count above 1, or if there would be more than MAX_ACCESSES rows.
    """
    rows = footprints.rows
    live = footprints.live & reach(footprints, ranges)
    count = np.where(live, rows[:, COUNT], 0)
    total = int(count.sum())
    if not (count > 1).any() or total > MAX_ACCESSES:
        return None
    part, row = numbers(np.zeros(len(rows), np.int64), count)
    parts = rows[row]
    parts[:, BASE] += part * parts[:, STRIDE]
    parts[:, COUNT], parts[:, STRIDE] = 1, 0
    return Footprints(parts, np.concatenate([[0], np.cumsum(count)])[footprints.start])


def reach(footprints: Footprints, ranges: Array) -> Array:
    """Return, for each footprint row, whether the span between its ends reaches into one of the ranges: bool [r]."""
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
    """Return, for each access, whether it may race with an earlier one, or read uninitialised data: bool [accesses].

    The accesses are sorted by cell and then in visiting order. An access can race with the last write of its cell; a
    write can also race with the cell's last read in each unit.
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
    """Finds, for each access, the index of the last earlier access of a given kind to the same cell, or -1."""

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


def hazards(table: StepTable, order: Order) -> list[Finding]:
    """Return races and uninitialised reads of the steps that can run. `out_of_range` must have found nothing."""
    ranges = suspects(table, order)
    return scan(table, order, ranges) if len(ranges) else []


def scan(table: StepTable, order: Order, ranges: Array) -> list[Finding]:
    """Return the hazards in some ranges (int64 [k, 3]: memory, low, high, ascending), found element by element."""
    footprints = _inside(table.footprints, ranges)
    rows = footprints.rows
    low, offset, total = _windows(table, rows, ranges)
    written = np.full(total, NOT_ASKED, np.int32)
    for index, space in enumerate(table.spaces):
        shadow = written[offset[index] : offset[index + 1]]
        for a, b in (ranges[ranges[:, 0] == index, 1:] - low[index]).clip(0).tolist():
            shadow[a:b] = UNWRITTEN
        for a, b in space.initialised:
            part = shadow[max(a - low[index], 0) : max(b - low[index], 0)]
            part[part == UNWRITTEN] = PRESET
    elements = np.concatenate([[0], np.cumsum(rows[:, LENGTH] * rows[:, COUNT])])[footprints.start]
    touched = int(np.diff(elements)[table.footprint[order.sequence]].sum())
    events = np.zeros((MAX_EVENTS, 5), np.int64)
    count = _scan.of(ELEMENT_US * touched)(
        order.sequence,
        table.unit,
        order.rank,
        order.clock,
        table.footprint,
        rows,
        footprints.start,
        low,
        offset,
        written,
        np.full((total, len(table.units)), UNWRITTEN, np.int32),
        events,
    )
    found: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for first, second, space_index, a, b in events[:count].tolist():
        found.setdefault((first, second, space_index), []).append((a, b))
    return [finding(table, pair, sorted(parts)) for pair, parts in found.items()]


def out_of_range(table: StepTable) -> list[Finding]:
    """Return a finding for each access below element 0 or past the end of a memory, at most MAX_EVENTS."""
    footprints = table.footprints
    size = np.array([space.size for space in table.spaces], np.int64)
    rows = footprints.rows
    outside = footprints.live & ((footprints.end > size[rows[:, SPACE]]) | (rows[:, BASE] < 0))
    findings: list[Finding] = []
    for footprint in np.unique(footprints.owner()[outside]).tolist() if outside.any() else ():
        step = int(np.flatnonzero(table.footprint == footprint)[0])
        rows = footprints.of_step(footprint)
        rows = rows[live(rows) & ((end_of(rows) > size[rows[:, SPACE]]) | (rows[:, BASE] < 0))]
        rows = rows[: MAX_EVENTS - len(findings)]  # one instruction may leave its memory in 100,000 places
        for row, high in zip(rows, end_of(rows).tolist(), strict=True):
            space, low = table.spaces[row[SPACE]], int(row[BASE])
            verb = "writes" if row[MODE] & WRITE else "reads"
            what = f"#{step} {table.describe(step)} {verb} {space.name}[{low}:{high}]"
            message = f"{what}; {space.name} has {space.size} elements"
            findings.append(Finding(OUT_OF_RANGE, message, (step,), space.name, low, high))
        if len(findings) >= MAX_EVENTS:
            break
    return sorted(findings, key=lambda finding: finding.steps)


def _inside(footprints: Footprints, ranges: Array) -> Footprints:
    """Return the footprints with exact rows; footprints that do not reach into the ranges become empty."""
    involved = set(footprints.owner()[reach(footprints, ranges)].tolist())
    nothing = np.zeros((0, 6), np.int64)
    return Footprints.of([footprints.of_step(f) if f in involved else nothing for f in range(len(footprints))])


def _windows(table: StepTable, rows: Array, ranges: Array) -> tuple[Array, Array, int]:
    """Return, by memory, the first element that needs a shadow and its index in the shadow; also the shadow's size.

    An element that the host has filled and no step writes cannot race, and is always initialised: it needs no shadow.
    """
    low = np.zeros(len(table.spaces), np.int64)
    size = np.zeros(len(table.spaces), np.int64)
    for index, space in enumerate(table.spaces):
        parts = ranges[ranges[:, 0] == index]
        mine = rows[(rows[:, SPACE] == index) & live(rows)]
        mine = mine[((mine[:, MODE] & WRITE) > 0) | ~_filled(space, mine)]
        if len(parts) and len(mine):
            low[index] = max(int(parts[:, 1].min()), int(mine[:, BASE].min()))
            size[index] = max(0, min(int(parts[:, 2].max()), int(end_of(mine).max())) - low[index])
    offset = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    return low, offset, int(offset[-1])


def _filled(space: Space, rows: Array) -> Array:
    """Return, for each footprint row, whether it lies inside one range that the host has initialised."""
    ranges = np.array([(-1, -1), *sorted(space.initialised)], np.int64)
    home = ranges[np.searchsorted(ranges[:, 0], rows[:, BASE], side="right") - 1]
    return end_of(rows) <= home[:, 1]


@compiled
def _scan(
    sequence: Array,
    unit: Array,
    rank: Array,
    clock: Array,
    footprint: Array,
    rows: Array,
    start: Array,
    low: Array,
    offset: Array,
    written: Array,
    read: Array,
    events: Array,
) -> int:
    """Write conflicts to `events` (first step or UNWRITTEN, second step, memory, low, high), and return their number.

    The two steps of a conflict are in visiting order.
    """
    units, limit = read.shape[1], events.shape[0]
    count = 0
    for position in range(sequence.shape[0]):
        step = sequence[position]
        me = unit[step]
        for row in range(start[footprint[step]], start[footprint[step] + 1]):
            space = rows[row, 0]
            mode = rows[row, 1]
            size = offset[space + 1] - offset[space]
            for k in range(rows[row, 4]):
                first = rows[row, 2] + k * rows[row, 5] - low[space]
                for element in range(max(first, 0), min(first + rows[row, 3], size)):
                    at = offset[space] + element
                    writer = written[at]
                    other = -3
                    if writer >= 0:
                        if unit[writer] != me and clock[step, unit[writer]] <= rank[writer]:
                            other = writer
                    elif writer == -1 and mode & 1:
                        other = -1
                    if mode & 1 and writer == -1:
                        written[at] = -2  # an unwritten element is reported once
                    if mode & 2:
                        for v in range(units):
                            reader = read[at, v]
                            if v != me and reader >= 0 and clock[step, v] <= rank[reader]:
                                other = reader
                        written[at] = step
                    if mode & 1:
                        read[at, me] = step
                    if other > -3:
                        where = element + low[space]
                        last = count - 1
                        if (
                            count > 0
                            and events[last, 0] == other
                            and events[last, 1] == step
                            and events[last, 2] == space
                            and events[last, 4] == where
                        ):
                            events[last, 4] = where + 1
                        elif count < limit:
                            events[count, 0] = other
                            events[count, 1] = step
                            events[count, 2] = space
                            events[count, 3] = where
                            events[count, 4] = where + 1
                            count += 1
    return count


def finding(table: StepTable, pair: tuple[int, int, int], ranges: list[tuple[int, int]]) -> Finding:
    """Return the finding for a conflict in some ranges of a memory.

    `pair` is (first step, or UNWRITTEN for an uninitialised read; second step; index of the memory).
    """
    first, second, index = pair
    space, low, high = table.spaces[index].name, ranges[0][0], max(b for _, b in ranges)
    later = f"#{second} {table.describe(second)}"
    where = ", ".join(f"{space}[{a}:{b}]" for a, b in ranges[:SHOWN])
    where += f" and {len(ranges) - SHOWN} more ranges" if len(ranges) > SHOWN else ""
    if first == UNWRITTEN:
        message = f"{later} reads {where}, which nothing has written"
        return Finding(UNINITIALISED, message, (second,), space, low, high, ranges=tuple(ranges))
    a, b = int(table.unit[first]), int(table.unit[second])
    message = (
        f"#{first} {table.describe(first)} and {later} both touch {where} "
        f"({mode_at(table.footprints, table.footprint[first], index, low)} and "
        f"{mode_at(table.footprints, table.footprint[second], index, low)}) in no order; "
        + missing_token(table, first, second, a, b)
    )
    return Finding(RACE, message, (first, second), space, low, high, ranges=tuple(ranges))


def mode_at(footprints: Footprints, footprint: int, space: int, element: int) -> str:
    """Return how a footprint touches one element: "read", "write", "update", or "touch" if its rows do not tell."""
    mode = 0
    for row in footprints.of_step(int(footprint)):
        inside = (element - row[BASE]) % row[STRIDE] if row[STRIDE] and row[COUNT] > 1 else element - row[BASE]
        last = row[BASE] + (row[COUNT] - 1) * row[STRIDE] + row[LENGTH]
        if row[SPACE] == space and row[BASE] <= element < last and 0 <= inside < row[LENGTH]:
            mode |= int(row[MODE])
    return {1: "read", 2: "write", 3: "update"}.get(mode, "touch")


def missing_token(table: StepTable, first: int, second: int, a: int, b: int) -> str:
    """Return the sentence that names the missing token: from unit `a` of the first step to unit `b` of the second.

    The shortest path of token queues between the units may lead through other units.
    """
    paths = {a: [a]}
    frontier = [a]
    while frontier and b not in paths:
        u = frontier.pop(0)
        for queue in table.queues:
            if queue.producer == u and queue.consumer not in paths:
                paths[queue.consumer] = [*paths[u], queue.consumer]
                frontier.append(queue.consumer)
    names = "->".join(table.units[u] for u in paths.get(b, [a, b]))
    return f"a {names} token pushed by #{first} or later and popped by #{second} or earlier is missing"
