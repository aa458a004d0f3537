"""Short names for the codes in instruction records, and the unit that takes a record."""

from __future__ import annotations

from tests.targets.vta.meaning import Record
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode

LOAD, STORE, GEMM, FINISH, ALU = Opcode
UOP, WGT, INP, ACC, OUT, ACC_8BIT, ALU_UOP, PAR = Memory
MIN, MAX, ADD, SHR, MUL, MULH, RSHR, REQ = AluOp


def unit_of(record: Record, stages: int) -> int:
    """load 0, compute 1, store 2; or load, gemm, activate, store."""
    opcode, memory = record["opcode"], record.get("memory_type", 0)
    if opcode == STORE:
        return stages - 1
    if opcode == LOAD and memory in (INP, WGT, PAR):
        return 0
    on_alu = opcode in (ALU, FINISH) or (opcode == LOAD and memory == ALU_UOP)
    return 2 if on_alu and stages == 4 else 1
