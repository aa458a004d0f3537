"""The language: three instructions of one format, decoded as columns, and their text.

    load  buf=0 dram=640 length=120 push               buf[0:120] = DRAM[640:760]
    dot   buf=0 wgt=120 acc=0 length=120 count=16 clear=1 zero=-128 pop push
    store acc=0 dram=4096 count=16 pop                 DRAM[4096:4160] = acc[0:16], int32

`dot`: acc[acc + j] += sum over k of (buf[buf + k] - zero) * buf[wgt + j * length + k], j < count, k < length;
`clear` sets the accumulators to 0 first. `pop` waits for a token of the other unit before an instruction starts,
`push` gives it one when the instruction has ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from tilewright.errors import ProgramError
from tilewright.program.instruction import Column, Field, Layout, Raw


class Opcode(IntEnum):
    """What an instruction does."""

    LOAD = 0
    DOT = 1
    STORE = 2


class Unit(IntEnum):
    """Who does it, each at its own pace."""

    DMA = 0
    MAC = 1


UNIT = {Opcode.LOAD: Unit.DMA, Opcode.DOT: Unit.MAC, Opcode.STORE: Unit.DMA}

LAYOUT = Layout(
    "instruction",
    (
        Field("opcode", 3, doc="Opcode"),
        Field("pop", 1, doc="wait for a token of the other unit"),
        Field("push", 1, doc="on completion, a token to the other unit"),
        Field("clear", 1, doc="DOT: start from 0 instead of accumulating"),
        Field("zero", 8, signed=True, doc="DOT: zero point of the inputs"),
        Field("buf", 16, doc="LOAD: first byte written; DOT: first input"),
        Field("wgt", 16, doc="DOT: first weight"),
        Field("acc", 16, doc="first accumulator"),
        Field("dram", 32, doc="first byte in DRAM"),
        Field("length", 16, doc="LOAD: bytes; DOT: products an accumulator"),
        Field("count", 16, doc="accumulators"),
    ),
    word_bits=64,
    words=2,
)
#: The fields that each instruction has; the others are 0.
OPERANDS = {
    Opcode.LOAD: ("buf", "dram", "length"),
    Opcode.DOT: ("buf", "wgt", "acc", "length", "count", "clear", "zero"),
    Opcode.STORE: ("acc", "dram", "count"),
}
TOKENS = ("pop", "push")


def encode(rows: Sequence[Mapping[str, int]]) -> Raw:
    """Instructions as code, uint8 [n, 16]; fields left out are 0."""
    return LAYOUT.encode({name: [row.get(name, 0) for row in rows] for name in LAYOUT.by_name})


def decode(insns: Raw) -> dict[str, Column]:
    """The fields as int64 [n]. Raises ProgramError for an opcode, a field or a bit that is not there."""
    columns = LAYOUT.decode(insns)
    odd = LAYOUT.reserved(insns).any(axis=1) | (columns["opcode"] >= len(Opcode))
    for opcode, used in OPERANDS.items():
        unused = [columns[name] for name in LAYOUT.by_name if name not in ("opcode", *TOKENS, *used)]
        odd |= (columns["opcode"] == opcode) & np.any(unused, axis=0)
    if odd.any():
        row = int(np.argmax(odd))
        raise ProgramError(f"instruction {row}", f"{insns[row].tobytes().hex()} is not an instruction")
    return columns


def show(columns: Mapping[str, Column], row: int) -> str:
    """The text of one instruction."""
    opcode = Opcode(int(columns["opcode"][row]))
    words = [opcode.name.lower(), *(f"{name}={columns[name][row]}" for name in OPERANDS[opcode])]
    return " ".join(words + [token for token in TOKENS if columns[token][row]])


def read(line: str, number: int) -> dict[str, int]:
    """The fields of one line of text; ProgramError says where (line `number`, column) and what was expected."""
    words = [(match[0], match.start() + 1) for match in re.finditer(r"\S+", line)]

    def refuse(index: int, expected: str) -> ProgramError:
        word, column = words[index]
        return ProgramError(f"line {number}, column {column}", f"found '{word}'", f"expected {expected}")

    if words[0][0].upper() not in Opcode.__members__:
        raise refuse(0, ", ".join(opcode.name.lower() for opcode in Opcode))
    opcode = Opcode[words[0][0].upper()]
    row = {"opcode": int(opcode)}
    for index, (word, _) in enumerate(words[1:], 1):
        name, mark, text = word.partition("=")
        if name in row or name not in (OPERANDS[opcode] if mark else TOKENS):
            raise refuse(index, ", ".join([*(f"{field}=" for field in OPERANDS[opcode]), *TOKENS]) + ", each once")
        field = LAYOUT.by_name[name]
        try:
            row[name] = int(text, 0) if mark else 1
        except ValueError:
            raise refuse(index, f"a number after {name}=") from None
        if not field.low <= row[name] <= field.high:
            raise refuse(index, f"{name}={field.low}..{field.high}")
    return row
