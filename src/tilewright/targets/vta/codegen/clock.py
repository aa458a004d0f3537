"""The simulated units that a schedule is made with: when each instruction would start and end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from tilewright.targets.vta.codegen.costs import Cycles
from tilewright.targets.vta.codegen.plan import Chunk, Group, Plan
from tilewright.targets.vta.codegen.transfers import transfers
from tilewright.targets.vta.codegen.work import Step
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, UOP_BYTES


class LoadInputs(NamedTuple):
    """The input tiles of a chunk, into an input slot."""

    slot: int
    group: Group
    chunk: Chunk


class LoadWeights(NamedTuple):
    """A weight chunk (see Plan.weight_chunks), into a weight slot."""

    slot: int
    chunk: int


class Compute(NamedTuple):
    """A step on accumulator slot `acc`; `inp` and `wgt` are slots, -1 where the step reads neither."""

    step: Step
    acc: int
    inp: int
    wgt: int


class Store(NamedTuple):
    """The lowest byte of each of a group's outputs, as byte plane `plane`."""

    acc: int
    group: Group
    plane: int


Item = LoadInputs | LoadWeights | Compute | Store


class _Slots:
    """The slots of one memory: who is in which, least recently used first; when each may be overwritten."""

    def __init__(self, count: int) -> None:
        self.held: OrderedDict[Hashable, int] = OrderedDict()
        self.empty = list(range(count - 1, -1, -1))
        self.free = [0] * count
        self.ready = [0] * count

    def find(self, key: Hashable) -> int | None:
        slot = self.held.get(key)
        if slot is not None:
            self.held.move_to_end(key)
        return slot

    def take(self, key: Hashable) -> int:
        slot = self.empty.pop() if self.empty else self.held.popitem(last=False)[1]
        self.held[key] = slot
        return slot


#: Instructions that the fetch unit reads at a time where the port has 64 bits; the first loads wait for them.
FETCHED = 128
NO_LIMIT = 1 << 62


class Clock:
    """The simulated units."""

    def __init__(self, plan: Plan, config: Config) -> None:
        self.plan, self.config, self.cycles = plan, config, Cycles(config)
        self.load, self.compute, self.store = 0, 0, 0
        self.inp, self.wgt = _Slots(plan.inp), _Slots(plan.wgt)
        self.items: list[tuple[int, int, Item]] = []
        self.used: set[tuple[int, int, int, int]] = set()
        self.listed = 0

    def put(self, start: int, item: Item) -> None:
        self.items.append((start, len(self.items), item))

    def run(self, step: Step, ready: int, acc: int, inp: int = -1, wgt: int = -1) -> int:
        """A compute step; returns when it ends."""
        start = max(self.compute, ready)
        used = (id(step.kernel), acc, inp, wgt)
        if used not in self.used:
            self.used.add(used)
            self.listed += len(step.kernel.dst)
        self.put(start, Compute(step, acc, inp, wgt))
        self.compute = start + self.cycles.step(step)
        return self.compute

    def commands(self) -> int:
        """Cycles that reading instructions and micro-ops adds, roughly: before the first loads, half of it after."""
        count, bus = len(self.items), self.config.bus_bits // 8
        fetched = min(count, FETCHED) + min(max(0, count - FETCHED), 2 * FETCHED) // 2
        return (fetched * INSN_BYTES + self.listed * UOP_BYTES) // bus

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
            self._load(self.inp, slot, LoadInputs(slot, group, chunk), spent)
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

    def _load(self, slots: _Slots, slot: int, item: Item, spent: int) -> None:
        start = max(self.load, slots.free[slot])
        self.put(start, item)
        self.load = slots.ready[slot] = start + spent

    def store_cycles(self, group: Group) -> int:
        """What the STOREs of one byte plane take."""
        rows, columns = group.rows, group.columns
        parts = transfers(self.plan.layer.out, *group.outs, rows.start, rows.extent, columns.start, columns.extent)
        return sum(self.cycles.store(part.rows, part.length * self.config.out.tile_bytes) for part in parts)

    def stored(self, group: Group, acc: int, plane: int, ready: int, spent: int) -> int:
        """A STORE of one byte plane; returns when it is done."""
        start = max(self.store, ready)
        self.put(start, Store(acc, group, plane))
        self.store = start + spent
        return self.store
