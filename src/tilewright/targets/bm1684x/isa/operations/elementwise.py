"""The compute engine's element-wise commands: their meaning, and their encoding in the formats AR, CMP, SFU and LIN.

Three kinds of operands broadcast to the shape of the result: constants, operands with one value per channel, and
operands with strides of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.isa import rules
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operation import TIU, Flow, Values, attribute, define
from tilewright.targets.bm1684x.isa.parts import (
    CHANNEL,
    FLOAT,
    INTEGER,
    STRIDED,
    ComputedPart,
    Instruction,
    Local,
    OptionalPart,
    Part,
    SharedOperand,
    Sizes,
    Type,
    one_field,
)
from tilewright.targets.bm1684x.isa.stream import EncodedCommand
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Stride
from tilewright.targets.bm1684x.values import elementwise as e
from tilewright.targets.bm1684x.values import floats
from tilewright.targets.bm1684x.values.dtypes import I8, I16, U8, U16, DType, Rounding, from_fields
from tilewright.targets.bm1684x.values.elementwise import RELATIONS, holds

#: The relations that the machine itself can compute.
MACHINE_RELATIONS = ("greater", "less", "equal")


def float_binary(name: str, v: Values) -> Array:
    return e.float_binary(name, v["a"], v["b"], v.types["y"])


def integer_binary(name: str, v: Values) -> Array:
    """Return the sum, difference or product (`name`) of the operands a and b, shifted by `shift` and rounded.

    A result out of range wraps around, or is clamped if the attribute `saturate` is set.
    """
    count = v["shift"].astype(np.int64) if "shift" in v.data else 0
    saturating = bool(v.attribute("saturate"))
    return e.integer_binary(name, v["a"], v["b"], v.types["y"], count, v.mode, saturating)


def extreme(name: str, v: Values) -> Array:
    if v.types["a"].is_float:
        return e.float_binary(name, v["a"], v["b"], v.types["a"])
    return np.maximum(v["a"], v["b"]) if name == "max" else np.minimum(v["a"], v["b"])


def shifted(arithmetic: bool, v: Values) -> Array:
    """Shift the operand a. Right shifts round, and left shifts drop high bits. Logical shifts treat a as unsigned."""
    # A logical shift reads the bits as an unsigned number, so zeros enter from the left instead of copies of the sign.
    bits = v["a"] if arithmetic else v["a"].view(f"<u{v.types['a'].bytes}")
    return floats.wrap(floats.shift(bits.astype(np.int64), v["shift"].astype(np.int64), v.mode), v.types["y"])


def compare(relation: str, v: Values) -> Array:
    # The result is the true value (operand c) or 0. The device API computes negated relations with two commands
    # (capi/elementwise.py).
    true = holds(relation, v["a"], v["b"], v.types["a"])
    return np.where(true, v["c"], np.zeros((), v.types["y"].storage))


def select(relation: str, v: Values) -> Array:
    return np.where(holds(relation, v["a"], v["b"], v.types["a"]), v["c"], v["d"])


def extreme_select(name: str, relation: str, v: Values) -> dict[str, Array]:
    """Return two results: y is the result of `select`, and y0 is the maximum or minimum of a and b."""
    return {"y0": extreme(name, v), "y": select(relation, v)}


def negative(v: Values) -> Array:
    """Return `0 - a`. Both float zeros give positive zero, and the lowest integer gives itself."""
    dtype = v.types["y"]
    if dtype.is_float:
        return e.float_binary("sub", dtype.from_bits(0), v["a"], dtype)
    return (0 - v["a"].astype(np.int64)).astype(dtype.storage)


def prelu(v: Values) -> Array:
    dtype = v.types["y"]
    with np.errstate(all="ignore"):
        value = floats.widen(v["a"], dtype)
        slope = floats.widen(v["slope"], dtype)
        return floats.narrow(np.where(value > 0, value, value * slope), dtype)


def squared(name: str, v: Values) -> Array:
    """Return the square of the sum or difference (`name`) of the operands a and b, rounded after each operation."""
    inner = e.float_binary(name, v["a"], v["b"], v.types["y"])
    return e.float_binary("mul", inner, inner, v.types["y"])


def multiply_add(v: Values) -> Array:
    return e.multiply_add(v["a"], v["b"], v["acc"], v.types["y"])


def integer_mac(v: Values) -> Array:
    """Return `((acc << left) + a * b) >> right`, clamped to 16 bits. The right shift rounds.

    If a and b are unsigned, acc and the result count as unsigned, even if their types are signed.
    """
    # The command has no sign field for acc. The signs of a and b decide whether its 16 bits are signed.
    sum_type = I16 if v.types["a"].signed or v.types["b"].signed else U16
    a, b, acc = (values.astype(np.int64) for values in (v["a"], v["b"], v["acc"].view(sum_type.storage)))
    wide = (acc << v.attribute("left")) + a * b
    return floats.saturate(floats.shift_right(wide, v.attribute("right"), v.mode), sum_type).view(I16.storage)


def taylor(v: Values) -> Array:
    """Return the sum of `coefficients[k] * a**k`. The shape of coefficients is (1, c, 1, k) or (k,)."""
    # The polynomial is evaluated term by term, so k becomes the first axis. New axes h and w follow the channel axis.
    coefficients = np.moveaxis(v["coefficients"], -1, 0)[..., None]
    return e.polynomial(v["a"], coefficients.reshape(len(coefficients), 1, -1, 1, 1), v.types["y"])


def absolute(v: Values) -> Array:
    """Return the absolute value of the operand a. A float only loses its sign bit: subnormals are not flushed."""
    dtype = v.types["y"]
    if not dtype.is_float:
        return np.abs(v["a"])
    bits = v["a"].view(f"<u{dtype.bytes}")
    return (bits & bits.dtype.type((1 << (dtype.bits - 1)) - 1)).view(dtype.storage)


def sign(v: Values) -> Array:
    """Return the sign of the operand a: 1, 0 or -1.

    For floats, the machine compares like `holds`. The result is 1 for positive numbers and 0 for +0. The result is -1
    for negative numbers, -0, NaN, and subnormals of types that flush subnormals.
    """
    dtype = v.types["y"]
    zero, plus, minus = (np.asarray(number, np.float32) for number in (0, 1, -1))
    if not dtype.is_float:
        return np.sign(v["a"])
    positive, null = (holds(relation, v["a"], dtype.from_bits(0), dtype) for relation in ("greater", "equal"))
    return floats.narrow(np.where(positive, plus, np.where(null, zero, minus)), dtype)


def bitwise(function: Callable[[Array, Array], Array]) -> Callable[[Values], Array]:
    return lambda v: function(v["a"], v["b"])


class BitsType(Type):
    """The encoding of a second operand's type.

    If the result is a float of equal width, an integer is read as a float. Programs use this after computing a power of
    two with integer commands: its bits then serve as a float factor.
    """

    def read(self, encoded: EncodedCommand) -> DType:
        dtype = super().read(encoded)
        result = from_fields(encoded["res0_prec"], 1)  # floats ignore the sign flag
        return result if result.is_float and not dtype.is_float and dtype.bytes == result.bytes else dtype


def _strided(encoded: EncodedCommand) -> dict[str, list[str]]:
    names = {"a": "opd0", "b": "opd1"}.items()
    # The operation ignores this attribute. The timing model needs it, because explicit strides take more time
    # (timing/estimate.py).
    return {
        "strided": [
            operand for operand, name in names if encoded[f"{name}_str"] == STRIDED and not encoded[f"{name}_const"]
        ]
    }


def _ones(encoded: EncodedCommand) -> dict[str, Constant]:
    dtype = A.type.read(encoded)
    # A NOT is decoded as an exclusive or with all ones.
    return {"b": Constant((1 << dtype.bits) - 1, dtype)}


STRIDES = ComputedPart(_strided)
MODE = one_field("mode", "opd2_n_str", Rounding)
#: The number of Newton steps: the field contains this number minus 1.
STEPS = one_field("steps", "opd2_n_str", lambda code: code + 1, lambda steps: steps - 1)


def _type(name: str) -> Type:
    """Return the encoding of a type in the formats AR and RQ&DQ. Floats set the sign flag."""
    return Type(f"{name}_prec", f"{name}_sign", of_floats=1)


A = Local("a", "opd0", _type("opd0"))
X = Local("x", "opd0", _type("opd0"))
B = Local("b", "opd1", BitsType("opd1_prec", "opd1_sign", of_floats=1))
COMPARED = Local("b", "opd1", _type("opd1"))
#: The result y, with four rules for its sign: EITHER is signed if any operand is signed, FIRST if the first operand is
#: signed, SIGNED always, and CONVERTED if the field opd2_sign is set.
EITHER, FIRST = (Local("y", "res0", Type("res0_prec", signs)) for signs in (("opd0_sign", "opd1_sign"), ("opd0_sign",)))
SIGNED, CONVERTED = (Local("y", "res0", Type("res0_prec", sign, of_floats=1)) for sign in (1, "opd2_sign"))
COUNTS = Local("shift", "opd1", Type("opd1_prec", "opd1_sign", always=I8))
COUNT = Local("shift", "opd2", Type("opd2_prec", "opd2_sign", always=I8), CHANNEL, layout.compact)
SHIFTING = OptionalPart(
    COUNT, absent={"tsk_opd_num": 2}, present={"tsk_opd_num": 3}, is_present=lambda c: c["tsk_opd_num"] == 3
)
TRUE = Local("c", "opd2", Type("res0_prec", "opd2_sign", noted="opd2_prec"), CHANNEL, layout.compact)
TRUE_RESULT = Local("y", "res0", TRUE.type)


def _in_place(command: Command) -> bool:
    # The formats have no field for the address of another acc.
    return command.operands.get("acc") == command.results["y"]


def _bytes(encoded: EncodedCommand, place: int) -> int:
    return encoded["opd2_addr"] >> 8 * place & 0xFF


#: The two shifts of an 8-bit multiply-add: two bytes of one constant.
SHIFTS = ComputedPart(
    lambda c: {"left": _bytes(c, 0), "right": _bytes(c, 1)},
    lambda command: {
        "opd2_const": 1,
        "opd2_addr": attribute(command.attributes, "left") | attribute(command.attributes, "right") << 8,
    },
)


#: The coefficients of a series. Every lane has a copy of all coefficients.
TABLE = Local(
    *("coefficients", "opd1", Type("opd0_prec", 1), Sizes("1 res0_c 1 opd1_n")),
    lambda shape, dtype, start, config: Stride(0, 0, shape.w, 1),
)
REAL = Local("a", "opd0", Type("opd0_prec", 1))
REAL_RESULT = Local("y", "res0", Type("res0_prec", 1))
#: The type of the compared operands, and the type of the selected operands, of which only the width matters.
COMPARED_TYPE = Type("opd0_prec", "opd0_sign")
CHOSEN_TYPE = Type("opd2_prec", 0)
OPERANDS = tuple(
    Local(operand, f"opd{number}", COMPARED_TYPE if number < 2 else CHOSEN_TYPE, has_strides=False)
    for number, operand in enumerate("abcd")
)
ONE_RESULT = (Local("y", "res0", CHOSEN_TYPE),)
TWO_RESULTS = (Local("y0", "res0", COMPARED_TYPE), Local("y", "res1", CHOSEN_TYPE))
#: The format LIN has one type for all operands. Scale and offset have one value per channel.
SCALED = Local("a", "opd0", REAL_RESULT.type)
SCALE, OFFSET = (
    Local(operand, prefix, REAL_RESULT.type, CHANNEL, layout.compact)
    for operand, prefix in (("b", "opd1"), ("acc", "opd2"))
)
#: The parts of an operation on two tensors, in the order of decoding.
TWO = (MODE, A, B, STRIDES, EITHER)
INSTRUCTIONS: list[Instruction] = []


def encodes(form: str, function: int, operation: str, *parts: Part, operands: int = 0, **more: Any) -> None:
    written = {"tsk_opd_num": operands} if operands else {}
    INSTRUCTIONS.append(Instruction(form, operation, parts, {"tsk_eu_typ": function}, written=written, **more))


same_type = rules.same_type
integers = rules.integers
elementwise = partial(define, TIU, flow=Flow.ELEMENTWISE)
ar = partial(encodes, "AR")
linear = partial(encodes, "LIN")
SUM = ("add",)
PRODUCT = ("multiply",)
COMPARISON = ("compare",)
SHIFT = ("shift",)
SHIFTED: Mapping[str, Any] = {"numbers": {"shift": I8}}
# Each block below defines operations (meaning, rules on types, arithmetic for energy tables) and their instructions.
# The numbers are values of the field tsk_eu_typ.
for name, function, work in (("mul", 0, PRODUCT), ("add", 2, SUM), ("sub", 3, SUM), ("diff_abs", 27, SUM)):
    elementwise(f"fp_{name}", "a b", partial(float_binary, name), rules.floats("a", "b", "y"), arithmetic=work)
    ar(function, f"fp_{name}", *TWO, operands=2, of=FLOAT)
as_sources = rules.signed_as_its_sources("a", "b")
# Each integer operation has two functions: the first lets results wrap around, and the second clamps the results.
for name, wraps, clamps, signs, result, work in (
    ("mul", 0, 20, as_sources, EITHER, PRODUCT),
    ("add", 2, 15, as_sources, EITHER, SUM),
    ("sub", 3, 16, rules.signed_result, SIGNED, SUM),
):
    checks = (integers("a", "b", "y"), signs)
    elementwise(f"int_{name}", "a b shift", partial(integer_binary, name), *checks, arithmetic=work, **SHIFTED)
    for function in (wraps, clamps):
        saturates = {"saturate": function == clamps}
        ar(function, f"int_{name}", MODE, A, B, STRIDES, SHIFTING, result, of=INTEGER, fixed=saturates)
for name, function in (("max", 4), ("min", 5)):
    elementwise(name, "a b", partial(extreme, name), same_type("a", "b", "y"), arithmetic=COMPARISON)
    ar(function, name, *TWO, operands=2)
for function, (name, two) in enumerate(e.BITWISE.items(), 7):
    elementwise(name, "a b", bitwise(two), integers("a", "b"), same_type("a", "b", "y"), arithmetic=())
    ar(function, name, *TWO, operands=2, of=INTEGER)
NOT = {"tsk_eu_typ": 1}
ar(NOT["tsk_eu_typ"], "xor", A, ComputedPart(_ones), EITHER, operands=1)
for name, function, signs in (("logical", 6, rules.unsigned("a", "y")), ("arithmetic", 21, rules.shifted_alike)):
    checks = (integers("a", "y"), signs)
    shifts = partial(shifted, name == "arithmetic")
    elementwise(f"{name}_shift", "a shift", shifts, *checks, arithmetic=SHIFT, **SHIFTED)
    ar(function, f"{name}_shift", MODE, A, COUNTS, FIRST, operands=2)
# A number that is selected has the type of the result, not the type of the compared operands.
selected: Mapping[str, Any] = {"numbers": {"c": None, "d": None}}
compared = (same_type("a", "b"), same_type("c", "y"), rules.narrow_enough_result)
choices = (same_type("a", "b"), same_type("c", "d", "y"), rules.wide_enough_choices)
for name, compares, selects in (("greater", 10, 23), ("equal", 11, 24), ("less", 13, 26)):
    elementwise(name, "a b c", partial(compare, name), *compared, arithmetic=COMPARISON, **selected)
    ar(compares, name, A, COMPARED, TRUE, TRUE_RESULT)
    elementwise(f"{name}_select", "a b c d", partial(select, name), *choices, arithmetic=COMPARISON, **selected)
    encodes("CMP", selects, f"{name}_select", *OPERANDS, *ONE_RESULT)
for name in sorted({*RELATIONS} - {*MACHINE_RELATIONS}):  # the device API computes each with two commands
    elementwise(name, "a b c", partial(compare, name), *compared, **selected)
for name, key, relation, function in (("maximum", "max", "greater", 22), ("minimum", "min", "less", 25)):
    both = partial(extreme_select, key, relation)
    more: Mapping[str, Any] = {"outputs": "y0 y", "arithmetic": COMPARISON * 2, **selected}
    elementwise(f"{name}_{relation}_select", "a b c d", both, *choices, rules.equally_wide_choices, **more)
    encodes("CMP", function, f"{name}_{relation}_select", *OPERANDS, *TWO_RESULTS)
elementwise("copy", "a", lambda v: v["a"], same_type("a", "y"), arithmetic=())
ar(19, "copy", A, FIRST, operands=1)
ar(28, "copy", replace(A, sizes=Sizes("1 res0_c res0_h res0_w")), FIRST, operands=1)  # repeats sample 0
elementwise("abs", "a", absolute, same_type("a", "y"), arithmetic=SUM)
ar(26, "abs", A, FIRST, operands=1)
elementwise("neg", "a", negative, same_type("a", "y"), arithmetic=SUM)
elementwise("sign", "a", sign, same_type("a", "y"), arithmetic=COMPARISON)
for name, function in (("add", 20), ("sub", 21)):
    elementwise(f"fp_{name}_square", "a b", partial(squared, name), rules.floats("a", "b", "y"))
    linear(function, f"fp_{name}_square", SCALED, SCALE, REAL_RESULT)
elementwise("prelu", "a slope", prelu, rules.floats("a", "slope", "y"), arithmetic=COMPARISON + PRODUCT)
elementwise("fp_mac", "a b acc", multiply_add, rules.floats("a", "b", "acc", "y"), arithmetic=PRODUCT + SUM)
ar(18, "fp_mac", A, B, SharedOperand("acc", EITHER), STRIDES, EITHER, operands=2, of=FLOAT, takes=_in_place)
linear(1, "fp_mac", SCALED, SCALE, OFFSET, REAL_RESULT)
macs = (rules.of("a", I8, U8), rules.of("b", I8, U8), rules.of("acc", I16), rules.of("y", I16))
elementwise("int8_mac", "a b acc", integer_mac, *macs, arithmetic=PRODUCT + SUM)
mac = (A, B, SHIFTS, MODE, SharedOperand("acc", SIGNED), STRIDES, SIGNED)
ar(18, "int8_mac", *mac, operands=3, of=INTEGER, takes=_in_place)
series = (*rules.COMPUTE, rules.first_lane, rules.several_terms)
elementwise("fp_taylor", "a coefficients", taylor, rules.floats("a", "coefficients", "y"), places=series)
for function in (13, 12):
    encodes("SFU", function, "fp_taylor", TABLE, REAL, REAL_RESULT)
