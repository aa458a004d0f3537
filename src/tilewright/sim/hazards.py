"""Races, and uninitialised reads: what a program touches against the happens-before relation.

Bounds first: every memory is cut into cells at the ends of what is certainly written, and each step is taken to touch
all of every cell that a row of its footprint reaches into. What is touched only grows, so the conflicts of such a
program include those of the real one, each in the cell where its elements are: mostly there are none. Cells with a
conflict are cut once more, with what steps touch in parts (rows of an image, say) taken part by part.

What is left is scanned element by element: the steps are visited in one legal order with a shadow of every element,
who wrote it last, who read it last in each unit. A touch conflicts when the earlier one, in another unit, is not before
it by the vector clock. As happens-before is static, what is found does not depend on the order visited (FastTrack,
PLDI 2009).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from tilewright.array import Array
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

#: Accesses of cells that are sorted; beyond it, a scan of everything is cheaper.
MAX_ACCESSES = 1 << 24
#: Accesses that are looked at together: as many as stay in the caches.
BLOCK = 1 << 15
#: Findings kept; a program this broken needs no longer list.
MAX_EVENTS = 256
#: Microseconds of _scan for each element, uncompiled.
ELEMENT_US = 6
#: Ranges of one pair that a message spells out.
SHOWN = 3
UNWRITTEN, PRESET, NOT_ASKED = -1, -2, -4


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


def hazards(table: StepTable, order: Order) -> list[Finding]:
    """Races and uninitialised reads of the steps that can run, in stream order; `out_of_range` must be empty."""
    ranges = suspects(table, order)
    return scan(table, order, ranges) if len(ranges) else []


def scan(table: StepTable, order: Order, ranges: Array) -> list[Finding]:
    """The hazards in some ranges of the memories (int64 [k, 3]: space, low, high, ascending), element by element."""
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
    events, count = _scan.of(ELEMENT_US * touched)(
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
        MAX_EVENTS,
    )
    found: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for first, second, space_index, a, b in events[:count].tolist():
        found.setdefault((first, second, space_index), []).append((a, b))
    return [finding(table, pair, sorted(parts)) for pair, parts in found.items()]


def out_of_range(table: StepTable) -> list[Finding]:
    """Steps that touch an element below 0 or beyond the end of a memory."""
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
    """The same footprints, exact; empty where they touch none of the ranges."""
    involved = set(footprints.owner()[reach(footprints, ranges)].tolist())
    nothing = np.zeros((0, 6), np.int64)
    return Footprints.of([footprints.of_step(f) if f in involved else nothing for f in range(len(footprints))])


def _windows(table: StepTable, rows: Array, ranges: Array) -> tuple[Array, Array, int]:
    """The part of each memory that gets a shadow: the lowest element of each, and where its shadow begins.

    Elements that nobody writes and the host has filled can neither race nor be unwritten.
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
    """Whether the host has filled all that each row spans: inside one initialised range."""
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
    limit: int,
) -> tuple[Array, int]:
    """Events (first step or UNWRITTEN, second step, space, low, high): first and second conflict, in visiting order."""
    units = read.shape[1]
    events = np.zeros((limit, 5), np.int64)
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
    return events, count


def finding(table: StepTable, pair: tuple[int, int, int], ranges: list[tuple[int, int]]) -> Finding:
    """What two steps (or UNWRITTEN and one) do in some ranges of a memory; `pair` ends with the memory's number."""
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
    """How a footprint touches one element: read, write or update."""
    mode = 0
    for row in footprints.of_step(int(footprint)):
        inside = (element - row[BASE]) % row[STRIDE] if row[STRIDE] and row[COUNT] > 1 else element - row[BASE]
        last = row[BASE] + (row[COUNT] - 1) * row[STRIDE] + row[LENGTH]
        if row[SPACE] == space and row[BASE] <= element < last and 0 <= inside < row[LENGTH]:
            mode |= int(row[MODE])
    return {1: "read", 2: "write", 3: "update"}.get(mode, "touch")


def missing_token(table: StepTable, first: int, second: int, a: int, b: int) -> str:
    """What would order two steps: a token from the first one's unit to the second one's, maybe by way of others."""
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
