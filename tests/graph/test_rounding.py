"""The fixed-point rules against plain-integer definitions, ties and extremes included."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.array import FLOAT32_EXACT, Array, exact_matmul
from tilewright.graph import rounding as ar

INT32 = st.integers(ar.INT32_MIN, ar.INT32_MAX) | st.sampled_from([ar.INT32_MIN, ar.INT32_MAX, 0, -1, 1 << 30])


def one(value: int) -> Array:
    return np.array([value], np.int64)


def half_away(value: Fraction) -> int:
    return int(value + Fraction(1, 2)) if value >= 0 else -int(-value + Fraction(1, 2))


@given(INT32, INT32)
def test_high_mul_rounds_half_away_except_ties_below_zero(a: int, b: int) -> None:
    got = int(ar.saturating_rounding_doubling_high_mul(one(a), one(b))[0])
    if a == b == ar.INT32_MIN:
        assert got == ar.INT32_MAX
        return
    exact = Fraction(a * b, 1 << 31)
    # gemmlowp's nudge for negatives is 1 - 2**30, so a tie below zero goes towards zero.
    tie = exact.denominator == 2
    assert got == (int(exact + Fraction(1, 2)) if tie and exact < 0 else half_away(exact))


@given(INT32, st.integers(0, 31))
def test_rounding_divide_rounds_half_away(x: int, exponent: int) -> None:
    assert int(ar.rounding_divide_by_pot(one(x), exponent)[0]) == half_away(Fraction(x, 1 << exponent))


@given(st.floats(1e-12, 8.0))
def test_quantize_multiplier_is_within_half_a_unit(real: float) -> None:
    q, shift = ar.quantize_multiplier(real)
    if real < 2.0**-32:
        assert q == shift == 0
        return
    assert 1 << 30 <= int(q) < 1 << 31
    assert abs(Fraction(int(q)) * Fraction(2) ** (int(shift) - 31) - Fraction(real)) <= Fraction(2) ** (int(shift) - 32)


@pytest.mark.parametrize("depth", [1, 1024, 1025, 3000])
def test_exact_matmul_at_the_extremes(depth: int) -> None:
    for value in (-128, 127):
        a, b = np.full((2, depth), -128, np.int8), np.full((depth, 3), value, np.int8)
        assert (exact_matmul(a, b) == -128 * value * depth).all()
    assert FLOAT32_EXACT == 1024 * 128 * 128


def test_relu6_bounds_follow_the_scale() -> None:
    assert ar.clamp_range("relu6", 0.05, -128) == (-128, -8)
    assert ar.clamp_range("relu", 0.1, 5) == (5, 127)
    assert ar.clamp_range("none", 0.1, 5) == (-128, 127)


FLOATS = st.floats(-(2.0**20), 2.0**20, width=32) | st.sampled_from([0.0, 0.5, -0.5, 2.0**-30, 1 + 2.0**-23])


@given(FLOATS, FLOATS, FLOATS)
def test_fused_multiply_add_rounds_once(a: float, b: float, c: float) -> None:
    got = ar.fused_multiply_add(*(np.array([v], np.float32) for v in (a, b, c)))[0]
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert is_nearest(got, exact)


def is_nearest(value: np.float32, exact: Fraction) -> bool:
    """Whether no other float32 is nearer; of two as near, the even one."""
    error = abs(Fraction(float(value)) - exact)
    for other in (np.nextafter(value, np.float32(np.inf)), np.nextafter(value, np.float32(-np.inf))):
        distance = abs(Fraction(float(other)) - exact)
        if distance < error or (distance == error and value.view(np.uint32) & 1):
            return False
    return True


def test_fused_multiply_add_where_two_roundings_go_wrong() -> None:
    """Just below a tie of float32, by less than float64 holds: rounding to float64 first makes it the tie."""
    a, b, c = np.float32((1 + 2.0**-23) * 2.0**-12), np.float32((1 - 2.0**-23) * 2.0**-12), np.float32(1 + 2.0**-23)
    assert np.float32(np.float64(a) * np.float64(b) + np.float64(c)) == np.float32(1 + 2.0**-22)
    assert ar.fused_multiply_add(a, b, c) == c
