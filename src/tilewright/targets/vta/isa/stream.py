"""Instruction streams: bit layouts, decoding to columns, the pipeline of units; micro-ops, and tile values in DRAM.

Every later pass works on the columns of the whole stream at once. The units form a line, with token queues between
neighbours. Three stages are upstream's. Four stages (load, gemm, activate, store) separate the tensor ALU from the
GEMM core, as the hardware guide proposes ("Pipeline Expandability").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.array import Array, among
from tilewright.errors import ConfigError, ProgramError
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

#: The token bits of an instruction: from or to the previous and the next unit.
POP_BITS, PUSH_BITS = ("pop_prev", "pop_next"), ("push_prev", "push_next")
#: Transfers that can serve as a NOP (x_size 0, tokens only). A unit's NOP is the first of these that it executes.
NOPS = (
    (Opcode.LOAD, Memory.INP),
    (Opcode.LOAD, Memory.UOP),
    (Opcode.LOAD, Memory.ALU_UOP),
    (Opcode.STORE, Memory.OUT),
)
#: An instruction's fields by name, and its `reserved` bits; missing fields are 0. `opcode` determines the valid names.
Record = Mapping[str, int]
COMMON_NAMES = tuple(f.name for f in COMMON)


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


def decode(insns: Raw, config: Config, strict: bool = True) -> Stream:
    """Decode `insns` (uint8 [n, 16], little-endian). Raises ProgramError if the array has another shape.

    If `strict`, also raises ProgramError, naming the instruction, for an unknown opcode, memory id or ALU opcode.
    The opcodes of own operations become their numbers (Config.own_numbers), so that none is taken for one of AluOp.
    """
    common = config.formats.plain.decode(insns)
    parts: dict[str, Fields] = {}
    for name, layout, rows in groups(common["opcode"], config):
        own = {field: index for index, field in enumerate(layout.by_name) if field not in common}
        columns = np.zeros((len(own), len(insns)), np.int64)
        columns[:, rows] = layout.values(insns[rows])[[*own.values()]]
        parts[name] = Fields(zip(own, columns, strict=True))
    stream = Stream(**common, mem=parts["mem"], gemm=parts["gemm"], alu=parts["alu"])
    if strict:
        mem = (stream.opcode == Opcode.LOAD) | (stream.opcode == Opcode.STORE)
        _refuse_unknown(stream.opcode, stream.opcode >= 0, _named(Opcode), "opcode")
        _refuse_unknown(stream.mem.memory_type, mem, _named(config.memories), "memory id")
        _refuse_unknown(stream.alu.alu_opcode, stream.opcode == Opcode.ALU, config.opcodes, "ALU opcode")
    if config.own_alu:
        encoded = stream.alu.alu_opcode.copy()
        for opcode, number in config.own_numbers.items():
            stream.alu.alu_opcode[encoded == opcode] = number
    return stream


def encode(records: Sequence[Record], config: Config) -> Raw:
    """Encode one instruction for each record: uint8 [n, 16], little-endian.

    Raises ProgramError, naming the instruction, if a record has no opcode, a value does not fit its field, or the
    instruction's format lacks a field.
    """
    for row, record in enumerate(records):
        if "opcode" not in record:
            known = ", ".join(record)
            raise ProgramError(f"instruction {row}", f"has no opcode, only the fields {known}", "add opcode to it")
    raw = np.zeros((len(records), INSN_BYTES), np.uint8)
    opcode = np.array([record["opcode"] for record in records], np.int64)
    for _, layout, rows in groups(opcode, config):
        raw[rows] = layout.encode_rows([records[row] for row in rows], rows)
    return raw


def decode_uops(raw: Raw, config: Config) -> Uops:
    """Decode micro-ops, uint8 [m, 4], laid out as upstream's C struct."""
    return Uops(**config.formats.uop.decode(raw))


def encode_uops(uops: Uops, config: Config) -> Raw:
    """Encode micro-ops: uint8 [m, 4]. Raises ProgramError if an index does not fit its field."""
    return config.formats.uop.encode(uops._asdict())


def groups(opcode: Column, config: Config) -> Iterator[tuple[str, Layout, Array]]:
    """Yield, for each instruction format, its name, its layout, and the indices of the instructions that use it."""
    rest = np.ones(len(opcode), np.bool_)
    for form, layout in config.formats.by_name.items():
        mine = rest
        if form != "plain":
            mine = among(opcode, [code for code, name in FORMAT_OF.items() if name == form])
            rest = rest & ~mine
        yield form, layout, np.flatnonzero(mine)


def _named(codes: Iterable[IntEnum]) -> dict[int, str]:
    return {int(code): code.name.lower() for code in codes}


def _refuse_unknown(column: Column, mine: Array, known: Mapping[int, str], what: str) -> None:
    bad = mine & ~among(column, known.keys())
    if bad.any():
        row = int(np.argmax(bad))
        names = ", ".join(f"{name.upper()} {code}" for code, name in known.items())
        raise ProgramError(f"instruction {row}", f"unknown {what} {column[row]}", f"this machine has {names}")


class Link(NamedTuple):
    """The names of one queue's token bits: instructions of the producer set `push`, those of the consumer `pop`."""

    push: str
    pop: str


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The units in order. `gemm` and `alu`: the numbers of the units that run GEMM and ALU (three stages: the same)."""

    units: tuple[str, ...]
    gemm: int
    alu: int
    load: int = 0

    @cached_property
    def takes(self) -> Array:
        """The number of the unit that executes an instruction: int64 [opcode, memory id], with id 0 if it has none.

        LOADs of inp, wgt and par go to `load`, LOADs of alu_uop to the ALU's unit, and other LOADs to the GEMM unit
        (upstream: the unit that runs micro-ops). FINISH, and opcodes that no upstream implementation decodes, go to
        the ALU's unit.
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
        """The number of the unit that executes FINISH."""
        return self.unit_of(Opcode.FINISH)

    @property
    def uop_memories(self) -> tuple[Memory, ...]:
        """The memories of micro-ops: GEMM's, and the ALU's if that is a separate one."""
        return tuple(dict.fromkeys((self.uop_memory(alu=False), self.uop_memory(alu=True))))

    def uop_memory(self, alu: bool) -> Memory:
        """Return the memory that holds the micro-ops of an ALU or GEMM instruction."""
        return Memory.ALU_UOP if alu and self.alu != self.gemm else Memory.UOP

    @cached_property
    def links(self) -> dict[tuple[int, int], Link]:
        """The token bits of each queue by (producer, consumer), in the order of `queues`."""
        found = {}
        for unit in range(len(self.units)):
            for push, pop in zip(PUSH_BITS, reversed(POP_BITS), strict=True):
                other = self.neighbour(unit, push)
                if other is not None:
                    found[unit, other] = Link(push, pop)
        return found

    @cached_property
    def nops(self) -> tuple[tuple[Opcode, Memory], ...]:
        """The opcode and memory id of each unit's NOP."""
        return tuple(next(nop for nop in NOPS if self.unit_of(*nop) == unit) for unit in range(len(self.units)))

    @cached_property
    def _takes(self) -> list[list[int]]:
        return self.takes.tolist()

    def unit_of(self, opcode: int, memory: int = 0) -> int:
        """Return the number of the unit that executes an instruction."""
        return self._takes[opcode][memory]

    def units_of(self, stream: Stream) -> Column:
        """Return the number of the unit that executes each instruction, int64 [n]."""
        return self.takes[stream.opcode, stream.mem.memory_type]

    def path(self, source: int, target: int) -> Sequence[int]:
        """Return the numbers of the units from `source` to `target`, both included, in the order of a token's way."""
        return range(source, target + 1) if source <= target else range(source, target - 1, -1)

    def neighbour(self, unit: int, bit: str) -> int | None:
        """Return the unit at the other end of the queue of a token bit, or None at the end of the line."""
        other = unit + (1 if bit.endswith("next") else -1)
        return other if 0 <= other < len(self.units) else None

    def queues(self, depth: int) -> tuple[TokenQueue, ...]:
        """Return all token queues between the units, each for `depth` tokens."""
        return tuple(TokenQueue(f"{self.units[a]}->{self.units[b]}", a, b, depth) for a, b in self.links)

    def tokens(self, stream: Stream) -> tuple[Array, Array]:
        """Return two masks per instruction: the queues that it pops, and pushes. Bits without a queue do not count."""
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


_IMAGES: WeakKeyDictionary[Launch, LaunchImage] = WeakKeyDictionary()


def image_of(launch: Launch) -> LaunchImage:
    """Return the decoded contents of a launch. Raises ProgramError if they are invalid (a file's may be)."""
    if launch not in _IMAGES:
        _IMAGES[launch] = LaunchImage.of(launch, INSN_BYTES, REGIONS)
    return _IMAGES[launch]


def unpack_values(raw: Array, width: int) -> Array:
    """Return values in DRAM, uint8 (..., bytes) of any strides, as signed integers (..., bytes * 8 / width).

    Values are little-endian two's complement; values narrower than a byte are packed low bits first.
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
    """Return integers (..., n), truncated to `width` bits and packed, as uint8 (..., n * width / 8)."""
    if width >= 8:
        return np.ascontiguousarray(values.astype(f"<i{width // 8}")).view(np.uint8)
    per_byte = 8 // width
    fields = (values.astype(np.int64) & ((1 << width) - 1)).astype(np.uint8)
    grouped = fields.reshape(*values.shape[:-1], values.shape[-1] // per_byte, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(width)
    return np.bitwise_or.reduce(grouped << shifts, axis=-1)
