"""The element-wise functions of the device API. They differ only in operation, parameters and operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.targets.bm1684x.capi import parameters as p
from tilewright.targets.bm1684x.capi.forms import (
    DeviceFunction,
    Functions,
    Given,
    Issuer,
    Place,
    Source,
    channel,
    function,
    issue,
    one_channel,
    per_channel,
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
(SHIFT_STRIDE,) = CType.DIM4.each("shift_tensor_stride", optional=True)
OFFSET, ALPHA = CType.SCALAR.each("offset", "alpha")
MULTIPLIER, SHIFT_COUNT = CType.INT("multiplier"), CType.CHAR("C")
REAL_C, REAL_SCALE, REAL_OFFSET = CType.FLOAT.each("C", "scale", "offset")
CHOSEN = CType.VARIABLE.each("src0", "src1", "src2", "src3")

ONE_STRIDES, TWO_STRIDES = (p.DST_STRIDE, p.SRC_STRIDE), (p.DST_STRIDE, p.SRC0_STRIDE, p.SRC1_STRIDE)
PLAIN, UNARY = (p.DST, p.SRC, p.SHAPE), (p.DST, p.SRC, p.SHAPE, *ONE_STRIDES)
BINARY, CONSTANT = (p.DST, p.SRC0, p.SRC1, p.SHAPE, *TWO_STRIDES), (p.DST, p.SRC, p.C, p.SHAPE, *ONE_STRIDES)
CONVERTED = (p.DST_DTYPE, p.SRC_DTYPE, p.MODE)
#: The operands of a command on two tensors, on a tensor and a number, and on a number and a tensor.
PAIR: dict[str, Source] = {"y": p.DST, "a": p.SRC0, "b": p.SRC1}
WITH_NUMBER: dict[str, Source] = {"y": p.DST, "a": p.SRC, "b": p.C}
FROM_NUMBER: dict[str, Source] = {"y": p.DST, "a": p.C, "b": p.SRC}
ARITHMETIC = ("fp_add", "fp_sub", "fp_mul", "fp_diff_abs", "and", "or", "xor")
RELATIONS = ("greater", "less", "equal", "greater_equal", "less_equal", "not_equal")
#: Relations that the machine computes as the negation of another one.
NEGATED = {"greater_equal": "less", "less_equal": "greater", "not_equal": "equal"}


def relation(
    name: str, parameters: tuple[Parameter, ...], y: Place, prefix: str = "", **operands: Source
) -> DeviceFunction:
    """Return the function of a relation between `operands`, with the result `y`.

    Some are the negation of another one, in two commands: the first writes the true value where the other relation
    holds, else 0; the second exchanges both values.
    """
    true = Place(p.TRUE_VAL, p.DST_DTYPE)
    if name not in NEGATED:
        return function(parameters, issue(f"{prefix}{name}", **operands, y=y, c=true))
    other = issue(f"{prefix}{NEGATED[name]}", **operands, y=y, c=true)
    bits = replace(y, as_bits=True)
    return function(parameters, other, issue("xor", y=bits, a=bits, b=replace(true, as_bits=True)))


def _exchanges(given: Given) -> bool:
    """Return whether only src1 has strides: then the operands of a limit are exchanged, which NaN shows."""
    return given["src0_stride"] is None and given["src1_stride"] is not None


def _limit(name: str) -> DeviceFunction:
    """Return the function max or min of two tensors."""
    plain, exchanged = issue(name, **PAIR), issue(name, y=p.DST, a=p.SRC1, b=p.SRC0)
    return function((*BINARY, p.DTYPE), plain.only(lambda given: not _exchanges(given)), exchanged.only(_exchanges))


def _absolute() -> DeviceFunction:
    """Return the function abs. Unsigned numbers are copied."""

    def unsigned(given: Given) -> bool:
        return not (given["dtype"].is_float or given["dtype"].signed)

    absolute = issue("abs", y=p.DST, a=p.SRC).only(lambda given: not unsigned(given))
    return function((*UNARY, p.DTYPE), absolute, issue("copy", y=p.DST, a=p.SRC).only(unsigned))


def _negative(api: Issuer, given: Given) -> None:
    """Issue 0 minus the source. Differences of integers are signed."""
    dtype = given["dtype"]
    if not dtype.is_float:
        given = {**given, "dtype": SIGNED_OF[dtype.bytes]}
    issue("fp_sub" if dtype.is_float else "int_sub", y=p.DST, a=0, b=p.SRC).run(api, given)


def _cast() -> DeviceFunction:
    """Return the function cast. To the source's own type it is a copy, which keeps subnormals."""

    def copies(given: Given) -> bool:
        return given["dst_dtype"] is given["src_dtype"]

    converted = issue("cast", y=p.DST, x=p.SRC).only(lambda given: not copies(given))
    return function((*UNARY, *CONVERTED), converted, issue("copy", y=p.DST, a=p.SRC).only(copies))


def _integer(name: str) -> Functions:
    """Return the functions, by C name, that issue the operation int_`name` (int_add, int_sub or int_mul).

    The shift is one number, or, in functions with `pcs` in their name, one number per channel.
    """
    found: Functions = {}
    ends = (p.MODE, p.SATURATION)
    for kind, before, after, shift in (
        ("int_", (), (p.SHIFT, *ends), Place(p.SHIFT, I8)),
        ("int_pcs_", (SHIFT_ADDR,), ends, per_channel(SHIFT_ADDR, I8)),
    ):
        two = (p.DST, p.SRC0, p.SRC1, *before, p.SHAPE, *TWO_STRIDES, p.DST_DTYPE, p.SRC0_DTYPE, p.SRC1_DTYPE, *after)
        one = (p.DST, p.SRC, *before, p.C, p.SHAPE, *ONE_STRIDES, p.DST_DTYPE, p.SRC_DTYPE, p.C_DTYPE, *after)
        found[f"{kind}{name}"] = function(two, issue(f"int_{name}", **PAIR, shift=shift))
        found[f"{kind}{name}_C"] = function(one, issue(f"int_{name}", **WITH_NUMBER, shift=shift))
        if name == "sub":
            found[f"{kind}C_sub"] = function(one, issue("int_sub", **FROM_NUMBER, shift=shift))
    return found


def _quantisation(
    operation: str, ends: tuple[Parameter, ...], result: Source, *numbers: tuple[Parameter, DType]
) -> Functions:
    """Return the two functions, by C name, of a requantisation or dequantisation.

    Its parameters are numbers, or a table with an entry per channel. An entry has one word for each parameter.
    """
    named: dict[str, Source] = {own.name: Place(own, dtype) for own, dtype in numbers}
    words: dict[str, Source] = {
        own.name: Place(QUANT_ADDR, I32 if dtype is I8 else dtype, channel, beside=4 * at)
        for at, (own, dtype) in enumerate(numbers)
    }
    parameters = (*PLAIN, *(own for own, _ in numbers), *ends)
    return {
        operation: function(parameters, issue(operation, y=result, x=p.SRC, **named)),
        operation.replace("_", "_pc_"): function(
            (p.DST, p.SRC, QUANT_ADDR, p.SHAPE, *ends), issue(operation, y=result, x=p.SRC, **words)
        ),
    }


def _division(name: str, parameters: tuple[Parameter, ...], **operands: Source) -> Functions:
    """Return the functions, by C name, of a division: in f32 or a type of the call, with 3 Newton steps or a number."""
    divides = issue("fp_div", **operands)
    real = tuple(REAL_C if own is p.C else own for own in parameters)
    return {
        f"{kind}_{tuned}{name}": function((*listed, *steps), divides)
        for kind, listed in (("fp32", real), ("fp", (*parameters, p.DTYPE)))
        for tuned, steps in (("", ()), ("tunable_", (p.NUM_ITER,)))
    }


def _selected(name: str, results: dict[str, tuple[Parameter, Parameter]], compared: Parameter) -> DeviceFunction:
    """Return the function of a selection. `results` are the results by name with their types, the chosen one last."""
    chosen = [*results.values()][-1][1]
    types = tuple(dtype for _, dtype in results.values())
    kinds = dict(zip("abcd", (compared, compared, chosen, chosen), strict=True))
    sources = {own: Place(parameter, kinds[own]) for own, parameter in zip("abcd", CHOSEN, strict=True)}
    places = {own: Place(parameter, dtype) for own, (parameter, dtype) in results.items()}
    own = types if compared in types else (compared, *types)
    parameters = (*(parameter for parameter, _ in results.values()), *CHOSEN, p.SHAPE, *own)
    return function(parameters, issue(name, **places, **sources))


def _shifts() -> Functions:
    """Return the functions, by C name, that shift by a tensor or by a number."""
    found: Functions = {}
    tensor = (
        p.DST,
        p.SRC,
        SHIFT_TENSOR,
        p.SHAPE,
        *ONE_STRIDES,
        SHIFT_STRIDE,
        p.DST_DTYPE,
        p.SRC_DTYPE,
        SHIFT_DTYPE,
        p.MODE,
    )
    number = (p.DST, p.SRC, SHIFT_COUNT, p.SHAPE, *ONE_STRIDES, *CONVERTED)
    for name in ("arithmetic_shift", "logical_shift"):
        found[name] = function(tensor, issue(name, y=p.DST, a=p.SRC, shift=Place(SHIFT_TENSOR, I8)))
        found[f"{name}_C"] = function(number, issue(name, y=p.DST, a=p.SRC, shift=Place(SHIFT_COUNT, I8)))
    return found


def _linear() -> Functions:
    """Return the functions, by C name, that scale or add one value per channel, and squares of such sums."""
    bias, scale = per_channel(BIAS_ADDR), per_channel(SCALE_ADDR)
    number, addend = CType.SCALAR("scale"), CType.SCALAR("bias")
    ends = (p.SHAPE, p.DTYPE)
    found = {
        "fp_bias": function((p.DST, p.SRC, BIAS_ADDR, *ends), issue("fp_mac", y=p.DST, a=p.SRC, b=1.0, acc=bias)),
        "fp_scale": function((p.DST, p.SRC, SCALE_ADDR, *ends), issue("fp_mac", y=p.DST, a=p.SRC, b=scale, acc=0.0)),
        "fp_scale_bias": function(
            (p.DST, p.SRC, SCALE_ADDR, BIAS_ADDR, *ends), issue("fp_mac", y=p.DST, a=p.SRC, b=scale, acc=bias)
        ),
        "fp_scale_bias_C": function(
            (p.DST, p.SRC, number, addend, *ends), issue("fp_mac", y=p.DST, a=p.SRC, b=number, acc=addend)
        ),
    }
    for name in ("add", "sub"):
        for kind, own, value in (("C", p.C, p.C), ("bias", BIAS_ADDR, bias)):
            square = issue(f"fp_{name}_square", y=p.DST, a=p.SRC, b=value)
            found[f"fp_{name}_{kind}_sqr"] = function((p.DST, p.SRC, own, *ends), square)
    return found


def _unary(operation: str, *more: Parameter, **given: Any) -> DeviceFunction:
    """Return the function of an operation on one tensor; `given` are further operands and attributes."""
    return function((*UNARY, p.DTYPE, *more), issue(operation, y=p.DST, **given))


COMPARED = (p.DST, p.SRC0, p.SRC1, p.TRUE_VAL, p.SHAPE, *TWO_STRIDES, p.DST_DTYPE, p.SRC_DTYPE)
COMPARED_C = (p.DST, p.SRC, p.C, p.TRUE_VAL, p.SHAPE, *ONE_STRIDES, p.DST_DTYPE, p.SRC_DTYPE)
RESULT, ACCUMULATED = Place(p.DST), Place(p.DST, I16)
#: Functions by name, without the prefix tpu_bdc_.
ELEMENTWISE: Functions = {
    **{name: function((*BINARY, p.DTYPE), issue(name, **PAIR)) for name in ARITHMETIC},
    **{f"{name}_C": function((*CONSTANT, p.DTYPE), issue(name, **WITH_NUMBER)) for name in (*ARITHMETIC, "max", "min")},
    **{name: _limit(name) for name in ("max", "min")},
    # the machine ignores the shift
    **{
        f"int_{name}_C": function((*CONSTANT, p.DTYPE, p.SHIFT, p.MODE), issue(name, **WITH_NUMBER))
        for name in ("max", "min")
    },
    "fp_C_sub": function((*CONSTANT, p.DTYPE), issue("fp_sub", **FROM_NUMBER)),
    "abs": _absolute(),
    "neg": DeviceFunction((*UNARY, p.DTYPE), _negative),
    "set_C": function((p.DST, p.C, p.SHAPE, p.DST_STRIDE, p.DTYPE), issue("copy", y=p.DST, a=p.C)),
    "cpy": _unary("copy", a=p.SRC),
    "cpy_cross_npu": function((*PLAIN, p.DTYPE), issue("npu_bcast", y=p.DST, x=p.SRC)),
    "not": _unary("xor", a=p.SRC, b=-1),
    "relu": _unary("max", a=p.SRC, b=0),
    # a product with the slope, and a selection of the source where it is positive
    "prelu": function(
        (p.DST, p.SRC, ALPHA, p.SHAPE, p.DTYPE),
        issue("fp_mul", y=p.DST, a=p.SRC, b=ALPHA),
        issue("greater_select", y=p.DST, a=p.SRC, b=0, c=p.SRC, d=p.DST),
    ),
    "fp_floor": _unary("fp_round", x=p.SRC, mode=Rounding.DOWN),
    "fp_ceil": _unary("fp_round", x=p.SRC, mode=Rounding.UP),
    "fp_round": _unary("fp_round", p.MODE, x=p.SRC),
    "cast": _cast(),
    "npu_bcast": function((*PLAIN, p.DTYPE), issue("npu_bcast", y=p.DST, x=Place(p.SRC, shape=one_channel))),
    "wc_trans": function((*PLAIN, p.DTYPE), issue("wc_trans", y=p.DST, x=Place(p.SRC, shape=turned_cw))),
    "cw_trans": function(
        (*PLAIN, p.DTYPE), issue("cw_trans", y=Place(p.DST, layout=layout.line), x=Place(p.SRC, shape=turned_cw))
    ),
    **{key: value for name in ("add", "sub", "mul") for key, value in _integer(name).items()},
    "int8_mac": function(
        (*BINARY, p.SRC0_DTYPE, p.SRC1_DTYPE, p.LSHIFT, p.RSHIFT, p.MODE),
        issue("int8_mac", y=ACCUMULATED, a=p.SRC0, b=p.SRC1, acc=ACCUMULATED),
    ),
    "int8_mac_C": function(
        (*CONSTANT, p.SRC_DTYPE, p.C_DTYPE, p.LSHIFT, p.RSHIFT, p.MODE),
        issue("int8_mac", y=ACCUMULATED, a=p.SRC, b=p.C, acc=ACCUMULATED),
    ),
    "fp32_mac": function(BINARY, issue("fp_mac", **PAIR, acc=p.DST)),
    "fp32_mac_C": function((p.DST, p.SRC, REAL_C, p.SHAPE, *ONE_STRIDES), issue("fp_mac", **WITH_NUMBER, acc=p.DST)),
    **_division("div", BINARY, **PAIR),
    **_division("div_C", CONSTANT, **WITH_NUMBER),
    **_division("C_div", CONSTANT, **FROM_NUMBER),
    **_division("reciprocal", UNARY, y=p.DST, a=1.0, b=p.SRC),
    **_shifts(),
    **{name: relation(name, COMPARED, RESULT, a=p.SRC0, b=p.SRC1) for name in RELATIONS},
    **{f"{name}_C": relation(name, COMPARED_C, RESULT, a=p.SRC, b=p.C) for name in RELATIONS},
    **{
        f"{name}_select": _selected(f"{name}_select", {"y": (p.DST, p.DST_DTYPE)}, BOTH_DTYPE)
        for name in ("greater", "less", "equal")
    },
    **{
        name: _selected(name, {"y0": (p.DST0, DST0_DTYPE), "y": (p.DST1, DST1_DTYPE)}, DST0_DTYPE)
        for name in ("maximum_greater_select", "minimum_less_select")
    },
    "fp_square": _unary("fp_mul", a=p.SRC, b=p.SRC),
    "int_square": function(
        (*UNARY, p.DST_DTYPE, p.SRC_DTYPE, p.SHIFT, p.MODE, p.SATURATION),
        issue("int_mul", y=p.DST, a=p.SRC, b=p.SRC, shift=Place(p.SHIFT, I8)),
    ),
    "fp_exponent_part": function((*PLAIN, p.DST_DTYPE, p.SRC_DTYPE), issue("fp_exponent", y=p.DST, x=p.SRC)),
    **_linear(),
    **_quantisation("int_requant", CONVERTED, p.DST, (MULTIPLIER, I32), (p.SHIFT, I8), (OFFSET, I32)),
    **_quantisation("fp32_requant", (*CONVERTED, p.SRC_MODE), p.DST, (REAL_SCALE, F32), (REAL_OFFSET, F32)),
    **_quantisation("int_dequant", CONVERTED, p.DST, (OFFSET, I32), (MULTIPLIER, I32), (p.SHIFT, I8)),
    **_quantisation("fp32_dequant", (p.SRC_DTYPE, p.MODE), Place(p.DST, F32), (OFFSET, I32), (REAL_SCALE, F32)),
}
