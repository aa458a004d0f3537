"""Rounding, conversions between types, and the float types. Arithmetic on floats is in float32.

Subnormals of f32 and bf16 are flushed to zero of the same sign, when read and when written; f16 keeps subnormals. The
rounding modes are those of the vendor's device API.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, DType, Rounding

#: Bits of the significand (with the hidden bit), exponent of the smallest normal value, and largest finite value.
SIGNIFICAND = {F16: 11, BF16: 8, F32: 24}
SMALLEST = {F16: -14, BF16: -126, F32: -126}
LARGEST = {F16: 65504.0, BF16: float(np.uint32(0x7F7F0000).view(np.float32)), F32: float(np.finfo(np.float32).max)}
#: The smallest normal f32 and bf16 value.
TINY = np.float32(2.0**-126)
#: The bits of TINY, and the lowest bit pattern that rounds up to TINY in bf16: bf16 results are rounded before they are
#: flushed.
TINY_BITS = np.uint32(0x0080_0000)
NEARLY_TINY_BITS = np.uint32(0x007F_C000)
SIGN_BIT = np.uint32(0x8000_0000)
#: The smallest power of two that overflows float16, and a number outside the range of every integer type.
FLOAT16_END = 65536.0
BEYOND = 2.0**62


def round_real(x: Array, mode: Rounding) -> Array:
    """Return float64 values rounded by `mode` to integers, still as float64. NaN and infinities are unchanged."""
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
        rest = x - low  # exact, unlike x + 0.5
        up = rest > 0.5
        if mode is Rounding.HALF_UP:
            up |= rest == 0.5
        elif mode is Rounding.HALF_AWAY_FROM_ZERO:
            up |= (rest == 0.5) & (x > 0)
        return np.where(np.isfinite(x), low + up, x)


def shift_right(x: Array, count: Array | int, mode: Rounding) -> Array:
    """Return x / 2**count rounded by `mode` to integers; x is int64 or uint64. `count` >= 0 is capped at 62."""
    if np.size(count) == 1 and not np.any(count):
        return x
    count = np.minimum(count, 62).astype(x.dtype)
    unit = x.dtype.type(1)
    # Fast path for the modes of convolutions and requantisations: add half, then shift.
    if x.dtype == np.int64 and mode in (Rounding.HALF_UP, Rounding.HALF_AWAY_FROM_ZERO) and not (count == 0).any():
        half = unit << count - unit
        if max(int(x.max(initial=0)), -int(x.min(initial=0))) < 1 << 62:  # no overflow when half is added
            total = x + half
            total -= x < 0 if mode is Rounding.HALF_AWAY_FROM_ZERO else False  # negative ties round down
            total >>= count
            return total
    # x = low * 2**count + rest, with 0 <= rest < 2**count: `low` is rounded down, and the mode decides whether to add
    # 1.
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
    """Return x (int64 or uint64) shifted left by `count`. A negative count shifts right and rounds."""
    count = np.asarray(count, np.int64)
    if (count <= 0).all():
        return shift_right(x, -count, mode)
    left = x << np.clip(count, 0, 63).astype(x.dtype)
    return np.where(count >= 0, left, shift_right(x, np.maximum(-count, 0), mode))


def saturate(x: Array, dtype: DType) -> Array:
    return np.clip(x, dtype.low if x.dtype.kind != "u" else 0, dtype.high).astype(dtype.storage)


def wrap(x: Array, dtype: DType) -> Array:
    """Return integers cut to the low bits that fit into `dtype`, in the storage type of `dtype`."""
    return x.astype(f"<u{dtype.bytes}", casting="unsafe").view(dtype.storage)


def flush(x: Array) -> Array:
    """Return float32 values with subnormals replaced by zeros of the same sign."""
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)


def widen(x: Array, dtype: DType) -> Array:
    """Return stored values as the float32 values that arithmetic uses; f32 and bf16 subnormals become zero."""
    return as_stored(x, dtype) if dtype is F16 else flush(as_stored(x, dtype))


def as_stored(x: Array, dtype: DType) -> Array:
    """Return stored values as float32 without flushing subnormals. Conversions between types use these values."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32) if dtype is BF16 else x.astype(np.float32)


def narrow(x: Array, dtype: DType) -> Array:
    """Return float32 values as `dtype` stores them, rounded half to even. Overflow gives infinity."""
    if dtype is F16:
        with np.errstate(over="ignore"):
            return x.astype(np.float16)
    if dtype is BF16:
        bits = np.ascontiguousarray(x).view(np.uint32)  # compare bits, not floats: some processes flush subnormals
        # bf16 is the upper half of a float32. Subnormals of bf16 become zero, except values that round up to the
        # smallest normal value: rounding comes before flushing.
        size = bits & ~SIGN_BIT
        flushed = bits & SIGN_BIT | np.where(size >= NEARLY_TINY_BITS, TINY_BITS, np.uint32(0))
        bits = np.where(size < TINY_BITS, flushed, bits)
        # half to even: add half minus 1, and 1 more if the last remaining bit is odd
        rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(x), np.uint16(0x7FC0), rounded.astype(np.uint16)).astype(np.uint16)
    return flush(x)


def rounded(x: Array, dtype: DType) -> Array:
    """Return float32 values rounded to `dtype`, again as float32: the effect of a store and a load."""
    return widen(narrow(x, dtype), dtype)


def from_real(x: Array, dtype: DType, mode: Rounding) -> Array:
    """Return float64 values rounded by `mode`, as `dtype` stores them.

    As in IEEE 754, the mode decides whether overflow gives infinity or the largest finite value.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        # `quantum` is the distance between neighbouring values near x. x is rounded to an integer multiple of
        # `quantum`.
        exponent = np.maximum(np.frexp(x)[1] - 1, SMALLEST[dtype])
        quantum = np.ldexp(1.0, exponent - (SIGNIFICAND[dtype] - 1))
        value = np.abs(np.where(np.isfinite(x), round_real(x / quantum, mode) * quantum, x))
        inwards = {Rounding.TOWARDS_ZERO: np.isfinite(x), Rounding.DOWN: x > 0, Rounding.UP: x < 0}
        beyond = np.where(inwards.get(mode, np.False_), LARGEST[dtype], np.inf)
        value = np.where(np.isfinite(x) & (value > LARGEST[dtype]), beyond, value)
        return narrow(np.copysign(value, x).astype(np.float32), dtype)


def cast(x: Array, source: DType, out: DType, mode: Rounding) -> Array:
    """Return stored values of the type `source`, converted to stored values of the type `out`.

    Integers are clamped to a narrower integer type. Floats are rounded to integers by `mode` and clamped; NaN gives 0.
    A result in a float type is rounded by `mode`. From f32 to a shorter float type, subnormals give zero. From f32 to
    f16, values of 2**16 or more give infinity in every mode.
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
