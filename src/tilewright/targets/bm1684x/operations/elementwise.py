"""Element-wise commands of the compute engine. Operands broadcast: constants, channels, strides of 0."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.arithmetic import elementwise as e
from tilewright.targets.bm1684x.arithmetic.compare import RELATIONS, holds
from tilewright.targets.bm1684x.arithmetic.floats import narrow, widen
from tilewright.targets.bm1684x.dtypes import I8, I16, I32, U8, U16, U32
from tilewright.targets.bm1684x.operations import rules
from tilewright.targets.bm1684x.operations.base import TIU, Meaning, Operation, Values, register

INTEGERS = (I8, U8, I16, U16, I32, U32)


def _float(name: str) -> Meaning:
    def meaning(v: Values) -> dict[str, Array]:
        return {"y": e.float_binary(name, v["a"], v["b"], v.types["y"])}

    return meaning


def _integer(name: str) -> Meaning:
    def meaning(v: Values) -> dict[str, Array]:
        count = v["shift"].astype(np.int64) if "shift" in v.data else 0
        saturating = bool(v.attribute("saturate"))
        return {"y": e.integer_binary(name, v["a"], v["b"], v.types["y"], count, v.mode, saturating)}

    return meaning


def _extreme(name: str) -> Meaning:
    def meaning(v: Values) -> dict[str, Array]:
        return {"y": _extreme_of(name, v)}

    return meaning


def _extreme_of(name: str, v: Values) -> Array:
    if v.types["a"].is_float:
        return e.float_binary(name, v["a"], v["b"], v.types["a"])
    return np.maximum(v["a"], v["b"]) if name == "max" else np.minimum(v["a"], v["b"])


def _bitwise(name: str) -> Meaning:
    def meaning(v: Values) -> dict[str, Array]:
        return {"y": e.BITWISE[name](v["a"], v["b"])}

    return meaning


def _shift(arithmetic: bool) -> Meaning:
    def meaning(v: Values) -> dict[str, Array]:
        count = v["shift"].astype(np.int64)
        return {"y": e.shift_bits(v["a"], v.types["a"], v.types["y"], count, v.mode, arithmetic)}

    return meaning


def _compare(relation: str) -> Meaning:
    def meaning(v: Values) -> dict[str, Array]:
        true = holds(relation, v["a"], v["b"], v.types["a"])
        return {"y": np.where(true, v["c"], np.zeros((), v.types["y"].storage))}

    return meaning


def _select(relation: str) -> Meaning:
    def meaning(v: Values) -> dict[str, Array]:
        return {"y": np.where(holds(relation, v["a"], v["b"], v.types["a"]), v["c"], v["d"])}

    return meaning


def _extreme_select(name: str, relation: str) -> Meaning:
    def meaning(v: Values) -> dict[str, Array]:
        chosen = np.where(holds(relation, v["a"], v["b"], v.types["a"]), v["c"], v["d"])
        return {"y0": _extreme_of(name, v), "y": chosen}

    return meaning


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
    left, right = v.attribute("left"), v.attribute("right")
    return {"y": e.integer_mac(v["a"], v["b"], v["acc"], left, right, v.mode)}


def taylor(v: Values) -> dict[str, Array]:
    """The sum of coefficient[k] * a**k, by Horner's scheme. Each lane has its own: (1, c, 1, k), or (k,) for all."""
    coefficients = np.moveaxis(v["coefficients"], -1, 0)[..., None]
    return {"y": e.polynomial(v["a"], coefficients.reshape(len(coefficients), 1, -1, 1, 1), v.types["y"])}


one_float = rules.floats("a", "b", "y")
register(
    Operation(f"fp_{name}", TIU, ("a", "b"), _float(name), (one_float,)) for name in ("add", "sub", "mul", "diff_abs")
)
register(
    Operation(f"int_{name}", TIU, ("a", "b", "shift"), _integer(name), (rules.integers("a", "b", "y"), *also))
    for name, also in (
        ("add", (rules.signed_as_its_sources("a", "b"),)),
        ("sub", (rules.signed_result,)),
        ("mul", (rules.signed_as_its_sources("a", "b"),)),
    )
)
register(Operation(name, TIU, ("a", "b"), _extreme(name), (rules.alike("a", "b", "y"),)) for name in ("max", "min"))
register(
    Operation(name, TIU, ("a", "b"), _bitwise(name), (rules.integers("a", "b"), rules.alike("a", "b", "y")))
    for name in e.BITWISE
)
register(
    Operation(f"{name}_shift", TIU, ("a", "shift"), _shift(name == "arithmetic"), (rules.integers("a", "y"),))
    for name in ("arithmetic", "logical")
)
register(
    Operation(name, TIU, ("a", "b", "c"), _compare(name), (rules.alike("a", "b"), rules.alike("c", "y")))
    for name in RELATIONS
)
choices = (rules.alike("a", "b"), rules.alike("c", "d", "y"), rules.wide_enough_choices("a", "b"))
register(
    Operation(f"{name}_select", TIU, ("a", "b", "c", "d"), _select(name), choices)
    for name in ("greater", "less", "equal")
)
register(
    Operation(f"{extreme}_{name}_select", TIU, ("a", "b", "c", "d"), _extreme_select(key, name), choices, ("y0", "y"))
    for extreme, key, name in (("maximum", "max", "greater"), ("minimum", "min", "less"))
)
register(
    (
        Operation("copy", TIU, ("a",), copy, (rules.alike("a", "y"),)),
        Operation("abs", TIU, ("a",), absolute, (rules.alike("a", "y"),)),
        Operation("neg", TIU, ("a",), negative, (rules.alike("a", "y"),)),
        Operation("sign", TIU, ("a",), sign, (rules.alike("a", "y"),)),
        Operation("prelu", TIU, ("a", "slope"), prelu, (rules.floats("a", "slope", "y"),)),
        Operation("fp_mac", TIU, ("a", "b", "acc"), multiply_add, (rules.floats("a", "b", "acc", "y"),)),
        Operation(
            "int8_mac",
            TIU,
            ("a", "b", "acc"),
            integer_mac,
            (rules.of("a", I8, U8), rules.of("b", I8, U8), rules.of("acc", I16), rules.of("y", I16)),
        ),
        Operation("fp_taylor", TIU, ("a", "coefficients"), taylor, (rules.floats("a", "coefficients", "y"),)),
    )
)
