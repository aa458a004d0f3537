"""A decoded instruction stream as columns, so that every later pass works on the whole stream at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from tilewright.array import Array, among
from tilewright.errors import ProgramError
from tilewright.program.instruction import Column, Layout, Raw
from tilewright.targets.vta.isa.fields import COMMON, FORMAT_OF, INSN_BYTES, Opcode

if TYPE_CHECKING:
    from tilewright.targets.vta.config import Config

#: An instruction by field names, and `reserved` bits; those left out are 0. `opcode` decides which names there are.
Record = Mapping[str, int]
COMMON_NAMES = tuple(f.name for f in COMMON)


@dataclass(frozen=True, eq=False)
class Mem:
    """The fields of LOAD and STORE, int64 [n] each; 0 in rows of another format."""

    memory_type: Column
    sram_base: Column
    dram_base: Column
    y_size: Column
    x_size: Column
    x_stride: Column
    y_pad_0: Column
    y_pad_1: Column
    x_pad_0: Column
    x_pad_1: Column


@dataclass(frozen=True, eq=False)
class Gemm:
    """The fields of GEMM, int64 [n] each; 0 in rows of another format."""

    reset_reg: Column
    uop_bgn: Column
    uop_end: Column
    iter_out: Column
    iter_in: Column
    dst_factor_out: Column
    dst_factor_in: Column
    src_factor_out: Column
    src_factor_in: Column
    wgt_factor_out: Column
    wgt_factor_in: Column


@dataclass(frozen=True, eq=False)
class Alu:
    """The fields of ALU, int64 [n] each; 0 in rows of another format."""

    reset_reg: Column
    uop_bgn: Column
    uop_end: Column
    iter_out: Column
    iter_in: Column
    dst_factor_out: Column
    dst_factor_in: Column
    src_factor_out: Column
    src_factor_in: Column
    alu_opcode: Column
    use_imm: Column
    imm: Column


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
    mem: Mem
    gemm: Gemm
    alu: Alu
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
    parts: dict[str, dict[str, Column]] = {}
    for name, layout, rows in _groups(common["opcode"], config):
        columns = np.zeros((len(layout.fields), len(insns)), np.int64)
        columns[:, rows] = layout.values(insns[rows])
        parts[name] = {f: c for f, c in zip(layout.by_name, columns, strict=True) if f not in common}
        reserved[rows] &= ~layout.used
    stream = _assembled(common, parts, reserved)
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
    for name, layout, rows in _groups(stream.opcode, config):
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
    for _, layout, rows in _groups(opcode, config):
        raw[rows] = layout.encode_rows([records[row] for row in rows], rows)
    return raw


def decode_uops(raw: Raw, config: Config) -> Uops:
    """The fields of micro-ops, uint8 [m, 4], as the C struct lays them out."""
    layout = config.formats.uop
    return Uops(**layout.decode(raw), reserved=layout.reserved(raw))


def encode_uops(uops: Uops, config: Config) -> Raw:
    """The code of micro-ops, uint8 [m, 4]. Raises ProgramError for an index that does not fit."""
    return config.formats.uop.encode({"dst": uops.dst, "src": uops.src, "wgt": uops.wgt}) | uops.reserved


def _groups(opcode: Column, config: Config) -> Iterator[tuple[str, Layout, Array]]:
    """Each format's name, its layout, and the rows that have it."""
    rest = np.ones(len(opcode), np.bool_)
    for form, layout in config.formats.by_name.items():
        mine = rest
        if form != "plain":
            mine = among(opcode, [code for code, name in FORMAT_OF.items() if name == form])
            rest = rest & ~mine
        yield form, layout, np.flatnonzero(mine)


def _assembled(common: dict[str, Column], parts: dict[str, dict[str, Column]], reserved: Raw) -> Stream:
    return Stream(
        **common,
        mem=Mem(**parts["mem"]),
        gemm=Gemm(**parts["gemm"]),
        alu=Alu(**parts["alu"]),
        reserved=reserved,
    )


def _refuse_unknown(column: Column, mine: Array, known: tuple[IntEnum, ...], what: str) -> None:
    bad = mine & ~among(column, known)
    if bad.any():
        row = int(np.argmax(bad))
        names = ", ".join(f"{member.name} {member.value}" for member in known)
        raise ProgramError(f"instruction {row}", f"unknown {what} {column[row]}", f"there are {names}")
