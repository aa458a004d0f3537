"""The array type, exact integer matrix products, and contexts that run without BLAS threads or garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, reduce
from operator import or_
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: float32 and float64 represent all integers up to these magnitudes. A smaller sum is exact in any order.
FLOAT32_EXACT = 1 << 24
FLOAT64_EXACT = 1 << 53


def among(column: Array, codes: Collection[int]) -> Array:
    """Return a bool [n] mask of the elements that equal one of `codes`. For small n, np.isin is 30 times slower."""
    return reduce(or_, (column == int(code) for code in codes), np.zeros(len(column), np.bool_))


def numbers(low: Array, count: Array) -> tuple[Array, Array]:
    """Return the concatenated ranges `low[i]` to `low[i] + count[i] - 1`, and the range number i of each element."""
    end = np.cumsum(count)
    owner = np.repeat(np.arange(len(count)), count)
    # Element j of the result is low[i] + (j - begin of range i), and the begin is end[i] - count[i].
    return np.arange(len(owner)) + (low - end + count)[owner], owner


def ascending(values: Array) -> Array:
    """Return the distinct numbers in `values` (any shape) as an ascending vector."""
    # np.unique uses hashing, and takes 40 times as long for a million integers. Its first call also imports numpy.ma,
    # which takes 25 ms.
    ordered = np.sort(values, axis=None, kind="stable")
    return ordered[np.append(True, ordered[1:] > ordered[:-1])] if len(ordered) else ordered


def float_for(a_max: int, b_max: int) -> type[np.float32] | type[np.float64]:
    """Return the narrowest float type in which a sum of 64 products is exact, for integers up to these bounds."""
    return np.float32 if 64 * a_max * b_max <= FLOAT32_EXACT else np.float64


def exact_matmul(a: Array, b: Array, a_max: int = 128, b_max: int = 128) -> Array:
    """Return the integer matrix product ``a @ b`` as int32 (wrapping), computed exactly by floating-point BLAS.

    `a` (..., M, K) and `b` (..., K, N) hold integers, in an integer dtype or in the type that `float_for` returns.
    `a_max` and `b_max` bound the magnitudes in `a` and `b`. A sum that could leave the exact range is split along K.
    """
    dtype = float_for(a_max, b_max)
    terms = max(1, (FLOAT32_EXACT if dtype is np.float32 else FLOAT64_EXACT) // (a_max * b_max))
    depth = a.shape[-1]
    left, right = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    if depth <= terms:
        return to_int32(np.matmul(left, right))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    # Each partial sum over `terms` products is exact; adding the partial sums wraps in int32, as in hardware.
    total = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.int32)
    for start in range(0, depth, terms):
        stop = min(start + terms, depth)
        total += to_int32(np.matmul(left[..., start:stop], right[..., start:stop, :]))
    return total


def wide_matmul(a: Array, b: Array) -> Array:
    """Return the integer matrix product ``a @ b`` as int64. It is exact if all sums are below 2**53."""
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which BLAS uses one thread."""
    # A run has many short matrix products, and the threads of BLAS sleep between two products. On a busy machine, BLAS
    # needed milliseconds per product to wake its threads: 5 s in the first run of ResNet-18.
    return _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def to_int32(x: Array) -> Array:
    """Convert floats that hold integers to int32, modulo 2**32."""
    return x.astype(np.int32) if x.dtype == np.float32 else x.astype(np.int64).astype(np.int32)


@contextmanager
def uncollected() -> Iterator[None]:
    """Run a `with` block without the cyclic garbage collector."""
    # A launch or a gateware design creates hundreds of thousands of objects that stay alive, and few reference cycles.
    # The collector needed a sixth of the first run of ResNet-18, and a quarter of the conversion of a 16x16 machine to
    # RTLIL.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def nibbles(packed: Array) -> Array:
    """Return the signed 4-bit values in bytes, low half first: int8 (..., 2n) of uint8 (..., n)."""
    halves = np.stack((packed & 15, packed >> 4), axis=-1).reshape(*packed.shape[:-1], -1)
    return ((halves ^ 8).astype(np.int8) - 8).astype(np.int8)


def in_nibbles(values: Array) -> Array:
    """Return values of -8..7 in bytes of two values, low half first: the inverse of `nibbles`."""
    halves = values.astype(np.uint8).reshape(*values.shape[:-1], -1, 2) & 15
    packed: Array = halves[..., 0] | halves[..., 1] << 4
    return packed
