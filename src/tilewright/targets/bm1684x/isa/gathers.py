"""Encodings of the compute engine's gathers, scatters and selections: the formats SG and SGL.

The fields follow the vendor's debugger and commands that the vendor's library writes. Functions 13, 14 and 15 do what
5, 6 and 8 do; the vendor's compiler chooses them where operands are in the same banks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.parts import (
    Again,
    Fields,
    Instruction,
    Layout,
    Local,
    Number,
    Part,
    Sizes,
    Type,
)
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import U16, DType

#: Moves copy bits, so the types are unsigned.
BITS, INDEX = Type("res0_prec"), Type("opd1_prec")
#: The code of opd0_str for a table that all channels of a lane share, and the code for rows that begin at 64 bytes.
SHARED, BY_ROWS = 4, 3
#: Copies of the table of pe_gather_4bank. Each begins an eighth of a lane after the one before.
COPIES, EIGHTHS = 4, 8


def in_each_lane(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Return the strides of a table of which each lane has one copy, for all n and c."""
    return Stride(0, 0, layout.line(shape, dtype, 0, config).h, 1)


def in_four_banks(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Return the strides of four copies of a table with a row per channel."""
    one = layout.aligned(Shape(1, *shape[1:]), dtype, start, config)
    return one._replace(n=config.lane_bytes // EIGHTHS // dtype.bytes)


def once_in_four_banks(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Return the strides of four copies of one row, in each lane."""
    return in_four_banks(shape, dtype, start, config)._replace(c=0)


@dataclass(frozen=True)
class Table(Local):
    """How the tensor that a command gathers from, or scatters, is encoded: one per channel, or one for all channels."""

    per_channel: tuple[int, Layout] = (0, layout.aligned)
    shared: Layout = in_each_lane

    def strides(self, encoded: Encoded) -> Layout | Stride:
        return self.shared if encoded["opd0_str"] == SHARED else self.per_channel[1]

    def codes(self, command: Command, tensor: Tensor) -> Fields:
        return {"opd0_str": SHARED if tensor.stride.c == 0 else self.per_channel[0]}


ROW, PLANE = Sizes("1 res0_c opd0_h opd0_w"), Sizes("res0_n res0_c opd0_h opd0_w")
LINES = Table("x", "opd0", BITS, Sizes("1 res0_c opd0_h res0_w"), per_channel=(BY_ROWS, layout.line))
Y, LINED = Local("y", "res0", BITS, layout=layout.aligned), Local("y", "res0", BITS, layout=layout.line)
X, BY_CHANNEL = Local("x", "opd0", BITS, PLANE, layout.aligned), Table("x", "opd0", BITS, ROW)
COPIED = Table(
    *("x", "opd0", BITS, Sizes(f"{COPIES} res0_c opd0_h opd0_w")),
    per_channel=(BY_ROWS, in_four_banks),
    shared=once_in_four_banks,
)
SINGLE = Local("index", "opd1", INDEX, Sizes("1 opd1_c 1 opd1_w"), layout.compact)
PAIRS = Local("index", "opd1", INDEX, Sizes("1 opd1_c 1 2"), layout.compact)
OWN = Local("index", "opd1", INDEX, Sizes("res0_n res0_c 1 opd1_w"), layout.aligned, noted=Sizes("- opd1_c - opd1_w"))
NUMBER = Number("other", "opd2_addr", "opd2_const", BITS)


def _gather(
    name: str, functions: tuple[int, ...], operation: str, parts: tuple[Part, ...], y: Local
) -> Iterator[Instruction]:
    """Yield the instructions of a gather: with a number for exceptions, with exceptions that keep y, and without."""
    for function in functions:
        for excepts, writes, more in ((1, 1, (NUMBER,)), (1, 0, (Again("kept", y),)), (0, 0, ())):
            chosen = {"tsk_eu_typ": function, "opd3_const": excepts, "opd2_const": writes}
            takes = partial(_has_exceptions, {part.own for part in more})
            yield Instruction(name, operation, (*parts, *more, y), chosen, takes=takes)


def _has_exceptions(wanted: set[str], command: Command) -> bool:
    """Return whether a gather has exactly the `wanted` ones of the operands of exceptions."""
    return {"other", "kept"} & command.operands.keys() == wanted


def _scatter(name: str, function: int, operation: str, parts: tuple[Part, ...], y: Local) -> Instruction:
    return Instruction(name, operation, (*parts, Again("y_before", y), y), {"tsk_eu_typ": function})


COUNT = Local("counts", "res1", Type(0, always=U16), Sizes("res0_n res0_c 1 1"), layout.compact)
MASK = Local("mask", "opd1", INDEX, Sizes("res0_n res0_c 1 opd1_w"), layout.aligned, noted=Sizes("- opd1_c - opd1_w"))
#: The index of a gather or scatter of rows.
ROWS_TO, ROWS_FROM = (
    Local("index", "opd1", INDEX, Sizes(f"res0_n res0_c {height} 1"), layout.aligned) for height in ("res0_h", "opd0_h")
)
INSTRUCTIONS = (
    *_gather("SG", (0,), "w_gather", (X, SINGLE), Y),
    *_gather("SG", (1,), "hw_gather", (X, PAIRS), Y),
    *_gather("SG", (5, 13), "pe_gather", (BY_CHANNEL, OWN), Y),
    *_gather("SG", (7,), "pe_gather_4bank", (COPIED, OWN), Y),
    *_gather("SGL", (17,), "h_gather", (LINES, ROWS_TO), LINED),
    _scatter("SGL", 18, "h_scatter", (LINES, ROWS_FROM), LINED),
    _scatter("SG", 4, "hw_scatter", (X, PAIRS), Y),
    _scatter("SG", 3, "w_scatter", (X, SINGLE), Y),
    *(_scatter("SG", function, "pe_scatter", (BY_CHANNEL, OWN), Y) for function in (6, 14)),
    *(
        Instruction("SG", "w_mask_select", (BY_CHANNEL, MASK, Again("y_before", Y), COUNT, Y), {"tsk_eu_typ": function})
        for function in (8, 15)
    ),
)
