"""Conversions between element types, and rounding to integral floats."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.arithmetic.floats import TINY, as_stored, from_real, narrow
from tilewright.targets.bm1684x.arithmetic.rounding import round_real, saturate
from tilewright.targets.bm1684x.dtypes import F16, F32, DType, Rounding

#: The first power of two that float16 does not hold; a number outside every integer type.
FLOAT16_END, BEYOND = 65536.0, 2.0**62


def cast(x: Array, source: DType, out: DType, mode: Rounding) -> Array:
    """Integers clamp; float to integer rounds by `mode`, clamps, NaN gives 0; to float rounds by `mode`.

    Subnormals of f32 are zero in the shorter float types, and there a value of 2**16 or more is infinite in f16 under
    every mode.
    """
    if not source.is_float and not out.is_float:
        return saturate(x.astype(np.int64), out)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        real = (as_stored(x, source) if source.is_float else x).astype(np.float64)
    if not out.is_float:
        return to_integer(real, out, mode)
    if source is F32:  # to a shorter one
        real = np.where(np.abs(real) < TINY, np.copysign(0.0, real), real)
        if out is F16:
            real = np.where(np.abs(real) >= FLOAT16_END, np.copysign(np.inf, real), real)
    elif source.is_float:
        return real.astype(np.float32)
    return from_real(real, out, mode)


def to_integer(real: Array, out: DType, mode: Rounding) -> Array:
    """float64 rounded, clamped to `out`; NaN gives 0."""
    return saturate(np.nan_to_num(round_real(real, mode), nan=0.0, posinf=BEYOND, neginf=-BEYOND), out)


def round_float(x: Array, dtype: DType, mode: Rounding) -> Array:
    """To integral values of the same type."""
    with np.errstate(invalid="ignore"):
        real = as_stored(x, dtype).astype(np.float64)
    return narrow(np.copysign(round_real(real, mode), real).astype(np.float32), dtype)
