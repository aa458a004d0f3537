"""Where a CFU meets the CPU: `execute(funct7, funct3, a, b, cycle) -> (value, ready cycle)`.

Operands are int32 values, `cycle` is when the command is taken, `ready cycle` when the answer is there (the next
cycle for most). The CFU takes its next command one cycle after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from tilewright.array import Array
from tilewright.errors import MachineError

from .jit import native, version

Execute = Callable[[int, int, int, int, int], tuple[int, int]]


class Unit(Protocol):
    """A CFU of one's own, with state."""

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]: ...


Cfu = Execute | Unit


@dataclass(frozen=True)
class Seam:
    """What the loop calls (compiled, see `signature`), and what answers where that is Python; "" or a trap's name."""

    execute: Any
    answer: Callable[[Array], None]


def seam(cfu: Cfu | None) -> Seam:
    """The seam of the model (None), or of a function or object in Python."""
    if cfu is None:
        return Seam(_model(), _nobody)
    return Seam(_stub(), _Answer(cfu if callable(cfu) else cfu.execute))


@cache
def signature() -> Any:
    """Of compiled functions: registers int64 [..], buffers int32 [..], RAM uint8 [..], then as in Python."""
    import numba

    types: Any = numba.types
    number = types.int64
    arrays = [types.Array(kind, 1, "C") for kind in (types.int64, types.int32, types.uint8)]
    return types.UniTuple(number, 2)(*arrays, *[number] * 5)


@cache
def _model() -> Any:
    from .array.model import make_execute

    return native(make_execute(version()), signature())


#: Places in the registers of a CFU in Python: whether the answer is there; the answer; the command.
ANSWERED, VALUE, READY, COMMAND = 2, 3, 4, 5


@cache
def _stub() -> Any:
    return native(_ask, signature())


def _ask(
    regs: Array, buffers: Array, ram: Array, funct7: int, funct3: int, a: int, b: int, cycle: int
) -> tuple[int, int]:
    """The answer if it is there; otherwise a ready cycle of -1, and the loop is left."""
    if regs[ANSWERED]:
        regs[ANSWERED] = 0
        return regs[VALUE], regs[READY]
    regs[COMMAND], regs[COMMAND + 1], regs[COMMAND + 2] = funct7, funct3, a
    regs[COMMAND + 3], regs[COMMAND + 4] = b, cycle
    return 0, -1


@dataclass(frozen=True)
class _Answer:
    execute: Execute

    def __call__(self, regs: Array) -> None:
        command = [int(value) for value in regs[COMMAND : COMMAND + 5]]
        value, ready = self.execute(*command)
        if not command[-1] <= ready < 1 << 62:
            reason = f"answers in cycle {ready} a command of cycle {command[-1]}"
            raise MachineError("CFU", reason, "return (value, ready cycle), ready from the command's cycle on")
        regs[ANSWERED], regs[READY] = 1, ready
        regs[VALUE] = value & 0xFFFFFFFF


def _nobody(regs: Array) -> None:
    raise AssertionError("the model answers by itself")
