"""Element-wise operations on stored values: one rounding an operation. Section 6.2 of the specification."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import DType, Rounding
from tilewright.targets.bm1684x.values.floats import narrow, rounded, widen
from tilewright.targets.bm1684x.values.rounding import saturate, shift, wrap

Binary = Callable[[Array, Array], Array]

FLOAT_BINARY: dict[str, Binary] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "diff_abs": lambda a, b: np.abs(a - b),
    "max": lambda a, b: np.where(a > b, a, b),  # of a NaN and a number the second operand
    "min": lambda a, b: np.where(a > b, b, a),  # ... the first operand
}
INTEGER_BINARY: dict[str, Binary] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
RELATIONS = ("greater", "less", "equal", "not_equal", "greater_equal", "less_equal")
BITWISE: dict[str, Binary] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def float_binary(name: str, a: Array, b: Array, dtype: DType) -> Array:
    """One of FLOAT_BINARY, rounded once: float32 has enough digits that narrowing its result is innocuous."""
    with np.errstate(all="ignore"):
        return narrow(FLOAT_BINARY[name](widen(a, dtype), widen(b, dtype)), dtype)


def multiply_add(a: Array, b: Array, acc: Array, dtype: DType) -> Array:
    """acc + a * b with two roundings."""
    with np.errstate(all="ignore"):
        product = rounded(widen(a, dtype) * widen(b, dtype), dtype)
        return narrow(widen(acc, dtype) + product, dtype)


def polynomial(x: Array, coefficients: Array, dtype: DType) -> Array:
    """Horner's scheme from the last coefficient (k, ...), a rounding after each product and each sum."""
    with np.errstate(all="ignore"):
        value, terms = widen(x, dtype), widen(coefficients, dtype)
        result = np.broadcast_to(terms[-1], value.shape)
        for term in terms[-2::-1]:
            result = rounded(rounded(result * value, dtype) + term, dtype)
        return narrow(result, dtype)


def integer_binary(
    name: str, a: Array, b: Array, dtype: DType, count: Array | int, mode: Rounding, saturating: bool
) -> Array:
    """One of INTEGER_BINARY, exact; then shifted; then clamped, or cut to the low bits."""
    unsigned = name != "sub" and a.dtype.kind == b.dtype.kind == "u"
    exact = np.uint64 if unsigned else np.int64  # products of two u32 need all 64 bits
    wide = INTEGER_BINARY[name](a.astype(exact), b.astype(exact))
    if not saturating:
        return wrap(shift(wide, count, mode), dtype)
    left = np.maximum(count, 0)  # clamped first: shifted left, a product may not fit in 64 bits
    low = np.asarray(0 if unsigned else (dtype.low >> left) - 1, exact)
    high = np.asarray((dtype.high >> left) + 1, exact)
    wide = np.where(left > 0, np.clip(wide, low, high), wide)
    return saturate(shift(wide, count, mode), dtype)


def holds(relation: str, a: Array, b: Array, dtype: DType) -> Array:
    """bool: whether the relation holds, made of greater and equal alone; nothing is rounded.

    So `less` with one NaN holds: it is neither greater nor equal. Two NaN of the same bits are equal.
    """
    same = a.view(f"u{dtype.bytes}") == b.view(f"u{dtype.bytes}")
    if dtype.is_float:
        a, b = widen(a, dtype), widen(b, dtype)
    greater, equal = a > b, (a == b) | same
    found: Array = {
        "greater": greater,
        "less": ~(greater | equal),
        "equal": equal,
        "not_equal": ~equal,
        "greater_equal": greater | equal,
        "less_equal": ~greater,
    }[relation]
    return found
