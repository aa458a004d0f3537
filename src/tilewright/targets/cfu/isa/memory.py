"""The memories of the extensions: where they lie among the CFU's memories, and misuse of them."""

from __future__ import annotations

from tilewright.array import Array

from .state import IMAGE_WORDS, Misuse, Reg, note


def command(regs: Array, misuse: int, cycle: int) -> bool:
    """Begin a command of the CFU: set the answer to 0. If the CFU works, note `misuse` and return False."""
    regs[Reg.ANSWER] = 0
    if cycle <= regs[Reg.BUSY_UNTIL]:
        note(regs, misuse, cycle, regs[Reg.FUNCT7])
        return False
    return True


def image_at(regs: Array) -> int:
    """Return the index of the image memory's first word in the array of all CFU memories (`state.buffers`)."""
    return regs[Reg.ROWS] * regs[Reg.LANES] * 3 // 2


def tables_at(regs: Array) -> int:
    """Return the index of the channel tables' first word: biases, then multipliers, then shifts."""
    return image_at(regs) + IMAGE_WORDS


def filled(regs: Array, misuse: int, cycle: int) -> bool:
    """Return True if no fetch to the image memory is running. Otherwise note `misuse` and return False."""
    if cycle <= regs[Reg.FILLED]:
        note(regs, misuse, cycle, regs[Reg.FUNCT7])
        return False
    return True


def tables_idle(regs: Array, cycle: int) -> bool:
    """Begin a command that writes the channel tables. If the CFU or a fetch uses them, note this and return False."""
    idle = command(regs, Misuse.WRITE_BUSY, cycle)
    if cycle <= regs[Reg.TABLED]:
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
        return False
    return idle
