"""What the compute unit does for one group of output tiles: instructions relative to their slots."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilewright.targets.vta.compiler.epilogue import epilogue
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.plan import Chunk, Group, Plan
from tilewright.targets.vta.compiler.step import Step, over
from tilewright.targets.vta.compiler.tile_kernels import ONE, Dim, Kernel, merged, nest, rectangles, sum_kernels
from tilewright.targets.vta.isa.alu import AluOp

#: The code below all others: the maximum of nothing.
LEAST = -128


@lru_cache(maxsize=1024)
def clear(tiles: int) -> Step:
    """Zero tiles from the slot's first."""
    start = np.zeros(1, np.int64)
    return Step(Kernel(start, start, start, ONE, Dim(tiles, 1, 0, 0, False)), reset=True)


@lru_cache(maxsize=1024)
def shift(tiles: int, log_acc_width: int) -> tuple[Step, ...]:
    """The next byte of each accumulator becomes the lowest.

    HLS reads a shift as a signed number of LOG_ACC_WIDTH bits: with 16-bit accumulators 7 is the largest.
    """
    largest = (1 << (log_acc_width - 1)) - 1
    amounts = [8] if largest >= 8 else [largest] * (8 // largest) + [8 % largest] * bool(8 % largest)
    return tuple(Step(over(tiles), AluOp.SHR, amount) for amount in amounts)


def opening(layer: Layer, group: Group) -> tuple[Step, ...]:
    """What needs no data: the group's slot cleared, the outputs and the codes that are compared or added."""
    tiles = group.tiles
    if layer.kind == "max":
        tiles += _compared(group)
    elif layer.kind == "add" and not layer.shifts:
        tiles *= 2
    return (clear(tiles),)


def _compared(group: Group) -> int:
    return group.outs.size * group.rows.size * group.columns.size


def sums(plan: Plan, group: Group, chunk: Chunk, limit: int) -> tuple[Step, ...]:
    """What one chunk of inputs and weights adds. `limit`: micro-ops in a list."""
    layer = plan.layer
    if layer.kind == "sum":
        kernels = sum_kernels(layer, group.rows, group.columns, plan.block(group, chunk), limit)
        return tuple(Step(kernel) for kernel in kernels)
    if layer.kind == "add":
        outs, box = group.outs.size, group.columns.size  # a part of a group may have the input of the whole
        dims = (
            Dim(2, 0 if layer.shifts else group.tiles, outs * box, 0, layer.shifts),
            Dim(outs, group.pixels, box, 0, False),
            Dim(group.pixels, 1, 1, 0, False),
        )
        return tuple(Step(kernel) for kernel in nest(merged(dims), (0, group.columns.offset, 0), limit))
    if layer.kind == "repeat":
        return tuple(Step(kernel) for kernel in _repeated(layer, group, limit))
    return tuple(Step(k) for k in nest((Dim(_compared(group), 1, 1, 0, False),), (group.tiles, 0, 0), limit))


def _repeated(layer: Layer, group: Group, limit: int) -> list[Kernel]:
    """Each input tile into all of its places: an instruction for each place in the pattern."""
    (tall, wide), rows, columns = layer.repeat, group.rows, group.columns
    kernels = []
    for y, x in np.ndindex(min(tall, rows.extent), min(wide, columns.extent)):
        dims = (
            Dim(group.outs.size, group.pixels, rows.size * columns.size, 0, False),
            Dim(-(-(rows.extent - y) // tall), tall * columns.extent, columns.size, 0, False),
            Dim(-(-(columns.extent - x) // wide), wide, 1, 0, False),
        )
        src = (y + rows.offset) // tall * columns.size + (x + columns.offset) // wide
        kernels += nest(merged(dims), (y * columns.extent + x, src, 0), limit)
    return kernels


def closing(layer: Layer, group: Group, limit: int, copies: bool) -> tuple[Step, ...]:
    """What the ALU does with the sums before they are stored.

    `copies`: where it has nothing to do it copies their lowest byte into the out memory.
    """
    if layer.kind == "max":
        return _maximum(layer, group, limit)
    if layer.codes:
        return epilogue(layer, group, limit)
    return (copy(group.tiles),) if copies else ()


@lru_cache(maxsize=1024)
def copy(tiles: int) -> Step:
    return Step(over(tiles), AluOp.ADD, 0)


def _maximum(layer: Layer, group: Group, limit: int) -> tuple[Step, ...]:
    """The ALU compares, tap by tap, codes that identity weights have brought into accumulators."""
    rows, columns, outs = group.rows, group.columns, group.outs.size
    window, plane, first = layer.window, group.rows.size * group.columns.size, group.tiles
    steps = [Step(over(group.tiles), AluOp.MIN, LEAST)]
    for y, ys, top, bottom, x, xs, left, right in rectangles(rows, columns):
        src = (top * window.stride[0] + y * window.dilation[0] + rows.offset) * columns.size
        src += left * window.stride[1] + x * window.dilation[1] + columns.offset
        dims = (
            Dim(ys, 0, window.dilation[0] * columns.size, 0, True),
            Dim(xs, 0, window.dilation[1], 0, True),
            Dim(outs, group.pixels, plane, 0, False),
            Dim(bottom - top, columns.extent, window.stride[0] * columns.size, 0, False),
            Dim(right - left, 1, window.stride[1], 0, False),
        )
        base = (top * columns.extent + left, first + src, 0)
        kept = tuple(dim for dim in dims if dim.extent > 1)
        steps += [Step(kernel, AluOp.MAX) for kernel in nest(kept, base, limit)]
    if layer.clamp:
        steps += [Step(over(group.tiles), op, imm) for op, imm in zip((AluOp.MAX, AluOp.MIN), layer.clamp, strict=True)]
    return tuple(steps)
