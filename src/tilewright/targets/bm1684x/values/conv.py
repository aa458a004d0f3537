"""Convolutions, depthwise convolutions and matrix products on stored values."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.targets.bm1684x.values.cube import GROUP, dot
from tilewright.targets.bm1684x.values.dtypes import F32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import narrow, rounded, widen
from tilewright.targets.bm1684x.values.rounding import saturate, shift_right
from tilewright.targets.bm1684x.values.window import Window

#: Products of 8-bit integers whose sum surely fits into int32.
INT32_TERMS = 1 << 15


def float_conv(x: Array, w: Array, dtype: DType, out: DType, window: Window, first: list[Array]) -> Array:
    """x (n, ic, h, w), w (oc, ic, kh, kw); `first` float32 terms that broadcast to (n, oc, oh, ow)."""
    n, ic = x.shape[:2]
    oc, _, kh, kw = w.shape
    oh, ow = window.out(*x.shape[2:])
    length = min(ic, GROUP)
    groups = -(-ic // length)
    spare = ((0, 0), (0, groups * length - ic), (0, 0), (0, 0))
    taps = window.taps(np.pad(x, spare)).reshape(n, groups, length, kh * kw, oh * ow)
    weights = np.pad(w, spare).reshape(oc, groups, length, kh * kw)
    if dtype is F32:  # taps innermost
        rows = taps.transpose(0, 4, 1, 2, 3).reshape(n * oh * ow, 1, -1)[:, :, : ic * kh * kw]
        columns = weights.transpose(1, 2, 3, 0).reshape(1, -1, oc)[:, : ic * kh * kw]
    else:  # channels of a group innermost
        rows = taps.transpose(0, 4, 1, 3, 2).reshape(n * oh * ow, -1, length)
        columns = weights.transpose(1, 3, 2, 0).reshape(-1, length, oc)
    shape = (n, oc, oh, ow)
    terms = [np.broadcast_to(term, shape).transpose(0, 2, 3, 1).reshape(-1, oc) for term in first]
    y = dot(rows, columns, dtype, terms).reshape(n, oh, ow, oc).transpose(0, 3, 1, 2)
    return narrow(np.ascontiguousarray(y), out)


def integer_conv(x: Array, w: Array, window: Window, pad: int, zero: Array | int) -> Array:
    """int32 sums of x * (w - zero), 8-bit x and w; padding is `pad`."""
    n, oc = len(x), len(w)
    oh, ow = window.out(*x.shape[2:])
    columns = window.taps(x, pad).transpose(0, 4, 5, 1, 2, 3).reshape(n, oh * ow, -1)
    weights = (w.astype(np.int32) - zero).reshape(oc, -1).T
    sums = exact_matmul(columns, weights, _magnitude(x), _magnitude(weights))
    return sums.reshape(n, oh, ow, oc).transpose(0, 3, 1, 2)


def scaled(total: Array, out: DType, right: int, mode: Rounding = Rounding.HALF_UP) -> Array:
    """int sums, shifted right and rounded, clamped."""
    return saturate(shift_right(total.astype(np.int64), right, mode), out)


def float_depthwise(taps: Array, w: Array, dtype: DType, first: list[Array]) -> Array:
    """taps (n, c, kh, kw, oh, ow), w that broadcasts to (c, kh, kw); each operation is rounded to `dtype`.

    `first` terms and then products are added in turn to two accumulators.
    """
    with np.errstate(all="ignore"):
        values, weights = widen(taps, dtype), np.broadcast_to(widen(w, dtype), taps.shape[1:4])
        shape = (*taps.shape[:2], *taps.shape[4:])
        sums = [np.zeros(shape, np.float32), np.zeros(shape, np.float32)]
        for index, term in enumerate(first):
            sums[index % 2] = rounded(sums[index % 2] + term, dtype)
        kh, kw = taps.shape[2:4]
        for index in range(kh * kw):
            i, j = divmod(index, kw)
            product = rounded(values[:, :, i, j] * weights[:, i, j, None, None], dtype)
            part = (len(first) + index) % 2
            sums[part] = rounded(sums[part] + product, dtype)
        return narrow(sums[0] + sums[1], dtype)


def integer_depthwise(taps: Array, w: Array) -> Array:
    """int64 sums (n, c, oh, ow) of taps (n, c, kh, kw, oh, ow) times w (c, kh, kw)."""
    kh, kw = w.shape[1:]
    total = np.zeros((*taps.shape[:2], *taps.shape[4:]), np.int32 if kh * kw < INT32_TERMS else np.int64)
    weights = w.astype(total.dtype)[:, :, :, None, None]
    for i, j in np.ndindex(kh, kw):
        total += taps[:, :, i, j] * weights[:, i, j]
    return total.astype(np.int64)


def float_matmul(left: Array, right: Array, dtype: DType, out: DType, first: list[Array]) -> Array:
    """(M, K) times (K, N); `first` float32 terms that broadcast to (M, N)."""
    (m, k), n = left.shape, right.shape[1]
    length = k if dtype is F32 else min(k, GROUP)
    spare = -k % length
    rows = np.pad(left, ((0, 0), (0, spare))).reshape(m, -1, length)
    columns = np.pad(right, ((0, spare), (0, 0))).reshape(-1, length, n)
    terms = [np.broadcast_to(term, (m, n)) for term in first]
    return narrow(dot(rows, columns, dtype, terms), out)


def integer_matmul(left: Array, right: Array) -> Array:
    """int32 sums of (M, K) times (K, N): 8-bit factors, one of them less a zero point perhaps."""
    return exact_matmul(left, right, _magnitude(left), _magnitude(right))


def _magnitude(x: Array) -> int:
    """The largest absolute value of integers; smaller ones make for longer exact sums."""
    return max(int(x.max(initial=0)), -int(x.min(initial=0)), 1)
