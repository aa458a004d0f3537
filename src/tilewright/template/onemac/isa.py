"""The language: three instructions of one format, decoded as columns, and their text.

    load  buf=0 dram=640 length=120 push               buf[0:120] = DRAM[640:760]
    dot   buf=0 wgt=120 acc=0 length=120 count=16 clear=1 zero=-128 pop push
    store acc=0 dram=4096 count=16 pop                 DRAM[4096:4160] = acc[0:16], int32

`dot`: acc[acc + j] += sum over k of (buf[buf + k] - zero) * buf[wgt + j * length + k], j < count, k < length;
`clear` sets the accumulators to 0 first. `pop` waits for a token of the other unit before an instruction starts,
`push` gives it one when the instruction has ended. A launch is written with its segments (program/listing.py):

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
    """What an instruction does."""

    LOAD = 0
    DOT = 1
    STORE = 2


class Unit(IntEnum):
    """Who does it, each at its own pace."""

    DMA = 0
    MAC = 1


UNIT = {Opcode.LOAD: Unit.DMA, Opcode.DOT: Unit.MAC, Opcode.STORE: Unit.DMA}

LAYOUT = Layout(
    "instruction",
    (
        Field("opcode", 3, doc="Opcode"),
        Field("pop", 1, doc="wait for a token of the other unit"),
        Field("push", 1, doc="on completion, a token to the other unit"),
        Field("clear", 1, doc="DOT: start from 0 instead of accumulating"),
        Field("zero", 8, signed=True, doc="DOT: zero point of the inputs"),
        Field("buf", 16, doc="LOAD: first byte written; DOT: first input"),
        Field("wgt", 16, doc="DOT: first weight"),
        Field("acc", 16, doc="first accumulator"),
        Field("dram", 32, doc="first byte in DRAM"),
        Field("length", 16, doc="LOAD: bytes; DOT: products an accumulator"),
        Field("count", 16, doc="accumulators"),
    ),
    word_bits=64,
    words=2,
)
#: The fields that each instruction has; the others are 0.
OPERANDS = {
    Opcode.LOAD: ("buf", "dram", "length"),
    Opcode.DOT: ("buf", "wgt", "acc", "length", "count", "clear", "zero"),
    Opcode.STORE: ("acc", "dram", "count"),
}
ISA = InstructionSet(LAYOUT, "opcode", Opcode, OPERANDS, flags=("pop", "push"))


def image_of(launch: Launch) -> LaunchImage:
    """What a launch holds, which may come from a file. Raises ProgramError."""
    return LaunchImage.of(launch, LAYOUT.nbytes)


GRAMMAR = Grammar({**image_directives(), ".code": Directive(code=ISA.notation.read)})


def text_of(launch: Launch) -> Text:
    """The text of a launch, which `launch_of` reads back exactly."""
    image = image_of(launch)
    code = [ISA.notation.show(row) for row in rows(ISA.decode(image.insns))]
    return Text(launch.name, sections=[*image_sections(image), Section(".code", code=code)])


def launch_of(text: Text) -> Launch:
    """The launch that a text describes. Raises ProgramError with the line and column."""
    return read_image(text, LAYOUT.encode_rows(text.code(".code"))).launch(text.name)
