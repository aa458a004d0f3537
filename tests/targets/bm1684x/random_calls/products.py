"""Random arguments for convolutions, pools, matrix products, pairs of vectors and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.targets.bm1684x.random_calls.draw import FLOATS, INTEGERS, STEP, TYPES, Call, Draw
from tests.targets.bm1684x.random_calls.elementwise import parameters
from tilewright.targets.bm1684x.capi import dim2, dim4, padding_t
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I8, I16, I32, U8, U16, U32, DType, Rounding

Given = dict[str, Any]
Maker = Callable[[Draw, str], Call]
EIGHT, SHORT, WIDE = (I8, U8), (I8, U8, I16, U16), (I32, U32)


def call(draw: Draw, name: str, given: Given, types: dict[str, DType], result: DType) -> Call:
    """Return a call with the arguments in `given`. Local addresses that are not given get values of `types`."""
    arguments: list[Any] = []
    for kind, parameter in parameters()[name]:
        if parameter in given:
            arguments.append(given[parameter])
        elif kind == "local_addr_t":
            dtype = types.get(parameter, result)  # products of huge bf16 numbers are not known to the last bit
            arguments.append(draw.filled(dtype, limit=dtype is BF16 and "taylor" not in name))
        elif kind == "data_type_t":
            arguments.append(types[parameter])
        elif kind == "bool":
            arguments.append(draw.chance(50))
        elif kind == "scalar_t":
            arguments.append(draw.constant(types[parameter]))
        elif kind == "float":
            arguments.append(draw.real())
        elif kind == "rounding_mode_t":
            arguments.append(draw.of(tuple(Rounding)[:5]))
        else:
            assert parameter.endswith("stride"), f"{name}: {parameter}"
            arguments.append(None)
    return Call(name, tuple(arguments), tuple(draw.fills), result)


def window(draw: Draw, name: str, apart: bool = True) -> Given:
    """Return the shape of a feature map and a window that fits into it. Unless `apart`, nothing is inserted."""
    inserts, steps = (any(parameter == word for _, parameter in parameters()[name]) for word in ("insert", "stride"))
    while True:
        kernel, dilation = dim2(draw.between(1, 4), draw.between(1, 4)), dim2(draw.between(1, 2), draw.between(1, 2))
        stride = dim2(draw.between(1, 3), draw.between(1, 3)) if steps else dim2(1, 1)
        insert = dim2(draw.between(0, 2), draw.between(0, 2)) if inserts and apart else dim2(0, 0)
        pads = padding_t(*(draw.between(0, 2) for _ in range(4)))
        shape = dim4(draw.between(1, 3), draw.of([1, 3, 16, 31, 64, 65, 100]), draw.between(1, 9), draw.between(1, 12))
        high = (shape.h - 1) * (insert.h + 1) + 1 + pads.top + pads.bottom - (kernel.h - 1) * dilation.h
        wide = (shape.w - 1) * (insert.w + 1) + 1 + pads.left + pads.right - (kernel.w - 1) * dilation.w
        if high > 0 and wide > 0:
            return {
                **{"kernel": kernel, "dilation": dilation, "stride": stride, "insert": insert},
                **{"padding": pads, "shape": shape},
            }


def _signed(draw: Draw, types: tuple[DType, ...], signed: bool) -> DType:
    return draw.of([dtype for dtype in types if dtype.signed == signed])


def float_convolution(draw: Draw, name: str) -> Call:
    given, dtype = window(draw, name), draw.of(FLOATS)
    given["output_c"] = draw.of([1, 3, 16, 64, 65])
    adds = "fp_conv2d" in name and draw.chance(30)
    result = F32 if adds or draw.chance(50) else dtype
    result = result if "conv2d" in name and "depthwise" not in name else dtype
    types = {"input": dtype, "weight": dtype, "bias": F32 if "fp_conv2d" in name else dtype, "dtype": dtype, "C": dtype}
    types |= {"input_dtype": dtype, "output_dtype": result}
    return call(draw, name, {**given, "result_add": adds, "kernel_is_const": False}, types, result)


def integer_convolution(draw: Draw, name: str) -> Call:
    """A convolution of 8-bit integers. If it shifts and clamps, the result is signed if an operand is."""
    given, by_channel = window(draw, name), "depthwise" in name
    x, w, bias = draw.of(EIGHT), draw.of(EIGHT), draw.of(WIDE if by_channel else (I16, U16))
    types = {"input": x, "weight": w, "input_dtype": x, "weight_dtype": w, "bias": bias, "bias_dtype": bias}
    given["output_c"] = draw.of([1, 3, 16, 64, 65])
    if "asym" in name:
        zero = w
        result = I32 if x.signed or w.signed else draw.of(WIDE)
        if "asym_pc" in name:  # they take no other
            result = U32 if "deconv" in name else I32
        types |= {"zero_dtype": zero, "zero": zero, "zero_addr": zero, "pad": x, "between": x, "C": w}
        types |= {"pad_addr": x, "pad_insert_addr": x}
    else:
        given |= {"has_bias": draw.chance(60), "rshift": draw.between(0, 20), "result_relu": draw.chance(25)}
        signed = x.signed or w.signed or (given["has_bias"] and bias.signed)
        given["result_relu"] &= not by_channel
        if not given["has_bias"]:  # the model clamps by the type of the bias even then
            types["bias_dtype"] = _signed(draw, WIDE if by_channel else (I16, U16), signed)
        kinds = INTEGERS if by_channel else SHORT
        result = _signed(draw, tuple(kinds), signed and not given["result_relu"])
        types |= {"pad": x, "pad_addr": x, "C": w}
    return call(draw, name, given, {**types, "output_dtype": result}, result)


def pool(draw: Draw, name: str) -> Call:
    floats = "fp_" in name
    given = window(draw, name, not floats)  # the sign of a sum of zeros is not known
    x = draw.of(FLOATS if floats else EIGHT)
    result = x if floats or "max" in name else _signed(draw, SHORT, x.signed)
    types = {"input": x, "dtype": x, "input_dtype": x, "output_dtype": result, "pad": x, "scale": x}
    if floats:  # the order in which NaNs are compared is not known
        given |= {
            "input": draw.filled(x, limit=1),
            "scale": Constant.of(draw.between(1, 99) / 64, x),
        }
    else:
        given |= {"scale": draw.between(0, 255), "rshift": draw.between(0, 16)}
    return call(draw, name, given, types, result)


def product_of_rows(draw: Draw, name: str) -> Call:
    """A matrix product whose factors have a row per channel."""
    floats = "fp_" in name
    sizes = {"left_rows": draw.of([1, 5, 63, 64, 65, 100]), "left_columns": draw.between(1, 70)}
    given: Given = {**sizes, "right_size": draw.between(1, 70)}
    if "all_trans" in name:
        given["left_columns"] = draw.of([1, 5, 64, 65])
    if "pc_zp" in name and "all_trans" in name:
        given["left_rows"] = draw.between(1, 70)
    adds = draw.chance(30) and any(parameter == "result_add" for _, parameter in parameters()[name])
    left = draw.of((F16, BF16) if floats else EIGHT)
    right = left if floats else draw.of(EIGHT)
    result = (F32 if adds or draw.chance(50) else left) if floats else draw.of(WIDE)
    zero = right
    number = left if "L_const" in name else right
    if "pc_zp" in name:
        result = I32
    types = {"left": left, "right": right, "left_dtype": left, "right_dtype": right, "out_dtype": result}
    return call(
        draw,
        name,
        {**given, "result_add": adds},
        {**types, "dtype": left, "zero": zero, "zero_addr": zero, "C": number},
        result,
    )


def product_of_columns(draw: Draw, name: str) -> Call:
    """A matrix product whose factors have their columns spread over lanes."""
    rows, depth, width = draw.between(1, 12), draw.between(1, 30), draw.between(1, 20)
    columns = width * draw.between(1, 130)  # the machine also computes what follows the last column in its channel
    given: Given = {"left_rows": rows, "left_columns": depth, "right_columns": columns}
    given |= {"left_width": draw.between(1, 20), "right_width": width, "has_bias": draw.chance(50)}
    given["result_add"] = draw.chance(30) and "fp32" in name
    if "fp32" in name:
        return call(draw, name, given, {}, F32)
    left, right, bias = draw.of(EIGHT), draw.of(EIGHT), draw.of((I16, U16))
    given |= {"lshift": 0, "rshift": draw.between(0, 12), "result_relu": False}
    signed = left.signed or right.signed or (given["has_bias"] and bias.signed)
    result = _signed(draw, SHORT, signed)
    types = {"left": left, "right": right, "bias": bias, "left_dtype": left, "right_dtype": right, "bias_dtype": bias}
    types["C"] = left
    return call(draw, name, given, {**types, "out_dtype": result}, result)


def whole_product(draw: Draw, name: str) -> Call:
    """A product of integers whose columns are spread over lanes. Some of 32 bits leave the range."""
    depth, width = draw.between(1, 30), draw.between(1, 20)
    given: Given = {"left_rows": draw.between(1, 12), "left_columns": depth, "left_width": draw.between(1, 20)}
    given |= {"right_columns": draw.between(1, 200), "right_width": width, "shift": draw.between(-40, 12)}
    bits = draw.of([8, 16, 32, 32])
    left, right = (draw.of([dtype for dtype in INTEGERS if dtype.bits == bits]) for _ in range(2))
    types = {"left": left, "right": right, "left_dtype": left, "right_dtype": right, "C": left}
    if "pcs" in name:
        given["shift_addr"] = draw.filled(I8, 24)
    return call(draw, name, given, types, I32)


def pairs(draw: Draw, name: str) -> Call:
    """An operation on all pairs of elements of two vectors."""
    integer = "int" in name or name.endswith(("and", "or", "xor"))
    dtype = draw.of(FLOATS if "fp_" in name else INTEGERS if integer else TYPES)
    left, right = (draw.of(INTEGERS) for _ in range(2))
    given: Given = {"src0_len": draw.between(1, 60), "src1_len": draw.between(1, 60)}
    given |= {"src0_len_per_channel": draw.between(1, 9), "src1_len_per_channel": draw.between(1, 9)}
    types = {"dtype": dtype, "src0": dtype, "src1": dtype, "src_dtype": dtype}
    result = F32 if "fp32" in name else dtype
    if "int_" in name:
        types |= {"src0": left, "src1": right, "src0_dtype": left, "src1_dtype": right}
        result = _signed(draw, tuple(INTEGERS), "sub" in name or left.signed or right.signed)
    elif any(parameter == "true_val" for _, parameter in parameters()[name]):
        result = draw.of([kind for kind in TYPES if kind.bits <= dtype.bits])
    return call(draw, name, {**given, "dst": 8 * STEP}, {**types, "dst_dtype": result, "true_val": result}, result)


def table(draw: Draw, name: str) -> Call:
    """A table with an entry for each code, or the coefficients of a polynomial."""
    shape = draw.shape()
    if "taylor" in name:
        dtype = draw.of(FLOATS)
        types = {"src": dtype, "coefficients": dtype, "dtype": dtype}
        return call(draw, name, {"shape": shape, "number": draw.between(2, 20)}, types, dtype)
    source, result = draw.of((U8, U16)), draw.of(TYPES)
    length = 256 if source is U8 else draw.between(1, 300)
    given = {"shape": shape, "length": length, "src": draw.filled(source, 0 if source is U8 else length)}
    return call(draw, name, given, {"table": result, "dst_dtype": result, "src_dtype": source}, result)


def _named(text: str) -> list[str]:
    return [f"tpu_bdc_{name}" for name in text.split()]


PRODUCTS: dict[str, tuple[list[str], Maker]] = {
    "float convolutions": (
        _named("fp_conv2d fp_conv2d_long_instr fp_conv2d_kernel_const fp_conv2d_for_deconv2d"),
        float_convolution,
    ),
    "float depthwise convolutions": (
        _named("fp_depthwise2d fp_ins_depthwise fp_depthwise_for_deconv2d"),
        float_convolution,
    ),
    "symmetric convolutions": (
        _named("int8_sym_quant_conv2d int8_sym_quant_conv2d_for_deconv2d"),
        integer_convolution,
    ),
    "asymmetric convolutions": (
        _named("int8_asym_quant_conv2d int8_asym_quant_conv2d_for_deconv2d int8_asym_quant_conv2d_kernel_const"),
        integer_convolution,
    ),
    "8-bit depthwise convolutions": (
        _named("int8_depthwise2d int8_depthwise_for_deconv2d int8_depthwise2d_kernel_const"),
        integer_convolution,
    ),
    "pools": (
        _named("fp_max_pool2d int8_max_pool2d fp_avg_pool2d fp_ins_avg_pool2d int8_avg_pool2d int8_ins_avg_pool2d"),
        pool,
    ),
    "products of rows": (
        [f"tpu_bdc_{kind}_mm{end}" for kind in ("fp", "int8_zp") for end in ("", "_R_trans", "_all_trans")],
        product_of_rows,
    ),
    "products with a number": (
        [
            f"tpu_bdc_{kind}_mm_{end}"
            for kind in ("fp", "int8_zp")
            for end in ("L_const", "L_const_R_trans", "L_const_all_trans", "R_const", "R_const_all_trans")
        ],
        product_of_rows,
    ),
    "products with zero points": (
        [
            f"tpu_bdc_int8_pc_zp_mm{end}"
            for end in ("", "_R_trans", "_all_trans", "_L_const", "_L_const_R_trans", "_L_const_all_trans")
        ]
        + _named("int8_pc_zp_mm_R_const int8_pc_zp_mm_R_const_all_trans"),
        product_of_rows,
    ),
    "products of columns": (
        [f"tpu_bdc_{kind}_mm{end}" for kind in ("fp32", "int8") for end in ("", "_L_trans", "_L_const")],
        product_of_columns,
    ),
    "integer products of columns": (
        [f"tpu_bdc_int_{kind}mm{end}" for kind in ("", "pcs_") for end in ("", "_L_trans", "_L_const")],
        whole_product,
    ),
    "pairs of vectors": (
        [f"tpu_bdc_{kind}_vc_{name}" for kind in ("fp", "int") for name in ("add", "sub", "mul")]
        + [f"tpu_bdc_vc_{name}" for name in ("max", "min", "and", "or", "xor", "greater", "less", "equal")]
        + _named("vc_greater_equal vc_less_equal vc_not_equal fp32_vc_div"),
        pairs,
    ),
    "tables": (_named("fp_taylor table_lookup"), table),
}
