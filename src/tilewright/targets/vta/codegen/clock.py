"""The simulated units that a schedule is made with: when each instruction would start and end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.codegen.costs import Cycles
from tilewright.targets.vta.codegen.plan import Chunk, Group, Plan, Range
from tilewright.targets.vta.codegen.regions import Region, parameters, regions
from tilewright.targets.vta.codegen.step import Step
from tilewright.targets.vta.codegen.transfers import transfers
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, UOP_BYTES, Memory

#: Memories whose tiles are free from some time on.
MEMORIES = ("inp", "wgt", "par", "acc", "out")


class LoadInputs(NamedTuple):
    """The input tiles of a chunk, into an input slot."""

    slot: int
    group: Group
    chunk: Chunk


class LoadParameters(NamedTuple):
    """The parameters of some output channel tiles, into a parameter slot."""

    slot: int
    outs: Range


class LoadWeights(NamedTuple):
    """A weight chunk (see Plan.weight_chunks), into a weight slot."""

    slot: int
    chunk: int


class Compute(NamedTuple):
    """A step on accumulator slot `acc`; `inp`, `wgt` and `par` are slots, -1 where the step does not read them."""

    step: Step
    acc: int
    inp: int = -1
    wgt: int = -1
    par: int = -1


class Store(NamedTuple):
    """The lowest byte of each of a group's outputs, as byte plane `plane`."""

    acc: int
    group: Group
    plane: int


Item = LoadInputs | LoadWeights | LoadParameters | Compute | Store


class _Slots:
    """The slots of one memory: who is in which, least recently used first; when each may be overwritten."""

    def __init__(self, region: Region, free: Array) -> None:
        self.region, self._tiles_free = region, free
        self.held: OrderedDict[Hashable, int] = OrderedDict()
        self.empty = list(range(region.slots - 1, -1, -1))
        self.free = [int(free[region.at(i) : region.at(i + 1)].max()) for i in range(region.slots)]
        self.ready = [0] * region.slots

    def find(self, key: Hashable) -> int | None:
        slot = self.held.get(key)
        if slot is not None:
            self.held.move_to_end(key)
        return slot

    def take(self, key: Hashable) -> int:
        slot = self.empty.pop() if self.empty else self.held.popitem(last=False)[1]
        self.held[key] = slot
        return slot

    def leave(self) -> None:
        """The next layer may have other slots: each tile is free when the slot that it was in is."""
        for slot, free in enumerate(self.free):
            self._tiles_free[self.region.at(slot) : self.region.at(slot + 1)] = free


#: Instructions that the fetch unit reads at a time where the port has 64 bits; the first loads wait for them.
FETCHED = 128
NO_LIMIT = 1 << 62


class Clock:
    """The simulated units, through one layer after another."""

    def __init__(self, config: Config) -> None:
        self.config, self.cycles, self.line = config, Cycles(config), config.pipeline
        self.time = [0] * len(self.line.units)
        self.items: list[tuple[int, int, int, Item]] = []
        self.stored: list[int] = []  # of each layer: when its last result is in DRAM
        self._free = {name: np.zeros(config.acc.depth + getattr(config, name).depth, np.int64) for name in MEMORIES}
        self._used: set[tuple[int, int, int, int, int]] = set()
        self._listed = 0

    def begin(self, plan: Plan, half: int | None, reads: tuple[int, ...]) -> None:
        """Turn to a layer that reads the results of the layers numbered `reads`."""
        self.plan = plan
        found = regions(plan, self.config, half)
        self.inp = _Slots(found.inp, self._free["inp"])
        self.wgt = _Slots(found.wgt, self._free["wgt"])
        self.par = _Slots(found.par, self._free["par"])
        self.acc = _Slots(found.acc, self._free["acc"])  # sums may start
        self.out = _Slots(found.acc, self._free["out"])  # results may be written
        self._inputs_stored = max((self.stored[layer] for layer in reads), default=0)
        self.stored.append(0)

    def end(self) -> None:
        for slots in (self.inp, self.wgt, self.par, self.acc, self.out):
            slots.leave()

    @property
    def awaits_inputs(self) -> bool:
        return self._inputs_stored > self.time[self.line.load]

    def put(self, start: int, item: Item) -> None:
        self.items.append((start, len(self.items), len(self.stored) - 1, item))

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

    def inputs(self, group: Group, chunk: Chunk) -> int:
        key = (group.rows.first, group.rows.size, group.columns.first, group.columns.size, chunk.inputs)
        slot = self.inp.find(key)
        if slot is None:
            slot = self.inp.take(key)
            parts = transfers(
                self.plan.layer.size,
                *chunk.inputs,
                group.rows.first,
                group.rows.size,
                group.columns.first,
                group.columns.size,
            )
            tile = self.config.inp.tile_bytes
            spent = sum(self.cycles.load(part.rows, part.length * tile) for part in parts)
            item = LoadInputs(slot, group, chunk)
            self._load(self.inp, slot, item, spent * self.plan.layer.operands, self._inputs_stored)
        return slot

    def weights(self, chunk: int) -> int:
        slot = self.wgt.find(chunk)
        if slot is None:
            slot = self.wgt.take(chunk)
            outs, depth = self.plan.weight_chunks[chunk]
            taps = 1 if self.plan.layer.shared else self.plan.layer.taps
            spent = self.cycles.load(1, outs.size * depth.size * taps * self.config.wgt.tile_bytes)
            self._load(self.wgt, slot, LoadWeights(slot, chunk), spent)
        return slot

    def parameters(self, group: Group) -> int:
        """The slot with the parameters of a group's output channels."""
        layer = self.plan.layer
        if not layer.codes:
            return -1
        whole = layer.kind == "add"
        slot = self.par.find(whole or group.outs)
        if slot is None:
            slot = self.par.take(whole or group.outs)
            tiles = layer.parameters * (1 if whole else group.outs.size)
            memory = parameters(self.config)[0]
            spent = self.cycles.load(1, tiles * self.config.sram(memory).tile_bytes)
            unit = self.line.load if memory == Memory.PAR else self.line.gemm
            self._load(self.par, slot, LoadParameters(slot, group.outs), spent, unit=unit)
        return slot

    def _load(self, slots: _Slots, slot: int, item: Item, spent: int, ready: int = 0, unit: int = 0) -> None:
        start = max(self.time[unit], slots.free[slot], ready)
        self.put(start, item)
        self.time[unit] = slots.ready[slot] = start + spent

    def store_cycles(self, group: Group) -> int:
        """What the STOREs of one byte plane take."""
        rows, columns = group.rows, group.columns
        parts = transfers(self.plan.layer.out, *group.outs, rows.start, rows.extent, columns.start, columns.extent)
        return sum(self.cycles.store(part.rows, part.length * self.config.out.tile_bytes) for part in parts)

    def store(self, group: Group, acc: int, plane: int, ready: int, spent: int) -> int:
        """A STORE of one byte plane; returns when it is done."""
        unit = self.line.store
        start = max(self.time[unit], ready)
        self.put(start, Store(acc, group, plane))
        self.time[unit] = self.stored[-1] = start + spent
        return self.time[unit]
