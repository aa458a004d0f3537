"""Encodings of convolutions, pooling and matrix products: the formats CONV, PorD, MM and MM2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operations.base import attribute
from tilewright.targets.bm1684x.isa.parts import (
    CHANNEL,
    FLOAT,
    INTEGER,
    Again,
    Computed,
    Fields,
    Instruction,
    Local,
    Number,
    Optional,
    Part,
    Sizes,
    Type,
    of_kind,
    one_field,
)
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Matrix
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I32, U8, Rounding
from tilewright.targets.bm1684x.values.window import Window

#: An operand 2 that is left out is encoded as the constant 0.
NOTHING = {"opd2_const": 1, "opd2_addr": 0}
SOURCE, WEIGHT = Type("opd0_prec", "opd0_sign"), Type("opd0_prec", "opd1_sign")
REAL_RESULT = Local("y", "res0", Type("res0_prec", 1))
ROTATED = one_field("rotated", "kernel_rotate", bool)


#: The fields of each part of a window, and a number to add to each field when it is read.
WINDOW_FIELDS = {
    "kernel": (("opd1_h", "opd1_w"), 0),
    "pads": (("opd0_up_pad", "opd0_dn_pad", "opd0_lf_pad", "opd0_rt_pad"), 0),
    "stride": (("res_op_y_str", "res_op_x_str"), 0),
    "dilation": (("opd1_y_ins0", "opd1_x_ins0"), 1),
    "inserted": (("opd0_y_ins0", "opd0_x_ins0"), 0),
}


def _window(encoded: Encoded) -> Window:
    parts: dict[str, Any] = {
        part: tuple(encoded[name] + more for name in names) for part, (names, more) in WINDOW_FIELDS.items()
    }
    return Window(**parts)


def _window_fields(command: Command) -> Fields:
    given = command.attributes["window"]
    parts = ((names, getattr(given, part), more) for part, (names, more) in WINDOW_FIELDS.items())
    return {name: value - more for names, values, more in parts for name, value in zip(names, values, strict=True)}


def _padding(encoded: Encoded) -> int:
    return int(SOURCE.read(encoded).from_bits(encoded["opd3_addr"]))


def _padding_fields(command: Command) -> Fields:
    bits = command.types["x"].bits
    return {"opd3_const": 1, "opd3_addr": attribute(command.attributes, "pad") & ((1 << bits) - 1)}


WINDOW = Computed("window", _window, _window_fields)
#: The padding value of integers. A convolution pads with 0 unless a flag is set.
PAD = Computed("pad", _padding, _padding_fields)
FLAGGED_PAD = Computed("pad", lambda c: _padding(c) if c["opd3_const"] else 0, _padding_fields)


@dataclass(frozen=True)
class Weights:
    """How the weights of a convolution are encoded. They have the layout that the cube (matrix unit) needs."""

    own = "w"
    type = WEIGHT
    sizes = Sizes("res0_c opd0_c opd1_h opd1_w")

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        oc, ic, kh, kw = self.sizes.read(encoded)
        return {"w": ConvWeights(encoded["opd1_addr"] + LOCAL_BASE, (oc, ic, kh, kw), WEIGHT.read(encoded), config)}

    def write(self, command: Command) -> Fields:
        weights = of_kind(command, "w", ConvWeights, "w is not a convolution's weights", "give tpu.weights(..)")
        return {"opd1_addr": weights.address - LOCAL_BASE} | WEIGHT.write(weights.dtype)


def _signed_conv(encoded: Encoded) -> bool:
    """Return whether a convolution's integer sums are signed: a factor is signed or a zero point is subtracted."""
    zero = encoded["opd2_const"] and I8.from_bits(encoded["opd2_addr"])
    return bool(encoded["opd0_sign"] or encoded["opd1_sign"] or zero)


def _conv(operation: str, of: str, y: Local, *parts: Part, **more: Any) -> Instruction:
    x = Local("x", "opd0", SOURCE, Sizes("res0_n opd0_c opd0_h opd0_w"))
    parts = (Weights(), x, WINDOW, ROTATED, *parts, Again("acc", y, "res_add"), y)
    return Instruction("CONV", operation, parts, {"tsk_eu_typ": 0, "opd1_const": 0}, of, **more)


BIAS = Local("bias", "opd2", Type(0, always=F32), CHANNEL, layout.compact)
ZERO = Local("zero", "opd2", Type(I8.precision, "opd2_sign"), CHANNEL, layout.compact)
BIAS_UNLESS_0 = Optional(BIAS, NOTHING, there=lambda c: not c["opd2_const"] or bool(c["opd2_addr"]))
SUMS = Local("y", "res0", Type("res0_prec", _signed_conv))
CONVOLUTIONS = (
    _conv("fp_conv2d", FLOAT, REAL_RESULT, BIAS_UNLESS_0, written={"opd3_const": 1}),
    _conv("int8_asym_quant_conv2d", INTEGER, SUMS, Optional(ZERO, NOTHING), FLAGGED_PAD),
)

DEPTHWISE, AVERAGE, DEPTHWISE_RELU, MAXIMUM = 0, 1, 2, 4
LIKE_SOURCE = Local("y", "res0", Type("res0_prec", ("opd0_sign",)))
TAPS = Local("w", "opd1", WEIGHT, Sizes("1 res0_c opd1_h opd1_w"), layout.compact)
RIGHT = one_field("right", "opd2_addr", lambda bits: bits & 0xFF)


def _pool(function: int, operation: str, *parts: Part, of: str = "", **more: Any) -> Instruction:
    x = Local("x", "opd0", SOURCE, Sizes("res0_n res0_c opd0_h opd0_w"))
    return Instruction("PorD", operation, (x, *parts, WINDOW, ROTATED), {"tsk_eu_typ": function}, of, **more)


def _depthwise(function: int, operation: str, bias: Type, y: Type, *parts: Part, **more: Any) -> Instruction:
    addend = Optional(Local("bias", "opd2", bias, CHANNEL, layout.compact), NOTHING)
    scaling = (one_field("right", "res1_addr", lambda bits: bits & 0xFF), one_field("mode", "opd2_n_str", Rounding))
    fixed = {"relu": function == DEPTHWISE_RELU}
    return _pool(function, operation, TAPS, addend, *parts, *scaling, Local("y", "res0", y), fixed=fixed, **more)


REAL_BIAS, WIDE_BIAS = Type("opd0_prec", 1), Type(0, "opd2_sign", always=I32)
ANY_SIGNED, UNSIGNED = Type("res0_prec", ("opd0_sign", "opd1_sign", "opd2_sign")), Type("res0_prec", ())
LIMIT, SCALE = Number("pad", "opd3_addr", "opd3_const", SOURCE), Number("scale", "opd1_addr", "opd1_const", SOURCE)
REAL = {"of": FLOAT, "written": {"opd3_const": 1}}
POOLS = (
    _depthwise(DEPTHWISE, "fp_depthwise2d", REAL_BIAS, REAL_RESULT.type, **REAL),
    _depthwise(DEPTHWISE_RELU, "fp_depthwise2d", REAL_BIAS, REAL_RESULT.type, **REAL),
    _depthwise(DEPTHWISE, "int8_depthwise2d", WIDE_BIAS, ANY_SIGNED, PAD, of=INTEGER),
    _depthwise(DEPTHWISE_RELU, "int8_depthwise2d", WIDE_BIAS, UNSIGNED, PAD, of=INTEGER),
    _pool(MAXIMUM, "max_pool2d", LIMIT, LIKE_SOURCE),
    _pool(AVERAGE, "fp_avg_pool2d", SCALE, RIGHT, LIKE_SOURCE, of=FLOAT),
    _pool(AVERAGE, "int8_avg_pool2d", replace(SCALE, type=Type(0, always=U8)), RIGHT, LIKE_SOURCE, of=INTEGER),
)


@dataclass(frozen=True)
class Spread:
    """How a matrix with columns spread over lanes is encoded.

    `shape` reads (rows, columns) from an encoded command. `width` is the field for the columns per channel, and `last`
    the field for the columns of the last channel. `noted` are the fields for the sizes of the tensor that stores it.
    """

    own: str
    name: str
    type: Type
    shape: Callable[[Encoded], tuple[int, int]]
    width: str
    noted: str = "1 1 1 1"
    last: str = ""

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        start, offset = divmod(encoded[f"{self.name}_addr"], config.lane_bytes)
        dtype, width = self.type.read(encoded), encoded[self.width]
        return {self.own: Matrix.local(start, offset, self.shape(encoded), width, dtype, config)}

    def write(self, command: Command) -> Fields:
        reason = f"{self.own} is not a matrix with columns spread over lanes"
        matrix = of_kind(
            command, self.own, Matrix, reason, "give tpu.matrix(..), or rows() of all factors and the result"
        )
        stored = matrix.storage
        fields = {f"{self.name}_addr": stored.address - LOCAL_BASE} | self.type.write(matrix.dtype)
        if self.last:
            fields[self.last] = matrix.columns - stored.shape.w * (stored.shape.c - 1)
        return fields | Sizes(self.noted).write(stored.shape)


def _columns(encoded: Encoded) -> int:
    return encoded["res0_c"] * encoded["res0_w"]


def _left(encoded: Encoded) -> tuple[int, int]:
    return encoded["opd0_n"], encoded["opd0_w"] * (encoded["opd0_c"] - 1) + encoded["opd1_w"]


def _rows_and_depth(encoded: Encoded) -> tuple[int, int]:
    stored = _left(encoded)
    return stored[::-1] if encoded["left_tran"] else stored


PRODUCT = Spread(
    "y", "res0", REAL_RESULT.type, lambda c: (_rows_and_depth(c)[0], _columns(c)), "res0_w", "1 res0_c 1 res0_w"
)
LEFT = Spread("L", "opd0", SOURCE, _left, "opd0_w", "opd0_n opd0_c 1 opd0_w", "opd1_w")
RIGHT_SIDE = Spread("R", "opd1", WEIGHT, lambda c: (_rows_and_depth(c)[1], _columns(c)), "res0_w")
SPREAD_BIAS = Spread("bias", "opd2", Type(0, always=F32), lambda c: (1, _columns(c)), "res0_w")


def _product(operation: str, of: str, *parts: Part, **more: Any) -> Instruction:
    turned, sums = one_field("left_transposed", "left_tran", bool), Again("acc", PRODUCT, "res_add")
    parts = (RIGHT_SIDE, LEFT, turned, *parts, sums, PRODUCT)
    return Instruction("MM", operation, parts, {"tsk_eu_typ": 1, "opd0_const": 0}, of, **more)


#: The functions of MM2 (N: plain, T: transposed, for L and R), and the sizes of L for each.
NN, NT, TT = 4, 5, 6
LEFTS = {NN: "1 res0_c 1 opd1_c", NT: "1 res0_c 1 opd1_w", TT: "1 opd1_w 1 res0_c"}


def _by_rows(function: int, operation: str, of: str) -> Instruction:
    left = Local("L", "opd0", SOURCE, Sizes(LEFTS[function]), layout.aligned, by_rows=True)
    right = Local("R", "opd1", WEIGHT, Sizes("1 opd1_c 1 opd1_w"), layout.aligned, by_rows=True)
    y = Local("y", "res0", REAL_RESULT.type, Sizes("1 res0_c 1 res0_w"), layout.aligned, by_rows=True)
    parts: tuple[Part, ...] = (left, right, Again("acc", y, "res_add"), y)
    chosen = {"tsk_eu_typ": function, "opd0_const": 0, "opd1_const": 0}
    fixed = {"left_transposed": function == TT, "right_transposed": function in (NT, TT), "both_transposed": False}
    if of == FLOAT:
        return Instruction("MM2", operation, parts, chosen, of, fixed=fixed, written=NOTHING)
    zero = Optional(Number("zero", "opd2_addr", "opd2_const", WEIGHT), NOTHING)
    return Instruction("MM2", operation, (*parts, zero), {**chosen, "opd2_const": 1}, of, fixed=fixed)


PRODUCTS = (
    _product("fp_mm", FLOAT, Optional(SPREAD_BIAS, NOTHING, there=lambda c: not c["opd2_const"])),
    _product("int8_zp_mm", INTEGER, written=NOTHING),
    *(
        _by_rows(function, operation, of)
        for function in (NN, NT, TT)
        for operation, of in (("fp_mm", FLOAT), ("int8_zp_mm", INTEGER))
    ),
)
INSTRUCTIONS = (*CONVOLUTIONS, *POOLS, *PRODUCTS)
