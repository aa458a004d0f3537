"""Put the items of layers (loads, runs of instructions, stores; see work.py) in order, by slots, without timing them.

Slots (see plan.py) are the parts of the on-chip memories that loads fill. The compute and store units work in the order
of the plans. Each load goes as early as possible: after the last user of the data that it overwrites, and after the
stores whose results it reads.
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
from tilewright.targets.vta.compiler.layer import Layer, covered
from tilewright.targets.vta.compiler.plan import Chunk, Group, Places, Plan, Region, Regions, parameter_memory
from tilewright.targets.vta.compiler.work import (
    Compute,
    Costs,
    Item,
    LoadInputs,
    LoadParameters,
    LoadWeights,
    Store,
    clear,
    closing,
    costs_of,
    opening,
    shift,
    sums,
)
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Opcode

#: Accumulator tiles that are cleared at most while a layer's first loads arrive.
IDLE = 256


class Stage(NamedTuple):
    """A layer's plan. `reads`: for each input that other layers write, the indices of those layers, by channel."""

    plan: Plan
    reads: tuple[tuple[int, ...], ...] = ()


class Load(NamedTuple):
    """A load for layer `layer`, which stands in the stream before item `at` of `Walk.work`.

    `at` is at least `free`, the item after the last user of the data that the load overwrites. It is above `stored`,
    the last store whose result the load reads (-1: none), and at most `need`, the first item that uses the load.
    """

    at: int
    need: int
    layer: int
    item: Item
    free: int
    stored: int = -1

    @property
    def first(self) -> int:
        """The lowest legal value of `at`, the load's place in `Walk.work`."""
        return max(self.free, self.stored + 1)


@dataclass(frozen=True, eq=False)
class Listing:
    """The items of all layers in stream order: loads merged with the work of the compute and store units.

    `items`: (layer index, item). `work`: the index of each item in `Walk.work`, -1 for a load. `regions`: the slots of
    each layer.
    """

    items: list[tuple[int, Item]]
    work: list[int]
    regions: tuple[Regions, ...]


class _Waiting(NamedTuple):
    """A group of layer number `owner`, in accumulator slot `acc`: its `plane` may be shifted from `ready` on."""

    ready: int
    owner: int
    layer: Layer
    group: Group
    acc: int
    plane: int


class Planes:
    """Orders the ALU shifts for the second and later byte planes: each runs once the previous plane is stored.

    The times of loads, runs and stores are estimated; each unit works in the order in which items are placed. Items are
    yielded with the index of their layer: the last shifts of a layer may run between the sums of the next layer.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        line = costs.config.pipeline
        self._gemm, self._alu, self._store = line.gemm, line.alu, line.store
        self._time = [0] * len(line.units)
        self._port = 0  # cycle in which all reads so far have ended
        self._waiting: deque[_Waiting] = deque()
        self._index, self._regions = -1, list[Region]()

    def layer(self, plan: Plan, where: Region) -> Iterator[tuple[int, Item]]:
        """Begin a layer with accumulator slots `where`. Yield the shifts and stores that cannot wait for its sums."""
        if plan.layer.planes == 1 or any(where.base < old.end and old.base < where.end for old in self._regions):
            yield from self.rest()
            self._regions.clear()
        self._index += 1
        self._regions.append(where)
        self._layer, self._planes = plan.layer, plan.layer.planes
        self._arrival: dict[tuple[str, int], int] = {}  # by slot: the cycle in which its data arrive
        self._last: dict[tuple[str, int], int] = {}  # by slot: the cycle in which its last user ends
        self._free = [0] * plan.acc  # cycle from which each accumulator slot is free

    def loads(self, name: str, slot: int, cycles: int) -> None:
        """Note a load of a slot of memory `name` that takes the DRAM port `cycles` cycles."""
        self._port = max(self._port, self._last.get((name, slot), 0)) + cycles
        self._arrival[name, slot] = self._port + self._costs.latency

    def before(self, acc: int) -> Iterator[tuple[int, Item]]:
        """Yield the shifts and stores before a group in slot `acc`: those that free the slot, and those now ready."""
        while any(waiting.acc == acc and waiting.owner == self._index for waiting in self._waiting):
            yield from self._shift()
        while self._waiting and self._waiting[0].ready <= max(self._time[self._alu], self._free[acc]):
            yield from self._shift()
        self._time[self._gemm] = max(self._time[self._gemm], self._free[acc])

    def placed(
        self, sums: Sequence[Run], acc: int, inp: int = -1, wgt: int = -1, pieces: tuple[Range, ...] = ()
    ) -> Iterator[tuple[int, Item]]:
        """Yield the GEMM runs of a group, and between them the shifts and stores that are ready."""
        slots = ("inp", inp), ("wgt", wgt)
        arrival = max(self._arrival.get(slot, 0) for slot in slots)
        for run in sums:
            start = max(self._time[self._gemm], arrival)
            while self._waiting and self._waiting[0].ready <= max(start, self._time[self._alu]):
                yield from self._shift()
            if self._planes > 1:
                start = max(self._time[self._gemm], arrival)
                self._time[self._gemm] = start + sum(map(self._costs.step, run.steps))
                self._last.update(dict.fromkeys(slots, self._time[self._gemm]))
            yield self._index, Compute(run, acc, inp, wgt, pieces=pieces)

    def stored(self, group: Group, acc: int, steps: Sequence[Step]) -> Iterator[tuple[int, Item]]:
        """Yield the store of a group's first byte plane, which follows the ALU's `steps`."""
        if self._planes > 1:
            self._run(steps, self._time[self._gemm])
        return self._put(self._index, self._layer, group, acc, 0)

    def rest(self) -> Iterator[tuple[int, Item]]:
        """Yield all remaining shifts and stores of byte planes."""
        while self._waiting:
            yield from self._shift()

    def _run(self, steps: Sequence[Step], ready: int) -> None:
        self._time[self._alu] = max(self._time[self._alu], ready) + sum(map(self._costs.step, steps))

    def _shift(self) -> Iterator[tuple[int, Item]]:
        ready, index, layer, group, acc, plane = self._waiting.popleft()
        steps = shift(group.tiles, self._costs.config.LOG_ACC_WIDTH)
        self._run(steps, ready)
        for run in runs(steps):
            yield index, Compute(run, acc)
        yield from self._put(index, layer, group, acc, plane)

    def _put(self, index: int, layer: Layer, group: Group, acc: int, plane: int) -> Iterator[tuple[int, Item]]:
        yield index, Store(acc, group, plane)
        if layer.planes > 1:
            costs = self._costs
            spent = costs.box(group.stores(layer), costs.config.out)
            start = max(self._time[self._store], self._time[self._alu] + costs.handover.core)
            self._time[self._store] = start + spent + costs.handover.turn
            done = start + spent + costs.handover.stored
            if plane + 1 < layer.planes:
                self._waiting.append(_Waiting(done, index, layer, group, acc, plane + 1))
            elif index == self._index:  # a single compute unit also writes out: the slot is busy until stored
                self._free[acc] = done if self._gemm == self._alu else self._time[self._alu]


class Walk:
    """The work of consecutive layers for the compute and store units, in order, and the loads that this work needs."""

    def __init__(self, costs: Costs, regions: tuple[Regions, ...], apart: bool = False) -> None:
        """Begin without work. With `apart`, each GEMM or ALU step is an item, so loads may go between any two."""
        self.costs, self._config, self.regions, self.apart = costs, costs.config, regions, apart
        self._alone = len(regions) == 1
        self.port_bytes = costs.beat
        self.line = self._config.pipeline
        self.work: list[tuple[int, Item]] = []
        self.loads: list[Load] = []
        config = self._config
        depth = max(config.acc.depth, config.inp.depth, config.wgt.depth, config.par.depth)
        self._used = {name: np.zeros(depth, np.int64) for name in ("inp", "wgt", "par")}  # one past a tile's last user
        self._stored: list[Array] = []  # by layer: the group that stores each tile of its result
        self._cleared: list[int] = []  # by group: one past its clearing, in `work`
        self.stores: list[int] = []  # by group: the store of its first byte plane, in `work`
        self._plans: list[Plan] = []
        self._planes = Planes(costs)
        self._loaded: list[tuple[str, int, Load]] = []  # new loads: memory, slot
        self._now = -1

    def layer(self, stage: Stage, where: Regions, groups: Iterable[Group]) -> None:
        """Append the work and loads of a layer, or of some of its groups."""
        self._now += 1
        self._plan, self._where = stage.plan, where
        self._plans.append(stage.plan)
        layer, config = stage.plan.layer, self._config
        self._held = {name: Held(getattr(where, name).slots) for name in ("inp", "wgt", "par")}
        self._pieces: dict[int, tuple[Range, ...]] = {}  # by weight slot: the pieces in which its chunk was loaded
        self._sources = [np.concatenate([self._stored[index] for index in made]) for made in stage.reads]
        self._stored.append(np.zeros(layer.out_tiles * layer.out_pixels if not self._alone else 0, np.int64))
        limit = max(1, config.uop.depth // 4)
        listed = limit if self.line.gemm == self.line.alu else max(1, config.alu_uop.depth // 4)
        planes, apart = self._planes, self.apart or layer.planes > 1
        self.work.extend(planes.layer(stage.plan, where.acc))
        known: dict[Hashable, tuple[Run, ...]] = {}
        groups = list(groups)
        cleared = [0] * stage.plan.acc  # by accumulator slot: how many of its tiles this layer has cleared
        for turn, group in enumerate(groups):
            acc = len(self._cleared) % stage.plan.acc
            self.work.extend(planes.before(acc))
            self.work.extend(planes.placed(runs(opening(layer, group, cleared[acc])), acc))
            cleared[acc] = max(cleared[acc], group.tiles)
            self._cleared.append(len(self.work))
            if turn == self._now == 0 and layer.carries:
                self._clear(groups, cleared)
            par = self._parameters(group)
            for chunk in group.chunks:
                inp = self._inputs(group, chunk)
                if turn == 0 and self._in_pieces(chunk):
                    self._begin(planes, group, chunk, acc, inp, limit)
                else:
                    wgt = self._weights(chunk.weights)
                    self._note_loads(planes)
                    key = group.rows.shape, group.columns.shape, group.outs.size, chunk.inputs.size
                    if key not in known:
                        known[key] = runs(sums(stage.plan, group, chunk, limit), apart)
                    self.work.extend(planes.placed(known[key], acc, inp, wgt, self._pieces.get(wgt, ())))
                    self._use("wgt", wgt)
                self._use("inp", inp)
            last = closing(layer, group, listed, copies=self.line.gemm != self.line.alu)
            self._put(Compute(run, acc, par=par) for run in runs(last, apart))
            if par >= 0:
                self._use("par", par)
            self.work.extend(planes.stored(group, acc, last))
            self._note_stored(group)

    def finish(self) -> None:
        """Append the work that is left after the last layer."""
        self.work.extend(self._planes.rest())

    def _clear(self, groups: Sequence[Group], cleared: list[int]) -> None:
        """Append the clearing of the other accumulator slots, while the first group waits for its loads."""
        left, own = IDLE - cleared[0], len(self._cleared) - 1
        for slot in range(1, len(cleared)):
            acc, tiles = (
                (own + slot) % len(cleared),
                max((group.tiles for group in groups[slot :: len(cleared)]), default=0),
            )
            if 0 < tiles <= left:
                left -= tiles
                cleared[acc] = tiles
                self._put(Compute(run, acc) for run in runs((clear(tiles),)))

    def _in_pieces(self, chunk: Chunk) -> bool:
        """Return whether to load a chunk's weights in pieces, one for each row of the kernel, which are contiguous."""
        layer, plan = self._plan.layer, self._plan
        rows = layer.planes > 1 and layer.window.kernel[0] > 1 and not layer.shared
        if plan.inp + plan.wgt * layer.window.kernel[0] > self._config.token_depth:  # each load may push a token
            return False
        return rows and plan.weight_tiles(chunk.weights) == layer.taps and self._held["wgt"].find(chunk.weights) is None

    def _begin(self, planes: Planes, group: Group, chunk: Chunk, acc: int, inp: int, limit: int) -> None:
        """Append the sums of a chunk for the first group, a row of the kernel at a time, each after its weights."""
        slot, (height, width) = self._held["wgt"].take(chunk.weights), self._plan.layer.window.kernel
        pieces = self._pieces[slot] = tuple(Range(y * width, width) for y in range(height))
        used = {
            taps.first + k: taps._replace(first=taps.first + k, size=1)
            for taps in group.rows.taps
            for k in range(taps.size)
        }
        for y in sorted(range(height), key=lambda y: (y not in used, y)):
            self._load("wgt", slot, LoadWeights(slot, chunk.weights, pieces[y], True))
            self._note_loads(planes)
            if y in used:
                row = group._replace(rows=group.rows._replace(taps=(used[y],)))
                self.work.extend(
                    planes.placed(runs(sums(self._plan, row, chunk, limit), True), acc, inp, slot, (pieces[y],))
                )
        self._use("wgt", slot)

    def _note_loads(self, planes: Planes) -> None:
        for name, slot, load in self._loaded:
            planes.loads(name, slot, self.load_cycles(load))
        self._loaded.clear()

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
            self._pieces.pop(slot, None)
            self._load("wgt", slot, LoadWeights(slot, chunk, Range(0, self._plan.weight_tiles(chunk))))
        return slot

    def _parameters(self, group: Group) -> int:
        """Return the slot with the parameters of a group's channels (-1: no parameters); append a load if needed."""
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
        """Append a load of `item` to slot `slot` of memory `name`; `group`: see _source.

        A load that reads a group's results goes after the work that next clears the group's slot in acc, because that
        work has waited for the group's store.
        """
        region: Region = getattr(self._where, name)
        free = int(self._used[name][region.at(slot) : region.at(slot + 1)].max())
        need = at = len(self.work)
        if group < 0:  # after the first clearing, so that its micro-ops are loaded first
            self.loads.append(Load(max(free, self._cleared[0]), need, self._now, item, free))
        else:
            again, stored = group + self._plan.acc, self.stores[group]
            at = self._cleared[again] if again < len(self._cleared) else need
            self.loads.append(Load(max(free, at, stored + 1), need, self._now, item, free, stored))
        self._loaded.append((name, slot, self.loads[-1]))

    def _use(self, name: str, slot: int) -> None:
        region: Region = getattr(self._where, name)
        self._used[name][region.at(slot) : region.at(slot + 1)] = len(self.work)

    def _source(self, group: Group, chunk: Chunk) -> int:
        """Return the index of the last group, of other layers, whose results a chunk of inputs reads; -1 for none."""
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
        """The number of GEMM and ALU steps in all runs of the work."""
        return sum(len(item.run.steps) for _, item in self.work if isinstance(item, Compute))

    def load_cycles(self, load: Load) -> int:
        """Return the number of cycles for which a load occupies the DRAM port."""
        layer, config, item = self._plans[load.layer].layer, self._config, load.item
        if isinstance(item, LoadInputs):
            return self.costs.box(item.group.loads(layer, item.chunk.inputs), config.inp) * layer.operands
        if isinstance(item, LoadWeights):
            return self.costs.transfer(1, item.tiles.size, config.wgt.tile_bytes)
        assert isinstance(item, LoadParameters)
        chip = config.sram(parameter_memory(config)[0])
        return self.costs.transfer(1, layer.parameter_tiles(item.outs.size), chip.tile_bytes)


def walked(stages: Sequence[Stage], config: Config, timing: str, apart: bool = False) -> Walk:
    """Return the work and loads of layers, whose plans must fit the config; `timing`: the model that orders shifts."""
    places = Places(config, len(stages) == 1)
    walk = Walk(costs_of(config, timing), tuple(places.take(stage.plan) for stage in stages), apart)
    for stage, where in zip(stages, walk.regions, strict=True):
        walk.layer(stage, where, stage.plan.groups())
    walk.finish()
    return walk


def sampled(plan: Plan, groups: Sequence[Group], config: Config, timing: str) -> Walk:
    """Return the work and loads of some groups of a single layer, for timing only."""
    where = Places(config, alone=True).take(plan)
    walk = Walk(costs_of(config, timing), (where,))
    walk.layer(Stage(plan), where, groups)
    walk.finish()
    return walk


def early(loads: Sequence[Load]) -> list[Load]:
    """Return the loads in the order in which the load unit runs them, each as early as the order of layers allows.

    A layer's loads come after all loads of the previous layer.
    """
    found: list[Load] = []
    floor = last = layer = 0
    for load in loads:
        if load.layer != layer:
            floor, layer = last, load.layer
        found.append(load._replace(at=max(load.at, floor)))
        last = max(last, found[-1].at)
    return sorted(found, key=lambda load: (load.at, load.need))


def listing(walk: Walk, loads: Iterable[Load]) -> Listing:
    """Return the work of a walk and the loads `loads`, merged in stream order."""
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
