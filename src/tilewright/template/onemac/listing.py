"""The text form of launches, exact in both directions; `#` starts a comment in code.

.launch "dense"
.segment x input 4
.segment w const 4
01020304
.segment acc output 4
.code
load buf=0 dram=0 length=8 push
dot buf=0 wgt=4 acc=0 length=4 count=1 clear=1 zero=0 pop push
store acc=0 dram=8 count=1 pop
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from tilewright.errors import ProgramError
from tilewright.program.program import Launch, Program

from .image import KINDS, MAX_BYTES, Image
from .isa import encode, read, show

ROW = 32  # bytes of data in a line


def disassemble(program: Program) -> str:
    """The text of a program's launches."""
    return "".join(f"{line}\n" for launch in program.launches for line in _lines(launch))


def _lines(launch: Launch) -> Iterator[str]:
    image = Image.of(launch)
    yield f".launch {json.dumps(launch.name)}"
    for place in image.places:
        yield f".segment {place.name} {place.kind} {place.size}"
        raw = image.data[place.name].tobytes() if place.kind == "const" else b""
        yield from (raw[start : start + ROW].hex() for start in range(0, len(raw), ROW))
    yield ".code"
    yield from (show(image.columns, row) for row in range(len(image.columns["opcode"])))


class _Part:
    """The lines of one launch, as they are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.segments: list[list[str | int]] = []
        self.data: dict[str, bytearray] = {}
        self.code: list[dict[str, int]] = []
        self.in_code = False

    def launch(self) -> Launch:
        arrays = {f"dram.{name}": np.frombuffer(bytes(data), np.uint8) for name, data in self.data.items()}
        return Launch(self.name, (), {"segments": self.segments}, {"insns": encode(self.code), **arrays})


def assemble(text: str) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    parts: list[_Part] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == ".launch":
            parts.append(_Part(_name(line, number, {part.name for part in parts})))
        elif not parts:
            raise _refused(number, line, ".launch in front of everything else")
        elif words[0] == ".segment":
            _segment(parts[-1], words, number, line)
        elif words == [".code"]:
            parts[-1].in_code = True
        elif parts[-1].in_code:
            if line.partition("#")[0].strip():
                parts[-1].code.append(read(line.partition("#")[0], number))
        else:
            _data(parts[-1], number, line)
    launches = tuple(part.launch() for part in parts)
    for launch in launches:
        Image.of(launch)
    return launches


def _name(line: str, number: int, taken: set[str]) -> str:
    try:
        name = json.loads(line.strip().removeprefix(".launch"))
    except ValueError:
        name = None
    if not isinstance(name, str) or name in taken:
        raise _refused(number, line, ".launch and a new name in double quotes")
    return name


def _segment(part: _Part, words: list[str], number: int, line: str) -> None:
    taken = {segment[0] for segment in part.segments}
    if len(words) != 4 or words[1] in taken or words[2] not in KINDS or not words[3].isdecimal():
        raise _refused(number, line, f".segment, a new name, one of {', '.join(KINDS)}, bytes")
    if int(words[3]) > MAX_BYTES:
        raise _refused(number, line, f"at most {MAX_BYTES} bytes")
    part.segments.append([words[1], words[2], int(words[3])])
    if words[2] == "const":
        part.data[words[1]] = bytearray()


def _data(part: _Part, number: int, line: str) -> None:
    name = part.segments[-1][0] if part.segments else ""
    try:
        part.data[str(name)] += bytes.fromhex(line)
    except (KeyError, ValueError):
        raise _refused(number, line, "bytes of a const segment, two hex digits each, or .segment, .code") from None


def _refused(number: int, line: str, expected: str) -> ProgramError:
    column = len(line) - len(line.lstrip()) + 1
    return ProgramError(f"line {number}, column {column}", f"found '{line.strip()}'", f"expected {expected}")
