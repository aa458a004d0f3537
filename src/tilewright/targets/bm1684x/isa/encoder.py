"""Commands as encoded ones: what `meaning.py` reads, written; and whether reading it again gives the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.dtypes import Rounding
from tilewright.targets.bm1684x.isa import arithmetic, write_arithmetic, write_moves, write_neural
from tilewright.targets.bm1684x.isa.formats import FORMATS
from tilewright.targets.bm1684x.isa.meaning import command_of
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.isa.written import Writer, refused
from tilewright.targets.bm1684x.operations import DMA, OPTIONAL
from tilewright.targets.bm1684x.tensor import Operand

WRITERS: Mapping[str, Writer] = {**write_arithmetic.WRITERS, **write_neural.WRITERS, **write_moves.WRITERS}
#: Operations that are sequences of commands.
SEQUENCES = ("fp_exp", "fp_sigmoid", "fp_log")
#: Attributes, and what stands for one that is not given.
ATTRIBUTES: Mapping[str, Any] = {
    "mode": Rounding.HALF_TO_EVEN,
    "source_mode": Rounding.HALF_TO_EVEN,
    **dict.fromkeys(("saturate", "rotated", "relu", "left_transposed", "right_transposed", "both_transposed"), False),
    **dict.fromkeys(("right", "pad"), 0),
    "steps": 3,
    "window": None,
}


def encoded(command: Command, number: int, needs: int) -> Encoded:
    """The command with its `number` (from 0) in its queue; `needs`: the other engine's command that it waits for.

    Raises ProgramError for an operation without a known format. That the fields say all of it is the caller's to know,
    or to have `checked`.
    """
    name, engine = command.operation.name, command.operation.engine
    if name in SEQUENCES:
        raise refused(command, "it is a sequence of commands", "use `functions`, which issues them one by one")
    if name not in WRITERS:
        raise refused(command, "the fields of such a command are not known", "use other commands, or do not save it")
    written = WRITERS[name](command)
    form = FORMATS[written.format, engine != DMA]
    fields = {**written.fields, "cmd_id": number + 1, "cmd_id_dep": needs, "cmd_id_en": 1}
    return Encoded(engine, number, form, {field: fields.get(field, 0) for field in form.names})


def checked(command: Command, number: int, needs: int, config: Config) -> Encoded:
    """`encoded`, and read again. Raises ProgramError where the format has no field for a part of the command."""
    found = encoded(command, number, needs)
    if reason := _difference(command, command_of(found, config)):
        name = found.format.name
        raise refused(command, f"{name} has no field for it: {reason}", "lay operands out as it takes them")
    return found


def _difference(meant: Command, read: Command) -> str:
    """What is not said by the fields, empty where all is."""
    if meant.operation is not read.operation:
        return f"it would be {read.operation.name}"
    shape = next(iter(meant.results.values())).shape
    for name in sorted({*meant.operands, *read.operands, *meant.results, *read.results}):
        one, other = (command.results.get(name, command.operands.get(name)) for command in (meant, read))
        chosen = name in ("c", "d", "y") and meant.operation.name in arithmetic.COMPARISONS.values()
        if not _same(name, one, other, shape, chosen or meant.operation.name in write_moves.WRITERS):
            return f"{name} lies otherwise or has another type"
    for name, default in ATTRIBUTES.items():
        values = [command.attributes.get(name, default) for command in (meant, read)]
        if values[0] != values[1]:
            return f"{name} is {values[1]}, not {values[0]}"
    return ""


def _same(
    name: str, meant: Operand | Constant | None, read: Operand | Constant | None, shape: tuple[int, ...], moves: bool
) -> bool:
    """Whether two operands are the same elements, or the same number. `moves`: bits are kept, whatever their type."""
    if isinstance(meant, Constant | None) and isinstance(read, Constant | None):
        if meant is None or read is None:  # a constant of 0 is none
            given = meant or read
            return given is None or (name in OPTIONAL and not given.bits)
        if moves:
            return meant.bits == read.bits
        return bool(meant.value == read.value) or (meant.dtype, meant.bits) == (read.dtype, read.bits)
    if meant is None or read is None or isinstance(meant, Constant) or isinstance(read, Constant):
        return False
    if meant.dtype.bytes != read.dtype.bytes or (meant.dtype != read.dtype and not moves):
        return False
    return meant == read or bool(np.array_equal(_spread(meant, shape), _spread(read, shape)))


def _spread(operand: Operand, shape: tuple[int, ...]) -> Array:
    """Addresses; over the result's shape, where it is one of repeated elements."""
    addresses = operand.addresses
    try:
        return np.broadcast_to(addresses, shape)
    except ValueError:
        return addresses
