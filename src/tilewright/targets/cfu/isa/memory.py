"""The positions of the CFU's memories in one array (`state.buffers`), and checks for commands on extension memories.

The buffers A and B have four int8 per word, the first in the most significant byte; C has int32 sums. With extensions,
the image memory and the channel tables follow C. The registers of the multiplier array are last: a row of A, a row of
B, and n x n sums. Rows past the end of a buffer wrap.
"""

from __future__ import annotations

from tilewright.array import Array

from .state import IMAGE_WORDS, Misuse, Reg, note

A, B = 0, 1


def row_at(regs: Array, which: int, row: int) -> int:
    return (which * regs[Reg.ROWS] + (row & regs[Reg.ROWS] - 1)) * (regs[Reg.LANES] // 4)


def sums_at(regs: Array, row: int) -> int:
    rows = regs[Reg.ROWS]
    lanes = regs[Reg.LANES]
    return rows * (lanes // 2) + (row & rows - 1) * lanes


def registers_at(regs: Array, buffers: Array) -> int:
    return buffers.shape[0] - (regs[Reg.LANES] + 2) * regs[Reg.LANES]


def command(regs: Array, misuse: int, cycle: int) -> bool:
    """Begin a command of the CFU: set the answer to 0. If the CFU is busy, record `misuse` and return False."""
    regs[Reg.ANSWER] = 0
    if cycle <= regs[Reg.BUSY_UNTIL]:
        note(regs, misuse, cycle, regs[Reg.FUNCT7])
        return False
    return True


def image_at(regs: Array) -> int:
    return regs[Reg.ROWS] * regs[Reg.LANES] * 3 // 2


def tables_at(regs: Array) -> int:
    return image_at(regs) + IMAGE_WORDS


def filled(regs: Array, misuse: int, cycle: int) -> bool:
    """Return True if no fetch to the image memory is running. Otherwise record `misuse` and return False."""
    if cycle <= regs[Reg.FILLED]:
        note(regs, misuse, cycle, regs[Reg.FUNCT7])
        return False
    return True


def tables_idle(regs: Array, cycle: int) -> bool:
    """Begin a write to the channel tables. Return False (a misuse) if the CFU is busy or a fetch uses the tables."""
    idle = command(regs, Misuse.WRITE_BUSY, cycle)
    if cycle <= regs[Reg.TABLED]:
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
        return False
    return idle
