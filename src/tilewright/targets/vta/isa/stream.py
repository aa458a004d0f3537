"""Instruction streams: their layouts and columns, the units that take them; micro-ops, and values of tiles in DRAM.

Every later pass works on the columns of the whole stream at once. The units are in a line, with token queues between
neighbours: three stages are upstream's; four separate the tensor ALU from the GEMM core, as the hardware guide proposes
("Pipeline Expandability"): load, gemm, activate, store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.errors import ProgramError
from tilewright.program.instruction import Column, Field, Layout, Raw
from tilewright.program.launch_image import LaunchImage
from tilewright.program.program import Launch
from tilewright.sim.steps import TokenQueue
from tilewright.targets.vta.isa.fields import (
    COMMON,
    FORMAT_OF,
    INSN_BYTES,
    ITER_BITS,
    MEM,
    REGIONS,
    IndexBits,
    Memory,
    Opcode,
)

if TYPE_CHECKING:
    from tilewright.targets.vta.config import Config

#: The token bits of an instruction: to or from the unit before (prev) and behind (next).
POP_BITS, PUSH_BITS = ("pop_prev", "pop_next"), ("push_prev", "push_next")
#: The transfers that may serve as a NOP (x_size 0, tokens only); a unit's is the first that it takes.
NOPS = (
    (Opcode.LOAD, Memory.INP),
    (Opcode.LOAD, Memory.UOP),
    (Opcode.LOAD, Memory.ALU_UOP),
    (Opcode.STORE, Memory.OUT),
)
#: An instruction by field names, and `reserved` bits; those left out are 0. `opcode` decides which names there are.
Record = Mapping[str, int]
COMMON_NAMES = tuple(f.name for f in COMMON)


@dataclass(frozen=True)
class Formats:
    """The layouts of one configuration: instructions of two 64-bit words, micro-ops of 32 bits.

    `plain` (VTAGenericInsn) serves FINISH and unknown opcodes.
    """

    mem: Layout
    gemm: Layout
    alu: Layout
    plain: Layout
    uop: Layout

    @property
    def by_name(self) -> dict[str, Layout]:
        """The formats of instructions, by the names that FORMAT_OF uses."""
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


@lru_cache
def formats(bits: IndexBits, operation_bits: int = 3) -> Formats:
    """The layouts for these widths of indices and of ALU operations.

    Raises ConfigError when one does not fit its words.
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


class Fields(dict[str, Column]):
    """The fields of one format by name and as attributes, int64 [n] each; 0 in rows of another format."""

    def __getattr__(self, name: str) -> Column:
        if name in self:
            return self[name]
        raise AttributeError(name)


@dataclass(frozen=True, eq=False)
class Stream:
    """n instructions: what all have in common (int64 [n] each), then the columns of each format."""

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


def decode(insns: Raw, config: Config, strict: bool = True) -> Stream:
    """The fields of `insns` (uint8 [n, 16], little-endian). Raises ProgramError for another shape.

    When `strict`, also for an opcode, memory id or ALU opcode that does not exist, naming the instruction.
    """
    common = config.formats.plain.decode(insns)
    parts: dict[str, Fields] = {}
    for name, layout, rows in groups(common["opcode"], config):
        columns = np.zeros((len(layout.fields), len(insns)), np.int64)
        columns[:, rows] = layout.values(insns[rows])
        parts[name] = Fields({f: c for f, c in zip(layout.by_name, columns, strict=True) if f not in common})
    stream = Stream(**common, mem=parts["mem"], gemm=parts["gemm"], alu=parts["alu"])
    if strict:
        mem = (stream.opcode == Opcode.LOAD) | (stream.opcode == Opcode.STORE)
        _refuse_unknown(stream.opcode, stream.opcode >= 0, tuple(Opcode), "opcode")
        _refuse_unknown(stream.mem.memory_type, mem, config.memories, "memory id")
        _refuse_unknown(stream.alu.alu_opcode, stream.opcode == Opcode.ALU, config.alu_ops, "ALU opcode")
    return stream


def encode(records: Sequence[Record], config: Config) -> Raw:
    """The code of one record an instruction: uint8 [n, 16], little-endian.

    Raises ProgramError, naming the instruction, for a value that does not fit its field and for a field that the
    format does not have.
    """
    for row, record in enumerate(records):
        if "opcode" not in record:
            raise ProgramError(f"instruction {row}", "has no opcode", f"its fields are {', '.join(record)}")
    raw = np.zeros((len(records), INSN_BYTES), np.uint8)
    opcode = np.array([record["opcode"] for record in records], np.int64)
    for _, layout, rows in groups(opcode, config):
        raw[rows] = layout.encode_rows([records[row] for row in rows], rows)
    return raw


def decode_uops(raw: Raw, config: Config) -> Uops:
    """The fields of micro-ops, uint8 [m, 4], as the C struct lays them out."""
    return Uops(**config.formats.uop.decode(raw))


def encode_uops(uops: Uops, config: Config) -> Raw:
    """The code of micro-ops, uint8 [m, 4]. Raises ProgramError for an index that does not fit."""
    return config.formats.uop.encode(uops._asdict())


def groups(opcode: Column, config: Config) -> Iterator[tuple[str, Layout, Array]]:
    """Each format's name, its layout, and the rows that have it."""
    rest = np.ones(len(opcode), np.bool_)
    for form, layout in config.formats.by_name.items():
        mine = rest
        if form != "plain":
            mine = among(opcode, [code for code, name in FORMAT_OF.items() if name == form])
            rest = rest & ~mine
        yield form, layout, np.flatnonzero(mine)


def _refuse_unknown(column: Column, mine: Array, known: tuple[IntEnum, ...], what: str) -> None:
    bad = mine & ~among(column, known)
    if bad.any():
        row = int(np.argmax(bad))
        names = ", ".join(f"{member.name} {member.value}" for member in known)
        raise ProgramError(f"instruction {row}", f"unknown {what} {column[row]}", f"there are {names}")


class Link(NamedTuple):
    """The token bits of one queue: its producer's and its consumer's."""

    push: str
    pop: str


@dataclass(frozen=True, eq=False)
class Pipeline:
    """`units` in order; `gemm` and `alu` are the numbers of the units that run GEMM and ALU (one, of three)."""

    units: tuple[str, ...]
    gemm: int
    alu: int
    load: int = 0

    @cached_property
    def takes(self) -> Array:
        """The unit whose queue takes an instruction, int64 [opcode, memory id (0: names none)].

        As upstream, LOADs of other than inp and wgt go to the unit that runs micro-ops, and so does what no reference
        decodes.
        """
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
        """The unit that takes FINISH."""
        return self.unit_of(Opcode.FINISH)

    @property
    def uop_memories(self) -> tuple[Memory, ...]:
        """The memories of micro-ops: GEMM's, and ALU's where that is another."""
        return tuple(dict.fromkeys((self.uop_memory(alu=False), self.uop_memory(alu=True))))

    def uop_memory(self, alu: bool) -> Memory:
        """The memory of the micro-ops of an ALU or GEMM instruction."""
        return Memory.ALU_UOP if alu and self.alu != self.gemm else Memory.UOP

    @cached_property
    def links(self) -> dict[tuple[int, int], Link]:
        """The queues in their order, by (producer, consumer)."""
        found = {}
        for unit in range(len(self.units)):
            for push, pop in zip(PUSH_BITS, reversed(POP_BITS), strict=True):
                other = self.neighbour(unit, push)
                if other is not None:
                    found[unit, other] = Link(push, pop)
        return found

    @cached_property
    def nops(self) -> tuple[tuple[Opcode, Memory], ...]:
        """What each unit's NOP is."""
        return tuple(next(nop for nop in NOPS if self.unit_of(*nop) == unit) for unit in range(len(self.units)))

    @cached_property
    def _takes(self) -> list[list[int]]:
        return self.takes.tolist()

    def unit_of(self, opcode: int, memory: int = 0) -> int:
        """The unit whose queue takes an instruction."""
        return self._takes[opcode][memory]

    def units_of(self, stream: Stream) -> Column:
        """The same of each instruction, int64 [n]."""
        return self.takes[stream.opcode, stream.mem.memory_type]

    def path(self, source: int, target: int) -> Sequence[int]:
        """The units from one to another, both included: a token goes from each to the next."""
        return range(source, target + 1) if source <= target else range(source, target - 1, -1)

    def neighbour(self, unit: int, bit: str) -> int | None:
        """The unit at the other end of a token bit, None where there is none."""
        other = unit + (1 if bit.endswith("next") else -1)
        return other if 0 <= other < len(self.units) else None

    def queues(self, depth: int) -> tuple[TokenQueue, ...]:
        """All queues, `depth` tokens each."""
        return tuple(TokenQueue(f"{self.units[a]}->{self.units[b]}", a, b, depth) for a, b in self.links)

    def tokens(self, stream: Stream) -> tuple[Array, Array]:
        """The queues that each instruction pops and pushes, as bit masks; bits without a queue are ignored (HLS)."""
        unit = self.units_of(stream)
        pops, pushes = np.zeros((2, len(stream)), np.int64)
        for queue, ((producer, consumer), link) in enumerate(self.links.items()):
            pops |= ((unit == consumer) & (getattr(stream, link.pop) == 1)).astype(np.int64) << queue
            pushes |= ((unit == producer) & (getattr(stream, link.push) == 1)).astype(np.int64) << queue
        return pops, pushes


#: By number of stages.
PIPELINES = {
    3: Pipeline(("load", "compute", "store"), gemm=1, alu=1),
    4: Pipeline(("load", "gemm", "activate", "store"), gemm=1, alu=2),
}


def image_of(launch: Launch) -> LaunchImage:
    """What a launch holds, which may come from a file. Raises ProgramError."""
    return LaunchImage.of(launch, INSN_BYTES, REGIONS)


def unpack_values(raw: Array, width: int) -> Array:
    """Values in DRAM, uint8 (..., bytes) of any strides, as signed integers (..., bytes * 8 / width).

    They are in two's complement, little-endian; values narrower than a byte lie low bits first.
    """
    if width == 8:  # the usual case: no copy
        return raw.view(np.int8)
    if width > 8:
        return np.ascontiguousarray(raw).view(f"<i{width // 8}")
    per_byte = 8 // width
    shifts = np.arange(per_byte, dtype=np.uint8) * width
    fields = (raw[..., None] >> shifts) & np.uint8((1 << width) - 1)
    signed = (fields << np.uint8(8 - width)).view(np.int8) >> (8 - width)
    return signed.reshape(*raw.shape[:-1], raw.shape[-1] * per_byte)


def pack_values(values: Array, width: int) -> Array:
    """Integers (..., n) truncated to `width` bits, as uint8 (..., n * width / 8)."""
    if width >= 8:
        return np.ascontiguousarray(values.astype(f"<i{width // 8}")).view(np.uint8)
    per_byte = 8 // width
    fields = (values.astype(np.int64) & ((1 << width) - 1)).astype(np.uint8)
    grouped = fields.reshape(*values.shape[:-1], values.shape[-1] // per_byte, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(width)
    return np.bitwise_or.reduce(grouped << shifts, axis=-1)
