"""Find races and uninitialised reads: check the accesses of a program against the happens-before relation.

A coarse pass (see suspects) finds the ranges where a conflict is possible. These ranges are scanned element by element.
The scan visits the steps in one legal order. Every element has a shadow: its last writer, and its last reader in each
unit. Two accesses from different units conflict if one of them is a write and the vector clocks do not order them. As
happens-before is static, the findings do not depend on the visiting order (FastTrack, PLDI 2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, ascending
from tilewright.sim.findings import OUT_OF_RANGE, RACE, UNINITIALISED, Finding
from tilewright.sim.jit import compiled, part
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
from tilewright.sim.suspects import reach, suspects

#: The largest number of findings in a list.
MAX_EVENTS = 256
#: Microseconds that uncompiled _scan takes per element.
ELEMENT_US = 6
#: The largest number of ranges that a message lists for one pair of steps.
SHOWN = 3
#: The state of an element that no step has written.
UNWRITTEN = -1
PRESET = -2  # filled by the host before the launch
NOT_CHECKED = -4  # outside of the scanned ranges
#: The result of `_access` if there is no conflict.
NO_CONFLICT = -3


def hazards(table: StepTable, order: Order) -> list[Finding]:
    """Return the races and uninitialised reads of the steps that can run. All accesses must be in range."""
    ranges = suspects(table, order)
    return scan(table, order, ranges) if len(ranges) else []


def scan(table: StepTable, order: Order, ranges: Array) -> list[Finding]:
    """Return the hazards in some ranges (int64 [k, 3]: memory, low, high, ascending), checked element by element."""
    footprints = _inside(table.footprints, ranges)
    rows = footprints.rows
    low, offset, total = _windows(table, rows, ranges)
    # The initial state is UNWRITTEN inside the ranges, or PRESET where the host has filled the memory.
    written = np.full(total, NOT_CHECKED, np.int32)
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
    shadows = Shadows(low, offset, written, np.full((total, len(table.units)), UNWRITTEN, np.int32))
    steps = Accesses(order.sequence, table.unit, order.rank, order.clock, table.footprint, rows, footprints.start)
    count = _scan.of(ELEMENT_US * touched)(steps, shadows, events)
    ranges_of: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for first, second, space_index, a, b in events[:count].tolist():
        ranges_of.setdefault((first, second, space_index), []).append((a, b))
    memory_of = _undefined_steps(table, order, ranges_of)
    findings = [finding(table, pair, sorted(parts)) for pair, parts in ranges_of.items()]
    return [
        replace(hazard, undefined_by=next((memory_of[step] for step in hazard.steps if step in memory_of), ""))
        for hazard in findings
    ]


def _undefined_steps(
    table: StepTable, order: Order, ranges_of: Mapping[tuple[int, int, int], Sequence[tuple[int, int]]]
) -> dict[int, str]:
    # The scan reports only the first read of an uninitialised element. Here, all steps that read the element before its
    # first write are wanted, because their footprints are not known (Space.decides).
    position = np.zeros(len(table), np.int64)
    memory_of = dict[int, str]()
    position[order.sequence] = np.arange(len(order.sequence))
    footprints = table.footprints
    owner = table.footprints.owner()
    for (first, _, space), ranges in ranges_of.items():
        if first != UNWRITTEN or not table.spaces[space].decides:
            continue
        for low, high in ranges:
            rows = reach(footprints, np.array([[space, low, high]]))
            reads, writes = (
                np.isin(table.footprint, owner[rows & ((footprints.rows[:, MODE] & mode) > 0)])
                for mode in (READ, WRITE)
            )
            until = position[writes].min(initial=len(table))
            memory_of |= dict.fromkeys(np.flatnonzero(reads & (position < until)).tolist(), table.spaces[space].name)
    return memory_of


def out_of_range(table: StepTable) -> list[Finding]:
    """Return a finding for each access below element 0 or past the end of a memory, at most MAX_EVENTS."""
    footprints = table.footprints
    size = np.array([space.size for space in table.spaces], np.int64)
    rows = footprints.rows
    outside = footprints.live & ((footprints.end > size[rows[:, SPACE]]) | (rows[:, BASE] < 0))
    findings: list[Finding] = []
    for footprint in ascending(footprints.owner()[outside]).tolist() if outside.any() else ():
        step = int(np.flatnonzero(table.footprint == footprint)[0])
        rows = footprints.of_step(footprint)
        rows = rows[live(rows) & ((end_of(rows) > size[rows[:, SPACE]]) | (rows[:, BASE] < 0))]
        rows = rows[: MAX_EVENTS - len(findings)]  # one instruction may access 100,000 rows outside of its memory
        for row, high in zip(rows, end_of(rows).tolist(), strict=True):
            space = table.spaces[row[SPACE]]
            low = int(row[BASE])
            verb = "writes" if row[MODE] & WRITE else "reads"
            what = f"#{step} {table.describe(step)} {verb} {space.name}[{low}:{high}]"
            message = f"{what}; {space.name} has {space.size} elements"
            findings.append(Finding(OUT_OF_RANGE, message, (step,), space.name, low, high))
        if len(findings) >= MAX_EVENTS:
            break
    return sorted(findings, key=lambda finding: finding.steps)


def _inside(footprints: Footprints, ranges: Array) -> Footprints:
    involved = set(footprints.owner()[reach(footprints, ranges)].tolist())
    nothing = np.zeros((0, 6), np.int64)
    return Footprints.of([footprints.of_step(f) if f in involved else nothing for f in range(len(footprints))])


def _windows(table: StepTable, rows: Array, ranges: Array) -> tuple[Array, Array, int]:
    """Return `low` and `offset` of the Shadows, and the number of shadows.

    An element needs no shadow if the host has filled it and no step writes it: it cannot race, and is initialised.
    """
    low = np.zeros(len(table.spaces), np.int64)
    size = np.zeros(len(table.spaces), np.int64)
    for index, space in enumerate(table.spaces):
        parts = ranges[ranges[:, 0] == index]
        needed = rows[(rows[:, SPACE] == index) & live(rows)]
        needed = needed[((needed[:, MODE] & WRITE) > 0) | ~_filled(space, needed)]
        if len(parts) and len(needed):
            low[index] = max(int(parts[:, 1].min()), int(needed[:, BASE].min()))
            size[index] = max(0, min(int(parts[:, 2].max()), int(end_of(needed).max())) - low[index])
    offset = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    return low, offset, int(offset[-1])


def _filled(space: Space, rows: Array) -> Array:
    # The first range is empty: it is the home of rows that begin before all initialised ranges.
    ranges = np.array([(-1, -1), *sorted(space.initialised)], np.int64)
    home = ranges[np.searchsorted(ranges[:, 0], rows[:, BASE], side="right") - 1]
    return end_of(rows) <= home[:, 1]


class Shadows(NamedTuple):
    """The shadows of all memories in one vector: the last accesses to each element.

    The shadows of memory m are `offset[m]`..`offset[m + 1] - 1`; the first of these belongs to element `low[m]`. For
    each element, `written` is its last writer, or one of the states such as UNWRITTEN; `read` [elements, units] is its
    last reader in each unit.
    """

    low: Array
    offset: Array
    written: Array
    read: Array


class Accesses(NamedTuple):
    """The steps in visiting order, with columns of Order and StepTable, and the exact rows of their footprints."""

    sequence: Array
    unit: Array
    rank: Array
    clock: Array
    footprint: Array
    rows: Array
    start: Array


@compiled
def _scan(steps: Accesses, shadows: Shadows, events: Array) -> int:
    """Write conflicts to `events` (first step or UNWRITTEN, second step, memory, low, high), and return their number.

    The two steps of a conflict are in visiting order.
    """
    rows = steps.rows
    low = shadows.low
    offset = shadows.offset
    count = 0
    for position in range(steps.sequence.shape[0]):
        step = steps.sequence[position]
        for row in range(steps.start[steps.footprint[step]], steps.start[steps.footprint[step] + 1]):
            space = rows[row, SPACE]
            size = offset[space + 1] - offset[space]
            for k in range(rows[row, COUNT]):
                first = rows[row, BASE] + k * rows[row, STRIDE] - low[space]
                for element in range(max(first, 0), min(first + rows[row, LENGTH], size)):
                    earlier = _access(steps, shadows, step, rows[row, MODE], offset[space] + element)
                    count = _record(events, count, earlier, step, space, element + low[space])
    return count


@part
def _access(steps: Accesses, shadows: Shadows, step: int, mode: int, at: int) -> int:
    """Record an access to the element `at`, and return the earlier step that conflicts with this access.

    The result is UNWRITTEN for the read of an uninitialised element, and NO_CONFLICT if no earlier access conflicts.
    """
    # The steps of unit v with a rank below clock[step, v] certainly end before the step. It is enough to compare the
    # access with the last writer, and with the last reader of each unit. All earlier readers of the unit precede its
    # last reader. All earlier writers were compared with the next writer, so their conflicts are already recorded.
    unit = steps.unit
    rank = steps.rank
    clock = steps.clock
    written = shadows.written
    read = shadows.read
    me = unit[step]
    writer = written[at]
    conflict = NO_CONFLICT
    if writer >= 0:
        if unit[writer] != me and clock[step, unit[writer]] <= rank[writer]:
            conflict = writer
    elif writer == UNWRITTEN and mode & READ:
        conflict = UNWRITTEN
        written[at] = PRESET  # an unwritten element is reported once
    if mode & WRITE:
        for v in range(read.shape[1]):
            reader = read[at, v]
            if v != me and reader >= 0 and clock[step, v] <= rank[reader]:
                conflict = reader
        written[at] = step
    if mode & READ:
        read[at, me] = step
    return conflict


@part
def _record(events: Array, count: int, first: int, step: int, space: int, where: int) -> int:
    """Add a conflict at element `where`, and return the new number of events.

    If the same conflict ends at element `where` - 1, its range is extended. If `events` is full, nothing is added.
    """
    if first == NO_CONFLICT:
        return count
    last = count - 1
    same = count > 0 and events[last, 0] == first and events[last, 1] == step and events[last, 2] == space
    if same and events[last, 4] == where:
        events[last, 4] = where + 1
    elif count < events.shape[0]:
        events[count, 0] = first
        events[count, 1] = step
        events[count, 2] = space
        events[count, 3] = where
        events[count, 4] = where + 1
        return count + 1
    return count


def finding(table: StepTable, pair: tuple[int, int, int], ranges: list[tuple[int, int]]) -> Finding:
    """Return the finding for a conflict in some ranges of a memory.

    `pair` has the first step (UNWRITTEN for an uninitialised read), the second step, and the index of the memory.
    """
    first, second, index = pair
    space = table.spaces[index].name
    low = ranges[0][0]
    high = max(b for _, b in ranges)
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
        + missing_token(first, second, path := token_path(table, a, b))
    )
    return Finding(RACE, message, (first, second), space, low, high, path, ranges=tuple(ranges))


def mode_at(footprints: Footprints, footprint: int, space: int, element: int) -> str:
    """Return the verb for a step's access to one element: "read", "write", "update"; "touch" if it is not known."""
    mode = 0
    for row in footprints.of_step(int(footprint)):
        inside = (element - row[BASE]) % row[STRIDE] if row[STRIDE] and row[COUNT] > 1 else element - row[BASE]
        last = row[BASE] + (row[COUNT] - 1) * row[STRIDE] + row[LENGTH]
        if row[SPACE] == space and row[BASE] <= element < last and 0 <= inside < row[LENGTH]:
            mode |= int(row[MODE])
    return {1: "read", 2: "write", 3: "update"}.get(mode, "touch")


def missing_token(first: int, second: int, path: str) -> str:
    return f"a {path} token pushed by #{first} or later and popped by #{second} or earlier is missing"


def token_path(table: StepTable, a: int, b: int) -> str:
    """Return the shortest path of token queues from unit `a` to unit `b` as text; it may lead through other units."""
    # A breadth-first search over the units.
    paths = {a: [a]}
    frontier = [a]
    while frontier and b not in paths:
        u = frontier.pop(0)
        for queue in table.queues:
            if queue.producer == u and queue.consumer not in paths:
                paths[queue.consumer] = [*paths[u], queue.consumer]
                frontier.append(queue.consumer)
    return "->".join(table.units[u] for u in paths.get(b, [a, b]))
