"""Machine words as the loop's instructions: one int64 each, decoded once, all at once (RISC-V ISA manual, vol. I)."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array

from .ops import Op

#: Where a register is written that nobody reads: what is written to x0.
NOWHERE = 32
#: Bits of a packed instruction: op 0..7, rd 8..15, rs1 16..23, rs2 24..31, imm 32..63 (signed).
RD, RS1, RS2, IMM = 8, 16, 24, 32

_ALU_IMM = {0: Op.ADDI, 2: Op.SLTI, 3: Op.SLTIU, 4: Op.XORI, 6: Op.ORI, 7: Op.ANDI}
_ALU = {
    (0, 0): Op.ADD, (0, 1): Op.SLL, (0, 2): Op.SLT, (0, 3): Op.SLTU,
    (0, 4): Op.XOR, (0, 5): Op.SRL, (0, 6): Op.OR, (0, 7): Op.AND,
    (32, 0): Op.SUB, (32, 5): Op.SRA,
    (1, 0): Op.MUL, (1, 1): Op.MULH, (1, 2): Op.MULHSU, (1, 3): Op.MULHU,
    (1, 4): Op.DIV, (1, 5): Op.DIVU, (1, 6): Op.REM, (1, 7): Op.REMU,
}  # fmt: skip
_LOADS = {0: Op.LB, 1: Op.LH, 2: Op.LW, 4: Op.LBU, 5: Op.LHU}
_STORES = {0: Op.SB, 1: Op.SH, 2: Op.SW}
_BRANCHES = {0: Op.BEQ, 1: Op.BNE, 4: Op.BLT, 5: Op.BGE, 6: Op.BLTU, 7: Op.BGEU}
_CSR = {1: Op.CSRRW, 2: Op.CSRRS, 3: Op.CSRRC, 5: Op.CSRRWI, 6: Op.CSRRSI, 7: Op.CSRRCI}
_WHOLE = {0x00000073: Op.ECALL, 0x00100073: Op.EBREAK, 0x30200073: Op.MRET, 0x10500073: Op.WFI}


def decode(words: Array, address: int) -> Array:
    """uint32 [n] of consecutive words from `address` as packed instructions, int64 [n]; what is none is ILLEGAL.

    The immediate of custom-0 is funct7 << 3 | funct3, of a CSR instruction the CSR's number.
    """
    word = words.astype(np.int64)
    signed = words.astype(np.uint32).view(np.int32).astype(np.int64)
    opcode, funct3, funct7 = word & 127, word >> 12 & 7, word >> 25
    rd, rs1, rs2 = word >> 7 & 31, word >> 15 & 31, word >> 20 & 31
    imm_i, imm_s = signed >> 20, signed >> 25 << 5 | rd
    imm_b = signed >> 31 << 12 | (word >> 7 & 1) << 11 | (word >> 25 & 63) << 5 | (word >> 8 & 15) << 1
    imm_u = signed >> 12 << 12
    imm_j = signed >> 31 << 20 | (word >> 12 & 255) << 12 | (word >> 20 & 1) << 11 | (word >> 21 & 1023) << 1
    pc = address + 4 * np.arange(len(word), dtype=np.int64)

    op = np.full(len(word), int(Op.ILLEGAL), np.int64)
    imm = np.zeros(len(word), np.int64)
    none = np.zeros(len(word), np.bool_)
    writes, reads1, reads2 = none.copy(), none.copy(), none.copy()

    def put(code: Op, where: Array, value: Array, to: bool, one: bool, two: bool) -> None:
        op[where], imm[where] = code, value[where]
        writes[where], reads1[where], reads2[where] = to, one, two

    for f3, code in _ALU_IMM.items():
        put(code, (opcode == 0x13) & (funct3 == f3), imm_i, True, True, False)
    for f3, f7, code in ((1, 0, Op.SLLI), (5, 0, Op.SRLI), (5, 32, Op.SRAI)):
        put(code, (opcode == 0x13) & (funct3 == f3) & (funct7 == f7), rs2, True, True, False)
    for (f7, f3), code in _ALU.items():
        put(code, (opcode == 0x33) & (funct3 == f3) & (funct7 == f7), imm, True, True, True)
    for f3, code in _LOADS.items():
        put(code, (opcode == 0x03) & (funct3 == f3), imm_i, True, True, False)
    for f3, code in _STORES.items():
        put(code, (opcode == 0x23) & (funct3 == f3), imm_s, False, True, True)
    for f3, code in _BRANCHES.items():
        put(code, (opcode == 0x63) & (funct3 == f3), imm_b, False, True, True)
    put(Op.LI, opcode == 0x37, imm_u, True, False, False)
    put(Op.LI, opcode == 0x17, _wrapped(pc + imm_u), True, False, False)
    put(Op.JAL, opcode == 0x6F, imm_j, True, False, False)
    put(Op.JALR, (opcode == 0x67) & (funct3 == 0), imm_i, True, True, False)
    put(Op.CUSTOM0, opcode == 0x0B, funct7 << 3 | funct3, True, True, True)
    for f3, code in _CSR.items():
        put(code, (opcode == 0x73) & (funct3 == f3), word >> 20, True, True, False)
    for f3, code in ((0, Op.FENCE), (1, Op.FENCE_I), (5, Op.FLUSH)):
        put(code, (opcode == 0x0F) & (funct3 == f3), imm, False, False, False)
    for whole, code in _WHOLE.items():
        put(code, word == whole, imm, False, False, False)

    rd = np.where(writes & (rd > 0), rd, NOWHERE)
    return op | rd << RD | (rs1 * reads1) << RS1 | (rs2 * reads2) << RS2 | imm << IMM


def _wrapped(value: Array) -> Array:
    """Modulo 2**32, as int32's values."""
    return value.astype(np.uint64).astype(np.uint32).view(np.int32).astype(np.int64)
