"""Functions of the device API: convolutions, transposed convolutions, depthwise convolutions, pools and products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import (
    Functions,
    Given,
    Issuer,
    Operands,
    Place,
    Run,
    Source,
    attributes,
    issue,
    windowed,
)
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.operation import Flow
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Operand, Rows
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.window import Window


def _weights(
    api: Issuer, given: Given, sizes: tuple[int, int, int, int], dtype: DType, by_channel: bool
) -> Operand | Constant:
    """Return the weights (oc, ic, kh, kw) of a call, or of a depthwise convolution (c, 1, kh, kw). C is a number."""
    if "C" in given:
        return constant(given["C"], dtype)
    if given.get("kernel_is_const"):  # the address is the number
        return Constant(given["weight"] & (1 << dtype.bits) - 1, dtype)
    if by_channel:
        return api.local(given["weight"], Shape(1, sizes[0], *sizes[2:]), None, dtype, layout.compact)
    return ConvWeights(LOCAL_BASE + given["weight"], sizes, dtype, api.config)


def _conv(operation: str) -> Run:
    """Return what a convolution does. Those for transposed convolutions rotate the weights by 180 degrees."""
    depthwise = OPERATIONS[operation].flow is Flow.WINDOW

    def run(api: Issuer, given: Given) -> None:
        said = attributes(given)
        sizes = given["shape"].shape
        window: Window = said["window"]
        dtype = given.get("input_dtype", given.get("dtype"))
        weight = given.get("weight_dtype", dtype)
        outputs = sizes.c if depthwise else given["output_c"]
        shape = Shape(sizes.n, outputs, *window.out(sizes.h, sizes.w))
        y = api.local(given["output"], shape, None, given.get("output_dtype", dtype))
        operands: Operands = {
            "x": api.local(given["input"], sizes, given.get("input_stride"), dtype),
            "w": _weights(api, given, (outputs, 1 if depthwise else sizes.c, *window.kernel), weight, depthwise),
        }

        def by_channel(address: int, channels: int, kind: DType) -> Operand:
            return api.local(address, Shape(1, channels, 1, 1), None, kind, layout.compact)

        if given.get("has_bias"):
            operands["bias"] = by_channel(given["bias"], outputs, given.get("bias_dtype", dtype if depthwise else F32))
        if "zero" in given:
            operands["zero"] = constant(given["zero"], given["zero_dtype"])
        if "zero_addr" in given:
            operands["zero"] = by_channel(given["zero_addr"], outputs, given["zero_dtype"])
        if "pad_addr" in given or "pad_insert_addr" in given:  # pairs of a value of padding and one to insert
            place = given.get("pad_addr", given.get("pad_insert_addr"))
            pairs = api.local(place, Shape(1, sizes.c, 1, 2), None, dtype, layout.compact)
            operands["pads"] = pairs[:, :, :, 0:1]
            if "pad_insert_addr" in given:
                operands["inserts"] = pairs[:, :, :, 1:2]
        if given.get("result_add"):
            operands["acc"] = y
        for name in ("pad", "between"):
            if name in given:
                said[name] = int(constant(given[name], dtype).value)
        if given["name"].endswith("_for_deconv2d"):
            said["rotated"] = True
        api.issue(operation, operands, {"y": y}, said)

    return run


def _into(signed: bool, convolution: Run) -> Run:
    """Return a convolution whose result must be signed, or unsigned. Others of its kind take both (measured)."""

    def run(api: Issuer, given: Given) -> None:
        if given["output_dtype"].signed != signed:
            wanted = I32 if signed else U32
            raise MachineError(given["name"], f"the result is {given['output_dtype']}", f"give {wanted}")
        convolution(api, given)

    return run


def _regions(operation: str) -> Run:
    def run(api: Issuer, given: Given) -> None:
        n, c, _, _ = shape = given["shape"].shape
        columns = given["output_w"]
        kernel = (given["kernel"].h, given["kernel"].w)
        dtype = given.get("input_dtype", given.get("dtype"))
        y = api.local(given["output"], Shape(n, c, 1, columns), None, given.get("output_dtype", dtype))
        operands: Operands = {
            "x": api.local(given["input"], shape, None, dtype),
            "rois": api.local(given["roi"], Shape(1, columns, 1, 4), None, U16, layout.compact),
            "pad": constant(given["except_val"], dtype),
        }
        if "weight" in given:
            operands["w"] = _weights(api, given, (c, 1, *kernel), given["weight_dtype"], True)
        if "scale" in given:
            operands["scale"] = constant(given["scale"], dtype if dtype.is_float else U8)
        api.issue(operation, operands, {"y": y}, {"window": Window(kernel)})

    return run


FLOAT, SYMMETRIC, ASYMMETRIC = (
    _conv(name) for name in ("fp_conv2d", "int8_sym_quant_conv2d", "int8_asym_quant_conv2d")
)
FLOAT_DEPTHWISE = _conv("fp_depthwise2d")
DEPTHWISE = _conv("int8_depthwise2d")
POOLED: dict[str, Source] = {"y": Place("output", shape=windowed), "x": "input"}
LARGEST = issue("max_pool2d", **POOLED, pad="pad")
FLOAT_MEAN = issue("fp_avg_pool2d", **POOLED, scale="scale")
MEAN = issue("int8_avg_pool2d", **POOLED, scale=Place("scale", U8))
#: Functions by name, without the prefix tpu_bdc_.
CONVOLUTIONS: Functions = {
    **dict.fromkeys((f"fp_conv2d{end}" for end in ("", "_long_instr", "_kernel_const", "_for_deconv2d")), FLOAT),
    **dict.fromkeys((f"int8_sym_quant_conv2d{end}" for end in ("", "_for_deconv2d")), SYMMETRIC),
    **dict.fromkeys((f"int8_asym_quant_conv2d{end}" for end in ("", "_kernel_const", "_for_deconv2d")), ASYMMETRIC),
    "int8_asym_pc_quant_conv2d": _into(True, ASYMMETRIC),
    "int8_asym_pc_quant_conv2d_for_deconv2d": _into(False, ASYMMETRIC),
    **dict.fromkeys(("fp_depthwise2d", "fp_ins_depthwise", "fp_depthwise_for_deconv2d"), FLOAT_DEPTHWISE),
    **dict.fromkeys((f"int8_{kind}depthwise_for_deconv2d" for kind in ("", "pc_pad_")), DEPTHWISE),
    **dict.fromkeys(("int8_depthwise2d", "int8_depthwise2d_kernel_const", "int8_pc_pad_depthwise2d"), DEPTHWISE),
    **dict.fromkeys(("fp_max_pool2d", "int8_max_pool2d"), LARGEST),
    **dict.fromkeys(("fp_avg_pool2d", "fp_ins_avg_pool2d"), FLOAT_MEAN),
    **dict.fromkeys(("int8_avg_pool2d", "int8_ins_avg_pool2d"), MEAN),
    **dict.fromkeys(("fp_roi_max_pool2d", "int8_roi_max_pool2d"), _regions("roi_max_pool2d")),
    **{name: _regions(name) for name in ("fp_roi_avg_pool2d", "int8_roi_avg_pool2d", "int8_roi_depthwise2d")},
}


#: What a product of matrices stored by rows transposes, by the end of the function's name.
TURNS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "_R_trans": {"right_transposed": True},
    "_all_trans": {"both_transposed": True},
}
#: The factor that is a number C, by a part of the function's name.
NUMBERS = {"": "", "_L_const": "left", "_R_const": "right"}


def _by_rows(turns: Mapping[str, Any], integer: bool, number: str, zeros: bool) -> Run:
    """Return the function of a matrix product. Factors have a row per channel; `turns` says which are transposed.

    `number` is the factor that is a number C, if one is. With `zeros`, the zero points are a tensor.
    """
    swapped = turns.get("both_transposed")
    turned = turns.get("right_transposed")

    def run(api: Issuer, given: Given) -> None:
        rows = given["left_rows"]
        depth = given["left_columns"]
        size = given["right_size"]
        sizes = {"L": (rows, depth), "R": (size, depth) if turned else (depth, size), "y": (rows, size)}
        if swapped:
            sizes = {"L": (rows, depth), "R": (size, rows), "y": (size, depth)}
        left, right = (given.get(f"{side}_dtype", given.get("dtype")) for side in ("left", "right"))
        types: dict[str, DType] = {"y": given.get("out_dtype", I32), "L": left, "R": right}

        def factor(name: str, address: str) -> Rows:
            height, width = sizes[name]
            return Rows(api.local(given[address], Shape(1, height, 1, width), None, types[name]))

        y = factor("y", "output")
        operands: Operands = {
            own: Constant(constant(given["C"], types[own]).bits, types[own]) if side == number else factor(own, side)
            for own, side in (("L", "left"), ("R", "right"))
        }
        if zeros and swapped:
            form = Shape(1, sizes["y"][0], 1, 1)
            operands["zeros"] = api.local(given["zero_addr"], form, None, types["R"], layout.compact)
        elif zeros:
            operands["zeros"] = api.row(given["zero_addr"], sizes["R"][0], sizes["y"][1], types["R"])
        elif integer:
            operands["zero"] = constant(given["zero"], types["R"])
        if given.get("result_add"):
            operands["acc"] = y
        length = {"depth": rows if swapped else depth} if number else {}
        api.issue("int8_zp_mm" if integer else "fp_mm", operands, {"y": y}, {**turns, **length})

    return run


def _factors(api: Issuer, given: Given, columns: int, transposed: bool) -> tuple[int, Operands, dict[str, Any]]:
    """Return the rows of the result, and the factors and attributes of a product of such matrices.

    left_rows and left_columns are the sizes of the left factor as stored, before any transposition. The factor is the
    number C if the call has one. `columns` is the columns of the right factor.
    """
    rows = given["left_rows"]
    depth = given["left_columns"]
    inner, height = (rows, depth) if transposed else (depth, rows)
    left, right = given.get("left_dtype", F32), given.get("right_dtype", F32)
    operands: Operands = {"R": api.matrix(given["right"], inner, columns, given["right_width"], right)}
    named = {"left_transposed": transposed}
    if "C" in given:
        return height, {"L": constant(given["C"], left), **operands}, {**named, "depth": depth}
    return height, {"L": api.matrix(given["left"], rows, depth, given["left_width"], left), **operands}, named


def _spread(integer: bool, transposed: bool) -> Run:
    """Return the function of a product of floats, or of 8-bit integers that are shifted and clamped."""

    def run(api: Issuer, given: Given) -> None:
        if integer and given["result_add"]:
            reason = "result_add is not supported: no golden vector shows how it shifts the old result"
            raise MachineError(given["name"], reason, "clear result_add, and add with a separate command")
        columns = given["right_columns"]
        width = given["right_width"]
        height, operands, named = _factors(api, given, columns, transposed)
        y = api.matrix(given["output"], height, columns, width, given.get("out_dtype", F32))
        if given["has_bias"]:
            operands["bias"] = api.matrix(given["bias"], 1, columns, width, given.get("bias_dtype", F32))
        if given["result_add"]:
            operands["acc"] = y
        api.issue("int8_mm" if integer else "fp_mm", operands, {"y": y}, {**attributes(given), **named})

    return run


def _whole(by_column: bool, transposed: bool) -> Run:
    """Return the function of a product of integers, in 32 bits.

    The shift is one number or, if `by_column`, a row with a number for each column of the result.
    """

    def run(api: Issuer, given: Given) -> None:
        width = given["right_width"]
        left = given["left_dtype"]
        right = given["right_dtype"]
        columns = -(-given["right_columns"] // width) * width  # the machine computes whole channels
        height, operands, named = _factors(api, given, columns, transposed)
        if left.bits == right.bits == I8.bits:  # it is not shifted
            y = api.matrix(given["output"], height, columns, width, I32)
            api.issue("int8_zp_mm", operands, {"y": y}, named)
            return
        shift = api.matrix(given["shift_addr"], 1, columns, width, I8) if by_column else constant(given["shift"], I8)
        operands["shift"] = shift
        y = api.matrix(given["output"], height, columns, width, I32 if left.signed or right.signed else U32)
        api.issue("int_mm", operands, {"y": y}, {**named, "mode": given["mode"]})

    return run


#: Functions by name, without the prefix tpu_bdc_.
PRODUCTS: Functions = {
    **{
        f"{name}_mm{number}{turn}": _by_rows(TURNS[turn], name != "fp", NUMBERS[number], name == "int8_pc_zp")
        for name in ("fp", "int8_zp", "int8_pc_zp")
        for number in NUMBERS
        for turn in TURNS
        if (number, turn) != ("_R_const", "_R_trans")  # the machine does not have it
    },
    **{
        f"{name}{kind}": make(integer, kind == "_L_trans")
        for name, make, integer in (
            ("int_mm", _whole, False),
            ("int_pcs_mm", _whole, True),
            ("fp32_mm", _spread, False),
            ("int8_mm", _spread, True),
        )
        for kind in ("", "_L_trans", "_L_const")
    },
}
