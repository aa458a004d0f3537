"""The text form of launches, exact in both directions; see tilewright/program/listing.py and segment_text.py.

.launch dense
.segment x address=0x0 size=0x4 kind=input
.segment w address=0x4 size=0x4 kind=const
01020304
.segment acc address=0x8 size=0x4 kind=output
.code
load buf=0 dram=0 length=8 push
dot buf=0 wgt=4 acc=0 length=4 count=1 clear=1 zero=0 pop push
store acc=0 dram=8 count=1 pop
"""

from __future__ import annotations

from tilewright.program import segment_text
from tilewright.program.instruction import rows
from tilewright.program.listing import Directive, Grammar, Section, Text
from tilewright.program.program import Launch

from .isa import ISA, LAYOUT, image_of

GRAMMAR = Grammar({**segment_text.directives(), ".code": Directive(code=ISA.notation.read)})


def disassemble(launches: tuple[Launch, ...]) -> str:
    """The text of launches."""
    return "".join(GRAMMAR.write(_text(launch)) for launch in launches)


def assemble(text: str) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    return tuple(_launch(part) for part in GRAMMAR.read(text))


def _text(launch: Launch) -> Text:
    image = image_of(launch)
    code = [ISA.notation.show(row) for row in rows(ISA.decode(image.insns))]
    return Text(launch.name, sections=[*segment_text.sections(image), Section(".code", code=code)])


def _launch(text: Text) -> Launch:
    return segment_text.image(text, LAYOUT.encode_rows(text.code(".code"))).launch(text.name)
