"""Pools and depthwise convolutions over regions of interest: each column of the result has its own window.

Each column of the result has a region of x. `rois` (1, columns, 1, 4), u16, gives the region as four numbers: the
column and the row of its first element, then the column and the row of its last element (measured). The window begins
at the first element. Elements of the window below or to the right of the last element have the value `pad`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.operation import TIU, Flow, Values, define
from tilewright.targets.bm1684x.isa.operations.convolutions import LIKE_SOURCE, SOURCE, TAPS, largest
from tilewright.targets.bm1684x.isa.parts import (
    FLOAT,
    INTEGER,
    ComputedPart,
    Instruction,
    Local,
    Number,
    Part,
    Sizes,
    Type,
)
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.values import conv
from tilewright.targets.bm1684x.values.dtypes import I8, I16, U8, U16
from tilewright.targets.bm1684x.values.floats import wrap
from tilewright.targets.bm1684x.values.window import Window


def _chosen(v: Values) -> tuple[Array, Array, Array]:
    kh, kw = v.attribute("window").kernel
    height, width = v["x"].shape[2:]
    left, top, right, bottom = np.moveaxis(v["rois"].astype(np.int64)[0, :, 0], 1, 0)
    rows = (top[:, None] + np.arange(kh))[:, :, None]
    columns = (left[:, None] + np.arange(kw))[:, None, :]
    inside = (rows <= bottom[:, None, None]) & (columns <= right[:, None, None])
    # Only elements inside of a region are read, so only these elements must lie inside x.
    bad = inside & ((rows >= height) | (columns >= width))
    if bad.any():
        number = int(np.argmax(bad.any((1, 2))))
        region = f"columns {left[number]}..{right[number]}, rows {top[number]}..{bottom[number]}"
        reason = f"region {number} has {region}, but x has {height} rows of {width} columns"
        raise MachineError("rois", reason, "give regions whose windows stay within x")
    # shapes: (windows, kh, 1), (windows, 1, kw) and (windows, kh, kw)
    return rows, columns, inside


def _taps(v: Values) -> Array:
    rows, columns, inside = _chosen(v)
    # Positions outside of a region read element (0, 0), and are then replaced by `pad`.
    elements = v["x"][:, :, np.where(inside, rows, 0), np.where(inside, columns, 0)]
    return np.where(inside, elements, v["pad"]).transpose(0, 1, 3, 4, 2)[:, :, :, :, None]


def touched(v: Values, results: Mapping[str, Array]) -> dict[str, Array]:
    """Return a mask of the elements of x that lie in any region."""
    rows, columns, inside = _chosen(v)
    read = np.zeros(v["x"].shape, np.bool_)
    at = np.broadcast_arrays(rows, columns)
    read[:, :, at[0][inside], at[1][inside]] = True
    return {"x": read}


def maximum(v: Values) -> Array:
    return largest(_taps(v), v.types["x"])


def float_average(v: Values) -> Array:
    """Multiply each element by `scale`, and return the sum of each window."""
    return conv.float_depthwise(_taps(v), v["scale"], v.types["x"], [])


def integer_sum(name: str, v: Values) -> Array:
    """Return, for each window, the sum of its elements times the operand `name`: weights per channel, or one number."""
    shape = (v["x"].shape[1], *v.attribute("window").kernel)
    weights = v[name].reshape(shape) if v[name].ndim else np.broadcast_to(v[name], shape)
    return wrap(conv.integer_depthwise(_taps(v), weights), v.types["y"])


inputs = (rules.same_type("x", "pad"), rules.of("rois", U16))
eight = rules.of("x", I8, U8)
wide = rules.of("y", I16, U16)
signed = rules.signed_as_its_sources("x", "w")
regions = partial(define, TIU, flow=Flow.WINDOW, deciding=("rois",), touches=touched)
regions("roi_max_pool2d", "x rois pad", maximum, *inputs, rules.same_type("x", "y"), arithmetic=("compare",))
floats = rules.floats("x", "scale", "y")
regions("fp_roi_avg_pool2d", "x rois pad scale", float_average, *inputs, floats, arithmetic=("add",))
for name, factor in (("avg_pool2d", "scale"), ("depthwise2d", "w")):
    checks = (*inputs, eight, rules.of("w", I8, U8), rules.of("scale", U8), wide, signed)
    regions(f"int8_roi_{name}", f"x rois pad {factor}", partial(integer_sum, factor), *checks, arithmetic=("add",))


DEPTHWISE = 5
AVERAGE = 6
MAXIMUM = 7


WINDOW = ComputedPart(
    lambda encoded: {"window": Window((encoded["opd1_h"], encoded["opd1_w"]))},
    lambda command: dict(zip(("opd1_h", "opd1_w"), command.attributes["window"].kernel, strict=True)),
)
X = Local("x", "opd0", SOURCE, Sizes("res0_n res0_c opd0_h opd0_w"))
REGIONS = Local("rois", "opd3", Type(0, always=U16), Sizes("1 res0_w 1 4"), layout.compact)
OUTSIDE = Number("pad", "opd2_addr", "opd2_const", SOURCE)
BY_FACTORS = Local("y", "res0", Type("res0_prec", ("opd0_sign", "opd1_sign")))


_scaled = partial(Number, "scale", "opd1_addr", "opd1_const")


def _regions(function: int, operation: str, *parts: Part, **more: Any) -> Instruction:
    return Instruction(
        "PorD", operation, (*parts[:-1], X, REGIONS, OUTSIDE, WINDOW, parts[-1]), {"tsk_eu_typ": function}, **more
    )


INSTRUCTIONS = (
    _regions(MAXIMUM, "roi_max_pool2d", LIKE_SOURCE),
    _regions(AVERAGE, "fp_roi_avg_pool2d", _scaled(SOURCE), LIKE_SOURCE, of=FLOAT),
    _regions(AVERAGE, "int8_roi_avg_pool2d", _scaled(Type(0, always=U8)), BY_FACTORS, of=INTEGER),
    _regions(DEPTHWISE, "int8_roi_depthwise2d", TAPS, BY_FACTORS, of=INTEGER),
)
