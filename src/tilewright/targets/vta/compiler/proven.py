"""Requantisations in float32 that give exactly what an operator gives, found by trial and proven on all codes.

onnxruntime adds two tensors by fused multiply-adds; REQ multiplies one accumulator. Both round the sum of a constant
and two multiples of codes, with errors of their own: results can differ near a tie only. Constants that stand the test
of all 65,536 pairs of codes (of all 256 codes, for one operand) are used; there may be none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import floor, log2
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Node, Quant, Site, Tensor
from tilewright.graph.ops import Add, Op
from tilewright.graph.rounding import Rounding
from tilewright.targets.vta.compiler.lowered import given_back, held_codes, held_zero_point
from tilewright.targets.vta.compiler.parameters import Requantised, Scaling, float_bits
from tilewright.targets.vta.isa.alu import requantise_float

#: Operands are scaled by a power of two that keeps their sum within so many bits.
BITS = 30
#: Constants tried with each of so many powers of two, from that one down; after so many, factors are varied too.
TRIES, EXPONENTS, FIRST = 1000, 3, 50
#: Steps from a tie within which the trials look; the proof looks everywhere.
NEAR = 2.0**-10
#: For one operand: the factor and its nearest neighbours, up or down.
NEIGHBOURS = 8
HELD = np.arange(-128, 128, dtype=np.int32)


def sum_of_two(site: Site, op: Add, rounding: Rounding) -> tuple[Requantised, ...] | None:
    """For each operand and for their sum; None where no constants are right for all pairs."""
    tensors = [_Codes.of(tensor) for tensor in (site.input(0), site.input(1), site.output)]
    return _sum_of_two(op, tensors[0], tensors[1], tensors[2], rounding)


def of_one(site: Site, real: float, rounding: Rounding) -> tuple[Requantised, ...] | None:
    """For an operator of one tensor, about real * (code - zero point); None where no factor is right for all codes."""
    x, out = site.input(0), site.output
    wanted = _results(site.node.op, (x,), site.inputs[1:], out, (HELD,), rounding)
    bounds = int(wanted.min()), int(wanted.max())
    for factor in _neighbours(np.float32(real)):
        zero, bias = held_zero_point(out), -held_zero_point(x)
        inside = bias + round(zero / float(factor))  # the zero point added before rounding, as onnxruntime's Mul does
        for one, added in ((bias, zero), (inside, 0)):
            if abs(one) < 1 << 31:
                made = Requantised(one, Scaling(float_bits(factor), np.array(0), 0, added, bounds))
                if np.array_equal(_applied(made, HELD), wanted):
                    return (made,)
    return None


class _Codes(NamedTuple):
    """What matters of a tensor of codes."""

    dtype: str
    scale: float
    zero_point: int

    @classmethod
    def of(cls, tensor: Tensor) -> _Codes:
        return cls(tensor.dtype, tensor.scale, tensor.zero_point)


def _results(
    op: Op,
    operands: tuple[Tensor, ...],
    constants: tuple[Tensor | None, ...],
    out: Tensor,
    held: tuple[Array, ...],
    rounding: Rounding,
) -> Array:
    """What the reference makes of codes as the machine holds them, and as it would hold the results: int64."""
    shapes = [values.shape for values in held]
    tensors = [replace(tensor, shape=shape, data=None) for tensor, shape in zip(operands, shapes, strict=True)]
    result = replace(out, shape=np.broadcast_shapes(*shapes), data=None)
    node = Node("codes", op, tuple("x" for _ in (*operands, *constants)), (out.name,))
    values = [given_back(h.astype(np.int8), t)[None] for h, t in zip(held, tensors, strict=True)]
    others = [None if tensor is None or tensor.data is None else tensor.data[None] for tensor in constants]
    (found,) = op.evaluate(Site(node, (*tensors, *constants), (result,)), [*values, *others], rounding)
    return held_codes(found[0]).astype(np.int64)


def _applied(part: Requantised, acc: Array) -> Array:
    """int64 of any shape, by the machine's own function."""
    low, high = part.scaling.bounds or (1, 0)
    words = part.bias, int(part.scaling.multiplier), part.scaling.zero_point << 16, (low & 0xFFFF) | high << 16
    return requantise_float(acc.astype(np.int32), *(np.array([word]).astype(np.int32) for word in words))


def _neighbours(factor: np.float32) -> Iterator[np.float32]:
    yield factor
    for steps in range(1, NEIGHBOURS + 1):
        for sign in (1, -1):
            yield np.float32(factor + sign * steps * np.spacing(factor))


@lru_cache(maxsize=256)
def _sum_of_two(op: Add, a: _Codes, b: _Codes, out: _Codes, rounding: Rounding) -> tuple[Requantised, ...] | None:
    left, right = np.float32(a.scale) / np.float32(out.scale), np.float32(b.scale) / np.float32(out.scale)
    tensors = [_tensor(kind) for kind in (a, b, out)]
    zeros = [held_zero_point(tensor) for tensor in tensors]
    constant = zeros[2] - float(left) * zeros[0] - float(right) * zeros[1]
    grid = HELD[:, None], HELD[None, :]
    wanted = _results(op, (tensors[0], tensors[1]), (), tensors[2], grid, rounding)
    about = grid[0] * float(left) + grid[1] * float(right) + constant
    bounds = int(wanted.min()), int(wanted.max())
    inside = (about > bounds[0] - 1) & (about < bounds[1] + 1)
    ties = np.nonzero((np.abs(about - np.floor(about) - 0.5) < NEAR) & inside)
    whole = np.indices(wanted.shape)
    for made in _candidates(float(left), float(right), constant, bounds):
        if _agrees(made, wanted, ties) and _agrees(made, wanted, (whole[0], whole[1])):
            return made
    return None


def _tensor(kind: _Codes) -> Tensor:
    return Tensor("codes", (), kind.dtype, Quant((kind.scale,), (kind.zero_point,)))


def _candidates(
    left: float, right: float, constant: float, bounds: tuple[int, int]
) -> Iterator[tuple[Requantised, Requantised, Requantised]]:
    """Factors and constants from the plain ones on, in the same order always."""
    rng = np.random.default_rng(0)
    most = floor(BITS - log2(256 * (left + right) + abs(constant)))
    for exponent in range(most, most - EXPONENTS, -1):
        first, second = (np.float32(real * 2.0**exponent) for real in (left, right))
        plain = round(constant * 2.0**exponent)
        last = Scaling(float_bits(np.float32(2.0**-exponent)), np.array(0), 0, 0, bounds)
        for attempt in range(TRIES):
            reach = 0 if attempt == 0 else 16 << attempt // 100
            steps = rng.integers(-2, 3, 2) if attempt > FIRST else (0, 0)
            p, q = (np.float32(f + n * np.spacing(f)) for f, n in zip((first, second), steps, strict=True))
            operands = [Requantised(0, Scaling(float_bits(factor), np.array(0))) for factor in (p, q)]
            yield operands[0], operands[1], Requantised(plain + int(rng.integers(-reach, reach + 1)), last)


def _agrees(made: tuple[Requantised, ...], wanted: Array, pairs: tuple[Array, ...]) -> bool:
    first, second, last = made
    total = _applied(first, HELD)[pairs[0]] + _applied(second, HELD)[pairs[1]]
    return np.array_equal(_applied(last, total), wanted[pairs])
