"""The text form of VTA launches, exact in both directions: where DRAM's segments are, their bytes, and the code.

    .launch conv
    .base uop=0x0 inp=0x0 wgt=0x0 acc=0x0 out=0x0
    .segment wgt address=0x1000 size=0x100 kind=const
    0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20
    zero 224
    .segment x address=0x2000 size=0x200 kind=input
    .segment uop address=0x3000 kind=const
    .insn
    finish
    .uop
    dst=0 src=0 wgt=0

`.insn` and `.uop` are those of isa/text.py. The micro-ops are the bytes of the const segment `uop`, which is at
address 0 where a launch does not declare it. Bytes of another const or inout segment follow it, in hex; what is
missing at its end is zero, and without `size` it is as long as its bytes. Base registers that are left out are 0. Lines
before the first `.launch` are a launch named `asm`. A name with blanks or other unusual characters is a JSON
string, with # written \\u0023.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Raw
from tilewright.program.program import Launch, Program
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.image import CARRIED, KINDS, Image
from tilewright.targets.vta.isa import text as isa
from tilewright.targets.vta.isa.text import Word

BASES = ("uop", "inp", "wgt", "acc", "out")
#: Bytes of all segments of a text together, and the address range.
MAX_BYTES, MAX_ADDRESS = 1 << 29, (1 << 32) - 1
ROW = 32
OWN = (".launch", ".base", ".segment")
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_PLAIN = re.compile(r"[!$-~]+")  # printable ASCII without " and #


@dataclass
class _Segment:
    """`words`: by key where it is declared, and the `name`; `room`: bytes that may still follow."""

    words: Mapping[str, Word]
    name: str
    address: int
    kind: str
    size: int | None
    room: int
    data: bytearray = field(default_factory=bytearray)

    @property
    def extent(self) -> int:
        return len(self.data) if self.size is None else self.size


@dataclass
class _Part:
    """The lines of one launch; `code` has a line for each of the text's, from line `start` on."""

    name: str
    start: int
    code: list[str] = field(default_factory=list)
    bases: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BASES, 0))
    segments: dict[str, _Segment] = field(default_factory=dict)


def disassemble(program: Program, config: Config) -> str:
    """The text of a program's launches."""
    return "\n".join("\n".join(_lines(launch, config)) for launch in program.launches)


def assemble(text: str, config: Config) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    return tuple(_launch(part, config) for part in _parts(text).values())


def _lines(launch: Launch, config: Config) -> Iterator[str]:
    image = Image.of(launch)
    yield f".launch {_written(launch.name)}"
    if any(image.bases.values()):
        yield " ".join([".base", *(f"{name}={image.bases[name]:#x}" for name in BASES)])
    uops = np.zeros(0, np.uint8)
    for place in image.places:
        yield f".segment {_written(place.name)} address={place.address:#x} size={place.size:#x} kind={place.kind}"
        if place.kind in CARRIED:
            data = image.data[place.name].reshape(-1)
            if place.name == "uop" and place.size % config.uop.tile_bytes == 0:
                uops = data
            else:
                yield from _bytes(data)
    yield isa.disassemble(image.insns, uops.reshape(-1, config.uop.tile_bytes), config)


def _bytes(data: Raw) -> Iterator[str]:
    raw = data.tobytes()
    rows = (raw[start : start + ROW] for start in range(0, len(raw), ROW))
    for zero, run in groupby(rows, lambda row: not any(row)):
        if zero:
            yield f"zero {sum(map(len, run))}"
        else:
            yield from (row.hex() for row in run)


def _written(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name).replace("#", "\\u0023")


def _parts(text: str) -> dict[str, _Part]:
    """The launches by name, with all but code read and left blank in `code`."""
    part = _Part("asm", 1)
    parts = {part.name: part}
    segment: _Segment | None = None  # whose bytes a line that is no directive holds; None where it is code
    room, started = MAX_BYTES, False  # `started`: something is in front of the first .launch
    for number, line in enumerate(text.split("\n"), 1):
        body = line.partition("#")[0]
        words = [Word(match[0], number, match.start() + 1) for match in _WORD.finditer(body)]
        directive = words[0].text if words and words[0].text.startswith(".") else ""
        part.code.append("" if (segment and not directive) or directive in OWN else body)
        if segment and words and not directive:
            room -= _data(segment, words)
        elif directive == ".launch":
            parts = parts if started else {}
            part = _Part(_name(words, parts), number, [""])
            parts[part.name] = part
            for extra in words[2:]:
                extra.refuse("the end of the line")
        elif directive == ".base":
            for key, word in _pairs(words[1:], BASES).items():
                part.bases[key] = _number(word, MAX_ADDRESS, len(key) + 1)
        elif directive == ".segment":
            segment = _segment(words, part.segments, room)
            room -= segment.size or 0
            part.segments[segment.name] = segment
        elif directive not in ("", ".insn", ".uop"):
            words[0].refuse(f"one of {', '.join(OWN)}, .insn, .uop")
        segment = segment if directive in ("", ".segment") else None
        started = started or bool(words)
    return parts


def _segment(words: Sequence[Word], known: Collection[str], room: int) -> _Segment:
    name = _name(words, known)
    found = _pairs(words[2:], ("address", "size", "kind"))
    for key in ("address", "kind"):
        if key not in found:
            words[-1].refuse(f"{key}= after it")
    kind = found["kind"].text.removeprefix("kind=")
    if kind not in KINDS:
        found["kind"].refuse(f"one of {', '.join(KINDS)}", len("kind="))
    if kind not in CARRIED and "size" not in found:
        words[-1].refuse("size= after it, as it has no bytes here")
    size = _number(found["size"], room, len("size=")) if "size" in found else None
    address = _number(found["address"], MAX_ADDRESS, len("address="))
    return _Segment({**found, "name": words[1]}, name, address, kind, size, room if size is None else size)


def _data(segment: _Segment, words: Sequence[Word]) -> int:
    """Add a line of bytes; by how many a segment without `size` grew."""
    if segment.kind not in CARRIED:
        known = " and ".join(CARRIED)
        words[0].refuse(f"a directive: only {known} segments have bytes here, and '{segment.name}' is {segment.kind}")
    if words[0].text == "zero":
        if len(words) != 2:
            words[-1].refuse("the end of the line" if len(words) > 1 else "a number of bytes after it")
        data = bytes(_number(words[1], segment.room))
    else:
        for word in words:
            if not re.fullmatch("([0-9a-fA-F]{2})+", word.text):
                word.refuse("bytes of two hex digits, zero N, or a directive (.insn, .uop, ..)")
        data = bytes.fromhex("".join(word.text for word in words))
    if len(data) > segment.room:
        words[0].refuse(f"at most {segment.room} more bytes in '{segment.name}'")
    segment.room -= len(data)
    segment.data += data
    return len(data) if segment.size is None else 0


def _launch(part: _Part, config: Config) -> Launch:
    insns, uops = isa.assemble("\n".join(part.code), config, part.start)
    segments = part.segments
    if uops.size:
        if "uop" not in segments:
            segments = {"uop": _Segment({}, "uop", 0, "const", None, 0), **segments}
        _fill(segments["uop"], uops)
    _refuse_overlap(segments.values())
    arrays: dict[str, Array] = {"insns": insns, "dram.uop": np.zeros(0, np.uint8)}
    for item in segments.values():
        if item.kind in CARRIED:
            arrays[f"dram.{item.name}"] = np.frombuffer(item.data.ljust(item.extent, b"\0"), np.uint8)
    layout = [
        {"name": item.name, "address": item.address, "size": item.extent, "kind": item.kind}
        for item in segments.values()
    ]
    return Launch(part.name, (), {"bases": part.bases, "segments": layout}, arrays)


def _fill(segment: _Segment, uops: Raw) -> None:
    """Micro-ops as the bytes of the segment `uop`."""
    if segment.kind != "const" or segment.data:
        segment.words["name"].refuse("a const segment without bytes of its own, as there are micro-ops for it")
    if segment.size is not None and segment.size < uops.size:
        segment.words["size"].refuse(f"{uops.size} or more for its {len(uops)} micro-ops", len("size="))
    segment.data += uops.tobytes()


def _refuse_overlap(segments: Iterable[_Segment]) -> None:
    for one, other in pairwise(sorted(segments, key=lambda item: item.address)):
        if (end := one.address + one.extent) > other.address:
            taken = f"'{one.name}' {one.address:#x}..{end:#x}"
            other.words["address"].refuse(f"an address that is not in {taken}", len("address="))


def _name(words: Sequence[Word], known: Collection[str]) -> str:
    """The word after a directive, a name that is not `known`."""
    if len(words) < 2:
        words[0].refuse("a name after it")
    name = words[1].text
    if name.startswith('"'):
        try:
            name = json.loads(name)
        except ValueError:
            words[1].refuse("a name, or one in quotes as JSON has it, # as \\u0023")
    if name in known:
        words[1].refuse("a name that is not taken")
    return name


def _pairs(words: Sequence[Word], keys: Sequence[str]) -> dict[str, Word]:
    """The words key=value by key."""
    found: dict[str, Word] = {}
    for word in words:
        key, mark, _ = word.text.partition("=")
        if not mark or key not in keys:
            word.refuse(", ".join(f"{name}=" for name in keys))
        if key in found:
            word.refuse(f"{key} only once")
        found[key] = word
    return found


def _number(word: Word, high: int, skip: int = 0) -> int:
    try:
        value = int(word.text[skip:], 0)
    except ValueError:
        word.refuse("a number, decimal or 0x..", skip)
    if not 0 <= value <= high:
        word.refuse(f"0..{high:#x}", skip)
    return value
