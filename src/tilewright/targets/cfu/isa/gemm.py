"""CFU instructions: write rows of A and B, multiply them into C, read sums from C; and fixed-point post-processing.

Values equal those of the author's cfu.v; post-processing is gemmlowp's. The meaning of an instruction is a function of
(regs, buffers, ram, a, b, cycle): a and b are int32 operands, and the CFU accepts the command in `cycle`. An
instruction with a new answer writes Reg.ANSWER. If the answer is not ready in the next cycle, the instruction also
writes Reg.READY.

A matrix product is computed in tiles. For a tile, the rows of A begin at `m_tile * K` and the rows of B at
`n_tile * K`, with one row for each k; the rows of C begin at `n_tile * M`, with one row for each m. The outer loop is
over m_tile. A tile takes one cycle per k, then `array` cycles for the skewed operands to pass through the array, then
one cycle per row of C.

The model is lazy: start_GEMM only records the end of the launch (BUSY_UNTIL). The next command after the end writes the
sums to C (`settle`). A command before the end writes the sums that are complete in its cycle. Because only commands
can read C, the results are exact.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.cfu.config import CHOICES

from .memory import A, B, registers_at, row_at, sums_at
from .state import IMAGE_PENDING, MAX_WORDS, NEVER, PRODUCT_PENDING, Misuse, Reg, note

SINGLE = CHOICES["srdhm"].index("single")
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
ADDRESSED = CHOICES["transfer"].index("addressed")
RANDOM = CHOICES["readout"].index("random")
BLOCKING = CHOICES["start"].index("blocking")


def set_srdhm(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction set_SRDHM: latch `a * b`. With srdhm=single, it answers like get_SRDHM, a cycle later."""
    regs[Reg.PRODUCT] = a * b
    regs[Reg.OVERFLOW] = a == INT_MIN and b == INT_MIN
    if regs[Reg.SRDHM] == SINGLE:
        get_srdhm(regs, buffers, ram, a, b, cycle)
        regs[Reg.READY] = cycle + 2


def get_srdhm(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction get_SRDHM: answer with the high half of twice the latched product, rounded and saturated."""
    regs[Reg.ANSWER] = INT_MAX if regs[Reg.OVERFLOW] else high_product(regs[Reg.PRODUCT])


def rdbpot(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction RDBPOT: answer with `a / 2**b`, rounded to nearest; b is unsigned."""
    regs[Reg.ANSWER] = shifted(a, b & 0xFFFFFFFF)


def off_maxmin(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction off_maxmin: answer with `a + b`, clamped to int8."""
    regs[Reg.ANSWER] = max(-128, min(127, wrapped(a + b)))


def high_product(product: int) -> int:
    """Return `product / 2**31`, rounded to nearest, ties away from zero: the high half of a doubled 64-bit product.

    This is gemmlowp's SaturatingRoundingDoublingHighMul: add 2^30 or 1 - 2^30, then divide, rounding towards zero.
    """
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    # A shift rounds down. To round towards zero, negate a negative number before the shift and after the shift.
    return -(-nudged >> 31) if nudged < 0 else nudged >> 31


def shifted(x: int, exponent: int) -> int:
    """Return `x / 2**exponent`, to nearest, ties away from zero: gemmlowp's RoundingDivideByPOT.

    gemmlowp does not define results for exponents above 31. The model returns the same results as the RTL.
    """
    if exponent > 31:
        return -1 if x == INT_MIN else 0
    # The shift rounds down. 1 is added if the remainder is above half, or if x is positive and the remainder is half.
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if x & mask > threshold else 0)


def scaled(x: int, multiplier: int, shift: int) -> int:
    """Return `x * multiplier * 2**(shift - 31)` with gemmlowp's double rounding."""
    return shifted(high_product(wrapped(x << max(shift, 0)) * multiplier), max(-shift, 0))


def wrapped(x: int) -> int:
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def set_a(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    _set(regs, buffers, A, a, b, cycle)


def set_b(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    _set(regs, buffers, B, a, b, cycle)


def _set(regs: Array, buffers: Array, which: int, a: int, b: int, cycle: int) -> None:
    """Write two words to buffer A or B, or with transfer=addressed the value b to word number a."""
    words = regs[Reg.LANES] // 4
    busy = cycle <= regs[Reg.BUSY_UNTIL] or (which == B and cycle <= regs[Reg.FETCHED])
    if busy:
        note(regs, Misuse.WRITE_BUSY, cycle, which)
    if regs[Reg.TRANSFER] == ADDRESSED:
        size = regs[Reg.ROWS] * words
        if not 0 <= a < size:
            note(regs, Misuse.ROWS, cycle, a // words)
        if not busy:
            buffers[which * size + (a & size - 1)] = b
        return
    latched = regs[Reg.A_WORDS + which]
    latch = Reg.LATCH + which * MAX_WORDS + latched
    regs[Reg.A_ENABLED + which] = 0
    if words == 1:  # a row of 4 values is in the second operand
        regs[latch] = b
    else:
        regs[latch] = a
        regs[latch + 1] = b
    regs[Reg.A_WORDS + which] = latched + 2
    if latched + 2 >= words:
        regs[Reg.A_WORDS + which] = 0
        regs[Reg.A_ENABLED + which] = 1
        regs[Reg.A_ROW + which] += 1
        if regs[Reg.A_ROW + which] >= regs[Reg.ROWS]:
            note(regs, Misuse.ROWS, cycle, regs[Reg.A_ROW + which])
        if not busy:
            _commit(regs, buffers, which)


def _commit(regs: Array, buffers: Array, which: int) -> None:
    if regs[Reg.A_ENABLED + which]:
        at = row_at(regs, which, regs[Reg.A_ROW + which])
        for word in range(regs[Reg.LANES] // 4):
            buffers[at + word] = regs[Reg.LATCH + which * MAX_WORDS + word]
        if which == B:
            regs[Reg.B_ENABLED] = 0  # do not write the row again, because a fetch may overwrite it meanwhile


def start(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_GEMM: a is `accumulate << 30 | M << 20 | N << 10 | K`; b is an offset for A."""
    m = a >> 20 & 1023
    n = a >> 10 & 1023
    k = a & 1023
    lanes = regs[Reg.LANES]
    rows = regs[Reg.ROWS]
    if cycle <= regs[Reg.FETCHED]:
        note(regs, Misuse.START_BUSY, cycle, regs[Reg.FETCHED] - cycle)
        return  # the DMA may be writing B
    if cycle <= regs[Reg.BUSY_UNTIL]:
        note(regs, Misuse.START_BUSY, cycle, regs[Reg.BUSY_UNTIL] - cycle)
        if regs[Reg.PENDING] == IMAGE_PENDING:
            return  # the array is in use by another command
        _multiply(regs, buffers, cycle - regs[Reg.STARTED])  # the rest of that launch is lost
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
    if b < -256 or b > 255:
        note(regs, Misuse.OFFSET, cycle, b)
    regs[Reg.A_ROW] = regs[Reg.B_ROW] = -1
    # A quirk of the author's RTL: start clears the write enable of B, but not the write enable of A. The row number is
    # now -1, so the last row from the CPU is written again, to the end of buffer A.
    _commit(regs, buffers, A)
    regs[Reg.B_ENABLED] = regs[Reg.C_ROW] = 0
    regs[Reg.M] = m
    regs[Reg.N] = n
    regs[Reg.K] = k
    regs[Reg.OFFSET] = ((b + 256) & 511) - 256
    regs[Reg.ACCUMULATE] = a >> 30 & 1
    regs[Reg.STARTED] = cycle + 1
    regs[Reg.PENDING] = PRODUCT_PENDING
    regs[Reg.COMPUTED] = 0
    regs[Reg.MACS] += m * n * k
    work(regs, cycle, busy_cycles(m, n, k, lanes))
    if regs[Reg.START] == BLOCKING:
        regs[Reg.READY] = regs[Reg.BUSY_UNTIL]


def busy_cycles(m: int, n: int, k: int, lanes: int) -> int:
    """Return the cycles of a matrix product on the array, as measured on the RTL, or NEVER if m or n is 0."""
    if m == 0 or n == 0:
        return NEVER  # the RTL's tile counters never reach their end
    # A tile takes `k + lanes` cycles, and one cycle for each of its rows in C. A tile with fewer columns than lanes
    # takes as long as a whole tile. The launch needs one more cycle.
    m_tiles = -(-m // lanes)
    n_tiles = -(-n // lanes)
    return 1 + n_tiles * (m_tiles * (k + lanes) + m)


def work(regs: Array, cycle: int, cycles: int) -> None:
    """Keep the array busy for `cycles` after a command in `cycle`."""
    regs[Reg.BUSY_UNTIL] = cycle + 1 + cycles
    regs[Reg.BUSY_CYCLES] += cycles
    regs[Reg.LAUNCHES] += 1


def settle(regs: Array, buffers: Array, cycle: int) -> None:
    """Bring the memories up to date before a command in `cycle`.

    If the CFU's work has ended, write C, and write rows of A and B that the CPU has sent during the work.
    """
    if regs[Reg.PENDING] and cycle > regs[Reg.BUSY_UNTIL]:
        if regs[Reg.PENDING] == PRODUCT_PENDING:
            _multiply(regs, buffers, regs[Reg.BUSY_UNTIL] - regs[Reg.STARTED])
        regs[Reg.PENDING] = 0
        _commit(regs, buffers, A)
    if regs[Reg.B_ENABLED] and cycle > max(regs[Reg.BUSY_UNTIL], regs[Reg.FETCHED]):
        _commit(regs, buffers, B)


def _multiply(regs: Array, buffers: Array, cycles: int) -> int:
    """Write to C all sums that the running launch writes in its first `cycles` cycles. Rows past the buffers wrap.

    Return the row of C that is written next (-1: all are written). The array reads this row in this cycle.
    """
    lanes = regs[Reg.LANES]
    m = regs[Reg.M]
    n = regs[Reg.N]
    k = regs[Reg.K]
    before = regs[Reg.COMPUTED]
    regs[Reg.COMPUTED] = cycles
    if m == 0 or n == 0:
        return 0
    for m_tile in range(-(-m // lanes)):
        height = min(lanes, m - lanes * m_tile)
        for n_tile in range(-(-n // lanes)):
            first = n_tile * m + m_tile * lanes
            cycles -= k + lanes
            before -= k + lanes
            if cycles <= 0:
                return first
            # From here, `cycles` and `before` count from the first cycle in which the tile writes to C. A program may
            # read C in every cycle, so a tile whose rows are all written is not computed again.
            if before < height:
                _sum_tile(regs, buffers, m_tile, n_tile, height)
                for i in range(max(before, 0), min(height, cycles)):
                    _store_sums(regs, buffers, i, first + i)
                if cycles <= height:
                    return first + cycles
            cycles -= height
            before -= height
    return -1


@part
def _sum_tile(regs: Array, buffers: Array, m_tile: int, n_tile: int, height: int) -> None:
    lanes = regs[Reg.LANES]
    k = regs[Reg.K]
    left = registers_at(regs, buffers)
    right = left + lanes
    sums = left + 2 * lanes
    for j in range(lanes * lanes):
        buffers[sums + j] = 0
    for step in range(k):
        _unpack(buffers, row_at(regs, A, m_tile * k + step), left, lanes)
        _unpack(buffers, row_at(regs, B, n_tile * k + step), right, lanes)
        for i in range(height):
            # The RTL keeps the sum of value and offset in 9 bits.
            factor = np.int32(((buffers[left + i] + regs[Reg.OFFSET] + 256) & 511) - 256)
            for j in range(lanes):
                buffers[sums + i * lanes + j] += factor * buffers[right + j]


@part
def _store_sums(regs: Array, buffers: Array, i: int, row: int) -> None:
    lanes = regs[Reg.LANES]
    at = sums_at(regs, row)
    sums = registers_at(regs, buffers) + 2 * lanes + i * lanes
    for j in range(lanes):
        buffers[at + j] = buffers[sums + j] + (buffers[at + j] if regs[Reg.ACCUMULATE] else 0)


def _unpack(buffers: Array, row: int, to: int, lanes: int) -> None:
    """Unpack a row of int8 values, which begins at index `row`, to words from index `to` on. The high byte is first."""
    for j in range(lanes):
        buffers[to + j] = np.int8(buffers[row + (j >> 2)] >> (24 - 8 * (j & 3)))


def check(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction check_GEMM: answer with 1 while the array works, else 0."""
    regs[Reg.ANSWER] = cycle <= regs[Reg.BUSY_UNTIL]


def get(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction get_matrixC: answer with the next sum of C (readout=random: the sum at row a, column b).

    A random read answers one cycle later, because the address is computed first. While the array works, C outputs the
    row that the array writes next, and the answer is a sum of this row. While a command on the image memory runs, the
    answer is 0.
    """
    lanes = regs[Reg.LANES]
    rows = regs[Reg.ROWS]
    written = -1
    zero = False
    if cycle <= regs[Reg.BUSY_UNTIL]:  # the address of C comes from the array
        note(regs, Misuse.READ_BUSY, cycle, 0)
        zero = regs[Reg.PENDING] == IMAGE_PENDING
        if not zero:  # the address is that of the previous cycle, or of this cycle with readout=random
            begun = cycle - regs[Reg.STARTED] - (0 if regs[Reg.READOUT] == RANDOM else 1)
            written = _multiply(regs, buffers, begun)
    if regs[Reg.READOUT] == RANDOM:
        row = (b // lanes) * regs[Reg.M] + a
        lane = b % lanes
        regs[Reg.READY] = cycle + 2
    else:
        row = regs[Reg.C_ROW]
        lane = regs[Reg.C_LANE]
        regs[Reg.C_LANE] = (lane + 1) % lanes
        if lane + 1 == lanes:
            regs[Reg.C_ROW] = row + 1
    if not 0 <= row < rows:
        note(regs, Misuse.ROWS, cycle, row)
    if written >= 0:
        row = written
    regs[Reg.ANSWER] = 0 if zero else buffers[sums_at(regs, row) + lane]
