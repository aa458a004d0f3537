"""Convolutions, pooling and matrix products (section 6.3 of the specification). The attribute `window` is a Window."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.isa.operations import rules
from tilewright.targets.bm1684x.isa.operations.base import TIU, Flow, Rule, Signature, Values, define
from tilewright.targets.bm1684x.values import conv
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.floats import flush, narrow, saturate, shift, widen, wrap
from tilewright.targets.bm1684x.values.window import Window


def _window(v: Values) -> Window:
    window: Window | None = v.attribute("window")
    if window is None:
        raise MachineError("attribute window", "missing", "give window=Window((height, width), pads, stride, dilation)")
    return window


def _weights(v: Values) -> Array:
    """Return the weights w of a convolution, rotated by 180 degrees if the attribute `rotated` is set.

    If w is a number, all weights (output channels, input channels, kh, kw) are this number.
    """
    w = v["w"]
    if not w.ndim:
        w = np.broadcast_to(w, (v.shapes["y"][1], v["x"].shape[1], *_window(v).kernel))
    return w[..., ::-1, ::-1] if v.attribute("rotated") else w


def _first(v: Values) -> list[Array]:
    """Return the float32 terms with which a sum of products begins: bias, then acc, each if the command has it."""
    return [flush(v[name].astype(np.float32)) for name in ("bias", "acc") if name in v.data]


def _plus(total: Array, v: Values, name: str) -> Array:
    """Return the integer sums `total` plus the optional operand `name`, if the command has it."""
    return total + v[name] if name in v.data else total


def float_conv(v: Values) -> Array:
    """Return x (n, ic, h, w) convolved with w (oc, ic, kh, kw), plus optional f32 bias (1, oc, 1, 1) and acc."""
    return conv.float_conv(v["x"], _weights(v), v.types["x"], v.types["y"], _window(v), _first(v))


def symmetric_conv(v: Values) -> Array:
    """Return `round_half_up((sum + bias) >> right)`, clamped to the result type; sum is x convolved with w."""
    total = conv.integer_conv(v["x"], _weights(v), _window(v), 0, 0).astype(np.int64)
    return conv.scaled(_plus(total, v, "bias"), v.types["y"], v.attribute("right"))


def _pad(v: Values) -> Array | int:
    """Return the value of padding: one for each channel from the operand `pads`, or the attribute `pad`."""
    pads: Array | int = v["pads"] if "pads" in v.data else v.attribute("pad")
    return pads


def _between(v: Values) -> Array | int:
    """Return the value that is inserted between elements of x, as `_pad` does."""
    values: Array | int = v["inserts"] if "inserts" in v.data else v.attribute("between")
    return values


def asymmetric_conv(v: Values) -> Array:
    """Return padded x convolved with `w - zero`, plus acc, in 32-bit integers."""
    zero = v["zero"].astype(np.int32).reshape(-1, 1, 1, 1) if "zero" in v.data else 0
    total = conv.integer_conv(v["x"], _weights(v), _window(v), _pad(v), zero, _between(v))
    return wrap(_plus(total, v, "acc"), v.types["y"])


def _channels(v: Values) -> Array:
    """Return the weights of a depthwise convolution, (c, kh, kw)."""
    if not v["w"].ndim:
        return np.broadcast_to(v["w"], (v["x"].shape[1], *_window(v).kernel))
    return _weights(v).reshape(-1, *_window(v).kernel)


def float_depthwise(v: Values) -> Array:
    """Return x (n, c, h, w) convolved with w (1, c, kh, kw) by channel, plus bias (1, c, 1, 1). All have one type."""
    dtype = v.types["x"]
    taps = _window(v).taps(v["x"])
    first = [widen(v["bias"], dtype)] if "bias" in v.data else []
    return conv.float_depthwise(taps, _channels(v), dtype, first)


def integer_depthwise(v: Values) -> Array:
    """Return `round((sum + bias) >> right)`, clamped; sum is 8-bit x convolved with 8-bit w by channel, bias 32-bit.

    `sum + bias` has 32 bits. It is unsigned if x, w and bias are.
    """
    taps = _window(v).taps(v["x"], _pad(v), v["inserts"] if "inserts" in v.data else 0)
    signed = any(v.types[name].signed for name in ("x", "w", "bias") if name in v.types)
    total = wrap(_plus(conv.integer_depthwise(taps, _channels(v)).astype(np.int64), v, "bias"), I32 if signed else U32)
    return conv.scaled(total.astype(np.int64), v.types["y"], v.attribute("right"), v.mode)


def float_average(v: Values) -> Array:
    """Return the average of each window over x: the sum of its elements, each multiplied by `scale` before the sum."""
    dtype = v.types["x"]
    return conv.float_depthwise(_window(v).taps(v["x"]), v["scale"], dtype, [])


def integer_average(v: Values) -> Array:
    """Return `round_half_up((sum * scale) >> right)`, clamped, for each window over x; sum is that of its elements."""
    total = _window(v).taps(v["x"]).astype(np.int64).sum((2, 3)) * v["scale"].astype(np.int64)
    return conv.scaled(total, v.types["y"], v.attribute("right"))


def maximum(v: Values) -> Array:
    """Return the largest element in each window over x; padding has the value `pad`."""
    return largest(_window(v).taps(v["x"], v["pad"]), v.types["x"])


def largest(taps: Array, dtype: DType) -> Array:
    """Return the largest elements over kh and kw of `taps` (n, c, kh, kw, oh, ow), which are stored as `dtype`."""
    return narrow(widen(taps, dtype).max((2, 3)), dtype) if dtype.is_float else taps.max((2, 3))


def _sides(v: Values) -> tuple[Array, Array]:
    """Return the factors of a matrix product, (M, K) and (K, N). Zero points are subtracted from the operand R."""
    left, right = _factor(v, "L"), _factor(v, "R")
    if {"zero", "zeros"} & v.data.keys():
        right = right.astype(np.int32) - (_zeros(v) if "zeros" in v.data else v["zero"])
    return sides(left, right, v.attributes)


def _zeros(v: Values) -> Array:
    """Return the zero points that belong to the elements of R, as stored, or to its rows.

    With `both_transposed`, `zeros` has one for each row of R, (1, N, 1, 1). Otherwise it is a row of N zero points, of
    which each lane has a copy, (1, rows of R, 1, N), and R's elements take those of their own lane.
    """
    zeros = v["zeros"].astype(np.int32)
    if v.attribute("both_transposed"):
        return zeros.reshape(-1, 1)
    return np.diagonal(zeros[0, :, 0])[:, None] if v.attribute("right_transposed") else zeros[0, :, 0]


def _factor(v: Values, name: str) -> Array:
    """Return a factor of a matrix product as stored. If it is a number, the attribute `depth` is the sums' length."""
    factor = v[name]
    if factor.ndim:
        return factor
    (rows, columns), depth = v.shapes["y"], v.attribute("depth")
    if v.attribute("both_transposed"):
        return np.broadcast_to(factor, (depth, columns) if name == "L" else (rows, depth))
    turned = name == "R" and v.attribute("right_transposed")
    return np.broadcast_to(factor, (rows, depth) if name == "L" else (columns, depth) if turned else (depth, columns))


def sides(left: Array, right: Array, attributes: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the two factors of a matrix product, (M, K) and (K, N), from the operands L (left) and R (right).

    With `both_transposed` the operands' roles are swapped: y (N, M) = R (N, K) times L (K, M).
    """
    if attributes.get("both_transposed"):
        return right, left
    turned = attributes.get("left_transposed"), attributes.get("right_transposed")
    return (left.T if turned[0] else left), (right.T if turned[1] else right)


def float_matmul(v: Values) -> Array:
    """Return the matrix product of L (M, K) and R (K, N), plus optional f32 bias (1, N) and acc."""
    left, right = _sides(v)
    return conv.float_matmul(left, right, v.types["L"], v.types["y"], _first(v))


def integer_matmul(v: Values) -> Array:
    """Return `round_half_up((product + bias) >> right)`, clamped. The product is that of L and R; bias has 16 bits."""
    total = conv.integer_matmul(*_sides(v)).astype(np.int64)
    return conv.scaled(_plus(total, v, "bias"), v.types["y"], v.attribute("right"))


def wide_matmul(v: Values) -> Array:
    """Return the matrix product of L and `R - zero`, plus acc, in 32-bit integers. `zeros` may replace `zero`."""
    return wrap(_plus(conv.integer_matmul(*_sides(v)).astype(np.int64), v, "acc"), v.types["y"])


def shifted_matmul(v: Values) -> Array:
    """Return the matrix product of the integers L and R, in 32-bit integers.

    32-bit factors are added in 64 bits, shifted by the number `shift`, and clamped. Shorter
    factors are added in 32 bits, without a shift.
    """
    left, right = _sides(v)
    signed = v.types["y"].signed
    kind = np.int64 if signed else np.uint64
    total = left.astype(kind) @ right.astype(kind)
    if v.types["R"].bytes < v.types["y"].bytes:
        return wrap(total, v.types["y"])
    return saturate(shift(total, v["shift"], v.mode), v.types["y"])


def _accumulates_wide(found: Signature) -> str:
    """Refuse an accumulated result whose type is not the accumulator's: f32, or 32-bit integers.

    Like all rules (see rules.py), return the reason for refusing the command, or "".
    """
    wide = F32 if found.types.get("x", found.types.get("L", F32)).is_float else I32
    if "acc" in found.types and not {found.types["acc"], found.types["y"]} <= {wide, U32 if wide is I32 else wide}:
        return f"an accumulated result must be {wide}, not {found.types['y']}"
    return ""


def _float_result(found: Signature) -> str:
    """Return the reason to refuse a command whose result is neither f32 nor of the type of the factors, or ""."""
    source = found.types.get("x", found.types.get("L", F32))
    if found.types["y"] not in (F32, source):
        return f"the result is {found.types['y']}; it must be f32 or {source}"
    return ""


def _equal_widths(found: Signature) -> str:
    """Return the reason to refuse factors of different widths, or ""."""
    left, right = found.types["L"], found.types["R"]
    return "" if left.bits == right.bits else f"L is {left} and R is {right}; give factors of the same width"


def _eight_bits(*names: str) -> tuple[Rule, ...]:
    """Return rules that refuse a command unless each named operand has an 8-bit type."""
    return tuple(rules.of(name, I8, U8) for name in names)


short = rules.of("y", I8, U8, I16, U16)
wide = (rules.of("y", I32, U32), _accumulates_wide)
eight, factors = _eight_bits("x", "w"), _eight_bits("L", "R")
signed = rules.signed_as_its_sources
bias, bias16, bias32 = rules.of("bias", F32), rules.of("bias", I16, U16), rules.of("bias", I32, U32)
accumulates = (bias, _float_result, _accumulates_wide)
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
checks = (*_eight_bits("x"), rules.of("scale", U8), short, signed("x"))
pool("int8_avg_pool2d", "x scale", integer_average, *checks, arithmetic=("add",), numbers={"scale": U8})
pool("max_pool2d", "x pad", maximum, rules.alike("x", "y"), arithmetic=("compare",))
product = partial(define, TIU, flow=Flow.PRODUCT, factor="L")
matrices: Mapping[str, Any] = {"places": (*rules.COMPUTE, rules.matrices)}
by_rows = (*rules.COMPUTE, rules.matrices, rules.short_factors)
product("fp_mm", "L R bias acc", float_matmul, rules.floats("L", "R"), *accumulates, places=by_rows)
product("int8_mm", "L R bias", integer_matmul, *factors, bias16, short, signed("L", "R", "bias"), **matrices)
product("int8_zp_mm", "L R zero zeros acc", wide_matmul, *factors, *wide, **zero, **matrices)
whole = (rules.integers("L", "R"), _equal_widths, rules.of("shift", I8), rules.of("y", I32, U32), signed("L", "R"))
product("int_mm", "L R shift", shifted_matmul, *whole, numbers={"shift": I8}, **matrices)
