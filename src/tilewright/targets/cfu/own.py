"""A CFU in Python, called from compiled code; which one it is stands in the CFU's registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from numba import objmode

from tilewright.array import Array
from tilewright.errors import MachineError

from .seam import Execute

#: The place of its number in the registers; the loop writes the two before it.
NUMBER = 2
_numbers = count()
_in_use: dict[int, Execute] = {}


@contextmanager
def registered(execute: Execute, regs: Array) -> Iterator[None]:
    """`execute` is what `ask` calls with these registers."""
    number = next(_numbers)
    regs[:] = 0
    regs[NUMBER] = number
    _in_use[number] = execute
    try:
        yield
    finally:
        del _in_use[number]


def ask(
    regs: Array, buffers: Array, ram: Array, funct7: int, funct3: int, a: int, b: int, cycle: int
) -> tuple[int, int]:
    """The seam's compiled side."""
    with objmode(value="int64", ready="int64"):
        value, ready = _answer(regs[NUMBER], funct7, funct3, a, b, cycle)
    return value, ready


def _answer(number: int, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
    value, ready = _in_use[int(number)](funct7, funct3, a, b, cycle)
    if not cycle <= ready < 1 << 62:
        reason = f"answers in cycle {ready} a command of cycle {cycle}"
        raise MachineError("CFU", reason, "return (value, ready cycle), ready from the command's cycle on")
    return int(value) & 0xFFFFFFFF, int(ready)
