"""The text of VTA's instructions and micro-ops, exact in both directions (tilewright/program/instruction.py).

    load inp sram_base=0 dram_base=64 y_size=1 x_size=16 x_stride=16 pop:compute push:compute
    alu add uop_bgn=0 uop_end=1 iter_out=1 iter_in=16 dst_factor_in=1 use_imm=1 imm=-3 push:store
    dst=0 src=0 wgt=0

The last is a micro-op. A token names the unit at the other end (`prev` or `next` where there is no queue). Opcodes and
ids that do not exist are written `op5`, `mem6`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.program.instruction import RESERVED, Form, Layout, Names, Notation, Raw, rows
from tilewright.targets.vta.isa.fields import COMMON, FORMAT_OF, AluOp, Formats, Memory, Opcode
from tilewright.targets.vta.isa.pipeline import POP_BITS, PUSH_BITS, Pipeline
from tilewright.targets.vta.isa.stream import COMMON_NAMES, Stream, decode

if TYPE_CHECKING:
    from tilewright.targets.vta.config import Config

#: What the word behind the mnemonic says, by format.
PLAIN = {"mem": ("memory_type",), "alu": ("alu_opcode",)}
NAMES = {"memory_type": Names.of(Memory, "mem"), "alu_opcode": Names.of(AluOp, "op")}
#: Left out when 0, so that the usual instruction is short.
USUALLY_ZERO = ("reset_reg", "use_imm", "imm", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")


@lru_cache
def _tokens(line: Pipeline) -> tuple[dict[str, str], ...]:
    """By unit, the word for each token bit: {"pop_prev": "pop:load", ..}."""
    found = []
    for unit in range(len(line.units)):
        words = {}
        for bit in (*POP_BITS, *PUSH_BITS):
            verb, side = bit.split("_")
            other = line.neighbour(unit, bit)
            words[bit] = f"{verb}:{side if other is None else line.units[other]}"
        found.append(words)
    return tuple(found)


@lru_cache
def notation(formats: Formats, pipeline: Pipeline) -> Notation:
    """The lines of a machine's instructions."""
    forms = {}
    for code in range(COMMON[0].high + 1):
        form = FORMAT_OF.get(code, "plain")
        layout, plain = formats.by_name[form], PLAIN.get(form, ())
        operands = tuple(name for name in layout.by_name if name not in (*COMMON_NAMES, *plain))
        forms[code] = Form(layout, (*operands, RESERVED), plain, USUALLY_ZERO, NAMES)
    tokens = _tokens(pipeline)

    def flags(values: Mapping[str, int]) -> Mapping[str, str]:
        return tokens[pipeline.unit_of(values["opcode"], values.get("memory_type", 0))]

    return Notation("opcode", Names.of(Opcode, "op"), forms, flags)


def uop_form(layout: Layout) -> Form:
    """The line of a micro-op."""
    return Form(layout, (*layout.by_name, RESERVED))


def instructions(insns: Raw, config: Config) -> list[str]:
    """The lines of instructions, uint8 [n, 16]."""
    known = notation(config.formats, config.pipeline)
    return [known.show(values) for values in _rows(decode(insns, config, strict=False))]


def micro_ops(uops: Raw, config: Config) -> list[str]:
    """The lines of micro-ops, uint8 [m, 4]."""
    layout = config.formats.uop
    form, others = uop_form(layout), _integers(layout.reserved(uops))
    return [
        form.show({**values, RESERVED: other}) for values, other in zip(rows(layout.decode(uops)), others, strict=True)
    ]


def _rows(stream: Stream) -> Iterator[dict[str, int]]:
    """The fields of each instruction."""
    common = rows({name: getattr(stream, name) for name in COMMON_NAMES})
    parts = {form: rows(vars(getattr(stream, form))) for form in ("mem", "gemm", "alu")}
    for row, (values, reserved) in enumerate(zip(common, _integers(stream.reserved), strict=True)):
        form = FORMAT_OF.get(values["opcode"])
        yield values | (parts[form][row] if form else {}) | {RESERVED: reserved}


def _integers(reserved: Raw) -> list[int]:
    """Each row as one little-endian integer."""
    if not reserved.any():
        return [0] * len(reserved)
    return [int.from_bytes(row.tobytes(), "little") for row in reserved]
