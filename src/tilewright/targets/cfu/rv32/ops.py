"""Operations of RV32IM with Zicsr, Zifencei and custom-0, numbered as the loop runs them: the most frequent first."""

from __future__ import annotations

from enum import IntEnum, auto


class Op(IntEnum):
    """What an instruction does; LI is LUI, and AUIPC with its sum."""

    ADDI = 0
    LW = auto()
    ADD = auto()
    LB = auto()
    SW = auto()
    LI = auto()
    MUL = auto()
    SLLI = auto()
    LBU = auto()
    SB = auto()
    BNE = auto()
    BEQ = auto()
    BLT = auto()
    BGE = auto()
    BLTU = auto()
    BGEU = auto()
    JAL = auto()
    JALR = auto()
    CUSTOM0 = auto()
    SRLI = auto()
    SRAI = auto()
    ANDI = auto()
    ORI = auto()
    XORI = auto()
    SLTI = auto()
    SLTIU = auto()
    SUB = auto()
    SLL = auto()
    SRL = auto()
    SRA = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SLT = auto()
    SLTU = auto()
    MULH = auto()
    MULHSU = auto()
    MULHU = auto()
    DIV = auto()
    DIVU = auto()
    REM = auto()
    REMU = auto()
    LH = auto()
    LHU = auto()
    SH = auto()
    # What follows leaves the loop.
    CSRRW = auto()
    CSRRS = auto()
    CSRRC = auto()
    CSRRWI = auto()
    CSRRSI = auto()
    CSRRCI = auto()
    FENCE = auto()
    FENCE_I = auto()
    FLUSH = auto()  # of the data cache: LiteX's, opcode of FENCE with funct3 5
    ECALL = auto()
    EBREAK = auto()
    MRET = auto()
    WFI = auto()
    ILLEGAL = auto()


BRANCHES = frozenset({Op.BEQ, Op.BNE, Op.BLT, Op.BGE, Op.BLTU, Op.BGEU})
LOADS = frozenset({Op.LB, Op.LH, Op.LW, Op.LBU, Op.LHU})
STORES = frozenset({Op.SB, Op.SH, Op.SW})
MULTIPLIES = frozenset({Op.MUL, Op.MULH, Op.MULHSU, Op.MULHU})
DIVIDES = frozenset({Op.DIV, Op.DIVU, Op.REM, Op.REMU})
SYSTEM = frozenset(op for op in Op if op >= Op.CSRRW)
