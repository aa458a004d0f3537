"""The items of a schedule (loads, runs of instructions, stores), the steps for a group of outputs, and cycle counts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from tilewright.schedule import Range
from tilewright.targets.vta.compiler.epilogue import beginning, epilogue, maxima, raised
from tilewright.targets.vta.compiler.kernels import (
    ONE,
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
from tilewright.targets.vta.compiler.layer import Layer, Span, TileTransfer
from tilewright.targets.vta.compiler.plan import Chunk, Group, Plan
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.alu import RESCALING, AluOp
from tilewright.targets.vta.timing import MODELS, Handover, Intervals

#: What an accumulator may hold: anything; at least sums that `raised` shifts to FLOOR or more; at least FLOOR.
ANYTHING, SUMS, CLIPPED = range(3)
#: The numbers of a layer's tensors besides its operands, which have those from 0 on: indices of emit.TensorPlaces.
WEIGHTS = -1
PARAMETERS = -2
RESULT = -3
#: The smallest code, with which a maximum starts.
LEAST = -128


class LoadTiles(NamedTuple):
    """A load of tiles into slot `slot` (see plan.py) of the memory `memory`.

    `parts`: the rows of tiles that are moved, each with its tensor: an operand, WEIGHTS or PARAMETERS. They lie in the
    slot from tile `at` on. `chunk`: the number of a weight chunk (see Plan.weight_chunks; the tile for residuals
    follows the last one, as a chunk of its own). `piece`: the runs that use the chunk name its pieces
    (RunSteps.pieces), and need not wait for other pieces. `acc`: the accumulator slot that contains the parameter slot
    (-1: none).
    """

    memory: Literal["inp", "wgt", "par"]
    slot: int
    parts: tuple[tuple[int, TileTransfer], ...]
    chunk: int = -1
    piece: bool = False
    acc: int = -1

    @property
    def tiles(self) -> Range:
        """The tiles of a chunk that are loaded, for a load of one part."""
        ((_, part),) = self.parts
        return Range(part.at, part.length)

    def some(self, tiles: Range) -> LoadTiles:
        ((tensor, part),) = self.parts
        return self._replace(parts=((tensor, row_of(part.offset - part.at, tiles)),))


def row_of(start: int, tiles: Range) -> TileTransfer:
    """Return the transfer of consecutive tiles of a tensor that begins with tile `start` of its DRAM segment."""
    return TileTransfer(tiles.first, start + tiles.first, 1, tiles.size, tiles.size)


def input_load(layer: Layer, slot: int, group: Group, chunk: Chunk) -> LoadTiles:
    """Return the load of a chunk's input tiles; those of the second operand follow those of the first."""
    box = chunk.inputs.size * group.box
    parts = tuple(
        (operand, part._replace(at=part.at + operand * box))
        for operand in range(layer.operands)
        for part in group.loads(layer, chunk.inputs)
    )
    return LoadTiles("inp", slot, parts)


def weight_load(plan: Plan, slot: int, chunk: int, tiles: Range, piece: bool = False) -> LoadTiles:
    return LoadTiles("wgt", slot, ((WEIGHTS, row_of(plan.weight_starts[chunk], tiles)),), chunk, piece)


def parameter_load(layer: Layer, slot: int, outs: Range, acc: int = -1) -> LoadTiles:
    """Return the load of the parameters of some output channel tiles; an `add` has one set for all of them."""
    first = 0 if layer.kind == "add" else layer.parameters * outs.first
    return LoadTiles("par", slot, ((PARAMETERS, row_of(first, Range(0, layer.parameter_tiles(outs.size)))),), acc=acc)


class RunSteps(NamedTuple):
    """A run of GEMM or ALU steps on accumulator slot `acc`; `inp`, `wgt`, `par`: the slots that it reads (-1: none).

    `above`: the accumulator slot of the previous group. `pieces`: the tiles of the weight slot that it may read, if
    they are loaded as pieces; () for the whole slot.
    """

    run: Run
    acc: int
    inp: int = -1
    wgt: int = -1
    par: int = -1
    above: int = -1
    pieces: tuple[Range, ...] = ()


class StoreResults(NamedTuple):
    """A store of the lowest byte of each accumulator of a group, as byte plane `plane` of the result."""

    acc: int
    group: Group
    plane: int


Item = LoadTiles | RunSteps | StoreResults


@lru_cache(maxsize=1024)
def clear(tiles: int, first: int = 0) -> Step:
    """Return the GEMM step that clears `tiles` tiles of an accumulator slot, starting at the slot's tile `first`."""
    none = np.zeros(1, np.int64)
    return Step(RelativeKernel(none + first, none, none, ONE, Dim(tiles, 1, 0)), reset=True)


@lru_cache(maxsize=1024)
def shift(tiles: int, log_acc_width: int) -> tuple[Step, ...]:
    """Return the ALU steps that shift `tiles` accumulator tiles right by 8 bits, so that the next byte is the lowest.

    The HLS design reads a shift as a signed number of LOG_ACC_WIDTH bits, so the largest is 7 with 16-bit accumulators.
    """
    largest = (1 << (log_acc_width - 1)) - 1
    amounts = [8] if largest >= 8 else [largest] * (8 // largest) + [8 % largest] * bool(8 % largest)
    return tuple(Step(over(tiles), AluOp.SHR, amount) for amount in amounts)


def opening(layer: Layer, group: Group, found: int, limit: int) -> tuple[Step, ...]:
    """Return the steps that set a group's output tiles to what they start with, and clear those for codes to compare.

    `found`: what all these tiles hold: ANYTHING, SUMS or CLIPPED.
    """
    tiles = group.sums
    started = beginning(layer, group, limit)
    if layer.kind == "max":
        tiles += group.outs.size * group.box
    elif layer.kind == "add" and not layer.shifts:
        tiles *= 2
    if started and found == CLIPPED:
        return started
    return (clear(tiles) if found == ANYTHING or not started else raised(tiles), *started)


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
    elif layer.kind == "add":  # a piece of a group may hold the input of the whole
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
    """Return kernels that copy each input tile to all its output tiles: one per position in the repeat pattern."""
    tall, wide = layer.repeat
    rows = group.rows
    columns = group.columns
    kernels = []
    for y, x in np.ndindex(min(tall, rows.extent), min(wide, columns.extent)):
        dims = (
            Dim(group.outs.size, group.pixels, rows.size * columns.size),
            Dim(-(-(rows.extent - y) // tall), tall * columns.extent, columns.size),
            Dim(-(-(columns.extent - x) // wide), wide, 1),
        )
        src = (y + rows.offset) // tall * columns.size + (x + columns.offset) // wide
        kernels += nest(merged(dims), (y * columns.extent + x, src, 0), limit)
    return kernels


def closing(layer: Layer, group: Group, above: Span | None, limit: int, copies: bool) -> tuple[Step, ...]:
    """Return the ALU steps between a group's sums and its store.

    `above`: the rows of the previous group. `copies`: whether the ALU, without other steps, must copy the lowest byte
    of the sums to the out memory.
    """
    if layer.kind == "max":
        return _maximum(layer, group, limit)
    pooled = maxima(group.rows, group.columns, group.outs.size, above, limit) if layer.pool else ()
    if layer.codes:
        return (*pooled, *epilogue(layer, group, limit))
    return (copy(group.tiles),) if copies else ()


@lru_cache(maxsize=1024)
def copy(tiles: int) -> Step:
    return Step(over(tiles), AluOp.ADD, 0)


def _maximum(layer: Layer, group: Group, limit: int) -> tuple[Step, ...]:
    """Return the ALU steps that compare, tap by tap, the codes that identity weights copied into accumulators."""
    rows = group.rows
    columns = group.columns
    outs = group.outs.size
    window = layer.window
    first = group.tiles
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
    """The cycles of instructions and transfers on a machine, under timing model `name`."""

    def __init__(self, config: Config, name: str) -> None:
        self.config = config
        self.timing = MODELS[name]
        self.intervals: Intervals = self.timing.intervals(config)
        self.handover: Handover = self.timing.handover(config)
        port = self.timing.channel(config)
        self.beat = port.beat_bytes  # that the DRAM port moves in one cycle
        self.latency = port.latency if port.burst else 0  # from the request of a transfer to its first data
        self.row = 0 if port.in_flight else self.latency  # before each row, unless requested while another arrives
        self._joined: dict[Run, tuple[Step, ...]] = {}

    def step(self, step: Step) -> int:
        """Return the cycles of a GEMM or ALU instruction."""
        once = self.timing.dispatch + self.timing.once(step.op, step.kernel.outer.extent)
        return self.intervals.of(step.op, step.imm is not None) * step.kernel.micro_ops + once

    def box(self, parts: Iterable[TileTransfer], chip: Sram) -> int:
        """Return the cycles that the DRAM port takes for transfers `parts` to or from on-chip memory `chip`."""
        return sum(part.rows * self.row + -(-part.rows * part.length * chip.tile_bytes // self.beat) for part in parts)

    def joined(self, run: Run) -> tuple[Step, ...]:
        """Return a run's stand-in for timing: one step with equal cycles and listed micro-ops, which computes nothing.

        Runs with rescaling steps stay as they are, because their time depends on the operands.
        """
        if run not in self._joined:
            steps = run.steps
            first = run.steps[0]
            listed = sum(len(step.kernel.dst) for step in steps)
            room = self.config.sram(self.config.pipeline.uop_memory(alu=first.op is not None)).depth // 4
            if len(steps) > 1 and listed <= room and not any(step.op in RESCALING for step in steps):
                cycles = sum(map(self.step, steps)) // self.intervals.of(first.op, first.imm is not None)
                nothing = np.zeros(listed, np.int64)
                steps = (first._replace(kernel=RelativeKernel(nothing, nothing, nothing, ONE, ONE, cycles)),)
            self._joined[run] = steps
        return self._joined[run]


@lru_cache(maxsize=16)
def costs_of(config: Config, name: str) -> Costs:
    """Return the `Costs` of a machine; they are cached, so that Costs.joined works once for each run of steps."""
    return Costs(config, name)
