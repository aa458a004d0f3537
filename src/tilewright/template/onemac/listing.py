"""The text form of launches, exact in both directions (tilewright/program/listing.py).

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

from collections.abc import Iterator

import numpy as np

from tilewright.program.instruction import rows
from tilewright.program.launch_image import LaunchImage, adjoining
from tilewright.program.listing import Directive, Grammar, Section, Text
from tilewright.program.program import Launch
from tilewright.program.words import NAME, choice, number

from .isa import ISA, LAYOUT, image_of

KINDS = ("const", "input", "output")
GRAMMAR = Grammar(
    {
        ".segment": Directive(
            {"name": NAME, "kind": choice(KINDS), "size": number()},
            unique=True,
            data=lambda values: values["size"] if values["kind"] == "const" else 0,
            form=f".segment, a new name, one of {', '.join(KINDS)}, bytes",
        ),
        ".code": Directive(code=ISA.notation.read),
    }
)


def disassemble(launches: tuple[Launch, ...]) -> str:
    """The text of launches."""
    return "".join(GRAMMAR.write(Text(launch.name, sections=list(_sections(launch)))) for launch in launches)


def _sections(launch: Launch) -> Iterator[Section]:
    image = image_of(launch)
    for segment in image.segments:
        values = {"name": segment.name, "kind": segment.kind, "size": segment.size}
        data = image.data[segment.name].tobytes() if segment.name in image.data else b""
        yield Section(".segment", values, data)
    yield Section(".code", code=[ISA.notation.show(row) for row in rows(ISA.decode(image.insns))])


def assemble(text: str) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    return tuple(_launch(part) for part in GRAMMAR.read(text))


def _launch(text: Text) -> Launch:
    found = text.of(".segment")
    segments = adjoining((s.values["name"], s.values["kind"], s.values["size"]) for s in found)
    data = {s.values["name"]: np.frombuffer(s.data, np.uint8) for s in found if s.values["kind"] == "const"}
    launch = LaunchImage(LAYOUT.encode_rows(text.code(".code")), segments, data).launch(text.name)
    ISA.decode(image_of(launch).insns)
    return launch
