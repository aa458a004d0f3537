"""Decode and encode instruction streams, micro-ops and tile values in DRAM.

Every later pass works on the columns of the whole stream at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.array import Array, among
from tilewright.errors import ProgramError
from tilewright.program.instruction import Column, Layout, Raw
from tilewright.program.launch_image import LaunchImage
from tilewright.program.program import Launch
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import (
    COMMON,
    FORMAT_OF,
    INSN_BYTES,
    REGIONS,
    Fields,
    Opcode,
    Stream,
    Uops,
)

#: An instruction's fields by name, and its `reserved` bits; missing fields are 0. `opcode` determines the valid names.
Record = Mapping[str, int]
COMMON_NAMES = tuple(f.name for f in COMMON)


def decode(insns: Raw, config: Config, strict: bool = True) -> Stream:
    """Decode `insns` (uint8 [n, 16], little-endian). Raises ProgramError if the array has another shape.

    If `strict`, also raises ProgramError, naming the instruction, for an unknown opcode, memory id or ALU opcode. The
    opcodes of own operations become numbers (Config.own_numbers) that differ from all AluOps.
    """
    common = config.formats.plain.decode(insns)
    parts: dict[str, Fields] = {}
    for name, layout, rows in groups(common["opcode"], config):
        columns_of = {field: index for index, field in enumerate(layout.by_name) if field not in common}
        columns = np.zeros((len(columns_of), len(insns)), np.int64)
        columns[:, rows] = layout.values(insns[rows])[[*columns_of.values()]]
        parts[name] = Fields(zip(columns_of, columns, strict=True))
    stream = Stream(**common, mem=parts["mem"], gemm=parts["gemm"], alu=parts["alu"])
    if strict:
        mem = (stream.opcode == Opcode.LOAD) | (stream.opcode == Opcode.STORE)
        _refuse_unknown(stream.opcode, stream.opcode >= 0, _named(Opcode), "opcode")
        _refuse_unknown(stream.mem.memory_type, mem, _named(config.memories), "memory id")
        _refuse_unknown(stream.alu.alu_opcode, stream.opcode == Opcode.ALU, config.opcodes, "ALU opcode")
    if config.own_alu:
        # Compare with a copy, because the number of one own operation may be the opcode of another own operation.
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
            fields = ", ".join(record)
            raise ProgramError(f"instruction {row}", f"has no opcode, only the fields {fields}", "add opcode to it")
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


def _refuse_unknown(column: Column, mine: Array, names_by_code: Mapping[int, str], what: str) -> None:
    bad = mine & ~among(column, names_by_code.keys())
    if bad.any():
        row = int(np.argmax(bad))
        names = ", ".join(f"{name.upper()} {code}" for code, name in names_by_code.items())
        raise ProgramError(f"instruction {row}", f"unknown {what} {column[row]}", f"this machine has {names}")


_IMAGES: WeakKeyDictionary[Launch, LaunchImage] = WeakKeyDictionary()


def image_of(launch: Launch) -> LaunchImage:
    """Return the decoded contents of a launch. Raises ProgramError if the contents are invalid (a damaged file)."""
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
