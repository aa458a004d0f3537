"""The text of instructions, from the layouts of their fields: one line an instruction, exact in both directions.

    load inp sram_base=0 y_size=1 x_size=16 pop:compute reserved=0x1

A line has a mnemonic, then *plain* words (fields whose values have names), operands `field=value`, and flags: words
for fields of one bit that are set. Numbers are decimal or 0x..; a field that is left out is 0. `reserved` are the bits
that no field of the layout covers, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from tilewright.errors import ProgramError
from tilewright.program.instruction import RESERVED, Column, Layout, Raw
from tilewright.program.words import Word, integer, pairs


@dataclass(frozen=True)
class Names:
    """Names of a field's values, from 0 on. A value without a name is `prefix` and the number, where there is one."""

    names: tuple[str, ...]
    prefix: str = ""

    @classmethod
    def of(cls, codes: type[IntEnum], prefix: str = "") -> Names:
        """The members of an enumeration that counts from 0, in lower case."""
        return cls(tuple(code.name.lower() for code in codes), prefix)

    def show(self, value: int) -> str:
        return self.names[value] if value < len(self.names) else f"{self.prefix}{value}"

    def read(self, word: Word, high: int) -> int:
        """The value that a word names, at most `high`."""
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
    """How the fields of a layout are written. Operands in `optional` are left out where they are 0.

    `reserved` among the operands: the machine keeps these bits. They are written last, where they are not 0.
    """

    layout: Layout
    operands: tuple[str, ...]
    plain: tuple[str, ...] = ()
    optional: Collection[str] = ()
    names: Mapping[str, Names] = field(default_factory=dict)

    def show(self, values: Mapping[str, int], flags: Mapping[str, str] | None = None) -> str:
        """The words of an instruction behind its mnemonic; `flags`: the word of each."""
        words = [self._shown(name, values[name]) for name in self.plain]
        for name in self.operands:
            if name != RESERVED and (values[name] or name not in self.optional):
                words.append(f"{name}={self._shown(name, values[name])}")
        words += [word for name, word in (flags or {}).items() if values[name]]
        if values.get(RESERVED):
            words.append(f"{RESERVED}={values[RESERVED]:#x}")
        return " ".join(words)

    def read_plain(self, words: Sequence[Word]) -> dict[str, int]:
        """The fields that plain words give. `words` begins with the mnemonic."""
        found = {}
        for index, name in enumerate(self.plain, 1):
            if index >= len(words):
                words[-1].refuse(f"{self.names[name].expected} after it")
            found[name] = self._value(name, words[index])
        return found

    def read(self, words: Sequence[Word], flags: Mapping[str, str] | None = None) -> dict[str, int]:
        """The fields that operands and flags give."""
        fields = {word: name for name, word in (flags or {}).items()}
        given = pairs(words, self.operands, tuple(fields))
        return {fields.get(key, key): self._read(key, word, fields) for key, word in given.items()}

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
        known = self.layout.by_name[name]
        if name in self.names:
            return self.names[name].read(word, known.high)
        return integer(word, known.low, known.high, f"{known.low}..{known.high} ({known.width} bits)")


@dataclass(frozen=True)
class Notation:
    """The lines of a machine's instructions. `opcode` is the field of the mnemonic, `forms` has each of its values.

    `flags` gives the fields that are written as flags and their words, from the opcode and the plain fields.
    """

    opcode: str
    mnemonics: Names
    forms: Mapping[int, Form]
    flags: Callable[[Mapping[str, int]], Mapping[str, str]]

    def show(self, values: Mapping[str, int]) -> str:
        """The line of an instruction."""
        code = values[self.opcode]
        return f"{self.mnemonics.show(code)} {self.forms[code].show(values, self.flags(values))}".rstrip()

    def read(self, words: Sequence[Word]) -> dict[str, int]:
        """The fields of a line. Raises ProgramError with the word that is wrong and what was expected there."""
        code = self.mnemonics.read(words[0], max(self.forms))
        form = self.forms[code]
        found = {self.opcode: code, **form.read_plain(words)}
        return found | form.read(words[len(found) :], self.flags(found))


@dataclass(frozen=True)
class InstructionSet:
    """Instructions of one layout. `operands` are the fields of each opcode; the others are 0 in it.

    `flags` are fields of every opcode, written as their own names; `names` those whose values have names.
    """

    layout: Layout
    opcode: str
    codes: type[IntEnum]
    operands: Mapping[Any, tuple[str, ...]]
    flags: tuple[str, ...] = ()
    names: Mapping[str, Names] = field(default_factory=dict)

    @cached_property
    def notation(self) -> Notation:
        """How they are written."""
        forms = {int(code): Form(self.layout, self.operands[code], names=self.names) for code in self.codes}
        flags = {name: name for name in self.flags}
        return Notation(self.opcode, Names.of(self.codes), forms, lambda _: flags)

    def decode(self, raw: Raw) -> dict[str, Column]:
        """The fields as int64 [n]. Raises ProgramError for a code, a field or a bit that does not exist."""
        columns = self.layout.decode(raw)
        odd = self.layout.reserved(raw).any(axis=1) | (columns[self.opcode] >= len(self.codes))
        for name, names in self.names.items():
            odd |= columns[name] >= len(names.names)
        for code, used in self.operands.items():
            others = [columns[name] for name in self._unused(used)]
            odd |= (columns[self.opcode] == code) & np.any(others, axis=0)
        for row in np.flatnonzero(odd)[:1].tolist():
            reason = f"{raw[row].tobytes().hex()} is not legal"
            code = int(columns[self.opcode][row])
            if fields := [name for name in self._unused(self.operands.get(code, ())) if columns[name][row]]:
                reason += f" ({self.notation.mnemonics.show(code)} has no {', '.join(fields)})"
            raise ProgramError(f"{self.layout.name} {row}", reason)
        return columns

    def _unused(self, used: Collection[str]) -> list[str]:
        return [name for name in self.layout.by_name if name not in (self.opcode, *self.flags, *used)]
