"""Dot products as the cube makes them; section 6.3 of the specification.

f32 adds terms in turn to two accumulators. f16 and bf16 add 32 exact products at a time, aligned to the largest and cut
24 bits below it, to a float32 accumulator. Integers are exact.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled
from tilewright.targets.bm1684x.values.dtypes import F32, DType
from tilewright.targets.bm1684x.values.floats import flush, widen

#: Products that f16 and bf16 add at a time.
GROUP = 32


def dot(rows: Array, columns: Array, dtype: DType, first: list[Array]) -> Array:
    """float32 (P, O): rows (P, G, L) times columns (G, L, O) behind the terms `first` ((P, O) each).

    Rows and columns are stored as `dtype`: G groups of L products, L at most GROUP; f32 does not group.
    """
    p, g, length = rows.shape
    outputs = columns.shape[2]
    terms = np.array(first, np.float32).reshape(len(first), p, outputs)
    left, right = widen(rows, dtype), widen(columns, dtype)
    with np.errstate(all="ignore"):
        if dtype is F32:
            flat = left.reshape(p, g * length), right.reshape(g * length, outputs)
            return alternate(np.ascontiguousarray(flat[0]), np.ascontiguousarray(flat[1]), flush(terms))
        start = np.zeros((p, outputs), np.float32)
        for term in terms:
            start += term
        return aligned(left.astype(np.float64), right.astype(np.float64), start)


@compiled
def alternate(rows: Array, columns: Array, first: Array) -> Array:
    """float32 (P, O): rows (P, K) times columns (K, O) behind the terms `first` (T, P, O).

    Terms of even and odd number are added up apart, then together; every product and sum is rounded, subnormals
    are zero.
    """
    count, depth = rows.shape
    outputs = columns.shape[1]
    tiny = np.float32(2.0**-126)
    zero = np.float32(0)
    result = np.empty((count, outputs), np.float32)
    sums = np.empty((2, outputs), np.float32)
    for p in range(count):
        sums[:] = zero
        for t in range(first.shape[0]):
            for o in range(outputs):
                sums[t % 2, o] += first[t, p, o]
        for k in range(depth):
            x = rows[p, k]
            part = sums[(first.shape[0] + k) % 2]
            for o in range(outputs):
                product = x * columns[k, o]
                product = zero if abs(product) < tiny else product
                total = part[o] + product
                part[o] = zero if abs(total) < tiny else total
        for o in range(outputs):
            total = sums[0, o] + sums[1, o]
            result[p, o] = zero if abs(total) < tiny else total
    return result


@compiled
def aligned(rows: Array, columns: Array, start: Array) -> Array:
    """float32 (P, O): start + rows (P, G, L) times columns (G, L, O), float64 that hold 16-bit floats.

    The products of a group are cut towards zero to multiples of 2**(E - 24), where 2**E is the leading bit of the
    largest one; their sum is rounded to float32 and added to the accumulator, which is rounded again.
    """
    count, groups, length = rows.shape
    outputs = columns.shape[2]
    result = np.empty((count, outputs), np.float32)
    largest = np.empty(outputs, np.float64)
    plain = np.empty(outputs, np.float64)
    scale = np.empty(outputs, np.float64)
    cut = np.empty(outputs, np.float64)
    for p in range(count):
        total = start[p].copy()
        for g in range(groups):
            largest[:] = 0.0
            plain[:] = 0.0
            cut[:] = 0.0
            for i in range(length):
                x = rows[p, g, i]
                for o in range(outputs):
                    product = x * columns[g, i, o]
                    plain[o] += product
                    size = abs(product)
                    largest[o] = size if size > largest[o] else largest[o]
            for o in range(outputs):
                scale[o] = math.ldexp(1.0, 25 - math.frexp(largest[o])[1])  # frexp's exponent is E + 1
            for i in range(length):
                x = rows[p, g, i]
                for o in range(outputs):
                    cut[o] += np.trunc(x * columns[g, i, o] * scale[o])
            for o in range(outputs):
                exact = cut[o] / scale[o] if np.isfinite(plain[o]) else plain[o]
                total[o] = total[o] + np.float32(exact)
        result[p] = total
    return result
