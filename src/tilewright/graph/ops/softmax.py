"""Softmax for int8: in fixed point (gemmlowp), or by LiteRT's float32 table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.graph.arithmetic import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from tilewright.graph.ir import Site
from tilewright.graph.ops.base import Op, Shape, given
from tilewright.graph.rounding import Rounding

_DIFF_BITS = 5  # integer bits of (x - max) * beta
_SUM_BITS = 12  # integer bits of the sum of exponentials


def _high_mul(a: Array, b: Array | int) -> Array:
    return saturating_rounding_doubling_high_mul(a, np.asarray(b, np.int64))


def _exp_on_negative_values(a: Array) -> Array:
    """exp(a) for a <= 0 in Q5.26, as Q0.31 (gemmlowp fixedpoint.h)."""
    quarter = 1 << (31 - _DIFF_BITS - 2)
    remainder = (a & (quarter - 1)) - quarter  # in [-1/4, 0), Q5.26
    # exp(x) on [-1/4, 0): Taylor around -1/8, in Q0.31
    x = (remainder << _DIFF_BITS) + (1 << 28)
    x2 = _high_mul(x, x)
    x3 = _high_mul(x2, x)
    x4_over_4 = rounding_divide_by_pot(_high_mul(x2, x2), 2)
    tail = rounding_divide_by_pot(_high_mul(x4_over_4 + x3, 715827883) + x2, 1)
    result = 1895147668 + _high_mul(x + tail, 1895147668)
    whole = remainder - a  # a multiple of 1/4, not negative
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # exp(-2**k), k = -2..4, Q0.31
    for bit, factor in enumerate(factors, start=31 - _DIFF_BITS - 2):
        result = np.where(whole & (1 << bit), _high_mul(result, factor), result)
    return np.where(a == 0, (1 << 31) - 1, result)


def _reciprocal(x: Array) -> Array:
    """1 / (1 + x) for x in Q0.31, 0 <= x < 1, by three Newton-Raphson steps; the result in Q0.31."""
    one = (1 << 31) - 1
    half = (x + one + 1) >> 1  # rounding half sum; x + one is not negative
    y = 1515870810 + _high_mul(half, -1010580540)  # 48/17 - 32/17 d, in Q2.29
    for _ in range(3):
        error = (1 << 29) - _high_mul(half, y)
        y = y + (_high_mul(y, error) << 2)
    return np.clip(y << 1, -(1 << 31), one)


@dataclass(frozen=True)
class Softmax(Op):
    """exp(beta x) / sum over the last axis; the output scale is 1/256, its zero point -128."""

    kind = "softmax"
    beta: float = 1.0

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        if (site.output.scale, site.output.zero_point) != (1 / 256, -128):
            raise UnsupportedError(
                f"op '{site.node.name}'", "has an output scale or zero point other than 1/256 and -128"
            )
        return (site.input(0).shape,)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x = given(values[0]).astype(np.int64)
        if rounding.delegated:
            return (self._by_table(site, x),)
        real = min(
            float(np.float32(self.beta)) * np.float64(site.input(0).scale) * (1 << (31 - _DIFF_BITS)),
            float((1 << 31) - 1),
        )
        q, shift = quantize_multiplier(real)
        radius = np.floor(((1 << _DIFF_BITS) - 1) * (1 << (31 - _DIFF_BITS)) / 2.0 ** int(shift))
        diff = x - x.max(axis=-1, keepdims=True)
        inside = diff >= -radius
        scaled = multiply_by_quantized_multiplier(np.where(inside, diff, 0), q, shift)
        exponential = np.where(inside, _exp_on_negative_values(scaled), 0)
        total = rounding_divide_by_pot(exponential, _SUM_BITS).sum(axis=-1, keepdims=True)
        leading = 63 - np.floor(np.log2(total.astype(np.float64))).astype(np.int64) - 32  # zeros in front, of 32 bits
        inverse = _reciprocal((total << leading) - (1 << 31))
        code = rounding_divide_by_pot(_high_mul(exponential, inverse), _SUM_BITS - leading + 31 - 8)
        return (np.clip(code - 128, -128, 127).astype(site.output.dtype),)

    def _by_table(self, site: Site, x: Array) -> Array:
        """LiteRT's optimised kernel (XNNPACK does not take softmax): a table of exp, sums in order."""
        step = -np.float32(site.input(0).scale) * np.float32(self.beta)
        table = np.exp((step * np.arange(256, dtype=np.float32)).astype(np.float64)).astype(np.float32)
        exponential = table[x.max(axis=-1, keepdims=True) - x]
        total = np.cumsum(exponential, axis=-1, dtype=np.float32)[..., -1:]
        code = round_half_away(exponential * (np.float32(1) / (total * np.float32(site.output.scale))))
        return np.clip(code + site.output.zero_point, -128, 127).astype(site.output.dtype)
