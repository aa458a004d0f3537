"""Instructions and micro-ops as the text of a launch, without its segments."""

from __future__ import annotations

from tilewright.program.instruction import Raw
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa import text
from tilewright.targets.vta.isa.fields import UOP_BYTES


def disassemble(insns: Raw, uops: Raw, config: Config, numbered: bool = False) -> str:
    """The text of `insns` uint8 [n, 16] and `uops` uint8 [m, 4]; `numbered` adds each line's index."""
    code, tables = text.instructions(insns, config), text.micro_ops(uops, config)
    if numbered:
        code, tables = ([f"{line}  # {i}" for i, line in enumerate(lines)] for lines in (code, tables))
    return "\n".join([".insn", *code, ".uop", *tables]) + "\n"


def assemble(source: str, config: Config) -> tuple[Raw, Raw]:
    """The code of a text of one launch: instructions uint8 [n, 16] and micro-ops uint8 [m, 4]."""
    (launch,) = text.assemble(source, config)
    return launch.arrays["insns"], launch.arrays["dram.uop"].reshape(-1, UOP_BYTES)
