"""Turn items of work in stream order into instructions.

Tensors get addresses in DRAM. Operands get the tiles of their slots (see plan.py). Loads copy lists of micro-ops to the
on-chip cache.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np

from tilewright.array import Array, in_nibbles
from tilewright.program.instruction import Raw
from tilewright.schedule import NOBODY
from tilewright.targets.vta.compiler.builder import LinkedStream, Operands, StreamBuilder
from tilewright.targets.vta.compiler.kernels import Dim, RelativeKernel, Step
from tilewright.targets.vta.compiler.layer import covered
from tilewright.targets.vta.compiler.narrow import UNIT, offset_tiles
from tilewright.targets.vta.compiler.plan import ParameterRoom, Plan, Regions, SlotRegion, memory_of, parameter_room
from tilewright.targets.vta.compiler.sequence import Stage, StreamOrder, WorkList, stream_order
from tilewright.targets.vta.compiler.work import (
    PARAMETERS,
    RESULT,
    WEIGHTS,
    Costs,
    LoadTiles,
    RunSteps,
    StoreResults,
    earliest_loads,
)
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import PAGE, UOP_MEMORIES, Memory, paged
from tilewright.targets.vta.isa.instructions import ONCE, Loop, UopCache, UopLists, ahead


@dataclass(frozen=True)
class Segments:
    """DRAM segments by name: sizes and addresses in bytes. The first page stays empty."""

    sizes: dict[str, int]

    @cached_property
    def addresses(self) -> dict[str, int]:
        addresses = {}
        at = PAGE
        for name, size in self.sizes.items():
            addresses[name] = at
            at += paged(size)
        return addresses

    def tile(self, name: str, tile_bytes: int) -> int:
        # Base registers are 0, so a DRAM index is an address in tiles.
        return self.addresses[name] // tile_bytes


class Place(NamedTuple):
    """The location of a tensor in DRAM: tile `first` of segment `segment`."""

    segment: str
    first: int = 0


#: The places of a layer's tensors: its operands (see chain.operands), its result, parameters and weights. work.RESULT
#: and so on are indices.
TensorPlaces: TypeAlias = tuple[Place, ...]


@dataclass(frozen=True, eq=False)
class Draft:
    """A stream of n instructions, not encoded yet."""

    linked: LinkedStream
    stream_order: StreamOrder
    item: Array  # int64 [n]: each instruction's item, an index in `stream_order.items`
    step: Array  # int64 [n]: each GEMM or ALU instruction's step, an index in `steps`; -1 for others
    steps: tuple[Step, ...]
    lists: tuple[UopLists, ...]
    segments: Segments

    @property
    def instructions(self) -> Array:
        """The number of instructions of each item if no steps were joined: int64 [items]."""
        items = self.stream_order.items
        steps = np.array([len(item.run.steps) if isinstance(item, RunSteps) else 1 for _, item in items], np.int64)
        return np.maximum(np.bincount(self.item, minlength=len(items)), steps)


@dataclass(frozen=True, eq=False)
class Code:
    """Encoded instructions uint8 [n, 16], their layers' indices int64 [n], micro-ops uint8 [m, 4] and DRAM segments."""

    insns: Raw
    layer: Array
    uops: Raw
    segments: Segments


def emit(draft: Draft, config: Config) -> Code:
    """Return a draft's encoded instructions and micro-ops. Raises ProgramError if a value does not fit its field."""
    uops = np.concatenate([part.encode(config) for part in draft.lists])
    layers = np.array([layer for layer, _ in draft.stream_order.items], np.int64)
    return Code(draft.linked.code, layers[draft.item], uops, draft.segments)


def draft(
    stages: Sequence[Stage],
    places: Sequence[TensorPlaces],
    order: StreamOrder,
    config: Config,
    costs: Costs | None = None,
) -> Draft:
    """Return the instructions of layers in stream order, with addresses, tokens and loads of micro-ops.

    With `costs`, the draft is only valid for timing: the steps of a GEMM or ALU run are joined into one step if the run
    then takes the same number of cycles (see Costs.joined).
    """
    builder = StreamBuilder(config)
    runs = _RunEmitter(builder, order.regions, costs)
    # Collect all micro-op lists first: their total size decides the cache policy and the size of the segment `uop`.
    computes = [runs.of(layer, item) if isinstance(item, RunSteps) else None for layer, item in order.items]
    sizes: dict[str, int] = {}
    for stage, tensors in zip(stages, places, strict=True):
        for segment, size in _sizes(stage.plan, tensors, config).items():
            sizes[segment] = max(sizes.get(segment, 0), size)
    sizes["uop"] = sum(part.offsets[-1] for part in runs.lists.values()) * config.uop.tile_bytes
    segments = Segments(sizes)
    runs.open(segments.tile("uop", config.uop.tile_bytes))
    results = {tensors[RESULT].segment for tensors in places}
    stored = {segment: np.full(sizes[segment] // config.out.tile_bytes, NOBODY) for segment in results}
    movers = [
        _TransferEmitter(stage.plan, where, tensors, segments, stored, builder)
        for stage, where, tensors in zip(stages, order.regions, places, strict=True)
    ]
    ends: list[int] = []
    for (layer, item), run in zip(order.items, computes, strict=True):
        if run:
            runs.emit(layer, run)
        elif isinstance(item, LoadTiles):
            movers[layer].load(item)
        elif isinstance(item, StoreResults):
            movers[layer].store(item)
        ends.append(len(builder))
    builder.finish()
    ends[-1:] = [len(builder)]
    linked = builder.build()
    # `ends` ascends, so a binary search finds the item to which each step belongs.
    item_of = np.searchsorted(ends, linked.step, side="right")
    step = np.full(len(builder.distinct), -1)
    step[[*runs.step_of]] = [*runs.step_of.values()]
    return Draft(linked, order, item_of, step[linked.distinct], tuple(runs.steps), tuple(runs.lists.values()), segments)


def alone(plan: Plan, work_list: WorkList, config: Config) -> Draft:
    count = plan.layer.operands + (plan.layer.residual is not None)
    tensors = (*(Place(f"x{operand}") for operand in range(count)), Place("out"), Place("par"), Place("wgt"))
    order = stream_order(work_list, earliest_loads(work_list.loads))
    costs = work_list.costs if plan.layer.planes == 1 else None
    return draft((Stage(plan),), (tensors,), order, config, costs)


def _sizes(plan: Plan, places: TensorPlaces, config: Config) -> dict[str, int]:
    layer = plan.layer
    sizes = {places[WEIGHTS].segment: plan.weight_starts[-1] * config.wgt.tile_bytes}
    if layer.parameters:
        tile = config.sram(parameter_room(config).memory).tile_bytes
        sizes[places[PARAMETERS].segment] = layer.parameter_tiles(layer.out_tiles) * tile
    ends = [(place, layer.in_tiles * layer.size[0] * layer.size[1]) for place in places[: layer.operands]]
    ends += [(place, layer.out_tiles * layer.out_pixels) for place in places[layer.operands : RESULT]]
    ends.append((places[RESULT], layer.planes * plan.stored_tiles))
    for place, tiles in ends:
        sizes[place.segment] = (place.first + tiles) * config.inp.tile_bytes
    return sizes


class _TransferEmitter:
    def __init__(
        self,
        plan: Plan,
        where: Regions,
        places: TensorPlaces,
        segments: Segments,
        stored: dict[str, Array],
        builder: StreamBuilder,
    ) -> None:
        self.plan = plan
        self.where = where
        self.places = places
        self.segments = segments
        self.stored = stored  # by segment with results: the step that stores each tile
        self.builder = builder
        self.config = builder.config

    def load(self, item: LoadTiles) -> None:
        memory = memory_of(item.memory, self.config)
        slot = item.slot
        region: SlotRegion = getattr(self.where, item.memory)
        base = region.at(slot)
        if item.acc >= 0:  # the parameter slot lies in an accumulator slot, which the load uses as a whole
            region = self.where.acc
            slot = item.acc
            base += region.at(slot)
        if item.piece:
            first = base + item.tiles.first
            part = self.builder.parts.of(memory, first, first + item.tiles.size)
        else:
            part = self.builder.parts.of(*_slot(memory, region, slot))
        for tensor, rows in item.parts:
            segment, begin = self.places[tensor]
            address = self.segments.tile(segment, self.config.sram(memory).tile_bytes) + begin + rows.offset
            # No part of an on-chip memory joins a load to the store of its inputs in DRAM, so this order is added
            # explicitly.
            after = int(self.stored[segment][begin + covered(rows)].max()) if segment in self.stored else NOBODY
            self.builder.load(memory, base + rows.at, address, (rows.rows, rows.length), rows.stride, part, after)

    def store(self, item: StoreResults) -> None:
        layer = self.plan.layer
        segment, begin = self.places[RESULT]
        first = self.segments.tile(segment, self.config.out.tile_bytes) + begin
        first += item.plane * self.plan.stored_tiles
        # Without an out memory (fsim), a store reads the accumulators.
        read = (Memory.OUT,) if self.config.rules.out_memory else (Memory.OUT, Memory.ACC)
        parts = tuple(self.builder.parts.of(*_slot(memory, self.where.acc, item.acc)) for memory in read)
        at = self.where.acc.at(item.acc)
        for part in item.group.stores(layer, item.plane):
            address = first + part.offset
            shape = (part.rows, part.length)
            step = self.builder.store(at + part.at, address, shape, part.stride, parts)
            if item.plane == 0:  # later layers on the machine only read results with one byte plane
                self.stored[segment][begin + covered(part)] = step


@dataclass(frozen=True, eq=False)
class _PlacedRun:
    """A run on certain slots: the numbers of the run's steps, and of the micro-op lists of these steps.

    `rows`: for each placement of these lists in the micro-op cache, the run's instructions (StreamBuilder.distinct).
    Equal runs on the same slots share this object.
    """

    unit: int
    memory: Memory
    operands: Operands
    steps: tuple[int, ...]
    lists: tuple[int, ...]
    rows: dict[tuple[int, ...], list[int]] = field(default_factory=dict)


class _RunEmitter:
    """An emitter of GEMM and ALU instructions, and of the loads of their micro-op lists to the on-chip cache."""

    def __init__(self, builder: StreamBuilder, where: Sequence[Regions], costs: Costs | None) -> None:
        self._builder = builder
        self._where = where
        self._costs = costs
        self._line = builder.line
        self._room = parameter_room(builder.config)
        self._operands: dict[Hashable, Operands] = {}
        self.lists = {memory: UopLists() for memory in UOP_MEMORIES}
        self.steps: dict[Step, int] = {}
        self.step_of: dict[int, int] = {}  # by instruction
        self._caches: dict[Memory, UopCache] = {}
        self._placed_runs: dict[tuple[int, RunSteps], _PlacedRun] = {}
        self._used: dict[tuple[Memory, int], set[int]] = {}  # the lists of each layer
        self._layer = 0

    def of(self, layer: int, item: RunSteps) -> _PlacedRun:
        """Return the run of an item on the item's slots. The first use of a run adds its micro-op lists."""
        if (run := self._placed_runs.get((layer, item))) is None:
            run = self._placed_runs[layer, item] = self._of(self._where[layer], item)
            self._used.setdefault((run.memory, layer), set()).update(run.lists)
        return run

    def _of(self, where: Regions, item: RunSteps) -> _PlacedRun:
        steps = item.run.steps if self._costs is None else self._costs.joined(item.run)
        gemm = steps[0].op is None
        builder = self._builder
        memory = self._line.uop_memory(alu=not gemm)
        lists = self.lists[memory]
        if self._costs is None:
            numbers = tuple(lists.add(_micro_ops(step, item, where, self._room.in_slots)) for step in steps)
        else:
            # In timing, only the lengths of the lists matter, and equal lists are not shared.
            numbers = tuple(lists.reserve(len(step.kernel.dst)) for step in steps)
        step_numbers = self.steps
        chosen = tuple(step_numbers.setdefault(step, len(step_numbers)) for step in steps)
        # Operands depend on the slots only, so many runs share an operand.
        key = item[1:], gemm, steps[0].parameters, where
        if (operands := self._operands.get(key)) is None:
            used = _used(where, item, self._room, self._line.alu == self._line.gemm)
            operands = self._operands[key] = Operands(
                *(tuple(builder.parts.of(*part) for part in chosen) for chosen in used)
            )
        return _PlacedRun(self._line.gemm if gemm else self._line.alu, memory, operands, chosen, numbers)

    def open(self, start: int) -> None:
        """Create empty micro-op caches after all steps were added. `start`: the DRAM index of the first micro-op."""
        self._all = tuple(self.steps)
        for memory, lists in self.lists.items():
            load = partial(self._builder.load_uops, memory, start)
            depth = self._builder.config.sram(memory).depth
            self._caches[memory] = UopCache(lists.offsets, depth, load, partial(self._ahead, memory))
            start += lists.offsets[-1]

    def _ahead(self, memory: Memory, offsets: Sequence[int], index: int, depth: int) -> int:
        """Return the index after the last micro-op list to fetch (see instructions.ahead)."""
        last = ahead(offsets, index, depth)
        if offsets[-1] > depth:
            # Layers share lists, so the lists after a missing list may only belong to finished layers. A fetch of such
            # lists would evict lists in use. The fetch therefore ends with the last list that this layer or the next
            # layer uses.
            soon = [self._used.get((memory, layer), set()) for layer in (self._layer, self._layer + 1)]
            while last > index + 1 and not any(last - 1 in lists for lists in soon):
                last -= 1
        return last

    def emit(self, layer: int, run: _PlacedRun) -> None:
        """Add the instructions of a run, and loads for the run's micro-op lists that are not on chip."""
        self._layer = layer
        cache = self._caches[run.memory]
        places = cache.places(run.lists)
        # The usual case: the run was emitted before, with its lists at the same places in the cache.
        if places in run.rows:
            self._builder.step(run.unit, run.rows[places], run.operands)
            return
        rows: list[int] = []
        # A load of micro-ops must precede the instruction that needs the micro-ops, so the load splits the run.
        for step, number in zip(run.steps, run.lists, strict=True):
            if rows and not cache.places((number,)):
                self._builder.step(run.unit, rows, run.operands)
                rows = []
            rows.append(self._row(step, cache.find(number)))
        if places is not None:
            run.rows[places] = rows
        self._builder.step(run.unit, rows, run.operands)

    def _row(self, number: int, uops: range) -> int:
        distinct = self._builder.distinct
        step = self._all[number]
        outer, inner = (_loop(dim) for dim in (step.kernel.outer, step.kernel.inner))
        if step.op is None:
            row = distinct.gemm(uops, outer, inner, step.reset)
        else:
            factor = step.factor if step.op == AluOp.REQ and step.kernel.outer.extent > 1 else 0
            row = distinct.alu(step.op, uops, outer._replace(wgt=factor), inner, step.imm)
        self.step_of[row] = number
        return row


def _used(
    where: Regions, item: RunSteps, room: ParameterRoom, both: bool
) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    """Return the slots that a run reads and the slots that it writes, each as (memory, first tile, end tile)."""
    gemm = item.run.steps[0].op is None
    step = item.run.steps[0]
    reads: tuple[tuple[Memory, int, int], ...] = ()
    if gemm and item.inp >= 0:
        first = where.wgt.at(item.wgt)
        pieces = tuple((Memory.WGT, first + piece.first, first + piece.first + piece.size) for piece in item.pieces)
        reads = (_slot(Memory.INP, where.inp, item.inp), *(pieces or (_slot(Memory.WGT, where.wgt, item.wgt),)))
    elif step.parameters and not room.in_slots:
        reads = (_slot(room.memory, where.par, item.par),)
    elif step.above:
        reads = (_slot(Memory.ACC, where.acc, item.above),)
    # GEMM writes the out memory too if the same unit runs GEMM and ALU.
    results = (Memory.ACC,) if gemm and not both else (Memory.ACC, Memory.OUT)
    return reads, tuple(_slot(memory, where.acc, item.acc) for memory in results)


def _slot(memory: Memory, region: SlotRegion, slot: int) -> tuple[Memory, int, int]:
    return memory, *region.ends(slot)


def _micro_ops(step: Step, item: RunSteps, where: Regions, inside: bool) -> bytes:
    """Return the micro-ops of a step on an item's slots, as bytes of int64 [3, m]: dst, src and wgt tiles."""
    acc = where.acc.at(item.acc)
    if step.op is None:
        return _listed(step.kernel, acc, where.inp.at(max(item.inp, 0)), where.wgt.at(max(item.wgt, 0)))
    par = where.acc.at(item.above) if step.above else acc
    if step.parameters:
        par = where.par.at(item.par) + acc * inside
    return _listed(step.kernel, acc, par, par if step.op == AluOp.REQ else None)


@lru_cache(maxsize=1 << 16)
def _listed(kernel: RelativeKernel, dst: int, src: int, wgt: int | None) -> bytes:
    """Return the micro-ops of a kernel whose slots start at tiles `dst`, `src` and `wgt`, as _micro_ops does."""
    listed = np.stack([kernel.dst, kernel.src, kernel.wgt * (wgt is not None)])  # an unused index is 0
    return (listed + np.array([dst, src, wgt or 0])[:, None]).tobytes()


def _loop(dim: Dim) -> Loop:
    """Return a dimension as a loop of an instruction; a loop with one iteration has strides of 0."""
    return Loop(dim.extent, dim.dst, dim.src, dim.wgt) if dim.extent > 1 else ONCE


def weight_image(plan: Plan, tiles: Array, offsets: Array | None, config: Config) -> Array:
    """Return weight tiles [out tile, k, tap, block, block] as flat uint8, in the order of the plan's weight chunks.

    The weights for residuals follow, or the weights and the input of `offsets` (Lowered.offsets).
    """
    parts: Sequence[Array] = [
        tiles[outs.first : outs.first + outs.size, sums.first : sums.first + sums.size].reshape(-1)
        for outs, sums in plan.weight_chunks
    ]
    if plan.layer.residual is not None:
        identity = np.eye(tiles.shape[-1], dtype=np.int8)  # weights for residuals come last
        parts = [*parts, (identity << plan.layer.residual.weight).reshape(-1)]
    if offsets is not None:
        parts = [*parts, offset_tiles(offsets).reshape(-1), np.full(tiles[0, 0, 0].size, UNIT, np.int8)]
    image = np.concatenate(parts)
    return in_nibbles(image) if config.wgt.width == 4 else image.view(np.uint8)
