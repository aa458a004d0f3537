"""GEMM and ALU instructions, with tile indices relative to slots (see plan.py), and how they compute sums.

An instruction is a list of micro-ops inside two loops. For a rectangle of outputs with the same valid taps, the sums
are a nest of affine loops over taps, input channels, rows, columns and output channels. These loops are called
dimensions. Two dimensions become the loops of the instruction. Other dimensions are listed as micro-ops, or unrolled
into separate instructions.

A maximum pool with strides (s, t) divides the rows of sums into s phases (every s-th row), and the columns into t
phases (see layer.Phase). The sums of a group lie in its accumulator slot as one block for each pair of phases: [channel
tile][row][column], without gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, combinations, groupby, permutations, product
from math import prod
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ops import Window
from tilewright.targets.vta.compiler.layer import Layer, Phase, Span
from tilewright.targets.vta.isa.alu import WRITE_BACK, AluOp

#: Assumed extra cycles per instruction, for comparisons of alternatives. Upstream's HLS design takes 1 cycle.
OVERHEAD = 3
#: Assumed cycles to load a listed micro-op. One load takes half a cycle, but serves several instructions.
LISTED = 0.2


class Dim(NamedTuple):
    """A loop of `extent` iterations, each of which adds `dst`, `src` and `wgt` to the tile indices."""

    extent: int
    dst: int = 0
    src: int = 0
    wgt: int = 0
    sums: bool = False  # whether all iterations add to the same outputs


#: A loop of one iteration.
SINGLE = Dim(1)


@dataclass(frozen=True, eq=False)
class RelativeKernel:
    """One instruction: m listed micro-ops, with tile indices (int64 [m]) relative to slots, inside two loops."""

    dst: Array
    src: Array
    wgt: Array
    outer: Dim
    inner: Dim
    joined: int = 0  # in timing only: the micro-ops of all replaced instructions (see Costs.joined)

    @cached_property
    def micro_ops(self) -> int:
        return self.joined or len(self.dst) * self.outer.extent * self.inner.extent


class Block(NamedTuple):
    """The channel tiles of a chunk: `outs` output tiles, each a sum over `sums` input tiles."""

    outs: int
    sums: int


class SumPart(NamedTuple):
    """A block of a group's sums in an accumulator slot, or with `copies` several blocks with the same taps."""

    rows: tuple[int, int, int, tuple[tuple[int, int, int, int], ...]]
    columns: tuple[int, int, int, tuple[tuple[int, int, int, int], ...]]
    first: int  # the slot's tile at which the block starts
    width: int  # tiles from each row to the next row
    plane: int  # tiles from each channel tile to the next channel tile
    step: tuple[int, int] = (1, 1)  # by axis, the distance of neighbouring sums in the image (a pool: its stride)
    copies: tuple[Dim, ...] = ()  # the dimensions that repeat the sums for other blocks


class Blocks(NamedTuple):
    """The blocks of a group's sums: `outs` channel tiles for each pair of a row phase and a column phase."""

    outs: int
    rows: tuple[Phase, ...]
    columns: tuple[Phase, ...]

    @property
    def width(self) -> int:
        return sum(phase.span.extent for phase in self.columns)

    def tiles(self, y: int, x: int) -> int:
        """Return the number of tiles in each channel tile of a block."""
        return self.rows[y].span.extent * self.columns[x].span.extent

    def at(self, y: int, x: int) -> int:
        """Return the first tile in a slot of the block of row phase number `y` and column phase number `x`."""
        above = sum(phase.span.extent for phase in self.rows[:y]) * self.width
        left = sum(phase.span.extent for phase in self.columns[:x]) * self.rows[y].span.extent
        return self.outs * (above + left)


def sum_kernels(layer: Layer, rows: Span, columns: Span, block: Block, limit: int) -> Iterator[RelativeKernel]:
    """Yield the GEMM instructions that add a chunk's products to a group's sums, each with up to `limit` micro-ops."""
    form = layer.window, layer.link == "diagonal", layer.shared
    if layer.pool is None:
        part = SumPart(rows.shape[:4], columns.shape[:4], 0, columns.extent, rows.extent * columns.extent)
        yield from _sum_kernels(*form, part, block, limit)
        return
    assert rows.pooled and columns.pooled
    blocks = Blocks(block.outs, rows.pooled.phases, columns.pooled.phases)
    # Two phases with the same extent and taps become one nest of loops, with an extra dimension for the phases.
    for ys, xs in product(_equal_phases(blocks.rows), _equal_phases(blocks.columns)):
        y, x = (ys[0], xs[0])
        row, column = (blocks.rows[ys[0]].span, blocks.columns[xs[0]].span)
        copies = [
            Dim(len(group), at - blocks.at(y, x), (phases[group[-1]].span.offset - first.offset) * scale)
            for group, phases, first, scale, at in (
                (ys, blocks.rows, row, columns.size, blocks.at(ys[-1], x)),
                (xs, blocks.columns, column, 1, blocks.at(y, xs[-1])),
            )
            if len(group) > 1
        ]
        place = blocks.at(y, x), column.extent, row.extent * column.extent
        part = SumPart(row.shape[:4], column.shape[:4], *place, layer.pool.stride, tuple(copies))
        yield from _sum_kernels(*form, part, block, limit)


def _equal_phases(phases: tuple[Phase, ...]) -> list[tuple[int, ...]]:
    """Return groups of phase numbers: two phases with the same extent and taps need only one nest of loops."""
    spans = [phase.span for phase in phases]
    if len({(span.extent, span.taps) for span in spans}) == 1 and len(spans) == 2 and spans[0].offset < spans[1].offset:
        return [(0, 1)]
    return [(number,) for number in range(len(phases))]


@lru_cache(maxsize=4096)
def _sum_kernels(
    window: Window, diagonal: bool, shared: bool, part: SumPart, block: Block, limit: int
) -> tuple[RelativeKernel, ...]:
    stride = window.stride[0] * part.step[0], window.stride[1] * part.step[1]
    dilation = window.dilation
    taps = prod(window.kernel)
    _, in_height, row_offset, vertical = part.rows
    _, in_width, column_offset, horizontal = part.columns
    plane = in_height * in_width
    w = 0 if shared else 1  # a pool uses the same weight tile at every tap
    kernels: list[RelativeKernel] = []
    for y, ys, top, bottom in vertical:
        for x, xs, left, right in horizontal:
            # The input tile that tap (y, x) of output (top, left) reads.
            src = (top * stride[0] + y * dilation[0] + row_offset) * in_width
            src += left * stride[1] + x * dilation[1] + column_offset
            dims = (
                Dim(block.sums, 0, plane, w * taps, True),
                Dim(ys, 0, dilation[0] * in_width, w * window.kernel[1], True),
                Dim(xs, 0, dilation[1], w, True),
                Dim(block.outs, part.plane, plane if diagonal else 0, w * block.sums * taps),
                Dim(bottom - top, part.width, stride[0] * in_width),
                Dim(right - left, 1, stride[1]),
                *part.copies,
            )
            base = part.first + top * part.width + left, src, w * (y * window.kernel[1] + x)
            kernels += nest(merged(dims), base, limit)
    return tuple(kernels)


def merged(dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """Merge the dimensions of a nest of loops where possible, and drop dimensions of extent 1."""
    kept = [dim for dim in dims if dim.extent > 1]
    for outer, inner in permutations(kept, 2):
        # For all three indices, a step of the outer dimension must equal all steps of the inner dimension.
        if outer.sums == inner.sums and outer[1:4] == tuple(inner.extent * step for step in inner[1:4]):
            joined = inner._replace(extent=outer.extent * inner.extent)
            return merged([joined if dim is inner else dim for dim in kept if dim is not outer])
    return tuple(kept)


def nest(dims: tuple[Dim, ...], base: tuple[int, int, int], limit: int) -> list[RelativeKernel]:
    """Return instructions for all iterations of `dims`, from tile indices `base` on, with lists of at most `limit`."""
    choice = _choose(dims, limit)
    kernels = []
    for start in _offsets(choice.instructions, base).T:
        listed = _offsets(choice.listed, tuple(start))
        for first in range(0, listed.shape[1], limit):
            part = listed[:, first : first + limit]
            kernels.append(RelativeKernel(part[0], part[1], part[2], choice.outer, choice.inner))
    return kernels


def _offsets(dims: tuple[Dim, ...], base: Sequence[int]) -> Array:
    """Return the three tile indices of all iterations, int64 [3, iterations]; the last dimension varies fastest."""
    total = np.array(base, np.int64)[:, None]
    for dim in dims:
        steps = np.array(dim[1:4], np.int64)[:, None] * np.arange(dim.extent)
        total = (total[:, :, None] + steps[:, None, :]).reshape(3, -1)
    return total


class Choice(NamedTuple):
    """The use of each dimension: separate instructions, one of an instruction's two loops, or listed micro-ops."""

    instructions: tuple[Dim, ...]
    outer: Dim
    inner: Dim
    listed: tuple[Dim, ...]


@lru_cache(maxsize=16384)
def _choose(dims: tuple[Dim, ...], limit: int) -> Choice:
    """Return the cheapest choice of loops, lists and separate instructions for the dimensions of a nest."""
    # Only loops over sums may become separate instructions, because their iterations write the same outputs.
    sums = [dim for dim in dims if dim.sums]
    best = None
    # All choices are tried: there are at most eight dimensions.
    best_cost = float("inf")
    for separate in chain.from_iterable(combinations(sums, count) for count in range(len(sums) + 1)):
        rest = [dim for dim in dims if dim not in separate]
        instructions = prod(dim.extent for dim in separate)
        for outer, inner in (*permutations(rest, 2), *((dim, SINGLE) for dim in rest), (SINGLE, SINGLE)):
            listed = tuple(dim for dim in rest if dim is not outer and dim is not inner)
            length = prod(dim.extent for dim in listed)
            cost = instructions * (OVERHEAD + LISTED * length)
            # Two writes of a tile must be WRITE_BACK micro-ops apart, because the core reads an accumulator while the
            # previous micro-op's write is still pending.
            if cost < best_cost and length <= limit and _far_enough(listed, outer, inner):
                # Outputs vary fastest in the list, so that writes of other tiles come between two writes of a tile.
                order = tuple(sorted(listed, key=attrgetter("sums"), reverse=True))
                best = Choice(separate, outer, inner, order)
                best_cost = cost
    if best is None:  # every list exceeds `limit`: `nest` splits the list
        best = Choice(tuple(sums), SINGLE, SINGLE, tuple(dim for dim in dims if not dim.sums))
    return best


def _far_enough(listed: Sequence[Dim], outer: Dim, inner: Dim) -> bool:
    """Return whether two writes of an output are at least WRITE_BACK micro-ops apart."""
    # The list runs inside the inner loop, and outputs vary fastest in the list.
    outputs = prod(dim.extent for dim in listed if not dim.sums)
    if outputs >= WRITE_BACK:
        return True
    if any(dim.sums and dim.extent > 1 for dim in listed):
        return False
    if inner.sums and inner.extent > 1:
        return False
    return not outer.sums or outer.extent == 1 or outputs * inner.extent >= WRITE_BACK


class Step(NamedTuple):
    """A GEMM instruction (`op` is None) or an ALU instruction, with tile indices relative to slots."""

    kernel: RelativeKernel
    op: AluOp | None = None
    imm: int | None = None  # the second operand of the ALU; None: a tile
    reset: bool = False  # whether the GEMM clears its tiles
    parameters: bool = False  # whether the second operand is a parameter tile
    factor: int = 0  # REQ: tiles from the factors of an outer iteration to those of the next
    above: bool = False  # whether the second operand is in the slot of the previous group


@dataclass(frozen=True, eq=False)
class Run:
    """Consecutive GEMM or ALU steps that use the same slots. Equal runs are one object, compared by identity."""

    steps: tuple[Step, ...]


@lru_cache(maxsize=4096)
def runs(steps: tuple[Step, ...], by_step: bool = False) -> tuple[Run, ...]:
    """Group consecutive steps that use the same slots into runs; with `by_step`, each step is a separate run."""
    if by_step:
        return tuple(Run((step,)) for step in steps)
    return tuple(
        Run(tuple(run)) for _, run in groupby(steps, lambda step: (step.op is None, step.parameters, step.above))
    )


@lru_cache(maxsize=1024)
def over(tiles: int, first: int = 0) -> RelativeKernel:
    """Return the instruction that updates `tiles` tiles of a slot in place, starting at the slot's tile `first`."""
    start = np.full(1, first, np.int64)
    return RelativeKernel(start, start, np.zeros(1, np.int64), SINGLE, Dim(tiles, 1, 1))
