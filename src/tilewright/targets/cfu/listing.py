"""The text form of launches, exact in both directions (tilewright/program/listing.py).

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

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.program.listing import Directive, Grammar, Section, Text
from tilewright.program.program import Launch
from tilewright.program.words import NAME, QUOTED, Word, WordType, end, number, quoted

from .image import BASE, FirmwareImage
from .isa import rv32

ADDRESS = number("#x")
SYMBOL = WordType(
    lambda name: name if re.fullmatch(r'[^\s"#]+', name) else quoted(name).replace(" ", "\\u0020"), NAME.read
)
AREA = {"name": SYMBOL, "offset": number(), "nbytes": number()}


def _word(words: Sequence[Word]) -> int:
    """A line of code: a word of eight hex digits."""
    if not re.fullmatch("[0-9a-fA-F]{8}", words[0].text):
        words[0].refuse("after .code a word of eight hex digits, after .data and .blob bytes")
    end(words[1:])
    return int(words[0].text, 16)


GRAMMAR = Grammar(
    {
        ".entry": Directive({"address": ADDRESS}),
        ".model": Directive({"address": ADDRESS}),
        ".symbol": Directive({"name": SYMBOL, "address": ADDRESS, "nbytes": ADDRESS}),
        ".input": Directive(AREA),
        ".output": Directive(AREA),
        ".code": Directive(code=_word),
        ".data": Directive(data=lambda _: None),
        ".blob": Directive(data=lambda _: None),
    },
    name=QUOTED,
    zeros=False,
)


def text_of(launch: Launch) -> Text:
    """The text of a launch, which `launch_of` reads back exactly."""
    image = FirmwareImage.of(launch)
    symbols = ({"name": name, "address": address, "nbytes": size} for name, address, size in image.symbols)
    sections = [
        Section(".entry", {"address": image.entry}),
        Section(".model", {"address": image.model}),
        *(Section(".symbol", symbol) for symbol in symbols),
        *(Section(".input", area._asdict()) for area in image.inputs),
        *(Section(".output", area._asdict()) for area in image.outputs),
        Section(".code", code=list(_code(image))),
        Section(".data", data=image.data.tobytes()),
        Section(".blob", data=image.blob.tobytes()),
    ]
    return Text(launch.name, sections=sections)


def _code(image: FirmwareImage) -> Iterator[str]:
    names = {symbol.address: symbol.name for symbol in image.symbols}
    packed = rv32.decode(image.words.astype("<u4"), BASE).tolist()
    for index, (word, insn) in enumerate(zip(image.words.tolist(), packed, strict=True)):
        address = BASE + 4 * index
        label = f"{names[address]}: " if address in names else ""
        yield f"{word:08x}  # {address:08x} {label}{rv32.text(insn, address)}"


def launch_of(text: Text) -> Launch:
    """The launch that a text describes. Raises ProgramError with the line, the column and what was expected there."""
    meta: dict[str, Any] = {"entry": BASE, "model": BASE}
    for name in ("entry", "model"):
        for section in text.of(f".{name}"):
            meta[name] = section.values["address"]
    for name in ("symbol", "input", "output"):
        meta[f"{name}s"] = [list(section.values.values()) for section in text.of(f".{name}")]
    arrays: dict[str, Array] = {name: np.frombuffer(text.data(f".{name}"), np.uint8) for name in ("data", "blob")}
    made = Launch(text.name, (), meta, {"insns": np.array(text.code(".code"), np.uint32), **arrays})
    FirmwareImage.of(made)
    return made
