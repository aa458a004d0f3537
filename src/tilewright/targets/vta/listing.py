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

Lines of code are those of isa/text.py. The micro-ops are the bytes of the const segment `uop`, which is at address 0
where a launch does not declare it. Bytes of another const or inout segment follow it; what is missing at its end is
zero, and without `size` it is as long as its bytes. Base registers that are left out are 0. Lines before the first
`.launch` are a launch named `asm`. A name with blanks or other unusual characters is a JSON string.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tilewright.program.instruction import Raw
from tilewright.program.launch_image import CARRIED, KINDS, DramSegment, LaunchImage
from tilewright.program.listing import Directive, Grammar, Section, Text
from tilewright.program.program import Launch, Program
from tilewright.program.words import NAME, choice, number
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.image import REGISTERS, image_of
from tilewright.targets.vta.isa import text as isa
from tilewright.targets.vta.isa.stream import encode

ADDRESS = number("#x", high=(1 << 32) - 1)


def disassemble(program: Program, config: Config) -> str:
    """The text of a program's launches."""
    grammar = _grammar(config)
    launches = program.launches
    return "\n".join(grammar.write(Text(launch.name, sections=list(_sections(launch, config)))) for launch in launches)


def assemble(text: str, config: Config) -> tuple[Launch, ...]:
    """The launches of a text. Raises ProgramError with the line, the column and what was expected there."""
    return tuple(_launch(part, config) for part in _grammar(config).read(text))


def _grammar(config: Config) -> Grammar:
    directives = {
        ".base": Directive(named=dict.fromkeys(REGISTERS, ADDRESS)),
        ".segment": Directive(
            {"name": NAME},
            {"address": ADDRESS, "size": number("#x"), "kind": choice(KINDS)},
            required=("address", "kind"),
            unique=True,
            data=lambda values: values.get("size") if values["kind"] in CARRIED else 0,
        ),
        ".insn": Directive(code=isa.notation(config.formats, config.pipeline).read),
        ".uop": Directive(code=isa.uop_form(config.formats.uop).read),
    }
    return Grammar(directives, name=NAME, opening=".insn", unnamed="asm", zeros=True)


def _sections(launch: Launch, config: Config) -> Iterator[Section]:
    image = image_of(launch)
    if any(image.bases.values()):
        yield Section(".base", image.bases)
    uops = np.zeros(0, np.uint8)
    for segment in image.segments:
        data = image.data.get(segment.name, np.zeros(0, np.uint8))
        if segment.name == "uop" and segment.kind in CARRIED and segment.size % config.uop.tile_bytes == 0:
            uops, data = data, data[:0]
        yield Section(".segment", vars(segment), data.tobytes())
    yield Section(".insn", code=isa.instructions(image.insns, config))
    yield Section(".uop", code=isa.micro_ops(uops.reshape(-1, config.uop.tile_bytes), config))


def _launch(text: Text, config: Config) -> Launch:
    uops = config.formats.uop.encode_rows(text.code(".uop"))
    sections = {section.values["name"]: section for section in text.of(".segment")}
    if uops.size:
        sections = sections if "uop" in sections else {"uop": _undeclared_uops(), **sections}
        _fill(sections["uop"], uops)
    segments = tuple(_segment(section) for section in sections.values())
    _refuse_overlap(segments, sections)
    carried = [segment for segment in segments if segment.kind in CARRIED]
    data = {"uop": np.zeros(0, np.uint8)}
    data |= {one.name: np.frombuffer(sections[one.name].data.ljust(one.size, b"\0"), np.uint8) for one in carried}
    bases = dict.fromkeys(REGISTERS, 0)
    for section in text.of(".base"):
        bases |= section.values
    return LaunchImage(encode(text.code(".insn"), config), segments, data, bases).launch(text.name)


def _undeclared_uops() -> Section:
    return Section(".segment", {"name": "uop", "address": 0, "kind": "const"}, bytearray())


def _segment(section: Section) -> DramSegment:
    values = section.values
    if values["kind"] not in CARRIED and "size" not in values:
        section.refuse("", "size= after it, as it has no bytes here")
    return DramSegment(values["name"], values["address"], values.get("size", len(section.data)), values["kind"])


def _fill(section: Section, uops: Raw) -> None:
    """Micro-ops as the bytes of the segment `uop`."""
    if section.values["kind"] != "const" or section.data:
        section.refuse("name", "a const segment without bytes of its own, as there are micro-ops for it")
    if section.values.get("size", uops.size) < uops.size:
        section.refuse("size", f"{uops.size} or more for its {len(uops)} micro-ops")
    section.data = uops.tobytes()


def _refuse_overlap(segments: tuple[DramSegment, ...], sections: dict[str, Section]) -> None:
    for one, other in pairwise(sorted(segments, key=lambda segment: segment.address)):
        if (end := one.address + one.size) > other.address:
            reason = f"an address that is not in '{one.name}' {one.address:#x}..{end:#x}"
            sections[other.name].refuse("address", reason)
