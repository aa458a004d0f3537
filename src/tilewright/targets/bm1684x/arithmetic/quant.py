"""Requantisation and dequantisation: of integers by multiplier and shift, or through float32."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.arithmetic.cast import cast, to_integer
from tilewright.targets.bm1684x.arithmetic.floats import flush
from tilewright.targets.bm1684x.arithmetic.rounding import saturate, shift
from tilewright.targets.bm1684x.dtypes import F32, I32, DType, Rounding


def requantise(x: Array, out: DType, multiplier: Array, count: Array, offset: Array, mode: Rounding) -> Array:
    """sat(round(x * multiplier * 2**count) + offset), integers."""
    wide = x.astype(np.int64) * np.asarray(multiplier, np.int64)
    return saturate(shift(wide, count, mode) + np.asarray(offset, np.int64), out)


def requantise_float(x: Array, out: DType, scale: Array, offset: Array, mode: Rounding, source: Rounding) -> Array:
    """sat(round(f32(x) * scale + offset)), each operation a float32 rounding; `source` rounds x to float32."""
    with np.errstate(all="ignore"):
        nearest = source is Rounding.HALF_TO_EVEN  # NumPy's own conversion
        real = x.astype(np.float32) if nearest else cast(x.astype(np.int64), I32, F32, source)
        scaled = flush(flush(real * np.float32(scale)) + np.float32(offset))
    return to_integer(scaled.astype(np.float64), out, mode)


def dequantise(x: Array, out: DType, multiplier: Array, count: Array, offset: Array, mode: Rounding) -> Array:
    """sat(round((x - offset) * multiplier * 2**count)), integers."""
    wide = (x.astype(np.int64) - np.asarray(offset, np.int64)) * np.asarray(multiplier, np.int64)
    return saturate(shift(wide, count, mode), out)


def dequantise_float(x: Array, scale: Array, offset: Array) -> Array:
    """f32(x - offset) * scale."""
    with np.errstate(all="ignore"):
        return flush((x.astype(np.int64) - np.asarray(offset, np.int64)).astype(np.float32) * np.float32(scale))
