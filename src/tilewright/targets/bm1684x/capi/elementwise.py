"""The element-wise functions of the device API. They differ only in operation, parameters and operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.targets.bm1684x.capi import parameters as p
from tilewright.targets.bm1684x.capi.forms import (
    DeviceFunction,
    Functions,
    Given,
    Issue,
    Issuer,
    Place,
    Source,
    channel,
    either,
    issue,
    one_channel,
    per_channel,
    plain,
    strided,
    turned_cw,
)
from tilewright.targets.bm1684x.capi.parameters import CType, Parameter
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, DType, Rounding

SIGNED_OF = {dtype.bytes: dtype for dtype in (I8, I16, I32)}
SHIFT_TENSOR, SHIFT_ADDR, QUANT_ADDR, BIAS_ADDR, SCALE_ADDR = CType.LOCAL.each(
    "shift_tensor", "shift_addr", "quant_addr", "bias_addr", "scale_addr"
)
SHIFT_DTYPE, BOTH_DTYPE, DST0_DTYPE, DST1_DTYPE = CType.DTYPE.each(
    "shift_dtype", "src0_src1_dtype", "dst0_dtype", "dst1_dtype"
)
OFFSET, ALPHA = CType.SCALAR.each("offset", "alpha")
MULTIPLIER, SHIFT_COUNT = CType.INT("multiplier"), CType.CHAR("C")
REAL_C, REAL_SCALE, REAL_OFFSET = CType.FLOAT.each("C", "scale", "offset")
CHOSEN = CType.VARIABLE.each("src0", "src1", "src2", "src3")

CONVERTED, COMPARED = (p.DST_DTYPE, p.SRC_DTYPE, p.MODE), (p.DST_DTYPE, p.SRC_DTYPE)
#: The operands of a command on two tensors, on a tensor and a number, and on a number and a tensor.
PAIR: dict[str, Source] = {"a": p.SRC0, "b": p.SRC1}
WITH_NUMBER: dict[str, Source] = {"a": p.SRC, "b": p.C}
FROM_NUMBER: dict[str, Source] = {"a": p.C, "b": p.SRC}
ARITHMETIC = ("fp_add", "fp_sub", "fp_mul", "fp_diff_abs", "and", "or", "xor")
RELATIONS = ("greater", "less", "equal", "greater_equal", "less_equal", "not_equal")
#: Relations that the machine computes as the negation of another one.
NEGATED = {"greater_equal": "less", "less_equal": "greater", "not_equal": "equal"}


def related(name: str, y: Place, **operands: Source) -> tuple[Issue, ...]:
    """Return the commands of a relation between `operands`; `y` is the result. A `name` may begin with vc_.

    Some relations are the negation of another one, in two commands: the first writes the true value where the other
    relation holds, else 0; the second exchanges both values.
    """
    prefix, relation = ("vc_", name[3:]) if name.startswith("vc_") else ("", name)
    true = Place(p.TRUE_VAL, p.DST_DTYPE)
    first = issue(f"{prefix}{NEGATED.get(relation, relation)}", y=y, **operands, c=true)
    if relation not in NEGATED:
        return (first,)
    bits = replace(y, as_bits=True)
    return first, issue("xor", y=bits, a=bits, b=replace(true, as_bits=True))


def _limit(name: str) -> DeviceFunction:
    """Return the function max or min. If only src1 has strides, the operands are exchanged, which NaN shows."""

    def exchanges(given: Given) -> bool:
        return given["src0_stride"] is None and given["src1_stride"] is not None

    normal, exchanged = issue(name, y=p.DST, **PAIR), issue(name, y=p.DST, a=p.SRC1, b=p.SRC0)
    return strided(either(lambda given: not exchanges(given), normal, exchanged), p.DTYPE)


def _absolute() -> DeviceFunction:
    """Return the function abs. Unsigned numbers are copied."""

    def signed(given: Given) -> bool:
        return given["dtype"].is_float or given["dtype"].signed

    absolute, copied = (issue(name, y=p.DST, a=p.SRC) for name in ("abs", "copy"))
    return strided(either(signed, absolute, copied), p.DTYPE)


def _negative() -> DeviceFunction:
    """Return the function neg: 0 minus the source. Differences of integers are signed."""

    def run(api: Issuer, given: Given) -> None:
        dtype = given["dtype"]
        if not dtype.is_float:
            given = {**given, "dtype": SIGNED_OF[dtype.bytes]}
        issue("fp_sub" if dtype.is_float else "int_sub", y=p.DST, a=0, b=p.SRC).run(api, given)

    return DeviceFunction(strided(issue("copy", y=p.DST, a=p.SRC), p.DTYPE).parameters, run)


def _cast() -> DeviceFunction:
    """Return the function cast. To the source's own type it is a copy, which keeps subnormals."""

    def copies(given: Given) -> bool:
        return given["dst_dtype"] is given["src_dtype"]

    return strided(either(copies, issue("copy", y=p.DST, a=p.SRC), issue("cast", y=p.DST, x=p.SRC)), *CONVERTED)


def _integer(name: str) -> Functions:
    """Return the functions, by C name, that issue the operation int_`name` (int_add, int_sub or int_mul).

    The shift is one number, or, in functions with `pcs` in their name, one number per channel.
    """
    found: Functions = {}
    for kind, more, shift in (
        ("int_", (p.SHIFT,), Place(p.SHIFT, I8)),
        ("int_pcs_", (), per_channel(SHIFT_ADDR, I8)),
    ):
        ends = (*more, p.MODE, p.SATURATION)
        one = (p.DST_DTYPE, p.SRC_DTYPE, p.C_DTYPE, *ends)
        pair = issue(f"int_{name}", y=p.DST, **PAIR, shift=shift)
        found[f"{kind}{name}"] = strided(pair, p.DST_DTYPE, p.SRC0_DTYPE, p.SRC1_DTYPE, *ends)
        found[f"{kind}{name}_C"] = strided(issue(f"int_{name}", y=p.DST, **WITH_NUMBER, shift=shift), *one)
        if name == "sub":
            found[f"{kind}C_sub"] = strided(issue("int_sub", y=p.DST, **FROM_NUMBER, shift=shift), *one)
    return found


def _quantisation(
    operation: str, ends: tuple[Parameter, ...], result: Source, *numbers: tuple[Parameter, DType]
) -> Functions:
    """Return the two functions, by C name, of a requantisation or dequantisation.

    Its parameters are numbers, or a table with an entry per channel. An entry has one word for each parameter.
    """
    named: dict[str, Source] = {}
    words: dict[str, Source] = {}
    for at, (own, dtype) in enumerate(numbers):
        named[own.name] = Place(own, dtype)
        words[own.name] = Place(QUANT_ADDR, I32 if dtype is I8 else dtype, channel, beside=4 * at)
    listed = (*(own for own, _ in numbers), *ends)
    return {
        operation: plain(issue(operation, y=result, x=p.SRC, **named), *listed),
        operation.replace("_", "_pc_"): plain(issue(operation, y=result, x=p.SRC, **words), *ends),
    }


def _division(name: str, **operands: Source) -> Functions:
    """Return the functions, by C name, of a division: in f32 or a type of the call, with 3 Newton steps or a number."""
    real = {own: REAL_C if source is p.C else source for own, source in operands.items()}
    found: Functions = {}
    for kind, sources, types in (("fp32", real, ()), ("fp", operands, (p.DTYPE,))):
        divides = issue("fp_div", y=p.DST, **sources)
        found[f"{kind}_{name}"] = strided(divides, *types)
        found[f"{kind}_tunable_{name}"] = strided(divides, *types, p.NUM_ITER)
    return found


def _selected(name: str, compared: Parameter, **results: Place) -> DeviceFunction:
    """Return the function of a selection with these results, the chosen one last. `compared` is the type of a and b."""
    types = tuple(own.dtype for own in results.values() if isinstance(own.dtype, Parameter))
    kinds = (compared, compared, types[-1], types[-1])
    operands = {own: Place(chosen, kind) for own, chosen, kind in zip("abcd", CHOSEN, kinds, strict=True)}
    return plain(issue(name, **results, **operands), *dict.fromkeys((compared, *types)))


def _shifts() -> Functions:
    """Return the functions, by C name, that shift by a tensor or by a number."""
    found: Functions = {}
    for name in ("arithmetic_shift", "logical_shift"):
        tensor, number = (issue(name, y=p.DST, a=p.SRC, shift=Place(own, I8)) for own in (SHIFT_TENSOR, SHIFT_COUNT))
        found[name] = strided(tensor, *COMPARED, SHIFT_DTYPE, p.MODE)
        found[f"{name}_C"] = strided(number, *CONVERTED)
    return found


def _linear() -> Functions:
    """Return the functions, by C name, that scale or add one value per channel, and squares of such sums."""
    bias, scale = per_channel(BIAS_ADDR), per_channel(SCALE_ADDR)
    found: Functions = {}
    for name, b, acc in (
        ("fp_bias", 1.0, bias),
        ("fp_scale", scale, 0.0),
        ("fp_scale_bias", scale, bias),
        ("fp_scale_bias_C", CType.SCALAR("scale"), CType.SCALAR("bias")),
    ):
        found[name] = plain(issue("fp_mac", y=p.DST, a=p.SRC, b=b, acc=acc), p.DTYPE)
    for name in ("add", "sub"):
        for kind, value in (("C", p.C), ("bias", bias)):
            found[f"fp_{name}_{kind}_sqr"] = plain(issue(f"fp_{name}_square", y=p.DST, a=p.SRC, b=value), p.DTYPE)
    return found


def _unary(operation: str, *more: Parameter, **given: Any) -> DeviceFunction:
    """Return the function of an operation on one tensor; `given` are further operands and attributes."""
    return strided(issue(operation, y=p.DST, **given), p.DTYPE, *more)


RESULT, ACCUMULATED = Place(p.DST), Place(p.DST, I16)
TURNED = Place(p.SRC, shape=turned_cw)
SHIFTS = (p.LSHIFT, p.RSHIFT, p.MODE)
#: Functions by name, without the prefix tpu_bdc_.
ELEMENTWISE: Functions = {
    **{name: strided(issue(name, y=p.DST, **PAIR), p.DTYPE) for name in ARITHMETIC},
    **{f"{name}_C": strided(issue(name, y=p.DST, **WITH_NUMBER), p.DTYPE) for name in (*ARITHMETIC, "max", "min")},
    **{name: _limit(name) for name in ("max", "min")},
    # the machine ignores the shift
    **{
        f"int_{name}_C": strided(issue(name, y=p.DST, **WITH_NUMBER), p.DTYPE, p.SHIFT, p.MODE)
        for name in ("max", "min")
    },
    "fp_C_sub": strided(issue("fp_sub", y=p.DST, **FROM_NUMBER), p.DTYPE),
    "abs": _absolute(),
    "neg": _negative(),
    "set_C": strided(issue("copy", y=p.DST, a=p.C), p.DTYPE),
    "cpy": _unary("copy", a=p.SRC),
    "cpy_cross_npu": plain(issue("npu_bcast", y=p.DST, x=p.SRC), p.DTYPE),
    "not": _unary("xor", a=p.SRC, b=-1),
    "relu": _unary("max", a=p.SRC, b=0),
    # a product with the slope, and a selection of the source where it is positive
    "prelu": plain(
        (
            issue("fp_mul", y=p.DST, a=p.SRC, b=ALPHA),
            issue("greater_select", y=p.DST, a=p.SRC, b=0, c=p.SRC, d=p.DST),
        ),
        p.DTYPE,
    ),
    "fp_floor": _unary("fp_round", x=p.SRC, mode=Rounding.DOWN),
    "fp_ceil": _unary("fp_round", x=p.SRC, mode=Rounding.UP),
    "fp_round": _unary("fp_round", p.MODE, x=p.SRC),
    "cast": _cast(),
    "npu_bcast": plain(issue("npu_bcast", y=p.DST, x=Place(p.SRC, shape=one_channel)), p.DTYPE),
    "wc_trans": plain(issue("wc_trans", y=p.DST, x=TURNED), p.DTYPE),
    "cw_trans": plain(issue("cw_trans", y=Place(p.DST, layout=layout.line), x=TURNED), p.DTYPE),
    **{key: value for name in ("add", "sub", "mul") for key, value in _integer(name).items()},
    "int8_mac": strided(issue("int8_mac", y=ACCUMULATED, **PAIR, acc=ACCUMULATED), p.SRC0_DTYPE, p.SRC1_DTYPE, *SHIFTS),
    "int8_mac_C": strided(
        issue("int8_mac", y=ACCUMULATED, **WITH_NUMBER, acc=ACCUMULATED), p.SRC_DTYPE, p.C_DTYPE, *SHIFTS
    ),
    "fp32_mac": strided(issue("fp_mac", y=p.DST, **PAIR, acc=p.DST)),
    "fp32_mac_C": strided(issue("fp_mac", y=p.DST, a=p.SRC, b=REAL_C, acc=p.DST)),
    **_division("div", **PAIR),
    **_division("div_C", **WITH_NUMBER),
    **_division("C_div", **FROM_NUMBER),
    **_division("reciprocal", a=1.0, b=p.SRC),
    **_shifts(),
    **{name: strided(related(name, RESULT, **PAIR), *COMPARED) for name in RELATIONS},
    **{f"{name}_C": strided(related(name, RESULT, **WITH_NUMBER), *COMPARED) for name in RELATIONS},
    **{
        f"{name}_select": _selected(f"{name}_select", BOTH_DTYPE, y=Place(p.DST, p.DST_DTYPE))
        for name in ("greater", "less", "equal")
    },
    **{
        name: _selected(name, DST0_DTYPE, y0=Place(p.DST0, DST0_DTYPE), y=Place(p.DST1, DST1_DTYPE))
        for name in ("maximum_greater_select", "minimum_less_select")
    },
    "fp_square": _unary("fp_mul", a=p.SRC, b=p.SRC),
    "int_square": strided(
        issue("int_mul", y=p.DST, a=p.SRC, b=p.SRC, shift=Place(p.SHIFT, I8)), *COMPARED, p.SHIFT, p.MODE, p.SATURATION
    ),
    "fp_exponent_part": plain(issue("fp_exponent", y=p.DST, x=p.SRC), *COMPARED),
    **_linear(),
    **_quantisation("int_requant", CONVERTED, p.DST, (MULTIPLIER, I32), (p.SHIFT, I8), (OFFSET, I32)),
    **_quantisation("fp32_requant", (*CONVERTED, p.SRC_MODE), p.DST, (REAL_SCALE, F32), (REAL_OFFSET, F32)),
    **_quantisation("int_dequant", CONVERTED, p.DST, (OFFSET, I32), (MULTIPLIER, I32), (p.SHIFT, I8)),
    **_quantisation("fp32_dequant", (p.SRC_DTYPE, p.MODE), Place(p.DST, F32), (OFFSET, I32), (REAL_SCALE, F32)),
}
