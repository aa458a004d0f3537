"""RV32IM with Zicsr, Zifencei and custom-0: each instruction's fields, text and meaning (RISC-V manual, volume I).

The CPU loop runs predecoded words, each packed into an int64. All arithmetic has two operands, `x[rs1]` and
`x[rs2] + imm`: register instructions have an immediate of 0, and forms without rs2 read x0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part

from . import custom

#: Operations are 8-bit numbers: the kind of instruction in the high three bits, the function in the low five. All kinds
#: below LOAD are arithmetic. SYSTEM includes custom-0.
REGISTER, IMMEDIATE, UPPER, LOAD, STORE, BRANCH, JUMP, SYSTEM = range(0, 256, 32)
#: The function of arithmetic: funct3, plus 8 if funct7 is 32, plus 16 if funct7 is 1.
ADD, SLL, SLT, SLTU, XOR, SRL, OR, AND, SUB = range(9)
SRA, MUL, MULH, MULHSU, MULHU, DIV, DIVU, REM, REMU = 13, *range(16, 24)
BYTE = 0
HALF = 1
WORD = 2
BYTE_UNSIGNED = 4
HALF_UNSIGNED = 5
EQUAL = 0
NOT_EQUAL = 1
LESS = 4
NOT_LESS = 5
LESS_UNSIGNED = 6
NOT_LESS_UNSIGNED = 7
JAL = JUMP
JALR = JUMP + 1
CUSTOM0 = SYSTEM
CSR = SYSTEM
FENCE = SYSTEM + 8
FENCE_I = SYSTEM + 9
FLUSH = SYSTEM + 13
ECALL = SYSTEM + 16
EBREAK = SYSTEM + 17
MRET = SYSTEM + 18
WFI = SYSTEM + 19
ILLEGAL = SYSTEM + 31
LOW = 0xFFFFFFFF


@part
def arithmetic(function: int, a: int, b: int) -> int:
    """Return the result of the arithmetic `function` on two int32 values. Only its low 32 bits are valid."""
    if function == ADD:
        return a + b
    if function == SUB:
        return a - b
    if function == AND:
        return a & b
    if function == OR:
        return a | b
    if function == XOR:
        return a ^ b
    if function == SLL:
        return a << (b & 31)
    if function == SRL:
        return (a & LOW) >> (b & 31)
    if function == SRA:
        return a >> (b & 31)
    if function == SLT:
        return 1 if a < b else 0
    if function == SLTU:
        return 1 if (a & LOW) < (b & LOW) else 0
    if function == MUL:
        return a * b
    if function == MULH:
        return a * b >> 32
    if function == MULHSU:
        return a * (b & LOW) >> 32
    if function == MULHU:
        high = a * (b & LOW) >> 32
        return high + b if a < 0 else high  # as an unsigned number, a negative a is larger by 2**32
    return _divide(function, a, b)


def _divide(function: int, a: int, b: int) -> int:
    """Return the quotient a / b, rounded towards zero, or the remainder. For b = 0, return -1 or a, respectively."""
    if function == DIVU or function == REMU:
        a, b = a & LOW, b & LOW
    quotient = -1
    rest = a
    if b != 0:
        quotient = abs(a) // abs(b)
        if (a < 0) != (b < 0):
            quotient = -quotient
        rest = a - quotient * b
    return quotient if function == DIV or function == DIVU else rest


def taken(function: int, a: int, b: int) -> bool:
    if function == EQUAL:
        return a == b
    if function == NOT_EQUAL:
        return a != b
    if function == LESS:
        return a < b
    if function == NOT_LESS:
        return a >= b
    if function == LESS_UNSIGNED:
        return (a & LOW) < (b & LOW)
    return (a & LOW) >= (b & LOW)


class Memory(NamedTuple):
    """The bytes of RAM, viewed as uint8, uint16 and int32."""

    byte: Array
    half: Array
    word: Array


def load(function: int, memory: Memory, at: int) -> int:
    """Return the value that a load reads at byte offset `at` of RAM, a multiple of the size of the access."""
    if function == WORD:
        return memory.word[at >> 2]
    if function == BYTE_UNSIGNED:
        return memory.byte[at]
    if function == BYTE:
        return int(np.int8(memory.byte[at]))
    if function == HALF_UNSIGNED:
        return memory.half[at >> 1]
    return int(np.int16(memory.half[at >> 1]))


def store(function: int, memory: Memory, at: int, value: int) -> None:
    """Store the low bytes of an int32 value at byte offset `at` of RAM, a multiple of the size of the access."""
    if function == WORD:
        memory.word[at >> 2] = value
    elif function == BYTE:
        memory.byte[at] = value & 0xFF
    else:
        memory.half[at >> 1] = value & 0xFFFF


class Form(NamedTuple):
    """The operands of an instruction: a template of their text in assembler, and the encoding of the immediate."""

    text: str
    immediate: str = ""


REGISTERS = Form("{rd}, {rs1}, {rs2}")
SHIFT = Form("{rd}, {rs1}, {imm}", "shift")
LONG = Form("{rd}, {upper:#x}", "U")
MEMORY = Form("{rd}, {imm}({rs1})", "I")
NONE = Form("")


class Instruction(NamedTuple):
    """The encoding of an instruction, and its operation. `funct3` and `funct7` are None if any value is accepted."""

    name: str
    form: Form
    op: int
    opcode: int
    funct3: int | None = None
    funct7: int | None = None


def _family(names: str, form: Form, kind: int, opcode: int, funct7: int | None = None) -> list[Instruction]:
    """Return the instructions in `names`. Their funct3 is 0, 1, 2 ... in this order; `-` is a number without a name."""
    high = {None: 0, 0: 0, 32: 8, 1: 16}[funct7]
    rows = enumerate(names.split())
    return [Instruction(name, form, kind | high | f3, opcode, f3, funct7) for f3, name in rows if name != "-"]


INSTRUCTIONS = (
    *_family("add sll slt sltu xor srl or and", REGISTERS, REGISTER, 0x33, 0),
    *_family("sub - - - - sra", REGISTERS, REGISTER, 0x33, 32),
    *_family("mul mulh mulhsu mulhu div divu rem remu", REGISTERS, REGISTER, 0x33, 1),
    *_family("addi - slti sltiu xori - ori andi", Form("{rd}, {rs1}, {imm}", "I"), IMMEDIATE, 0x13),
    *_family("- slli - - - srli", SHIFT, IMMEDIATE, 0x13, 0),
    *_family("- - - - - srai", SHIFT, IMMEDIATE, 0x13, 32),
    *_family("lb lh lw - lbu lhu", MEMORY, LOAD, 0x03),
    *_family("sb sh sw", Form("{rs2}, {imm}({rs1})", "S"), STORE, 0x23),
    *_family("beq bne - - blt bge bltu bgeu", Form("{rs1}, {rs2}, {target:#x}", "B"), BRANCH, 0x63),
    Instruction("li", LONG, UPPER, 0x37),  # LUI
    Instruction("li", LONG, UPPER, 0x17),  # AUIPC; its result is a constant
    Instruction("jal", Form("{rd}, {target:#x}", "J"), JAL, 0x6F),
    Instruction("jalr", MEMORY, JALR, 0x67, 0),
    Instruction("custom0", Form("{rd}, {rs1}, {rs2}", "function"), CUSTOM0, 0x0B),
    *_family("- csrrw csrrs csrrc", Form("{rd}, {imm:#x}, {rs1}", "csr"), CSR, 0x73),
    *_family("- - - - - csrrwi csrrsi csrrci", Form("{rd}, {imm:#x}, {number}", "csr"), CSR, 0x73),
    Instruction("fence", NONE, FENCE, 0x0F, 0),
    Instruction("fence.i", NONE, FENCE_I, 0x0F, 1),
    Instruction("flush", NONE, FLUSH, 0x0F, 5),  # flushes the data cache (LiteX)
)
#: Instructions without operands, by their machine word.
FIXED = {0x00000073: ECALL, 0x00100073: EBREAK, 0x30200073: MRET, 0x10500073: WFI}
_BY_OP = {row.op: row for row in INSTRUCTIONS} | {
    op: Instruction(name, NONE, op, 0x73)
    for op, name in ((ECALL, "ecall"), (EBREAK, "ebreak"), (MRET, "mret"), (WFI, "wfi"), (ILLEGAL, "illegal"))
}

#: Bits of a packed instruction: op 0..7, rd 8..15, rs1 16..23, rs2 24..31, imm 32..63 (signed).
RD = 8
RS1 = 16
RS2 = 24
IMM = 32
#: The register that instructions write instead of x0. No instruction reads it.
NOWHERE = 32
NAMES = (
    *("zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
    *(f"a{i}" for i in range(8)),
    *(f"s{i}" for i in range(2, 12)),
    *(f"t{i}" for i in range(3, 7)),
)


def decode(words: Array, address: int) -> Array:
    """Return packed instructions, int64 [n], decoded from the consecutive words, uint32 [n], at `address`.

    Invalid words become ILLEGAL. The immediate of custom-0 is funct7 << 3 | funct3; the immediate of a
    CSR instruction is the number of the CSR.
    """
    word = words.astype(np.int64)
    signed = words.astype(np.uint32).view(np.int32).astype(np.int64)
    opcode = word & 127
    funct3 = word >> 12 & 7
    funct7 = word >> 25
    rd = word >> 7 & 31
    rs1 = word >> 15 & 31
    rs2 = word >> 20 & 31
    pc = address + 4 * np.arange(len(word), dtype=np.int64)
    # The results of LUI and AUIPC are constants, so both become additions of an immediate to x0.
    upper = (signed >> 12 << 12) + np.where(opcode == 0x17, pc, 0)
    immediates = {
        "": np.zeros_like(word),
        "I": signed >> 20,
        "S": signed >> 25 << 5 | rd,
        "B": signed >> 31 << 12 | (word >> 7 & 1) << 11 | (word >> 25 & 63) << 5 | (word >> 8 & 15) << 1,
        "U": upper.astype(np.uint64).astype(np.uint32).view(np.int32).astype(np.int64),
        "J": signed >> 31 << 20 | (word >> 12 & 255) << 12 | (word >> 20 & 1) << 11 | (word >> 21 & 1023) << 1,
        "shift": rs2,
        "function": funct7 << 3 | funct3,
        "csr": word >> 20,
    }
    packed = np.full(len(word), ILLEGAL | NOWHERE << RD, np.int64)
    for row in INSTRUCTIONS:
        matches = opcode == row.opcode
        if row.funct3 is not None:
            matches = matches & (funct3 == row.funct3)
        if row.funct7 is not None:
            matches = matches & (funct7 == row.funct7)
        to = np.where(rd > 0, rd, NOWHERE)[matches] if "{rd}" in row.form.text else NOWHERE
        left = rs1[matches] if "{rs1}" in row.form.text or "{number}" in row.form.text else 0
        right = rs2[matches] if "{rs2}" in row.form.text else 0
        imm = immediates[row.form.immediate][matches]
        packed[matches] = row.op | to << RD | left << RS1 | right << RS2 | imm << IMM
    for encoding, op in FIXED.items():
        packed[word == encoding] = op | NOWHERE << RD
    return packed


def mnemonic(insn: int) -> str:
    return custom.name(insn >> IMM) if insn & 255 == CUSTOM0 else _BY_OP[insn & 255].name


def text(insn: int, pc: int) -> str:
    to = insn >> RD & 255
    rs1 = insn >> RS1 & 31
    imm = insn >> IMM
    registers = {"rd": NAMES[0 if to == NOWHERE else to], "rs1": NAMES[rs1], "rs2": NAMES[insn >> RS2 & 31]}
    operands = _BY_OP[insn & 255].form.text.format(**registers, number=rs1, imm=imm, upper=imm & LOW, target=pc + imm)
    return f"{mnemonic(insn)} {operands}".rstrip()
