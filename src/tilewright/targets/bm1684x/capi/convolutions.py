"""Functions of the device API: convolutions, transposed convolutions, depthwise convolutions and pools."""

from __future__ import annotations

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
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U16, U32, DType
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
        said, sizes = attributes(given), given["shape"].shape
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
    """Return what a pool or depthwise convolution over regions (isa/operations/regions.py) does."""

    def run(api: Issuer, given: Given) -> None:
        n, c, _, _ = shape = given["shape"].shape
        columns, kernel = given["output_w"], (given["kernel"].h, given["kernel"].w)
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
FLOAT_DEPTHWISE, DEPTHWISE = _conv("fp_depthwise2d"), _conv("int8_depthwise2d")
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
