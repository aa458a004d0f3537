"""The registers for GDB: CPU registers, counters of the run, and registers of the CFU's model.

The command `monitor` shows other information.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.isa import rv32
from tilewright.targets.cfu.isa.custom import CHECK, model
from tilewright.targets.cfu.isa.memory import row_at, sums_at
from tilewright.targets.cfu.isa.state import Reg
from tilewright.targets.cfu.runtime.core import Process
from tilewright.targets.cfu.timing.state import Cause, Cpu, go_to, index_of

#: Names in the feature org.gnu.gdb.riscv.cpu, by number.
NAMES = (*("fp" if name == "s0" else name for name in rv32.NAMES), "pc")
PC = NAMES.index("pc")
POINTERS = {"ra": "code_ptr", "pc": "code_ptr", "sp": "data_ptr", "gp": "data_ptr", "tp": "data_ptr", "fp": "data_ptr"}
#: Internal registers of the CFU's model, which are not shown.
INTERNAL = frozenset({Reg.NOTED, Reg.COMPUTED, Reg.FUNCT7, Reg.READY})


class Register(NamedTuple):
    """A read-only register of 64 bits that is not a register of the CPU."""

    name: str
    group: str
    read: Callable[[], int]


class Registers:
    """The registers of a process by GDB's number. The built-in model of the CFU has registers; other CFUs have none."""

    def __init__(self, process: Process) -> None:
        self._process = process
        cpu = process.m.cpu
        self.further = [
            Register("cycles", "run", lambda: int(cpu[Cpu.CYCLE])),
            Register("instructions", "run", lambda: process.instructions),
        ]
        if process.seam.modelled:
            last = Reg.FETCHES if process.m.cfu[Reg.EXTENSIONS] else Reg.FETCHED_BYTES
            shown = [reg for reg in Reg if Reg.A_ROW <= reg <= last and reg not in INTERNAL]
            self.further += [Register(f"cfu_{reg.name.lower()}", "cfu", self._of_cfu(reg)) for reg in shown]

    def __len__(self) -> int:
        return len(NAMES) + len(self.further)

    def read(self, number: int) -> bytes:
        if number < PC:
            return int(self._process.m.regs[number]).to_bytes(4, "little", signed=True)
        if number == PC:
            return self._process.pc.to_bytes(4, "little")
        return (self.further[number - len(NAMES)].read() & (1 << 64) - 1).to_bytes(8, "little")

    def write(self, number: int, data: bytes) -> bool:
        """Set a register of the CPU. Return False if the register does not exist, or if a new pc has no code."""
        if len(data) != 4 or number > PC:
            return False
        if number == PC:
            index = index_of(self._process.m, int.from_bytes(data, "little"))
            if index is not None:
                go_to(self._process.m, index)
            return index is not None
        if number:
            self._process.m.regs[number] = int.from_bytes(data, "little", signed=True)
        return True

    def _of_cfu(self, reg: Reg) -> Callable[[], int]:
        return lambda: int(settled(self._process)[0][reg])

    def description(self) -> str:
        """Return target.xml (see GDB's manual, "Target Descriptions")."""
        lines = ['<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd">']
        lines += ['<target version="1.0"><architecture>riscv:rv32</architecture><feature name="org.gnu.gdb.riscv.cpu">']
        for number, name in enumerate(NAMES):
            lines.append(f'<reg name="{name}" bitsize="32" type="{POINTERS.get(name, "int")}" regnum="{number}"/>')
        lines.append('</feature><feature name="org.tilewright.cfu">')
        for number, reg in enumerate(self.further, len(NAMES)):
            lines.append(f'<reg name="{reg.name}" bitsize="64" type="int64" regnum="{number}" group="{reg.group}"/>')
        return "\n".join([*lines, "</feature></target>"])


def settled(process: Process) -> tuple[Array, Array]:
    """Return copies of the CFU's registers and memories with their values in the current cycle of the process.

    The model is lazy: it writes the results of a launch only when the next command comes. Therefore check_GEMM, a
    command without side effects, is executed on the copies. Afterwards, ANSWER, FUNCT7 and READY are restored.
    """
    m = process.m
    cycle = int(process.m.cpu[Cpu.CYCLE])
    regs = m.cfu.copy()
    buffers = m.buffers.copy()
    changed = [Reg.ANSWER, Reg.FUNCT7, Reg.READY]
    before = regs[changed]
    model(regs)(regs, buffers, m.ram.byte, CHECK << 3, 0, 0, cycle)
    regs[changed] = before
    return regs, buffers


HELP = """cycles         cycles and instructions so far
waits          the cycles so far by cause
a|b|c ROW      a row of a buffer of the CFU's model"""


def monitor(command: str, process: Process) -> Iterator[str]:
    name, *words = command.split() or ["help"]
    if name == "cycles" and not words:
        yield f"{int(process.m.cpu[Cpu.CYCLE]):,} cycles, {process.instructions:,} instructions"
    elif name == "waits" and not words:
        for cause, cycles in zip(Cause, process.m.lost.sum(axis=0).tolist(), strict=True):
            if cycles:
                yield f"{cycles:>15,}  {cause.name.lower()}"
    elif name in ("a", "b", "c") and len(words) == 1 and words[0].isdecimal():
        yield row(name, int(words[0][:9]), process) if process.seam.modelled else "only the built-in CFU has buffers"
    else:
        yield from HELP.split("\n")


def row(buffer: str, number: int, process: Process) -> str:
    regs, buffers = settled(process)
    lanes = int(regs[Reg.LANES])
    rows = int(regs[Reg.ROWS])
    if number >= rows:
        return f"buffer {buffer} has the rows 0 to {rows - 1}"
    if buffer == "c":
        first = sums_at(regs, number)
        values = buffers[first : first + lanes]
    else:
        first = row_at(regs, "ab".index(buffer), number)
        values = buffers[first : first + lanes // 4].astype(">i4").view(np.int8)
    return " ".join(map(str, values.tolist()))
