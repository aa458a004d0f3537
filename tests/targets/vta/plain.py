"""A plain instruction of each kind, as a record of fields; tests change the fields that matter to them."""

from __future__ import annotations

from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode

LOAD = {"opcode": Opcode.LOAD, "memory_type": Memory.INP, "y_size": 1, "x_size": 4, "x_stride": 4}
UOP = {"opcode": Opcode.LOAD, "memory_type": Memory.UOP, "y_size": 1, "x_size": 1, "x_stride": 1}
GEMM = {"opcode": Opcode.GEMM, "uop_end": 1, "iter_out": 1, "iter_in": 1}
ALU = {"opcode": Opcode.ALU, "uop_end": 1, "iter_out": 1, "iter_in": 1, "alu_opcode": AluOp.ADD, "use_imm": 1}
STORE = {"opcode": Opcode.STORE, "memory_type": Memory.OUT, "y_size": 1, "x_size": 1, "x_stride": 1}
