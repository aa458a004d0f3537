"""Encodings of convolutions and pooling: the formats CONV and PorD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
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
    local_tensor,
    located,
    of_kind,
    one_field,
    refused,
)
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, Rounding
from tilewright.targets.bm1684x.values.window import Window

#: An operand 2 that is left out is encoded as the constant 0.
NOTHING = {"opd2_const": 1, "opd2_addr": 0}
SOURCE, WEIGHT = Type("opd0_prec", "opd0_sign"), Type("opd0_prec", "opd1_sign")
REAL_RESULT = Local("y", "res0", Type("res0_prec", 1))
#: Results and biases whose sign the operands tell.
ANY_SIGNED, UNSIGNED = Type("res0_prec", ("opd0_sign", "opd1_sign", "opd2_sign")), Type("res0_prec", ())
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


@dataclass(frozen=True)
class Filling:
    """How the values of padding, and those between elements, are encoded.

    They are numbers, or with `opd3_const` cleared a table with a pair of both for each channel (`channels` is the field
    with the number of channels). `between` is the field with the number between elements, if there is one.
    """

    channels: str
    between: str = ""
    own = "pads"
    type = SOURCE

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        if encoded["opd3_const"]:
            found = {"pad": _padding(encoded)}
            return found | ({"between": _signed(encoded, self.between)} if self.between else {})
        dtype, shape = SOURCE.read(encoded), Shape(1, encoded[self.channels], 1, 2)
        table = located(encoded["opd3_addr"], shape, dtype, config, layout.compact)
        pads, inserts = table[:, :, :, 0:1], table[:, :, :, 1:2]
        spread = any(encoded[name] for name in ("opd0_x_ins0", "opd0_y_ins0"))
        return {"pads": pads, "inserts": inserts} if spread else {"pads": pads}

    def write(self, command: Command) -> Fields:
        if "pads" in command.operands:
            return {"opd3_const": 0, "opd3_addr": local_tensor(command, "pads").address - LOCAL_BASE}
        mask = (1 << command.types["x"].bits) - 1
        more = {self.between: attribute(command.attributes, "between") & mask} if self.between else {}
        return _padding_fields(command) | more


def _signed(encoded: Encoded, name: str) -> int:
    return int(SOURCE.read(encoded).from_bits(encoded[name]))


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
        if isinstance(command["w"], Constant):
            raise refused(command, "w is a number")
        weights = of_kind(command, "w", ConvWeights, "w is not a convolution's weights", "give tpu.weights(..)")
        return {"opd1_addr": weights.address - LOCAL_BASE} | WEIGHT.write(weights.dtype)


def _signed_conv(encoded: Encoded) -> bool:
    """Return whether a convolution's integer sums are signed: a factor is signed or a zero point is subtracted."""
    zero = encoded["opd2_const"] and I8.from_bits(encoded["opd2_addr"])
    return bool(encoded["opd0_sign"] or encoded["opd1_sign"] or zero)


PLAIN, SHIFTED, SHIFTED_RELU = 0, 1, 2


def _conv(operation: str, of: str, y: Local, *parts: Part, function: int = PLAIN, **more: Any) -> Iterator[Instruction]:
    """Yield the instructions of a convolution: short and long, with weights and with a number in their place."""
    x = Local("x", "opd0", SOURCE, Sizes("res0_n opd0_c opd0_h opd0_w"))
    sums = (Again("acc", y, "res_add"),) if function == PLAIN else ()
    for long in (False, True):
        for fixed_weights, weights in enumerate((Weights(), Number("w", "opd1_addr", "opd1_const", WEIGHT))):
            own = (weights, x, WINDOW, ROTATED, *parts, *sums, y)
            chosen = {"tsk_eu_typ": function, "opd1_const": fixed_weights} | ({"opd0_const": 0} if long else {})
            yield Instruction("CONV", operation, own, chosen, of, long=long, **more)


BIAS = Local("bias", "opd2", Type(0, always=F32), CHANNEL, layout.compact)
ZERO = Local("zero", "opd2", Type(I8.precision, "opd2_sign"), CHANNEL, layout.compact)
BIAS_UNLESS_0 = Optional(BIAS, NOTHING, there=lambda c: not c["opd2_const"] or bool(c["opd2_addr"]))
SUMS = Local("y", "res0", Type("res0_prec", _signed_conv, loose=True))
SHORT_BIAS = Local("bias", "opd2", Type(I16.precision, "opd2_sign"), CHANNEL, layout.compact)
SYMMETRIC = (
    Optional(SHORT_BIAS, NOTHING, there=lambda c: not c["opd2_const"]),
    one_field("right", "opd3_addr", lambda bits: bits & 0xFF),
)
CONVOLUTIONS = (
    *_conv("fp_conv2d", FLOAT, REAL_RESULT, BIAS_UNLESS_0, written={"opd3_const": 1}),
    *_conv("int8_asym_quant_conv2d", INTEGER, SUMS, Optional(ZERO, NOTHING), Filling("opd0_c", "res1_addr")),
    *(
        instruction
        for function, result in ((SHIFTED, ANY_SIGNED), (SHIFTED_RELU, UNSIGNED))
        for instruction in _conv(
            *("int8_sym_quant_conv2d", INTEGER, Local("y", "res0", result), *SYMMETRIC),
            function=function,
            fixed={"relu": function == SHIFTED_RELU},
            written={"opd3_const": 1},
        )
    ),
)

DEPTHWISE, AVERAGE, DEPTHWISE_RELU, MAXIMUM = 0, 1, 2, 4
LIKE_SOURCE = Local("y", "res0", Type("res0_prec", ("opd0_sign",)))
TAPS = Local("w", "opd1", WEIGHT, Sizes("1 res0_c opd1_h opd1_w"), layout.compact)
RIGHT = one_field("right", "opd2_addr", lambda bits: bits & 0xFF)
#: The right shift of a depthwise convolution is the second byte of its field.
SECOND_BYTE = Computed(
    *("right", lambda c: c["res1_addr"] >> 8 & 0xFF),
    lambda command: {"res1_addr": attribute(command.attributes, "right") << 8},
)


def _pool(function: int, operation: str, *parts: Part, of: str = "", **more: Any) -> Instruction:
    x = Local("x", "opd0", SOURCE, Sizes("res0_n res0_c opd0_h opd0_w"))
    return Instruction("PorD", operation, (x, *parts, WINDOW, ROTATED), {"tsk_eu_typ": function}, of, **more)


def _depthwise(function: int, operation: str, bias: Type, y: Type, *parts: Part, **more: Any) -> Instruction:
    addend = Optional(Local("bias", "opd2", bias, CHANNEL, layout.compact), NOTHING)
    scaling = (SECOND_BYTE, one_field("mode", "opd2_n_str", Rounding))
    fixed = {"relu": function == DEPTHWISE_RELU}
    return _pool(function, operation, TAPS, addend, *parts, *scaling, Local("y", "res0", y), fixed=fixed, **more)


REAL_BIAS, WIDE_BIAS = Type("opd0_prec", 1), Type(I32.precision, "opd2_sign")
BY_CHANNEL = Filling("res0_c")
LIMIT, SCALE = Number("pad", "opd3_addr", "opd3_const", SOURCE), Number("scale", "opd1_addr", "opd1_const", SOURCE)
REAL = {"of": FLOAT, "written": {"opd3_const": 1}}
POOLS = (
    _depthwise(DEPTHWISE, "fp_depthwise2d", REAL_BIAS, REAL_RESULT.type, **REAL),
    _depthwise(DEPTHWISE_RELU, "fp_depthwise2d", REAL_BIAS, REAL_RESULT.type, **REAL),
    _depthwise(DEPTHWISE, "int8_depthwise2d", WIDE_BIAS, ANY_SIGNED, BY_CHANNEL, of=INTEGER),
    _depthwise(DEPTHWISE_RELU, "int8_depthwise2d", WIDE_BIAS, UNSIGNED, BY_CHANNEL, of=INTEGER),
    _pool(MAXIMUM, "max_pool2d", LIMIT, LIKE_SOURCE),
    _pool(AVERAGE, "fp_avg_pool2d", SCALE, RIGHT, LIKE_SOURCE, of=FLOAT),
    _pool(AVERAGE, "int8_avg_pool2d", replace(SCALE, type=Type(0, always=U8)), RIGHT, LIKE_SOURCE, of=INTEGER),
)


INSTRUCTIONS = (*CONVOLUTIONS, *POOLS)
