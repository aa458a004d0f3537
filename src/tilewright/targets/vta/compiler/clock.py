"""The simulated units that a schedule is made with: when each instruction would start and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.compiler.costs import Cycles
from tilewright.targets.vta.compiler.items import Compute, Item, LoadInputs, LoadParameters, LoadWeights, Store
from tilewright.targets.vta.compiler.plan import Chunk, Group, Plan, Range
from tilewright.targets.vta.compiler.regions import Places, Regions, parameters
from tilewright.targets.vta.compiler.slots import NO_LIMIT, Slots
from tilewright.targets.vta.compiler.step import Step
from tilewright.targets.vta.compiler.transfers import Transfer, covered, transfers
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, UOP_BYTES, Memory, Opcode

#: Memories whose tiles are free from some time on.
MEMORIES = ("inp", "wgt", "par", "acc", "out")
CONSTANTS = ("wgt", "par")
#: Weight tiles that are worth a load of their own.
PIECE = 4


class _Layer:
    """A layer's plan and, by memory, its slots for constants, once they are taken."""

    def __init__(self, plan: Plan, where: Regions, reads: tuple[tuple[int, ...], ...]) -> None:
        self.plan, self.where, self.reads = plan, where, reads
        self.slots: dict[str, Slots] = {}
        self.stored = np.zeros(plan.layer.out_tiles * plan.layer.out_pixels, np.int64)  # when each tile is in DRAM


#: Instructions that the fetch unit reads at a time where the port has 64 bits; the first loads wait for them.
FETCHED = 128


class Clock:
    """The simulated units, through one layer after another.

    While a load has to wait, weights and parameters of later layers are loaded, as far as there is room.
    """

    def __init__(self, plans: Sequence[tuple[Plan, tuple[tuple[int, ...], ...]]], config: Config) -> None:
        self.config, self.cycles, self.line = config, Cycles(config), config.pipeline
        self.time = [0] * len(self.line.units)
        self.items: list[tuple[int, int, int, Item]] = []
        places = Places(config, len(plans) == 1)
        self._layers = [_Layer(plan, places.take(plan), reads) for plan, reads in plans]
        self._free = {name: np.zeros(config.acc.depth + getattr(config, name).depth, np.int64) for name in MEMORIES}
        later = range(1, len(plans))
        self._ahead_sets = deque(item for index in later for item in self._parameter_sets(index))
        self._ahead_chunks = deque(item for index in later for item in self._weight_chunks(index))
        self._begun: dict[tuple[int, int], int] = {}  # tiles of (layer, chunk) that are loaded, while some are not
        self._used: set[tuple[int, int, int, int, int]] = set()
        self._listed = 0
        self._made: list[Array] = []  # of each tensor that other layers write: when each tile is in DRAM
        self._now = -1

    @property
    def regions(self) -> list[Regions]:
        return [layer.where for layer in self._layers]

    def begin(self) -> None:
        """Turn to the next layer."""
        self._now += 1
        while self._ahead_sets and self._ahead_sets[0][0] <= self._now:
            self._ahead_sets.popleft()
        while self._ahead_chunks and self._ahead_chunks[0][0] <= self._now:
            self._ahead_chunks.popleft()
        layer = self._layers[self._now]
        self.plan = layer.plan
        self._made = [np.concatenate([self._layers[index].stored for index in made]) for made in layer.reads]
        self.inp = Slots(layer.where.inp, self._free["inp"])
        self.acc = Slots(layer.where.acc, self._free["acc"])  # sums may start
        self.out = Slots(layer.where.acc, self._free["out"])  # results may be written
        for name in CONSTANTS:
            self._take(name, self._now)
        self.wgt, self.par = (layer.slots[name] for name in CONSTANTS)

    def end(self) -> None:
        for slots in (self.inp, self.wgt, self.par, self.acc, self.out):
            slots.leave()

    def _take(self, name: str, index: int, until: int = NO_LIMIT) -> bool:
        """Give a layer, and all before it, their slots of a memory for constants, if that is free in time."""
        for layer in self._layers[self._now : index + 1]:
            if name not in layer.slots:
                region, free = getattr(layer.where, name), self._free[name]
                if free[region.base : region.end].max(initial=0) >= until:
                    return False
                layer.slots[name] = Slots(region, free)
        return True

    def _parameter_sets(self, index: int) -> Iterator[tuple[int, Range]]:
        """(Layer, output channel tiles) of a layer's parameters, where each set has a slot."""
        layer = self._layers[index]
        if layer.plan.layer.codes and parameters(self.config)[0] == Memory.PAR:
            sets = {_parameter_key(layer.plan, group.outs): group.outs for group in layer.plan.groups()}
            if layer.where.par.slots == len(sets):
                yield from ((index, outs) for outs in sets.values())

    def _weight_chunks(self, index: int) -> Iterator[tuple[int, int]]:
        """(Layer, chunk) of a layer's weights, where each has a slot."""
        layer = self._layers[index]
        if layer.where.wgt.slots == len(layer.plan.weight_chunks):
            yield from ((index, chunk) for chunk in range(layer.where.wgt.slots))

    def _fill(self, until: int) -> None:
        """Loads of later layers that end in time: parameters first, weights in pieces."""
        load, sets, chunks = self.line.load, self._ahead_sets, self._ahead_chunks
        while sets and self._take("par", sets[0][0], until):
            index, outs = sets[0]
            plan, slots = self._layers[index].plan, self._layers[index].slots["par"]
            start, spent = max(self.time[load], *slots.free), self._parameter_cycles(plan, outs)
            if start + spent > until:
                break
            sets.popleft()
            slot = slots.take(_parameter_key(plan, outs))
            self._place(start, spent, slots, slot, index, LoadParameters(slot, outs))
        while chunks and self._take("wgt", chunks[0][0], until):
            index, chunk = chunks[0]
            layer, begun = self._layers[index], self._begun.get((index, chunk), 0)
            slots, left = layer.slots["wgt"], layer.plan.weight_tiles(chunk) - begun
            start = max(self.time[load], *slots.free)
            count = min(left, self._weights_within(until - start))
            if count < min(left, PIECE):
                break
            held = slots.find(chunk)
            slot = slots.take(chunk) if held is None else held
            self._place(
                start, self._weight_cycles(count), slots, slot, index, LoadWeights(slot, chunk, Range(begun, count))
            )
            self._begun[index, chunk] = begun + count
            if count == left:
                del self._begun[index, chunk]
                chunks.popleft()

    def _place(self, start: int, spent: int, slots: Slots, slot: int, layer: int, item: Item) -> None:
        self.items.append((start, len(self.items), layer, item))
        self.time[self.line.load] = slots.ready[slot] = start + spent

    def put(self, start: int, item: Item) -> None:
        self.items.append((start, len(self.items), self._now, item))

    def unit(self, step: Step) -> int:
        return self.line.gemm if step.op is None else self.line.alu

    def run(self, step: Step, ready: int, acc: int, inp: int = -1, wgt: int = -1, par: int = -1) -> int:
        """A step of gemm or the ALU; returns when it ends."""
        unit = self.unit(step)
        start = max(self.time[unit], ready)
        used = (id(step.kernel), self.acc.region.at(acc), inp, wgt, par)
        if used not in self._used:
            self._used.add(used)
            self._listed += len(step.kernel.dst)
        self.put(start, Compute(step, acc, inp, wgt, par))
        self.time[unit] = start + self.cycles.step(step)
        return self.time[unit]

    def commands(self) -> int:
        """Cycles that reading instructions and micro-ops adds, roughly: before the first loads, half of it after."""
        count, bus = len(self.items), self.config.bus_bits // 8
        fetched = min(count, FETCHED) + min(max(0, count - FETCHED), 2 * FETCHED) // 2
        return (fetched * INSN_BYTES + self._listed * UOP_BYTES) // bus

    def _box(self, group: Group, chunk: Chunk) -> tuple[Transfer, ...]:
        rows, columns = group.rows, group.columns
        return transfers(self.plan.layer.size, *chunk.inputs, rows.first, rows.size, columns.first, columns.size)

    def inputs_stored(self, group: Group, chunk: Chunk) -> int:
        """When the results of other layers that a chunk reads are in DRAM."""
        if not self._made:
            return 0
        box = self._box(group, chunk)
        return max((int(times[covered(part)].max()) for times in self._made for part in box), default=0)

    def inputs(self, group: Group, chunk: Chunk) -> int:
        key = (group.rows.first, group.rows.size, group.columns.first, group.columns.size, chunk.inputs)
        slot = self.inp.find(key)
        if slot is None:
            slot = self.inp.take(key)
            tile = self.config.inp.tile_bytes
            spent = sum(self.cycles.load(part.rows, part.length * tile) for part in self._box(group, chunk))
            item = LoadInputs(slot, group, chunk)
            self._load(self.inp, slot, item, spent * self.plan.layer.operands, self.inputs_stored(group, chunk))
        return slot

    def weights(self, chunk: int) -> int:
        """The slot with a weight chunk, or with the rest of one that is begun."""
        slot = self.wgt.find(chunk)
        begun = self._begun.pop((self._now, chunk), 0)
        if slot is None or begun:
            slot = self.wgt.take(chunk) if slot is None else slot
            tiles = Range(begun, self.plan.weight_tiles(chunk) - begun)
            self._load(self.wgt, slot, LoadWeights(slot, chunk, tiles), self._weight_cycles(tiles.size))
        return slot

    def _weight_cycles(self, tiles: int) -> int:
        return self.cycles.load(1, tiles * self.config.wgt.tile_bytes)

    def _weights_within(self, cycles: int) -> int:
        """How many weight tiles can be loaded in some cycles."""
        return max(0, (cycles - self.cycles.load(1, 0)) * self.config.bus_bits // 8 // self.config.wgt.tile_bytes)

    def parameters(self, group: Group) -> int:
        """The slot with the parameters of a group's output channels."""
        layer = self.plan.layer
        if not layer.parameters:
            return -1
        key = _parameter_key(self.plan, group.outs)
        slot = self.par.find(key)
        if slot is None:
            slot = self.par.take(key)
            unit = int(self.line.takes[Opcode.LOAD, parameters(self.config)[0]])
            spent = self._parameter_cycles(self.plan, group.outs)
            self._load(self.par, slot, LoadParameters(slot, group.outs), spent, unit=unit)
        return slot

    def _parameter_cycles(self, plan: Plan, outs: Range) -> int:
        tiles = plan.layer.parameters * (1 if plan.layer.kind == "add" else outs.size)
        return self.cycles.load(1, tiles * self.config.sram(parameters(self.config)[0]).tile_bytes)

    def _load(self, slots: Slots, slot: int, item: Item, spent: int, ready: int = 0, unit: int = 0) -> None:
        if unit == self.line.load:
            self._fill(max(slots.free[slot], ready))
        start = max(self.time[unit], slots.free[slot], ready)
        self.put(start, item)
        self.time[unit] = slots.ready[slot] = start + spent

    def _results(self, group: Group) -> tuple[Transfer, ...]:
        rows, columns = group.rows, group.columns
        return transfers(self.plan.layer.out, *group.outs, rows.start, rows.extent, columns.start, columns.extent)

    def store_cycles(self, group: Group) -> int:
        """What the STOREs of one byte plane take."""
        tile = self.config.out.tile_bytes
        return sum(self.cycles.store(part.rows, part.length * tile) for part in self._results(group))

    def store(self, group: Group, acc: int, plane: int, ready: int, spent: int) -> int:
        """A STORE of one byte plane; returns when it is done."""
        unit = self.line.store
        start = max(self.time[unit], ready)
        self.put(start, Store(acc, group, plane))
        self.time[unit] = start + spent
        if len(self._layers) > 1:
            for part in self._results(group):
                self._layers[self._now].stored[covered(part)] = start + spent
        return self.time[unit]


def _parameter_key(plan: Plan, outs: Range) -> Hashable:
    """An add has one set of parameters."""
    return "all" if plan.layer.kind == "add" else outs
