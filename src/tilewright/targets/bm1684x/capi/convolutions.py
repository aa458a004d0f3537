"""Functions of the device API: convolutions, transposed convolutions, depthwise convolutions, pools and products.

The names of a C function and of its parameters determine the operands and attributes of its command. Therefore one
Python function implements all convolutions and pools, and another implements all products.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Args, Functions, Issuer, Operands, Run, attributes
from tilewright.targets.bm1684x.capi.names import PROTOTYPES, constant
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Matrix, Operand, Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.window import Window

#: Functions that accept only a signed result (True) or only an unsigned result (False). Similar functions accept signed
#: and unsigned results (measured).
RESULT_SIGNED = {
    "tpu_bdc_int8_asym_pc_quant_conv2d": True,
    "tpu_bdc_int8_asym_pc_quant_conv2d_for_deconv2d": False,
}


def _windowed(operation: str) -> Run:
    inputs = OPERATIONS[operation].inputs

    def run(api: Issuer, call: Args) -> None:
        named = attributes(call)
        sizes = call["shape"].shape
        dtype = call.get("input_dtype", call.get("dtype"))
        window: Window = named["window"]
        channels = call.get("output_c", sizes.c)
        rows, columns = (1, call["output_w"]) if "output_w" in call else window.out(sizes.h, sizes.w)
        result = call.get("output_dtype", dtype)
        signed = RESULT_SIGNED.get(call["name"], result.signed)
        if result.signed != signed:
            raise MachineError(call["name"], f"the result is {result}", f"give {I32 if signed else U32}")

        def table(parameter: str, shape: Shape, kind: DType) -> Tensor:
            return api.local(call[parameter], shape, None, kind, layout.compact)

        by_channel = Shape(1, channels, 1, 1)
        y = api.local(call["output"], Shape(sizes.n, channels, rows, columns), None, result)
        operands: Operands = {"x": api.local(call["input"], sizes, call.get("input_stride"), dtype)}
        if "roi" in call:
            operands["rois"] = table("roi", Shape(1, columns, 1, 4), U16)
        for name, parameter in (("pad", "pad"), ("pad", "except_val"), ("between", "between")):
            if parameter in call:
                number = constant(call[parameter], dtype)
                if name in inputs:
                    operands[name] = number
                else:
                    named[name] = int(number.value)
        if "w" in inputs:
            operands["w"] = _weights(api, call, dtype)
        if "scale" in call:
            operands["scale"] = constant(call["scale"], dtype if dtype.is_float else U8)
        if call.get("has_bias"):
            # A float convolution has an f32 bias. A depthwise convolution has a bias of its own type.
            operands["bias"] = table("bias", by_channel, call.get("bias_dtype", F32 if "output_c" in call else dtype))
        if "zero" in call:
            operands["zero"] = constant(call["zero"], call["zero_dtype"])
        if "zero_addr" in call:
            operands["zero"] = table("zero_addr", by_channel, call["zero_dtype"])
        for parameter in ("pad_addr", "pad_insert_addr"):
            if parameter in call:  # each channel has two values: one for padding, one to insert
                pairs = table(parameter, Shape(1, sizes.c, 1, 2), dtype)
                operands["pads"] = pairs[:, :, :, 0:1]
                if parameter == "pad_insert_addr":
                    operands["inserts"] = pairs[:, :, :, 1:2]
        if call.get("result_add"):
            operands["acc"] = y
        if call["name"].endswith("_for_deconv2d"):  # a transposed convolution rotates its weights by 180 degrees
            named["rotated"] = True
        api.issue(operation, operands, {"y": y}, named)

    return run


def _weights(api: Issuer, call: Args, dtype: DType) -> Operand | Constant:
    weight_type = call.get("weight_dtype", dtype)
    channels = call["shape"].c
    kernel = call["kernel"]
    if "C" in call:
        return constant(call["C"], weight_type)
    if call.get("kernel_is_const"):  # the argument `weight` is the number itself
        return Constant(call["weight"] & (1 << weight_type.bits) - 1, weight_type)
    if "output_c" in call:
        sizes = (call["output_c"], channels, kernel.h, kernel.w)
        return ConvWeights(LOCAL_BASE + call["weight"], sizes, weight_type, api.config)
    return api.local(call["weight"], Shape(1, channels, kernel.h, kernel.w), None, weight_type, layout.compact)


#: For each operation, the names of the functions that issue it, without the prefix tpu_bdc_.
WINDOWED: Mapping[str, str] = {
    "fp_conv2d": "fp_conv2d fp_conv2d_long_instr fp_conv2d_kernel_const fp_conv2d_for_deconv2d",
    "int8_sym_quant_conv2d": "int8_sym_quant_conv2d int8_sym_quant_conv2d_for_deconv2d",
    "int8_asym_quant_conv2d": """int8_asym_quant_conv2d int8_asym_quant_conv2d_kernel_const
        int8_asym_quant_conv2d_for_deconv2d int8_asym_pc_quant_conv2d int8_asym_pc_quant_conv2d_for_deconv2d""",
    "fp_depthwise2d": "fp_depthwise2d fp_ins_depthwise fp_depthwise_for_deconv2d",
    "int8_depthwise2d": """int8_depthwise2d int8_depthwise2d_kernel_const int8_depthwise_for_deconv2d
        int8_pc_pad_depthwise2d int8_pc_pad_depthwise_for_deconv2d""",
    "max_pool2d": "fp_max_pool2d int8_max_pool2d",
    "fp_avg_pool2d": "fp_avg_pool2d fp_ins_avg_pool2d",
    "int8_avg_pool2d": "int8_avg_pool2d int8_ins_avg_pool2d",
    "roi_max_pool2d": "fp_roi_max_pool2d int8_roi_max_pool2d",
    **{name: name for name in ("fp_roi_avg_pool2d", "int8_roi_avg_pool2d", "int8_roi_depthwise2d")},
}
#: Functions by name, without the prefix tpu_bdc_.
CONVOLUTIONS: Functions = {
    name: _windowed(operation) for operation, names in WINDOWED.items() for name in names.split()
}

#: The attribute of a product, by the suffix of the function's name.
TRANSPOSED = {"_L_trans": "left_transposed", "_R_trans": "right_transposed", "_all_trans": "both_transposed"}


def _product(operation: str) -> Run:
    def run(api: Issuer, call: Args) -> None:
        name = call["name"]
        transposed = next((attribute for end, attribute in TRANSPOSED.items() if name.endswith(end)), "")
        named = {**attributes(call), **({transposed: True} if transposed else {})}
        sizes = _sizes(call, transposed)
        columns = sizes["y"][1]
        left = call.get("left_dtype", call.get("dtype", F32))
        types: dict[str, DType] = {"L": left, "R": call.get("right_dtype", left)}

        def matrix(parameter: str, size: tuple[int, int], dtype: DType) -> Rows | Matrix:
            if "right_size" in call:
                # Functions with the parameter right_size multiply matrices stored with one row per channel.
                return Rows(api.local(call[parameter], Shape(1, size[0], 1, size[1]), None, dtype))
            width = call["left_width" if parameter == "left" else "right_width"]
            return api.matrix(call[parameter], *size, width, dtype)

        operands: Operands = {}
        for factor, parameter in (("L", "left"), ("R", "right")):
            if parameter in call:
                operands[factor] = matrix(parameter, sizes[factor], types[factor])
            else:
                operands[factor] = Constant(constant(call["C"], types[factor]).bits, types[factor])
                named["depth"] = call["left_rows" if transposed == "both_transposed" else "left_columns"]
        issued = operation
        wide = I32
        if operation == "int_mm" and left.bits == types["R"].bits == I8.bits:  # 8-bit products are not shifted
            issued = "int8_zp_mm"
            del named["mode"]
        elif operation == "int_mm":
            wide = I32 if left.signed or types["R"].signed else U32
            by_column = "shift_addr" in call
            operands["shift"] = matrix("shift_addr", (1, columns), I8) if by_column else constant(call["shift"], I8)
        y = matrix("output", sizes["y"], call.get("out_dtype", F32 if left.is_float else wide))
        operands |= _zero_points(api, call, sizes, types["R"])
        if call.get("has_bias"):
            operands["bias"] = matrix("bias", (1, columns), call.get("bias_dtype", F32))
        if call.get("result_add"):
            if operation == "int8_mm":
                reason = "result_add is not supported: no golden vector shows how it shifts the old result"
                raise MachineError(name, reason, "clear result_add, and add with a separate command")
            operands["acc"] = y
        api.issue(issued, operands, {"y": y}, named)

    return run


def _sizes(call: Args, transposed: str) -> dict[str, tuple[int, int]]:
    rows = call["left_rows"]
    depth = call["left_columns"]
    if "right_size" in call:
        columns = call["right_size"]
    else:
        columns = call["right_columns"]
        if "left_dtype" in call and "out_dtype" not in call:  # an integer product fills the last channel
            columns = -(-columns // call["right_width"]) * call["right_width"]
    if transposed == "left_transposed":
        return {"L": (rows, depth), "R": (rows, columns), "y": (depth, columns)}
    if transposed == "both_transposed":
        return {"L": (rows, depth), "R": (columns, rows), "y": (columns, depth)}
    right = (columns, depth) if transposed == "right_transposed" else (depth, columns)
    return {"L": (rows, depth), "R": right, "y": (rows, columns)}


def _zero_points(api: Issuer, call: Args, sizes: Mapping[str, tuple[int, int]], dtype: DType) -> Operands:
    if "zero" in call:
        return {"zero": constant(call["zero"], dtype)}
    if "zero_addr" not in call:
        return {}
    if call["name"].endswith("_all_trans"):
        shape = Shape(1, sizes["y"][0], 1, 1)
        return {"zeros": api.local(call["zero_addr"], shape, None, dtype, layout.compact)}
    return {"zeros": api.row(call["zero_addr"], sizes["R"][0], sizes["y"][1], dtype)}


#: The operation of a product, by the prefix of the function's name.
PRODUCT_OF = {
    **dict.fromkeys(("fp", "fp32"), "fp_mm"),
    **dict.fromkeys(("int8_zp", "int8_pc_zp"), "int8_zp_mm"),
    **dict.fromkeys(("int", "int_pcs"), "int_mm"),
    "int8": "int8_mm",
}
#: Functions by name, without the prefix tpu_bdc_.
PRODUCTS: Functions = {
    name: _product(PRODUCT_OF[name.partition("_mm")[0]])
    for name in (function.removeprefix("tpu_bdc_") for function in PROTOTYPES)
    if name.partition("_mm")[0] in PRODUCT_OF and "_mm" in name
}
