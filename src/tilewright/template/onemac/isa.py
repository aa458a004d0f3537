"""The instruction set: three instructions in one format, and their text.

    load  buf=0 dram=640 length=120 push               buf[0:120] = DRAM[640:760]
    dot   buf=0 wgt=120 acc=0 length=120 count=16 clear=1 zero=-128 pop push
    store acc=0 dram=4096 count=16 pop                 DRAM[4096:4160] = acc[0:16], int32

`dot`: acc[acc + j] += sum over k of (buf[buf + k] - zero) * buf[wgt + j * length + k], for j < count and k < length.
With `clear`, the accumulators are set to 0 first. With `pop`, the instruction waits for a token from the other unit
before it starts. With `push`, it sends a token to the other unit when it ends. The text of a launch begins with its
DRAM segments (format: program/listing.py):

    .launch dense
    .segment x address=0x0 size=0x4 kind=input
    .segment w address=0x4 size=0x4 kind=const
    01020304
    .segment acc address=0x8 size=0x4 kind=output
    .code
    load buf=0 dram=0 length=8 push
"""

from __future__ import annotations

from enum import IntEnum

from tilewright.program.instruction import Field, InstructionSet, Layout, rows
from tilewright.program.launch_image import LaunchImage
from tilewright.program.listing import Directive, Grammar, Section, Text, image_directives, image_sections, read_image
from tilewright.program.program import Launch


class Opcode(IntEnum):
    """The operation of an instruction."""

    LOAD = 0
    DOT = 1
    STORE = 2


class Unit(IntEnum):
    """The hardware units. They run concurrently; only tokens synchronise them."""

    DMA = 0
    MAC = 1


UNIT = {Opcode.LOAD: Unit.DMA, Opcode.DOT: Unit.MAC, Opcode.STORE: Unit.DMA}

LAYOUT = Layout(
    "instruction",
    (
        Field("opcode", 3, doc="Opcode"),
        Field("pop", 1, doc="wait for a token from the other unit"),
        Field("push", 1, doc="on completion, send a token to the other unit"),
        Field("clear", 1, doc="DOT: set the accumulators to 0 first"),
        Field("zero", 8, signed=True, doc="DOT: zero point of the inputs"),
        Field("buf", 16, doc="LOAD: first byte written; DOT: first input"),
        Field("wgt", 16, doc="DOT: first weight"),
        Field("acc", 16, doc="first accumulator"),
        Field("dram", 32, doc="first byte in DRAM"),
        Field("length", 16, doc="LOAD: bytes; DOT: products per accumulator"),
        Field("count", 16, doc="number of accumulators"),
    ),
    word_bits=64,
    words=2,
)
#: The fields that each instruction uses; all others must be 0.
OPERANDS = {
    Opcode.LOAD: ("buf", "dram", "length"),
    Opcode.DOT: ("buf", "wgt", "acc", "length", "count", "clear", "zero"),
    Opcode.STORE: ("acc", "dram", "count"),
}
ISA = InstructionSet(LAYOUT, "opcode", Opcode, OPERANDS, flags=("pop", "push"))


def image_of(launch: Launch) -> LaunchImage:
    """Return the instructions and segments of a launch. Raises ProgramError if they are malformed."""
    return LaunchImage.of(launch, LAYOUT.nbytes)


GRAMMAR = Grammar({**image_directives(), ".code": Directive(code=ISA.notation.read)})


def text_of(launch: Launch) -> Text:
    """Return the text of a launch; `launch_of` reads it back exactly."""
    image = image_of(launch)
    code = [ISA.notation.show(row) for row in rows(ISA.decode(image.insns))]
    return Text(launch.name, sections=[*image_sections(image), Section(".code", code=code)])


def launch_of(text: Text) -> Launch:
    """Return the launch that a text describes. Raises ProgramError with the line and column of a mistake."""
    return read_image(text, LAYOUT.encode_rows(text.code(".code"))).launch(text.name)
