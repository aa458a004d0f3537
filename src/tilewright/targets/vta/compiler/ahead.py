"""Loads moved to where the load unit has to wait, as the trace of a draft shows it.

Inputs that other layers store are loaded as soon as they are stored; weights and parameters of later layers, weights
in pieces too, while the unit waits.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.schedule import Range
from tilewright.sim.steps import Trace
from tilewright.targets.vta.compiler.emit import Draft
from tilewright.targets.vta.compiler.sequence import Load, Walk
from tilewright.targets.vta.compiler.work import Compute, LoadInputs, LoadParameters, LoadWeights

#: Weight tiles that are worth a load of their own.
PIECE = 4
#: Trace.cause of GEMM that waits for a load.
OF_LOADS = 2


class _Times(NamedTuple):
    """Of each item of work, int64 [work]: when it, or one before it, starts, and when it has ended.

    `reads`: when micro-ops are read, and how long that takes of the DRAM port.
    """

    starts: Array
    ends: Array
    reads: deque[tuple[int, int]]

    def free(self, load: Load) -> int:
        """When the last user of what a load overwrites has ended."""
        return int(self.ends[load.free - 1]) if load.free else 0

    def place(self, load: Load, at: int, cycle: int) -> int:
        """Where a load that starts in some cycle goes, `at` or behind: work is not to wait for what it waits for."""
        return max(at, min(max(load.first, int(np.searchsorted(self.starts, cycle))), load.need))


def by_time(walk: Walk, draft: Draft, trace: Trace) -> tuple[Walk, Draft]:
    """The same with the work in the order of its starts: a load has one place among the work of all units.

    Each unit's own order stays, and so does what depends on what: that has started later. A store starts with its first
    instruction, as loads may follow a part of it; a step with its last, as its micro-ops are loaded before it may run.
    """
    if walk.line.gemm == walk.line.alu:
        return walk, draft
    work = np.array(draft.listing.work)
    starts = np.zeros(len(work), np.int64)
    stores = draft.built.unit == walk.line.store
    np.maximum.at(starts, draft.item[~stores], trace.start[~stores])
    starts[draft.item[stores][::-1]] = trace.start[stores][::-1]
    mine = np.flatnonzero(work >= 0)
    order = work[mine[np.argsort(starts[mine], kind="stable")]]
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    users = [_user(walk, load) for load in walk.loads]
    other = copy(walk)
    other.work = [walk.work[index] for index in order.tolist()]
    loads = (
        load._replace(
            need=int(place[user]),
            free=int(place[load.free - 1]) + 1 if load.free else 0,
            stored=int(place[load.stored]) if load.stored >= 0 else -1,
        )
        for load, user in zip(walk.loads, users, strict=True)
    )
    other.loads = sorted(loads, key=lambda load: load.need)
    listed = replace(draft.listing, work=np.append(place, -1)[work].tolist())
    return other, replace(draft, listing=listed)


def _user(walk: Walk, load: Load) -> int:
    """The first item of work that uses what is loaded."""
    item = load.item
    assert isinstance(item, LoadInputs | LoadWeights | LoadParameters)
    for index in range(load.need, len(walk.work)):
        layer, work = walk.work[index]
        if layer == load.layer and isinstance(work, Compute):
            held = {LoadInputs: work.inp, LoadWeights: work.wgt, LoadParameters: work.par}
            if held[type(item)] == item.slot:
                return index
    raise AssertionError(f"nothing uses {load}")


def loads_ahead(walk: Walk, draft: Draft, trace: Trace, first: bool, reads: bool) -> list[Load]:
    """The loads of `walk` in a new order, as if work went on as in the trace of a draft, but did not wait for loads.

    `first`: it waits for the first of them. `reads`: the port is busy while micro-ops are read.
    """
    times = _times(walk, draft, trace, first)
    if not reads:
        times.reads.clear()
    left = dict(enumerate(walk.loads))
    queues = [
        deque(number for number, load in left.items() if isinstance(load.item, kind))
        for kind in (LoadParameters, LoadWeights)
    ]
    made: list[Load] = []
    now = at = 0
    for number, load in enumerate(walk.loads):
        if number not in left:
            continue
        ready = max(times.free(load), int(times.ends[load.stored]) if load.stored >= 0 else 0)
        while times.reads and times.reads[0][0] <= max(now, ready):
            now += times.reads.popleft()[1]
        for queue in queues:
            while queue and queue[0] <= number:
                queue.popleft()
        heads = [queue for queue in queues if queue]
        while heads:  # what can start first, and of that what is needed first
            queue = min(heads, key=lambda queue: (max(now, times.free(left[queue[0]])), queue[0]))
            moved = left[queue[0]]
            begin = max(now, times.free(moved))
            some, rest = _within(walk, moved, ready - begin) if moved.first <= load.need else (None, moved)
            if some:
                at = min(times.place(some, at, begin), load.need)
                made.append(some._replace(at=at))
                now = begin + walk.load_cycles(some)
                left[queue[0]] = rest or moved
                if not rest:
                    del left[queue.popleft()]
            if rest or not queue:
                heads.remove(queue)
        mine = left.pop(number)
        now = max(now, ready)
        at = times.place(mine, at, now)
        made.append(mine._replace(at=at))
        now += walk.load_cycles(mine)
    assert all(load.first <= load.at <= load.need for load in made), "a load lies where its data are not there"
    return made


def _times(walk: Walk, draft: Draft, trace: Trace, first: bool) -> _Times:
    """Those of a trace, less the waits for loads so far: some will go, and loads are not to come late for that."""
    items, work = draft.item, np.array(draft.listing.work)
    starts, ends, waits, read = np.zeros((4, len(work)), np.int64)
    starts[items[::-1]] = trace.start[::-1]  # of an item's first instruction
    np.maximum.at(ends, items, trace.end)
    np.add.at(read, items, trace.bytes_read)
    np.add.at(waits, items, trace.wait * (trace.cause == OF_LOADS))
    if first:
        waits[np.argmax(waits > 0)] = 0
    mine = np.flatnonzero(work >= 0)
    waited = np.cumsum(waits[mine])
    starts, ends, cycles = starts[mine] - waited, ends[mine] - waited, read[mine] // walk.port_bytes
    reads = deque((int(starts[item]), int(cycles[item])) for item in np.flatnonzero(cycles))
    sums = np.array([isinstance(draft.listing.items[item][1], Compute) for item in mine.tolist()])
    at = np.argsort(work[mine])
    starts = np.maximum.accumulate(np.where(sums, starts, 0)[at])
    return _Times(starts, ends[at], reads)


def _within(walk: Walk, load: Load, cycles: int) -> tuple[Load | None, Load | None]:
    """What of a load fits in some cycles, and what is left of it."""
    if walk.load_cycles(load) <= cycles:
        return load, None
    if not isinstance(load.item, LoadWeights):
        return None, load
    tiles = load.item.tiles
    count = min(int(cycles * tiles.size / walk.load_cycles(load)), tiles.size - 1)
    if count < PIECE:
        return None, load
    first = load.item._replace(tiles=Range(tiles.first, count))
    rest = load.item._replace(tiles=Range(tiles.first + count, tiles.size - count))
    return load._replace(item=first), load._replace(item=rest)
