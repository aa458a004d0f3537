"""gemmlowp's functions in fixed point (fixedpoint.h): exp, logistic, tanh, reciprocals, in 32 or 16 bits.

Arrays are int64 and hold numbers of `bits` bits. Qm is a number with m integer bits, a sign, and fraction bits else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.graph.rounding import rounding_divide_by_pot


@dataclass(frozen=True)
class FixedPoint:
    """The functions on numbers of `bits` bits, 32 or 16."""

    bits: int = 32

    @property
    def one(self) -> int:
        """1 in Q0, saturated."""
        return (1 << (self.bits - 1)) - 1

    def saturated(self, x: Array) -> Array:
        return np.clip(x, -self.one - 1, self.one)

    def high_mul(self, a: Array, b: Array | int) -> Array:
        """Return the product of numbers, rounded with ties upwards and saturated: Qm times Q0 is Qm."""
        product: Array = a * b
        product = (product + (1 << (self.bits - 2))) >> (self.bits - 1)
        return np.minimum(product, self.one)

    def _constant(self, value: int) -> int:
        return int(rounding_divide_by_pot(np.array(value, np.int64), 32 - self.bits))

    def exp_on_negative_values(self, a: Array, integer_bits: int) -> Array:
        """Return exp(a) in Q0 for a <= 0 in Q(integer_bits)."""
        fraction = self.bits - 1 - integer_bits
        quarter = 1 << (fraction - 2)
        remainder = (a & (quarter - 1)) - quarter  # in [-1/4, 0)
        # exp(x) on [-1/4, 0): Taylor around -1/8, in Q0
        x = (remainder << integer_bits) + (1 << (self.bits - 4))
        x2 = self.high_mul(x, x)
        x3 = self.high_mul(x2, x)
        x4_over_4 = rounding_divide_by_pot(self.high_mul(x2, x2), 2)
        tail = rounding_divide_by_pot(self.high_mul(x4_over_4 + x3, self._constant(715827883)) + x2, 1)
        middle = self._constant(1895147668)
        result = self.saturated(middle + self.high_mul(x + tail, middle))
        whole = remainder - a  # a multiple of 1/4, not negative
        factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # exp(-2**k), k = -2..4
        for bit, factor in enumerate(factors[: integer_bits + 2], start=fraction - 2):
            result = np.where(whole & (1 << bit), self.high_mul(result, self._constant(factor)), result)
        if integer_bits > 5:
            result = np.where(a < -(32 << fraction), 0, result)
        return np.where(a == 0, self.one, result)

    def _newton(self, x: Array) -> Array:
        """Return 2 / (1 + x) in Q2 for x in Q0, 0 <= x < 1, by three Newton-Raphson steps."""
        half = (x + self.one + 1) >> 1  # rounding half sum; x + one is not negative
        y = self._constant(1515870810) + self.high_mul(half, self._constant(-1010580540))  # 48/17 - 32/17 d, in Q2
        for _ in range(3):
            error = (1 << (self.bits - 3)) - self.high_mul(half, y)
            y = y + self.saturated(self.high_mul(y, error) << 2)
        return y

    def reciprocal(self, x: Array) -> Array:
        """Return 1 / (1 + x) in Q0 for x in Q0, 0 <= x < 1."""
        return self.saturated(self._newton(x) << 1)

    def logistic(self, a: Array, integer_bits: int) -> Array:
        """Return 1 / (1 + exp(-a)) in Q0 for a in Q(integer_bits)."""
        positive = self.reciprocal(self.exp_on_negative_values(-np.abs(a), integer_bits))
        return np.where(a == 0, 1 << (self.bits - 2), np.where(a > 0, positive, self.one - positive))

    def tanh(self, a: Array, integer_bits: int) -> Array:
        """Return tanh(a) in Q0 for a in Q(integer_bits)."""
        decay = self.exp_on_negative_values(-np.abs(a), integer_bits + 1)  # the same bits with one more are 2 a
        return np.sign(a) * self.saturated((self._newton(decay) - (1 << (self.bits - 3))) << 2)


FIXED32, FIXED16 = FixedPoint(32), FixedPoint(16)
