"""The text form of launches, exact in both directions; `#` starts a comment.

.launch "fc3"
fc r=4 l=2 relu=0 rule=float w_signed=1 ...
.array weight uint8 8
0102030405060708
.array bias int32 2
0000000001000000
.array factor float64 1
000000000000f03f

Arrays are bytes, little-endian: weights (oc, 3, 3, ic) or (l, r); `.array data uint8 ...`, (rows, cols, ic) or (r), is
what a bare launch reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.program import Launch, Program
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.image import ARRAYS, MAX_WORDS, Image
from tilewright.targets.zynq.isa import encode, read, show

ROW = 64  # bytes of data in a line


def disassemble(program: Program, config: Config) -> str:
    """The text of a program's launches."""
    return "".join(f"{line}\n" for launch in program.launches for line in _lines(launch, config))


def _lines(launch: Launch, config: Config) -> Iterator[str]:
    image = Image.of(launch, config)
    yield f".launch {json.dumps(launch.name)}"
    yield show(image.layer.columns, 0)
    for name in ARRAYS:
        array = launch.arrays.get(name)
        if array is not None and array.size:
            yield f".array {name} {array.dtype.name} {array.size}"
            raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
            yield from (raw[start : start + ROW].hex() for start in range(0, len(raw), ROW))


class _Part:
    """The lines of one launch, as they are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.row: dict[str, int] | None = None
        self.arrays: dict[str, tuple[int, bytearray]] = {}

    def launch(self) -> Launch:
        if self.row is None:
            raise ProgramError(f"launch '{self.name}'", "has no layer", "give one: conv_1_1, conv_other, pool or fc")
        return Launch(
            self.name, (), {}, {"insns": encode([self.row]), **{name: self._array(name) for name in self._needed()}}
        )

    def _needed(self) -> list[str]:
        return [name for name in ARRAYS if name != "data" or name in self.arrays]

    def _array(self, name: str) -> Array:
        count, raw = self.arrays.get(name, (0, bytearray()))
        dtype = np.dtype(ARRAYS[name])
        if len(raw) != count * dtype.itemsize:
            reason = f"'{name}' has {len(raw)} bytes, not {count} of {dtype.itemsize}"
            raise ProgramError(f"launch '{self.name}'", reason)
        return np.frombuffer(bytes(raw), dtype.newbyteorder("<")).astype(dtype)


def assemble(text: str, config: Config) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    parts: list[_Part] = []
    current = ""
    for number, given in enumerate(text.split("\n"), 1):
        line = given.partition("#")[0] if not given.lstrip().startswith(".launch") else given
        words = line.split()
        if not words:
            continue
        if words[0] == ".launch":
            parts.append(_Part(_name(line, number, {part.name for part in parts})))
            current = ""
        elif not parts:
            raise _refused(number, line, ".launch in front of everything else")
        elif words[0] == ".array":
            current = _array(parts[-1], words, number, line)
        elif current:
            _data(parts[-1].arrays[current][1], number, line)
        elif parts[-1].row is None:
            parts[-1].row = read(line, number)
        else:
            raise _refused(number, line, ".array or .launch: a launch has one layer")
    launches = tuple(part.launch() for part in parts)
    for launch in launches:
        Image.of(launch, config)
    return launches


def _name(line: str, number: int, taken: set[str]) -> str:
    try:
        name = json.loads(line.strip().removeprefix(".launch"))
    except ValueError:
        name = None
    if not isinstance(name, str) or name in taken:
        raise _refused(number, line, ".launch and a new name in double quotes")
    return name


def _array(part: _Part, words: list[str], number: int, line: str) -> str:
    known = len(words) == 4 and words[1] in ARRAYS and words[1] not in part.arrays
    if not known or words[2] != np.dtype(ARRAYS[words[1]]).name or not words[3].isdecimal():
        forms = ", ".join(f"{name} {np.dtype(dtype).name}" for name, dtype in ARRAYS.items())
        raise _refused(number, line, f".array and one of {forms}, each once, and its number of elements")
    if int(words[3]) > MAX_WORDS:
        raise _refused(number, line, f"at most {MAX_WORDS} elements")
    part.arrays[words[1]] = (int(words[3]), bytearray())
    return words[1]


def _data(raw: bytearray, number: int, line: str) -> None:
    try:
        raw += bytes.fromhex(line)
    except ValueError:
        raise _refused(number, line, "bytes, two hex digits each, or .array, .launch") from None


def _refused(number: int, line: str, expected: str) -> ProgramError:
    column = len(line) - len(line.lstrip()) + 1
    return ProgramError(f"line {number}, column {column}", f"found '{line.strip()[:60]}'", f"expected {expected}")
