"""Instructions as text, in the assembler's notation."""

from __future__ import annotations

from tilewright.targets.cfu.isa.table import name

from .decode import IMM, NOWHERE, RD, RS1, RS2
from .ops import BRANCHES, LOADS, STORES, Op

NAMES = (
    *("zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
    *(f"a{i}" for i in range(8)),
    *(f"s{i}" for i in range(2, 12)),
    *(f"t{i}" for i in range(3, 7)),
)


def text(insn: int, pc: int) -> str:
    """A packed instruction (decode.py) at `pc`."""
    op, imm = Op(insn & 255), insn >> IMM
    at = insn >> RD & 255
    rd, one, two = NAMES[0 if at == NOWHERE else at], NAMES[insn >> RS1 & 31], NAMES[insn >> RS2 & 31]
    mnemonic = op.name.lower().replace("_", ".")
    if op == Op.CUSTOM0:
        return f"{name(imm)} {rd}, {one}, {two}"
    if op == Op.LI:
        return f"li {rd}, {imm & 0xFFFFFFFF:#x}"
    if op in LOADS or op == Op.JALR:
        return f"{mnemonic} {rd}, {imm}({one})"
    if op in STORES:
        return f"{mnemonic} {two}, {imm}({one})"
    if op in BRANCHES:
        return f"{mnemonic} {one}, {two}, {pc + imm:#x}"
    if op == Op.JAL:
        return f"{mnemonic} {rd}, {pc + imm:#x}"
    if Op.CSRRW <= op <= Op.CSRRC:
        return f"{mnemonic} {rd}, {imm:#x}, {one}"
    if Op.CSRRWI <= op <= Op.CSRRCI:
        return f"{mnemonic} {rd}, {imm:#x}, {insn >> RS1 & 31}"
    if op > Op.CSRRCI:
        return mnemonic
    if mnemonic.endswith(("i", "iu")):
        return f"{mnemonic} {rd}, {one}, {imm}"
    return f"{mnemonic} {rd}, {one}, {two}"
