"""A chain of layers timed as a whole: the order of its loads, and plans that are better beside their neighbours'."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import NamedTuple

import numpy as np

from tilewright.sim.steps import Trace
from tilewright.targets.vta.compiler.ahead import OF_LOADS, by_time, loads_ahead
from tilewright.targets.vta.compiler.emit import Draft, Names, draft
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.search import ranked
from tilewright.targets.vta.compiler.sequence import Load, Stage, Walk, early, listing, walked
from tilewright.targets.vta.compiler.timed import trace
from tilewright.targets.vta.config import Config

#: Ways of moving loads ahead, in the order of their worth (see loads_ahead), and how many are tried without a gain.
WAYS, ORDERS = ((False, True), (True, True), (False, False), (True, False)), 3
#: Steps of a program of which one order is enough; of one whose loads may go between any two steps.
LONG, FINE = 4000, 40_000
#: Instructions that are timed to choose between plans, the plans of a layer that are tried, and layers without a gain.
EFFORT, TRIED, LAYERS = 20_000, 6, 2
#: Loads that wait, of those closest before a late one, ahead of which it is tried.
NEAR = 3
#: As parts of the chain's cycles: the waits of a layer that are worth a try, and what is a gain.
WORTH, GAIN = 0.006, 0.0005


class Timed(NamedTuple):
    """A chain in some order, and when its instructions run."""

    stages: tuple[Stage, ...]
    walk: Walk
    loads: list[Load]
    draft: Draft
    trace: Trace

    @property
    def cycles(self) -> int:
        return self.trace.cycles

    @property
    def waits_much(self) -> bool:
        """Whether another order of loads, or other plans, are worth trying."""
        return sum(self.waits().values()) >= WORTH * self.cycles

    def waits(self) -> dict[Layer, int]:
        """Cycles that the busier of the compute units waits, by layer; equal ones together."""
        layer = np.array([layer for layer, _ in self.draft.listing.items], np.int64)[self.draft.item]
        waits = min(
            (
                np.bincount(layer[mine], self.trace.wait[mine], minlength=len(self.stages))
                for mine in (self.draft.built.unit == unit for unit in {self.walk.line.gemm, self.walk.line.alu})
            ),
            key=np.sum,
        )
        found: dict[Layer, int] = {}
        for stage, cycles in zip(self.stages, waits.tolist(), strict=True):
            alike = stage.plan.layer.canonical
            found[alike] = found.get(alike, 0) + int(cycles)
        return found


def tuned(stages: tuple[Stage, ...], names: tuple[Names, ...], config: Config, timing: str, replan: bool) -> Timed:
    """The stages in the best order found; `replan`: with plans that are good beside each other. Raises HazardError."""
    chain = _Chain(names, config, timing)
    first = chain.timed(stages)
    best = chain.ordered(first)
    if replan and first.walk.steps <= LONG and (other := chain.planned(first)) is not first:
        best = min(best, chain.ordered(other), key=lambda known: known.cycles)
    return chain.swapped(best)


class _Chain:
    """Layers one behind the other whose tensors are in segments `names`, under timing model `timing`."""

    def __init__(self, names: tuple[Names, ...], config: Config, timing: str) -> None:
        self.names, self.config, self.timing = names, config, timing

    def _timed(self, stages: tuple[Stage, ...], walk: Walk, loads: list[Load]) -> Timed:
        costs = None if walk.apart else walk.costs
        made = draft(stages, self.names, listing(walk, loads), self.config, costs)
        return Timed(stages, walk, loads, made, trace(made, self.config, self.timing))

    def timed(self, stages: tuple[Stage, ...]) -> Timed:
        """Stages with loads where they are needed, then ahead."""
        walk = walked(stages, self.config, self.timing)
        if walk.steps <= FINE:
            walk = walked(stages, self.config, self.timing, apart=True)
        found = self._timed(stages, walk, early(walk.loads))
        if not found.waits_much:
            return found
        return min(found, self.ahead(found, *WAYS[0]), key=lambda known: known.cycles)

    def ahead(self, known: Timed, first: bool, reads: bool) -> Timed:
        """The same with loads moved ahead."""
        walk, made = by_time(known.walk, known.draft, known.trace)
        return self._timed(known.stages, walk, loads_ahead(walk, made, known.trace, first, reads))

    def ordered(self, best: Timed) -> Timed:
        """The best order found, each way of moving loads ahead by the best trace so far."""
        ways, idle = cycle(WAYS), 0
        while best.waits_much and idle < (ORDERS if best.walk.steps <= LONG else 1):
            other = self.ahead(best, *next(ways))
            idle = 0 if other.cycles < best.cycles * (1 - GAIN) else idle + 1
            best = min(best, other, key=lambda known: known.cycles)
        return best

    def swapped(self, best: Timed) -> Timed:
        """Move loads that come late, one at a time, ahead of loads that wait. Keep each move that saves cycles."""
        left, tried = EFFORT, set[tuple[Load, Load]]()
        while left > 0:
            for ahead, of, loads in _swaps(best):
                if (ahead, of) in tried:
                    continue
                tried.add((ahead, of))
                other = self._timed(best.stages, best.walk, loads)
                left -= len(other.draft.item)
                if other.cycles < best.cycles:
                    best = other
                    break
            else:
                break
        return best

    def planned(self, best: Timed) -> Timed:
        """Other plans for the layers that wait the most, equal layers alike."""
        left, seen, idle = EFFORT, set[Layer](), 0
        while left > 0:
            waits = {layer: cycles for layer, cycles in best.waits().items() if layer not in seen}
            layer = max(waits, key=waits.__getitem__, default=None)
            if layer is None or waits[layer] < WORTH * best.cycles:
                break
            seen.add(layer)
            before = best.cycles
            for plan in ranked(layer, self.config, self.timing)[:TRIED]:
                stages = tuple(
                    stage._replace(plan=replace(plan, layer=stage.plan.layer))
                    if stage.plan.layer.canonical == layer
                    else stage
                    for stage in best.stages
                )
                if stages == best.stages:
                    continue
                other = self.timed(stages)
                left -= 2 * len(other.draft.item)
                best = min(best, other, key=lambda known: known.cycles)
            idle = idle + 1 if best.cycles > before * (1 - GAIN) else 0
            if idle == LAYERS:
                break
        return best


def _swaps(known: Timed) -> Iterator[tuple[Load, Load, list[Load]]]:
    """Yield a late load, an earlier load that waits, and all loads with the late one moved ahead of the other."""
    work = np.array(known.draft.listing.work)
    trace, items, loads = known.trace, known.draft.item, known.loads
    waits = np.bincount(items, trace.wait, minlength=len(work))[work < 0]
    late = np.bincount(items, trace.wait * (trace.cause == OF_LOADS), minlength=len(work))[work >= 0]
    late = late[np.argsort(work[work >= 0])]
    for number in sorted(range(len(loads)), key=lambda number: -late[loads[number].need]):
        load = loads[number]
        if late[load.need] < WORTH * known.cycles:
            return
        blocked = [before for before in range(number) if waits[before] > 0 and load.first <= loads[before].at]
        for before in blocked[: -NEAR - 1 : -1]:
            moved = load._replace(at=loads[before].at)
            yield load, loads[before], [*loads[:before], moved, *loads[before:number], *loads[number + 1 :]]
