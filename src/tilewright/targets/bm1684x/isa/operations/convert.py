"""Conversions, requantisation, and functions that the machine computes by iteration."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.isa.operations import rules
from tilewright.targets.bm1684x.isa.operations.base import TIU, Values, define
from tilewright.targets.bm1684x.values import iterate
from tilewright.targets.bm1684x.values.dtypes import F32, I32, Rounding
from tilewright.targets.bm1684x.values.floats import cast, flush, round_float, to_integer, widen
from tilewright.targets.bm1684x.values.rounding import saturate, shift


def convert(v: Values) -> dict[str, Array]:
    """x as another type; integers clamp, NaN becomes 0."""
    return {"y": cast(v["x"], v.types["x"], v.types["y"], v.mode)}


def round_to_integral(v: Values) -> dict[str, Array]:
    """The nearest integral value of the same float type."""
    return {"y": round_float(v["x"], v.types["x"], v.mode)}


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


def integer_requant(v: Values) -> dict[str, Array]:
    """sat(round(x * multiplier * 2**shift) + offset)."""
    scaled = shift(_wide(v["x"]) * _wide(v["multiplier"]), v["shift"], v.mode)
    return {"y": saturate(scaled + _wide(v["offset"]), v.types["y"])}


def float_requant(v: Values) -> dict[str, Array]:
    """sat(round(f32(x) * scale + offset)), each operation a float32 rounding; `source_mode` rounds x to float32."""
    mode, x = v.attribute("source_mode"), v["x"]
    with np.errstate(all="ignore"):
        nearest = mode is Rounding.HALF_TO_EVEN  # NumPy's own conversion
        real = x.astype(np.float32) if nearest else cast(_wide(x), I32, F32, mode)
        scaled = flush(flush(real * np.float32(v["scale"])) + np.float32(v["offset"]))
    return {"y": to_integer(scaled.astype(np.float64), v.types["y"], v.mode)}


def integer_dequant(v: Values) -> dict[str, Array]:
    """sat(round((x - offset) * multiplier * 2**shift))."""
    wide = (_wide(v["x"]) - _wide(v["offset"])) * _wide(v["multiplier"])
    return {"y": saturate(shift(wide, v["shift"], v.mode), v.types["y"])}


def float_dequant(v: Values) -> dict[str, Array]:
    """f32(x - offset) * scale."""
    with np.errstate(all="ignore"):
        return {"y": flush((_wide(v["x"]) - _wide(v["offset"])).astype(np.float32) * np.float32(v["scale"]))}


def divide(v: Values) -> dict[str, Array]:
    """a / b, as the machine iterates it: up to 4 units in the last place off."""
    return {"y": iterate.divide(v["a"], v["b"], v.attribute("steps"))}


def inverse_root(v: Values) -> dict[str, Array]:
    """1 / sqrt(a), iterated."""
    return {"y": iterate.inverse_root(v["a"], v.attribute("steps"))}


def square_root(v: Values) -> dict[str, Array]:
    """sqrt(a), iterated."""
    return {"y": iterate.square_root(v["a"])}


def exponential(v: Values) -> dict[str, Array]:
    """exp(a): what the device API's sequence of commands computes."""
    return {"y": iterate.exponential(v["a"])}


def sigmoid(v: Values) -> dict[str, Array]:
    """1 / (1 + exp(-a)): what the device API's sequence of commands computes."""
    return {"y": iterate.sigmoid(v["a"])}


def logarithm(v: Values) -> dict[str, Array]:
    """ln(a), rounded from float64: the vendor's sequence is not known, and differs by a unit in the last place."""
    with np.errstate(all="ignore"):
        return {"y": flush(np.log(widen(v["a"], F32).astype(np.float64)).astype(np.float32))}


modes, iterated = rules.rounds_to_neighbours, rules.iterates_in_f32
scaled = "x multiplier shift offset"
define(TIU, "cast", "x", convert, modes, rules.not_between_short_floats)
define(TIU, "fp_round", "x", round_to_integral, modes, rules.floats("x", "y"))
define(TIU, "int_requant", scaled, integer_requant, rules.wide_source)
define(TIU, "fp32_requant", "x scale offset", float_requant, modes, rules.wide_source)
define(TIU, "int_dequant", scaled, integer_dequant, rules.integers("x", "y"))
define(TIU, "fp32_dequant", "x scale offset", float_dequant, rules.integers("x"), rules.of("y", F32))
define(TIU, "fp_div", "a b", divide, iterated)
define(TIU, "fp_rsqrt", "a", inverse_root, iterated)
define(TIU, "fp_sqrt", "a", square_root, iterated)
define(TIU, "fp_exp", "a", exponential, iterated)
define(TIU, "fp_sigmoid", "a", sigmoid, iterated)
define(TIU, "fp_log", "a", logarithm, iterated, inexact=True)
