"""The items of work of a layer: loads, runs of GEMM or ALU steps, and stores; and their estimated cycles.

sequence.py puts these items in order; emit.py turns them into instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from math import ceil
from typing import Literal, NamedTuple

import numpy as np

from tilewright.schedule import Range, ranges
from tilewright.targets.vta.compiler.epilogue import clip_to_floor, epilogue, maxima, start_steps
from tilewright.targets.vta.compiler.kernels import (
    SINGLE,
    Block,
    Dim,
    RelativeKernel,
    Run,
    Step,
    merged,
    nest,
    over,
    sum_kernels,
)
from tilewright.targets.vta.compiler.layer import NARROW, Layer, Span, TileTransfer
from tilewright.targets.vta.compiler.plan import Chunk, Group, Plan
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.alu import RESCALING, AluOp
from tilewright.targets.vta.timing import MODELS, Handover, Intervals

#: The content of accumulators before a group starts them. ANYTHING: any value. SUMS: sums, which are not below FLOOR
#: once `clip_to_floor` has shifted them. CLIPPED: results, which are not below FLOOR.
ANYTHING, SUMS, CLIPPED = range(3)
#: The numbers of a layer's tensors, which are indices of emit.TensorPlaces. The operands have the numbers from 0 on.
WEIGHTS = -1
PARAMETERS = -2
RESULT = -3
#: Weight tiles of a load, if a chunk of at least MANY tiles has several loads. They pay off if the sums of a layer take
#: BUSY times as long as its loads of weights.
SEVERAL = 16
MANY = 64
BUSY = 1.25
#: The smallest code: the start value of a maximum.
LEAST = -128


class LoadTiles(NamedTuple):
    """A load of tiles into slot `slot` (see plan.py) of the memory `memory`."""

    memory: Literal["inp", "wgt", "par"]
    slot: int
    parts: tuple[tuple[int, TileTransfer], ...]  # (tensor, transfer); a tensor is an operand, WEIGHTS or PARAMETERS
    chunk: int = -1  # a weight chunk (Plan.weight_chunks, then the tile for residuals); -1: none
    piece: bool = False  # whether the load is a piece of the chunk (see RunSteps.pieces)
    acc: int = -1  # the accumulator slot that contains the parameter slot, or -1

    @property
    def tiles(self) -> Range:
        """The tiles of the slot that the load fills. The load has a single part."""
        ((_, part),) = self.parts
        return Range(part.at, part.length)

    def some(self, tiles: Range) -> LoadTiles:
        ((tensor, part),) = self.parts
        return self._replace(parts=((tensor, row_of(part.offset - part.at, tiles)),))


def row_of(start: int, tiles: Range) -> TileTransfer:
    """Return the transfer of consecutive tiles of a tensor, from tile `start` of the tensor's DRAM segment on."""
    return TileTransfer(tiles.first, start + tiles.first, 1, tiles.size, tiles.size)


def input_load(layer: Layer, slot: int, group: Group, chunk: Chunk) -> LoadTiles:
    """Return the load of a chunk's input tiles, operand after operand."""
    box = chunk.inputs.size * group.box
    parts = tuple(
        (operand, part._replace(at=part.at + operand * box))
        for operand in range(layer.operands)
        for part in group.loads(layer, chunk.inputs)
    )
    return LoadTiles("inp", slot, parts)


def weight_load(plan: Plan, slot: int, chunk: int, tiles: Range, piece: bool = False) -> LoadTiles:
    return LoadTiles("wgt", slot, ((WEIGHTS, row_of(plan.weight_starts[chunk], tiles)),), chunk, piece)


def weight_loads(plan: Plan, slot: int, chunk: int, costs: Costs) -> list[LoadTiles]:
    """Return the loads of a weight chunk: one, or several if loads by other units would wait for its bursts.

    Several loads take longer. This only pays off in layers that compute for longer than they load weights.
    """
    tiles = plan.weight_tiles(chunk)
    cycles = BUSY * plan.weight_starts[-1] * costs.config.wgt.tile_bytes / costs.beat
    several = costs.answers and tiles >= MANY and plan.layer.gemm_uops() > cycles
    return [weight_load(plan, slot, chunk, part) for part in ranges(tiles, SEVERAL if several else tiles)]


def parameter_load(layer: Layer, slot: int, outs: Range, acc: int = -1) -> LoadTiles:
    """Return the load of the parameters of some output channel tiles. An `add` has one set for all channels."""
    first = 0 if layer.kind == "add" else layer.parameters * outs.first
    return LoadTiles("par", slot, ((PARAMETERS, row_of(first, Range(0, layer.parameter_tiles(outs.size)))),), acc=acc)


class RunSteps(NamedTuple):
    """A run of GEMM or ALU steps on accumulator slot `acc`."""

    run: Run
    acc: int
    inp: int = -1  # the slot that the run reads, or -1; `wgt` and `par` in the same way
    wgt: int = -1
    par: int = -1
    above: int = -1  # the accumulator slot of the previous group
    pieces: tuple[Range, ...] = ()  # the only tiles of the weight slot to wait for; (): the whole slot


class StoreResults(NamedTuple):
    """A store of the lowest byte of each accumulator of a group, as byte plane `plane` of the result."""

    acc: int
    group: Group
    plane: int


Item = LoadTiles | RunSteps | StoreResults


class PlacedLoad(NamedTuple):
    """A load for layer `layer`, which stands in the stream before item `at` of `WorkList.work`."""

    at: int
    need: int  # upper limit of `at`: the first item that uses the load
    layer: int
    item: LoadTiles
    free: int  # lower limit of `at`: the item after the last user of the overwritten data
    stored: int = -1  # `at` is above this index: the last store whose result is loaded (-1: none)

    @property
    def first(self) -> int:
        """The lowest legal value of `at`, the load's place in `WorkList.work`."""
        return max(self.free, self.stored + 1)


def earliest_loads(loads: Sequence[PlacedLoad]) -> list[PlacedLoad]:
    """Return the loads in stream order, each as early as possible, but after all loads of the previous layer."""
    moved: list[PlacedLoad] = []
    floor = last = layer = 0
    for load in loads:
        if load.layer != layer:
            floor = last
            layer = load.layer
        moved.append(load._replace(at=max(load.at, floor)))
        last = max(last, moved[-1].at)
    return sorted(moved, key=lambda load: (load.at, load.need))


@lru_cache(maxsize=1024)
def clear(tiles: int, first: int = 0) -> Step:
    """Return the GEMM step that clears `tiles` tiles of an accumulator slot, starting at the slot's tile `first`."""
    zero = np.zeros(1, np.int64)
    return Step(RelativeKernel(zero + first, zero, zero, SINGLE, Dim(tiles, 1, 0)), reset=True)


@lru_cache(maxsize=1024)
def shift(tiles: int, log_acc_width: int, bits: int) -> tuple[Step, ...]:
    """Return the ALU steps that shift `tiles` accumulator tiles right by a plane of `bits` bits.

    The HLS design reads a shift as a signed number of LOG_ACC_WIDTH bits, so the largest is 7 with 16-bit accumulators.
    """
    largest = (1 << (log_acc_width - 1)) - 1
    amounts = [largest] * (bits // largest) + [bits % largest] * bool(bits % largest)
    return tuple(Step(over(tiles), AluOp.SHR, amount) for amount in amounts)


def plane_steps(layer: Layer, group: Group, plane: int, log_acc_width: int, bits: int) -> tuple[Step, ...]:
    """Return the ALU steps before the store of plane `plane` of a group, from 1 on. A plane has `bits` bits.

    If two tiles share a byte, the upper tile is shifted by only half a byte, and added to the lower tile.
    """
    tiles = group.shifted(layer, plane)
    stored = group.stored(layer, plane)
    if stored == tiles:
        return shift(tiles, log_acc_width, bits)
    start = np.zeros(1, np.int64)
    added = RelativeKernel(start, start + stored, start, SINGLE, Dim(tiles - stored, 1, 1))
    upper = Step(over(tiles - stored, stored), AluOp.SHR, 4)
    return (*shift(stored, log_acc_width, bits), upper, Step(added, AluOp.ADD))


def open_group(layer: Layer, group: Group, content: int, limit: int) -> tuple[Step, ...]:
    """Return the steps that set a group's accumulators to their first values.

    Tiles that receive codes to compare, or a second operand, are cleared too. `content`: the earlier content of the
    tiles (ANYTHING, SUMS or CLIPPED).
    """
    tiles = group.sums
    started = start_steps(layer, group, limit)
    if layer.kind == "max":
        tiles += group.outs.size * group.box
    elif layer.kind == "add" and not layer.shifts:
        tiles *= 2
    if started and content == CLIPPED:  # `started` is a minimum, which needs old values that are not below FLOOR
        return started
    return (clear(tiles) if content == ANYTHING or not started else clip_to_floor(tiles), *started)


def sums(plan: Plan, group: Group, chunk: Chunk, limit: int) -> tuple[Step, ...]:
    """Return the GEMM steps that add a chunk of inputs to a group's sums; each lists at most `limit` micro-ops."""
    layer = plan.layer
    rows = group.rows
    columns = group.columns
    outs = group.outs.size
    block = Block(outs, 1 if layer.link == "diagonal" else chunk.inputs.size)
    kernels: Iterable[RelativeKernel]
    if layer.kind == "sum":
        kernels = sum_kernels(layer, rows, columns, block, limit)
    elif layer.kind == "add":  # the load may have the input of the whole group
        # An addition by shifts sums both operands in the same accumulators; otherwise each operand is rescaled alone.
        box = columns.size
        dims = (
            Dim(2, 0 if layer.shifts else group.tiles, outs * box, sums=layer.shifts),
            Dim(outs, group.pixels, box),
            Dim(group.pixels, 1, 1),
        )
        kernels = nest(merged(dims), (0, columns.offset, 0), limit)
    elif layer.kind == "repeat":
        kernels = _repeated(layer, group, limit)
    else:
        kernels = nest((Dim(outs * group.box, 1, 1),), (group.tiles, 0, 0), limit)
    return tuple(map(Step, kernels))


def _repeated(layer: Layer, group: Group, limit: int) -> list[RelativeKernel]:
    """Return kernels that copy each input tile to all of its output tiles."""
    tall, wide = layer.repeat
    rows = group.rows
    columns = group.columns
    kernels = []
    # One kernel covers one position of the repeat pattern, because the outputs at a position are evenly spaced.
    for y, x in np.ndindex(min(tall, rows.extent), min(wide, columns.extent)):
        dims = (
            Dim(group.outs.size, group.pixels, rows.size * columns.size),
            Dim(-(-(rows.extent - y) // tall), tall * columns.extent, columns.size),
            Dim(-(-(columns.extent - x) // wide), wide, 1),
        )
        src = (y + rows.offset) // tall * columns.size + (x + columns.offset) // wide
        kernels += nest(merged(dims), (y * columns.extent + x, src, 0), limit)
    return kernels


def close_group(layer: Layer, group: Group, above: Span | None, limit: int, copies: bool) -> tuple[Step, ...]:
    """Return the ALU steps between a group's sums and its store.

    `above`: the rows of the previous group. `copies`: whether only the ALU writes the out memory, as with four stages.
    """
    if layer.kind == "max":
        return _maximum(layer, group, limit)
    if layer.narrow:
        return clamps(layer, group)
    pooled = maxima(group.rows, group.columns, group.outs.size, above, limit) if layer.pool else ()
    if layer.requantisation:
        return (*pooled, *epilogue(layer, group, limit))
    # Without this step, the sums would not reach the out memory.
    return (copy(group.tiles),) if copies else ()


def clamps(layer: Layer, group: Group) -> tuple[Step, ...]:
    """Return the ALU steps that clamp a group's sums of the last channel tiles to NARROW bytes (see narrow.py)."""
    first = group.shifted(layer, NARROW)
    largest = (1 << 8 * NARROW - 1) - 1
    bounds = (AluOp.MAX, ~largest), (AluOp.MIN, largest)
    return tuple(Step(over(group.tiles - first, first), *bound) for bound in bounds) if first < group.tiles else ()


def offset_loads(plan: Plan, inp: int, wgt: int, config: Config) -> tuple[LoadTiles, LoadTiles]:
    """Return the loads of the weights of offsets, and of their input, which follows the weights."""
    first = plan.weight_starts[-2] * config.wgt.tile_bytes // config.inp.tile_bytes
    weights = weight_load(plan, wgt, len(plan.weight_chunks), Range(0, plan.layer.narrow))
    return weights, LoadTiles("inp", inp, ((WEIGHTS, row_of(first, Range(0, 1))),))


def add_offsets(layer: Layer, group: Group, limit: int) -> tuple[Step, ...]:
    """Return the GEMM steps that add the offsets to a group's sums of the last channel tiles."""
    first = group.shifted(layer, NARROW)
    outs = (group.tiles - first) // group.pixels
    wgt = group.outs.first + group.outs.size - outs - (layer.out_tiles - layer.narrow)
    dims = Dim(outs, group.pixels, 0, 1), Dim(group.pixels, 1)
    return tuple(map(Step, nest(merged(dims), (first, 0, wgt), limit))) if outs else ()


@lru_cache(maxsize=1024)
def copy(tiles: int) -> Step:
    return Step(over(tiles), AluOp.ADD, 0)


def _maximum(layer: Layer, group: Group, limit: int) -> tuple[Step, ...]:
    """Return the ALU steps of a maximum pool, which compare the codes of a window tap by tap."""
    rows = group.rows
    columns = group.columns
    outs = group.outs.size
    window = layer.window
    first = group.tiles
    # GEMM with identity weights has copied the codes to accumulators behind the group's own tiles.
    steps = [Step(over(group.tiles), AluOp.MIN, LEAST)]
    for (y, ys, top, bottom), (x, xs, left, right) in product(rows.taps, columns.taps):
        src = (top * window.stride[0] + y * window.dilation[0] + rows.offset) * columns.size
        src += left * window.stride[1] + x * window.dilation[1] + columns.offset
        dims = (
            Dim(ys, 0, window.dilation[0] * columns.size, 0, True),
            Dim(xs, 0, window.dilation[1], 0, True),
            Dim(outs, group.pixels, group.box),
            Dim(bottom - top, columns.extent, window.stride[0] * columns.size),
            Dim(right - left, 1, window.stride[1]),
        )
        base = (top * columns.extent + left, first + src, 0)
        kept = tuple(dim for dim in dims if dim.extent > 1)
        steps += [Step(kernel, AluOp.MAX) for kernel in nest(kept, base, limit)]
    if layer.clamp:
        steps += [Step(over(group.tiles), op, imm) for op, imm in zip((AluOp.MAX, AluOp.MIN), layer.clamp, strict=True)]
    return tuple(steps)


class Costs:
    """Estimates of cycles of instructions and transfers on a machine, under timing model `name`."""

    def __init__(self, config: Config, name: str) -> None:
        self.config = config
        self.timing = MODELS[name]
        self.intervals: Intervals = self.timing.intervals(config)
        self.handover: Handover = self.timing.handover(config)
        port = self.timing.channel(config)
        self.beat = port.beat_bytes  # bytes that the DRAM port moves in one cycle
        self.latency = port.latency if port.burst else 0  # from the request of a transfer to its first data
        self.row = 0 if port.in_flight else self.latency  # before each row, if rows are requested one by one
        self.answers = port.answer >= 0  # whether each burst of a store waits for an answer
        self.store_row = self.row + self.handover.row
        # The cycles for each byte of a store: beats, pauses, and (if stores wait for answers) the row's later bursts.
        pauses = 1 / port.pause if port.pause else 0
        bursts = self.handover.row / port.burst if port.burst else 0
        self.store_byte = (1 + pauses + bursts) / self.beat
        self._joined: dict[Run, tuple[Step, ...]] = {}

    @property
    def instruction(self) -> int:
        """The cycles of an instruction beside its micro-ops."""
        return self.timing.dispatch + self.timing.once(None, 1)

    def step(self, step: Step) -> int:
        once = self.timing.dispatch + self.timing.once(step.op, step.kernel.outer.extent)
        return self.intervals.of(step.op, step.imm is not None) * step.kernel.micro_ops + once

    def load(self, parts: Iterable[TileTransfer], chip: Sram) -> int:
        """Return the cycles of the DRAM port for loads `parts` of on-chip memory `chip`."""
        return sum(
            self.handover.load + part.rows * self.row + -(-part.rows * part.length * chip.tile_bytes // self.beat)
            for part in parts
        )

    def store(self, parts: Iterable[TileTransfer]) -> int:
        """Return the cycles of stores `parts`."""
        tile = self.config.out.tile_bytes
        return sum(
            part.rows * self.store_row + ceil(part.rows * part.length * tile * self.store_byte) for part in parts
        )

    def joined(self, run: Run) -> tuple[Step, ...]:
        """Return steps that take the same cycles as a run, but are faster to time.

        The result is one step with the same cycles and the same number of listed micro-ops, which computes nothing.
        Runs with rescaling steps are returned unchanged, because their cycles depend on the operands.
        """
        if run not in self._joined:
            steps = run.steps
            first = run.steps[0]
            listed = sum(len(step.kernel.dst) for step in steps)
            # The list of a real step fills at most a quarter of the micro-op cache.
            room = self.config.sram(self.config.pipeline.uop_memory(alu=first.op is not None)).depth // 4
            if len(steps) > 1 and listed <= room and not any(step.op in RESCALING for step in steps):
                # A kernel without real micro-ops that occupies the unit for the same number of cycles.
                cycles = sum(map(self.step, steps)) // self.intervals.of(first.op, first.imm is not None)
                nothing = np.zeros(listed, np.int64)
                steps = (first._replace(kernel=RelativeKernel(nothing, nothing, nothing, SINGLE, SINGLE, cycles)),)
            self._joined[run] = steps
        return self._joined[run]


@lru_cache(maxsize=16)
def costs_of(config: Config, name: str) -> Costs:
    """Return the cached `Costs` of a machine. The cache lets Costs.joined compute each run of steps only once."""
    return Costs(config, name)
