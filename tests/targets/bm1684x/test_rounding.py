"""Rounding against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I32, U8, U32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import (
    LARGEST,
    cast,
    from_real,
    narrow,
    round_real,
    saturate,
    shift,
    shift_right,
    widen,
    wrap,
)

SEED = 5


def rounded(x: Fraction, mode: Rounding) -> int:
    """The definition of each mode."""
    low, rest = math.floor(x), x - math.floor(x)
    if mode is Rounding.DOWN or rest == 0:
        return low
    if mode is Rounding.UP:
        return low + 1
    if mode is Rounding.TOWARDS_ZERO:
        return low if x > 0 else low + 1
    if rest != Fraction(1, 2):
        return low + (rest > Fraction(1, 2))
    ties = {Rounding.HALF_UP: 1, Rounding.HALF_DOWN: 0, Rounding.HALF_TO_EVEN: low % 2}
    return low + ties.get(mode, int(x > 0))


@pytest.mark.parametrize("mode", Rounding)
def test_shifts_round_as_defined(mode: Rounding) -> None:
    rng = np.random.default_rng(SEED)
    x = np.concatenate([np.arange(-40, 41), rng.integers(-(2**62), 2**62, 200)])
    for count in (0, 1, 2, 3, 5, 31, 62):
        shifted = shift_right(x, count, mode)
        assert shifted.tolist() == [rounded(Fraction(int(v), 1 << count), mode) for v in x], (count, f"seed {SEED}")
    unsigned = np.array([0, 1, 2, 3, 2**64 - 1, 2**63 + 1], np.uint64)
    assert shift_right(unsigned, 1, mode).tolist() == [rounded(Fraction(int(v), 2), mode) for v in unsigned]


@pytest.mark.parametrize("mode", Rounding)
def test_reals_round_as_defined(mode: Rounding) -> None:
    x = np.concatenate([np.arange(-8, 9) / 4, [0.5 - 2**-54, 2.0**52 + 1, -(2.0**60), np.inf, -np.inf]])
    finite = np.isfinite(x)
    expected = [rounded(Fraction(v), mode) for v in x[finite]]
    assert round_real(x, mode)[finite].tolist() == expected
    assert round_real(x, mode)[~finite].tolist() == [np.inf, -np.inf]
    assert np.isnan(round_real(np.array([np.nan]), mode)).all()


def test_negative_counts_shift_right() -> None:
    assert shift(np.array([5, -5]), np.array([2, -1]), Rounding.DOWN).tolist() == [20, -3]


def test_clamping_and_wrapping() -> None:
    x = np.array([-300, -129, -128, 127, 128, 255, 256])
    assert saturate(x, I8).tolist() == [-128, -128, -128, 127, 127, 127, 127]
    assert saturate(x, U8).tolist() == [0, 0, 0, 127, 128, 255, 255]
    assert wrap(x, I8).tolist() == [-44, 127, -128, 127, -128, -1, 0]
    assert saturate(np.array([2**64 - 1], np.uint64), I32).tolist() == [2**31 - 1]
    assert wrap(np.array([2**32 + 7]), U32).tolist() == [7]


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("mode", list(Rounding)[:5])
def test_shorter_floats_are_the_nearest_in_the_direction(dtype: DType, mode: Rounding) -> None:
    """Against the list of all values of the type, exactly."""
    everything = np.arange(1 << 16, dtype=np.uint16).view(dtype.storage)
    with np.errstate(invalid="ignore"):
        values = widen(everything, dtype).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    rng = np.random.default_rng(SEED)
    exponents = rng.uniform(-14 if dtype is F16 else -100, 15 if dtype is F16 else 100, 400)
    x = np.concatenate([rng.choice([-1, 1], 400) * 2.0**exponents, (values[1000:1200] + values[1001:1201]) / 2])
    rounded = widen(from_real(x, dtype, mode), dtype).astype(np.float64)
    above = np.searchsorted(values, x)
    for value, got, index in zip(x, rounded, above, strict=True):
        low, high = values[index - 1], values[min(index, len(values) - 1)]
        if high == value:
            assert got == value
            continue
        place = Fraction(value) - Fraction(low), Fraction(high) - Fraction(value)
        want = {
            Rounding.DOWN: low,
            Rounding.UP: high,
            Rounding.TOWARDS_ZERO: low if value > 0 else high,
        }.get(mode, low if place[0] < place[1] else high)
        if place[0] == place[1] and mode is Rounding.HALF_AWAY_FROM_ZERO:
            want = high if value > 0 else low
        if place[0] == place[1] and mode is Rounding.HALF_TO_EVEN:
            want = low if not _odd(low, dtype) else high
        assert got == want, (value, mode, f"seed {SEED}")


def _odd(value: float, dtype: DType) -> bool:
    return bool(int(narrow(np.array([value], np.float32), dtype).view(np.uint16)[0]) & 1)


def test_narrow_is_the_nearest_even() -> None:
    rng = np.random.default_rng(SEED)
    x = rng.integers(0, 2**32, 5000, dtype=np.uint32).view(np.float32)
    x = x[np.isfinite(x)]
    for dtype in (F16, BF16):
        inside = x[np.abs(x) < LARGEST[dtype]]
        np.testing.assert_array_equal(
            narrow(inside, dtype), from_real(widen(inside, F32).astype(np.float64), dtype, Rounding.HALF_TO_EVEN)
        )


def bits(*values: int) -> Array:
    return np.array(values, np.uint32).view(np.float32)


def test_casts_at_the_edges() -> None:
    nan_inf = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9], np.float32)
    assert cast(nan_inf, F32, I32, Rounding.HALF_TO_EVEN).tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31)]
    small = bits(1, 0x8000_0001)
    assert cast(small, F32, I8, Rounding.UP).tolist() == [1, 0]  # subnormals count
    assert cast(small, F32, F16, Rounding.UP).view(np.uint16).tolist() == [0, 0x8000]  # but not in shorter floats
    huge = np.array([65520.0, 65536.0], np.float32)
    assert cast(huge, F32, F16, Rounding.DOWN).view(np.uint16).tolist() == [0x7BFF, 0x7C00]
    assert cast(np.array([70000], np.uint32), U32, F16, Rounding.DOWN).view(np.uint16).tolist() == [0x7BFF]
    assert cast(np.array([8], np.uint16), BF16, F32, Rounding.DOWN).view(np.uint32).tolist() == [8 << 16]
    assert cast(np.array([300, -5]), I32, U8, Rounding.DOWN).tolist() == [255, 0]
