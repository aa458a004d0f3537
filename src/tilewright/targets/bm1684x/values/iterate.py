"""Division, roots and exponentials as the machine iterates them, in float32.

Everything starts from an inverse square root: an estimate from the bits of x, then Newton steps of six roundings. Found
by reproducing the functional model's results bit for bit, with two steps and with three.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, DType
from tilewright.targets.bm1684x.values.elementwise import polynomial
from tilewright.targets.bm1684x.values.floats import flush

#: Minus half of a float's bits, added to this, are nearly the bits of its inverse root.
ESTIMATE = np.uint32(0x5F37_59DF)
#: Steps of the calls that do not name a number.
STEPS = 3
HALF, ONE_AND_HALF, ONE = np.float32(0.5), np.float32(1.5), np.float32(1)

#: What exponentials multiply and clamp by: bits of log2(e), ln(2), and of the largest argument.
LOG2_E = np.uint32(0x3FB8_AA3B).view(np.float32)
LN_2 = np.uint32(0x3F31_7218).view(np.float32)
LARGEST = np.uint32(0x7A83_1265).view(np.float32)
#: Terms of the exponential's series by type.
TERMS: dict[DType, int] = {F32: 10, F16: 7, BF16: 7}


def series(dtype: DType) -> Array:
    """1 / k!, as many as the type's exponential uses: float32."""
    return np.array([1 / math.factorial(k) for k in range(TERMS[dtype])], np.float32)


def inverse_root(x: Array, steps: int = STEPS) -> Array:
    """1 / sqrt(x); zero and infinity give large and small numbers."""
    x = np.ascontiguousarray(flush(x))
    with np.errstate(all="ignore"):
        y: Array = (ESTIMATE - (x.view(np.uint32) >> np.uint32(1))).view(np.float32)
        for _ in range(steps):
            y = flush(y * (ONE_AND_HALF - flush(flush(flush(x * HALF) * y) * y)))
    return y


def divide(a: Array, b: Array, steps: int = STEPS) -> Array:
    """a times the squared inverse root of b."""
    root = inverse_root(np.abs(b), steps)
    with np.errstate(all="ignore"):
        return flush(flush(a) * np.copysign(flush(root * root), b))


def square_root(x: Array, steps: int = STEPS) -> Array:
    """x times its inverse root."""
    with np.errstate(all="ignore"):
        return flush(flush(x) * inverse_root(x, steps))


def exponential(x: Array) -> Array:
    """2**n times the series of the rest, n = floor(x * log2(e)) clamped to -127..127."""
    with np.errstate(all="ignore"):
        x = np.where(x > -LARGEST, x, -LARGEST)
        x = np.where(x > LARGEST, LARGEST, x)
        whole = np.floor(flush(x * LOG2_E))
        rest = flush(x - flush(whole * LN_2))
        power = ((np.clip(whole, -127, 127).astype(np.int32) + 127) << 23).view(np.float32)
        return flush(polynomial(rest, series(F32), F32) * flush(power))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    with np.errstate(all="ignore"):
        total = ONE + exponential(np.float32(0) - flush(x))
    return divide(np.ones_like(total), total)
