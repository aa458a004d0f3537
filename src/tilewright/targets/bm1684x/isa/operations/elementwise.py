"""Element-wise commands of the compute engine. Operands broadcast: constants, channels, strides of 0."""

from __future__ import annotations

from functools import partial

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.isa.operations import rules
from tilewright.targets.bm1684x.isa.operations.base import TIU, Values, define
from tilewright.targets.bm1684x.values import elementwise as e
from tilewright.targets.bm1684x.values.dtypes import I8, I16, U8
from tilewright.targets.bm1684x.values.elementwise import RELATIONS, holds
from tilewright.targets.bm1684x.values.floats import narrow, widen
from tilewright.targets.bm1684x.values.rounding import saturate, shift, shift_right, wrap


def float_binary(name: str, v: Values) -> dict[str, Array]:
    """A sum, difference, product or absolute difference, rounded once."""
    return {"y": e.float_binary(name, v["a"], v["b"], v.types["y"])}


def integer_binary(name: str, v: Values) -> dict[str, Array]:
    """A sum, difference or product, shifted and rounded; it wraps, or clamps where the command says so."""
    count = v["shift"].astype(np.int64) if "shift" in v.data else 0
    saturating = bool(v.attribute("saturate"))
    return {"y": e.integer_binary(name, v["a"], v["b"], v.types["y"], count, v.mode, saturating)}


def extreme(name: str, v: Values) -> dict[str, Array]:
    """The larger of a and b, or the smaller."""
    if v.types["a"].is_float:
        return {"y": e.float_binary(name, v["a"], v["b"], v.types["a"])}
    return {"y": np.maximum(v["a"], v["b"]) if name == "max" else np.minimum(v["a"], v["b"])}


def bitwise(name: str, v: Values) -> dict[str, Array]:
    """and, or, xor."""
    return {"y": e.BITWISE[name](v["a"], v["b"])}


def shifted(arithmetic: bool, v: Values) -> dict[str, Array]:
    """Right shifts round; left shifts drop what leaves the type. Logical ones see unsigned bits."""
    bits = v["a"] if arithmetic else v["a"].view(f"<u{v.types['a'].bytes}")
    return {"y": wrap(shift(bits.astype(np.int64), v["shift"].astype(np.int64), v.mode), v.types["y"])}


def compare(relation: str, v: Values) -> dict[str, Array]:
    """c where the relation holds between a and b, else 0."""
    true = holds(relation, v["a"], v["b"], v.types["a"])
    return {"y": np.where(true, v["c"], np.zeros((), v.types["y"].storage))}


def select(relation: str, v: Values) -> dict[str, Array]:
    """c where the relation holds between a and b, else d."""
    return {"y": np.where(holds(relation, v["a"], v["b"], v.types["a"]), v["c"], v["d"])}


def extreme_select(name: str, relation: str, v: Values) -> dict[str, Array]:
    """The extreme of a and b too."""
    return {"y0": extreme(name, v)["y"], **select(relation, v)}


def copy(v: Values) -> dict[str, Array]:
    """The operand's bits."""
    return {"y": v["a"]}


def absolute(v: Values) -> dict[str, Array]:
    """|a|."""
    dtype = v.types["y"]
    if dtype.is_float:
        return {"y": narrow(np.abs(widen(v["a"], dtype)), dtype)}
    return {"y": np.abs(v["a"])}


def negative(v: Values) -> dict[str, Array]:
    """0 - a: zeros become positive, the lowest integer stays."""
    dtype = v.types["y"]
    if dtype.is_float:
        return {"y": e.float_binary("sub", dtype.from_bits(0), v["a"], dtype)}
    return {"y": (0 - v["a"].astype(np.int64)).astype(dtype.storage)}


def sign(v: Values) -> dict[str, Array]:
    """-1, 0 or 1."""
    dtype = v.types["y"]
    if dtype.is_float:
        return {"y": narrow(np.sign(widen(v["a"], dtype)), dtype)}
    return {"y": np.sign(v["a"])}


def prelu(v: Values) -> dict[str, Array]:
    """a where it is positive, else a * slope."""
    dtype = v.types["y"]
    with np.errstate(all="ignore"):
        value, slope = widen(v["a"], dtype), widen(v["slope"], dtype)
        return {"y": narrow(np.where(value > 0, value, value * slope), dtype)}


def multiply_add(v: Values) -> dict[str, Array]:
    """acc + a * b, two roundings."""
    return {"y": e.multiply_add(v["a"], v["b"], v["acc"], v.types["y"])}


def integer_mac(v: Values) -> dict[str, Array]:
    """sat16(((acc << left) + a * b) >> right)."""
    a, b, acc = (v[name].astype(np.int64) for name in ("a", "b", "acc"))
    wide = (acc << v.attribute("left")) + a * b
    return {"y": saturate(shift_right(wide, v.attribute("right"), v.mode), I16)}


def taylor(v: Values) -> dict[str, Array]:
    """The sum of coefficient[k] * a**k, by Horner's scheme. Each lane has its own: (1, c, 1, k), or (k,) for all."""
    coefficients = np.moveaxis(v["coefficients"], -1, 0)[..., None]
    return {"y": e.polynomial(v["a"], coefficients.reshape(len(coefficients), 1, -1, 1, 1), v.types["y"])}


alike, integers = rules.alike, rules.integers
for name in ("add", "sub", "mul", "diff_abs"):
    define(TIU, f"fp_{name}", "a b", partial(float_binary, name), rules.floats("a", "b", "y"))
as_sources = rules.signed_as_its_sources("a", "b")
for name, signs in (("add", as_sources), ("sub", rules.signed_result), ("mul", as_sources)):
    define(TIU, f"int_{name}", "a b shift", partial(integer_binary, name), integers("a", "b", "y"), signs)
for name in ("max", "min"):
    define(TIU, name, "a b", partial(extreme, name), alike("a", "b", "y"))
for name in e.BITWISE:
    define(TIU, name, "a b", partial(bitwise, name), integers("a", "b"), alike("a", "b", "y"))
for name in ("arithmetic", "logical"):
    define(TIU, f"{name}_shift", "a shift", partial(shifted, name == "arithmetic"), integers("a", "y"))
for name in RELATIONS:
    define(TIU, name, "a b c", partial(compare, name), alike("a", "b"), alike("c", "y"))
choices = (alike("a", "b"), alike("c", "d", "y"), rules.wide_enough_choices("a", "b"))
for name in ("greater", "less", "equal"):
    define(TIU, f"{name}_select", "a b c d", partial(select, name), *choices)
for name, key, relation in (("maximum", "max", "greater"), ("minimum", "min", "less")):
    both = partial(extreme_select, key, relation)
    define(TIU, f"{name}_{relation}_select", "a b c d", both, *choices, outputs="y0 y")
for name, unary in (("copy", copy), ("abs", absolute), ("neg", negative), ("sign", sign)):
    define(TIU, name, "a", unary, alike("a", "y"))
macs = (rules.of("a", I8, U8), rules.of("b", I8, U8), rules.of("acc", I16), rules.of("y", I16))
define(TIU, "prelu", "a slope", prelu, rules.floats("a", "slope", "y"))
define(TIU, "fp_mac", "a b acc", multiply_add, rules.floats("a", "b", "acc", "y"))
define(TIU, "int8_mac", "a b acc", integer_mac, *macs)
define(TIU, "fp_taylor", "a coefficients", taylor, rules.floats("a", "coefficients", "y"))
