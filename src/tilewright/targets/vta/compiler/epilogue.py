"""The epilogue of a group of outputs (see plan.py): ALU instructions that pool and requantise sums, or add tensors.

The parameters of a channel tile are consecutive: one bias tile per class (see layer.Requantisation), then three tiles
of factors. The factors of the operation REQ are multipliers, scaling and bounds. The factors of an ALU without REQ are
multipliers, left shifts (negated) and right shifts.

Requantisation is monotonic, so the largest sum has the largest code. A maximum pool therefore compares sums, in the
blocks of kernels.Blocks. Comparisons run in place: first of rows, then of columns. The first block receives the
results. The blocks of the other row phases do not change, and the next group below reads shared rows from these blocks
instead of computing the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tilewright.targets.vta.compiler.kernels import SINGLE, Blocks, Dim, RelativeKernel, Step, merged, nest, over
from tilewright.targets.vta.compiler.layer import (
    Layer,
    Phase,
    Pooled,
    Requantisation,
    RequantisationKey,
    Residual,
    Span,
)
from tilewright.targets.vta.compiler.plan import Group
from tilewright.targets.vta.isa.alu import LARGEST_SHIFT, AluOp

#: The smallest immediate. After a group was clipped or cleared, its accumulators are not below this value.
FLOOR = -(1 << 15)
#: Bits by which TFLite's ADD shifts its operands to the left before it rescales them (add.h).
ADD_LEFT_SHIFT = 20


class Patch(NamedTuple):
    """A rectangle of a group's tiles that use the same bias tile `bias`: rows top..bottom-1, columns left..right-1."""

    top: int
    bottom: int
    left: int
    right: int
    bias: int


class Box(NamedTuple):
    """A box of a slot, from tile `first` on: `outs` channel tiles, each of `pixels` tiles in rows of `width` tiles."""

    outs: int
    pixels: int
    width: int
    first: int = 0

    @classmethod
    def of(cls, group: Group) -> Box:
        return cls(group.outs.size, group.pixels, group.columns.extent)


def epilogue(layer: Layer, group: Group, limit: int) -> tuple[Step, ...]:
    """Return the ALU steps that requantise the sums of a group to codes; each step lists at most `limit` micro-ops."""
    requantisation = layer.requantisation
    assert requantisation
    if layer.kind == "add" and layer.shifts:
        return _shifted(requantisation.key, group.tiles, rounds=True)
    if layer.kind == "add":
        return _add(requantisation.key, group.tiles)
    return _requantise(requantisation.key, _patches(requantisation, group, limit), Box.of(group), 0)


def start_steps(layer: Layer, group: Group, limit: int) -> tuple[Step, ...]:
    """Return the ALU steps that start a group's accumulators (see joint.py), or () if GEMM clears the accumulators."""
    requantisation = layer.requantisation
    if requantisation is None or requantisation.start == "zero":
        return ()
    if requantisation.start == "constant":
        return (Step(over(group.sums), AluOp.MIN, FLOOR),)
    if group.rows.pooled and group.columns.pooled:
        # All sums of a pooled layer have the same bias. Each block (for one pair of phases) counts as one row of tiles.
        blocks = Blocks(group.outs.size, group.rows.pooled.phases, group.columns.pooled.phases)
        places = [(blocks.at(y, x), blocks.tiles(y, x)) for y, x in np.ndindex(len(blocks.rows), len(blocks.columns))]
        parts = [(Patch(0, 1, 0, tiles, 0), Box(blocks.outs, tiles, tiles, first)) for first, tiles in places]
        return _biased(requantisation.key, tuple(parts))
    return _biased(
        requantisation.key, tuple((patch, Box.of(group)) for patch in _patches(requantisation, group, limit))
    )


def _patches(requantisation: Requantisation, group: Group, limit: int) -> tuple[Patch, ...]:
    rows = requantisation.rows[group.rows.start : group.rows.start + group.rows.extent]
    columns = requantisation.columns[group.columns.start : group.columns.start + group.columns.extent]
    return tuple(
        part
        for top, bottom, y in _runs(rows)
        for left, right, x in _runs(columns)
        for part in _cut(
            Patch(top, bottom, left, right, y * requantisation.classes[1] + x), group.columns.extent, limit
        )
    )


def _runs(classes: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield (first index, one past the last, class) for each run of equal classes."""
    at = 0
    for value, run in groupby(classes):
        length = len(list(run))
        yield at, at + length, value
        at += length


def _cut(patch: Patch, width: int, limit: int) -> Iterator[Patch]:
    """Yield a patch in parts whose shorter side, which is listed as micro-ops, has at most `limit` tiles."""
    top, bottom, left, right, _ = patch
    # A patch as wide as the group is consecutive, so one loop covers it without a list.
    if right - left == width:
        yield patch
    elif bottom - top >= right - left:
        for at in range(left, right, limit):
            yield patch._replace(left=at, right=min(at + limit, right))
    else:
        for at in range(top, bottom, limit):
            yield patch._replace(top=at, bottom=min(at + limit, bottom))


@lru_cache(maxsize=1024)
def _add(key: RequantisationKey, tiles: int) -> tuple[Step, ...]:
    """Return the ALU steps that rescale two operands, add them, and rescale the sum."""
    whole = (Patch(0, 1, 0, tiles, 0),)
    start = np.zeros(1, np.int64)
    total = RelativeKernel(start, start + tiles, start, SINGLE, Dim(tiles, 1, 1))
    # In the slot, the second operand follows the first. The parameters of the three rescalings have the order of the
    # steps.
    operands = [_requantise(key, whole, Box(1, tiles, tiles, k * tiles), k * key.tiles, False) for k in (0, 1)]
    result = _requantise(key, whole, Box(1, tiles, tiles), 2 * key.tiles)
    return (*operands[0], *operands[1], Step(total, AluOp.ADD), *result)


@lru_cache(maxsize=4096)
def _requantise(
    key: RequantisationKey, patches: tuple[Patch, ...], box: Box, parameters: int, to_codes: bool = True
) -> tuple[Step, ...]:
    """Return the ALU steps that requantise the tiles of a box. `parameters`: the first parameter tile."""
    factors = parameters + key.biases

    def tensor(op: AluOp, patch: Patch, source: int) -> Step:
        return _tensor(op, patch, source, key, box, factors)

    if key.immediates is None:
        return tuple(tensor(AluOp.REQ, patch, parameters + patch.bias) for patch in patches)
    zero_point, low, high, left, shift = key.immediates
    if shift is not None:  # the bias includes the rounding half
        added = patches if key.start != "bias" else ()
        biases = tuple(tensor(AluOp.ADD, patch, parameters + patch.bias) for patch in added)
        return (*biases, *_shifted(key, box.outs * box.pixels, rounds=False))
    whole = Patch(0, box.pixels // box.width, 0, box.width, 0)
    # The factors are three tiles: multipliers, left shifts, right shifts. Left shifts are negated, as RSHR by a
    # negative amount shifts left.
    return (
        *(tensor(AluOp.ADD, patch, parameters + patch.bias) for patch in patches),
        *([tensor(AluOp.RSHR, whole, factors + 1)] if left else []),
        tensor(AluOp.MULH, whole, factors),
        tensor(AluOp.RSHR, whole, factors + 2),
        *(
            Step(over(box.outs * box.pixels, box.first), op, imm)
            for op, imm in ((AluOp.ADD, zero_point), (AluOp.MAX, low), (AluOp.MIN, high))
            if to_codes
        ),
    )


def _tensor(op: AluOp, patch: Patch, source: int, key: RequantisationKey, box: Box, factors: int) -> Step:
    """Return the step that applies `op` to a patch, with parameter tile `source` of each channel tile as operand."""
    dst, inner = _tiles(patch, box.width)
    ones = np.ones_like(dst)
    channels = Dim(box.outs, box.pixels, key.tiles) if box.outs > 1 else SINGLE
    kernel = RelativeKernel(dst + box.first, ones * source, ones * factors, channels, inner)
    return Step(kernel, op, None, False, True, key.tiles)


@lru_cache(maxsize=1024)
def _biased(key: RequantisationKey, parts: tuple[tuple[Patch, Box], ...]) -> tuple[Step, ...]:
    """Return the ALU steps that set patches to their biases, by a minimum with older, larger values."""
    return tuple(_tensor(AluOp.MIN, patch, patch.bias, key, box, key.biases) for patch, box in parts)


@lru_cache(maxsize=1024)
def clip_to_floor(tiles: int) -> Step:
    """Return the ALU step that shifts sums of at most 31 bits right, so that the results are not below FLOOR."""
    return Step(over(tiles), AluOp.SHR, LARGEST_SHIFT)


@lru_cache(maxsize=1024)
def _shifted(key: RequantisationKey, tiles: int, rounds: bool) -> tuple[Step, ...]:
    """Return the ALU steps that shift `tiles` tiles right and clamp them; if `rounds`, ties are rounded up."""
    assert key.immediates
    bits = key.immediates.shift or 0
    low = key.immediates.low
    high = key.immediates.high
    half = [Step(over(tiles), AluOp.ADD, 1 << (bits - 1))] if rounds and bits else []
    return (*half, *_right(over(tiles), bits), Step(over(tiles), AluOp.MAX, low), Step(over(tiles), AluOp.MIN, high))


def _right(kernel: RelativeKernel, bits: int) -> Iterator[Step]:
    for done in range(0, bits, LARGEST_SHIFT):
        yield Step(kernel, AluOp.SHR, min(bits - done, LARGEST_SHIFT))


@lru_cache(maxsize=1024)
def residual_steps(residual: Residual, tiles: int) -> tuple[Step, ...]:
    """Return the steps that add `tiles` tiles of codes to the first tiles of an accumulator slot."""
    start = np.zeros(1, np.int64)
    added = Step(RelativeKernel(start, start, start, SINGLE, Dim(tiles, 1, 1)))
    return (added, Step(over(tiles), AluOp.SHR, -residual.left)) if residual.left else (added,)


@lru_cache(maxsize=1024)
def split_shift(steps: tuple[Step, ...], after: int) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Split an epilogue: the first part shifts right by `after` bits. A residual is added between the parts."""
    places = [place for place, step in enumerate(steps) if step.op == AluOp.SHR]
    bits = sum(steps[place].imm or 0 for place in places)
    kernel = steps[places[0]].kernel
    return (
        (*steps[: places[0]], *_right(kernel, after)),
        (*_right(kernel, bits - after), *steps[places[-1] + 1 :]),
    )


def _tiles(patch: Patch, width: int) -> tuple[np.ndarray, Dim]:
    """Return the tiles of a patch to list as micro-ops, and the loop that repeats the list for the other tiles."""
    rows, columns = patch.bottom - patch.top, patch.right - patch.left
    start = patch.top * width + patch.left
    # A patch without gaps needs only one loop.
    if columns == width or rows == 1:
        return np.array([start], np.int64), Dim(rows * columns, 1, 0)
    # The shorter side is listed, so that the list needs fewer micro-ops.
    if rows >= columns:
        return start + np.arange(columns), Dim(rows, width, 0)
    return start + np.arange(rows) * width, Dim(columns, 1, 0)


def maxima(rows: Span, columns: Span, outs: int, above: Span | None, limit: int) -> tuple[Step, ...]:
    """Return the ALU steps that write the maxima of a group's windows to the first block of the group's sums.

    `above`: the rows of the previous group, whose slot may have sums that this group shares.
    """
    assert rows.pooled and columns.pooled
    kept = above.pooled.phases if above and above.pooled and rows.pooled.kept else None
    return _maxima(rows.pooled, columns.pooled, rows.extent, columns.extent, outs, kept, limit)


@lru_cache(maxsize=1024)
def _maxima(
    rows: Pooled, columns: Pooled, height: int, width: int, outs: int, above: tuple[Phase, ...] | None, limit: int
) -> tuple[Step, ...]:
    blocks = Blocks(outs, rows.phases, columns.phases)
    steps: list[Step] = []
    # Rows are compared before columns: the comparisons of columns read block (0, x), which has the maxima of the rows.
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
    """Yield (phase number, (low, high, first)) for each tap of a pool, except the tap of the first phase.

    The windows of outputs low..high-1 contain the tap. Sum `first` of the phase is the tap in the window of output
    `low`.
    """
    for number, phase in enumerate(axis.phases):
        # A phase with `twice` has two taps.
        for later in range(1 + phase.twice) if number else ():
            low = max(0, phase.first - later)
            high = min(extent, phase.first + phase.span.extent - later)
            if low < high:
                yield number, (low, high, low + later - phase.first)


def _kept(blocks: Blocks, above: Blocks, limit: int) -> Iterator[Step]:
    """Yield the steps that compare the first row of outputs with the last row of sums of the group above."""
    for y, phase in enumerate(above.rows):
        for x, column in enumerate(blocks.columns) if y and phase.twice else ():
            wide = column.span.extent
            tall = phase.span.extent
            dims = Dim(blocks.outs, blocks.rows[0].span.extent * wide, tall * wide), Dim(wide, 1, 1)
            src = above.at(y, x) + (tall - 1) * wide
            yield from (step._replace(above=True) for step in _larger(dims, blocks.at(0, x), src, limit))


def _larger(dims: tuple[Dim, ...], dst: int, src: int, limit: int) -> Iterator[Step]:
    for kernel in nest(merged(dims), (dst, src, 0), limit):
        yield Step(kernel, AluOp.MAX)
