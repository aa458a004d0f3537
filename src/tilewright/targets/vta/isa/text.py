"""The text form of VTA launches: the DRAM segments, their bytes, and the code. Reading the text restores the launch.

    .launch conv
    .base uop=0x0 inp=0x0 wgt=0x0 acc=0x0 out=0x0
    .segment wgt address=0x1000 size=0x100 kind=const
    0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20
    zero 224
    .segment x address=0x2000 size=0x200 kind=input
    .segment uop address=0x3000 kind=const
    .insn
    load inp sram_base=0 dram_base=64 y_size=1 x_size=16 x_stride=16 pop:compute push:compute
    alu add uop_bgn=0 uop_end=1 iter_out=1 iter_in=16 dst_factor_in=1 use_imm=1 imm=-3 push:store
    finish
    .uop
    dst=0 src=0 wgt=0

program/listing.py defines the syntax of segments, program/instruction.py the syntax of code lines. A token names the
unit at the far end of its queue (`prev` or `next` if there is no queue). Own ALU operations (Config.own_alu) are
written by name, unknown opcodes and memory ids as `op5` and `mem6`. Micro-ops are the bytes of the const segment `uop`,
at address 0 unless the launch declares it. Lines before the first `.launch` form a launch named `asm`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.program.instruction import RESERVED, Form, Layout, Names, Notation, Raw, rows
from tilewright.program.listing import Directive, Grammar, Section, Text, image_directives, image_sections, read_image
from tilewright.program.program import Launch, Program
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import COMMON, FORMAT_OF, POP_BITS, PUSH_BITS, REGIONS, Memory, Opcode, Pipeline
from tilewright.targets.vta.isa.stream import COMMON_NAMES, encode, groups, image_of

#: By format, the fields to write as plain words after the mnemonic.
PLAIN = {"mem": ("memory_type",), "alu": ("alu_opcode",)}
#: Fields omitted if 0, to keep common instructions short.
USUALLY_ZERO = ("reset_reg", "use_imm", "imm", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")


def disassemble(program: Program, config: Config) -> str:
    """Return the text form of a program's launches."""
    grammar = _grammar(config)
    return "\n".join(grammar.write(_text(launch, config)) for launch in program.launches)


def assemble(text: str, config: Config) -> tuple[Launch, ...]:
    """Return the launches of a text. Raises ProgramError with the line, the column and the expected input."""
    return tuple(_launch(part, config) for part in _grammar(config).read(text))


def instructions(insns: Raw, config: Config) -> list[str]:
    """Return one line of text for each instruction in `insns`, uint8 [n, 16]."""
    notation = _notation(config)
    lines = [""] * len(insns)
    for _, layout, mine in groups(config.formats.plain.decode(insns)["opcode"], config):
        for row, line in zip(mine.tolist(), _lines(notation.show, layout, insns[mine]), strict=True):
            lines[row] = line
    return lines


def micro_ops(uops: Raw, config: Config) -> list[str]:
    """Return one line of text for each micro-op in `uops`, uint8 [m, 4]."""
    return _lines(_uop_form(config).show, config.formats.uop, uops)


def _lines(show: Callable[[Mapping[str, int]], str], layout: Layout, code: Raw) -> list[str]:
    """Return a text line for each row of `code`. Bits outside all fields become one little-endian integer."""
    reserved = layout.reserved(code)
    others = [int.from_bytes(row.tobytes(), "little") for row in reserved] if reserved.any() else [0] * len(code)
    return [show(row | {RESERVED: bits}) for row, bits in zip(rows(layout.decode(code)), others, strict=True)]


@lru_cache
def _notation(config: Config) -> Notation:
    forms = {}
    formats = config.formats
    pipeline = config.pipeline
    operations = {int(op): op.name.lower() for op in AluOp} | {
        operation.opcode: operation.name for operation in config.own_alu
    }
    names = {
        "memory_type": Names.of(Memory, "mem"),
        "alu_opcode": Names(tuple(operations.get(code, f"op{code}") for code in range(max(operations) + 1)), "op"),
    }
    for code in range(COMMON[0].high + 1):
        form = FORMAT_OF.get(code, "plain")
        layout = formats.by_name[form]
        plain = PLAIN.get(form, ())
        operands = tuple(name for name in layout.by_name if name not in (*COMMON_NAMES, *plain))
        forms[code] = Form(layout, (*operands, RESERVED), plain, USUALLY_ZERO, names)
    tokens = [_tokens(pipeline, unit) for unit in range(len(pipeline.units))]

    def flags(values: Mapping[str, int]) -> Mapping[str, str]:
        return tokens[pipeline.unit_of(values["opcode"], values.get("memory_type", 0))]

    return Notation("opcode", Names.of(Opcode, "op"), forms, flags)


def _tokens(line: Pipeline, unit: int) -> dict[str, str]:
    """Return the word in the text for each token bit of a unit: {"pop_prev": "pop:load", ..}."""
    words = {}
    for bit in (*POP_BITS, *PUSH_BITS):
        verb, side = bit.split("_")
        neighbour = unit + (1 if side == "next" else -1)
        words[bit] = f"{verb}:{line.units[neighbour] if 0 <= neighbour < len(line.units) else side}"
    return words


def _uop_form(config: Config) -> Form:
    return Form(config.formats.uop, (*config.formats.uop.by_name, RESERVED))


def _grammar(config: Config) -> Grammar:
    directives = {
        **image_directives(REGIONS),
        ".insn": Directive(code=_notation(config).read),
        ".uop": Directive(code=_uop_form(config).read),
    }
    return Grammar(directives, opening=".insn", unnamed="asm")


def _text(launch: Launch, config: Config) -> Text:
    image = image_of(launch)
    uops = np.zeros(0, np.uint8)
    size = config.uop.tile_bytes
    if "uop" in image.data and image.data["uop"].size % size == 0:
        uops = image.data["uop"]
        image = replace(image, data={**image.data, "uop": uops[:0]})
    code = Section(".insn", code=instructions(image.insns, config))
    tables = Section(".uop", code=micro_ops(uops.reshape(-1, size), config))
    return Text(launch.name, sections=[*image_sections(image), code, tables])


def _launch(text: Text, config: Config) -> Launch:
    uops = config.formats.uop.encode_rows(text.code(".uop"))
    if uops.size:
        _fill(text, uops)
    image = read_image(text, encode(text.code(".insn"), config), REGIONS)
    return replace(image, data={"uop": np.zeros(0, np.uint8), **image.data}).launch(text.name)


def _fill(text: Text, uops: Raw) -> None:
    """Set the bytes of the segment `uop` to the micro-ops, declaring the segment if the text does not."""
    sections = [section for section in text.of(".segment") if section.values["name"] == "uop"]
    if not sections:
        sections = [Section(".segment", {"name": "uop", "address": 0, "kind": "const"})]
        text.sections[:0] = sections  # in front of all others
    (section,) = sections
    if section.values["kind"] != "const" or section.data:
        section.words["name"].refuse("a const segment without bytes of its own, because .uop gives its bytes")
    if section.values.get("size", uops.size) < uops.size:
        section.words["size"].refuse(f"{uops.size} or more for its {len(uops)} micro-ops")
    section.data = uops.tobytes()
