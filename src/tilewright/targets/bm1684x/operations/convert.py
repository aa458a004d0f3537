"""Conversions, requantisation, and functions that the machine computes by iteration."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.arithmetic import iterate, quant
from tilewright.targets.bm1684x.arithmetic.cast import cast, round_float
from tilewright.targets.bm1684x.arithmetic.floats import flush, widen
from tilewright.targets.bm1684x.dtypes import F32
from tilewright.targets.bm1684x.operations import rules
from tilewright.targets.bm1684x.operations.base import TIU, Operation, Values, register


def convert(v: Values) -> dict[str, Array]:
    """x as another type; integers clamp, NaN becomes 0."""
    return {"y": cast(v["x"], v.types["x"], v.types["y"], v.mode)}


def round_to_integral(v: Values) -> dict[str, Array]:
    """The nearest integral value of the same float type."""
    return {"y": round_float(v["x"], v.types["x"], v.mode)}


def integer_requant(v: Values) -> dict[str, Array]:
    """sat(round(x * multiplier * 2**shift) + offset)."""
    return {"y": quant.requantise(v["x"], v.types["y"], v["multiplier"], v["shift"], v["offset"], v.mode)}


def float_requant(v: Values) -> dict[str, Array]:
    """sat(round(f32(x) * scale + offset))."""
    source = v.attribute("source_mode")
    return {"y": quant.requantise_float(v["x"], v.types["y"], v["scale"], v["offset"], v.mode, source)}


def integer_dequant(v: Values) -> dict[str, Array]:
    """sat(round((x - offset) * multiplier * 2**shift))."""
    return {"y": quant.dequantise(v["x"], v.types["y"], v["multiplier"], v["shift"], v["offset"], v.mode)}


def float_dequant(v: Values) -> dict[str, Array]:
    """f32(x - offset) * scale."""
    return {"y": quant.dequantise_float(v["x"], v["scale"], v["offset"])}


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


modes = (rules.rounds_to_neighbours,)
iterated = (rules.iterates_in_f32,)
register(
    (
        Operation("cast", TIU, ("x",), convert, (*modes, rules.not_between_short_floats)),
        Operation("fp_round", TIU, ("x",), round_to_integral, (*modes, rules.floats("x", "y"))),
        Operation("int_requant", TIU, ("x", "multiplier", "shift", "offset"), integer_requant, (rules.wide_source,)),
        Operation("fp32_requant", TIU, ("x", "scale", "offset"), float_requant, (*modes, rules.wide_source)),
        Operation(
            "int_dequant", TIU, ("x", "multiplier", "shift", "offset"), integer_dequant, (rules.integers("x", "y"),)
        ),
        Operation(
            "fp32_dequant", TIU, ("x", "scale", "offset"), float_dequant, (rules.integers("x"), rules.of("y", F32))
        ),
        Operation("fp_div", TIU, ("a", "b"), divide, iterated),
        Operation("fp_rsqrt", TIU, ("a",), inverse_root, iterated),
        Operation("fp_sqrt", TIU, ("a",), square_root, iterated),
        Operation("fp_exp", TIU, ("a",), exponential, iterated),
        Operation("fp_sigmoid", TIU, ("a",), sigmoid, iterated),
        Operation("fp_log", TIU, ("a",), logarithm, iterated, inexact=True),
    )
)
