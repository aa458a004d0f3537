"""The text form of launches, exact in both directions.

    .launch "conv..softmax"
    .entry 0x40000000
    .model 0x40006000
    .symbol conv_reference 0x40000120 0x2f4
    .input x 0 3072
    .output y 64 10
    .code
    00006197  # 40000000 _start: auipc gp, 0x6
    .data
    0a00
    .blob
    3154574d...

A word of code is what counts; what it means stands behind #. Assembling RISC-V text is a compiler's work.
`.input` and `.output`: name, byte in the arena, bytes. `.data` follows the code; `.blob` is the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.program import Launch, Program

from .image import BASE, Image
from .isa import rv32

ROW = 32  # bytes of data in a line
MAX_BYTES = 1 << 27
_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_SECTIONS = (".code", ".data", ".blob")
_WORDS = {".entry": 1, ".model": 1, ".symbol": 3, ".input": 3, ".output": 3}


def disassemble(program: Program) -> str:
    """The text of a program's launches."""
    return "".join(f"{line}\n" for launch in program.launches for line in _lines(launch))


def _lines(launch: Launch) -> Iterator[str]:
    image = Image.of(launch)
    yield f".launch {json.dumps(launch.name)}"
    yield f".entry {image.entry:#x}"
    yield f".model {image.model:#x}"
    for symbol in image.symbols:
        yield f".symbol {_quoted(symbol.name)} {symbol.address:#x} {symbol.size:#x}"
    for word, places in ((".input", image.inputs), (".output", image.outputs)):
        for place in places:
            yield f"{word} {_quoted(place.name)} {place.offset} {place.nbytes}"
    yield ".code"
    names = {symbol.address: symbol.name for symbol in image.symbols}
    packed = rv32.decode(image.words.astype("<u4"), BASE).tolist()
    for index, (word, insn) in enumerate(zip(image.words.tolist(), packed, strict=True)):
        address = BASE + 4 * index
        label = f"{names[address]}: " if address in names else ""
        yield f"{word:08x}  # {address:08x} {label}{rv32.text(insn, address)}"
    for section, data in ((".data", image.data), (".blob", image.blob)):
        yield section
        raw = data.tobytes()
        yield from (raw[start : start + ROW].hex() for start in range(0, len(raw), ROW))


def _quoted(name: str) -> str:
    return name if re.fullmatch(r'[^\s"#]+', name) else json.dumps(name).replace("#", "\\u0023").replace(" ", "\\u0020")


class _Part:
    """The lines of one launch, as they are read."""

    def __init__(self, name: str) -> None:
        self.name, self.section = name, ""
        self.raw = {section: bytearray() for section in _SECTIONS}
        self.meta: dict[str, Any] = {"entry": BASE, "model": BASE, "symbols": [], "inputs": [], "outputs": []}

    def launch(self) -> Launch:
        arrays: dict[str, Array] = {
            "insns": np.frombuffer(bytes(self.raw[".code"]), "<u4").astype(np.uint32),
            "data": np.frombuffer(bytes(self.raw[".data"]), np.uint8),
            "blob": np.frombuffer(bytes(self.raw[".blob"]), np.uint8),
        }
        return Launch(self.name, (), self.meta, arrays)


def assemble(text: str) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    parts: list[_Part] = []
    for number, line in enumerate(text.split("\n"), 1):
        content = line.partition("#")[0].strip()
        word = content.split(maxsplit=1)[0] if content else ""
        if not word:
            continue
        if word == ".launch":
            parts.append(_Part(_name(content, number, {part.name for part in parts})))
        elif not parts:
            raise _refused(number, line, ".launch in front of everything else")
        elif word in _SECTIONS:
            parts[-1].section = word
        elif word in _WORDS:
            _declare(parts[-1], content, number, line)
        else:
            _bytes(parts[-1], content, number, line)
    launches = tuple(part.launch() for part in parts)
    for launch in launches:
        Image.of(launch)
    return launches


def _name(content: str, number: int, taken: set[str]) -> str:
    try:
        name = json.loads(content.removeprefix(".launch"))
    except ValueError:
        name = None
    if not isinstance(name, str) or name in taken:
        raise _refused(number, content, ".launch and a new name in double quotes")
    return name


def _declare(part: _Part, content: str, number: int, line: str) -> None:
    word, *rest = _NAME.findall(content)
    try:
        if len(rest) != _WORDS[word]:
            raise ValueError
        if _WORDS[word] == 1:
            part.meta[word[1:]] = int(rest[0], 0)
        else:
            name = json.loads(rest[0]) if rest[0].startswith('"') else rest[0]
            part.meta[f"{word[1:]}s"].append([name, int(rest[1], 0), int(rest[2], 0)])
    except ValueError:
        expected = "an address" if _WORDS[word] == 1 else "a name and two numbers"
        raise _refused(number, line, f"{word} and {expected}") from None


def _bytes(part: _Part, content: str, number: int, line: str) -> None:
    try:
        data = bytes.fromhex(content)
        if part.section == ".code":
            if len(data) != 4:
                raise ValueError
            data = data[::-1]
        part.raw[part.section] += data
        if len(part.raw[part.section]) > MAX_BYTES:
            raise _refused(number, line, f"at most {MAX_BYTES} bytes")
    except (KeyError, ValueError):
        raise _refused(number, line, "after .code a word of eight hex digits, after .data and .blob bytes") from None


def _refused(number: int, line: str, expected: str) -> ProgramError:
    column = len(line) - len(line.lstrip()) + 1
    return ProgramError(f"line {number}, column {column}", f"found '{line.strip()}'", f"expected {expected}")
