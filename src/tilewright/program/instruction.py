"""Instruction formats for all ISAs: bit fields, the packing of fields into words, and the text of instructions.

A `Layout` places fields in little-endian words from the lowest bit up. As in C, a field that does not fit in the rest
of a word begins in the next word. Each call encodes or decodes a whole instruction stream.

The text of an instruction is one line, which contains all its information:

    load inp sram_base=0 y_size=1 x_size=16 pop:compute reserved=0x1

A line has a mnemonic, *plain* words (values with names, without the name of the field), operands `field=value`, and
flags (a word for each one-bit field that is set). Numbers are decimal or 0x..; a missing field is 0. `reserved` has the
bits that no field covers, at their positions in the instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.array import Array
from tilewright.errors import ConfigError, ProgramError
from tilewright.program.words import Word, integer, pairs

#: A column of values: one value for each instruction, int64 [n].
Column = npt.NDArray[np.int64]
#: Encoded instructions, one per row, uint8 [n, nbytes], little-endian.
Raw = npt.NDArray[np.uint8]

WORD_BITS = (8, 16, 32, 64)
#: In {field: value} of an instruction, the key of the bits that no field covers.
RESERVED = "reserved"


@dataclass(frozen=True)
class Field:
    """A field of `width` bits, two's complement if `signed`. `doc` describes it in C headers and tables."""

    name: str
    width: int
    signed: bool = False
    doc: str = ""

    @property
    def low(self) -> int:
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << (self.width - self.signed)) - 1


@dataclass(frozen=True)
class Layout:
    """Fields in words of `word_bits` bits, from the lowest bit up. No field crosses a word boundary.

    An instruction has `words` words (0: as few as possible). Bits that no field covers are *reserved*: `decode` ignores
    reserved bits, `encode` clears them, and `reserved` returns them. Raises ConfigError if the fields need more than
    `words` words, and ValueError if the description itself is wrong.
    """

    name: str
    fields: tuple[Field, ...]
    word_bits: int = 64
    words: int = 0

    def __post_init__(self) -> None:
        if self.word_bits not in WORD_BITS:
            raise ValueError(f"{self.name}: word_bits is {self.word_bits}, not one of {WORD_BITS}")
        if len({f.name for f in self.fields}) != len(self.fields):
            raise ValueError(f"{self.name}: two fields have the same name")
        for f in self.fields:
            # Columns are int64, which cannot hold an unsigned field of 64 bits.
            if not 1 <= f.width <= min(self.word_bits, 63 + f.signed):
                raise ValueError(f"{self.name}: field {f.name} of {f.width} bits in words of {self.word_bits}")
        if self.words and self._needed > self.words:
            raise ConfigError(
                self.name,
                f"its fields need {self._needed} words of {self.word_bits} bits (no field straddles a word),"
                f" not {self.words}",
                "use smaller memories or fewer index bits",
            )

    @cached_property
    def offsets(self) -> dict[str, int]:
        """{field: position of its lowest bit, counted from bit 0 of the instruction}."""
        offsets: dict[str, int] = {}
        bit = 0
        for f in self.fields:
            if bit % self.word_bits + f.width > self.word_bits:
                bit += -bit % self.word_bits
            offsets[f.name] = bit
            bit += f.width
        return offsets

    @cached_property
    def _needed(self) -> int:
        end = max((self.offsets[f.name] + f.width for f in self.fields), default=0)
        return -(-end // self.word_bits)

    @property
    def bits(self) -> int:
        """The size of an instruction in bits, a whole number of words."""
        return (self.words or self._needed) * self.word_bits

    @property
    def nbytes(self) -> int:
        return self.bits // 8

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {f.name: f for f in self.fields}

    @cached_property
    def unused(self) -> int:
        """A mask of the bits that no field covers."""
        used = sum(((1 << f.width) - 1) << self.offsets[f.name] for f in self.fields)
        return ~used & ((1 << self.bits) - 1)

    def reserved(self, raw: Raw) -> Raw:
        """Return the reserved bits of `raw`, uint8 [n, nbytes]; the bits of fields are 0."""
        return self._checked(raw) & np.frombuffer(self.unused.to_bytes(self.nbytes, "little"), np.uint8)

    def decode(self, raw: Raw) -> dict[str, Column]:
        """Return {field: values, int64 [n]} of the instructions `raw`, uint8 [n, nbytes]."""
        return dict(zip(self.by_name, self.values(raw), strict=True))

    def values(self, raw: Raw) -> Array:
        """Return all field values of the instructions `raw`, uint8 [n, nbytes], as one array, int64 [fields, n]."""
        words = np.ascontiguousarray(self._checked(raw)).view(f"<u{self.word_bits // 8}").T.astype(np.uint64)
        index, shift, mask, sign = self._places
        values = words[index]
        values >>= shift
        columns = values.view(np.int64)
        columns &= mask
        if sign.any():  # (value ^ sign) - sign extends the sign of two's complement
            columns ^= sign
            columns -= sign
        return columns

    @cached_property
    def _places(self) -> tuple[Array, Array, Array, Array]:
        """For each of f fields: its word [f]; its shift in the word, its mask and its sign bit (or 0), all [f, 1]."""
        index, shift = (
            np.array([divmod(bit, self.word_bits) for bit in self.offsets.values()], np.int64).reshape(-1, 2).T
        )
        mask = [(1 << f.width) - 1 for f in self.fields]
        sign = [f.signed << (f.width - 1) for f in self.fields]
        masks = np.array([mask, sign], np.uint64).view(np.int64)
        return index, shift.astype(np.uint64)[:, None], masks[0, :, None], masks[1, :, None]

    def encode(self, columns: Mapping[str, Array | Sequence[int]], rows: Array | None = None) -> Raw:
        """Encode one column of n integers per field to instructions, uint8 [n, nbytes]. Reserved bits are 0.

        `rows` has the instruction numbers for error messages (default: 0..n-1). Raises ProgramError if a column is
        missing, unknown or of a different length, or if a value does not fit its field.
        """
        if set(columns) != set(self.by_name):
            odd = ", ".join(sorted(set(columns) ^ set(self.by_name)))
            reason = f"columns are missing or unknown: {odd}"
            raise ProgramError(self.name, reason, f"give {', '.join(self.by_name)}")
        arrays = {name: _array(column) for name, column in columns.items()}
        count = max((a.size for a in arrays.values()), default=0)
        values = self._fitting(arrays, count, rows)
        index, shift, mask, _ = self._places
        # The mask keeps the low bits of a negative value, in two's complement.
        fields = (values & mask).view(np.uint64) << shift
        words = np.zeros((self.bits // self.word_bits, count), np.uint64)
        for word in range(len(words)):  # fields do not overlap, so a word is the OR of its shifted fields
            words[word] = np.bitwise_or.reduce(fields[index == word], axis=0)
        packed = np.ascontiguousarray(words.T.astype(f"<u{self.word_bits // 8}"))
        return packed.view(np.uint8).reshape(count, self.nbytes)

    def encode_rows(self, rows: Sequence[Mapping[str, int]], numbers: Array | None = None) -> Raw:
        """Encode instructions {field: value}. A missing field is 0. The key `reserved` has the reserved bits.

        `numbers` has the instruction numbers for error messages. Raises ProgramError if a field is unknown, if a value
        does not fit its field, or if reserved bits overlap a field.
        """
        for index, row in enumerate(rows):
            where = f"{self.name} {index if numbers is None else numbers[index]}"
            for name in row.keys() - self.by_name.keys() - {RESERVED}:
                raise ProgramError(where, f"there is no field {name}", f"the fields are {', '.join(self.by_name)}")
            if row.get(RESERVED, 0) & ~self.unused:
                raise ProgramError(where, "reserved bits overlap fields of the format", "set the fields instead")
        packed = self.encode({name: [row.get(name, 0) for row in rows] for name in self.by_name}, numbers)
        others = b"".join(row.get(RESERVED, 0).to_bytes(self.nbytes, "little") for row in rows)
        return packed | np.frombuffer(others, np.uint8).reshape(packed.shape)

    def _fitting(self, columns: Mapping[str, Array], count: int, rows: Array | None) -> Array:
        """Check the columns and return the values of all fields, int64 [fields, count].

        Raises ProgramError if a column has a wrong shape, or if a value does not fit its field. See `encode` for
        `rows`.
        """
        for name, column in columns.items():
            if column.shape != (count,) or (count and column.dtype.kind not in "biuO"):
                shape = f"{column.dtype} {list(column.shape)}"
                raise ProgramError(self.name, f"column {name} is {shape}", f"give {count} integers in one dimension")
        # Integers that exceed int64 are compared as Python objects, so that the message shows the true value.
        exact = all(np.can_cast(column.dtype, np.int64) for column in columns.values())
        kind = np.int64 if exact or not count else object
        values = np.array([columns[f.name] for f in self.fields], kind).reshape(len(self.fields), count)
        low, high = self._ranges
        bad = (values < low) | (values > high)
        if bad.any():
            field, row = np.argwhere(bad)[0]
            f = self.fields[field]
            number = row if rows is None else rows[row]
            reason = f"{f.name} is {values[field, row]}, outside {f.low}..{f.high} ({f.width} bits)"
            raise ProgramError(f"{self.name} {number}", reason)
        return values.astype(np.int64)

    @cached_property
    def _ranges(self) -> tuple[Array, Array]:
        low, high = np.array([(f.low, f.high) for f in self.fields], np.int64).reshape(-1, 2).T
        return low[:, None], high[:, None]

    def _checked(self, raw: Raw) -> Raw:
        if raw.dtype != np.uint8 or raw.ndim != 2 or raw.shape[1] != self.nbytes:
            kind = f"{raw.dtype} {list(raw.shape)}"
            raise ProgramError(self.name, f"the code is {kind}", f"give uint8 [n, {self.nbytes}]")
        return raw


def _array(column: Array | Sequence[int]) -> Array:
    """Convert `column` to an array of exact integers. For 2**63 and -1, NumPy would choose floats."""
    array = np.asarray(column)
    if array.dtype.kind == "f" and all(isinstance(value, int) for value in column):
        return np.array(column, object)
    return array


def rows(columns: Mapping[str, Column]) -> list[dict[str, int]]:
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]


@dataclass(frozen=True)
class Names:
    """Names of the values 0, 1, ... of a field. A value without a name is written as `prefix` and its number."""

    names: tuple[str, ...]
    prefix: str = ""

    @classmethod
    def of(cls, codes: type[IntEnum], prefix: str = "") -> Names:
        """Return the names of an enumeration with the values 0, 1, ..., in lower case."""
        return cls(tuple(code.name.lower() for code in codes), prefix)

    def show(self, value: int) -> str:
        return self.names[value] if value < len(self.names) else f"{self.prefix}{value}"

    def read(self, word: Word, high: int) -> int:
        """Return the value of a word, at most `high`. Raises ProgramError for any other word."""
        if word.text in self.names:
            return self.names.index(word.text)
        number = word.text.removeprefix(self.prefix)
        if not self.prefix or number == word.text or not number.isdecimal() or int(number) > high:
            word.refuse(self.expected)
        return int(number)

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.names)}"


@dataclass(frozen=True)
class Form:
    """The text form of an instruction's fields. Fields in `plain` are words, and operands are `field=value`.

    Operands in `optional` are omitted if they are 0. If the operands include `reserved`, reserved bits that are not 0
    are written at the end.
    """

    layout: Layout
    operands: tuple[str, ...]
    plain: tuple[str, ...] = ()
    optional: Collection[str] = ()
    names: Mapping[str, Names] = field(default_factory=dict)

    def show(self, values: Mapping[str, int], flags: Mapping[str, str] | None = None) -> str:
        """Return the text after the mnemonic of an instruction. `flags` maps fields to words."""
        words = [self._shown(name, values[name]) for name in self.plain]
        for name in self.operands:
            if name != RESERVED and (values[name] or name not in self.optional):
                words.append(f"{name}={self._shown(name, values[name])}")
        words += [word for name, word in (flags or {}).items() if values[name]]
        if values.get(RESERVED):
            words.append(f"{RESERVED}={values[RESERVED]:#x}")
        return " ".join(words)

    def read_plain(self, words: Sequence[Word]) -> dict[str, int]:
        """Read the plain words after the mnemonic as {field: value}. Raises ProgramError for a wrong word."""
        values = {}
        for index, name in enumerate(self.plain, 1):
            if index >= len(words):
                words[-1].refuse(f"{self.names[name].expected} after it")
            values[name] = self._value(name, words[index])
        return values

    def read(self, words: Sequence[Word], flags: Mapping[str, str] | None = None) -> dict[str, int]:
        """Read operands and flags as {field: value}. Raises ProgramError for a wrong word."""
        fields = {word: name for name, word in (flags or {}).items()}
        words_by_key = pairs(words, self.operands, tuple(fields))
        return {fields.get(key, key): self._read(key, word, fields) for key, word in words_by_key.items()}

    def _shown(self, name: str, value: int) -> str:
        return self.names[name].show(value) if name in self.names else str(value)

    def _read(self, key: str, word: Word, flags: Collection[str]) -> int:
        if key in flags:
            return 1
        if key != RESERVED:
            return self._value(key, word.value)
        unused = self.layout.unused
        value = integer(word.value, 0, unused, limits := f"bits within {unused:#x}, which no field covers")
        if value & ~unused:
            word.value.refuse(limits)
        return value

    def _value(self, name: str, word: Word) -> int:
        field = self.layout.by_name[name]
        if name in self.names:
            return self.names[name].read(word, field.high)
        return integer(word, field.low, field.high, f"{field.low}..{field.high} ({field.width} bits)")


@dataclass(frozen=True)
class Notation:
    """The text form of a machine's instructions.

    `opcode` is the field of the mnemonic. `forms` has a form for each opcode. `flags` gets the values of the opcode and
    of the plain fields, and returns {flag field: word}.
    """

    opcode: str
    mnemonics: Names
    forms: Mapping[int, Form]
    flags: Callable[[Mapping[str, int]], Mapping[str, str]]

    def show(self, values: Mapping[str, int]) -> str:
        code = values[self.opcode]
        return f"{self.mnemonics.show(code)} {self.forms[code].show(values, self.flags(values))}".rstrip()

    def read(self, words: Sequence[Word]) -> dict[str, int]:
        """Read a line as {field: value}. Raises ProgramError for a wrong word."""
        code = self.mnemonics.read(words[0], max(self.forms))
        form = self.forms[code]
        values = {self.opcode: code, **form.read_plain(words)}
        return values | form.read(words[len(values) :], self.flags(values))


@dataclass(frozen=True)
class InstructionSet:
    """Instructions with one layout. `operands` lists the fields of each opcode; other fields must be 0.

    `flags` lists one-bit fields that every opcode has; their words are the names of the fields. `names` has names for
    the values of some fields.
    """

    layout: Layout
    opcode: str
    codes: type[IntEnum]
    operands: Mapping[Any, tuple[str, ...]]
    flags: tuple[str, ...] = ()
    names: Mapping[str, Names] = field(default_factory=dict)

    @cached_property
    def notation(self) -> Notation:
        forms = {int(code): Form(self.layout, self.operands[code], names=self.names) for code in self.codes}
        flags = {name: name for name in self.flags}
        return Notation(self.opcode, Names.of(self.codes), forms, lambda _: flags)

    def decode(self, raw: Raw) -> dict[str, Column]:
        """Return {field: values, int64 [n]}. Raises ProgramError if an opcode is unknown, or if an unused bit is 1."""
        columns = self.layout.decode(raw)
        odd = self.layout.reserved(raw).any(axis=1) | (columns[self.opcode] >= len(self.codes))
        for name, names in self.names.items():
            odd |= columns[name] >= len(names.names)
        for code, used in self.operands.items():
            others = [columns[name] for name in self._unused(used)]
            odd |= (columns[self.opcode] == code) & np.any(others, axis=0)
        for row in np.flatnonzero(odd)[:1].tolist():
            reason = f"{raw[row].tobytes().hex()} is not a legal instruction"
            code = int(columns[self.opcode][row])
            if fields := [name for name in self._unused(self.operands.get(code, ())) if columns[name][row]]:
                reason += f" ({self.notation.mnemonics.show(code)} has no {', '.join(fields)})"
            raise ProgramError(f"{self.layout.name} {row}", reason)
        return columns

    def _unused(self, used: Collection[str]) -> list[str]:
        return [name for name in self.layout.by_name if name not in (self.opcode, *self.flags, *used)]


def by_code(codes: Column, values: Mapping[Any, Column | int]) -> Column:
    """Return the value for the opcode of each instruction, int64 [n]. Raises KeyError if an opcode has no value."""
    column = np.zeros(len(codes), np.int64)
    for code in np.unique(codes).tolist():
        column = np.where(codes == code, values[code], column)
    return column
