"""What custom-0 does: `execute(regs, buffers, ram, funct7, funct3, a, b, cycle) -> (value, ready cycle)`.

Values and cycles are those of the author's cfu.v, also where a program misuses it. Every command is answered in the
cycle after it unless said otherwise, and none is taken while there is an answer: that is the CPU loop's business.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.array import Array
from tilewright.targets.cfu.jit import callee

from .launch import busy_cycles, multiply
from .notes import note
from .post import clamp, high_product, shifted
from .state import ANY, LATCH, MAX_WORDS, Misuse, Reg

ADDRESSED, RANDOM, BLOCKING, SINGLE = 0, 1, 1, 1
INT_MIN = -(1 << 31)


def make_execute(build: int, beyond: Callable[..., bool]) -> Callable[..., tuple[int, int]]:
    """The CFU, uncompiled; `build` stands for the sources of all that it calls.

    `beyond(regs, buffers, ram, funct7, a, b, cycle)` takes the instructions after the published nine, or says no.
    """

    def execute(
        regs: Array, buffers: Array, ram: Array, funct7: int, funct3: int, a: int, b: int, cycle: int
    ) -> tuple[int, int]:
        """One instruction, its command taken in `cycle`; a, b are int32 values. The RTL does not look at funct3."""
        _ = build
        ready, known = cycle + 1, True
        _settle(regs, buffers, cycle)
        if funct7 <= 1:
            _set(regs, buffers, funct7, a, b, cycle)
        elif funct7 == 2:
            busy = _start(regs, buffers, a, b, cycle)
            if regs[Reg.START] == BLOCKING:
                ready += busy
        elif funct7 == 3:
            regs[Reg.OUTPUT] = cycle <= regs[Reg.BUSY_UNTIL]
        elif funct7 == 4:
            regs[Reg.OUTPUT] = _get(regs, buffers, a, b, cycle)
            if regs[Reg.READOUT] == RANDOM:
                ready += 1  # the address is computed, then the row is read
        elif funct7 == 5:
            regs[Reg.PRODUCT] = a * b
            regs[Reg.OVERFLOW] = a == INT_MIN and b == INT_MIN
            if regs[Reg.SRDHM] == SINGLE:
                regs[Reg.OUTPUT] = _high(regs)
                ready += 1
        elif funct7 == 6:
            regs[Reg.OUTPUT] = _high(regs)
        elif funct7 == 7:
            regs[Reg.OUTPUT] = shifted(a, b & 0xFFFFFFFF)
        elif funct7 == 8:
            regs[Reg.OUTPUT] = clamp(a, b)
        else:
            known = beyond(regs, buffers, ram, funct7, a, b, cycle)
        if funct3 or not known:
            note(regs, Misuse.UNKNOWN, cycle, funct7 << 3 | funct3)
        return regs[Reg.OUTPUT], ready

    return execute


@callee
def _settle(regs: Array, buffers: Array, cycle: int) -> None:
    """What has happened by itself: the launch has ended, and a write enabled while it ran takes place."""
    if cycle <= regs[Reg.BUSY_UNTIL]:
        return
    if regs[Reg.PENDING]:
        multiply(regs, buffers, regs[Reg.BUSY_UNTIL] - regs[Reg.STARTED])
        regs[Reg.PENDING] = 0
        for which in range(2):
            _commit(regs, buffers, which)


@callee
def _commit(regs: Array, buffers: Array, which: int) -> None:
    """Write the latched row where its index points, if the write is enabled."""
    if regs[Reg.A_ENABLED + which]:
        words = regs[Reg.LANES] // 4
        row = regs[Reg.A_ROW + which] & regs[Reg.ROWS] - 1
        at = (which * regs[Reg.ROWS] + row) * words
        for word in range(words):
            buffers[at + word] = regs[LATCH + which * MAX_WORDS + word]


@callee
def _set(regs: Array, buffers: Array, which: int, a: int, b: int, cycle: int) -> None:
    """Part of a row of A or B. Addressed: a counts words from the buffer's start; otherwise a, b are the next two."""
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
    latch = LATCH + which * MAX_WORDS + there
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
def _start(regs: Array, buffers: Array, a: int, b: int, cycle: int) -> int:
    """Begin a launch; the cycles that the array is busy."""
    m, n, k, lanes, rows = a >> 20 & 1023, a >> 10 & 1023, a & 1023, regs[Reg.LANES], regs[Reg.ROWS]
    if cycle <= regs[Reg.BUSY_UNTIL]:
        note(regs, Misuse.START_BUSY, cycle, regs[Reg.BUSY_UNTIL] - cycle)
        multiply(regs, buffers, cycle - regs[Reg.STARTED])  # the array forgets the rest
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
    _commit(regs, buffers, 0)  # A's write stays enabled, with the index that is now in front of the first row
    regs[Reg.A_ENABLED + 1] = regs[Reg.C_ROW] = 0
    busy = busy_cycles(m, n, k, lanes)
    regs[Reg.M], regs[Reg.N], regs[Reg.K] = m, n, k
    regs[Reg.OFFSET], regs[Reg.ACCUMULATE] = ((b + 256) & 511) - 256, a >> 30 & 1
    regs[Reg.STARTED], regs[Reg.PENDING] = cycle + 1, 1
    regs[Reg.BUSY_UNTIL] = cycle + 1 + busy
    regs[Reg.LAUNCHES] += 1
    regs[Reg.BUSY_CYCLES] += busy
    regs[Reg.MACS] += m * n * k
    return busy


@callee
def _get(regs: Array, buffers: Array, a: int, b: int, cycle: int) -> int:
    """The next lane of C, or that of row a, column b."""
    lanes, rows = regs[Reg.LANES], regs[Reg.ROWS]
    if cycle <= regs[Reg.BUSY_UNTIL]:
        note(regs, Misuse.READ_BUSY, cycle, 0)
    if regs[Reg.READOUT] == RANDOM:
        row, lane = (b // lanes) * regs[Reg.M] + a, b % lanes
    else:
        row, lane = regs[Reg.C_ROW], regs[Reg.C_LANE]
        regs[Reg.C_LANE] = (lane + 1) % lanes
        if lane + 1 == lanes:
            regs[Reg.C_ROW] = row + 1
    if not 0 <= row < rows:
        note(regs, Misuse.ROWS, cycle, row)
    return buffers[rows * (lanes // 2) + (row & rows - 1) * lanes + lane]


@callee
def _high(regs: Array) -> int:
    return 0x7FFFFFFF if regs[Reg.OVERFLOW] else high_product(regs[Reg.PRODUCT])
