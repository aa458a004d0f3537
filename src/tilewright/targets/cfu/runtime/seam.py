"""Where a CFU meets the CPU: `execute(funct7, funct3, a, b, cycle) -> (value, ready cycle)`.

Operands are int32 values, `cycle` is when the command is taken, `ready cycle` when the answer is there (the next
cycle for most). The CFU takes its next command one cycle after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, Protocol

from numba import objmode, types

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.cfu.isa.custom import absent, extended, make_execute
from tilewright.targets.cfu.isa.state import Reg
from tilewright.targets.cfu.jit import native, version

Execute = Callable[[int, int, int, int, int], tuple[int, int]]


class Unit(Protocol):
    """A CFU of one's own, with state."""

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]: ...


Cfu = Execute | Unit

#: The place in the registers of the number by which a CFU in Python is known; the loop writes the two before it.
NUMBER = 2
_numbers = count()
_in_use: dict[int, Execute] = {}


@contextmanager
def seam(cfu: Cfu | None, regs: Array) -> Iterator[Any]:
    """The function that the loop calls, compiled: the model (None), or one that asks a function or object in Python.

    `regs` are the CFU's registers; those of one in Python hold only its number.
    """
    if cfu is None:
        yield _model(bool(regs[Reg.EXTENSIONS]))
        return
    number = next(_numbers)
    regs[:] = 0
    regs[NUMBER] = number
    _in_use[number] = cfu if callable(cfu) else cfu.execute
    try:
        yield _stub()
    finally:
        del _in_use[number]


@cache
def signature() -> Any:
    """Of compiled functions: registers int64 [..], buffers int32 [..], RAM uint8 [..], then as in Python."""
    kinds: Any = types
    arrays = [kinds.Array(kind, 1, "C") for kind in (kinds.int64, kinds.int32, kinds.uint8)]
    return kinds.UniTuple(kinds.int64, 2)(*arrays, *[kinds.int64] * 5)


@cache
def _model(extensions: bool) -> Any:
    """The CFU's model; the extensions, which are most of it, are compiled for machines that have some."""
    return native(make_execute(version(), extended if extensions else absent), signature())


@cache
def _stub() -> Any:
    return native(ask, signature(), python=True)


def ask(
    regs: Array, buffers: Array, ram: Array, funct7: int, funct3: int, a: int, b: int, cycle: int
) -> tuple[int, int]:
    """The seam's compiled side for a CFU in Python."""
    with objmode(value="int64", ready="int64"):
        value, ready = _answer(regs[NUMBER], funct7, funct3, a, b, cycle)
    return value, ready


def _answer(number: int, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
    value, ready = _in_use[int(number)](funct7, funct3, a, b, cycle)
    if not cycle <= ready < 1 << 62:
        reason = f"answers in cycle {ready} a command of cycle {cycle}"
        raise MachineError("CFU", reason, "return (value, ready cycle), ready from the command's cycle on")
    return int(value) & 0xFFFFFFFF, int(ready)
