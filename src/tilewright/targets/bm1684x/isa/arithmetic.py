"""Encodings of arithmetic, quantisation and special functions: the command formats AR, RQ&DQ, SFU, CMP and LIN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations.base import attribute
from tilewright.targets.bm1684x.isa.parts import (
    CHANNEL,
    FLOAT,
    INTEGER,
    STRIDED,
    Again,
    Computed,
    Fields,
    Instruction,
    Local,
    Optional,
    Pair,
    Part,
    Sizes,
    Type,
    local_tensor,
    located,
    one_field,
    refused,
)
from tilewright.targets.bm1684x.isa.stream import Encoded
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Stride
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, DType, Rounding, from_fields


class BitsType(Type):
    """The encoding of a second operand's type. If the result is a float of the same width, integers are read as floats.

    The reason: programs make a power of two with integer commands, and then multiply floats by it.
    """

    def read(self, encoded: Encoded) -> DType:
        own, result = super().read(encoded), from_fields(encoded["res0_prec"], 1)
        return result if result.is_float and not own.is_float and own.bytes == result.bytes else own


def _strided(encoded: Encoded) -> list[str]:
    """Return the names of the operands that are encoded with explicit strides, which cost the machine time."""
    names = {"a": "opd0", "b": "opd1"}.items()
    return [own for own, name in names if encoded[f"{name}_str"] == STRIDED and not encoded[f"{name}_const"]]


def _ones(encoded: Encoded) -> Constant:
    dtype = A.type.read(encoded)
    return Constant((1 << dtype.bits) - 1, dtype)


STRIDES = Computed("strided", _strided)
MODE = one_field("mode", "opd2_n_str", Rounding)
STEPS = one_field("steps", "opd2_n_str", lambda code: code + 1, lambda steps: steps - 1)


def _type(name: str) -> Type:
    """Return how the formats AR and RQ&DQ encode the type of the operand `name`. They set the sign flag for floats."""
    return Type(f"{name}_prec", f"{name}_sign", of_floats=1)


A, X = Local("a", "opd0", _type("opd0")), Local("x", "opd0", _type("opd0"))
B, COMPARED = Local("b", "opd1", BitsType("opd1_prec", "opd1_sign", of_floats=1)), Local("b", "opd1", _type("opd1"))
#: Results that are signed if any operand is signed, if the first operand is signed, always, and if a field says so.
EITHER, FIRST = (Local("y", "res0", Type("res0_prec", signs)) for signs in (("opd0_sign", "opd1_sign"), ("opd0_sign",)))
SIGNED, CONVERTED = (Local("y", "res0", Type("res0_prec", sign, of_floats=1)) for sign in (1, "opd2_sign"))
COUNTS = Local("shift", "opd1", Type("opd1_prec", "opd1_sign", always=I8))
COUNT = Local("shift", "opd2", Type("opd2_prec", "opd2_sign", always=I8), CHANNEL, layout.compact)
SHIFT = Optional(COUNT, absent={"tsk_opd_num": 2}, present={"tsk_opd_num": 3}, there=lambda c: c["tsk_opd_num"] == 3)
TRUE = Local("c", "opd2", Type("res0_prec", "opd2_sign", noted="opd2_prec"), CHANNEL, layout.compact)
TRUE_RESULT = Local("y", "res0", TRUE.type)


def _ar(function: int, operation: str, *parts: Part, operands: int = 0, **more: Any) -> Instruction:
    written = {"tsk_opd_num": operands} if operands else {}
    return Instruction("AR", operation, parts, {"tsk_eu_typ": function}, written=written, **more)


def _binary(function: int, operation: str, of: str = "") -> Instruction:
    return _ar(function, operation, MODE, A, B, STRIDES, EITHER, operands=2, of=of)


def _integer(function: int, operation: str, clamps: bool) -> Instruction:
    """Return the instruction of an integer operation with an optional shift. A difference is always signed."""
    result = SIGNED if operation == "int_sub" else EITHER
    return _ar(function, operation, MODE, A, B, STRIDES, SHIFT, result, of=INTEGER, fixed={"saturate": clamps})


def _in_place(command: Command) -> bool:
    """Return whether a command adds to its own result."""
    return command.operands.get("acc") == command.results["y"]


def _bytes(encoded: Encoded, place: int) -> int:
    return encoded["opd2_addr"] >> 8 * place & 0xFF


#: The two shifts of an 8-bit multiply-add, in the bytes of a constant.
SHIFTS = Pair(
    ("left", "right"),
    lambda c: {"left": _bytes(c, 0), "right": _bytes(c, 1)},
    lambda command: {
        "opd2_const": 1,
        "opd2_addr": attribute(command.attributes, "left") | attribute(command.attributes, "right") << 8,
    },
)

AR = (
    _binary(0, "fp_mul", FLOAT),
    _binary(2, "fp_add", FLOAT),
    _binary(3, "fp_sub", FLOAT),
    _binary(27, "fp_diff_abs", FLOAT),
    _binary(4, "max"),
    _binary(5, "min"),
    _binary(7, "and", INTEGER),
    _binary(8, "or", INTEGER),
    _binary(9, "xor", INTEGER),
    _integer(0, "int_mul", clamps=False),
    _integer(2, "int_add", clamps=False),
    _integer(3, "int_sub", clamps=False),
    _integer(20, "int_mul", clamps=True),
    _integer(15, "int_add", clamps=True),
    _integer(16, "int_sub", clamps=True),
    _ar(1, "xor", A, Computed("b", _ones), EITHER, operands=1),  # bitwise not
    _ar(18, "fp_mac", A, B, Again("acc", EITHER), STRIDES, EITHER, operands=2, of=FLOAT, takes=_in_place),
    _ar(
        18,
        "int8_mac",
        A,
        B,
        SHIFTS,
        MODE,
        Again("acc", SIGNED),
        STRIDES,
        SIGNED,
        operands=3,
        of=INTEGER,
        takes=_in_place,
    ),
    _ar(12, "fp_div", STEPS, A, B, STRIDES, EITHER, operands=2, of=FLOAT),
    _ar(6, "logical_shift", MODE, A, COUNTS, FIRST, operands=2),
    _ar(21, "arithmetic_shift", MODE, A, COUNTS, FIRST, operands=2),
    _ar(10, "greater", A, COMPARED, TRUE, TRUE_RESULT),
    _ar(11, "equal", A, COMPARED, TRUE, TRUE_RESULT),
    _ar(13, "less", A, COMPARED, TRUE, TRUE_RESULT),
    _ar(14, "fp_round", MODE, X, CONVERTED, operands=1, of=FLOAT, same_type=True),
    _ar(14, "cast", MODE, X, CONVERTED, operands=1),
    _ar(19, "copy", A, FIRST, operands=1),
    _ar(26, "abs", A, FIRST, operands=1),
    _ar(28, "copy", replace(A, sizes=Sizes("1 res0_c res0_h res0_w")), FIRST, operands=1),  # repeats the first of n
)


@dataclass(frozen=True)
class Parameters:
    """The parameters of a requantisation or dequantisation: a table with an entry per channel, or constants.

    `types` gives the type of each parameter, in the order of a table entry. `numbers` gives, for each parameter as a
    constant, its field, its lowest bit in that field, and its type.
    """

    types: Mapping[str, DType]
    numbers: Mapping[str, tuple[str, int, DType]]

    def read(self, encoded: Encoded, config: Config) -> Mapping[str, Any]:
        if encoded["opd1_const"]:
            fields = {own: (encoded[name] >> low, dtype) for own, (name, low, dtype) in self.numbers.items()}
            return {own: Constant(bits & ((1 << dtype.bits) - 1), dtype) for own, (bits, dtype) in fields.items()}
        shape, address = CHANNEL.read(encoded), encoded["opd1_addr"]
        places = enumerate(self.types.items())
        return {own: located(address + 4 * number, shape, dtype, config) for number, (own, dtype) in places}

    def write(self, command: Command) -> Fields:
        given = {own: command[own] for own in self.types}
        constants = {own: operand for own, operand in given.items() if isinstance(operand, Constant)}
        if not constants:
            return {"opd1_addr": local_tensor(command, next(iter(self.types))).address - LOCAL_BASE}
        if len(constants) < len(given):
            raise refused(
                command, f"only some of {', '.join(given)} are numbers", "give all as tensors, or all as numbers"
            )
        fields = {"opd1_const": 1, "opd1_addr": 0, "opd2_addr": 0}
        for own, (name, low, dtype) in self.numbers.items():
            number = constants[own].bits if dtype.is_float else int(constants[own].value)
            fields[name] |= (number & ((1 << dtype.bits) - 1)) << low
        return fields


#: The rounding of a product with a float, and of its source.
MODES = Pair(
    ("mode", "source_mode"),
    lambda c: {"mode": Rounding(c["opd2_n_str"] >> 3), "source_mode": Rounding(c["opd2_n_str"] & 7)},
    lambda command: {
        "opd2_n_str": attribute(command.attributes, "mode") << 3 | attribute(command.attributes, "source_mode")
    },
)


def _quantised(
    function: int,
    operation: str,
    types: Mapping[str, DType],
    numbers: Mapping[str, tuple[str, int, DType]],
    modes: Part = MODE,
) -> Instruction:
    parts = (Local("x", "opd0", _type("opd0")), Parameters(types, numbers), modes, CONVERTED)
    return Instruction("RQ&DQ", operation, parts, {"tsk_eu_typ": function})


FIRST_WORD, SECOND_WORD = "opd1_addr", "opd2_addr"
QUANTISATION = (
    _quantised(
        *(0, "fp32_requant", {"scale": F32, "offset": F32}),
        {"scale": (FIRST_WORD, 0, F32), "offset": (SECOND_WORD, 0, F32)},
        MODES,
    ),
    _quantised(
        *(1, "int_requant", {"multiplier": I32, "shift": I32, "offset": I32}),
        {"multiplier": (FIRST_WORD, 0, I32), "shift": (SECOND_WORD, 0, I8), "offset": (SECOND_WORD, 8, I16)},
    ),
    _quantised(
        *(3, "fp32_dequant", {"offset": I32, "scale": F32}),
        {"offset": (FIRST_WORD, 0, I32), "scale": (SECOND_WORD, 0, F32)},
    ),
    _quantised(
        *(4, "int_dequant", {"offset": I32, "multiplier": I32, "shift": I32}),
        {"offset": (FIRST_WORD, 0, I16), "shift": (FIRST_WORD, 16, I16), "multiplier": (SECOND_WORD, 0, I32)},
    ),
)

#: The coefficients of a series; every lane holds all of them.
TABLE = Local(
    *("coefficients", "opd1", Type("opd0_prec", 1), Sizes("1 res0_c 1 opd1_n")),
    lambda shape, dtype, start, config: Stride(0, 0, shape.w, 1),
)
REAL, REAL_RESULT = Local("a", "opd0", Type("opd0_prec", 1)), Local("y", "res0", Type("res0_prec", 1))
SPECIAL = tuple(
    Instruction("SFU", operation, (part, REAL, REAL_RESULT), {"tsk_eu_typ": function})
    for function, operation, part in ((13, "fp_taylor", TABLE), (12, "fp_taylor", TABLE), (17, "fp_rsqrt", STEPS))
)
EXPONENT = Instruction(
    *("SFU", "fp_exponent"),
    (
        Local("x", "opd0", Type("opd0_prec", 1)),
        Local("y", "res0", Type("res0_prec", 1)),
    ),
    {"tsk_eu_typ": 15},
    written={"opd2_n_str": 3},
)

#: The type of the compared operands, and that of the selected ones, of which only the width matters.
COMPARED_TYPE, CHOSEN_TYPE = Type("opd0_prec", "opd0_sign"), Type("opd2_prec", 0)
OPERANDS = tuple(
    Local(own, f"opd{number}", COMPARED_TYPE if number < 2 else CHOSEN_TYPE, has_strides=False)
    for number, own in enumerate("abcd")
)
ONE_RESULT = (Local("y", "res0", CHOSEN_TYPE),)
TWO_RESULTS = (Local("y0", "res0", COMPARED_TYPE), Local("y", "res1", CHOSEN_TYPE))
COMPARISON = tuple(
    Instruction("CMP", operation, (*OPERANDS, *results), {"tsk_eu_typ": function})
    for function, operation, results in (
        (22, "maximum_greater_select", TWO_RESULTS),
        (23, "greater_select", ONE_RESULT),
        (24, "equal_select", ONE_RESULT),
        (25, "minimum_less_select", TWO_RESULTS),
        (26, "less_select", ONE_RESULT),
    )
)

#: x * scale + offset, with a scale and an offset per channel.
SCALE, OFFSET = (
    Local(own, name, REAL_RESULT.type, CHANNEL, layout.compact) for own, name in (("b", "opd1"), ("acc", "opd2"))
)
LINEAR_BY_CHANNEL = Instruction(
    "LIN", "fp_mac", (Local("a", "opd0", REAL_RESULT.type), SCALE, OFFSET, REAL_RESULT), {"tsk_eu_typ": 1}
)

SQUARES = tuple(
    Instruction("LIN", operation, (Local("a", "opd0", REAL_RESULT.type), SCALE, REAL_RESULT), {"tsk_eu_typ": function})
    for function, operation in ((20, "fp_add_square"), (21, "fp_sub_square"))
)

INSTRUCTIONS = (*AR, *QUANTISATION, *SPECIAL, EXPONENT, *COMPARISON, LINEAR_BY_CHANNEL, *SQUARES)
