"""The array's instructions: rows into A and B, a product into C, sums out of C; and post-processing in fixed point.

Values are those of the author's cfu.v; post-processing is gemmlowp's. A meaning takes (regs, buffers, ram, a, b,
cycle): a, b are int32 values, the command is taken in `cycle`. Where the answer is new, it writes Reg.ANSWER; where it
comes later than in the next cycle, Reg.READY.

C row (n_tile * M + m) gets the sums of A row (m_tile * K + k) and B row (n_tile * K + k), tile after tile, m outer.
A tile takes a cycle for each k and one for each row and lane of skew, then one for each row of C that it writes.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import CHOICES
from tilewright.targets.cfu.jit import callee

from .state import ANY, MAX_WORDS, NEVER, Misuse, Reg, note

SINGLE = CHOICES["srdhm"].index("single")
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
ADDRESSED = CHOICES["transfer"].index("addressed")
RANDOM = CHOICES["readout"].index("random")
BLOCKING = CHOICES["start"].index("blocking")
A, B = 0, 1


@callee
def set_srdhm(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """Latch a * b; a machine with srdhm=single answers with its high half, a cycle later."""
    regs[Reg.PRODUCT] = a * b
    regs[Reg.OVERFLOW] = a == INT_MIN and b == INT_MIN
    if regs[Reg.SRDHM] == SINGLE:
        get_srdhm(regs, buffers, ram, a, b, cycle)
        regs[Reg.READY] = cycle + 2


@callee
def get_srdhm(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The rounded doubled high half of the product, saturated."""
    regs[Reg.ANSWER] = INT_MAX if regs[Reg.OVERFLOW] else high_product(regs[Reg.PRODUCT])


@callee
def rdbpot(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """a / 2**b, b unsigned."""
    regs[Reg.ANSWER] = shifted(a, b & 0xFFFFFFFF)


@callee
def off_maxmin(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """a + b within int8."""
    regs[Reg.ANSWER] = max(-128, min(127, wrapped(a + b)))


@callee
def high_product(product: int) -> int:
    """The rounded high half of a 64-bit product: (product + nudge) / 2**31, truncated."""
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return -(-nudged >> 31) if nudged < 0 else nudged >> 31


@callee
def shifted(x: int, exponent: int) -> int:
    """x / 2**exponent to the nearest, ties away from zero; `exponent` unsigned, from 32 on as the RTL gives it."""
    if exponent > 31:
        return -1 if x == INT_MIN else 0
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if x & mask > threshold else 0)


@callee
def scaled(x: int, multiplier: int, shift: int) -> int:
    """gemmlowp's double rounding of x * multiplier * 2**(shift - 31)."""
    return shifted(high_product(wrapped(x << max(shift, 0)) * multiplier), max(-shift, 0))


@callee
def wrapped(x: int) -> int:
    """x as an int32."""
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


@callee
def set_a(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """Part of a row of A."""
    _set(regs, buffers, A, a, b, cycle)


@callee
def set_b(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """Part of a row of B."""
    _set(regs, buffers, B, a, b, cycle)


@callee
def _set(regs: Array, buffers: Array, which: int, a: int, b: int, cycle: int) -> None:
    """Addressed: a counts words from the buffer's start; otherwise a, b are the next two words of a row."""
    words = regs[Reg.LANES] // 4
    busy = cycle <= regs[Reg.BUSY_UNTIL]
    if busy:
        note(regs, Misuse.WRITE_BUSY, cycle, which)
    if regs[Reg.TRANSFER] == ADDRESSED:
        size = regs[Reg.ROWS] * words
        if not 0 <= a < size:
            note(regs, Misuse.ROWS, cycle, a // words)
        if not busy:
            buffers[which * size + (a & size - 1)] = b
        return
    there = regs[Reg.A_WORDS + which]
    latch = Reg.LATCH + which * MAX_WORDS + there
    regs[Reg.A_ENABLED + which] = 0
    if words == 1:  # a row of four: the second operand
        regs[latch] = b
    else:
        regs[latch], regs[latch + 1] = a, b
    regs[Reg.A_WORDS + which] = there + 2
    if there + 2 >= words:
        regs[Reg.A_WORDS + which] = 0
        regs[Reg.A_ENABLED + which] = 1
        regs[Reg.A_ROW + which] += 1
        if regs[Reg.A_ROW + which] >= regs[Reg.ROWS]:
            note(regs, Misuse.ROWS, cycle, regs[Reg.A_ROW + which])
        if not busy:
            _commit(regs, buffers, which)


@callee
def _commit(regs: Array, buffers: Array, which: int) -> None:
    """Write the latched row where its index points, if the write is enabled."""
    if regs[Reg.A_ENABLED + which]:
        words = regs[Reg.LANES] // 4
        row = regs[Reg.A_ROW + which] & regs[Reg.ROWS] - 1
        at = (which * regs[Reg.ROWS] + row) * words
        for word in range(words):
            buffers[at + word] = regs[Reg.LATCH + which * MAX_WORDS + word]


@callee
def start(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """Begin a launch of accumulate << 30 | M << 20 | N << 10 | K, with the offset b of A."""
    m, n, k, lanes, rows = a >> 20 & 1023, a >> 10 & 1023, a & 1023, regs[Reg.LANES], regs[Reg.ROWS]
    if cycle <= regs[Reg.BUSY_UNTIL]:
        note(regs, Misuse.START_BUSY, cycle, regs[Reg.BUSY_UNTIL] - cycle)
        _multiply(regs, buffers, cycle - regs[Reg.STARTED])  # the array forgets the rest
    for which in range(2):
        if regs[Reg.A_WORDS + which]:
            note(regs, Misuse.HALF_ROW, cycle, which)
    if regs[Reg.C_LANE]:
        note(regs, Misuse.PARTIAL_READ, cycle, regs[Reg.C_LANE])
    needed = max(-(-m // lanes) * k, -(-n // lanes) * k, -(-n // lanes) * m)
    if needed > rows:
        note(regs, Misuse.ROWS, cycle, needed)
    if m == 0 or n == 0 or k == 0:
        note(regs, Misuse.EMPTY, cycle, 0)
    if b < -256 or b > 255 or (regs[Reg.EXPECTED] != ANY and regs[Reg.EXPECTED] != b):
        note(regs, Misuse.OFFSET, cycle, b)
    regs[Reg.A_ROW] = regs[Reg.B_ROW] = -1
    _commit(regs, buffers, A)  # A's write stays enabled, with the index that is now in front of the first row
    regs[Reg.B_ENABLED] = regs[Reg.C_ROW] = 0
    regs[Reg.M], regs[Reg.N], regs[Reg.K] = m, n, k
    regs[Reg.OFFSET], regs[Reg.ACCUMULATE] = ((b + 256) & 511) - 256, a >> 30 & 1
    regs[Reg.STARTED], regs[Reg.PENDING] = cycle + 1, 1
    regs[Reg.MACS] += m * n * k
    work(regs, cycle, busy_cycles(m, n, k, lanes))
    if regs[Reg.START] == BLOCKING:
        regs[Reg.READY] = regs[Reg.BUSY_UNTIL]


@callee
def busy_cycles(m: int, n: int, k: int, lanes: int) -> int:
    """1 + the sum over all tiles of k + lanes + rows written, as measured on the RTL; NEVER if m or n is 0."""
    if m == 0 or n == 0:
        return NEVER  # the RTL's tile counters never reach their end
    m_tiles, n_tiles = -(-m // lanes), -(-n // lanes)
    return 1 + n_tiles * (m_tiles * (k + lanes) + m)


@callee
def work(regs: Array, cycle: int, cycles: int) -> None:
    """Keep the array busy after a command in `cycle`."""
    regs[Reg.BUSY_UNTIL] = cycle + 1 + cycles
    regs[Reg.BUSY_CYCLES] += cycles
    regs[Reg.LAUNCHES] += 1


@callee
def settle(regs: Array, buffers: Array, cycle: int) -> None:
    """Before each command: write C if the launch has ended, and the row whose write was enabled while it ran."""
    if regs[Reg.PENDING] and cycle > regs[Reg.BUSY_UNTIL]:
        _multiply(regs, buffers, regs[Reg.BUSY_UNTIL] - regs[Reg.STARTED])
        regs[Reg.PENDING] = 0
        _commit(regs, buffers, A)
        _commit(regs, buffers, B)


@callee
def _multiply(regs: Array, buffers: Array, cycles: int) -> None:
    """Write to C what the launch in `regs` has written after `cycles`; rows beyond the buffers wrap, as there."""
    lanes, rows = regs[Reg.LANES], regs[Reg.ROWS]
    m, n, k = regs[Reg.M], regs[Reg.N], regs[Reg.K]
    words = lanes // 4
    b_base, c_base = rows * words, 2 * rows * words
    sums = buffers.shape[0] - lanes * lanes
    left, right = sums - 2 * lanes, sums - lanes
    for m_tile in range(-(-m // lanes)):
        height = min(lanes, m - lanes * m_tile)
        for n_tile in range(-(-n // lanes)):
            cycles -= k + lanes
            if cycles <= 0:
                return
            for j in range(lanes * lanes):
                buffers[sums + j] = 0
            for step in range(k):
                _unpack(buffers, (m_tile * k + step & rows - 1) * words, left, lanes)
                _unpack(buffers, b_base + (n_tile * k + step & rows - 1) * words, right, lanes)
                for i in range(height):
                    # The sum with the offset is kept in 9 bits.
                    factor = np.int32(((buffers[left + i] + regs[Reg.OFFSET] + 256) & 511) - 256)
                    for j in range(lanes):
                        buffers[sums + i * lanes + j] += factor * buffers[right + j]
            for i in range(min(height, cycles)):
                at = c_base + (n_tile * m + m_tile * lanes + i & rows - 1) * lanes
                for j in range(lanes):
                    total = buffers[sums + i * lanes + j]
                    buffers[at + j] = total + (buffers[at + j] if regs[Reg.ACCUMULATE] else 0)
            cycles -= height


@callee
def _unpack(buffers: Array, row: int, to: int, lanes: int) -> None:
    """The int8 lanes of a row, the most significant byte of each word first, as words."""
    for j in range(lanes):
        buffers[to + j] = np.int8(buffers[row + (j >> 2)] >> (24 - 8 * (j & 3)))


@callee
def check(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """1 while the array works."""
    regs[Reg.ANSWER] = cycle <= regs[Reg.BUSY_UNTIL]


@callee
def get(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The next lane of C, or that of row a, column b: a cycle later, as the address is computed first."""
    lanes, rows = regs[Reg.LANES], regs[Reg.ROWS]
    if cycle <= regs[Reg.BUSY_UNTIL]:
        note(regs, Misuse.READ_BUSY, cycle, 0)
    if regs[Reg.READOUT] == RANDOM:
        row, lane = (b // lanes) * regs[Reg.M] + a, b % lanes
        regs[Reg.READY] = cycle + 2
    else:
        row, lane = regs[Reg.C_ROW], regs[Reg.C_LANE]
        regs[Reg.C_LANE] = (lane + 1) % lanes
        if lane + 1 == lanes:
            regs[Reg.C_ROW] = row + 1
    if not 0 <= row < rows:
        note(regs, Misuse.ROWS, cycle, row)
    regs[Reg.ANSWER] = buffers[rows * (lanes // 2) + (row & rows - 1) * lanes + lane]
