"""The array: what a launch leaves in C, as one product, and how long it is busy.

C row (n_tile * M + m) gets the sums of A row (m_tile * K + k) and B row (n_tile * K + k), tile after tile, m outer.
A tile takes a cycle for each k and one for each row and lane of skew, then one for each row of C that it writes.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.jit import callee

from .state import NEVER, Reg


@callee
def busy_cycles(m: int, n: int, k: int, lanes: int) -> int:
    """1 + the sum over all tiles of k + lanes + rows written, as measured on the RTL; NEVER if m or n is 0."""
    if m == 0 or n == 0:
        return NEVER  # the RTL's tile counters never reach their end
    m_tiles, n_tiles = -(-m // lanes), -(-n // lanes)
    return 1 + n_tiles * (m_tiles * (k + lanes) + m)


@callee
def multiply(regs: Array, buffers: Array, cycles: int) -> None:
    """Write to C what the launch in `regs` has written after `cycles`; what is beyond the buffers wraps, as there."""
    lanes, rows = regs[Reg.LANES], regs[Reg.ROWS]
    m, n, k = regs[Reg.M], regs[Reg.N], regs[Reg.K]
    words = lanes // 4
    b_base, c_base = rows * words, 2 * rows * words
    a, b = np.empty(lanes, np.int32), np.empty(lanes, np.int32)
    sums = np.empty((lanes, lanes), np.int32)
    for m_tile in range(-(-m // lanes)):
        height = min(lanes, m - lanes * m_tile)
        for n_tile in range(-(-n // lanes)):
            cycles -= k + lanes
            if cycles <= 0:
                return
            sums[:] = 0
            for step in range(k):
                _unpack(buffers, (m_tile * k + step & rows - 1) * words, a)
                _unpack(buffers, b_base + (n_tile * k + step & rows - 1) * words, b)
                for i in range(height):
                    # The sum with the offset is kept in 9 bits.
                    left = ((a[i] + regs[Reg.OFFSET] + 256) & 511) - 256
                    for j in range(lanes):
                        sums[i, j] += np.int32(left) * b[j]
            for i in range(min(height, cycles)):
                at = c_base + (n_tile * m + m_tile * lanes + i & rows - 1) * lanes
                for j in range(lanes):
                    buffers[at + j] = sums[i, j] + (buffers[at + j] if regs[Reg.ACCUMULATE] else 0)
            cycles -= height


@callee
def _unpack(buffers: Array, at: int, lanes: Array) -> None:
    """The int8 lanes of a row, the most significant byte of each word first."""
    for j in range(lanes.shape[0]):
        lanes[j] = np.int8(buffers[at + (j >> 2)] >> (24 - 8 * (j & 3)))
