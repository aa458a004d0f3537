"""The tables in static memory: coefficients of power series, and numbers in ascending order.

Each table is computed from its formula. The result equals the bytes that the vendor's model loads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I32, DType
from tilewright.targets.bm1684x.values.floats import narrow

#: Terms of zeta(n) that are summed, if n is above 2.
ZETA_TERMS = 4000
#: Integers from 0 on.
COUNTED = 64
#: Coefficients of a polynomial that approximates the logarithm of the error function (Numerical Recipes, erfcc).
ERROR = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)

#: Byte offsets of the tables in static memory, by name and type, and the number of entries that a program loads.
OFFSETS: Mapping[tuple[str, DType], tuple[int, int]] = {
    ("exp", F32): (1024, 10),
    ("log", F32): (1152, 16),
    ("erf", F32): (1408, 10),
    ("numbers", I32): (1472, COUNTED),
    ("sin", F32): (1728, 32),
    ("cos", F32): (1856, 32),
    ("arcsin", F32): (1984, 32),
    ("tan", F32): (2240, 32),
    ("exp", F16): (2368, 7),
    ("exp", BF16): (2432, 7),
    ("log", F16): (2496, 8),
    ("log", BF16): (2560, 8),
    ("sin", F16): (2624, 16),
    ("sin", BF16): (2688, 16),
    ("cos", F16): (2752, 16),
    ("cos", BF16): (2816, 16),
}
#: Numbers of entries in static memory, where they are more than a program loads.
STORED: Mapping[tuple[str, DType], int] = {
    ("exp", F32): 32,
    ("log", F32): 64,
    ("arcsin", F32): 64,
    **{(name, dtype): 16 for name in ("exp", "log") for dtype in (F16, BF16)},
}


def stored(name: str, dtype: DType) -> int:
    return STORED.get((name, dtype), OFFSETS[name, dtype][1])


def _turn(k: int) -> float:
    return (2 * math.pi) ** k / math.factorial(k)


def _coefficient(name: str, k: int) -> float:
    """Return coefficient k of a series. Sines and cosines are of turns, the tangent is of half turns."""
    if name == "exp":
        return 1 / math.factorial(k)
    if name == "log":  # of 1 + x
        return -((-1.0) ** k) / k if k else 0.0
    if name == "sin":
        return (-1) ** k * _turn(2 * k + 1)
    if name == "cos":
        return (-1) ** k * _turn(2 * k)
    if name == "arcsin":
        return math.comb(2 * k, k) / 4**k / (2 * k + 1)
    if name == "erf":
        return ERROR[k]
    n = 2 * k + 2
    zeta = {2: math.pi**2 / 6, 4: math.pi**4 / 90}.get(n) or sum(i**-n for i in range(ZETA_TERMS, 0, -1))
    return 2 * (4.0 ** (k + 1) - 1) * zeta / math.pi


@cache
def tables() -> Mapping[int, Array]:
    """Return the tables by their byte offset in static memory, as stored."""
    found = {}
    for (name, dtype), (offset, _) in OFFSETS.items():
        count = stored(name, dtype)
        if dtype is I32:
            found[offset] = np.arange(count, dtype=np.int32)
        else:
            found[offset] = narrow(np.array([_coefficient(name, k) for k in range(count)], np.float32), dtype)
    return found
