"""The interface between CPU and CFU. The CPU's loop calls the CFU for each custom-0 instruction.

A CFU in Python is called as `execute(funct7, funct3, a, b, cycle) -> (value, ready cycle)`. Operands are int32 values.
The CFU accepts the command in `cycle`. The answer is ready in `ready cycle`, which is the next cycle for most
instructions. The CFU accepts the next command one cycle after `ready cycle`.

The compiled loop calls a CFU at an address of machine code (timing/loop.Port). This is the address of the compiled
model (isa/custom.py), of a CFU in C (`Native`, such as RTL in lock step), or of a callback into Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa.custom import model
from tilewright.targets.cfu.isa.state import Reg, buffers, registers
from tilewright.targets.cfu.timing.loop import Port

Execute = Callable[[int, int, int, int, int], tuple[int, int]]
CUSTOM_0 = 0b0001011  # the opcode of instructions for the CFU
#: The C types of Port.command and Port.fail if these are Python functions.
COMMAND: Any = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 8)
FAIL: Any = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)


class Unit(Protocol):
    """A CFU in Python, with state. It may have a method `attach`, which `run` calls with main memory (uint8)."""

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]: ...


Cfu = Execute | Unit


class Difference(NamedTuple):
    """A command whose answer depends on uninitialised registers in the CFU's Verilog.

    With zeros in these registers, the CFU answers `answer` in cycle `ready`. With random values (from `seed`), it
    answers `other` in cycle `other_ready`. With random values, the CFU may also break the rules of its ports: then
    `fault` describes the violation, and `other_ready` is None.
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
    def kind(self) -> str:
        return "undefined"

    @property
    def message(self) -> str:
        reaction = self.fault or f"answers {self.other}"
        if self.other_ready is not None and self.other_ready != self.ready:
            reaction += f" in cycle {self.other_ready:,}"
        start = f"{self.command} of cycle {self.cycle:,} answers {self.answer} in cycle {self.ready:,}"
        return f"depends on undefined initial values: {start}; from those of seed {self.seed} the CFU {reaction}"


class Native(NamedTuple):
    """A CFU in C. A Unit with an attribute `native` of this class is called directly from machine code.

    `command` is the address of a C function, which returns 0 or the number of a fault. Its arguments are 64-bit
    integers: `unit`; funct7 * 8 + funct3; two operands; `start`, the number of cycles before cycle 0 of the CPU; a
    cycle; and the address of two integers for the answer and the cycle of the answer. After a fault, `fail(fault,
    funct7 * 8 + funct3, cycle, pc)` returns the error to raise, or None to continue the run.
    """

    command: int
    unit: int
    start: int
    fail: Callable[[int, int, int, int], CfuError | None]


class CfuError(MachineError):
    """The error of a CFU that breaks the rules of its ports, during a command with `funct7` and `funct3`."""

    def __init__(self, where: str | Path, reason: str, remedy: str = "", funct7: int = 0, funct3: int = 0) -> None:
        super().__init__(where, reason, remedy)
        self.funct7 = funct7
        self.funct3 = funct3

    def located(self, words: Array, base: int, where: Callable[[int], str]) -> MachineError:
        """Return the error with the first three places of its command in the program, each as the text `where(pc)`.

        `words` are the instructions of the program, uint32 [n]. The first instruction is at address `base`.
        """
        word = words.astype(np.int64)
        is_command = (word & 127 == CUSTOM_0) & (word >> 25 == self.funct7) & (word >> 12 & 7 == self.funct3)
        places = [where(base + 4 * index) for index in np.flatnonzero(is_command)[:3].tolist()]
        return MachineError(self.where, self.reason, f"the program gives this command at {', '.join(places)}")


class Seam:
    """The connection of a CFU (None: the model) to the compiled loop, which calls the CFU through `port`.

    The model works on `regs`, `buffers` and `ram`. Other CFUs use only two elements of `regs`: the answer, and the
    cycle of the answer. If a command raises an exception, it is stored in `error`, and the loop stops. Machine code
    cannot raise exceptions, so the caller of the loop raises `error`.
    """

    def __init__(self, cfu: Cfu | None, regs: Array, buffers: Array, ram: Array) -> None:
        self.modelled = cfu is None
        self.error: BaseException | None = None
        self._regs = regs
        if cfu is None:
            self.port = Port(model=model(regs).loaded((regs, buffers, ram, 0, 0, 0, 0)).address)
            return
        regs[:] = 0
        self.port = Port(answers=regs.ctypes.data + Reg.ANSWER * regs.itemsize)
        if native := getattr(cfu, "native", None):
            # ctypes functions must be kept alive as long as machine code may call them.
            self._callback = FAIL(lambda *fault: self._failed(lambda: native.fail(*fault)))
            command, unit, start = native[:3]
            self.port = self.port._replace(command=command, unit=unit, start=start, fail=_address(self._callback))
        else:
            self._execute: Execute = cfu if callable(cfu) else cfu.execute
            self._callback = COMMAND(lambda *command: self._failed(lambda: self._command(*command)))
            self.port = self.port._replace(command=_address(self._callback))

    def _failed(self, function: Callable[[], BaseException | None]) -> bool:
        """Call a function, and return whether it fails. The error that it returns or raises is stored in `error`."""
        try:
            self.error = function()
        except BaseException as error:
            self.error = error
        return self.error is not None

    def _command(self, unit: int, function: int, a: int, b: int, start: int, cycle: int, answers: int) -> None:
        value, ready = self._execute(function >> 3, function & 7, a, b, cycle)
        if not cycle <= ready < 1 << 62:
            reason = f"answers in cycle {ready} to a command of cycle {cycle}"
            raise MachineError("CFU", reason, "return (value, ready cycle); the latter must not precede the command")
        self._regs[Reg.ANSWER] = int(value) & 0xFFFFFFFF
        self._regs[Reg.READY] = ready


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class ModelUnit:
    """The compiled model of the CFU after reset, as a Unit. It has its own main memory of `ram_bytes` bytes.

    `regs` are the registers, indexed by isa.state.Reg; `buffers` are the memories of the CFU.
    """

    def __init__(self, config: Config, ram_bytes: int = 16) -> None:
        self.regs = registers(config)
        self.buffers = buffers(config)
        self.ram = np.zeros(ram_bytes, np.uint8)
        self._execute = model(self.regs)

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        self._execute(self.regs, self.buffers, self.ram, funct7 << 3 | funct3, a, b, cycle)
        return int(self.regs[Reg.ANSWER]), int(self.regs[Reg.READY])
