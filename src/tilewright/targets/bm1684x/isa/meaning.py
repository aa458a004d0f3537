"""Which operation an encoded command is, on which memory."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilewright.errors import ProgramError, TilewrightError
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa import arithmetic, moves, neural
from tilewright.targets.bm1684x.isa.stream import Encoded

#: Elements of an operand: with strides of 0, fields of a few bits could else name more than any computer holds.
MOST_ELEMENTS = 1 << 26
FORMATS: dict[str, Callable[[Encoded, Config], Command]] = {
    "AR": arithmetic.arithmetic,
    "RQ&DQ": arithmetic.quantisation,
    "SFU": arithmetic.special,
    "CMP": arithmetic.comparison,
    "LIN": arithmetic.linear,
    "CONV": neural.convolution,
    "PorD": neural.pooling,
    "MM": neural.matrix,
    "MM2": neural.matrix_by_rows,
    "TRANS&BC": moves.transposed,
    "SG": moves.gathered,
    "DMA_tensor": moves.tensor,
    "DMA_cw_transpose": moves.cw_transposed,
    "DMA_matrix": moves.matrix,
    "DMA_general": moves.general,
    "DMA_gather": moves.by_index,
    "DMA_scatter": moves.by_index,
}


def command_of(encoded: Encoded, config: Config) -> Command:
    """What a command does. Raises ProgramError for what is not modelled, or names nothing that exists.

    Long forms of the compute engine are decoded but not run: no program with one was available to learn from.
    """
    build = FORMATS.get(encoded.format.name)
    long = not encoded.format.short and encoded.engine == "tiu"
    if build is None or long:
        raise ProgramError(str(encoded), f"{'long ' if long else ''}{encoded.format.name} commands are not modelled")
    try:
        command = build(encoded, config)
    except ProgramError:
        raise
    except (TilewrightError, ValueError, KeyError) as error:
        raise ProgramError(str(encoded), str(error)) from None
    for operand in (*command.operands.values(), *command.results.values()):
        if not isinstance(operand, Constant) and prod(operand.shape) > MOST_ELEMENTS:
            raise ProgramError(
                str(encoded), f"an operand has {prod(operand.shape)} elements; {MOST_ELEMENTS} can be run"
            )
    return command
