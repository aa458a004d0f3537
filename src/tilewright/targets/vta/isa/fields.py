"""The opcodes, memory ids and bit layouts of VTA, and tables of decoded instructions and micro-ops.

Source: include/vta/hw_spec.h and hw_spec_const.h of apache/tvm-vta at d4a15f627d5c. Releases before 2021 had
a 2-bit memory id and a 2-bit ALU opcode; their binaries are incompatible.

The units form a line, with token queues between neighbours. Upstream has three stages. Four stages (load, gemm,
activate, store) separate the tensor ALU from the GEMM core, as proposed in the hardware guide ("Pipeline
Expandability").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ConfigError
from tilewright.program.instruction import Column, Field, Layout
from tilewright.sim.steps import TokenQueue


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


#: Memories of control state. The check for data hazards ignores LOADs into these memories.
UOP_MEMORIES = (Memory.UOP, Memory.ALU_UOP)


#: The format of each opcode; FINISH and unknown opcodes are plain.
FORMAT_OF: dict[int, str] = {Opcode.LOAD: "mem", Opcode.STORE: "mem", Opcode.GEMM: "gemm", Opcode.ALU: "alu"}

#: The DRAM regions, each with a base register that the host sets. REGION_OF gives the region of each memory id.
REGIONS = ("uop", "inp", "wgt", "acc", "out")
REGION_OF = ("uop", "wgt", "inp", "acc", "out", "acc", "uop", "acc")

#: Upstream's VTA_INS_WIDTH and VTA_UOP_WIDTH, in bytes.
INSN_BYTES = 16
UOP_BYTES = 4
#: Field widths in bits: sram_base, y_size, and loop counts (VTA_LOOP_ITER_WIDTH).
SRAM_BASE_BITS = 16
ROW_BITS = 16
ITER_BITS = 14
#: Bytes of a page of upstream's DRAM allocators (VTA_PAGE_BYTES); no legal tile is larger.
PAGE = 4096

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
    Field("y_size", ROW_BITS, doc="rows"),
    Field("x_size", 16, doc="tiles in a row; 0 is a NOP that only carries tokens"),
    Field("x_stride", 16, doc="tiles from row to row in DRAM"),
    Field("y_pad_0", 4, doc="zero rows above"),
    Field("y_pad_1", 4, doc="zero rows below"),
    Field("x_pad_0", 4, doc="zero tiles left"),
    Field("x_pad_1", 4, doc="zero tiles right"),
)


def paged(size: int) -> int:
    """Round a size or an address up to whole pages."""
    return -(-size // PAGE) * PAGE


class IndexBits(NamedTuple):
    """The bits of an index into each on-chip memory: log2 of its depth in tiles (micro-ops for `uop`)."""

    uop: int
    inp: int
    wgt: int
    acc: int


@dataclass(frozen=True)
class Formats:
    """The bit layouts of one configuration: instructions of two 64-bit words, micro-ops of 32 bits."""

    mem: Layout
    gemm: Layout
    alu: Layout
    plain: Layout  # VTAGenericInsn: FINISH and unknown opcodes
    uop: Layout

    @property
    def by_name(self) -> dict[str, Layout]:
        """The instruction layouts by the names that FORMAT_OF uses."""
        return {"mem": self.mem, "gemm": self.gemm, "alu": self.alu, "plain": self.plain}


def _loop(bits: IndexBits) -> tuple[Field, ...]:
    return (
        Field("reset_reg", 1, doc="GEMM: clear the destination instead of accumulating; ALU: unused"),
        Field("uop_bgn", bits.uop, doc="first micro-op"),
        Field("uop_end", bits.uop + 1, doc="one past the last micro-op"),
        Field("iter_out", ITER_BITS, doc="outer iterations"),
        Field("iter_in", ITER_BITS, doc="inner iterations"),
    )


def _factors(memory: str, width: int) -> tuple[Field, ...]:
    return (
        Field(f"{memory}_factor_out", width, doc="tiles added to the index per outer iteration"),
        Field(f"{memory}_factor_in", width, doc="tiles added to the index per inner iteration"),
    )


#: Bits of upstream's ALU opcode.
OPCODE_BITS = 3


@lru_cache
def formats(bits: IndexBits, operation_bits: int = OPCODE_BITS) -> Formats:
    """Return the layouts for these widths of indices and opcode. Raises ConfigError if a layout is too wide."""
    # A field is as wide as its index, so the depths of a machine's memories determine the layouts.
    gemm = _factors("dst", bits.acc) + _factors("src", bits.inp) + _factors("wgt", bits.wgt)
    alu = _factors("dst", bits.acc) + _factors("src", bits.acc)
    operation = (
        Field("alu_opcode", operation_bits, doc="AluOp"),
        Field("use_imm", 1, doc="the second operand is `imm`, not acc[src]"),
        Field("imm", 16, signed=True, doc="immediate operand"),
    )
    uop = (
        Field("dst", bits.acc, doc="accumulator tile"),
        Field("src", max(bits.acc, bits.inp), doc="input tile (GEMM) or accumulator tile (ALU)"),
        Field("wgt", bits.wgt, doc="weight tile"),
    )
    return Formats(
        mem=Layout("LOAD/STORE instruction", COMMON + MEM, 64, 2),
        gemm=Layout("GEMM instruction", COMMON + _loop(bits) + gemm, 64, 2),
        alu=Layout("ALU instruction", COMMON + _loop(bits) + alu + operation, 64, 2),
        plain=Layout("instruction", COMMON, 64, 2),
        uop=Layout("micro-op", uop, 32, 1),
    )


@lru_cache
def opcode_bits(bits: IndexBits) -> int:
    """Return the maximum width (3 to 8 bits) of the ALU opcode beside tile indices of these widths."""
    for operation_bits in range(8, OPCODE_BITS, -1):
        try:
            formats(bits, operation_bits)
        except ConfigError:
            continue
        return operation_bits
    return OPCODE_BITS


class Fields(dict[str, Column]):
    """The fields of one instruction format, as items and as attributes: int64 [n] each, 0 for other instructions."""

    def __getattr__(self, name: str) -> Column:
        if name in self:
            return self[name]
        raise AttributeError(name)


@dataclass(frozen=True, eq=False)
class Stream:
    """n decoded instructions: the fields that all formats share (int64 [n] each), then the fields of each format."""

    opcode: Column
    pop_prev: Column
    pop_next: Column
    push_prev: Column
    push_next: Column
    mem: Fields
    gemm: Fields
    alu: Fields

    def __len__(self) -> int:
        return len(self.opcode)


class Uops(NamedTuple):
    """m micro-ops: tile indices into acc, inp (ALU: acc) and wgt, int64 [m]."""

    dst: Column
    src: Column
    wgt: Column


#: The token bits of an instruction. An instruction pops tokens that the previous and the next unit pushed, and pushes
#: tokens for these units.
POP_BITS, PUSH_BITS = ("pop_prev", "pop_next"), ("push_prev", "push_next")
#: Transfers that are NOPs with x_size 0, and only carry tokens. The NOP of a unit is the first transfer in this list
#: that the unit executes.
NOPS = (
    (Opcode.LOAD, Memory.INP),
    (Opcode.LOAD, Memory.UOP),
    (Opcode.LOAD, Memory.ALU_UOP),
    (Opcode.STORE, Memory.OUT),
)


class Link(NamedTuple):
    """The names of one queue's token bits: the producer's instructions set `push`, the consumer's set `pop`."""

    push: str
    pop: str


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The units in order. `gemm` and `alu`: the numbers of the units for GEMM and ALU, equal with three stages."""

    units: tuple[str, ...]
    gemm: int
    alu: int
    load: int = 0

    @cached_property
    def takes(self) -> Array:
        """The unit number of each kind of instruction: int64 [opcode, memory id], id 0 for instructions without id.

        LOADs of inp, wgt and par go to `load`, LOADs of alu_uop to the ALU's unit, and other LOADs to the GEMM unit
        (upstream: the unit that runs micro-ops). FINISH, and opcodes that no upstream implementation decodes, go to
        the ALU's unit.
        """
        # Rows are opcodes, of which three bits are decoded; columns are memory ids.
        takes = np.full((8, 8), self.alu)
        takes[Opcode.STORE] = self.store
        takes[[Opcode.GEMM, Opcode.LOAD]] = self.gemm
        takes[Opcode.LOAD, Memory.ALU_UOP] = self.alu
        takes[Opcode.LOAD, [Memory.INP, Memory.WGT, Memory.PAR]] = self.load
        return takes

    @property
    def store(self) -> int:
        return len(self.units) - 1

    @property
    def home(self) -> int:
        """The number of the unit that executes FINISH."""
        return self.unit_of(Opcode.FINISH)

    def uop_memory(self, alu: bool) -> Memory:
        """Return the memory with the micro-ops of an ALU or GEMM instruction."""
        return Memory.ALU_UOP if alu and self.alu != self.gemm else Memory.UOP

    @cached_property
    def links(self) -> dict[tuple[int, int], Link]:
        """The token bits of each queue by (producer, consumer), in the order of `queues`."""
        sides = ((-1, Link("push_prev", "pop_next")), (1, Link("push_next", "pop_prev")))
        ends = range(len(self.units))
        return {(unit, unit + side): link for unit in ends for side, link in sides if unit + side in ends}

    @cached_property
    def nops(self) -> tuple[tuple[Opcode, Memory], ...]:
        """The opcode and memory id of each unit's NOP."""
        return tuple(next(nop for nop in NOPS if self.unit_of(*nop) == unit) for unit in range(len(self.units)))

    @cached_property
    def _takes(self) -> list[list[int]]:
        return self.takes.tolist()

    def unit_of(self, opcode: int, memory: int = 0) -> int:
        return self._takes[opcode][memory]

    def units_of(self, stream: Stream) -> Column:
        """Return the number of the unit that executes each instruction, int64 [n]."""
        return self.takes[stream.opcode, stream.mem.memory_type]

    def path(self, source: int, target: int) -> Sequence[int]:
        """Return the numbers of the units that a token passes from `source` to `target`, both included, in order."""
        return range(source, target + 1) if source <= target else range(source, target - 1, -1)

    def queues(self, depth: int) -> tuple[TokenQueue, ...]:
        return tuple(TokenQueue(f"{self.units[a]}->{self.units[b]}", a, b, depth) for a, b in self.links)

    def tokens(self, stream: Stream) -> tuple[Array, Array]:
        """Return two masks per instruction: the queues to pop and to push. Token bits without a queue are ignored."""
        unit = self.units_of(stream)
        pops, pushes = np.zeros((2, len(stream)), np.int64)
        for queue, ((producer, consumer), link) in enumerate(self.links.items()):
            pops |= ((unit == consumer) & (getattr(stream, link.pop) == 1)).astype(np.int64) << queue
            pushes |= ((unit == producer) & (getattr(stream, link.push) == 1)).astype(np.int64) << queue
        return pops, pushes


#: The pipelines by number of stages.
PIPELINES = {
    3: Pipeline(("load", "compute", "store"), gemm=1, alu=1),
    4: Pipeline(("load", "gemm", "activate", "store"), gemm=1, alu=2),
}
