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

Segments are those of program/listing.py, lines of code those of isa/text.py. The micro-ops are the bytes of the
const segment `uop`, which is at address 0 where a launch does not declare it. Lines before the first `.launch` are a
launch named `asm`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.program.instruction import Raw
from tilewright.program.listing import Directive, Grammar, Section, Text, image_directives, image_sections, read_image
from tilewright.program.program import Launch, Program
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.registers import REGIONS
from tilewright.targets.vta.isa import text as isa
from tilewright.targets.vta.isa.image import image_of
from tilewright.targets.vta.isa.stream import encode


def disassemble(program: Program, config: Config) -> str:
    """The text of a program's launches."""
    grammar = _grammar(config)
    return "\n".join(grammar.write(_text(launch, config)) for launch in program.launches)


def assemble(text: str, config: Config) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    return tuple(_launch(part, config) for part in _grammar(config).read(text))


def _grammar(config: Config) -> Grammar:
    directives = {
        **image_directives(REGIONS),
        ".insn": Directive(code=isa.notation(config.formats, config.pipeline).read),
        ".uop": Directive(code=isa.uop_form(config.formats.uop).read),
    }
    return Grammar(directives, opening=".insn", unnamed="asm")


def _text(launch: Launch, config: Config) -> Text:
    image, uops, size = image_of(launch), np.zeros(0, np.uint8), config.uop.tile_bytes
    if "uop" in image.data and image.data["uop"].size % size == 0:
        uops = image.data["uop"]
        image = replace(image, data={**image.data, "uop": uops[:0]})
    code = Section(".insn", code=isa.instructions(image.insns, config))
    tables = Section(".uop", code=isa.micro_ops(uops.reshape(-1, size), config))
    return Text(launch.name, sections=[*image_sections(image), code, tables])


def _launch(text: Text, config: Config) -> Launch:
    uops = config.formats.uop.encode_rows(text.code(".uop"))
    if uops.size:
        _fill(text, uops)
    image = read_image(text, encode(text.code(".insn"), config), REGIONS)
    return replace(image, data={"uop": np.zeros(0, np.uint8), **image.data}).launch(text.name)


def _fill(text: Text, uops: Raw) -> None:
    """Micro-ops as the bytes of the segment `uop`."""
    found = [section for section in text.of(".segment") if section.values["name"] == "uop"]
    if not found:
        found = [Section(".segment", {"name": "uop", "address": 0, "kind": "const"})]
        text.sections[:0] = found
    (section,) = found
    if section.values["kind"] != "const" or section.data:
        section.words["name"].refuse("a const segment without bytes of its own, as there are micro-ops for it")
    if section.values.get("size", uops.size) < uops.size:
        section.words["size"].refuse(f"{uops.size} or more for its {len(uops)} micro-ops")
    section.data = uops.tobytes()
