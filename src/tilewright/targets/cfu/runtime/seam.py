"""Where CPU and CFU meet: the function that the CPU's loop calls for each custom-0 instruction.

The CPU calls a CFU as `execute(funct7, funct3, a, b, cycle) -> (value, ready cycle)`. Operands are int32 values. The
CFU takes the command in `cycle`; the answer is ready in `ready cycle`, which is the next cycle for most instructions.
The CFU takes its next command one cycle after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from llvmlite import ir
from numba import objmode, types
from numba.extending import intrinsic

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.cfu.isa.custom import absent, extended, make_execute
from tilewright.targets.cfu.isa.state import Reg
from tilewright.targets.cfu.jit import native, version

Execute = Callable[[int, int, int, int, int], tuple[int, int]]
#: The index in the registers of the number that identifies a CFU in Python. The loop writes the two before it.
NUMBER = 2
#: The same for a CFU in C: its Native, and where it writes its answer.
COMMAND, UNIT, START, ANSWERS, VALUE, READY = range(3, 9)
_numbers = count()
_in_use: dict[int, Execute] = {}
_failing: dict[int, Callable[[int, int, int, int], CfuError | None]] = {}
CUSTOM_0 = 0b0001011  # the opcode of instructions for the CFU


class Unit(Protocol):
    """A CFU written in Python, with state. If it has a method `attach`, `run` calls this with main memory, uint8."""

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]: ...


Cfu = Execute | Unit


class Difference(NamedTuple):
    """A command whose answer depends on initial values that the CFU's Verilog does not give.

    `answer` came in cycle `ready` from zeros, `other` in `other_ready` from the values of `seed`. With a `fault`, the
    CFU broke the rules of its ports there, and `other_ready` is None.
    """

    pc: int
    cycle: int
    command: str
    answer: int
    ready: int
    seed: int
    other: int
    other_ready: int | None
    fault: str

    @property
    def message(self) -> str:
        there = self.fault or f"answers {self.other}"
        if self.other_ready is not None and self.other_ready != self.ready:
            there += f" in cycle {self.other_ready:,}"
        start = f"{self.command} of cycle {self.cycle:,} answers {self.answer} in cycle {self.ready:,}"
        return f"depends on undefined initial values: {start}; from those of seed {self.seed} the CFU {there}"


class Native(NamedTuple):
    """A CFU in C: a Unit with this attribute is called without Python.

    `command` is the address of a function of seven 64-bit integers: `unit`; funct7 * 8 + funct3; two operands; `start`;
    a cycle; and the address of two integers, where it writes the answer and the cycle of the answer. It returns 0, or a
    fault: then `fail(fault, funct7 * 8 + funct3, cycle, pc)` returns the error that it is, or None to go on.
    """

    command: int
    unit: int
    start: int
    fail: Callable[[int, int, int, int], CfuError | None]


class CfuError(MachineError):
    """A CFU that breaks the rules of its ports. `funct7` and `funct3` are those of the command that showed it."""

    def __init__(self, where: str | Path, reason: str, remedy: str = "", funct7: int = 0, funct3: int = 0) -> None:
        super().__init__(where, reason, remedy)
        self.funct7, self.funct3 = funct7, funct3

    def located(self, words: Array, base: int, where: Callable[[int], str]) -> MachineError:
        """Return the error with the places of its command among `words` (instructions from address `base` on)."""
        word = words.astype(np.int64)
        here = (word & 127 == CUSTOM_0) & (word >> 25 == self.funct7) & (word >> 12 & 7 == self.funct3)
        found = [where(base + 4 * index) for index in np.flatnonzero(here)[:3].tolist()]
        return MachineError(self.where, self.reason, f"the program gives this command at {', '.join(found)}")


@contextmanager
def seam(cfu: Cfu | None, regs: Array) -> Iterator[Any]:
    """Yield the compiled CFU that the CPU loop calls: the model if `cfu` is None, else a function that calls `cfu`.

    `regs` are the registers of the CFU. For a CFU in Python they hold only a number that identifies it.
    """
    if cfu is None:
        yield _model(bool(regs[Reg.EXTENSIONS]))
        return
    number = next(_numbers)
    regs[:] = 0
    regs[NUMBER] = number
    if native_cfu := getattr(cfu, "native", None):
        regs[[COMMAND, UNIT, START]] = native_cfu[:3]
        regs[ANSWERS] = regs.ctypes.data + VALUE * regs.itemsize
        _failing[number] = native_cfu.fail
    else:
        _in_use[number] = cfu if callable(cfu) else cfu.execute
    try:
        yield _asking(bool(native_cfu))
    finally:
        _in_use.pop(number, None)
        _failing.pop(number, None)


@cache
def signature() -> Any:
    """Return the Numba signature of a CFU: registers int64, buffers int32 and RAM uint8, then the operands."""
    kinds: Any = types
    arrays = [kinds.Array(kind, 1, "C") for kind in (kinds.int64, kinds.int32, kinds.uint8)]
    return kinds.UniTuple(kinds.int64, 2)(*arrays, *[kinds.int64] * 5)


@cache
def _model(extensions: bool) -> Any:
    """Return the compiled model of the CFU."""
    return native(make_execute(version(), extended if extensions else absent), signature())


@cache
def _asking(in_c: bool) -> Any:
    """Return a compiled function that calls a CFU in C or in Python."""
    return native(ask_in_c if in_c else ask, signature(), python=True)


def ask(
    regs: Array, buffers: Array, ram: Array, funct7: int, funct3: int, a: int, b: int, cycle: int
) -> tuple[int, int]:
    """Call a CFU in Python from compiled code. Return its answer and the cycle in which the answer is ready."""
    with objmode(value="int64", ready="int64"):
        value, ready = _answer(regs[NUMBER], funct7, funct3, a, b, cycle)
    return value, ready


def ask_in_c(
    regs: Array, buffers: Array, ram: Array, funct7: int, funct3: int, a: int, b: int, cycle: int
) -> tuple[int, int]:
    """Call a CFU in C, like `ask`."""
    number = funct7 << 3 | funct3
    fault = _call(regs[COMMAND], regs[UNIT], number, a, b, regs[START], cycle, regs[ANSWERS])
    if fault:
        with objmode():
            _fail(regs[NUMBER], fault, number, cycle, regs[Reg.PC])
    return regs[VALUE], regs[READY]


def _typed_call(
    typing: Any, command: Any, unit: Any, number: Any, a: Any, b: Any, start: Any, cycle: Any, answers: Any
) -> Any:
    """Call the function at the address `command` (see Native), and return its fault."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        function = builder.inttoptr(values[0], ir.FunctionType(word, [word] * (len(values) - 1)).as_pointer())
        return builder.call(function, values[1:])

    return types.int64(command, unit, number, a, b, start, cycle, answers), emit


_call: Any = intrinsic(_typed_call)


def _fail(number: int, fault: int, command: int, cycle: int, pc: int) -> None:
    if error := _failing[int(number)](int(fault), int(command), int(cycle), int(pc)):
        raise error


def _answer(number: int, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
    value, ready = _in_use[int(number)](funct7, funct3, a, b, cycle)
    if not cycle <= ready < 1 << 62:
        reason = f"answers in cycle {ready} to a command of cycle {cycle}"
        raise MachineError("CFU", reason, "return (value, ready cycle); the latter must not precede the command")
    return int(value) & 0xFFFFFFFF, int(ready)
