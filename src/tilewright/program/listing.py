"""The text form of launches, with one reader and one writer for all targets. No information is lost.

    .launch conv
    .segment wgt address=0x1000 size=0x100 kind=const
    0102030405060708
    zero 248
    .code
    finish

A line is a directive (with a dot in front), bytes, or code. Some directives are followed by bytes, in two hex digits or
as `zero N`. Some directives are followed by lines of code. The code ends at the next directive of this kind; directives
without code may come between the lines of code. A target describes its directives in a `Grammar`, and converts between
`Section`s and its launches.

Launch images have the same directives in all targets, for base registers and DRAM segments:

    .base inp=0x1000 out=0x2000
    .segment wgt address=0x1000 size=0x100 kind=const

The bytes of a const or inout segment follow its directive. Missing bytes at the end are zero. Without `size`, the size
is the number of bytes in the text. Base registers without a value are 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from tilewright.program import words as text_words
from tilewright.program.instruction import InstructionSet, Raw, rows
from tilewright.program.launch_image import CARRIED, KINDS, MAX_ADDRESS, DramSegment, LaunchImage
from tilewright.program.program import Launch
from tilewright.program.words import NAME, Word, WordType, choice, integer, number, pairs

#: The largest total size of all sections of a text (512 MiB). Declared sizes count, even if their bytes are missing.
MAX_BYTES = 1 << 29
_BYTES = re.compile("([0-9a-fA-F]{2})+")
_DATA = re.compile(f"zero|{_BYTES.pattern}")
Code = Callable[[Sequence[Word]], Any]
ADDRESS = number("#x", high=MAX_ADDRESS - 1)


@dataclass(frozen=True)
class Directive:
    """The syntax of a directive: positional `values`, then `named` values (`name=value`) in any order.

    `required` lists the named values that must be present. `more` is the type of additional positional values, which
    are returned as the list `more`. If `unique`, the first value must be different in all such lines of a launch. If
    bytes follow the directive, `data` returns the number of these bytes for given values of the line; None allows any
    number. If the directive is followed by code, `code` reads one line of code. A value named `size` is a number of
    bytes.
    """

    values: Mapping[str, WordType] = field(default_factory=dict)
    named: Mapping[str, WordType] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    more: WordType | None = None
    unique: bool = False
    data: Callable[[Mapping[str, Any]], int | None] | None = None
    code: Code | None = None

    def read(self, words: Sequence[Word]) -> tuple[dict[str, Any], dict[str, Word]]:
        """Return the values and the words by name; "" names the last word. Raises ProgramError for a wrong word."""
        where = dict(zip(self.values, words[1:], strict=False))
        if missing := list(self.values)[len(where) :]:
            words[-1].refuse(f"a {missing[0]} after it")
        rest = words[1 + len(where) :]
        where |= {key: word.value for key, word in pairs(rest, self.named).items()} if self.named else {}
        for key in self.required:
            if key not in where:
                words[-1].refuse(f"{key}= after it")
        types = {**self.values, **self.named}
        values = {key: types[key].read(word) for key, word in where.items()}
        if self.more:
            values["more"] = [self.more.read(word) for word in rest]
        elif not self.named:
            text_words.end(rest)
        return values, {**where, "": words[-1]}

    def show(self, values: Mapping[str, Any]) -> list[str]:
        named = [(name, kind) for name, kind in self.named.items() if name in values]
        return [
            *(kind.show(values[name]) for name, kind in self.values.items()),
            *(f"{name}={kind.show(values[name])}" for name, kind in named),
            *(self.more.show(value) for value in values.get("more", ()) if self.more),
        ]


@dataclass
class Section:
    """A directive with its bytes or code. A section whose `directive` is "" has no line of its own.

    Before writing, `code` has lines of text. After reading, `code` has the results of `Directive.code`.
    """

    directive: str
    values: Mapping[str, Any] = field(default_factory=dict)
    data: bytes | bytearray = b""
    code: list[Any] = field(default_factory=list)
    words: Mapping[str, Word] = field(default_factory=dict)  # after reading: the words of the line (see Directive.read)


@dataclass
class Text:
    """The text of one launch: its name, the other values of `.launch`, and its sections."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)

    def of(self, directive: str) -> list[Section]:
        return [section for section in self.sections if section.directive == directive]

    def data(self, directive: str) -> bytes:
        return b"".join(section.data for section in self.of(directive))

    def code(self, directive: str) -> list[Any]:
        return [line for section in self.of(directive) for line in section.code]


@dataclass(frozen=True)
class Grammar:
    """The text form of one target.

    `launch` has the values that follow the name in a `.launch` line. If code follows this line directly, it belongs to
    the directive `opening`. If `unnamed` is not empty, a text may have no `.launch`, and `unnamed` is the name of its
    launch. `row` is the number of bytes in a line of data. If `zeros`, lines of zeros are written as `zero N`.
    """

    directives: Mapping[str, Directive]
    launch: Mapping[str, WordType] = field(default_factory=dict)
    name: WordType = NAME
    opening: str = ""
    unnamed: str = ""
    row: int = 32
    zeros: bool = True

    def write(self, text: Text) -> str:
        return "".join(f"{line}\n" for line in self._lines(text))

    def read(self, text: str) -> list[Text]:
        """Read the launches of a text. Raises ProgramError, with line and column, for a wrong word."""
        reader = _Reader(self)
        for row, line in enumerate(text.split("\n"), 1):
            if words := text_words.split(line, row):
                reader.line(words)
        return reader.texts

    def _lines(self, text: Text) -> Iterator[str]:
        yield " ".join([".launch", self.name.show(text.name), *Directive(self.launch).show(text.values)])
        for section in text.sections:
            if section.directive:
                yield " ".join([section.directive, *self.directives[section.directive].show(section.values)])
            yield from self._rows(bytes(section.data))
            yield from section.code

    def _rows(self, data: bytes) -> Iterator[str]:
        rows = (data[start : start + self.row] for start in range(0, len(data), self.row))
        for zero, run in groupby(rows, lambda row: self.zeros and not any(row)):
            if zero:
                yield f"zero {sum(map(len, run))}"
            else:
                yield from (row.hex() for row in run)


class _Reader:
    """Reads a text line by line. After all bytes of `_data`, lines without a directive are code."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._directives = {".launch": Directive({"name": NAME, **grammar.launch}), **grammar.directives}
        self._room = MAX_BYTES  # the number of bytes that the next sections may have
        self._started = False  # whether a line has been read
        self._names = {(".launch", grammar.unnamed, 0)}  # used names: (directive, name, number of the launch)
        self.texts: list[Text] = []
        if grammar.unnamed:
            self._launch(grammar.unnamed, {})

    def line(self, words: Sequence[Word]) -> None:
        first = words[0]
        if first.text == ".launch":
            self._named(words)
        elif not self.texts:
            first.refuse(".launch before everything else")
        elif first.text in self._directives:
            self._directive(self._directives[first.text], words)
        # While bytes are missing, read every line as bytes, so that the message about a wrong line asks for bytes.
        # Later lines are code. If a later line can only be bytes, `_bytes` raises an error about too many bytes.
        elif self._data and (self._left or _DATA.fullmatch(first.text)):
            self._bytes(self._data, words)
        elif self._code and not first.text.startswith("."):
            section, read = self._code
            section.code.append(read(words))
        else:
            first.refuse(f"one of {', '.join(self._directives)}")
        self._started = True

    def _named(self, words: Sequence[Word]) -> None:
        if not self._started:  # the text begins with `.launch`, so remove the launch `unnamed`
            self.texts.clear()
            self._names.clear()
        values, where = self._directives[".launch"].read(words)
        name = values.pop("name")
        self._reserve(where["name"], ".launch", name)
        self._launch(name, values)

    def _reserve(self, word: Word, directive: str, name: Any) -> None:
        """Reserve a name, which must be new in its launch (the name of a launch must be new in the text)."""
        key = directive, name, 0 if directive == ".launch" else len(self.texts)
        if key in self._names:
            word.refuse("a name that is not taken")
        self._names.add(key)

    def _launch(self, name: str, values: Mapping[str, Any]) -> None:
        self.texts.append(Text(name, values))
        self._data: Section | None = None
        self._left = 0  # the number of bytes that may follow for `_data`
        self._code: tuple[Section, Code] | None = None
        if self._grammar.opening:
            self._open(Section(self._grammar.opening), self._directives[self._grammar.opening])

    def _directive(self, syntax: Directive, words: Sequence[Word]) -> None:
        values, where = syntax.read(words)
        if syntax.unique:
            name = next(iter(values))
            self._reserve(where[name], words[0].text, values[name])
        if values.get("size", 0) > self._room:
            where["size"].refuse(f"0..{self._room:#x}")
        self._open(Section(words[0].text, values, bytearray(), words=where), syntax)

    def _open(self, section: Section, syntax: Directive) -> None:
        self.texts[-1].sections.append(section)
        self._data = section if syntax.data else None
        size = syntax.data(section.values) if syntax.data else 0
        self._left = self._room if size is None else min(size, self._room)
        # A declared size counts at once, because the segment has this size even if fewer bytes follow.
        self._room -= section.values.get("size", 0)
        if syntax.code:
            self._code = section, syntax.code

    def _bytes(self, section: Section, words: Sequence[Word]) -> None:
        if words[0].text == "zero":
            if len(words) == 1:
                words[0].refuse("a number of bytes after it")
            text_words.end(words[2:])
            data = bytes(integer(words[1], 0, self._left))
        else:
            for word in words:
                if not _BYTES.fullmatch(word.text):
                    word.refuse("bytes of two hex digits, zero N, or a directive")
            data = bytes.fromhex("".join(word.text for word in words))
        if len(data) > self._left:
            name = next(iter(section.values.values()), section.directive)
            room = f"at most {self._left} more bytes in '{name}'"
            words[0].refuse(room if self._left or section.data else f"a directive: '{name}' has no bytes here")
        section.data += data
        self._left -= len(data)
        # A declared size was already counted when the section began.
        if "size" not in section.values:
            self._room -= len(data)


SEGMENT = Directive(
    {"name": NAME},
    {"address": ADDRESS, "size": number("#x"), "kind": choice(KINDS)},
    required=("address", "kind"),
    unique=True,
    data=lambda values: values.get("size") if values["kind"] in CARRIED else 0,
)


def image_directives(bases: Sequence[str] = ()) -> dict[str, Directive]:
    """Return {name: directive} of a launch image: `.segment`, and `.base` if there are base registers."""
    base = {".base": Directive(named=dict.fromkeys(bases, ADDRESS))} if bases else {}
    return {**base, ".segment": SEGMENT}


def image_sections(image: LaunchImage) -> Iterator[Section]:
    """Yield the sections of an image: base registers, unless all are 0, then a section for each segment."""
    if any(image.bases.values()):
        yield Section(".base", image.bases)
    for segment in image.segments:
        data = image.data[segment.name].tobytes() if segment.name in image.data else b""
        yield Section(".segment", vars(segment), data)


def read_image(text: Text, insns: Raw, bases: Sequence[str] = ()) -> LaunchImage:
    """Return the launch image of a text, with the instructions `insns`.

    Raises ProgramError, with line and column, if segments overlap or a size is missing.
    """
    sections = {section.values["name"]: section for section in text.of(".segment")}
    segments = tuple(_segment(section) for section in sections.values())
    for segment, following in pairwise(sorted(segments, key=lambda segment: segment.address)):
        if (end := segment.address + segment.size) > following.address:
            taken = f"'{segment.name}' {segment.address:#x}..{end:#x}"
            sections[following.name].words["address"].refuse(f"an address that is not in {taken}")
    carried = [(segment.name, segment.size) for segment in segments if segment.kind in CARRIED]
    data = {name: np.frombuffer(sections[name].data.ljust(size, b"\0"), np.uint8) for name, size in carried}
    addresses = dict.fromkeys(bases, 0)
    for section in text.of(".base"):
        addresses |= section.values
    return LaunchImage(insns, segments, data, addresses)


def _segment(section: Section) -> DramSegment:
    values = {"size": len(section.data), **section.values}
    if values["kind"] not in CARRIED and "size" not in section.values:
        section.words[""].refuse("size= after it, as it has no bytes here")
    return DramSegment(**values)


@dataclass(frozen=True)
class LaunchText:
    """The text of a target's launches. `describe` converts a launch to text, and `make` converts text to a launch."""

    grammar: Grammar
    describe: Callable[[Launch], Text]
    make: Callable[[Text], Launch]

    def write(self, launches: Iterable[Launch]) -> str:
        """Return launches as text, from which `read` restores them exactly."""
        return "".join(self.grammar.write(self.describe(launch)) for launch in launches)

    def read(self, text: str) -> list[Launch]:
        """Read the launches of a text. Raises ProgramError with the line and column of a mistake."""
        return [self.make(part) for part in self.grammar.read(text)]


def image_text(
    nbytes: int, line: Code, encode: Callable[[Sequence[Any]], Raw], lines: Callable[[Raw], Sequence[str]]
) -> LaunchText:
    """Return the text form of launch images: the DRAM segments, then the code.

    Each instruction has `nbytes` bytes. `line` reads one line of code, `encode` converts the results of `line` to
    instructions, and `lines` converts instructions to text.
    """

    def describe(launch: Launch) -> Text:
        image = LaunchImage.of(launch, nbytes)
        return Text(launch.name, sections=[*image_sections(image), Section(".code", code=[*lines(image.insns)])])

    def make(text: Text) -> Launch:
        return read_image(text, encode(text.code(".code"))).launch(text.name)

    return LaunchText(Grammar({**image_directives(), ".code": Directive(code=line)}), describe, make)


def isa_text(isa: InstructionSet) -> LaunchText:

    def lines(insns: Raw) -> list[str]:
        return [isa.notation.show(row) for row in rows(isa.decode(insns))]

    return image_text(isa.layout.nbytes, isa.notation.read, isa.layout.encode_rows, lines)
