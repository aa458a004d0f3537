"""The contents of a launch: code and data of the firmware, followed by the model data.

All contents are checked when they are read, because a launch may come from a file.

The text form of a launch is exact in both directions (tilewright/program/listing.py):

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

A line of code is a machine word. The instruction after # is a comment, because assembling is the compiler's task.
`.input` and `.output` list name, byte offset in the arena and size in bytes. `.data` has the data after the code, and
`.blob` the model data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.launch_image import Contents
from tilewright.program.listing import Directive, Grammar, LaunchText, Section, Text
from tilewright.program.program import Launch
from tilewright.program.words import NAME, QUOTED, Word, WordType, end, number, quoted

from .compiler import layout
from .compiler.layout import Kind
from .config import RAM_BASE
from .isa import rv32

MAX_SYMBOLS = 1 << 16
#: Types of symbols and areas in JSON.
ROWS = tuple[tuple[str, int, int], ...]
ADDRESS = number("#x")
SYMBOL = WordType(
    lambda name: name if re.fullmatch(r'[^\s"#]+', name) else quoted(name).replace(" ", "\\u0020"), NAME.read
)
AREA = {"name": SYMBOL, "offset": number(), "nbytes": number()}


class ArenaArea(NamedTuple):
    """The area of a tensor in the arena (the memory for activations). `offset` and `nbytes` are in bytes."""

    name: str
    offset: int
    nbytes: int


class FunctionSymbol(NamedTuple):
    """The address and size of a function, for listings and profiles."""

    name: str
    address: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class FirmwareImage:
    """The contents of a launch, in the order of their addresses.

    The code (`words`, uint32) is at the beginning of RAM, followed by `data` (uint8). The model data (`blob`, uint8) is
    at address `model`, followed by the arena, the memory for activations. `header` and `records` are the parsed blob.
    """

    entry: int
    model: int
    words: Array
    data: Array
    blob: Array
    header: Mapping[str, int]
    records: Sequence[Mapping[str, int]]
    symbols: tuple[FunctionSymbol, ...]
    inputs: tuple[ArenaArea, ...]
    outputs: tuple[ArenaArea, ...]
    kernels: tuple[str, ...] = ()  # the kernel of each operator, if the user wrote the firmware

    @property
    def arena(self) -> int:
        return self.model + layout.aligned(len(self.blob))

    @property
    def end(self) -> int:
        """The address after the arena, which is the memory for activations."""
        return self.arena + self.header["arena_bytes"]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(Kind(record["kind"]).name.lower() for record in self.records)

    def function(self, pc: int) -> str:
        for symbol in self.symbols:
            if symbol.address <= pc < symbol.address + max(symbol.nbytes, 1):
                return f"{symbol.name}+{pc - symbol.address:#x}"
        return f"{pc:#x}"

    @classmethod
    def of(cls, launch: Launch) -> FirmwareImage:
        """Return the image of a launch. Raises ProgramError if the launch is damaged or inconsistent."""
        contents = Contents(launch)
        words = contents.array("insns", np.uint32, (None,))
        data = contents.array("data", np.uint8, (None,))
        blob = contents.array("blob", np.uint8, (None,))
        try:
            header, records = layout.unpack(blob)
            layout.check(header, records)
        except ProgramError as error:
            raise ProgramError(f"launch '{launch.name}': {error.where}", error.reason, error.remedy) from None
        except (ValueError, OverflowError) as error:
            contents.refuse(f"its model is damaged: {error}")
        code = range(RAM_BASE, RAM_BASE + 4 * len(words))
        entry = contents.number("entry")
        model = contents.number("model")
        if entry not in code or entry % 4 or code.stop + len(data) > model or model % 4:
            contents.refuse(f"entry {entry:#x} must be in the code, and model {model:#x} after code and data")
        symbols = tuple(FunctionSymbol(*row) for row in contents.value(ROWS, "symbols"))
        if len(symbols) > MAX_SYMBOLS:
            contents.refuse("has too many symbols")
        inputs, outputs = (_areas(contents, name, header) for name in ("inputs", "outputs"))
        kernels = contents.value(tuple[str, ...], "kernels") if "kernels" in launch.meta else ()
        if kernels and not len(kernels) == len(records) == len(launch.nodes):
            contents.refuse("does not name one kernel for each layer")
        return cls(entry, model, words, data, blob, header, records, symbols, inputs, outputs, kernels)


def _areas(contents: Contents, name: str, header: Mapping[str, int]) -> tuple[ArenaArea, ...]:
    areas = tuple(ArenaArea(*row) for row in contents.value(ROWS, name))
    for area in areas:
        if area.offset < 0 or area.nbytes < 1 or area.offset + area.nbytes > header["arena_bytes"]:
            contents.refuse(f"'{area.name}' lies outside the arena")
    return areas


def _word(words: Sequence[Word]) -> int:
    if not re.fullmatch("[0-9a-fA-F]{8}", words[0].text):
        words[0].refuse("a word of eight hex digits after .code, or bytes after .data and .blob")
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
    image = FirmwareImage.of(launch)
    rows: dict[str, tuple[Any, ...]] = {".symbol": image.symbols, ".input": image.inputs, ".output": image.outputs}
    sections = [
        Section(".entry", {"address": image.entry}),
        Section(".model", {"address": image.model}),
        *(Section(name, row._asdict()) for name, of in rows.items() for row in of),
        Section(".code", code=list(_code(image))),
        Section(".data", data=image.data.tobytes()),
        Section(".blob", data=image.blob.tobytes()),
    ]
    return Text(launch.name, sections=sections)


def _code(image: FirmwareImage) -> Iterator[str]:
    names = {symbol.address: symbol.name for symbol in image.symbols}
    packed = rv32.decode(image.words.astype("<u4"), RAM_BASE).tolist()
    for index, (word, insn) in enumerate(zip(image.words.tolist(), packed, strict=True)):
        address = RAM_BASE + 4 * index
        label = f"{names[address]}: " if address in names else ""
        yield f"{word:08x}  # {address:08x} {label}{rv32.text(insn, address)}"


def launch_of(text: Text) -> Launch:
    """Return the launch that a text describes. Raises ProgramError with line, column and the expected text."""
    meta: dict[str, Any] = {"entry": RAM_BASE, "model": RAM_BASE}
    for name in ("entry", "model"):
        for section in text.of(f".{name}"):
            meta[name] = section.values["address"]
    for name in ("symbol", "input", "output"):
        meta[f"{name}s"] = [list(section.values.values()) for section in text.of(f".{name}")]
    arrays: dict[str, Array] = {name: np.frombuffer(text.data(f".{name}"), np.uint8) for name in ("data", "blob")}
    launch = Launch(text.name, (), meta, {"insns": np.array(text.code(".code"), np.uint32), **arrays})
    FirmwareImage.of(launch)
    return launch


#: The text form of launches.
TEXT = LaunchText(GRAMMAR, text_of, launch_of)
