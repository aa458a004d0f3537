"""Maximum pools on the sums of a layer, before they are requantised: the layout of sums, and the comparisons.

Requantisation never decreases, so the code of the largest sum is the largest code. A pool with strides (s, t) divides
the rows of sums into s phases (every s-th row) and the columns into t (see layer.Phase). The sums of a group lie in its
accumulator slot as one block for each pair of phases: [channel tile][row][column], without gaps. Comparisons run in
place: first of rows, then of columns. They leave the results in the first block. Blocks of other row phases stay as
they were, so the next group below can read the rows there that it shares, instead of computing them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from tilewright.targets.vta.compiler.kernels import Block, Dim, Kernel, Step, SumPart, merged, nest, sum_kernels
from tilewright.targets.vta.compiler.layer import Layer, Phase, Pooled, Span
from tilewright.targets.vta.isa.alu import AluOp


class Blocks(NamedTuple):
    """The blocks of a group's sums: `outs` channel tiles, and the phases of rows and of columns."""

    outs: int
    rows: tuple[Phase, ...]
    columns: tuple[Phase, ...]

    @property
    def width(self) -> int:
        """The number of columns of sums, in all phases."""
        return sum(phase.span.extent for phase in self.columns)

    def at(self, y: int, x: int) -> int:
        """Return the first tile in a slot of the block of row phase number `y` and column phase number `x`."""
        above = sum(phase.span.extent for phase in self.rows[:y]) * self.width
        left = sum(phase.span.extent for phase in self.columns[:x]) * self.rows[y].span.extent
        return self.outs * (above + left)


def sum_parts(layer: Layer, rows: Span, columns: Span, block: Block, limit: int) -> Iterator[Kernel]:
    """Yield the GEMM instructions that add a chunk's products to a group's sums; see kernels.sum_kernels."""
    assert layer.pool and rows.pooled and columns.pooled
    blocks = Blocks(block.outs, rows.pooled.phases, columns.pooled.phases)
    for ys, xs in product(_alike(blocks.rows), _alike(blocks.columns)):
        (y, x), (row, column) = (ys[0], xs[0]), (blocks.rows[ys[0]].span, blocks.columns[xs[0]].span)
        apart = [
            Dim(len(group), at - blocks.at(y, x), (phases[group[-1]].span.offset - first.offset) * scale)
            for group, phases, first, scale, at in (
                (ys, blocks.rows, row, columns.size, blocks.at(ys[-1], x)),
                (xs, blocks.columns, column, 1, blocks.at(y, xs[-1])),
            )
            if len(group) > 1
        ]
        place = blocks.at(y, x), column.extent, row.extent * column.extent
        part = SumPart(row.shape[:4], column.shape[:4], *place, layer.pool.stride, tuple(apart))
        yield from sum_kernels(layer, part, block, limit)


def _alike(phases: tuple[Phase, ...]) -> list[tuple[int, ...]]:
    """Return groups of phases (their numbers): two phases with the same extent and taps, or one phase."""
    spans = [phase.span for phase in phases]
    if len({(span.extent, span.taps) for span in spans}) == 1 and len(spans) == 2 and spans[0].offset < spans[1].offset:
        return [(0, 1)]
    return [(number,) for number in range(len(phases))]


def maxima(rows: Span, columns: Span, outs: int, above: Span | None, limit: int) -> tuple[Step, ...]:
    """Return the ALU steps that compare a group's sums; `above`: the rows of the previous group, if it keeps some."""
    assert rows.pooled and columns.pooled
    kept = above.pooled.phases if above and above.pooled and rows.pooled.kept else None
    return _maxima(rows.pooled, columns.pooled, rows.extent, columns.extent, outs, kept, limit)


@lru_cache(maxsize=1024)
def _maxima(
    rows: Pooled, columns: Pooled, height: int, width: int, outs: int, above: tuple[Phase, ...] | None, limit: int
) -> tuple[Step, ...]:
    blocks = Blocks(outs, rows.phases, columns.phases)
    steps: list[Step] = []
    if above:
        steps += _kept(blocks, Blocks(outs, above, columns.phases), limit)
    for y, (low, high, first) in _compared(rows, height):
        for x, phase in enumerate(columns.phases):
            wide = phase.span.extent
            dims = Dim(outs, height * wide, rows.phases[y].span.extent * wide), Dim((high - low) * wide, 1, 1)
            steps += _larger(dims, blocks.at(0, x) + low * wide, blocks.at(y, x) + first * wide, limit)
    for x, (low, high, first) in _compared(columns, width):
        dims = Dim(outs * height, width, columns.phases[x].span.extent), Dim(high - low, 1, 1)
        steps += _larger(dims, low, blocks.at(0, x) + first, limit)
    return tuple(steps)


def _compared(axis: Pooled, extent: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield, for each tap but that of the results: its phase's number, and outputs low..high-1 that have it.

    The third number is the sum of the phase that is this tap of output `low`.
    """
    for number, phase in enumerate(axis.phases):
        for later in range(1 + phase.twice) if number else ():
            low = max(0, phase.first - later)
            high = min(extent, phase.first + phase.span.extent - later)
            if low < high:
                yield number, (low, high, low + later - phase.first)


def _kept(blocks: Blocks, above: Blocks, limit: int) -> Iterator[Step]:
    """Yield the steps that compare the first outputs with the last sums of phases that the group above shares."""
    for y, phase in enumerate(above.rows):
        for x, column in enumerate(blocks.columns) if y and phase.twice else ():
            wide, tall = column.span.extent, phase.span.extent
            dims = Dim(blocks.outs, blocks.rows[0].span.extent * wide, tall * wide), Dim(wide, 1, 1)
            src = above.at(y, x) + (tall - 1) * wide
            yield from (step._replace(above=True) for step in _larger(dims, blocks.at(0, x), src, limit))


def _larger(dims: tuple[Dim, ...], dst: int, src: int, limit: int) -> Iterator[Step]:
    for kernel in nest(merged(dims), (dst, src, 0), limit):
        yield Step(kernel, AluOp.MAX)
