"""Rounding of reals and of shifted integers, and clamping; specs: section 2 of the vendor's rounding enumeration."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import DType, Rounding


def round_real(x: Array, mode: Rounding) -> Array:
    """Float64 to integral float64; NaN and infinities stay."""
    if mode is Rounding.HALF_TO_EVEN:
        return np.rint(x)
    if mode is Rounding.TOWARDS_ZERO:
        return np.trunc(x)
    if mode is Rounding.DOWN:
        return np.floor(x)
    if mode is Rounding.UP:
        return np.ceil(x)
    with np.errstate(invalid="ignore"):
        low = np.floor(x)
        rest = x - low  # exact: x + 0.5 would not be
        up = rest > 0.5
        if mode is Rounding.HALF_UP:
            up |= rest == 0.5
        elif mode is Rounding.HALF_AWAY_FROM_ZERO:
            up |= (rest == 0.5) & (x > 0)
        return np.where(np.isfinite(x), low + up, x)


def shift_right(x: Array, count: Array | int, mode: Rounding) -> Array:
    """``x / 2**count`` rounded to an integer, int64 or uint64; `count` 0 or more, larger ones than 62 act as 62."""
    if np.size(count) == 1 and not np.any(count):
        return x
    count = np.minimum(count, 62).astype(x.dtype)
    one = x.dtype.type(1)
    if x.dtype == np.int64 and mode in (Rounding.HALF_UP, Rounding.HALF_AWAY_FROM_ZERO) and not (count == 0).any():
        half = one << count - one
        if max(int(x.max(initial=0)), -int(x.min(initial=0))) < 1 << 62:  # what is added does not overflow
            total = x + half
            total -= x < 0 if mode is Rounding.HALF_AWAY_FROM_ZERO else False
            total >>= count
            return total
    low = x >> count
    rest = x - (low << count)
    if mode is Rounding.DOWN:
        return low
    if mode is Rounding.UP:
        return low + (rest > 0)
    if mode is Rounding.TOWARDS_ZERO:
        return low + ((rest > 0) & (x < 0))
    half = one << np.maximum(count, one) - one
    ties = {
        Rounding.HALF_TO_EVEN: low & one == one,
        Rounding.HALF_AWAY_FROM_ZERO: x >= 0,
        Rounding.HALF_UP: np.True_,
        Rounding.HALF_DOWN: np.False_,
    }[mode]
    return low + ((rest > half) | ((rest == half) & ties))


def shift(x: Array, count: Array | int, mode: Rounding) -> Array:
    """Shifted left by `count`, or right and rounded where it is negative; int64 or uint64."""
    count = np.asarray(count, np.int64)
    if (count <= 0).all():
        return shift_right(x, -count, mode)
    left = x << np.clip(count, 0, 63).astype(x.dtype)
    return np.where(count >= 0, left, shift_right(x, np.maximum(-count, 0), mode))


def saturate(x: Array, dtype: DType) -> Array:
    """Integers clamped to the range of `dtype`, in its storage."""
    return np.clip(x, dtype.low if x.dtype.kind != "u" else 0, dtype.high).astype(dtype.storage)


def wrap(x: Array, dtype: DType) -> Array:
    """The low bits of integers, in the storage of `dtype`."""
    return x.astype(f"<u{dtype.bytes}", casting="unsafe").view(dtype.storage)
