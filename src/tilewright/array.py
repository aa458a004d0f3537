"""Array types, and the one function through which every exact integer product goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: float32 holds every integer of magnitude up to 2**24, so a sum that stays within it is exact in any order.
FLOAT32_EXACT = 1 << 24


def exact_matmul(a: Array, b: Array, a_max: int = 128, b_max: int = 128) -> Array:
    """The integer matrix product ``a @ b`` as int32 (wrapping), computed by float32 BLAS without rounding.

    `a` (..., M, K) and `b` (..., K, N) hold integers, in an integer dtype or already as float32;
    `a_max` and `b_max` bound their magnitudes. Sums longer than 2**24 / (a_max * b_max) terms are split.
    """
    terms = max(1, FLOAT32_EXACT // (a_max * b_max))
    depth = a.shape[-1]
    left = a if a.dtype == np.float32 else a.astype(np.float32)
    right = b if b.dtype == np.float32 else b.astype(np.float32)
    if depth <= terms:
        return np.matmul(left, right).astype(np.int32)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.int32)
    for start in range(0, depth, terms):
        stop = min(start + terms, depth)
        total += np.matmul(left[..., start:stop], right[..., start:stop, :]).astype(np.int32)
    return total
