"""The text form of VTA programs: one line an instruction or micro-op, exact in both directions.

    .insn
    load inp sram_base=0 dram_base=64 y_size=1 x_size=16 x_stride=16 pop:compute push:compute
    alu add uop_bgn=0 uop_end=1 iter_out=1 iter_in=16 dst_factor_in=1 use_imm=1 imm=-3 push:store
    .uop
    dst=0 src=0 wgt=0

A token names the unit at the other end (`prev` or `next` where there is no queue). Numbers are decimal or
0x..; a field left out is 0; `reserved=0x..` holds, in place, the bits that the format does not use. `#`
starts a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from tilewright.errors import ProgramError
from tilewright.program.instruction import Layout, Raw
from tilewright.targets.vta.isa.fields import COMMON, FORMAT_OF, UOP_BYTES, AluOp, Memory, Opcode
from tilewright.targets.vta.isa.pipeline import POP_BITS, PUSH_BITS, Pipeline
from tilewright.targets.vta.isa.stream import Stream, decode, decode_uops, encode

if TYPE_CHECKING:
    from tilewright.targets.vta.config import Config


class Naming(NamedTuple):
    """A field whose value is written as a name; a value without one is `prefix` and the number."""

    field: str
    names: type[IntEnum]
    prefix: str

    def show(self, value: int) -> str:
        return self.names(value).name.lower() if value < len(self.names) else f"{self.prefix}{value}"

    def read(self, text: str) -> int | None:
        """The value of a name, or None; every such field has 3 bits."""
        if text.upper() in self.names.__members__:
            return int(self.names[text.upper()])
        numbered = re.fullmatch(f"{self.prefix}([0-7])", text)
        return int(numbered[1]) if numbered else None


MNEMONIC = Naming("opcode", Opcode, "op")
#: What the word after the mnemonic says, by format.
OPERAND = {"mem": Naming("memory_type", Memory, "mem"), "alu": Naming("alu_opcode", AluOp, "op")}
#: Left out when 0, so that the usual instruction is short.
USUALLY_ZERO = {"reset_reg", "use_imm", "imm", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"}


@lru_cache
def _tokens(line: Pipeline) -> tuple[dict[str, str], ...]:
    """By unit, the word for each token bit: {"pop_prev": "pop:load", ..}."""
    found = []
    for unit in range(len(line.units)):
        words = {}
        for bit in (*POP_BITS, *PUSH_BITS):
            verb, side = bit.split("_")
            other = line.neighbour(unit, bit)
            words[bit] = f"{verb}:{side if other is None else line.units[other]}"
        found.append(words)
    return tuple(found)


def disassemble(insns: Raw, uops: Raw, config: Config, numbered: bool = False) -> str:
    """The text of a program: `insns` uint8 [n, 16], `uops` uint8 [m, 4]; `numbered` adds each line's index.

    Every bit pattern has a text: opcodes and ids that do not exist are written `op5`, `mem6`.
    """
    stream, micro = decode(insns, config, strict=False), decode_uops(uops, config)
    code = list(_instructions(stream, config))
    indices = {"dst": micro.dst.tolist(), "src": micro.src.tolist(), "wgt": micro.wgt.tolist()}
    reserved = _integers(micro.reserved)
    tables = [
        " ".join([*(f"{name}={column[row]}" for name, column in indices.items()), *_hex(reserved[row])])
        for row in range(len(micro))
    ]
    if numbered:
        code = [f"{line}  # {i}" for i, line in enumerate(code)]
        tables = [f"{line}  # {i}" for i, line in enumerate(tables)]
    return "\n".join([".insn", *code, ".uop", *tables]) + "\n"


def assemble(text: str, config: Config, first: int = 1) -> tuple[Raw, Raw]:
    """The code of a text: instructions uint8 [n, 16] and micro-ops uint8 [m, 4]; `first` numbers its first line.

    Raises ProgramError with the line, the column and what was expected there.
    """
    section = ".insn"
    records: dict[str, list[dict[str, int]]] = {".insn": [], ".uop": []}
    for number, line in enumerate(text.split("\n"), first):
        words = [Word(m[0], number, m.start() + 1) for m in re.finditer(r"\S+", line.partition("#")[0])]
        if not words:
            continue
        if words[0].text in records:
            section = words[0].text
            if len(words) > 1:
                words[1].refuse("the end of the line")
        elif section == ".uop":
            records[section].append(_fields(words, config.formats.uop, {}, {}))
        else:
            records[section].append(_instruction(words, config))
    rows = records[".uop"]
    layout = config.formats.uop
    uops = layout.encode({name: np.array([r.get(name, 0) for r in rows], np.int64) for name in layout.by_name})
    extra = b"".join(r.get("reserved", 0).to_bytes(UOP_BYTES, "little") for r in rows)
    return encode(records[".insn"], config), uops | np.frombuffer(extra, np.uint8).reshape(-1, UOP_BYTES)


def _instructions(stream: Stream, config: Config) -> Iterator[str]:
    layouts = config.formats.by_name
    hidden = {f.name for f in COMMON} | {naming.field for naming in OPERAND.values()}
    columns = {
        form: {name: getattr(getattr(stream, form), name).tolist() for name in layout.by_name if name not in hidden}
        for form, layout in layouts.items()
        if form != "plain"
    }
    operands = {form: getattr(getattr(stream, form), naming.field).tolist() for form, naming in OPERAND.items()}
    bits = {name: getattr(stream, name).tolist() for name in (*POP_BITS, *PUSH_BITS)}
    tokens = _tokens(config.pipeline)
    units, reserved = config.pipeline.units_of(stream).tolist(), _integers(stream.reserved)
    for row, opcode in enumerate(stream.opcode.tolist()):
        form = FORMAT_OF.get(opcode, "plain")
        words = [MNEMONIC.show(opcode)]
        if form in OPERAND:
            words.append(OPERAND[form].show(operands[form][row]))
        for name, column in columns.get(form, {}).items():
            if column[row] or name not in USUALLY_ZERO:
                words.append(f"{name}={column[row]}")
        words += [token for name, token in tokens[units[row]].items() if bits[name][row]]
        yield " ".join(words + _hex(reserved[row]))


class Word(NamedTuple):
    """A word of the text and where it starts, both counted from 1."""

    text: str
    line: int
    column: int

    def refuse(self, expected: str, skip: int = 0) -> NoReturn:
        """Raise ProgramError for what stands `skip` characters into the word."""
        where = f"line {self.line}, column {self.column + skip}"
        raise ProgramError(where, f"found '{self.text[skip:]}'", f"expected {expected}")


def _instruction(words: Sequence[Word], config: Config) -> dict[str, int]:
    """One line as a record for `encode`."""
    opcode = _named(words, 0, MNEMONIC)
    form = FORMAT_OF.get(opcode, "plain")
    record = {"opcode": opcode}
    if form in OPERAND:
        record[OPERAND[form].field] = _named(words, 1, OPERAND[form])
    unit = int(config.pipeline.takes[opcode, record.get("memory_type", 0)])
    tokens = {token: name for name, token in _tokens(config.pipeline)[unit].items()}
    return _fields(words[len(record) :], config.formats.by_name[form], record, tokens)


def _named(words: Sequence[Word], index: int, naming: Naming) -> int:
    names = "one of " + ", ".join(member.name.lower() for member in naming.names)
    if index >= len(words):
        last = words[-1]
        last.refuse(f"{names} after it")
    value = naming.read(words[index].text)
    if value is None:
        words[index].refuse(names if naming is not MNEMONIC else f"{names}, or .insn, .uop")
    return value


def _fields(
    words: Sequence[Word], layout: Layout, given: Mapping[str, int], tokens: Mapping[str, str]
) -> dict[str, int]:
    """`given` and what the words say: `field=value`, and tokens by their bit's name."""
    record = dict(given)
    fixed = {f.name for f in COMMON} | set(given)
    names = [name for name in layout.by_name if name not in fixed]
    for word in words:
        key, mark, number = word.text.partition("=")
        if word.text in tokens:
            key, value = tokens[word.text], 1
        elif not mark or key not in (*names, "reserved"):
            word.refuse(f"{', '.join([*tokens, *(f'{name}=' for name in names)])} or reserved=")
        else:
            value = _value(word, len(key) + 1, number, layout, key)
        if key in record:
            word.refuse(f"{key} only once")
        record[key] = value
    return record


def _value(word: Word, skip: int, number: str, layout: Layout, key: str) -> int:
    try:
        value = int(number, 0)
    except ValueError:
        word.refuse("a number, decimal or 0x..", skip)
    if key == "reserved":
        unused = ~int.from_bytes(layout.used.tobytes(), "little") & ((1 << layout.bits) - 1)
        if value & ~unused:
            word.refuse(f"bits within {unused:#x}, which the {layout.name} does not use", skip)
    elif not (field := layout.by_name[key]).low <= value <= field.high:
        word.refuse(f"{field.low}..{field.high} ({field.width} bits)", skip)
    return value


def _integers(reserved: Raw) -> list[int]:
    """Each row as one little-endian integer."""
    if not reserved.any():
        return [0] * len(reserved)
    return [int.from_bytes(row.tobytes(), "little") for row in reserved]


def _hex(reserved: int) -> list[str]:
    return [f"reserved={reserved:#x}"] if reserved else []
