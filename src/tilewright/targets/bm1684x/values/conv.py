"""Convolutions, depthwise convolutions and matrix products on stored values (section 6.3 of the specification).

The terms of a dot product are added in the order of the machine's matrix unit. In f32, terms are added alternately to
two accumulators. In f16 and bf16, 32 exact products are summed at a time: each product is truncated 24 bits below the
leading bit of the largest product, and their sum is added to a float32 accumulator. Integer sums are exact.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.sim.jit import compiled
from tilewright.targets.bm1684x.values.dtypes import F32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import flush, narrow, rounded, saturate, shift_right, widen
from tilewright.targets.bm1684x.values.window import Window

#: The number of f16 or bf16 products that are summed at a time.
GROUP = 32
#: The number of mantissa bits and the exponent bias of float64.
MANTISSA = 52
EXPONENT_BIAS = 1023
#: int32 can represent any sum of fewer than this number of products of 8-bit integers.
INT32_TERMS = 1 << 15


def dot(rows: Array, columns: Array, dtype: DType, first: list[Array]) -> Array:
    """Return the product of the matrices `rows` (P, G, L) and `columns` (G, L, O), summed over G and L: float32 (P, O).

    Rows and columns are stored as `dtype`. Each sum begins with the terms in `first`, a list of arrays (P, O). There
    are G groups of L products each, and L is at most GROUP. Groups have no effect in f32.
    """
    p, g, length = rows.shape
    outputs = columns.shape[2]
    terms = np.array(first, np.float32).reshape(len(first), p, outputs)
    left, right = widen(rows, dtype), widen(columns, dtype)
    with np.errstate(all="ignore"):
        # In f32, products are added one by one, without groups.
        if dtype is F32:
            flat = left.reshape(p, g * length), right.reshape(g * length, outputs)
            result = np.empty((p, outputs), np.float32)
            sums = np.empty((2, outputs), np.float32)
            alternate.interruptible(
                np.ascontiguousarray(flat[0]), np.ascontiguousarray(flat[1]), flush(terms), sums, result
            )
            return result
        total = np.zeros((p, outputs), np.float32)
        for term in terms:
            total += term
        scratch = np.empty((4, outputs), np.float64)
        aligned.interruptible(left.astype(np.float64), right.astype(np.float64), scratch, scratch.view(np.int64), total)
        return total


@compiled
def alternate(rows: Array, columns: Array, first: Array, sums: Array, result: Array) -> None:
    """Write the matrix product of `rows` (P, K) and `columns` (K, O) to `result` (P, O), float32.

    A sum has the terms `first` (T, P, O), then the products. Terms with even positions are added to the first
    accumulator, and terms with odd positions to the second. At the end, the two accumulators are added. Every product
    and sum is rounded, and subnormals become zero. `sums` is scratch memory, float32 (2, O).
    """
    count, depth = rows.shape
    outputs = columns.shape[1]
    tiny = np.float32(2.0**-126)
    zero = np.float32(0)
    for p in range(count):
        sums[:] = zero
        for t in range(first.shape[0]):
            for o in range(outputs):
                sums[t % 2, o] += first[t, p, o]
        for k in range(depth):
            # The products continue the alternation that begins with the terms in `first`.
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


@compiled
def aligned(rows: Array, columns: Array, scratch: Array, bits: Array, total: Array) -> None:
    """Multiply `rows` (P, G, L) by `columns` (G, L, O), sum over G and L, and add the sums to float32 `total` (P, O).

    The factors are 16-bit floats, stored as float64. The products of a group are truncated to multiples of 2**(E - 24),
    where 2**E is the leading bit of the largest product. The sum of a group is rounded to float32 and added to `total`,
    and the new total is rounded again. `scratch` is scratch memory, float64 (4, O), and `bits` is a view of `scratch`
    as int64.
    """
    count, groups, length = rows.shape
    outputs = columns.shape[2]
    plain = scratch[0]
    cut = scratch[1]
    largest = scratch[2]
    scale = scratch[3]
    for p in range(count):
        for g in range(groups):
            scratch[:3] = 0.0
            for i in range(length):
                x = rows[p, g, i]
                for o in range(outputs):
                    product = x * columns[g, i, o]
                    plain[o] += product
                    size = abs(product)
                    largest[o] = size if size > largest[o] else largest[o]
            for o in range(outputs):
                # Build 2**(24 - E) from the exponent bits of a float64. A product of two 16-bit floats is never a
                # subnormal float64, so an exponent field of 0 means that all products are 0.
                exponent = bits[2, o] >> MANTISSA
                bits[3, o] = (2 * EXPONENT_BIAS + 24 - exponent if exponent else EXPONENT_BIAS + 25) << MANTISSA
            for i in range(length):
                x = rows[p, g, i]
                for o in range(outputs):
                    cut[o] += np.trunc(x * columns[g, i, o] * scale[o])
            for o in range(outputs):
                # The truncated products are integers below 2**25, so their sum is exact in float64. If a product is NaN
                # or infinite, the plain sum of the products is used instead.
                exact = cut[o] / scale[o] if np.isfinite(plain[o]) else plain[o]
                total[p, o] = total[p, o] + np.float32(exact)


def float_conv(x: Array, w: Array, dtype: DType, out: DType, window: Window, first: list[Array]) -> Array:
    """Convolve x (n, ic, h, w) with w (oc, ic, kh, kw), add the float32 terms `first`, and store the result as `out`.

    x and w are stored as `dtype`. The terms broadcast to the result's shape (n, oc, oh, ow).
    """
    n, ic = x.shape[:2]
    oc, _, kh, kw = w.shape
    oh, ow = window.out(*x.shape[2:])
    length = min(ic, GROUP)
    groups = -(-ic // length)
    spare = ((0, 0), (0, groups * length - ic), (0, 0), (0, 0))
    taps = window.taps(np.pad(x, spare)).reshape(n, groups, length, kh * kw, oh * ow)
    weights = np.pad(w, spare).reshape(oc, groups, length, kh * kw)
    # The products are in the machine's order (measured on the functional model).
    if dtype is F32:  # the taps are the innermost axis
        rows = taps.transpose(0, 4, 1, 2, 3).reshape(n * oh * ow, 1, -1)[:, :, : ic * kh * kw]
        columns = weights.transpose(1, 2, 3, 0).reshape(1, -1, oc)[:, : ic * kh * kw]
    else:  # a group's channels are the innermost axis
        rows = taps.transpose(0, 4, 1, 3, 2).reshape(n * oh * ow, -1, length)
        columns = weights.transpose(1, 3, 2, 0).reshape(-1, length, oc)
    shape = (n, oc, oh, ow)
    terms = [np.broadcast_to(term, shape).transpose(0, 2, 3, 1).reshape(-1, oc) for term in first]
    y = dot(rows, columns, dtype, terms).reshape(n, oh, ow, oc).transpose(0, 3, 1, 2)
    return narrow(np.ascontiguousarray(y), out)


def integer_conv(
    x: Array, w: Array, window: Window, pad: Array | int, zero: Array | int, between: Array | int = 0
) -> Array:
    """Convolve 8-bit x with `w - zero`, where w has 8 bits, and return int32.

    Padding has the value `pad`, and elements that the window inserts have the value `between`. `zero` may have the
    shape (oc, 1, 1, 1).
    """
    n = len(x)
    oc = len(w)
    oh, ow = window.out(*x.shape[2:])
    columns = window.taps(x, pad, between).transpose(0, 4, 5, 1, 2, 3).reshape(n, oh * ow, -1)
    weights = (w.astype(np.int32) - zero).reshape(oc, -1).T
    sums = exact_matmul(columns, weights, _magnitude(x), _magnitude(weights))
    return sums.reshape(n, oh, ow, oc).transpose(0, 3, 1, 2)


def scaled(total: Array, out: DType, right: int, mode: Rounding = Rounding.HALF_UP) -> Array:
    """Shift integer sums right by `right` bits, round them by `mode`, and clamp them to the type `out`."""
    return saturate(shift_right(total.astype(np.int64), right, mode), out)


def float_depthwise(taps: Array, w: Array, dtype: DType, first: list[Array]) -> Array:
    """Multiply `taps` (n, c, kh, kw, oh, ow) by w, sum over kh and kw, and return `dtype`.

    w broadcasts to (c, kh, kw). Each operation rounds to `dtype`. The terms `first`, and then the products, are added
    alternately to two accumulators.
    """
    with np.errstate(all="ignore"):
        values = widen(taps, dtype)
        weights = np.broadcast_to(widen(w, dtype), taps.shape[1:4])
        shape = (*taps.shape[:2], *taps.shape[4:])
        sums = [np.zeros(shape, np.float32), np.zeros(shape, np.float32)]
        for index, term in enumerate(first):
            sums[index % 2] = rounded(sums[index % 2] + term, dtype)
        kh, kw = taps.shape[2:4]
        for index in range(kh * kw):
            i, j = divmod(index, kw)
            product = rounded(values[:, :, i, j] * weights[:, i, j, None, None], dtype)
            # the products continue the alternation that begins with `first`
            part = (len(first) + index) % 2
            sums[part] = rounded(sums[part] + product, dtype)
        return narrow(sums[0] + sums[1], dtype)


def integer_depthwise(taps: Array, w: Array) -> Array:
    kh, kw = w.shape[1:]
    # int32 is faster than int64, and overflows only for extremely large kernels.
    total = np.zeros((*taps.shape[:2], *taps.shape[4:]), np.int32 if kh * kw < INT32_TERMS else np.int64)
    weights = w.astype(total.dtype)[:, :, :, None, None]
    for i, j in np.ndindex(kh, kw):
        total += taps[:, :, i, j] * weights[:, i, j]
    return total.astype(np.int64)


def integer_matmul(left: Array, right: Array) -> Array:
    """Return the int32 product of 8-bit matrices (M, K) and (K, N). In one of them, a zero point may be subtracted."""
    return exact_matmul(left, right, _magnitude(left), _magnitude(right))


def _magnitude(x: Array) -> int:
    return max(int(x.max(initial=0)), -int(x.min(initial=0)), 1)
