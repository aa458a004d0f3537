"""A schedule as instructions: addresses, slots and the micro-op cache filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Raw
from tilewright.schedule.slots import NOBODY, Part
from tilewright.targets.vta.compiler.builder import StreamBuilder
from tilewright.targets.vta.compiler.items import Compute, Item, LoadInputs, LoadParameters, LoadWeights, Store
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.compiler.regions import Region, Regions, parameters
from tilewright.targets.vta.compiler.sequence import Listing, Stage, Walk, coarse, early, listing
from tilewright.targets.vta.compiler.step import Step
from tilewright.targets.vta.compiler.tile_kernels import Kernel
from tilewright.targets.vta.compiler.transfers import covered, transfers
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory
from tilewright.targets.vta.runtime.instructions import InstructionBuffer, UopCache, UopLists, ahead

#: Segments start at multiples of a page, the largest tile that is legal; the first page stays empty.
PAGE = 4096


@dataclass(frozen=True)
class Segments:
    """Byte addresses and sizes in DRAM; control registers hold 0, so a DRAM index is address / tile bytes."""

    sizes: dict[str, int]

    @cached_property
    def addresses(self) -> dict[str, int]:
        found, at = {}, PAGE
        for name, size in self.sizes.items():
            found[name] = at
            at += -(-size // PAGE) * PAGE
        return found

    def tile(self, name: str, tile_bytes: int) -> int:
        return self.addresses[name] // tile_bytes


class Place(NamedTuple):
    """A tensor in DRAM: from tile `first` of a segment."""

    segment: str
    first: int = 0


class Names(NamedTuple):
    """The segments of one layer: weights, parameters, what it reads (an add: two) and its result."""

    weights: str
    parameters: str
    inputs: tuple[Place, ...]
    result: Place


@dataclass(frozen=True, eq=False)
class Draft:
    """Instructions that are not encoded yet: of which item each is, and which of `steps` it runs (-1: none)."""

    buffer: InstructionBuffer
    listing: Listing
    item: list[int]
    step: list[int]
    steps: tuple[Step, ...]
    lists: tuple[UopLists, ...]
    segments: Segments


@dataclass(frozen=True, eq=False)
class Code:
    """Instructions uint8 [n, 16], the layer of each int64 [n], micro-ops uint8 [m, 4], and DRAM segments."""

    insns: Raw
    layer: Array
    uops: Raw
    segments: Segments


def emit(draft: Draft, config: Config) -> Code:
    """The code of a draft. Raises ProgramError where a value does not fit its field."""
    uops = np.concatenate([part.encode(config) for part in draft.lists])
    layers = np.array([layer for layer, _ in draft.listing.items], np.int64)
    return Code(draft.buffer.encode(), layers[draft.item], uops, draft.segments)


def draft(stages: Sequence[Stage], names: Sequence[Names], order: Listing, config: Config) -> Draft:
    """The instructions of some layers in the order of a listing, with addresses, tokens and loads of micro-ops."""
    lists = {memory: Lists(order.regions) for memory in UOP_MEMORIES}
    wanted = [
        lists[_list_memory(item, config)].of(layer, item) if isinstance(item, Compute) else -1
        for layer, item in order.items
    ]
    sizes: dict[str, int] = {}
    for stage, name in zip(stages, names, strict=True):
        for segment, size in _sizes(stage.plan, name, config).items():
            sizes[segment] = max(sizes.get(segment, 0), size)
    sizes["uop"] = sum(part.uops.offsets[-1] for part in lists.values()) * config.uop.tile_bytes
    segments = Segments(sizes)
    builder = StreamBuilder(config)
    caches: dict[Memory, UopCache] = {}
    start = segments.tile("uop", config.uop.tile_bytes)
    for memory, part in lists.items():
        caches[memory] = _cache(builder, part.uops, start, memory, config)
        start += part.uops.offsets[-1]
    results = {name.result.segment for name in names}
    stored = {segment: np.full(sizes[segment] // config.out.tile_bytes, NOBODY) for segment in results}
    emitters = [
        _Emitter(stage.plan, where, name, segments, stored, builder, config)
        for stage, where, name in zip(stages, order.regions, names, strict=True)
    ]
    steps: dict[Step, int] = {}
    item_of: list[int] = []
    step_of: list[int] = []
    rows = builder.buffer.rows
    for index, ((layer, item), wants) in enumerate(zip(order.items, wanted, strict=True)):
        if isinstance(item, Compute):
            emitters[layer].compute(item, caches[_list_memory(item, config)].find(wants))
            step_of += [-1] * (len(rows) - len(step_of) - 1)
            step_of.append(steps.setdefault(item.step, len(steps)))
        else:
            emitters[layer].move(item)
        item_of += [index] * (len(rows) - len(item_of))
    builder.finish()
    item_of += [len(order.items) - 1] * (len(rows) - len(item_of))
    step_of += [-1] * (len(rows) - len(step_of))
    uops = tuple(part.uops for part in lists.values())
    return Draft(builder.buffer, order, item_of, step_of, tuple(steps), uops, segments)


def alone(plan: Plan, walk: Walk, config: Config) -> Draft:
    """The draft of a layer by itself, to be timed only."""
    inputs = tuple(Place(f"x{operand}") for operand in range(plan.layer.operands))
    order = listing(walk, early(walk.loads))
    if plan.layer.planes == 1:
        order = coarse(order, walk.costs)
    return draft((Stage(plan),), (Names("wgt", "par", inputs, Place("out")),), order, config)


def _list_memory(item: Compute, config: Config) -> Memory:
    """The memory of an instruction's micro-ops."""
    return config.pipeline.uop_memory(alu=item.step.op is not None)


def _cache(builder: StreamBuilder, lists: UopLists, start: int, memory: Memory, config: Config) -> UopCache:
    def load(base: int, at: int, count: int) -> None:
        builder.load_uops(memory, base, start + at, count)

    return UopCache(lists.offsets, config.sram(memory).depth, load, ahead)


def _sizes(plan: Plan, names: Names, config: Config) -> dict[str, int]:
    """Bytes of a layer's segments."""
    layer = plan.layer
    sizes = {names.weights: _weight_tiles(plan)[-1] * config.wgt.tile_bytes}
    if layer.parameters:
        tile = config.sram(parameters(config)[0]).tile_bytes
        sizes[names.parameters] = layer.parameters * (1 if layer.kind == "add" else layer.out_tiles) * tile
    ends = [(place, layer.in_tiles * layer.size[0] * layer.size[1]) for place in names.inputs]
    ends.append((names.result, layer.planes * layer.out_tiles * layer.out_pixels))
    for place, tiles in ends:
        sizes[place.segment] = (place.first + tiles) * config.inp.tile_bytes
    return sizes


def _weight_tiles(plan: Plan) -> list[int]:
    """The first tile of each weight chunk in DRAM, and their number in all."""
    counts = [plan.weight_tiles(chunk) for chunk in range(len(plan.weight_chunks))]
    return [0, *(int(tile) for tile in np.cumsum(counts))]


class _Emitter:
    """The instructions of one layer."""

    def __init__(
        self,
        plan: Plan,
        where: Regions,
        names: Names,
        segments: Segments,
        stored: dict[str, Array],
        builder: StreamBuilder,
        config: Config,
    ) -> None:
        self.plan, self.where, self.names, self.segments = plan, where, names, segments
        self.stored = stored  # of each segment with results: the row that stores each tile
        self.builder, self.config = builder, config
        self.weights = _weight_tiles(plan)
        self._known: dict[tuple[bool, bool, int, int, int, int], tuple[tuple[Part, ...], tuple[Part, ...]]] = {}

    def compute(self, item: Compute, uops: range) -> None:
        step = item.step
        reads, writes = self._operands(step.op is None, step.parameters, item.acc, item.inp, item.wgt, item.par)
        if step.op is None:
            self.builder.gemm(uops, step.kernel.outer, step.kernel.inner, reads, writes, step.reset)
        else:
            factor = step.factor if step.op == AluOp.REQ and step.kernel.outer.extent > 1 else 0
            self.builder.alu(step.op, uops, step.kernel.outer, step.kernel.inner, step.imm, reads, writes, factor)

    def _operands(
        self, gemm: bool, parametric: bool, acc: int, inp: int, wgt: int, par: int
    ) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """The slots that a step reads and writes."""
        key = gemm, parametric, acc, inp, wgt, par
        if key not in self._known:
            reads: tuple[Part, ...] = ()
            if gemm and inp >= 0:
                reads = self.part(Memory.INP, self.where.inp, inp), self.part(Memory.WGT, self.where.wgt, wgt)
            elif not gemm and parametric:
                reads = (self.part(parameters(self.config)[0], self.where.par, par),)
            out = self.part(Memory.OUT, self.where.acc, acc)
            sums = self.part(Memory.ACC, self.where.acc, acc)
            self._known[key] = reads, (sums,) if gemm and self.config.stages > 3 else (sums, out)
        return self._known[key]

    def part(self, memory: Memory, region: Region, slot: int) -> Part:
        return self.builder.part(memory, region.at(slot), region.at(slot + 1))

    def move(self, item: Item) -> None:
        layer, config, where = self.plan.layer, self.config, self.where
        if isinstance(item, LoadInputs):
            rows, columns, inputs = item.group.rows, item.group.columns, item.chunk.inputs
            slot, at = self.part(Memory.INP, where.inp, item.slot), where.inp.at(item.slot)
            for name, begin in self.names.inputs:
                first = self.segments.tile(name, config.inp.tile_bytes) + begin
                for part in transfers(layer.size, *inputs, rows.first, rows.size, columns.first, columns.size):
                    shape = (part.rows, part.length)
                    after = int(self.stored[name][begin + covered(part)].max()) if name in self.stored else NOBODY
                    self.builder.load(Memory.INP, at + part.at, first + part.offset, shape, part.stride, slot, after)
                at += inputs.size * rows.size * columns.size
        elif isinstance(item, LoadWeights):
            start = self.segments.tile(self.names.weights, config.wgt.tile_bytes) + self.weights[item.chunk]
            slot, count = self.part(Memory.WGT, where.wgt, item.slot), item.tiles.size
            at = where.wgt.at(item.slot) + item.tiles.first
            self.builder.load(Memory.WGT, at, start + item.tiles.first, (1, count), count, slot)
        elif isinstance(item, LoadParameters):
            memory, whole = parameters(config)[0], layer.kind == "add"
            count = layer.parameters * (1 if whole else item.outs.size)
            start = self.segments.tile(self.names.parameters, config.sram(memory).tile_bytes)
            start += 0 if whole else layer.parameters * item.outs.first
            slot = self.part(memory, where.par, item.slot)
            self.builder.load(memory, where.par.at(item.slot), start, (1, count), count, slot)
        else:
            assert isinstance(item, Store)
            self._store(item)

    def _store(self, item: Store) -> None:
        layer, rows, columns = self.plan.layer, item.group.rows, item.group.columns
        segment, begin = self.names.result
        first = self.segments.tile(segment, self.config.out.tile_bytes) + begin
        first += item.plane * layer.out_tiles * layer.out_pixels
        out, at = self.part(Memory.OUT, self.where.acc, item.acc), self.where.acc.at(item.acc)
        for part in transfers(layer.out, *item.group.outs, rows.start, rows.extent, columns.start, columns.extent):
            address, shape = first + part.offset, (part.rows, part.length)
            row = self.builder.store(at + part.at, address, shape, part.stride, out)
            if item.plane == 0:
                self.stored[segment][begin + covered(part)] = row


class Lists:
    """The list in one micro-op memory that each instruction runs."""

    def __init__(self, where: Sequence[Regions]) -> None:
        self.uops = UopLists()
        self._where = where
        self._seen: dict[tuple[Kernel, int, int, int, int, int], int] = {}

    def of(self, layer: int, item: Compute) -> int:
        """The number of the list in `uops`."""
        kernel, step, where = item.step.kernel, item.step, self._where[layer]
        known = (kernel, layer, item.acc, item.inp, item.wgt, item.par)
        if known in self._seen:
            return self._seen[known]
        acc = where.acc.at(item.acc)
        dst, src, wgt = kernel.dst + acc, kernel.src, kernel.wgt
        if step.op is None:
            src, wgt = src + where.inp.at(max(item.inp, 0)), wgt + where.wgt.at(max(item.wgt, 0))
        elif step.parameters:
            src, wgt = src + where.par.at(item.par), wgt + where.par.at(item.par)
            wgt = wgt if step.op == AluOp.REQ else np.zeros_like(wgt)
        else:
            src = src + acc
        self._seen[known] = self.uops.add(dst, src, wgt)
        return self._seen[known]


def weight_image(plan: Plan, tiles: Array) -> Array:
    """Weight tiles [out tile, k, tap, block, block] in the order of the plan's chunks: uint8, flat."""
    parts: Sequence[Array] = [
        tiles[outs.first : outs.first + outs.size, sums.first : sums.first + sums.size].reshape(-1)
        for outs, sums in plan.weight_chunks
    ]
    return np.concatenate(parts).view(np.uint8)
