"""Tune a chain of layers as a whole: reorder the loads of the chain, and try plans that are better in combination.

The timing trace of the chain's instructions shows where the load unit waits. Inputs that other layers store are loaded
as soon as possible after the store. Before such loads, the load unit loads weights (also in pieces) and parameters of
later layers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from itertools import cycle
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.schedule import Range
from tilewright.sim.steps import Trace
from tilewright.targets.vta.compiler.emit import Draft, TensorPlaces, draft
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.scores import trace_of
from tilewright.targets.vta.compiler.search import ranked_plans
from tilewright.targets.vta.compiler.sequence import Stage, WorkList, list_work, stream_order
from tilewright.targets.vta.compiler.work import LoadTiles, PlacedLoad, RunSteps, earliest_loads
from tilewright.targets.vta.config import Config

#: The values of `first` and `reads` with which _loads_ahead is tried. The most useful pair comes first.
WAYS = ((False, True), (True, True), (False, False), (True, False))
#: The search for an order ends after this number of tries without a gain.
ORDERS = 3
#: A program with more steps gets fewer orders and no other plans.
LONG = 4000
#: In a program with more steps, loads are only moved between runs of steps, not between any two steps.
FINE = 40_000
#: Up to this number of steps, a program with several layers also tries plans that keep more sums on chip.
SHORT = 1000
#: Budget of instructions to time in each search.
EFFORT = 20_000
#: The number of plans to try for a layer, and the number of layers without a gain after which the search for plans
#: ends.
TRIED = 6
LAYERS = 2
#: The number of waiting loads before which a late load is tried, starting with the closest.
NEAR = 3
#: Fractions of the chain's cycles: the minimum wait that justifies a try, and the minimum saving that counts as a gain.
WORTH = 0.006
GAIN = 0.0005
#: Minimum number of weight tiles in a separate load.
PIECE = 4
#: The value of Trace.cause that means a wait for a load (a token of queue 0).
OF_LOADS = 2


class TimedChain(NamedTuple):
    """A chain of layers with one order of its loads, and the timing trace of its instructions."""

    stages: tuple[Stage, ...]
    work_list: WorkList
    loads: list[PlacedLoad]
    draft: Draft
    trace: Trace

    @property
    def cycles(self) -> int:
        return self.trace.cycles

    @property
    def waits_much(self) -> bool:
        """Whether waits are long enough to try other orders of loads and other plans."""
        return sum(self.waits().values()) >= WORTH * self.cycles

    def waits(self) -> dict[Layer, int]:
        """For each canonical layer (Layer.canonical), return the total cycles that the busier compute unit waits."""
        layer = np.array([layer for layer, _ in self.draft.stream_order.items], np.int64)[self.draft.item]
        # With two compute units, the unit that waits less limits the chain.
        waits = min(
            (
                np.bincount(layer[mine], self.trace.wait[mine], minlength=len(self.stages))
                for mine in (
                    self.draft.linked.unit == unit for unit in {self.work_list.line.gemm, self.work_list.line.alu}
                )
            ),
            key=np.sum,
        )
        by_layer: dict[Layer, int] = {}
        for stage, cycles in zip(self.stages, waits.tolist(), strict=True):
            form = stage.plan.layer.canonical
            by_layer[form] = by_layer.get(form, 0) + int(cycles)
        return by_layer


def tuned(stages: tuple[Stage, ...], places: tuple[TensorPlaces, ...], config: Config, timing: str) -> TimedChain:
    """Return the fastest chain found; fixed plans stay. Raises HazardError if a full token queue causes a deadlock."""
    chain = _Tuner(places, config, timing)
    first = chain.timed(stages)
    best = chain.ordered(first)
    if first.work_list.steps <= LONG and (replanned := chain.planned(first)) is not first:
        best = min(best, chain.ordered(replanned), key=attrgetter("cycles"))
    return chain.swapped(best)


class _Tuner:
    """Times consecutive layers, whose tensors are at `places` in DRAM, under timing model `timing`."""

    def __init__(self, places: tuple[TensorPlaces, ...], config: Config, timing: str) -> None:
        self.places = places
        self.config = config
        self.timing = timing

    def _timed(self, stages: tuple[Stage, ...], work_list: WorkList, loads: list[PlacedLoad]) -> TimedChain:
        costs = None if work_list.by_step else work_list.costs
        chain_draft = draft(stages, self.places, stream_order(work_list, loads), self.config, costs)
        return TimedChain(stages, work_list, loads, chain_draft, trace_of(chain_draft, self.config, self.timing))

    def timed(self, stages: tuple[Stage, ...]) -> TimedChain:
        """Time a chain with loads as early as possible, and with loads moved ahead. Return the faster chain."""
        work_list = list_work(stages, self.config, self.timing, by_step=True)
        if work_list.steps > FINE:
            work_list = list_work(stages, self.config, self.timing)
        first = self._timed(stages, work_list, earliest_loads(work_list.loads))
        if not first.waits_much:
            return first
        return min(first, self.ahead(first, *WAYS[0]), key=attrgetter("cycles"))

    def _tried(self, chain: TimedChain, work_list: WorkList, loads: list[PlacedLoad]) -> TimedChain:
        try:
            return self._timed(chain.stages, work_list, loads)
        except HazardError:
            return chain

    def ahead(self, chain: TimedChain, first: bool, reads: bool) -> TimedChain:
        """Return the chain, timed with loads moved ahead (see _loads_ahead); unchanged if the new order deadlocks."""
        work_list, chain_draft = _by_time(chain.work_list, chain.draft, chain.trace)
        return self._tried(chain, work_list, _loads_ahead(work_list, chain_draft, chain.trace, first, reads))

    def ordered(self, best: TimedChain) -> TimedChain:
        """Return the chain with the best order of loads found. Each try moves loads, based on the best trace so far."""
        ways = cycle(WAYS)
        idle = 0
        while best.waits_much and idle < (ORDERS if best.work_list.steps <= LONG else 1):
            candidate = self.ahead(best, *next(ways))
            idle = 0 if candidate.cycles < best.cycles * (1 - GAIN) else idle + 1
            best = min(best, candidate, key=attrgetter("cycles"))
        return best

    def swapped(self, best: TimedChain) -> TimedChain:
        """Return the chain with late loads moved before loads that wait, one at a time, if this saves cycles."""
        left = EFFORT
        tried = set[tuple[PlacedLoad, PlacedLoad]]()
        while True:
            for ahead, of, loads in _swaps(best):
                if left <= 0:
                    return best
                # After a gain, _swaps starts again with the new chain and repeats swaps that did not help.
                if (ahead, of) in tried:
                    continue
                tried.add((ahead, of))
                candidate = self._tried(best, best.work_list, loads)
                left -= len(candidate.draft.item)
                if candidate.cycles < best.cycles:
                    best = candidate
                    break
            else:
                return best

    def planned(self, best: TimedChain) -> TimedChain:
        """Return the fastest chain found with other plans for the layers that wait most. Fixed plans stay."""
        left = EFFORT
        idle = 0
        open_ = {stage.plan.layer.canonical for stage in best.stages if not stage.fixed}
        while left > 0:
            # The layer that waits longest, among the layers with unchanged plans.
            waits = {layer: cycles for layer, cycles in best.waits().items() if layer in open_}
            layer = max(waits, key=waits.__getitem__, default=None)
            if layer is None or waits[layer] < WORTH * best.cycles:
                break
            open_.remove(layer)
            before = best.cycles
            ranking = ranked_plans(layer, self.config, self.timing)
            plans = ranking[:TRIED]
            if layer.planes > 1 and len(best.stages) > 1 and best.work_list.steps <= SHORT:
                # With more sums on chip, more work overlaps.
                plans += tuple(sorted(ranking, key=lambda plan: -plan.slots.acc * plan.slot_sizes().acc)[:TRIED])
            for plan in plans:
                stages = tuple(
                    stage._replace(plan=replace(plan, layer=stage.plan.layer))
                    if not stage.fixed and stage.plan.layer.canonical == layer
                    else stage
                    for stage in best.stages
                )
                if stages == best.stages:
                    continue
                try:
                    candidate = self.timed(stages)
                except HazardError:  # deadlock on a full token queue
                    continue
                left -= 2 * len(candidate.draft.item)
                best = min(best, candidate, key=attrgetter("cycles"))
            idle = idle + 1 if best.cycles > before * (1 - GAIN) else 0
            if idle == LAYERS:
                break
        return best


def _swaps(chain: TimedChain) -> Iterator[tuple[PlacedLoad, PlacedLoad, list[PlacedLoad]]]:
    """Yield a late load, an earlier load that waits, and all loads with the late load moved before the waiting load.

    The late loads are sorted by how long the compute unit waits for them, longest first.
    """
    work = np.array(chain.draft.stream_order.work)
    trace = chain.trace
    items = chain.draft.item
    loads = chain.loads
    # The waits of each load, and how long each item of work waits for a load.
    waits = np.bincount(items, trace.wait, minlength=len(work))[work < 0]
    late = np.bincount(items, trace.wait * (trace.cause == OF_LOADS), minlength=len(work))[work >= 0]
    for number in sorted(range(len(loads)), key=lambda number: -late[loads[number].need]):
        load = loads[number]
        # Loads are sorted by their wait, so no later load is worth a try.
        if late[load.need] < WORTH * chain.cycles:
            return
        blocked = [before for before in range(number) if waits[before] > 0 and load.first <= loads[before].at]
        for before in blocked[: -NEAR - 1 : -1]:
            moved = load._replace(at=loads[before].at)
            yield load, loads[before], [*loads[:before], moved, *loads[before:number], *loads[number + 1 :]]


class _Times(NamedTuple):
    """The start and end cycle of each work item, int64 [work]. `reads`: (start, cycles) of each micro-op load."""

    starts: Array
    ends: Array
    reads: deque[tuple[int, int]]

    def free(self, load: PlacedLoad) -> int:
        """Return the cycle in which the data overwritten by a load are no longer used."""
        return int(self.ends[load.free - 1]) if load.free else 0

    def stored(self, load: PlacedLoad) -> int:
        """Return the end cycle of the last store whose results a load reads."""
        return int(self.ends[load.stored]) if load.stored >= 0 else 0

    def place(self, load: PlacedLoad, at: int, cycle: int) -> int:
        """Return the closest legal index in `WorkList.work`, from `at` on, for a load that starts in `cycle`."""
        return max(at, min(max(load.first, int(np.searchsorted(self.starts, cycle))), load.need))


def _by_time(work_list: WorkList, draft: Draft, trace: Trace) -> tuple[WorkList, Draft]:
    """Return a work list and its draft with the work sorted by start cycle.

    After sorting, a position in the work stands for a time that is the same on all units. The order of each unit and
    all dependences stay, because an item starts after all items on which it depends.
    """
    if work_list.line.gemm == work_list.line.alu:  # with one compute unit, the work is already in order
        return work_list, draft
    work = np.array(draft.stream_order.work)
    starts = np.zeros(len(work), np.int64)
    # An item starts at its first step, store, or load of parameters. The item's micro-op loads and NOPs may come
    # earlier.
    firsts = np.flatnonzero((draft.step >= 0) | (draft.linked.unit == work_list.line.store))[::-1]
    starts[draft.item[firsts]] = trace.start[firsts]
    given = [
        index
        for index, (_, item) in enumerate(draft.stream_order.items)
        if isinstance(item, LoadTiles) and item.memory == "par"
    ]
    last = np.searchsorted(draft.item, given, side="right") - 1
    starts[given] = trace.start[last]
    mine = np.flatnonzero(work >= 0)
    order = work[mine[np.argsort(starts[mine], kind="stable")]]
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    users = [_user(work_list, load) for load in work_list.loads]
    reordered = copy(work_list)
    reordered.work = [work_list.work[index] for index in order.tolist()]
    loads = (
        load._replace(
            need=int(place[user]),
            free=int(place[load.free - 1]) + 1 if load.free else 0,
            stored=int(place[load.stored]) if load.stored >= 0 else -1,
        )
        for load, user in zip(work_list.loads, users, strict=True)
    )
    reordered.loads = sorted(loads, key=lambda load: load.need)
    listed = replace(draft.stream_order, work=np.append(place, -1)[work].tolist())
    return reordered, replace(draft, stream_order=listed)


def _user(work_list: WorkList, load: PlacedLoad) -> int:
    """Return the index in `WorkList.work` of the first item that uses the loaded data."""
    for index in range(load.need, len(work_list.work)):
        layer, work = work_list.work[index]
        uses = isinstance(work, RunSteps) and getattr(work, load.item.memory) == load.item.slot
        if layer == load.layer and uses:
            return index
    # No item uses the weights of a kernel row that only multiplies padding. The result is then the item after the load.
    return min(load.need, len(work_list.work) - 1)


def _loads_ahead(work_list: WorkList, draft: Draft, trace: Trace, first: bool, reads: bool) -> list[PlacedLoad]:
    """Return the loads in a new order, made for the times in `trace`, but with work that never waits for loads.

    The load unit runs loads in stream order. So a load that waits (for a free slot or for a store) delays all later
    loads. The new order fills such waits with loads of weights and parameters for later work. With `first`, the wait
    for the first load is kept. With `reads`, loads of micro-ops occupy the DRAM port.
    """
    times = _times(work_list, draft, trace, first, reads)
    left = dict(enumerate(work_list.loads))
    by_memory: dict[str, deque[int]] = {"par": deque(), "inp": deque(), "wgt": deque()}
    for number, load in left.items():
        by_memory[load.item.memory].append(number)
    queues = by_memory["par"], by_memory["wgt"]
    moved_loads: list[PlacedLoad] = []
    now = at = 0
    for number, load in enumerate(work_list.loads):
        if number not in left:
            continue
        # From cycle `ready` on, the load's slot is free and its inputs are in DRAM. Earlier micro-op loads use the port
        # first.
        ready = max(times.free(load), times.stored(load))
        while times.reads and times.reads[0][0] <= max(now, ready):
            now += times.reads.popleft()[1]
        for queue in queues:
            while queue and queue[0] <= number:
                queue.popleft()
        heads = [queue for queue in queues if queue]
        while heads:  # take the load that can start first (in a tie, the load needed first)
            queue = min(heads, key=lambda queue: (max(now, times.free(left[queue[0]])), queue[0]))
            moved = left[queue[0]]
            begin = max(now, times.free(moved))
            # Move a load only into the wait: split a load of weights that is longer than the wait.
            some, rest = _within(work_list, moved, ready - begin) if moved.first <= load.need else (None, moved)
            if some:
                at = min(times.place(some, at, begin), load.need)
                moved_loads.append(some._replace(at=at))
                now = begin + work_list.load_cycles(some.item)
                left[queue[0]] = rest or moved
                if not rest:
                    del left[queue.popleft()]
            if rest or not queue:
                heads.remove(queue)
        mine = left.pop(number)
        now = max(now, ready)
        at = times.place(mine, at, now)
        moved_loads.append(mine._replace(at=at))
        now += work_list.load_cycles(mine.item)
    assert all(load.first <= load.at <= load.need for load in moved_loads), "a load is placed too early or too late"
    return moved_loads


def _times(work_list: WorkList, draft: Draft, trace: Trace, first: bool, micro_ops: bool) -> _Times:
    """Return the start and end of each work item of a traced draft, as if no unit ever waited for a load."""
    items = draft.item
    work = np.array(draft.stream_order.work)
    starts, ends, waits, read = np.zeros((4, len(work)), np.int64)
    starts[items[::-1]] = trace.start[::-1]  # the start of an item's first instruction
    np.maximum.at(ends, items, trace.end)
    np.add.at(read, items, trace.bytes_read)
    np.add.at(waits, items, trace.wait * (trace.cause == OF_LOADS))
    if first:
        waits[np.argmax(waits > 0)] = 0
    mine = np.flatnonzero(work >= 0)
    waited = np.cumsum(waits[mine])
    # Without the waits for loads, each item starts earlier by the sum of the waits up to it.
    starts = starts[mine] - waited
    ends = ends[mine] - waited
    cycles = read[mine] // work_list.costs.beat
    reads = deque((int(starts[item]), int(cycles[item])) for item in np.flatnonzero(cycles * micro_ops))
    sums = np.array([isinstance(draft.stream_order.items[item][1], RunSteps) for item in mine.tolist()])
    at = np.argsort(work[mine])
    starts = np.maximum.accumulate(np.where(sums, starts, 0)[at])
    return _Times(starts, ends[at], reads)


def _within(work_list: WorkList, load: PlacedLoad, cycles: int) -> tuple[PlacedLoad | None, PlacedLoad | None]:
    """Split a load into a part of at most `cycles` cycles and the rest; None for an empty part."""
    if work_list.load_cycles(load.item) <= cycles:
        return load, None
    # Only loads of weights can be split, and only once.
    if load.item.memory != "wgt" or load.item.piece:
        return None, load
    tiles = load.item.tiles
    count = min(int(cycles * tiles.size / work_list.load_cycles(load.item)), tiles.size - 1)
    if count < PIECE:
        return None, load
    first = load.item.some(Range(tiles.first, count))
    rest = load.item.some(Range(tiles.first + count, tiles.size - count))
    return load._replace(item=first), load._replace(item=rest)
