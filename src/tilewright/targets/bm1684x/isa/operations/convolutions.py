"""Convolutions and pooling (section 6.3 of the specification): meaning, and encoding in the formats CONV and PorD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import TIU, Flow, Values, attribute, define
from tilewright.targets.bm1684x.isa.parts import (
    CHANNEL,
    FLOAT,
    INTEGER,
    ComputedPart,
    Fields,
    Instruction,
    Local,
    Number,
    OptionalPart,
    Part,
    SharedOperand,
    Sizes,
    Type,
    local_tensor,
    located,
    of_kind,
    one_byte,
    one_field,
    refused,
)
from tilewright.targets.bm1684x.isa.stream import EncodedCommand
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights
from tilewright.targets.bm1684x.values import conv
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, U16, U32, DType, Rounding
from tilewright.targets.bm1684x.values.floats import flush, narrow, widen, wrap
from tilewright.targets.bm1684x.values.window import Window


def _window(v: Values) -> Window:
    window = v.attribute("window")
    if window is None:
        raise MachineError("attribute window", "missing", "give window=Window((height, width), pads, stride, dilation)")
    return cast(Window, window)


def _weights(v: Values) -> Array:
    w = v["w"]
    if not w.ndim:
        w = np.broadcast_to(w, (v.shapes["y"][1], v["x"].shape[1], *_window(v).kernel))
    return w[..., ::-1, ::-1] if v.attribute("rotated") else w


def first_terms(v: Values) -> list[Array]:
    """Return the float32 terms with which a sum of products begins: the bias, then acc (both are optional)."""
    return [flush(v[name].astype(np.float32)) for name in ("bias", "acc") if name in v.data]


def plus(total: Array, v: Values, name: str) -> Array:
    return total + v[name] if name in v.data else total


def float_conv(v: Values) -> Array:
    """Return x (n, ic, h, w) convolved with w (oc, ic, kh, kw).

    Each sum begins with the optional f32 bias (1, oc, 1, 1), then acc. The order of the terms matters, because float
    sums round.
    """
    return conv.float_conv(v["x"], _weights(v), v.types["x"], v.types["y"], _window(v), first_terms(v))


def symmetric_conv(v: Values) -> Array:
    """Return `round_half_up((sum + bias) >> right)`, clamped to the result type. `sum` is x convolved with w."""
    total = conv.integer_conv(v["x"], _weights(v), _window(v), 0, 0).astype(np.int64)
    return conv.scaled(plus(total, v, "bias"), v.types["y"], v.attribute("right"))


def asymmetric_conv(v: Values) -> Array:
    """Return padded x convolved with `w - zero`, plus acc, in 32-bit integers.

    Padding and inserted elements have one value per channel (`pads`, `inserts`), or the value of the attribute `pad` or
    `between`.
    """
    zero = v["zero"].astype(np.int32).reshape(-1, 1, 1, 1) if "zero" in v.data else 0
    pad = v.data.get("pads", v.attribute("pad"))
    between = v.data.get("inserts", v.attribute("between"))
    return wrap(plus(conv.integer_conv(v["x"], _weights(v), _window(v), pad, zero, between), v, "acc"), v.types["y"])


def _channels(v: Values) -> Array:
    if not v["w"].ndim:
        return np.broadcast_to(v["w"], (v["x"].shape[1], *_window(v).kernel))
    return _weights(v).reshape(-1, *_window(v).kernel)


def float_depthwise(v: Values) -> Array:
    """Return the depthwise convolution of x and w, plus bias. All have the same type."""
    dtype = v.types["x"]
    taps = _window(v).taps(v["x"])
    first = [widen(v["bias"], dtype)] if "bias" in v.data else []
    return conv.float_depthwise(taps, _channels(v), dtype, first)


def integer_depthwise(v: Values) -> Array:
    """Return `round((sum + bias) >> right)`, clamped.

    `sum` is the depthwise convolution of x and w. x and w have 8 bits; bias and `sum + bias` have 32 bits. The sum is
    unsigned if x, w and bias are unsigned.
    """
    taps = _window(v).taps(v["x"], v.data.get("pads", v.attribute("pad")), v.data.get("inserts", 0))
    signed = any(v.types[name].signed for name in ("x", "w", "bias") if name in v.types)
    # The machine keeps only 32 bits of the sum before the shift, so an overflow wraps around.
    total = wrap(plus(conv.integer_depthwise(taps, _channels(v)).astype(np.int64), v, "bias"), I32 if signed else U32)
    return conv.scaled(total.astype(np.int64), v.types["y"], v.attribute("right"), v.mode)


def float_average(v: Values) -> Array:
    """Multiply each element by `scale`, and return the sum of each window over x."""
    dtype = v.types["x"]
    return conv.float_depthwise(_window(v).taps(v["x"]), v["scale"], dtype, [])


def integer_average(v: Values) -> Array:
    """Return `round_half_up((sum * scale) >> right)`, clamped, where `sum` is the sum of a window over x."""
    total = _window(v).taps(v["x"]).astype(np.int64).sum((2, 3)) * v["scale"].astype(np.int64)
    return conv.scaled(total, v.types["y"], v.attribute("right"))


def maximum(v: Values) -> Array:
    return largest(_window(v).taps(v["x"], v["pad"]), v.types["x"])


def largest(taps: Array, dtype: DType) -> Array:
    """Return the maximum of `taps` (n, c, kh, kw, oh, ow), stored as `dtype`, over kh and kw."""
    return narrow(widen(taps, dtype).max((2, 3)), dtype) if dtype.is_float else taps.max((2, 3))


short = rules.of("y", I8, U8, I16, U16)
wide = (rules.of("y", I32, U32), rules.accumulates_wide)
eight = rules.eight_bits("x", "w")
signed = rules.signed_as_its_sources
bias = rules.of("bias", F32)
bias16 = rules.of("bias", I16, U16)
bias32 = rules.of("bias", I32, U32)
accumulates = (bias, rules.float_result, rules.accumulates_wide)
convolution = partial(define, TIU, flow=Flow.CONVOLUTION, factor="w", places=(*rules.COMPUTE, rules.cube_aligned))
convolution("fp_conv2d", "x w bias acc", float_conv, rules.floats("x", "w"), *accumulates)
convolution("int8_sym_quant_conv2d", "x w bias", symmetric_conv, *eight, bias16, short, signed("x", "w", "bias"))
zero: Mapping[str, Any] = {"numbers": {"zero": I16}}
convolution("int8_asym_quant_conv2d", "x w zero pads inserts acc", asymmetric_conv, *eight, *wide, **zero)
depthwise = partial(define, TIU, flow=Flow.WINDOW, factor="w")
depthwise("fp_depthwise2d", "x w bias", float_depthwise, rules.floats("x", "w", "bias", "y"))
checks = (*eight, bias32, rules.integers("y"), signed("x", "w", "bias"))
depthwise("int8_depthwise2d", "x w bias pads inserts", integer_depthwise, *checks)
pool = partial(define, TIU, flow=Flow.WINDOW)
pool("fp_avg_pool2d", "x scale", float_average, rules.floats("x", "scale", "y"), arithmetic=("add",))
checks = (*rules.eight_bits("x"), rules.of("scale", U8), short, signed("x"))
pool("int8_avg_pool2d", "x scale", integer_average, *checks, arithmetic=("add",), numbers={"scale": U8})
pool("max_pool2d", "x pad", maximum, rules.same_type("x", "y"), arithmetic=("compare",))


#: The fields of an omitted operand 2 (bias or zero point): the constant 0.
NOTHING = {"opd2_const": 1, "opd2_addr": 0}
SOURCE = Type("opd0_prec", "opd0_sign")
WEIGHT = Type("opd0_prec", "opd1_sign")
REAL_RESULT = Local("y", "res0", Type("res0_prec", 1))
#: Types of results and biases. The sign fields of operands decide whether a result is signed.
ANY_SIGNED = Type("res0_prec", ("opd0_sign", "opd1_sign", "opd2_sign"))
UNSIGNED = Type("res0_prec", ())
ROTATED = one_field("rotated", "kernel_rotate", bool)


#: For each part of a window: its fields, and a number to add to the decoded values of these fields. For a dilation, the
#: number is 1, because the fields contain the number of zeros between weights.
WINDOW_FIELDS = {
    "kernel": (("opd1_h", "opd1_w"), 0),
    "pads": (("opd0_up_pad", "opd0_dn_pad", "opd0_lf_pad", "opd0_rt_pad"), 0),
    "stride": (("res_op_y_str", "res_op_x_str"), 0),
    "dilation": (("opd1_y_ins0", "opd1_x_ins0"), 1),
    "inserted": (("opd0_y_ins0", "opd0_x_ins0"), 0),
}


def _read_window(encoded: EncodedCommand) -> dict[str, Window]:
    parts: dict[str, Any] = {
        part: tuple(encoded[name] + more for name in names) for part, (names, more) in WINDOW_FIELDS.items()
    }
    return {"window": Window(**parts)}


def _window_fields(command: Command) -> Fields:
    window = command.attributes["window"]
    parts = ((names, getattr(window, part), more) for part, (names, more) in WINDOW_FIELDS.items())
    return {name: value - more for names, values, more in parts for name, value in zip(names, values, strict=True)}


WINDOW = ComputedPart(_read_window, _window_fields)


@dataclass(frozen=True)
class PaddingValues:
    """The encoding of the values of padding and inserted elements.

    If `opd3_const` is set, these values are numbers, and the field `between` (if any) has the number to insert.
    Otherwise a table has a pair of values for each channel. `channels` is the field with the number of channels.
    """

    channels: str
    between: str = ""
    operand = "pads"
    type = SOURCE

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        dtype = SOURCE.read(encoded)
        if encoded["opd3_const"]:
            fields = {"pad": "opd3_addr"} | ({"between": self.between} if self.between else {})
            return {attribute: int(dtype.from_bits(encoded[name])) for attribute, name in fields.items()}
        # Each channel has a pair: the value of padding and the value to insert, which is used only if the window
        # inserts elements.
        table = located(encoded["opd3_addr"], Shape(1, encoded[self.channels], 1, 2), dtype, config, layout.compact)
        spread = encoded["opd0_x_ins0"] or encoded["opd0_y_ins0"]
        return {"pads": table[:, :, :, 0:1]} | ({"inserts": table[:, :, :, 1:2]} if spread else {})

    def write(self, command: Command) -> Fields:
        if "pads" in command.operands:
            return {"opd3_const": 0, "opd3_addr": local_tensor(command, "pads").address - LOCAL_BASE}
        mask = (1 << command.types["x"].bits) - 1
        more = {self.between: attribute(command.attributes, "between") & mask} if self.between else {}
        return {"opd3_const": 1, "opd3_addr": attribute(command.attributes, "pad") & mask} | more


@dataclass(frozen=True)
class CubeWeights:
    """The encoding of a convolution's weights, which have the layout of the cube (matrix unit)."""

    operand = "w"
    type = WEIGHT
    sizes = Sizes("res0_c opd0_c opd1_h opd1_w")

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        oc, ic, kh, kw = self.sizes.read(encoded)
        return {"w": ConvWeights(encoded["opd1_addr"] + LOCAL_BASE, (oc, ic, kh, kw), WEIGHT.read(encoded), config)}

    def write(self, command: Command) -> Fields:
        if isinstance(command["w"], Constant):
            raise refused(command, "w is a number")  # another instruction encodes it
        weights = of_kind(command, "w", ConvWeights, "w is not a convolution's weights", "give tpu.weights(..)")
        return {"opd1_addr": weights.address - LOCAL_BASE} | WEIGHT.write(weights.dtype)


def _signed_conv(encoded: EncodedCommand) -> bool:
    # There is no field for the sign of integer sums: they are signed if a factor is signed or a zero point is
    # subtracted.
    zero = encoded["opd2_const"] and I8.from_bits(encoded["opd2_addr"])
    return bool(encoded["opd0_sign"] or encoded["opd1_sign"] or zero)


PLAIN = 0
SHIFTED = 1
SHIFTED_RELU = 2


def _conv(operation: str, of: str, y: Local, *parts: Part, function: int = PLAIN, **more: Any) -> Iterator[Instruction]:
    x = Local("x", "opd0", SOURCE, Sizes("res0_n opd0_c opd0_h opd0_w"))
    sums = (SharedOperand("acc", y, "res_add"),) if function == PLAIN else ()
    # The short and the long format have the same fields. Only the long format allows a constant x, which is not
    # modelled.
    for long in (False, True):
        for fixed_weights, weights in enumerate((CubeWeights(), Number("w", "opd1_addr", "opd1_const", WEIGHT))):
            all_parts = (weights, x, WINDOW, ROTATED, *parts, *sums, y)
            chosen = {"tsk_eu_typ": function, "opd1_const": fixed_weights} | ({"opd0_const": 0} if long else {})
            yield Instruction("CONV", operation, all_parts, chosen, of, long=long, **more)


BIAS = Local("bias", "opd2", Type(0, always=F32), CHANNEL, layout.compact)
ZERO = Local("zero", "opd2", Type(I8.precision, "opd2_sign"), CHANNEL, layout.compact)
#: The bias of a float convolution: a tensor, or a constant in the field opd2_addr. The constant 0 means no bias.
BIAS_UNLESS_0 = OptionalPart(BIAS, NOTHING, is_present=lambda c: not c["opd2_const"] or bool(c["opd2_addr"]))
SUMS = Local("y", "res0", Type("res0_prec", _signed_conv, loose=True))
SHORT_BIAS = Local("bias", "opd2", Type(I16.precision, "opd2_sign"), CHANNEL, layout.compact)
SYMMETRIC = (
    OptionalPart(SHORT_BIAS, NOTHING, is_present=lambda c: not c["opd2_const"]),
    one_byte("right", "opd3_addr", 0),
)
CONVOLUTIONS = (
    *_conv("fp_conv2d", FLOAT, REAL_RESULT, BIAS_UNLESS_0, written={"opd3_const": 1}),
    *_conv("int8_asym_quant_conv2d", INTEGER, SUMS, OptionalPart(ZERO, NOTHING), PaddingValues("opd0_c", "res1_addr")),
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

DEPTHWISE = 0
AVERAGE = 1
DEPTHWISE_RELU = 2
MAXIMUM = 4
LIKE_SOURCE = Local("y", "res0", Type("res0_prec", ("opd0_sign",)))
TAPS = Local("w", "opd1", WEIGHT, Sizes("1 res0_c opd1_h opd1_w"), layout.compact)
RIGHT = one_byte("right", "opd2_addr", 0)
SECOND_BYTE = one_byte("right", "res1_addr", 1)


def _pool(function: int, operation: str, *parts: Part, of: str = "", **more: Any) -> Instruction:
    x = Local("x", "opd0", SOURCE, Sizes("res0_n res0_c opd0_h opd0_w"))
    return Instruction("PorD", operation, (x, *parts, WINDOW, ROTATED), {"tsk_eu_typ": function}, of, **more)


def _depthwise(function: int, operation: str, bias: Type, y: Type, *parts: Part, **more: Any) -> Instruction:
    addend = OptionalPart(Local("bias", "opd2", bias, CHANNEL, layout.compact), NOTHING)
    scaling = (SECOND_BYTE, one_field("mode", "opd2_n_str", Rounding))
    fixed = {"relu": function == DEPTHWISE_RELU}
    return _pool(function, operation, TAPS, addend, *parts, *scaling, Local("y", "res0", y), fixed=fixed, **more)


REAL_BIAS = Type("opd0_prec", 1)
WIDE_BIAS = Type(I32.precision, "opd2_sign")
BY_CHANNEL = PaddingValues("res0_c")
LIMIT = Number("pad", "opd3_addr", "opd3_const", SOURCE)
SCALE = Number("scale", "opd1_addr", "opd1_const", SOURCE)
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
