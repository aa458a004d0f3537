"""The bit layouts of instructions and micro-ops, and their decoded form: a column for each field."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tilewright.errors import ConfigError
from tilewright.program.instruction import Column, Field, Layout
from tilewright.targets.vta.isa.fields import COMMON, ITER_BITS, MEM, IndexBits


@dataclass(frozen=True)
class Formats:
    """The bit layouts of one configuration: instructions of two 64-bit words, micro-ops of 32 bits.

    `plain` (VTAGenericInsn) serves FINISH and unknown opcodes.
    """

    mem: Layout
    gemm: Layout
    alu: Layout
    plain: Layout
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
    """Return the bit layouts for these widths (in bits) of tile indices and of the ALU opcode.

    Raises ConfigError if a layout does not fit its words.
    """
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
    """Return the most bits, up to 8, that the ALU opcode can have beside tile indices of these widths; at least 3."""
    for operation_bits in range(8, OPCODE_BITS, -1):
        try:
            formats(bits, operation_bits)
        except ConfigError:
            continue
        return operation_bits
    return OPCODE_BITS


class Fields(dict[str, Column]):
    """The fields of one instruction format, by name and as attributes: int64 [n] each, 0 for other instructions."""

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
