"""VTA's opcodes, memory ids, and the instruction fields that no configuration changes.

Source: include/vta/hw_spec.h and hw_spec_const.h of apache/tvm-vta at d4a15f627d5c. Releases before 2021 had
a 2-bit memory id and a 2-bit ALU opcode; their binaries are incompatible.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from tilewright.program.instruction import Field


class Opcode(IntEnum):
    """The opcodes: bits 2:0 of every instruction."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class Memory(IntEnum):
    """Memory ids of LOAD and STORE; ACC_8BIT loads int8 from DRAM into the accumulator, sign-extended.

    Our extensions: ALU_UOP, the micro-ops of the `activate` stage; PAR, the parameters of REQ.
    """

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC_8BIT = 5
    ALU_UOP = 6
    PAR = 7


#: Memories of control state. A LOAD into one is not part of the data-hazard check.
UOP_MEMORIES = (Memory.UOP, Memory.ALU_UOP)


#: The format of each opcode; FINISH and unknown opcodes are plain.
FORMAT_OF: dict[int, str] = {Opcode.LOAD: "mem", Opcode.STORE: "mem", Opcode.GEMM: "gemm", Opcode.ALU: "alu"}

#: The DRAM regions, each with a base register that the host sets. REGION_OF gives the region of each memory id.
REGIONS = ("uop", "inp", "wgt", "acc", "out")
REGION_OF = ("uop", "wgt", "inp", "acc", "out", "acc", "uop", "acc")

#: VTA_INS_WIDTH and VTA_UOP_WIDTH, bytes.
INSN_BYTES = 16
UOP_BYTES = 4
#: Field widths in bits: sram_base, and loop counts (VTA_LOOP_ITER_WIDTH).
SRAM_BASE_BITS = 16
ITER_BITS = 14

#: The low bits of every instruction.
COMMON = (
    Field("opcode", 3, doc="Opcode"),
    Field("pop_prev", 1, doc="wait for a token from the previous unit"),
    Field("pop_next", 1, doc="wait for a token from the next unit"),
    Field("push_prev", 1, doc="on completion, send a token to the previous unit"),
    Field("push_next", 1, doc="on completion, send a token to the next unit"),
)

MEM = (
    Field("memory_type", 3, doc="Memory"),
    Field("sram_base", SRAM_BASE_BITS, doc="first on-chip tile"),
    Field("dram_base", 32, doc="first DRAM tile: byte address / tile bytes"),
    Field("y_size", 16, doc="rows"),
    Field("x_size", 16, doc="tiles in a row; 0 is a NOP that only carries tokens"),
    Field("x_stride", 16, doc="tiles from row to row in DRAM"),
    Field("y_pad_0", 4, doc="zero rows above"),
    Field("y_pad_1", 4, doc="zero rows below"),
    Field("x_pad_0", 4, doc="zero tiles left"),
    Field("x_pad_1", 4, doc="zero tiles right"),
)


class IndexBits(NamedTuple):
    """The bits of an index into each on-chip memory: log2 of its depth in tiles (micro-ops for `uop`)."""

    uop: int
    inp: int
    wgt: int
    acc: int
