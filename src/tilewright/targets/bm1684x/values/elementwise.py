"""Element-wise operations on stored values (section 6.2 of the specification), division, roots and exponentials.

An element-wise operation rounds once. Division, roots and exponentials are iterated in float32, as on the machine.
Division and roots use an inverse square root: an estimate from the bits of x, then Newton steps of six roundings each.
These steps reproduce the functional model's results bit for bit, with two steps and with three.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import flush, narrow, rounded, saturate, shift, widen, wrap

Binary = Callable[[Array, Array], Array]

BINARY: dict[str, Binary] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "diff_abs": lambda a, b: np.abs(a - b),
    "max": lambda a, b: np.where(a > b, a, b),  # NaN gives the second operand
    "min": lambda a, b: np.where(a > b, b, a),  # NaN gives the first operand
}
RELATIONS = ("greater", "less", "equal", "not_equal", "greater_equal", "less_equal")
BITWISE: dict[str, Binary] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
#: This constant minus half of the bits of x approximates the bits of 1 / sqrt(x).
ESTIMATE = np.uint32(0x5F37_59DF)
#: The default number of Newton steps.
STEPS = 3
HALF = np.float32(0.5)
ONE_AND_HALF = np.float32(1.5)
FLOAT_ONE = np.float32(1)
#: Constants of the exponential, by their bits: log2(e), ln(2), and the largest magnitude of a clamped argument.
LOG2_E = np.uint32(0x3FB8_AA3B).view(np.float32)
LN_2 = np.uint32(0x3F31_7218).view(np.float32)
LARGEST = np.uint32(0x7A83_1265).view(np.float32)
#: The number of terms of the exponential's series, by type.
TERMS: dict[DType, int] = {F32: 10, F16: 7, BF16: 7}


def float_binary(name: str, a: Array, b: Array, dtype: DType) -> Array:
    """Apply the operation `name` of BINARY to a and b in float32, and round the result to `dtype`.

    The two roundings equal a single one for sums, products and quotients of 16-bit floats, because float32 has more
    than twice as many significant bits.
    """
    with np.errstate(all="ignore"):
        return narrow(BINARY[name](widen(a, dtype), widen(b, dtype)), dtype)


def multiply_add(a: Array, b: Array, acc: Array, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        product = rounded(widen(a, dtype) * widen(b, dtype), dtype)
        return narrow(widen(acc, dtype) + product, dtype)


def polynomial(x: Array, coefficients: Array, dtype: DType) -> Array:
    """Evaluate a polynomial at x. `coefficients` (k, ...) begin with the constant term. Each step is rounded."""
    with np.errstate(all="ignore"):
        value = widen(x, dtype)
        terms = widen(coefficients, dtype)
        result = np.broadcast_to(terms[-1], value.shape)
        for term in terms[-2::-1]:
            result = rounded(rounded(result * value, dtype) + term, dtype)
        return narrow(result, dtype)


def integer_binary(
    name: str, a: Array, b: Array, dtype: DType, count: Array | int, mode: Rounding, saturating: bool
) -> Array:
    """Shift the exact sum, difference or product (`name`) of a and b left by `count` bits (negative: right).

    With `saturating`, the result is clamped to `dtype`. Otherwise it wraps around.
    """
    unsigned = name != "sub" and a.dtype.kind == b.dtype.kind == "u"
    exact = np.uint64 if unsigned else np.int64  # products of two u32 need all 64 bits
    wide = BINARY[name](a.astype(exact), b.astype(exact))
    if not saturating:
        return wrap(shift(wide, count, mode), dtype)
    left = np.maximum(count, 0)  # Clamp before the shift, because a shifted product may need more than 64 bits.
    low = np.asarray(0 if unsigned else (dtype.low >> left) - 1, exact)
    high = np.asarray((dtype.high >> left) + 1, exact)
    wide = np.where(left > 0, np.clip(wide, low, high), wide)
    return saturate(shift(wide, count, mode), dtype)


def holds(relation: str, a: Array, b: Array, dtype: DType) -> Array:
    """Return a mask (bool) of the elements for which the relation between a and b holds.

    Floats are equal if their bits are equal, so 0 and -0 are not equal. All other relations use two masks: `greater`,
    and `level` (equal values or equal bits). `less` is true where neither mask is true. It is therefore true for NaN,
    unless the bits are equal.
    """
    same = a.view(f"u{dtype.bytes}") == b.view(f"u{dtype.bytes}")
    if dtype.is_float:
        a, b = widen(a, dtype), widen(b, dtype)
    greater = a > b
    level = (a == b) | same
    return {
        "greater": greater,
        "less": ~(greater | level),
        "equal": same,
        "not_equal": ~same,
        "greater_equal": greater | level,
        "less_equal": ~greater,
    }[relation]


def series(dtype: DType) -> Array:
    """Return the coefficients `1 / k!` of the power series for exp in the type `dtype`, as float32."""
    return np.array([1 / math.factorial(k) for k in range(TERMS[dtype])], np.float32)


def inverse_root(x: Array, steps: int = STEPS) -> Array:
    """Return 1 / sqrt(x). The result is a large number for x = 0, and has no meaning for a negative x."""
    x = np.ascontiguousarray(x)
    with np.errstate(all="ignore"):
        # The fast inverse square root: halving the bits halves the exponent, as a root does, and the subtraction
        # inverts it.
        half = (x.view(np.int32) >> np.int32(1)).view(np.uint32)  # a signed shift
        x, y = flush(x), flush((ESTIMATE - half).view(np.float32))
        for _ in range(steps):
            y = flush(y * (ONE_AND_HALF - flush(flush(flush(x * HALF) * y) * y)))
    return y


def divide(a: Array, b: Array, steps: int = STEPS) -> Array:
    """Return a / b, computed as a times the squared inverse root of |b|, with the sign of b."""
    root = inverse_root(np.abs(b), steps)
    with np.errstate(all="ignore"):
        return flush(flush(a) * np.copysign(flush(root * root), b))


def square_root(x: Array) -> Array:
    """Return sqrt(x), computed as x times the inverse root, in which 0 replaces infinity."""
    root = inverse_root(x)
    with np.errstate(all="ignore"):
        root = np.where((root == np.inf) | (x == 0), np.float32(0), root)
        return flush(flush(x) * root)


def exponential(x: Array) -> Array:
    """Return exp(x), computed as 2**n times the power series of x - n * ln(2), with n = floor(x * log2(e))."""
    with np.errstate(all="ignore"):
        x = np.where(x > -LARGEST, x, -LARGEST)
        x = np.where(x > LARGEST, LARGEST, x)
        whole = np.floor(flush(x * LOG2_E))
        rest = flush(x - flush(whole * LN_2))
        # Build 2**n from its exponent field, with n clamped to the exponents of a float32.
        power = ((np.clip(whole, -127, 127).astype(np.int32) + 127) << 23).view(np.float32)
        return flush(polynomial(rest, series(F32), F32) * flush(power))


def sigmoid(x: Array) -> Array:
    with np.errstate(all="ignore"):
        total = FLOAT_ONE + exponential(np.float32(0) - flush(x))
    return divide(np.ones_like(total), total)
