"""Random arguments for gathers and scatters in local memory, pools over regions, sequences of numbers, and means."""

from __future__ import annotations

from typing import Any

from tests.targets.bm1684x.random_calls.draw import FLOATS, STEP, TYPES, Call, Draw
from tests.targets.bm1684x.random_calls.elementwise import elementwise
from tests.targets.bm1684x.random_calls.products import EIGHT, Maker, call, integer_convolution
from tilewright.targets.bm1684x.capi import dim2, dim4
from tilewright.targets.bm1684x.capi.gathers import GATHERS, LOADS
from tilewright.targets.bm1684x.values.dtypes import F32, I16, I32, U8, U16, U32
from tilewright.targets.bm1684x.values.memory import OFFSETS, stored

Given = dict[str, Any]


def by_lane(draw: Draw, name: str) -> Call:
    """A gather, scatter or selection in local memory. Indices are in range, but for exceptions that are all ones."""
    dtype, index, planes = draw.of(TYPES), draw.of((U8, U16)), "hw" in name
    index = U16 if planes else index
    rows = "_h_" in name or planes
    shape = dim4(draw.between(1, 3), draw.of([1, 3, 40, 64, 65, 130]), draw.between(1, 5) if rows else 1, 0)
    shape.w = draw.between(1, 40)
    if "4bank" in name:
        return from_four_banks(draw, name, shape)
    sizes: Given = {"param_h": draw.between(1, 12), "param_w": draw.between(1, 30)}
    limits = [sizes["param_h"] if "_h_" in name else sizes["param_w"]]
    if "scatter" in name:
        limits = [shape.h if "_h_" in name else shape.w]
    if planes:
        limits.append(shape.h if "scatter" in name else sizes["param_h"])
    given = {**sizes, "shape": shape, "index": draw.filled(index, min(limits))}
    types = {"dtype": dtype, "param": dtype, "output": dtype, "index_dtype": index, "C": dtype}
    if "mask" in name:
        mask = draw.of([U8, U16, U32])
        given |= {"mask": draw.filled(mask, 2), "shape": shape}
        types |= {"mask_dtype": mask, "count_addr": U16}
    return call(draw, name, given, types, dtype)


def from_four_banks(draw: Draw, name: str, shape: dim4) -> Call:
    """A gather from four equal copies, in the parts of a lane that the machine demands."""
    dtype, index, width = draw.of(TYPES), draw.of((U8, U16)), draw.between(1, 60)
    shape.n = 1
    half = 8 * STEP
    given: Given = {"shape": shape, "param_w": width, "param": half, "output": 4 * STEP}
    given["index"] = draw.fill(0, index, width)
    draw.fill(half, dtype)
    source = draw.fills[-1]
    draw.fills.extend(type(source)(half + 2 * copy * STEP, False, dtype, 0, source.start) for copy in (1, 2, 3))
    types = {"dtype": dtype, "index_dtype": index, "C": dtype}
    return call(draw, name, given, types, dtype)


def region(draw: Draw, name: str) -> Call:
    """A pool or depthwise convolution over regions, whose first elements leave room for the window."""
    kernel, columns = dim2(draw.between(1, 3), draw.between(1, 3)), draw.between(1, 130)
    shape = dim4(draw.between(1, 3), draw.of([1, 3, 64, 65]), draw.between(6, 12), draw.between(6, 12))
    floats = "fp" in name
    dtype, weight = draw.of(FLOATS if floats else EIGHT), draw.of(EIGHT)
    signed = dtype.signed or (weight.signed and "depthwise" in name)
    result = dtype if floats or "max" in name else I16 if signed else U16
    given: Given = {"kernel": kernel, "shape": shape, "output_w": columns, "roi": draw.filled(U16, 4)}
    if floats:  # as for other pools, NaNs are left out
        given["input"] = draw.filled(dtype, 1)
    types = {"input": dtype, "dtype": dtype, "input_dtype": dtype, "output_dtype": result, "except_val": dtype}
    types |= {"scale": dtype if floats else U8, "weight": weight, "weight_dtype": weight}
    return call(draw, name, given, types, result)


def numbers(draw: Draw, name: str) -> Call:
    """A sequence of integers, or numbers from static memory."""
    given: Given = {
        "lanes": draw.between(1, 64),
        "start": draw.of([0, draw.between(-9, 9), draw.between(-(1 << 31), 0)]),
    }
    given |= {"step": draw.of([1, draw.between(-9, 9), draw.between(0, (1 << 31) - 1)]), "num": draw.between(1, 1000)}
    dtype = draw.of((U16, U32))
    if "distribute" in name:
        given["num"] = draw.between(1, 3000)
    if "static" in name:
        table, kind = draw.of(list(OFFSETS))
        dtype = draw.of(TYPES)
        size = stored(table, kind) * kind.bytes // dtype.bytes
        given |= {"src": OFFSETS[table, kind][0], "length": draw.between(1, size)}
    return call(draw, name, given, {"dtype": dtype}, dtype if "static" in name else I32)


def loaded(draw: Draw, name: str) -> Call:
    """A copy of a table of static memory to all lanes, or of any part of a table to some."""
    table, kind = draw.of(list(OFFSETS))
    given: Given = {"lanes": draw.between(1, 64), "src": OFFSETS[table, kind][0]}
    given["length"] = draw.between(1, stored(table, kind))
    if "load" in name:
        asked = name.split("_")[-2]
        kind = draw.of([dtype for word, dtype in OFFSETS if word == asked])
    return call(draw, name, given, {"dtype": kind}, kind)


def several(draw: Draw, name: str) -> Call:
    """A function that is several commands on floats."""
    dtype = draw.of(FLOATS) if "mean" in name or name.endswith("sign") else F32
    given: Given = {"dtype": dtype, "lane": 0, "num_iter": draw.between(1, 4), "num_comp": draw.between(0, 3)}
    if "mean" in name:
        given["shape"] = draw.shape(40, 30)
    return elementwise(draw, name, given)


def _named(text: str) -> list[str]:
    return [f"tpu_bdc_{name}" for name in text.split()]


_SEQUENCE = "arithmetic_sequence"
PLACES: dict[str, tuple[list[str], Maker]] = {
    "gathers in lanes": ([f"tpu_bdc_{name}" for name in GATHERS if name != "table_lookup"], by_lane),
    "regions": (
        _named("fp_roi_max_pool2d int8_roi_max_pool2d fp_roi_avg_pool2d int8_roi_avg_pool2d int8_roi_depthwise2d"),
        region,
    ),
    "sequences of numbers": (
        [f"tpu_bdc_{_SEQUENCE}_{kind}" for kind in ("bcast", "general", "distribute")]
        + [f"tpu_bdc_{_SEQUENCE}_distribute_{kind}" for kind in ("aligned", "general")]
        + _named("generate_arithmetic_sequence npu_distribute_from_static"),
        numbers,
    ),
    "several commands": (
        _named("fp_hw_reduce_mean fp32_compensate_reciprocal fp32_tunable_compensate_reciprocal fp32_tan_cot")
        + _named("fp_gelu_fast fp_gelu_fast2"),
        several,
    ),
    "static tables": (
        _named("npu_bcast_from_static load_fp32_exp_table") + [f"tpu_bdc_{name}" for name in LOADS],
        loaded,
    ),
    "convolutions by channel": (
        _named("int8_asym_pc_quant_conv2d int8_asym_pc_quant_conv2d_for_deconv2d")
        + _named("int8_pc_pad_depthwise2d int8_pc_pad_depthwise_for_deconv2d"),
        integer_convolution,
    ),
}
