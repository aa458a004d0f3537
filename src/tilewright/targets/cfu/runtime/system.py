"""The instructions that run in Python, not in the CPU's loop: CSRs, fences, device accesses, stores into code.

`instruction`, `device` and `store_code` execute the instruction at Cpu.POSITION and advance past it, or return the name
of a trap.

Devices have addresses with bit 31 set: a UART for output, a device that ends the run, and markers of regions. Registers
of LiteX that are not modelled read as 0 and ignore writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import RAM_BASE
from tilewright.targets.cfu.isa import rv32
from tilewright.targets.cfu.isa.rv32 import IMM, NOWHERE, RD, RS1, RS2, STORE, decode
from tilewright.targets.cfu.isa.state import Reg
from tilewright.targets.cfu.timing.costs import Costs
from tilewright.targets.cfu.timing.loop import wait
from tilewright.targets.cfu.timing.state import Cause, Cpu, Machine, instructions

AREA = range(0xF000_0000, 0xF001_0000)
UART = 0xF000_1800
UART_EMPTY = UART + 8  # this register is always 1, because nothing is received
HALT = 0xF000_2000
REGION = 0xF000_2004
MAX_TEXT = 1 << 20
#: CSRs that can be read and written but have no effect, because the machine takes no interrupts.
PLAIN = frozenset({0x300, 0x304, 0x305, 0x340, 0x341, 0x342, 0x343, 0x344, 0xBC0})
#: Read-only CSRs: mvendorid, marchid, mimpid, mhartid, misa, and LiteX's pending interrupts (0xFC0).
CONSTANT = {0xF11: 0, 0xF12: 0, 0xF13: 0, 0xF14: 0, 0x301: 1 << 30 | 1 << 12 | 1 << 8, 0xFC0: 0}
#: The operation of a CSR instruction: the low two bits of funct3.
WRITE = 1
SET = 2
CLEAR = 3
#: CSRs of counters (RISC-V manual, volume II): mcycle, cycle, time; minstret, instret. HIGH: the upper half of a
#: counter.
CYCLE = (0xB00, 0xC00, 0xC01)
INSTRET = (0xB02, 0xC02)
HIGH = 0x80


@dataclass
class Devices:
    """The state of the devices. `exit_code` is None while the program runs.

    A store to REGION is a marker. At each marker, the result of the function `mark` is appended to `marks`. If `spent`
    is a list, the result of the function `spent` is appended to it. `watch` is called with the value of each marker,
    and returns the limit of instructions until the next marker (0: no limit). `began` is the number of instructions at
    the last marker. `limit` is the number of instructions at which the program must stop (0: no limit).
    """

    text: bytearray = field(default_factory=bytearray)
    exit_code: int | None = None
    marks: list[tuple[int, Array]] = field(default_factory=list)
    spent: list[Array] | None = None
    watch: Callable[[int], int] | None = None
    began: int = 0
    limit: int = 0

    def load(self, address: int) -> int | None:
        if address not in AREA:
            return None
        return 1 if address & ~3 == UART_EMPTY else 0

    def store(self, address: int, value: int) -> bool:
        """Store a value to a device. Return whether the device exists. The UART keeps at most MAX_TEXT bytes."""
        if address == UART and len(self.text) < MAX_TEXT:
            self.text.append(value & 255)
        elif address == HALT:
            self.exit_code = value
        return address in AREA


def _fields(m: Machine) -> tuple[int, int, int, int, int]:
    insn = int(m.code[m.cpu[Cpu.POSITION]])
    return insn & 255, insn >> RD & 255, insn >> RS1 & 255, insn >> RS2 & 255, insn >> IMM


def _lose(m: Machine, cause: Cause, cycles: int) -> None:
    m.cpu[Cpu.CYCLE] += wait(m, m.cpu[Cpu.POSITION], cause, cycles)


def _step(m: Machine, c: Costs, cause: Cause, cycles: int) -> None:
    """Advance past the current instruction. It takes one cycle, after `cycles` lost cycles with the cause `cause`."""
    m.cpu[Cpu.BARRIER] = m.cpu[Cpu.CYCLE] + cycles + c.drain
    _lose(m, cause, cycles)
    m.cpu[Cpu.CYCLE] += 1
    m.cpu[Cpu.POSITION] += 1


def _write(m: Machine, rd: int, value: int) -> None:
    m.regs[rd] = np.uint32(value & 0xFFFFFFFF).astype(np.int32)


def instruction(m: Machine, c: Costs) -> str:
    """Execute a CSR instruction or a fence. Return the name of the trap, or "" if there is no trap."""
    op, rd, rs1, _, number = _fields(m)
    if op == rv32.ECALL:
        return "environment call"
    if op == rv32.EBREAK:
        return "breakpoint"
    # FENCE and WFI have no effect on a machine with one core and no interrupts. FENCE.I and LiteX's FLUSH empty a
    # cache, one line per cycle.
    if op in (rv32.FENCE, rv32.FENCE_I, rv32.FLUSH, rv32.WFI):
        cycles = 0
        if op == rv32.FENCE_I:
            m.itags[:] = -1
            cycles = c.flush_code + len(m.itags)
        elif op == rv32.FLUSH:
            m.dtags[:] = -1
            cycles = c.flush_data + len(m.dtags)
        _step(m, c, Cause.SYSTEM, cycles)
        return ""
    if not rv32.CSR < op < rv32.CSR + 8:
        return "illegal instruction"
    # A CSR instruction waits until all earlier instructions have completed (Costs.drain). If the previous instruction
    # is a jump, a part of this time has passed, because the jump completes in cycle BARRIER.
    jumped = m.cpu[Cpu.POSITION] == m.cpu[Cpu.FIRST]
    done = m.cpu[Cpu.BARRIER] if jumped else m.cpu[Cpu.CYCLE] + c.drain - 1
    _lose(m, Cause.DRAIN, max(0, int(done - m.cpu[Cpu.CYCLE])))
    operand = rs1 if op & 4 else int(m.regs[rs1])  # if bit 2 is set, the field rs1 is an immediate
    writes = op & 3 == WRITE or rs1 != 0  # SET and CLEAR do not write if the operand is x0 or the immediate 0
    old = _read_csr(m, number)
    if old is None or (writes and number in CONSTANT):
        return "illegal instruction"
    if writes:
        new = {WRITE: operand, SET: old | operand, CLEAR: old & ~operand}[op & 3]
        _write_csr(m, number, new & 0xFFFFFFFF)
    if rd != NOWHERE:
        _write(m, rd, old)
    _step(m, c, Cause.SYSTEM, 0)
    m.ready[rd] = m.cpu[Cpu.CYCLE] + c.csr_use
    m.late[rd] = Cause.RESULT_USE
    return ""


def _read_csr(m: Machine, number: int) -> int | None:
    if number in CONSTANT:
        return CONSTANT[number]
    if number in PLAIN:
        return int(m.csrs[number])
    base = number & ~HIGH
    if base in CYCLE:
        count = int(m.cpu[Cpu.CYCLE])
    elif base in INSTRET:
        count = instructions(m.cpu)
    else:
        return None
    count += int(m.csrs[base])
    return count >> 32 & 0xFFFFFFFF if number & HIGH else count & 0xFFFFFFFF


def _write_csr(m: Machine, number: int, value: int) -> None:
    """Write a CSR. A counter continues from the new value: the machine stores the difference from the real count."""
    if number in PLAIN:
        m.csrs[number] = value
        return
    base = number & ~HIGH
    low, high = _read_csr(m, base) or 0, _read_csr(m, base | HIGH) or 0
    written = value << 32 | low if number & HIGH else high << 32 | value
    # `high` and `low` already include the old difference. The new difference must fit into int64.
    difference = int(m.csrs[base]) + written - (high << 32 | low)
    m.csrs[base] = difference if difference < 1 << 63 else difference - (1 << 64)


def mark(m: Machine) -> tuple[int, Array]:
    """Return the number of the current region (0: none), and the counters after this instruction, int64 [4 + causes].

    Counters are cycles, instructions, bytes of DRAM read and written, and cycles lost by cause.
    """
    cpu = m.cpu
    read = cpu[Cpu.READ] + m.cfu[Reg.FETCHED_BYTES]
    counts = [cpu[Cpu.CYCLE], instructions(cpu), read, cpu[Cpu.WRITTEN], *m.lost.sum(axis=0)]
    return int(cpu[Cpu.REGION]), np.array(counts)


def spent(m: Machine) -> Array:
    """Return the cycles of each instruction of `m.code` so far, int64 [n]: one per execution, plus the lost cycles."""
    entered = m.entered.copy()
    entered[m.cpu[Cpu.POSITION]] -= 1
    return np.cumsum(entered)[:-1] + m.lost.sum(axis=1)


def device(m: Machine, c: Costs, devices: Devices) -> str:
    """Execute a load or store outside of RAM. Return the name of the trap, or "" if there is no trap."""
    op, rd, _, two, _ = _fields(m)
    address = int(m.cpu[Cpu.ADDRESS])
    size = 1 << (op & 3)
    loads = op < STORE
    if address & (size - 1):
        return "misaligned access"
    if loads:
        word = devices.load(address)
        if word is None:
            return "load access fault"
        value = word >> 8 * (address & 3) & (1 << 8 * size) - 1
        # Bit 2 of `op` is set for unsigned loads. Other loads extend the sign.
        _write(m, rd, value - (0 if op & 4 else value >> 8 * size - 1 << 8 * size))
    elif not devices.store(address, int(m.regs[two]) & 0xFFFFFFFF):
        return "store access fault"
    _step(m, c, Cause.DEVICE, c.io if loads else 0)
    if address == REGION and not loads:
        m.cpu[Cpu.REGION] = m.regs[two]
        devices.marks.append(mark(m))
        if devices.watch:
            allowed = devices.watch(int(m.cpu[Cpu.REGION]))
            devices.began = int(devices.marks[-1][1][1]) if allowed else 0
            devices.limit = devices.began + allowed
        if devices.spent is not None:
            devices.spent.append(spent(m))
    if loads:
        m.ready[rd] = m.cpu[Cpu.CYCLE] + c.load_use
        m.late[rd] = Cause.LOAD_USE
    return ""


def store_code(m: Machine, c: Costs) -> str:
    """Execute a store into code, and return "" (no trap). The stored word is decoded again, as if a FENCE.I followed.

    The real CPU executes the old instruction until its cache line is fetched again.
    """
    op, _, _, two, _ = _fields(m)
    at = int(m.cpu[Cpu.ADDRESS]) - RAM_BASE
    rv32.store(op & 31, m.ram, at, int(m.regs[two]))
    word = at & ~3
    index = (word + RAM_BASE - m.base) >> 2
    m.code[index] = decode(m.ram.byte[word : word + 4].view("<u4"), word + RAM_BASE)[0]
    _step(m, c, Cause.STORE, c.word)
    return ""
