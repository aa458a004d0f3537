"""The compute engine's element-wise commands and conversions, and the functions that it computes by iteration.

Constants, operands with one value per channel, and operands with strides of 0 broadcast to the shape of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.isa.operations import rules
from tilewright.targets.bm1684x.isa.operations.base import TIU, Flow, Signature, Values, define
from tilewright.targets.bm1684x.values import elementwise as e
from tilewright.targets.bm1684x.values import floats
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, U16, Rounding
from tilewright.targets.bm1684x.values.elementwise import RELATIONS, holds

#: Relations for which the machine has a function.
MACHINE_RELATIONS = ("greater", "less", "equal")


def float_binary(name: str, v: Values) -> Array:
    """Return the sum, difference, product or absolute difference (`name`) of the operands a and b, rounded once."""
    return e.float_binary(name, v["a"], v["b"], v.types["y"])


def integer_binary(name: str, v: Values) -> Array:
    """Return the sum, difference or product (`name`) of the operands a and b, shifted by `shift` and rounded.

    A result out of range wraps around, or is clamped if the attribute `saturate` is set.
    """
    count = v["shift"].astype(np.int64) if "shift" in v.data else 0
    saturating = bool(v.attribute("saturate"))
    return e.integer_binary(name, v["a"], v["b"], v.types["y"], count, v.mode, saturating)


def extreme(name: str, v: Values) -> Array:
    """Return the maximum or minimum (`name`) of the operands a and b."""
    if v.types["a"].is_float:
        return e.float_binary(name, v["a"], v["b"], v.types["a"])
    return np.maximum(v["a"], v["b"]) if name == "max" else np.minimum(v["a"], v["b"])


def shifted(arithmetic: bool, v: Values) -> Array:
    """Return operand a, shifted. Right shifts round, left shifts drop high bits. Logical shifts take a as unsigned."""
    bits = v["a"] if arithmetic else v["a"].view(f"<u{v.types['a'].bytes}")
    return floats.wrap(floats.shift(bits.astype(np.int64), v["shift"].astype(np.int64), v.mode), v.types["y"])


def compare(relation: str, v: Values) -> Array:
    """Return the operand c where `relation` holds between the operands a and b, else 0."""
    true = holds(relation, v["a"], v["b"], v.types["a"])
    return np.where(true, v["c"], np.zeros((), v.types["y"].storage))


def select(relation: str, v: Values) -> Array:
    """Return the operand c where `relation` holds between the operands a and b, else the operand d."""
    return np.where(holds(relation, v["a"], v["b"], v.types["a"]), v["c"], v["d"])


def extreme_select(name: str, relation: str, v: Values) -> dict[str, Array]:
    """Return two results: y, the outcome of `select`, and y0, the maximum or minimum of the operands a and b."""
    return {"y0": extreme(name, v), "y": select(relation, v)}


def negative(v: Values) -> Array:
    """Return `0 - a` for the operand a. Both float zeros give positive zero; the lowest integer stays as it is."""
    dtype = v.types["y"]
    if dtype.is_float:
        return e.float_binary("sub", dtype.from_bits(0), v["a"], dtype)
    return (0 - v["a"].astype(np.int64)).astype(dtype.storage)


def prelu(v: Values) -> Array:
    """Return the operand a where it is positive, else `a * slope`."""
    dtype = v.types["y"]
    with np.errstate(all="ignore"):
        value, slope = floats.widen(v["a"], dtype), floats.widen(v["slope"], dtype)
        return floats.narrow(np.where(value > 0, value, value * slope), dtype)


def squared(name: str, v: Values) -> Array:
    """Return the square of the sum or difference (`name`) of the operands a and b, rounded after each operation."""
    inner = e.float_binary(name, v["a"], v["b"], v.types["y"])
    return e.float_binary("mul", inner, inner, v.types["y"])


def multiply_add(v: Values) -> Array:
    """Return `acc + a * b`, rounded after the product and after the sum."""
    return e.multiply_add(v["a"], v["b"], v["acc"], v.types["y"])


def integer_mac(v: Values) -> Array:
    """Return `((acc << left) + a * b) >> right`, clamped to 16 bits. The right shift rounds.

    If a and b are unsigned, acc and the result are unsigned too, whatever their type says.
    """
    own = I16 if v.types["a"].signed or v.types["b"].signed else U16
    a, b, acc = (values.astype(np.int64) for values in (v["a"], v["b"], v["acc"].view(own.storage)))
    wide = (acc << v.attribute("left")) + a * b
    return floats.saturate(floats.shift_right(wide, v.attribute("right"), v.mode), own).view(I16.storage)


def taylor(v: Values) -> Array:
    """Return the sum of `coefficients[k] * a**k`. Coefficients are (1, c, 1, k), or (k,) for all channels."""
    coefficients = np.moveaxis(v["coefficients"], -1, 0)[..., None]
    return e.polynomial(v["a"], coefficients.reshape(len(coefficients), 1, -1, 1, 1), v.types["y"])


def absolute(v: Values) -> Array:
    """Return the absolute value of the operand a: of a float without its sign bit, so that subnormals stay."""
    dtype = v.types["y"]
    if not dtype.is_float:
        return np.abs(v["a"])
    bits = v["a"].view(f"<u{dtype.bytes}")
    return (bits & bits.dtype.type((1 << (dtype.bits - 1)) - 1)).view(dtype.storage)


def sign(v: Values) -> Array:
    """Return the sign of the operand a: 1, 0 or -1. Floats that are neither positive nor +0 give -1.

    These include -0, NaN and, where subnormals count as zero, subnormals: the machine compares them as `holds` does.
    """
    dtype = v.types["y"]
    zero, one, minus = (np.asarray(number, np.float32) for number in (0, 1, -1))
    if not dtype.is_float:
        return np.sign(v["a"])
    positive, null = (holds(relation, v["a"], dtype.from_bits(0), dtype) for relation in ("greater", "equal"))
    return floats.narrow(np.where(positive, one, np.where(null, zero, minus)), dtype)


def _of(names: str, function: Callable[..., Array]) -> Callable[[Values], Array]:
    """Return a function that computes an operation: it applies `function` to the operands in `names`."""
    return lambda v: function(*(v[name] for name in names.split()))


alike, integers = rules.alike, rules.integers
elementwise = partial(define, TIU, flow=Flow.ELEMENTWISE)
SUM, PRODUCT, COMPARISON, SHIFT = ("add",), ("multiply",), ("compare",), ("shift",)
SHIFTED: Mapping[str, Any] = {"numbers": {"shift": I8}}
for name, work in (("add", SUM), ("sub", SUM), ("mul", PRODUCT), ("diff_abs", SUM)):
    elementwise(f"fp_{name}", "a b", partial(float_binary, name), rules.floats("a", "b", "y"), arithmetic=work)
as_sources = rules.signed_as_its_sources("a", "b")
for name, signs, work in (("add", as_sources, SUM), ("sub", rules.signed_result, SUM), ("mul", as_sources, PRODUCT)):
    checks = (integers("a", "b", "y"), signs)
    elementwise(f"int_{name}", "a b shift", partial(integer_binary, name), *checks, arithmetic=work, **SHIFTED)
for name in ("max", "min"):
    elementwise(name, "a b", partial(extreme, name), alike("a", "b", "y"), arithmetic=COMPARISON)
for name, two in e.BITWISE.items():
    elementwise(name, "a b", _of("a b", two), integers("a", "b"), alike("a", "b", "y"), arithmetic=())
for name in ("arithmetic", "logical"):
    checks = (integers("a", "y"), rules.shifted_alike if name == "arithmetic" else rules.unsigned("a", "y"))
    shifts = partial(shifted, name == "arithmetic")
    elementwise(f"{name}_shift", "a shift", shifts, *checks, arithmetic=SHIFT, **SHIFTED)
selected: Mapping[str, Any] = {"numbers": {"c": None, "d": None}}
compared = (alike("a", "b"), alike("c", "y"), rules.narrow_enough_result)
for name in RELATIONS:
    counted = COMPARISON if name in MACHINE_RELATIONS else None
    elementwise(name, "a b c", partial(compare, name), *compared, arithmetic=counted, **selected)
choices = (alike("a", "b"), alike("c", "d", "y"), rules.wide_enough_choices)
for name in MACHINE_RELATIONS:  # the device API makes the others of these
    elementwise(f"{name}_select", "a b c d", partial(select, name), *choices, arithmetic=COMPARISON, **selected)
for name, key, relation in (("maximum", "max", "greater"), ("minimum", "min", "less")):
    both = partial(extreme_select, key, relation)
    more: Mapping[str, Any] = {"outputs": "y0 y", "arithmetic": COMPARISON * 2, **selected}
    elementwise(f"{name}_{relation}_select", "a b c d", both, *choices, rules.equally_wide_choices, **more)
elementwise("copy", "a", lambda v: v["a"], alike("a", "y"), arithmetic=())
elementwise("abs", "a", absolute, alike("a", "y"), arithmetic=SUM)
elementwise("neg", "a", negative, alike("a", "y"), arithmetic=SUM)
elementwise("sign", "a", sign, alike("a", "y"), arithmetic=COMPARISON)
macs = (rules.of("a", I8, U8), rules.of("b", I8, U8), rules.of("acc", I16), rules.of("y", I16))
for name in ("add", "sub"):
    elementwise(f"fp_{name}_square", "a b", partial(squared, name), rules.floats("a", "b", "y"))
elementwise("prelu", "a slope", prelu, rules.floats("a", "slope", "y"), arithmetic=COMPARISON + PRODUCT)
elementwise("fp_mac", "a b acc", multiply_add, rules.floats("a", "b", "acc", "y"), arithmetic=PRODUCT + SUM)
elementwise("int8_mac", "a b acc", integer_mac, *macs, arithmetic=PRODUCT + SUM)
series = (*rules.COMPUTE, rules.first_lane, rules.several_terms)
elementwise("fp_taylor", "a coefficients", taylor, rules.floats("a", "coefficients", "y"), places=series)


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


def convert(v: Values) -> Array:
    """Return the operand x converted to the type of y. Integers clamp; NaN becomes 0 in an integer type."""
    return floats.cast(v["x"], v.types["x"], v.types["y"], v.mode)


def integral(v: Values) -> Array:
    """Return the float operand x, rounded to integral values of its type."""
    return floats.round_float(v["x"], v.types["x"], v.mode)


def integer_requant(v: Values) -> Array:
    """Return `round(x * multiplier * 2**shift) + offset`, clamped to the type of the result."""
    scaled = floats.shift(_wide(_as_signed(v["x"])) * _wide(v["multiplier"]), _low_byte(v["shift"]), v.mode)
    return floats.saturate(scaled + _wide(v["offset"]), v.types["y"])


def _as_signed(x: Array) -> Array:
    """Return the source of a requantisation as the machine takes it: 32-bit numbers are signed, whatever their type."""
    return x.view(I32.storage) if x.dtype.itemsize == I32.bytes else x


def _flushed(value: Array) -> Array:
    return floats.flush(np.asarray(value, np.float32))


def float_requant(v: Values) -> Array:
    """Return `round(f32(x) * scale + offset)`, clamped. Each step rounds to float32; f32(x) rounds by `source_mode`."""
    mode, x = v.attribute("source_mode"), _as_signed(v["x"])
    with np.errstate(all="ignore"):
        nearest = mode is Rounding.HALF_TO_EVEN  # NumPy's own conversion
        real = x.astype(np.float32) if nearest else floats.cast(_wide(x), I32, F32, mode)
        scaled = floats.flush(floats.flush(real * _flushed(v["scale"])) + _flushed(v["offset"]))
    return floats.to_integer(scaled.astype(np.float64), v.types["y"], v.mode)


def integer_dequant(v: Values) -> Array:
    """Return `round((x - offset) * multiplier * 2**shift)`, clamped to the type of the result."""
    wide = (_wide(v["x"]) - _short_offset(v)) * _wide(v["multiplier"])
    return floats.saturate(floats.shift(wide, _low_byte(v["shift"]), v.mode), v.types["y"])


def _low_byte(shift: Array) -> Array:
    """Return the low bytes of shifts: a table has a word for each."""
    return shift.astype(np.int8)


def _short_offset(v: Values) -> Array:
    """Return the offset of a dequantisation: its low 16 bits, signed if the source is."""
    return _wide(v["offset"].astype(np.int16 if v.types["x"].signed else np.uint16))


def float_dequant(v: Values) -> Array:
    """Return `f32(x - offset) * scale`, where f32 converts integers to float32."""
    with np.errstate(all="ignore"):
        return floats.flush((_wide(v["x"]) - _short_offset(v)).astype(np.float32) * _flushed(v["scale"]))


def exponent(v: Values) -> Array:
    """Return the exponent field of the float x: as an integer of its width, or as the power of two with this exponent.

    If x is positive and its fraction is about a third or more, the exponent is one larger. Subnormals are not flushed.
    A positive NaN gives the exponent after that of infinity, which as a float is 0.
    """
    source, out = v.types["x"], v.types["y"]
    fraction = floats.SIGNIFICAND[source] - 1
    bits = v["x"].view(f"<u{source.bytes}").astype(np.int64)
    power, rest = bits >> fraction & (1 << (source.bits - 1 - fraction)) - 1, bits & (1 << fraction) - 1
    positive = bits >> (source.bits - 1) == 0
    found = power + (positive & (6 * (rest >> 1) >= 1 << fraction))
    if not out.is_float:
        return found.astype(out.storage)
    limit = (1 << (source.bits - 1 - fraction)) - 1
    whole = (found & limit) << fraction | bits & 1 << (source.bits - 1)
    return whole.astype(f"<u{out.bytes}").view(out.storage)


def exponent_types(found: Signature) -> str:
    """Return the reason to refuse to extract exponents of these types, or ""."""
    source, out = found.types["x"], found.types["y"]
    if source.is_float and (out is source or (out is (I32 if source is F32 else I16))):
        return ""
    return f"exponents of {source} are not written as {out}; give the source's type, or a signed integer of its width"


def logarithm(v: Values) -> Array:
    """Return `ln(a)`, rounded from float64. The results of the vendor's unknown sequence differ by at most one ulp."""
    with np.errstate(all="ignore"):
        return floats.flush(np.log(floats.widen(v["a"], F32).astype(np.float64)).astype(np.float32))


modes, in_f32 = rules.rounds_to_neighbours, rules.iterates_in_f32
scaled = "x multiplier shift offset"
words: dict[str, Any] = {"numbers": {"multiplier": I32, "shift": I8, "offset": I32}}
words["arithmetic"] = PRODUCT + SHIFT + SUM
narrowed = (rules.wide_source, rules.narrow_result)
widened = (rules.narrow_source, rules.of("y", I16, U16, I32))
elementwise("cast", "x", convert, modes, rules.not_between_short_floats, arithmetic=())
elementwise("fp_round", "x", integral, modes, rules.floats("x", "y"), arithmetic=())
define(TIU, "fp_exponent", "x", exponent, exponent_types)
elementwise("int_requant", scaled, integer_requant, *narrowed, **words)
floating: dict[str, Any] = {"arithmetic": PRODUCT + SUM, "numbers": {"scale": F32, "offset": F32}}
elementwise("fp32_requant", "x scale offset", float_requant, modes, *narrowed, **floating)
elementwise("int_dequant", scaled, integer_dequant, *widened, **words)
floating["numbers"] = {"scale": F32, "offset": I32}
elementwise("fp32_dequant", "x scale offset", float_dequant, rules.narrow_source, rules.of("y", F32), **floating)
elementwise("fp_div", "a b", lambda v: e.divide(v["a"], v["b"], v.attribute("steps")), in_f32)
elementwise("fp_rsqrt", "a", lambda v: e.inverse_root(v["a"], v.attribute("steps")), in_f32)
for name, function in (("sqrt", e.square_root), ("exp", e.exponential), ("sigmoid", e.sigmoid)):
    elementwise(f"fp_{name}", "a", _of("a", function), in_f32)
elementwise("fp_log", "a", logarithm, in_f32, inexact=True)


def _outer(meaning: Callable[[Values], Array]) -> Callable[[Values], Array]:
    """Return a function that computes an operation on all pairs of elements of a (a row) and b (a column)."""

    def all_pairs(v: Values) -> Array:
        pairs = {"a": v["a"].reshape(-1, 1), "b": v["b"].reshape(1, -1)}
        return meaning(replace(v, data={**v.data, **pairs}))

    return all_pairs


pairs = partial(define, TIU, flow=Flow.PAIRS)
for name, signs in (("add", as_sources), ("sub", rules.signed_result), ("mul", as_sources)):
    pairs(f"vc_fp_{name}", "a b", _outer(partial(float_binary, name)), rules.floats("a", "b", "y"))
    pairs(f"vc_int_{name}", "a b", _outer(partial(integer_binary, name)), integers("a", "b", "y"), signs)
pairs("vc_fp_div", "a b", _outer(lambda v: e.divide(v["a"], v["b"], v.attribute("steps"))), in_f32)
for name in ("max", "min"):
    pairs(f"vc_{name}", "a b", _outer(partial(extreme, name)), alike("a", "b", "y"))
for name, two in e.BITWISE.items():
    pairs(f"vc_{name}", "a b", _outer(_of("a b", two)), integers("a", "b"), alike("a", "b", "y"))
for name in MACHINE_RELATIONS:
    pairs(f"vc_{name}", "a b c", _outer(partial(compare, name)), *compared, **selected)
