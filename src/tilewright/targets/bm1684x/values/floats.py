"""Rounding, conversions between types, and the float types.

Arithmetic on floats is in float32. In f32 and bf16, reading and writing replace a subnormal by a zero of the same sign.
f16 keeps subnormals. The rounding modes are those of the vendor's device API.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, DType, Rounding

#: By type: bits of the significand (with the hidden bit), exponent of the smallest normal value, largest finite value.
SIGNIFICAND = {F16: 11, BF16: 8, F32: 24}
SMALLEST = {F16: -14, BF16: -126, F32: -126}
LARGEST = {F16: 65504.0, BF16: float(np.uint32(0x7F7F0000).view(np.float32)), F32: float(np.finfo(np.float32).max)}
#: The smallest normal value of f32 and of bf16.
TINY = np.float32(2.0**-126)
#: The bits of TINY, and the lowest bit pattern that rounds to TINY in bf16. Values with this pattern or above are not
#: flushed, because rounding comes before flushing.
TINY_BITS = np.uint32(0x0080_0000)
NEARLY_TINY_BITS = np.uint32(0x007F_C000)
SIGN_BIT = np.uint32(0x8000_0000)
#: The smallest power of two that overflows float16, and a number that no integer type can represent.
FLOAT16_END = 65536.0
BEYOND = 2.0**62


def round_real(x: Array, mode: Rounding) -> Array:
    """Round float64 values by `mode` to integers, and return float64. NaN and infinities are unchanged."""
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
        rest = x - low  # this is exact; x + 0.5 would not be
        up = rest > 0.5
        if mode is Rounding.HALF_UP:
            up |= rest == 0.5
        elif mode is Rounding.HALF_AWAY_FROM_ZERO:
            up |= (rest == 0.5) & (x > 0)
        return np.where(np.isfinite(x), low + up, x)


def shift_right(x: Array, count: Array | int, mode: Rounding) -> Array:
    """Divide x (int64 or uint64) by 2**count, and round by `mode` to integers. `count` >= 0 is limited to 62."""
    if np.size(count) == 1 and not np.any(count):
        return x
    count = np.minimum(count, 62).astype(x.dtype)
    unit = x.dtype.type(1)
    # A fast path for the modes of convolutions and requantisations: add half, then shift.
    if x.dtype == np.int64 and mode in (Rounding.HALF_UP, Rounding.HALF_AWAY_FROM_ZERO) and not (count == 0).any():
        half = unit << count - unit
        if max(int(x.max(initial=0)), -int(x.min(initial=0))) < 1 << 62:  # x + half cannot overflow
            total = x + half
            total -= x < 0 if mode is Rounding.HALF_AWAY_FROM_ZERO else False  # so negative ties round down
            total >>= count
            return total
    # x = low * 2**count + rest, with 0 <= rest < 2**count. `low` is the result rounded down; `mode` decides whether to
    # add 1.
    low = x >> count
    rest = x - (low << count)
    if mode is Rounding.DOWN:
        return low
    if mode is Rounding.UP:
        return low + (rest > 0)
    if mode is Rounding.TOWARDS_ZERO:
        return low + ((rest > 0) & (x < 0))
    half = unit << np.maximum(count, unit) - unit
    ties = {
        Rounding.HALF_TO_EVEN: low & unit == unit,
        Rounding.HALF_AWAY_FROM_ZERO: x >= 0,
        Rounding.HALF_UP: np.True_,
        Rounding.HALF_DOWN: np.False_,
    }[mode]
    return low + ((rest > half) | ((rest == half) & ties))


def shift(x: Array, count: Array | int, mode: Rounding) -> Array:
    """Shift x (int64 or uint64) left by `count` bits. A negative `count` shifts right, and rounds."""
    count = np.asarray(count, np.int64)
    if (count <= 0).all():
        return shift_right(x, -count, mode)
    left = x << np.clip(count, 0, 63).astype(x.dtype)
    return np.where(count >= 0, left, shift_right(x, np.maximum(-count, 0), mode))


def saturate(x: Array, dtype: DType) -> Array:
    return np.clip(x, dtype.low if x.dtype.kind != "u" else 0, dtype.high).astype(dtype.storage)


def wrap(x: Array, dtype: DType) -> Array:
    """Keep only the low bits of integers that fit into `dtype`, and return its storage type."""
    return x.astype(f"<u{dtype.bytes}", casting="unsafe").view(dtype.storage)


def flush(x: Array) -> Array:
    """Replace the subnormals in float32 values by zeros of the same sign."""
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)


def widen(x: Array, dtype: DType) -> Array:
    """Convert stored values to float32 for arithmetic. Subnormals of f32 and bf16 become zero."""
    return as_stored(x, dtype) if dtype is F16 else flush(as_stored(x, dtype))


def as_stored(x: Array, dtype: DType) -> Array:
    """Convert stored values to float32, without flushing subnormals, for conversions between types."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32) if dtype is BF16 else x.astype(np.float32)


def narrow(x: Array, dtype: DType) -> Array:
    """Convert float32 values to stored values of the type `dtype`, rounded half to even. Overflow gives infinity."""
    if dtype is F16:
        with np.errstate(over="ignore"):
            return x.astype(np.float16)
    if dtype is BF16:
        bits = np.ascontiguousarray(x).view(np.uint32)  # compares bits, because some processes flush subnormals
        # bf16 is the upper half of a float32. Subnormals become zero, except subnormals that round up to the smallest
        # normal value, because rounding comes before flushing.
        size = bits & ~SIGN_BIT
        flushed = bits & SIGN_BIT | np.where(size >= NEARLY_TINY_BITS, TINY_BITS, np.uint32(0))
        bits = np.where(size < TINY_BITS, flushed, bits)
        # Half to even: add half minus 1, and 1 more if the lowest remaining bit is 1.
        rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(x), np.uint16(0x7FC0), rounded.astype(np.uint16)).astype(np.uint16)
    return flush(x)


def rounded(x: Array, dtype: DType) -> Array:
    """Round float32 values to `dtype`, and return float32, like a store followed by a load."""
    return widen(narrow(x, dtype), dtype)


def from_real(x: Array, dtype: DType, mode: Rounding) -> Array:
    """Round float64 values by `mode` to stored values of the float type `dtype`.

    As in IEEE 754, the mode decides whether overflow gives infinity or the largest finite value.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        # `quantum` is the distance between neighbouring values of `dtype` near x, so x is rounded to a multiple of
        # `quantum`.
        exponent = np.maximum(np.frexp(x)[1] - 1, SMALLEST[dtype])
        quantum = np.ldexp(1.0, exponent - (SIGNIFICAND[dtype] - 1))
        value = np.abs(np.where(np.isfinite(x), round_real(x / quantum, mode) * quantum, x))
        inwards = {Rounding.TOWARDS_ZERO: np.isfinite(x), Rounding.DOWN: x > 0, Rounding.UP: x < 0}
        beyond = np.where(inwards.get(mode, np.False_), LARGEST[dtype], np.inf)
        value = np.where(np.isfinite(x) & (value > LARGEST[dtype]), beyond, value)
        return narrow(np.copysign(value, x).astype(np.float32), dtype)


def cast(x: Array, source: DType, out: DType, mode: Rounding) -> Array:
    """Convert stored values of the type `source` to stored values of the type `out`.

    Results that are too large for an integer type are clamped. A float is rounded by `mode` to an integer, and NaN
    gives 0. Results in a float type are rounded by `mode`. From f32 to a shorter float type, subnormals give zero. From
    f32 to f16, values of 2**16 or more give infinity in every mode.
    """
    if not source.is_float and not out.is_float:
        return saturate(x.astype(np.int64), out)
    with np.errstate(invalid="ignore"):  # signalling NaN
        real = (as_stored(x, source) if source.is_float else x).astype(np.float64)
    if not out.is_float:
        return to_integer(real, out, mode)
    if source is F32:  # f32 to a shorter float type
        real = np.where(np.abs(real) < TINY, np.copysign(0.0, real), real)
        if out is F16:
            real = np.where(np.abs(real) >= FLOAT16_END, np.copysign(np.inf, real), real)
    elif source.is_float:
        return real.astype(np.float32)
    return from_real(real, out, mode)


def to_integer(real: Array, out: DType, mode: Rounding) -> Array:
    return saturate(np.nan_to_num(round_real(real, mode), nan=0.0, posinf=BEYOND, neginf=-BEYOND), out)


def round_float(x: Array, dtype: DType, mode: Rounding) -> Array:
    with np.errstate(invalid="ignore"):
        real = as_stored(x, dtype).astype(np.float64)
    return narrow(np.copysign(round_real(real, mode), real).astype(np.float32), dtype)
