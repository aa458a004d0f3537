"""A few lines of assembler, so that tests of the core need no compiler: functions that give machine words."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial

from tilewright.targets.cfu.config import RAM_BASE
from tilewright.targets.cfu.runtime.elf import Executable, Segment
from tilewright.targets.cfu.runtime.system import HALT

#: Where data of tests lies: behind all code, at the start of a cache.
DATA = RAM_BASE + 0x10000
NOP = 0x13
A0, A1, A2, A3, A4, T0, T1, T2, S0, S1 = 10, 11, 12, 13, 14, 5, 6, 7, 8, 9


def _r(opcode: int, funct3: int, funct7: int, rd: int, one: int, two: int) -> int:
    return funct7 << 25 | two << 20 | one << 15 | funct3 << 12 | rd << 7 | opcode


def _i(opcode: int, funct3: int, rd: int, one: int, imm: int) -> int:
    return (imm & 0xFFF) << 20 | one << 15 | funct3 << 12 | rd << 7 | opcode


def _s(funct3: int, two: int, one: int, imm: int) -> int:
    return (imm >> 5 & 127) << 25 | two << 20 | one << 15 | funct3 << 12 | (imm & 31) << 7 | 0x23


def _b(funct3: int, one: int, two: int, imm: int) -> int:
    high = (imm >> 12 & 1) << 31 | (imm >> 5 & 63) << 25
    return high | two << 20 | one << 15 | funct3 << 12 | (imm >> 1 & 15) << 8 | (imm >> 11 & 1) << 7 | 0x63


ALU = {
    "add": (0, 0), "sub": (0, 32), "sll": (1, 0), "slt": (2, 0), "sltu": (3, 0), "xor": (4, 0), "srl": (5, 0),
    "sra": (5, 32), "or": (6, 0), "and": (7, 0), "mul": (0, 1), "mulh": (1, 1), "mulhsu": (2, 1), "mulhu": (3, 1),
    "div": (4, 1), "divu": (5, 1), "rem": (6, 1), "remu": (7, 1),
}  # fmt: skip
IMMEDIATE = {"addi": 0, "slti": 2, "sltiu": 3, "xori": 4, "ori": 6, "andi": 7}
SHIFTS = {"slli": (1, 0), "srli": (5, 0), "srai": (5, 32)}
LOADS = {"lb": 0, "lh": 1, "lw": 2, "lbu": 4, "lhu": 5}
STORES = {"sb": 0, "sh": 1, "sw": 2}
BRANCHES = {"beq": 0, "bne": 1, "blt": 4, "bge": 5, "bltu": 6, "bgeu": 7}


def alu(name: str, rd: int, one: int, two: int) -> int:
    funct3, funct7 = ALU[name]
    return _r(0x33, funct3, funct7, rd, one, two)


def imm(name: str, rd: int, one: int, value: int) -> int:
    if name in SHIFTS:
        funct3, funct7 = SHIFTS[name]
        return _r(0x13, funct3, funct7, rd, one, value & 31)
    return _i(0x13, IMMEDIATE[name], rd, one, value)


def load(name: str, rd: int, base: int, offset: int = 0) -> int:
    return _i(0x03, LOADS[name], rd, base, offset)


def store(name: str, value: int, base: int, offset: int = 0) -> int:
    return _s(STORES[name], value, base, offset)


def branch(name: str, one: int, two: int, offset: int) -> int:
    return _b(BRANCHES[name], one, two, offset)


add, mul, div = (partial(alu, name) for name in ("add", "mul", "div"))
addi, lw, sw = partial(imm, "addi"), partial(load, "lw"), partial(store, "sw")


def custom(funct7: int, rd: int, one: int, two: int, funct3: int = 0) -> int:
    return _r(0x0B, funct3, funct7, rd, one, two)


def csrr(rd: int, number: int) -> int:
    return _i(0x73, 2, rd, 0, number)


def csrw(number: int, one: int) -> int:
    return _i(0x73, 1, 0, one, number)


def jal(rd: int, offset: int) -> int:
    bits = (offset >> 20 & 1) << 31 | (offset >> 1 & 1023) << 21 | (offset >> 11 & 1) << 20 | (offset >> 12 & 255) << 12
    return bits | rd << 7 | 0x6F


def jalr(rd: int, one: int, offset: int = 0) -> int:
    return _i(0x67, 0, rd, one, offset)


def li(rd: int, value: int) -> list[int]:
    """Always two instructions."""
    value &= 0xFFFFFFFF
    low = (value & 0xFFF) - (value & 0x800) * 2
    return [(value - low & 0xFFFFF000) | rd << 7 | 0x37, addi(rd, rd, low)]


def halt(code: int = A0) -> list[int]:
    """Store register `code` to the device that ends the run; uses x31."""
    return [*li(31, HALT), sw(code, 31), jal(0, 0)]


def image(words: Sequence[int], data: bytes = b"") -> Executable:
    """A program of `words` at the start of RAM, `data` at DATA."""
    code = struct.pack(f"<{len(words)}I", *words)
    segments = [Segment(RAM_BASE, code, len(code))]
    if data:
        segments.append(Segment(DATA, data, len(data)))
    return Executable("test", RAM_BASE, tuple(segments), (range(RAM_BASE, RAM_BASE + len(code)),), {}, {}, b"")
