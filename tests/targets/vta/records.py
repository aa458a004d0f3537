"""Short names for the codes in instruction records, the unit that takes a record, and the records of a stream."""

from __future__ import annotations

from tests.targets.vta.interpreter import Record
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode, Stream
from tilewright.targets.vta.isa.stream import COMMON_NAMES, groups

LOAD, STORE, GEMM, FINISH, ALU = Opcode
UOP, WGT, INP, ACC, OUT, ACC_8BIT, ALU_UOP, PAR = Memory
MIN, MAX, ADD, SHR, MUL, MULH, RSHR, REQ, *_ = AluOp


def unit_of(record: Record, stages: int) -> int:
    """load 0, compute 1, store 2; or load, gemm, activate, store."""
    opcode, memory = record["opcode"], record.get("memory_type", 0)
    if opcode == STORE:
        return stages - 1
    if opcode == LOAD and memory in (INP, WGT, PAR):
        return 0
    on_alu = opcode in (ALU, FINISH) or (opcode == LOAD and memory == ALU_UOP)
    return 2 if on_alu and stages == 4 else 1


def records_of(stream: Stream, config: Config) -> list[Record]:
    """The fields of each instruction, those of its own format."""
    found: list[Record] = [{} for _ in range(len(stream))]
    for form, layout, rows in groups(stream.opcode, config):
        for name in layout.by_name:
            column = getattr(stream if name in COMMON_NAMES else getattr(stream, form), name)
            for row in rows.tolist():
                found[row][name] = int(column[row])
    return found
