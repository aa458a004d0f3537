"""The meaning of conversions, quantisation and iterated functions, and their encoding in the formats RQ&DQ and SFU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import TIU, Signature, Values, attribute, define
from tilewright.targets.bm1684x.isa.operations.elementwise import (
    CONVERTED,
    EITHER,
    MODE,
    PRODUCT,
    REAL,
    REAL_RESULT,
    SHIFT,
    STEPS,
    STRIDES,
    SUM,
    A,
    B,
    X,
    _type,
    elementwise,
)
from tilewright.targets.bm1684x.isa.parts import (
    CHANNEL,
    FLOAT,
    ComputedPart,
    Fields,
    Instruction,
    Local,
    Part,
    local_tensor,
    located,
    refused,
)
from tilewright.targets.bm1684x.isa.stream import EncodedCommand
from tilewright.targets.bm1684x.values import elementwise as e
from tilewright.targets.bm1684x.values import floats
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U16, DType, Rounding


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


def convert(v: Values) -> Array:
    return floats.cast(v["x"], v.types["x"], v.types["y"], v.mode)


def integral(v: Values) -> Array:
    return floats.round_float(v["x"], v.types["x"], v.mode)


def integer_requant(v: Values) -> Array:
    """Return `round(x * multiplier * 2**shift) + offset`, clamped to the type of the result."""
    low_byte = v["shift"].astype(np.int8)  # in a table, the low byte of a word is the shift
    # Product and shift are exact in 64 bits. Only the shift rounds, and the offset is added afterwards.
    scaled = floats.shift(_wide(_as_signed(v["x"])) * _wide(v["multiplier"]), low_byte, v.mode)
    return floats.saturate(scaled + _wide(v["offset"]), v.types["y"])


def _as_signed(x: Array) -> Array:
    # The machine reads every 32-bit source of a requantisation as signed.
    return x.view(I32.storage) if x.dtype.itemsize == I32.bytes else x


def _flushed(value: Array) -> Array:
    return floats.flush(np.asarray(value, np.float32))


def float_requant(v: Values) -> Array:
    """Return `round(f32(x) * scale + offset)`, clamped. Each step rounds to float32; f32() rounds by `source_mode`."""
    mode = v.attribute("source_mode")
    x = _as_signed(v["x"])
    with np.errstate(all="ignore"):
        nearest = mode is Rounding.HALF_TO_EVEN  # NumPy's own conversion
        real = x.astype(np.float32) if nearest else floats.cast(_wide(x), I32, F32, mode)
        # Unlike a fused multiply-add, this rounds the product and the sum separately to float32.
        scaled = floats.flush(floats.flush(real * _flushed(v["scale"])) + _flushed(v["offset"]))
    return floats.to_integer(scaled.astype(np.float64), v.types["y"], v.mode)


def integer_dequant(v: Values) -> Array:
    """Return `round((x - offset) * multiplier * 2**shift)`, clamped to the type of the result."""
    wide = (_wide(v["x"]) - _short_offset(v)) * _wide(v["multiplier"])
    return floats.saturate(floats.shift(wide, v["shift"].astype(np.int8), v.mode), v.types["y"])


def _short_offset(v: Values) -> Array:
    # Only the low 16 bits of the offset count.
    return _wide(v["offset"].astype(np.int16 if v.types["x"].signed else np.uint16))


def float_dequant(v: Values) -> Array:
    """Return `f32(x - offset) * scale`, where f32 converts integers to float32."""
    with np.errstate(all="ignore"):
        return floats.flush((_wide(v["x"]) - _short_offset(v)).astype(np.float32) * _flushed(v["scale"]))


def exponent(v: Values) -> Array:
    """Return the exponent field of the float x, as an integer of x's width or as the power of two with this exponent.

    If x is positive and its fraction is about a third or more, the exponent is one larger. Subnormals are not flushed.
    For a positive NaN, the exponent is one larger than the exponent of infinity, which as a float is 0.
    """
    source = v.types["x"]
    out = v.types["y"]
    fraction = floats.SIGNIFICAND[source] - 1
    bits = v["x"].view(f"<u{source.bytes}").astype(np.int64)
    power = bits >> fraction & (1 << (source.bits - 1 - fraction)) - 1
    rest = bits & (1 << fraction) - 1
    positive = bits >> (source.bits - 1) == 0
    # The vendor's model ignores the low bit of the fraction, and rounds a positive number up to the next power of two
    # if its fraction is about a third or more (measured).
    rounded = power + (positive & (6 * (rest >> 1) >= 1 << fraction))
    if not out.is_float:
        return rounded.astype(out.storage)
    limit = (1 << (source.bits - 1 - fraction)) - 1
    # the float with this exponent, fraction 0 and the sign of x
    whole = (rounded & limit) << fraction | bits & 1 << (source.bits - 1)
    return whole.astype(f"<u{out.bytes}").view(out.storage)


def exponent_types(signature: Signature) -> str:
    source = signature.types["x"]
    out = signature.types["y"]
    if source.is_float and (out is source or (out is (I32 if source is F32 else I16))):
        return ""
    return f"exponents of {source} are not written as {out}; give the source's type, or a signed integer of its width"


def logarithm(v: Values) -> Array:
    """Return `ln(a)`, rounded from float64. The vendor's unknown sequence gives results within one ulp."""
    with np.errstate(all="ignore"):
        return floats.flush(np.log(floats.widen(v["a"], F32).astype(np.float64)).astype(np.float32))


def _unary(function: Callable[[Array], Array]) -> Callable[[Values], Array]:
    return lambda v: function(v["a"])


#: All quantisation parameters, in the order of an operation's operands.
PARAMETERS = ("multiplier", "shift", "scale", "offset")
modes = rules.rounds_to_neighbours
in_f32 = rules.iterates_in_f32
elementwise("cast", "x", convert, modes, rules.not_between_short_floats, arithmetic=())
elementwise("fp_round", "x", integral, modes, rules.floats("x", "y"), arithmetic=())
define(TIU, "fp_exponent", "x", exponent, exponent_types)
#: The parameters of each operation with their types, in the order of the words in a table entry.
WORDS: Mapping[str, Mapping[str, DType]] = {
    "int_requant": {"multiplier": I32, "shift": I8, "offset": I32},
    "fp32_requant": {"scale": F32, "offset": F32},
    "int_dequant": {"offset": I32, "multiplier": I32, "shift": I8},
    "fp32_dequant": {"offset": I32, "scale": F32},
}
narrowed = (rules.wide_source, rules.narrow_result)
for name, meaning, checks, work in (
    ("int_requant", integer_requant, narrowed, PRODUCT + SHIFT + SUM),
    ("fp32_requant", float_requant, (modes, *narrowed), PRODUCT + SUM),
    ("int_dequant", integer_dequant, (rules.narrow_source, rules.of("y", I16, U16, I32)), PRODUCT + SHIFT + SUM),
    ("fp32_dequant", float_dequant, (rules.narrow_source, rules.of("y", F32)), PRODUCT + SUM),
):
    inputs = " ".join(("x", *sorted(WORDS[name], key=PARAMETERS.index)))
    elementwise(name, inputs, meaning, *checks, arithmetic=work, numbers=WORDS[name])
elementwise("fp_div", "a b", lambda v: e.divide(v["a"], v["b"], v.attribute("steps")), in_f32)
elementwise("fp_rsqrt", "a", lambda v: e.inverse_root(v["a"], v.attribute("steps")), in_f32)
for name, function in (("sqrt", e.square_root), ("exp", e.exponential), ("sigmoid", e.sigmoid)):
    elementwise(f"fp_{name}", "a", _unary(function), in_f32)
elementwise("fp_log", "a", logarithm, in_f32, inexact=True)


@dataclass(frozen=True)
class Parameters:
    """The parameters of a requantisation or dequantisation: a table with an entry per channel, or constants.

    `types` has the types of the parameters in a table entry, in order. `numbers` describes constants: for each
    parameter, the field, the parameter's lowest bit in this field, and the type.
    """

    types: Mapping[str, DType]
    numbers: Mapping[str, tuple[str, int, DType]]

    def read(self, encoded: EncodedCommand, config: Config) -> Mapping[str, Any]:
        if encoded["opd1_const"]:
            fields = {
                parameter: (encoded[name] >> low, dtype) for parameter, (name, low, dtype) in self.numbers.items()
            }
            return {
                parameter: Constant(bits & ((1 << dtype.bits) - 1), dtype)
                for parameter, (bits, dtype) in fields.items()
            }
        shape = CHANNEL.read(encoded)
        address = encoded["opd1_addr"]
        # A table entry has one 4-byte word per parameter, so the parameters are tensors that begin 4 bytes apart.
        places = enumerate(self.types.items())
        return {parameter: located(address + 4 * number, shape, dtype, config) for number, (parameter, dtype) in places}

    def write(self, command: Command) -> Fields:
        parameters = {parameter: command[parameter] for parameter in self.types}
        constants = {parameter: operand for parameter, operand in parameters.items() if isinstance(operand, Constant)}
        if not constants:
            return {"opd1_addr": local_tensor(command, next(iter(self.types))).address - LOCAL_BASE}
        if len(constants) < len(parameters):
            raise refused(
                command, f"only some of {', '.join(parameters)} are numbers", "give all as tensors, or all as numbers"
            )
        fields = {"opd1_const": 1, "opd1_addr": 0, "opd2_addr": 0}
        # Several numbers may share a field: each begins at its own bit.
        for parameter, (name, low, dtype) in self.numbers.items():
            number = constants[parameter].bits if dtype.is_float else int(constants[parameter].value)
            fields[name] |= (number & ((1 << dtype.bits) - 1)) << low
        return fields


#: Two attributes in one field: the rounding mode of the result (`mode`), and of the conversion of x to f32
#: (`source_mode`).
MODES = ComputedPart(
    lambda c: {"mode": Rounding(c["opd2_n_str"] >> 3), "source_mode": Rounding(c["opd2_n_str"] & 7)},
    lambda command: {
        "opd2_n_str": attribute(command.attributes, "mode") << 3 | attribute(command.attributes, "source_mode")
    },
)


def _quantised(function: int, operation: str, modes: Part = MODE, **numbers: tuple[str, int, DType]) -> Instruction:
    types = {parameter: I32 if dtype is I8 else dtype for parameter, dtype in WORDS[operation].items()}
    parts = (Local("x", "opd0", _type("opd0")), Parameters(types, numbers), modes, CONVERTED)
    return Instruction("RQ&DQ", operation, parts, {"tsk_eu_typ": function})


FIRST_WORD, SECOND_WORD = "opd1_addr", "opd2_addr"
QUANTISATION = (
    _quantised(0, "fp32_requant", MODES, scale=(FIRST_WORD, 0, F32), offset=(SECOND_WORD, 0, F32)),
    _quantised(
        *(1, "int_requant"), multiplier=(FIRST_WORD, 0, I32), shift=(SECOND_WORD, 0, I8), offset=(SECOND_WORD, 8, I16)
    ),
    _quantised(3, "fp32_dequant", offset=(FIRST_WORD, 0, I32), scale=(SECOND_WORD, 0, F32)),
    _quantised(
        *(4, "int_dequant"), offset=(FIRST_WORD, 0, I16), shift=(FIRST_WORD, 16, I16), multiplier=(SECOND_WORD, 0, I32)
    ),
)

INSTRUCTIONS = (
    # function 14 rounds to integers (fp_round) if both types are the same float type, else it converts
    *(
        Instruction("AR", name, (MODE, X, CONVERTED), {"tsk_eu_typ": 14}, of, same, written={"tsk_opd_num": 1})
        for name, of, same in (("fp_round", FLOAT, True), ("cast", "", False))
    ),
    Instruction("AR", "fp_div", (STEPS, A, B, STRIDES, EITHER), {"tsk_eu_typ": 12}, FLOAT, written={"tsk_opd_num": 2}),
    *QUANTISATION,
    Instruction("SFU", "fp_rsqrt", (STEPS, REAL, REAL_RESULT), {"tsk_eu_typ": 17}),
    Instruction(
        "SFU", "fp_exponent", (replace(REAL, operand="x"), REAL_RESULT), {"tsk_eu_typ": 15}, written={"opd2_n_str": 3}
    ),
)
