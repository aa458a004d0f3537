"""Comparisons, which select; nothing is rounded."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.targets.bm1684x.arithmetic.floats import widen
from tilewright.targets.bm1684x.dtypes import DType

RELATIONS = ("greater", "less", "equal", "not_equal", "greater_equal", "less_equal")


def holds(relation: str, a: Array, b: Array, dtype: DType) -> Array:
    """bool: whether the relation holds, made of greater and equal alone.

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
