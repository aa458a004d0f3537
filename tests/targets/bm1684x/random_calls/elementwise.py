"""Random arguments for element-wise functions, from the types and names of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from tests.targets.bm1684x.random_calls.draw import FLOATS, INTEGERS, STEP, TYPES, Call, Draw
from tilewright.targets.bm1684x.capi import dim4
from tilewright.targets.bm1684x.capi.names import PROTOTYPES, SCALAR, TENSOR, VECTOR, variable_t
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, I32, U8, U16, U32, DType, Rounding

#: The rounding modes that all operations have. The other two exist for integer shifts only.
COMMON = tuple(Rounding)[:5]
Given = dict[str, Any]
Chooser = Callable[[Draw, str], Given]


@cache
def parameters() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return the parameters of each function: pairs of C type and name."""
    return {prototype.name: prototype.parameters for prototype in PROTOTYPES.values()}


def _type(given: Mapping[str, Any], parameter: str) -> DType:
    base = parameter.removesuffix("_addr")
    names: tuple[str, ...] = (
        parameter,
        f"{parameter}_dtype",
        f"{base}_dtype",
        "src0_src1_dtype" if parameter in ("src0", "src1") else "",
        "src_dtype",
    )
    if parameter.startswith(("dst", "true", "src2", "src3")):
        names = (parameter, f"{parameter}_dtype", "dst_dtype", "dst1_dtype")
    given_type = next((given[name] for name in names if isinstance(given.get(name), DType)), None)
    dtype: DType = given_type or given.get("dtype", F32)
    return dtype


def elementwise(draw: Draw, name: str, given: Given) -> Call:
    """Return a call of a function on tensors of one shape. `given` has its types and other arguments by name.

    Entries of `given` whose keys are no parameters are the types and limits (`limit_shift`) of operands.
    """
    shape = given.get("shape") or draw.shape()
    lane = given.get("lane", draw.of([0, 0, 0, 0, 5, 63]))
    arguments: list[Any] = []
    for kind, word in parameters()[name]:
        if word in given and (kind == "data_type_t" or not isinstance(given[word], DType)):
            arguments.append(given[word])
        elif kind == "local_addr_t":
            arguments.append(draw.filled(_type(given, word), given.get(f"limit_{word}", 0)) + lane * 16 * STEP)
        elif kind == "const dim4 *":
            arguments.append(shape if word == "shape" else draw.strides(shape, lane, not word.startswith("dst")))
        elif kind == "const variable_t *":
            arguments.append(_variable(draw, _type(given, word), lane, word in ("src0", "src1")))
        elif kind == "rounding_mode_t":
            arguments.append(draw.of(COMMON))
        elif kind == "scalar_t":
            arguments.append(draw.constant(_type(given, word)))
        elif kind == "float":
            arguments.append(draw.real())
        elif kind == "bool":
            arguments.append(draw.chance(50))
        else:
            low, high = given.get(f"range_{word}", (-8, 8))
            arguments.append(draw.between(low, high))
    result: Any = given.get("dst_dtype", given.get("dst1_dtype", given.get("dtype", given.get("result", F32))))
    return Call(name, tuple(arguments), tuple(draw.fills), result)


def _variable(draw: Draw, dtype: DType, lane: int, vectors: bool) -> variable_t:
    kind = draw.of([TENSOR, SCALAR, VECTOR][: 2 + vectors])
    return variable_t(kind, draw.constant(dtype) if kind == SCALAR else draw.filled(dtype) + lane * 16 * STEP)


def one_type(types: Sequence[DType]) -> Chooser:
    return lambda draw, name: {"dtype": draw.of(types)}


def _signed(types: Sequence[DType], signed: bool) -> list[DType]:
    return [dtype for dtype in types if dtype.signed == signed]


def integers(draw: Draw, name: str) -> Given:
    """Types of a sum, difference or product of integers: the result is signed if a source or the function is."""
    typed = [word for _, word in parameters()[name] if word.endswith("dtype") and word != "dst_dtype"]
    chosen: Given = {word: draw.of(INTEGERS) for word in typed}
    signed = "sub" in name or any(dtype.signed for dtype in chosen.values())
    return {
        **chosen,
        "dst_dtype": draw.of(_signed(INTEGERS, signed)),
        "range_shift": (-31, 31),
        # shifts of each channel that are larger would overflow the 64 bits in which the model computes
        **{"shift_addr": I8, "limit_shift_addr": 16, "mode": draw.of(tuple(Rounding))},
    }


def macs(draw: Draw, name: str) -> Given:
    typed = [word for _, word in parameters()[name] if word.endswith("dtype")]
    return {
        **{word: draw.of([I8, U8]) for word in typed},
        **{"dst": I16, "result": I16, "range_lshift": (0, 15), "range_rshift": (0, 15), "mode": draw.of(COMMON)},
    }


def shifts(draw: Draw, name: str) -> Given:
    """Types of a shift. A logical one takes unsigned numbers."""
    source = draw.of(INTEGERS if "arithmetic" in name else _signed(INTEGERS, False))
    chosen: Given = {"src_dtype": source, "dst_dtype": draw.of(_signed(INTEGERS, source.signed))}
    chosen |= {"shift_dtype": I8, "range_C": (-31, 31)}
    return {**chosen, "shift_tensor": I8, "limit_shift_tensor": 32, "mode": draw.of(tuple(Rounding))}


def casts(draw: Draw, name: str) -> Given:
    while True:
        pair = draw.of(TYPES), draw.of(TYPES)
        if set(pair) != {F16, BF16}:
            return {"src_dtype": pair[0], "dst_dtype": pair[1]}


def exponents(draw: Draw, name: str) -> Given:
    source = draw.of(FLOATS)
    return {"src_dtype": source, "dst_dtype": draw.of([source, I32 if source is F32 else I16])}


def compared(draw: Draw, name: str) -> Given:
    """Types of a comparison: the result is not wider than the sources."""
    source = draw.of(TYPES)
    return {"src_dtype": source, "dst_dtype": draw.of([dtype for dtype in TYPES if dtype.bits <= source.bits])}


def chosen(draw: Draw, name: str) -> Given:
    """Types of a selection: what is selected is as wide as what is compared; wider for integers in some functions."""
    source, extremes = draw.of(TYPES), "imum" in name
    wider = not (extremes or source.is_float)
    wide = draw.of([dtype for dtype in TYPES if dtype.bits == source.bits or (wider and dtype.bits > source.bits)])
    if extremes:
        wide = source if source.is_float else wide  # a NaN is known by the type of the results
        return {"dst0_dtype": source, "dst1_dtype": wide, "src0": source, "src1": source}
    return {"src0_src1_dtype": source, "dst_dtype": wide}


def requantised(draw: Draw, name: str) -> Given:
    """Types and numbers of a requantisation."""
    whole = "int" in name
    # an integer result that is unsigned wraps below 0 if the offset is negative, by a rule that is not known
    results = [I8, I16] if whole else [I8, U8, I16, U16]
    return {
        **{"src_dtype": draw.of([I32, U32, I16, U16]), "dst_dtype": draw.of(results)},
        **{"quant_addr": I32 if whole else F32, "limit_quant_addr": 24 if whole else 0, "offset": I32},
        **({"multiplier": draw.between(-(1 << 20), 1 << 20), "range_shift": (-31, 10)} if "pc" not in name else {}),
        **({"offset": draw.between(-500, 500)} if whole else {"offset": draw.real()}),
    }


def dequantised(draw: Draw, name: str) -> Given:
    """Types and numbers of a dequantisation."""
    whole, given = "int" in name, requantised(draw, name)
    given |= {"src_dtype": draw.of([I16, U16, I8, U8]), "offset": draw.between(-500, 500)}
    return {**given, "dst_dtype": draw.of([I32, I16, U16]) if whole else F32}


def divided(draw: Draw, name: str) -> Given:
    return {"num_iter": draw.between(1, 4), "dtype": F32}


def spread(draw: Draw, name: str) -> Given:
    """A shape whose channels or columns change places across lanes."""
    dtype = draw.of(TYPES)
    if "trans" in name:
        shape = dim4(draw.between(1, 2), draw.between(1, 64), draw.between(1, 3), draw.between(1, 64))
        return {"dtype": dtype, "shape": shape, "lane": 0}
    shape = draw.shape()
    return {"dtype": dtype, "shape": dim4(shape.n, min(shape.c, 59), shape.h, shape.w)}


def _named(text: str) -> list[str]:
    return [f"tpu_bdc_{name}" for name in text.split()]


def _binary(*names: str) -> list[str]:
    return [f"tpu_bdc_{name}{end}" for name in names for end in ("", "_C")]


#: Families of element-wise functions: their names, and what chooses their types.
FAMILIES: dict[str, tuple[list[str], Chooser]] = {
    "float sums and products": (
        [
            *_binary("fp_add", "fp_sub", "fp_mul", "fp_diff_abs", "max", "min"),
            *_named("fp_C_sub fp_square abs neg relu prelu sign fp_bias fp_scale fp_scale_bias fp_scale_bias_C"),
            *_named("fp_add_C_sqr fp_add_bias_sqr fp_sub_C_sqr fp_sub_bias_sqr"),
        ],
        one_type(FLOATS),
    ),
    "f32 multiply-add": (_binary("fp32_mac"), one_type((F32,))),
    "float rounding": (_named("fp_floor fp_ceil fp_round"), one_type(FLOATS)),
    "casts": (_named("cast"), casts),
    "exponents": (_named("fp_exponent_part"), exponents),
    "integer sums": (
        [f"tpu_bdc_int_{pcs}{name}{end}" for pcs in ("", "pcs_") for name in ("add", "sub") for end in ("", "_C")]
        + _named("int_C_sub int_pcs_C_sub"),
        integers,
    ),
    "integer products": (_binary("int_mul", "int_pcs_mul") + _named("int_square"), integers),
    "8-bit multiply-add": (_binary("int8_mac"), macs),
    "bits": (
        _binary("and", "or", "xor", "max", "min") + _named("not abs neg relu sign int_max_C int_min_C"),
        one_type(INTEGERS),
    ),
    "shifts": (_binary("arithmetic_shift", "logical_shift"), shifts),
    "comparisons": (_binary("greater", "less", "equal", "greater_equal", "less_equal", "not_equal"), compared),
    "selections": (
        _named("greater_select less_select equal_select maximum_greater_select minimum_less_select"),
        chosen,
    ),
    "requantisation": (_named("int_requant int_pc_requant fp32_requant fp32_pc_requant"), requantised),
    "dequantisation": (_named("int_dequant int_pc_dequant fp32_dequant fp32_pc_dequant"), dequantised),
    "division": (
        [
            f"tpu_bdc_{kind}_{tuned}{name}"
            for kind in ("fp32", "fp")
            for tuned in ("", "tunable_")
            for name in ("div", "div_C", "C_div", "reciprocal")
        ],
        divided,
    ),
    "copies between lanes": (_named("cpy cpy_cross_npu npu_bcast wc_trans cw_trans set_C"), spread),
}
