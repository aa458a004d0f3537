"""The order of the instructions of some layers, as it follows from their slots; no times.

What compute and store units do is in the order of the plans. A load goes behind the last user of what it overwrites
and behind the stores that it reads: as early as it may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.schedule import Held, Range
from tilewright.targets.vta.compiler.kernels import Run, Step, runs
from tilewright.targets.vta.compiler.layer import covered
from tilewright.targets.vta.compiler.plan import Chunk, Group, Places, Plan, Region, Regions, parameter_memory
from tilewright.targets.vta.compiler.work import (
    Compute,
    Costs,
    Item,
    LoadInputs,
    LoadParameters,
    LoadWeights,
    Store,
    closing,
    costs_of,
    opening,
    shift,
    sums,
)
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Opcode


class Stage(NamedTuple):
    """A layer's plan, and of each tensor that layers before it write, their numbers in the order of its channels."""

    plan: Plan
    reads: tuple[tuple[int, ...], ...] = ()


class Load(NamedTuple):
    """A load of layer `layer`, placed ahead of `work[at]`.

    It may not go before `work[free]`, behind the last user of what it overwrites, nor before `work[stored]`, the last
    store that it reads (-1: it reads none), has been put; nor behind `work[need]`, the first item that uses it.
    """

    at: int
    need: int
    layer: int
    item: Item
    free: int
    stored: int = -1

    @property
    def first(self) -> int:
        """The first place that it may have."""
        return max(self.free, self.stored + 1)


@dataclass(frozen=True, eq=False)
class Listing:
    """(Layer, item) in stream order, the number of each in Walk.work (of a load: -1), and the slots of each layer."""

    items: list[tuple[int, Item]]
    work: list[int]
    regions: tuple[Regions, ...]


class _Waiting(NamedTuple):
    """A group whose next byte plane may be shifted down from `ready` on."""

    ready: int
    group: Group
    acc: int
    plane: int


class Planes:
    """Where a layer's byte planes behind the first are shifted down: as soon as the store of the plane before is done.

    That is told by what sums, shifts and stores take, as if sums never waited for loads.
    """

    def __init__(self, plan: Plan, costs: Costs) -> None:
        self._layer, self._planes, self._costs = plan.layer, plan.layer.planes, costs
        line = costs.config.pipeline
        self._gemm, self._alu, self._store = line.gemm, line.alu, line.store
        self._time = [0] * len(line.units)
        self._waiting: deque[_Waiting] = deque()
        self._free = [0] * plan.acc  # when an accumulator slot is

    def before(self, acc: int) -> Iterator[Item]:
        """Shifts ahead of a group in slot `acc`: those that free the slot, and those that can be made meanwhile."""
        while any(waiting.acc == acc for waiting in self._waiting):
            yield from self._shift()
        while self._waiting and self._waiting[0].ready <= max(self._time[self._alu], self._free[acc]):
            yield from self._shift()
        self._time[self._gemm] = max(self._time[self._gemm], self._free[acc])

    def placed(self, sums: Sequence[Run], acc: int, inp: int = -1, wgt: int = -1) -> Iterator[Item]:
        """Runs of GEMM, and the shifts that are due between them."""
        for run in sums:
            while self._waiting and self._waiting[0].ready <= max(self._time[self._gemm], self._time[self._alu]):
                yield from self._shift()
            if self._planes > 1:
                self._time[self._gemm] += sum(map(self._costs.step, run.steps))
            yield Compute(run, acc, inp, wgt)

    def stored(self, group: Group, acc: int, steps: Sequence[Step]) -> Iterator[Item]:
        """The store of a group's first byte plane, behind `steps` of the ALU."""
        if self._planes > 1:
            self._run(steps, self._time[self._gemm])
        return self._put(group, acc, 0)

    def rest(self) -> Iterator[Item]:
        """All that is left."""
        while self._waiting:
            yield from self._shift()

    def _run(self, steps: Sequence[Step], ready: int) -> None:
        self._time[self._alu] = max(self._time[self._alu], ready) + sum(map(self._costs.step, steps))

    def _shift(self) -> Iterator[Item]:
        ready, group, acc, plane = self._waiting.popleft()
        steps = shift(group.tiles, self._costs.config.LOG_ACC_WIDTH)
        self._run(steps, ready)
        for run in runs(steps):
            yield Compute(run, acc)
        yield from self._put(group, acc, plane)

    def _put(self, group: Group, acc: int, plane: int) -> Iterator[Item]:
        yield Store(acc, group, plane)
        if self._planes > 1:
            spent = self._costs.latency + self._costs.box(group.stores(self._layer), self._costs.config.out)
            done = self._time[self._store] = max(self._time[self._store], self._time[self._alu]) + spent
            if plane + 1 < self._planes:
                self._waiting.append(_Waiting(done, group, acc, plane + 1))
            else:  # where one unit writes the results too, it waits for them
                self._free[acc] = done if self._gemm == self._alu else self._time[self._alu]


class Walk:
    """What compute and store units do for layers, one behind the other, and the loads of these."""

    def __init__(self, costs: Costs, regions: tuple[Regions, ...], apart: bool = False) -> None:
        """`apart`: each step is an item of its own, so that loads may go between any two."""
        self.costs, self._config, self.regions, self.apart = costs, costs.config, regions, apart
        self._alone = len(regions) == 1
        self.port_bytes = costs.beat
        self.line = self._config.pipeline
        self.work: list[tuple[int, Item]] = []
        self.loads: list[Load] = []
        config = self._config
        depth = max(config.acc.depth, config.inp.depth, config.wgt.depth, config.par.depth)
        self._used = {name: np.zeros(depth, np.int64) for name in ("inp", "wgt", "par")}  # behind whom a tile is free
        self._stored: list[Array] = []  # by layer: of each tile of its result the number of the group that stores it
        self._cleared: list[int] = []  # of each group, where its clearing ends
        self.stores: list[int] = []  # and its last store
        self._plans: list[Plan] = []
        self._now = -1

    def layer(self, stage: Stage, where: Regions, groups: Iterable[Group]) -> None:
        """Walk through a layer, or through some of its groups."""
        self._now += 1
        self._plan, self._where = stage.plan, where
        self._plans.append(stage.plan)
        layer, config = stage.plan.layer, self._config
        self._held = {name: Held(getattr(where, name).slots) for name in ("inp", "wgt", "par")}
        self._sources = [np.concatenate([self._stored[index] for index in made]) for made in stage.reads]
        self._stored.append(np.zeros(layer.out_tiles * layer.out_pixels if not self._alone else 0, np.int64))
        limit = max(1, config.uop.depth // 4)
        listed = limit if self.line.gemm == self.line.alu else max(1, config.alu_uop.depth // 4)
        planes, apart = Planes(stage.plan, self.costs), self.apart or layer.planes > 1
        known: dict[Hashable, tuple[Run, ...]] = {}
        for group in groups:
            acc = len(self._cleared) % stage.plan.acc
            self._put(planes.before(acc))
            self._put(planes.placed(runs(opening(layer, group)), acc))
            self._cleared.append(len(self.work))
            par = self._parameters(group)
            for chunk in group.chunks:
                inp, wgt = self._inputs(group, chunk), self._weights(chunk.weights)
                key = group.rows.shape, group.columns.shape, group.outs.size, chunk.inputs.size
                if key not in known:
                    known[key] = runs(sums(stage.plan, group, chunk, limit), apart)
                self._put(planes.placed(known[key], acc, inp, wgt))
                self._use("inp", inp)
                self._use("wgt", wgt)
            last = closing(layer, group, listed, copies=self.line.gemm != self.line.alu)
            self._put(Compute(run, acc, par=par) for run in runs(last, apart))
            if par >= 0:
                self._use("par", par)
            self._put(planes.stored(group, acc, last))
            self._note_stored(group)
        self._put(planes.rest())

    def _put(self, items: Iterable[Item]) -> None:
        self.work.extend((self._now, item) for item in items)

    def _inputs(self, group: Group, chunk: Chunk) -> int:
        key = (group.rows.first, group.rows.size, group.columns.first, group.columns.size, chunk.inputs)
        slot = self._held["inp"].find(key)
        if slot is None:
            slot = self._held["inp"].take(key)
            self._load("inp", slot, LoadInputs(slot, group, chunk), self._source(group, chunk))
        return slot

    def _weights(self, chunk: int) -> int:
        slot = self._held["wgt"].find(chunk)
        if slot is None:
            slot = self._held["wgt"].take(chunk)
            self._load("wgt", slot, LoadWeights(slot, chunk, Range(0, self._plan.weight_tiles(chunk))))
        return slot

    def _parameters(self, group: Group) -> int:
        """The slot with the parameters of a group's output channels."""
        layer = self._plan.layer
        if not layer.parameters:
            return -1
        key: Hashable = "all" if layer.kind == "add" else group.outs  # an add has one set
        slot = self._held["par"].find(key)
        if slot is None:
            slot = self._held["par"].take(key)
            item = LoadParameters(slot, group.outs)
            if self.line.takes[Opcode.LOAD, parameter_memory(self._config)[0]] == self.line.load:
                self._load("par", slot, item)
            else:
                self._put([item])
        return slot

    def _load(self, name: str, slot: int, item: Item, group: int = -1) -> None:
        """`group`: the last group whose results are loaded; who clears its slot has waited for its store."""
        region: Region = getattr(self._where, name)
        free = int(self._used[name][region.at(slot) : region.at(slot + 1)].max())
        need = at = len(self.work)
        if group < 0:  # the first list of micro-ops comes first
            self.loads.append(Load(max(free, self._cleared[0]), need, self._now, item, free))
        else:
            again, stored = group + self._plan.acc, self.stores[group]
            at = self._cleared[again] if again < len(self._cleared) else need
            self.loads.append(Load(max(free, at, stored + 1), need, self._now, item, free, stored))

    def _use(self, name: str, slot: int) -> None:
        region: Region = getattr(self._where, name)
        self._used[name][region.at(slot) : region.at(slot + 1)] = len(self.work)

    def _source(self, group: Group, chunk: Chunk) -> int:
        """The last group of other layers whose results a chunk of inputs reads, -1 where there is none."""
        if not self._sources:
            return -1
        box = group.loads(self._plan.layer, chunk.inputs)
        return max((int(groups[covered(part)].max()) for groups in self._sources for part in box), default=-1)

    def _note_stored(self, group: Group) -> None:
        self.stores.append(len(self.work) - 1)
        if not self._alone:
            for part in group.stores(self._plan.layer):
                self._stored[-1][covered(part)] = len(self.stores) - 1

    @property
    def steps(self) -> int:
        """Steps of all runs."""
        return sum(len(item.run.steps) for _, item in self.work if isinstance(item, Compute))

    def load_cycles(self, load: Load) -> int:
        """What a load takes of the DRAM port."""
        layer, config, item = self._plans[load.layer].layer, self._config, load.item
        if isinstance(item, LoadInputs):
            return self.costs.box(item.group.loads(layer, item.chunk.inputs), config.inp) * layer.operands
        if isinstance(item, LoadWeights):
            return self.costs.transfer(1, item.tiles.size, config.wgt.tile_bytes)
        assert isinstance(item, LoadParameters)
        chip = config.sram(parameter_memory(config)[0])
        return self.costs.transfer(1, layer.parameter_tiles(item.outs.size), chip.tile_bytes)


def walked(stages: Sequence[Stage], config: Config, timing: str, apart: bool = False) -> Walk:
    """What some layers take, for a timing model. The plans must fit the config."""
    places = Places(config, len(stages) == 1)
    walk = Walk(costs_of(config, timing), tuple(places.take(stage.plan) for stage in stages), apart)
    for stage, where in zip(stages, walk.regions, strict=True):
        walk.layer(stage, where, stage.plan.groups())
    return walk


def sampled(plan: Plan, groups: Sequence[Group], config: Config, timing: str) -> Walk:
    """Some groups of a layer by itself, to be timed only."""
    where = Places(config, alone=True).take(plan)
    walk = Walk(costs_of(config, timing), (where,))
    walk.layer(Stage(plan), where, groups)
    return walk


def early(loads: Sequence[Load]) -> list[Load]:
    """Loads in the order of the unit; those of a layer behind all of the layer before."""
    found: list[Load] = []
    floor = last = layer = 0
    for load in loads:
        if load.layer != layer:
            floor, layer = last, load.layer
        found.append(load._replace(at=max(load.at, floor)))
        last = max(last, found[-1].at)
    return sorted(found, key=lambda load: (load.at, load.need))


def listing(walk: Walk, loads: Iterable[Load]) -> Listing:
    """Work and loads in stream order."""
    made = Listing([], [], walk.regions)
    at = 0
    for load in loads:
        made.items.extend(walk.work[at : load.at])
        made.work.extend(range(at, load.at))
        at = max(at, load.at)
        made.items.append((load.layer, load.item))
        made.work.append(-1)
    made.items.extend(walk.work[at:])
    made.work.extend(range(at, len(walk.work)))
    return made
