"""The epilogue of a group of outputs (see plan.py): ALU instructions that requantise its sums, or add two tensors.

The parameters of a channel tile are consecutive: one bias tile per class (see layer.Codes), then three tiles of
factors. If the ALU has the operation REQ, these are multipliers, scaling and bounds. If not, these are multipliers,
left shifts (negated) and right shifts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tilewright.targets.vta.compiler.kernels import ONE, Dim, Kernel, Step, over
from tilewright.targets.vta.compiler.layer import LARGEST_SHIFT, Codes, Layer, Residual, Words
from tilewright.targets.vta.compiler.plan import Group
from tilewright.targets.vta.compiler.pooling import Blocks
from tilewright.targets.vta.isa.alu import AluOp

#: The smallest immediate: no accumulator holds less after its group was clipped, or cleared.
FLOOR = -(1 << 15)
#: Bits by which TFLite's ADD shifts its operands to the left before it rescales them (add.h).
ADD_LEFT_SHIFT = 20


class Patch(NamedTuple):
    """A rectangle of a group (rows top..bottom-1, columns left..right-1) whose tiles all use bias tile `bias`."""

    top: int
    bottom: int
    left: int
    right: int
    bias: int


class Box(NamedTuple):
    """The tiles of a group in a slot, from tile `first` on: `outs` channel tiles of `pixels` in rows of `width`."""

    outs: int
    pixels: int
    width: int
    first: int = 0

    @classmethod
    def of(cls, group: Group) -> Box:
        return cls(group.outs.size, group.pixels, group.columns.extent)


def epilogue(layer: Layer, group: Group, limit: int) -> tuple[Step, ...]:
    """Return the ALU steps that turn the sums of a group into codes; each step lists at most `limit` micro-ops."""
    codes = layer.codes
    assert codes
    if layer.kind == "add" and layer.shifts:
        return _shifted(codes.words, group.tiles, rounds=True)
    if layer.kind == "add":
        return _add(codes.words, group.tiles)
    return _requantise(codes.words, _patches(codes, group, limit), Box.of(group), 0)


def beginning(layer: Layer, group: Group, limit: int) -> tuple[Step, ...]:
    """Return the ALU steps with which the accumulators of a group start (see joint.py); none if GEMM clears them."""
    codes = layer.codes
    if codes is None or codes.start == "zero":
        return ()
    if codes.start == "constant":
        return (Step(over(group.sums), AluOp.MIN, FLOOR),)
    if group.rows.pooled and group.columns.pooled:
        blocks = Blocks(group.outs.size, group.rows.pooled.phases, group.columns.pooled.phases)
        return _biased_blocks(codes.words, blocks)
    return _biased(codes.words, _patches(codes, group, limit), Box.of(group))


def _patches(codes: Codes, group: Group, limit: int) -> tuple[Patch, ...]:
    rows = codes.rows[group.rows.start : group.rows.start + group.rows.extent]
    columns = codes.columns[group.columns.start : group.columns.start + group.columns.extent]
    return tuple(
        part
        for top, bottom, y in _runs(rows)
        for left, right, x in _runs(columns)
        for part in _cut(Patch(top, bottom, left, right, y * codes.classes[1] + x), group.columns.extent, limit)
    )


def _runs(classes: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield (first index, one past the last, class) for each stretch of consecutive equal classes."""
    at = 0
    for value, run in groupby(classes):
        length = len(list(run))
        yield at, at + length, value
        at += length


def _cut(patch: Patch, width: int, limit: int) -> Iterator[Patch]:
    top, bottom, left, right, _ = patch
    if right - left == width:
        yield patch
    elif bottom - top >= right - left:
        for at in range(left, right, limit):
            yield patch._replace(left=at, right=min(at + limit, right))
    else:
        for at in range(top, bottom, limit):
            yield patch._replace(top=at, bottom=min(at + limit, bottom))


@lru_cache(maxsize=1024)
def _add(words: Words, tiles: int) -> tuple[Step, ...]:
    """Return the ALU steps that rescale two operands, add them and rescale the sum, each with its own parameters."""
    whole = (Patch(0, 1, 0, tiles, 0),)
    start = np.zeros(1, np.int64)
    total = Kernel(start, start + tiles, start, ONE, Dim(tiles, 1, 1))
    operands = [_requantise(words, whole, Box(1, tiles, tiles, k * tiles), k * words.tiles, False) for k in (0, 1)]
    result = _requantise(words, whole, Box(1, tiles, tiles), 2 * words.tiles)
    return (*operands[0], *operands[1], Step(total, AluOp.ADD), *result)


@lru_cache(maxsize=4096)
def _requantise(
    words: Words, patches: tuple[Patch, ...], box: Box, parameters: int, to_codes: bool = True
) -> tuple[Step, ...]:
    """Return the ALU steps that requantise the tiles of a box, with parameters from tile `parameters` on."""
    factors = parameters + words.biases

    def tensor(op: AluOp, patch: Patch, source: int) -> Step:
        return _tensor(op, patch, source, words, box, factors)

    if words.immediates is None:
        return tuple(tensor(AluOp.REQ, patch, parameters + patch.bias) for patch in patches)
    zero_point, low, high, left, shift = words.immediates
    if shift is not None:  # the rounding half is part of the bias
        added = patches if words.start != "bias" else ()
        biases = tuple(tensor(AluOp.ADD, patch, parameters + patch.bias) for patch in added)
        return (*biases, *_shifted(words, box.outs * box.pixels, rounds=False))
    whole = Patch(0, box.pixels // box.width, 0, box.width, 0)
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


def _tensor(op: AluOp, patch: Patch, source: int, words: Words, box: Box, factors: int) -> Step:
    """Return a step: `op` on a patch, with parameter tile `source` of each channel tile as second operand."""
    dst, inner = _tiles(patch, box.width)
    one = np.ones_like(dst)
    channels = Dim(box.outs, box.pixels, words.tiles) if box.outs > 1 else ONE
    kernel = Kernel(dst + box.first, one * source, one * factors, channels, inner)
    return Step(kernel, op, None, False, True, words.tiles)


@lru_cache(maxsize=1024)
def _biased(words: Words, patches: tuple[Patch, ...], box: Box) -> tuple[Step, ...]:
    """Return the ALU steps that set a group's tiles to its biases, which are below all that the tiles can hold."""
    return tuple(_tensor(AluOp.MIN, patch, patch.bias, words, box, words.biases) for patch in patches)


@lru_cache(maxsize=1024)
def _biased_blocks(words: Words, blocks: Blocks) -> tuple[Step, ...]:
    steps = []
    for y, x in np.ndindex(len(blocks.rows), len(blocks.columns)):
        tiles = blocks.rows[y].span.extent * blocks.columns[x].span.extent
        box = Box(blocks.outs, tiles, tiles, blocks.at(y, x))
        steps.append(_tensor(AluOp.MIN, Patch(0, 1, 0, tiles, 0), 0, words, box, words.biases))
    return tuple(steps)


@lru_cache(maxsize=1024)
def raised(tiles: int) -> Step:
    """Return the ALU step after which sums of at most 31 bits are at least FLOOR."""
    return Step(over(tiles), AluOp.SHR, LARGEST_SHIFT)


@lru_cache(maxsize=1024)
def _shifted(words: Words, tiles: int, rounds: bool) -> tuple[Step, ...]:
    """Return the ALU steps that shift `tiles` tiles right and clamp them; `rounds`: add the rounding half first."""
    assert words.immediates
    bits, low, high = words.immediates.shift or 0, words.immediates.low, words.immediates.high
    half = [Step(over(tiles), AluOp.ADD, 1 << (bits - 1))] if rounds and bits else []
    return (*half, *_right(over(tiles), bits), Step(over(tiles), AluOp.MAX, low), Step(over(tiles), AluOp.MIN, high))


def _right(kernel: Kernel, bits: int) -> Iterator[Step]:
    for done in range(0, bits, LARGEST_SHIFT):
        yield Step(kernel, AluOp.SHR, min(bits - done, LARGEST_SHIFT))


@lru_cache(maxsize=1024)
def residual_steps(residual: Residual, tiles: int) -> tuple[Step, ...]:
    """Return the steps that add `tiles` tiles of codes to the first tiles of an accumulator slot."""
    start = np.zeros(1, np.int64)
    added = Step(Kernel(start, start, start, ONE, Dim(tiles, 1, 1)))
    return (added, Step(over(tiles), AluOp.SHR, -residual.left)) if residual.left else (added,)


@lru_cache(maxsize=1024)
def parted(steps: tuple[Step, ...], after: int) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return an epilogue in two parts, between which a residual is added: after `after` bits of the right shift."""
    places = [place for place, step in enumerate(steps) if step.op == AluOp.SHR]
    bits, kernel = sum(steps[place].imm or 0 for place in places), steps[places[0]].kernel
    return (
        (*steps[: places[0]], *_right(kernel, after)),
        (*_right(kernel, bits - after), *steps[places[-1] + 1 :]),
    )


def _tiles(patch: Patch, width: int) -> tuple[np.ndarray, Dim]:
    """Return the tiles of a patch that are listed as micro-ops (its shorter side), and the loop over the others."""
    rows, columns = patch.bottom - patch.top, patch.right - patch.left
    start = patch.top * width + patch.left
    if columns == width or rows == 1:
        return np.array([start], np.int64), Dim(rows * columns, 1, 0)
    if rows >= columns:
        return start + np.arange(columns), Dim(rows, width, 0)
    return start + np.arange(rows) * width, Dim(columns, 1, 0)
