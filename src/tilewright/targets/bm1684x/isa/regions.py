"""Encodings of pools and depthwise convolutions over regions of interest: three functions of the format PorD."""

from __future__ import annotations

from typing import Any

from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.neural import LIKE_SOURCE, SOURCE, TAPS
from tilewright.targets.bm1684x.isa.parts import (
    FLOAT,
    INTEGER,
    Computed,
    Fields,
    Instruction,
    Local,
    Number,
    Part,
    Sizes,
    Type,
)
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.values.dtypes import U8, U16
from tilewright.targets.bm1684x.values.window import Window

DEPTHWISE, AVERAGE, MAXIMUM = 5, 6, 7


def _window(encoded: Encoded) -> Window:
    return Window((encoded["opd1_h"], encoded["opd1_w"]))


def _window_fields(command: Command) -> Fields:
    height, width = command.attributes["window"].kernel
    return {"opd1_h": height, "opd1_w": width}


WINDOW = Computed("window", _window, _window_fields)
X = Local("x", "opd0", SOURCE, Sizes("res0_n res0_c opd0_h opd0_w"))
REGIONS = Local("rois", "opd3", Type(0, always=U16), Sizes("1 res0_w 1 4"), layout.compact)
OUTSIDE = Number("pad", "opd2_addr", "opd2_const", SOURCE)
BY_FACTORS = Local("y", "res0", Type("res0_prec", ("opd0_sign", "opd1_sign")))


def _scale(of: Type) -> Number:
    return Number("scale", "opd1_addr", "opd1_const", of)


def _regions(function: int, operation: str, *parts: Part, **more: Any) -> Instruction:
    return Instruction(
        "PorD", operation, (*parts[:-1], X, REGIONS, OUTSIDE, WINDOW, parts[-1]), {"tsk_eu_typ": function}, **more
    )


INSTRUCTIONS = (
    _regions(MAXIMUM, "roi_max_pool2d", LIKE_SOURCE),
    _regions(AVERAGE, "fp_roi_avg_pool2d", _scale(SOURCE), LIKE_SOURCE, of=FLOAT),
    _regions(AVERAGE, "int8_roi_avg_pool2d", _scale(Type(0, always=U8)), BY_FACTORS, of=INTEGER),
    _regions(DEPTHWISE, "int8_roi_depthwise2d", TAPS, BY_FACTORS, of=INTEGER),
)
