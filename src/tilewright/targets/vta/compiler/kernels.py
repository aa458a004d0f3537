"""Instructions of the compute units relative to the slots that they work on, and how the sums of a tile become such.

An instruction is a list of micro-ops and two loops. A rectangle of outputs for which the same taps are valid is a nest
of affine dimensions (taps, input channels, rows, columns, output channels). Two of them become the instruction's loops,
some may be left to separate instructions, the rest is listed as micro-ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, groupby, permutations
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.compiler.layer import Layer, Span
from tilewright.targets.vta.isa.alu import AluOp

#: No accumulator tile may be written twice within this many micro-ops (upstream's runtime: VerifyDep).
DISTANCE = 3
#: Assumed cycles of an instruction besides its micro-ops: 1 in HLS. For choices only.
OVERHEAD = 3
#: Assumed cost of a listed micro-op, cycles: loading it takes a half, and lists are used again.
LISTED = 0.2


class Dim(NamedTuple):
    """`extent` steps that move the three tile indices; `sums`: a reduction, every step adds to one output."""

    extent: int
    dst: int
    src: int
    wgt: int
    sums: bool


ONE = Dim(1, 0, 0, 0, False)


@dataclass(frozen=True, eq=False)
class Kernel:
    """One instruction relative to its slots: listed micro-ops (int64 [m] each) under two loops."""

    dst: Array
    src: Array
    wgt: Array
    outer: Dim
    inner: Dim
    joined: int = 0  # micro-ops of several instructions that are timed as one (see Costs.joined)

    @cached_property
    def micro_ops(self) -> int:
        return self.joined or len(self.dst) * self.outer.extent * self.inner.extent


class Block(NamedTuple):
    """Channel tiles of one instruction group: `outs` output and `sums` input channel tiles (1 when diagonal)."""

    outs: int
    sums: int


def sum_kernels(layer: Layer, rows: Span, columns: Span, block: Block, limit: int) -> tuple[Kernel, ...]:
    """The GEMM instructions that add one chunk of input channels to a tile; `limit`: longest list allowed."""
    return _sum_kernels(
        layer.window.kernel[1],
        layer.window.stride,
        layer.window.dilation,
        layer.taps,
        layer.link == "diagonal",
        layer.shared,
        rows.shape,
        columns.shape,
        block,
        limit,
    )


def rectangles(rows: Span, columns: Span) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
    """(first tap row, taps, low, high, first tap column, taps, low, high) of every rectangle."""
    for vertical in rows.taps:
        for horizontal in columns.taps:
            yield (*vertical, *horizontal)


@lru_cache(maxsize=4096)
def _sum_kernels(
    kernel_width: int,
    stride: tuple[int, int],
    dilation: tuple[int, int],
    taps: int,
    diagonal: bool,
    shared: bool,
    row_shape: tuple[int, int, int, tuple[tuple[int, int, int, int], ...]],
    column_shape: tuple[int, int, int, tuple[tuple[int, int, int, int], ...]],
    block: Block,
    limit: int,
) -> tuple[Kernel, ...]:
    height, in_height, row_offset, vertical = row_shape
    width, in_width, column_offset, horizontal = column_shape
    plane = in_height * in_width
    w = 0 if shared else 1
    kernels: list[Kernel] = []
    for y, ys, top, bottom in vertical:
        for x, xs, left, right in horizontal:
            src = (top * stride[0] + y * dilation[0] + row_offset) * in_width
            src += left * stride[1] + x * dilation[1] + column_offset
            dims = (
                Dim(block.sums, 0, plane, w * taps, True),
                Dim(ys, 0, dilation[0] * in_width, w * kernel_width, True),
                Dim(xs, 0, dilation[1], w, True),
                Dim(block.outs, height * width, plane if diagonal else 0, w * block.sums * taps, False),
                Dim(bottom - top, width, stride[0] * in_width, 0, False),
                Dim(right - left, 1, stride[1], 0, False),
            )
            kernels += nest(merged(dims), (top * width + left, src, w * (y * kernel_width + x)), limit)
    return tuple(kernels)


def merged(dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """Dimensions of one step dropped, and neighbours joined where together they are one affine dimension."""
    kept = [dim for dim in dims if dim.extent > 1]
    for outer, inner in permutations(kept, 2):
        if outer.sums == inner.sums and outer[1:4] == tuple(inner.extent * step for step in inner[1:4]):
            joined = inner._replace(extent=outer.extent * inner.extent)
            return merged([joined if dim is inner else dim for dim in kept if dim is not outer])
    return tuple(kept)


def nest(dims: tuple[Dim, ...], base: tuple[int, int, int], limit: int) -> list[Kernel]:
    """Instructions for all steps of `dims` from the tile indices `base`."""
    choice = _choose(dims, limit)
    kernels = []
    for start in _offsets(choice.apart, base).T:
        listed = _offsets(choice.listed, tuple(start))
        for first in range(0, listed.shape[1], limit):
            part = listed[:, first : first + limit]
            kernels.append(Kernel(part[0], part[1], part[2], choice.outer, choice.inner))
    return kernels


def _offsets(dims: tuple[Dim, ...], base: Sequence[int]) -> Array:
    """Tile indices int64 [3, product of extents], the last dimension fastest."""
    total = np.array(base, np.int64)[:, None]
    for dim in dims:
        steps = np.array(dim[1:4], np.int64)[:, None] * np.arange(dim.extent)
        total = (total[:, :, None] + steps[:, None, :]).reshape(3, -1)
    return total


class Choice(NamedTuple):
    """Which dimensions are separate instructions, loops and listed micro-ops (reductions first)."""

    apart: tuple[Dim, ...]
    outer: Dim
    inner: Dim
    listed: tuple[Dim, ...]


@lru_cache(maxsize=16384)
def _choose(dims: tuple[Dim, ...], limit: int) -> Choice:
    """The cheapest legal choice: few instructions, short lists, no accumulator tile written again too soon."""
    sums = [dim for dim in dims if dim.sums]
    best, best_cost = None, float("inf")
    for count in range(len(sums) + 1):
        for apart in combinations(sums, count):
            rest = [dim for dim in dims if dim not in apart]
            instructions = prod(dim.extent for dim in apart)
            if instructions * OVERHEAD >= best_cost:
                continue
            for outer, inner in (*permutations(rest, 2), *((dim, ONE) for dim in rest), (ONE, ONE)):
                listed = tuple(dim for dim in rest if dim is not outer and dim is not inner)
                length = prod(dim.extent for dim in listed)
                cost = instructions * (OVERHEAD + LISTED * length)
                if cost < best_cost and length <= limit and _apart_enough(listed, outer, inner):
                    order = (*(d for d in listed if d.sums), *(d for d in listed if not d.sums))
                    best, best_cost = Choice(apart, outer, inner, order), cost
    if best is None:  # only the limit forbids: single sums, their lists split
        best = Choice(tuple(sums), ONE, ONE, tuple(dim for dim in dims if not dim.sums))
    return best


def _apart_enough(listed: Sequence[Dim], outer: Dim, inner: Dim) -> bool:
    """Whether writes of one output are DISTANCE micro-ops apart; listed reductions are outside listed outputs."""
    outputs = prod(dim.extent for dim in listed if not dim.sums)
    if outputs >= DISTANCE:
        return True
    if any(dim.sums and dim.extent > 1 for dim in listed):
        return False
    if inner.sums and inner.extent > 1:
        return False
    return not outer.sums or outer.extent == 1 or outputs * inner.extent >= DISTANCE


class Step(NamedTuple):
    """A GEMM (`op` None) or ALU instruction; `reset` GEMMs clear. `imm` None: two operands from acc.

    `parameters`: the second operand is one; `factor`: of REQ, tiles from one outer iteration's factors to the next.
    """

    kernel: Kernel
    op: AluOp | None = None
    imm: int | None = None
    reset: bool = False
    parameters: bool = False
    factor: int = 0


@dataclass(frozen=True, eq=False)
class Run:
    """Steps of one unit with the same operands, one behind the other; one object wherever they recur."""

    steps: tuple[Step, ...]


@lru_cache(maxsize=4096)
def runs(steps: tuple[Step, ...], apart: bool = False) -> tuple[Run, ...]:
    """Steps as runs of equal operands, or each `apart`."""
    if apart:
        return tuple(Run((step,)) for step in steps)
    return tuple(Run(tuple(run)) for _, run in groupby(steps, lambda step: (step.op is None, step.parameters)))


@lru_cache(maxsize=1024)
def over(tiles: int, first: int = 0) -> Kernel:
    """Each of `tiles` tiles from the slot's tile `first`, in place."""
    start = np.full(1, first, np.int64)
    return Kernel(start, start, np.zeros(1, np.int64), ONE, Dim(tiles, 1, 1, 0, False))
