"""What a launch holds, decoded: instructions and micro-ops as columns, and the values of tiles in DRAM.

Every later pass works on the whole stream at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from tilewright.array import Array, among
from tilewright.errors import ProgramError
from tilewright.program.instruction import Column, Layout, Raw
from tilewright.program.launch_image import LaunchImage
from tilewright.program.program import Launch
from tilewright.targets.vta.isa.fields import COMMON, FORMAT_OF, INSN_BYTES, REGIONS, Opcode

if TYPE_CHECKING:
    from tilewright.targets.vta.config import Config

#: An instruction by field names, and `reserved` bits; those left out are 0. `opcode` decides which names there are.
Record = Mapping[str, int]
COMMON_NAMES = tuple(f.name for f in COMMON)


class Fields(dict[str, Column]):
    """The fields of one format by name and as attributes, int64 [n] each; 0 in rows of another format."""

    def __getattr__(self, name: str) -> Column:
        if name in self:
            return self[name]
        raise AttributeError(name)


@dataclass(frozen=True, eq=False)
class Stream:
    """n instructions: what all have in common (int64 [n] each), then the columns of each format.

    `reserved` (uint8 [n, 16]) holds the bits that the row's format does not use, in place.
    """

    opcode: Column
    pop_prev: Column
    pop_next: Column
    push_prev: Column
    push_next: Column
    mem: Fields
    gemm: Fields
    alu: Fields
    reserved: Raw

    def __len__(self) -> int:
        return len(self.opcode)


@dataclass(frozen=True, eq=False)
class Uops:
    """m micro-ops: tile indices into acc, inp (ALU: acc) and wgt, int64 [m]; reserved bits, uint8 [m, 4]."""

    dst: Column
    src: Column
    wgt: Column
    reserved: Raw

    def __len__(self) -> int:
        return len(self.dst)


def decode(insns: Raw, config: Config, strict: bool = True) -> Stream:
    """The fields of `insns` (uint8 [n, 16], little-endian). Raises ProgramError for another shape.

    When `strict`, also for an opcode, memory id or ALU opcode that does not exist, naming the instruction.
    """
    plain = config.formats.plain
    common = plain.decode(insns)
    reserved = plain.reserved(insns)
    parts: dict[str, Fields] = {}
    for name, layout, rows in groups(common["opcode"], config):
        columns = np.zeros((len(layout.fields), len(insns)), np.int64)
        columns[:, rows] = layout.values(insns[rows])
        parts[name] = Fields({f: c for f, c in zip(layout.by_name, columns, strict=True) if f not in common})
        reserved[rows] &= ~layout.used
    stream = Stream(**common, mem=parts["mem"], gemm=parts["gemm"], alu=parts["alu"], reserved=reserved)
    if strict:
        mem = (stream.opcode == Opcode.LOAD) | (stream.opcode == Opcode.STORE)
        _refuse_unknown(stream.opcode, stream.opcode >= 0, tuple(Opcode), "opcode")
        _refuse_unknown(stream.mem.memory_type, mem, config.memories, "memory id")
        _refuse_unknown(stream.alu.alu_opcode, stream.opcode == Opcode.ALU, config.alu_ops, "ALU opcode")
    return stream


def encode(stream: Stream | Sequence[Record], config: Config) -> Raw:
    """The code of a stream, or of one record an instruction: uint8 [n, 16], little-endian.

    Only the columns of each row's own format are read. Raises ProgramError, naming the instruction, for a
    value that does not fit its field and for a field that the format does not have.
    """
    if not isinstance(stream, Stream):
        return _encode_records(stream, config)
    raw = stream.reserved.copy()
    for name, layout, rows in groups(stream.opcode, config):
        part = getattr(stream, name, stream)
        columns = {f: getattr(stream if f in COMMON_NAMES else part, f)[rows] for f in layout.by_name}
        if (overlap := (raw[rows] & layout.used).any(axis=1)).any():
            where = f"{layout.name} {rows[np.argmax(overlap)]}"
            raise ProgramError(where, "reserved bits cover fields of the format", "set the fields instead")
        raw[rows] |= layout.encode(columns, rows)
    return raw


def _encode_records(records: Sequence[Record], config: Config) -> Raw:
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
    layout = config.formats.uop
    return Uops(**layout.decode(raw), reserved=layout.reserved(raw))


def encode_uops(uops: Uops, config: Config) -> Raw:
    """The code of micro-ops, uint8 [m, 4]. Raises ProgramError for an index that does not fit."""
    return config.formats.uop.encode({"dst": uops.dst, "src": uops.src, "wgt": uops.wgt}) | uops.reserved


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
