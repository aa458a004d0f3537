"""The array processing element by processing element and cycle by cycle: slow, and independent of the closed form."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array


def stepped(a: Array, b: Array, offset: int, n: int) -> tuple[Array, int]:
    """(a + offset) @ b on an output-stationary n x n array: sums and cycles. a (M, K), b (K, N)."""
    (rows, depth), columns = a.shape, b.shape[1]
    sums = np.zeros((rows, columns), np.int64)
    cycles = 1  # the last state
    for top in range(0, rows, n):
        for left in range(0, columns, n):
            height = min(n, rows - top)
            held = np.zeros((n, n), np.int64)
            right, down = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
            enter_left, enter_top = np.zeros(n, np.int64), np.zeros(n, np.int64)
            for cycle in range(depth + n + height):
                if cycle >= depth + n:  # a row leaves, what it held before this edge
                    row = cycle - depth - n
                    sums[top + row, left : left + n] = held[row, : columns - left]
                from_left = np.concatenate([enter_left[:, None], right[:, :-1]], axis=1)
                from_top = np.concatenate([enter_top[None], down[:-1]], axis=0)
                held = held + from_left * from_top
                right, down = from_left, from_top
                for lane in range(n):
                    step = cycle - lane
                    inside = 0 <= step < depth
                    enter_left[lane] = a[top + lane, step] + offset if inside and top + lane < rows else 0
                    enter_top[lane] = b[step, left + lane] if inside and left + lane < columns else 0
                cycles += 1
    return sums, cycles
