"""Functions of the device API: convolutions, transposed convolutions, depthwise convolutions and pools."""

from __future__ import annotations

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi import parameters as p
from tilewright.targets.bm1684x.capi.forms import (
    WINDOW,
    DeviceFunction,
    Functions,
    Given,
    Issuer,
    Operands,
    Place,
    Source,
    attributes,
    function,
    issue,
    windowed,
)
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.capi.parameters import CType, Parameter
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.window import Window

Parameters = tuple[Parameter, ...]
ZERO_ADDR, PAD_ADDR, PAD_INSERT_ADDR, ROI = CType.LOCAL.each("zero_addr", "pad_addr", "pad_insert_addr", "roi")
EXCEPT_VAL, BETWEEN = CType.SCALAR.each("except_val", "between")
OUTPUT_C, OUTPUT_W = CType.INT.each("output_c", "output_w")
ZERO_DTYPE, KERNEL_IS_CONST = CType.DTYPE("zero_dtype"), CType.BOOL("kernel_is_const")
#: The parameters of the window of a transposed convolution, and of the depthwise ones of integers.
TRANSPOSED = (p.KERNEL, p.INSERT, p.PADDING, p.DILATION)
INTEGER_TRANSPOSED = (p.KERNEL, p.PADDING, p.INSERT, p.DILATION)
INSERTING = (p.KERNEL, p.PADDING, p.STRIDE, p.INSERT, p.DILATION)


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


def _conv(operation: str, parameters: Parameters, depthwise: bool = False, rotated: bool = False) -> DeviceFunction:
    """Return the C function of a convolution. With `rotated`, its weights are rotated by 180 degrees."""

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
        if rotated:
            said["rotated"] = True
        api.issue(operation, operands, {"y": y}, said)

    return DeviceFunction(parameters, run)


def _into(signed: bool, function: DeviceFunction) -> DeviceFunction:
    """Return a C function whose result must be signed, or unsigned. Others of its kind take both (measured)."""

    def run(api: Issuer, given: Given) -> None:
        if given["output_dtype"].signed != signed:
            wanted = I32 if signed else U32
            raise MachineError(given["name"], f"the result is {given['output_dtype']}", f"give {wanted}")
        function.run(api, given)

    return DeviceFunction(function.parameters, run)


ENDS, SIZES = (p.OUTPUT, p.INPUT, p.WEIGHT), (p.SHAPE, p.INPUT_STRIDE, OUTPUT_C)
TWO_TYPES = (p.OUTPUT_DTYPE, p.INPUT_DTYPE)
FLOAT = (*TWO_TYPES, p.HAS_BIAS, p.RESULT_ADD)
SYMMETRIC = (*TWO_TYPES, p.WEIGHT_DTYPE, p.BIAS_DTYPE, p.RSHIFT, p.HAS_BIAS, p.RESULT_RELU)
ASYMMETRIC = (*TWO_TYPES, p.WEIGHT_DTYPE, ZERO_DTYPE, p.RESULT_ADD)


def _float() -> Functions:
    """Return the convolutions of floats by C name."""
    plain = _conv("fp_conv2d", (*ENDS, p.BIAS, *SIZES, *WINDOW, *FLOAT))
    return {
        "fp_conv2d": plain,
        "fp_conv2d_long_instr": plain,
        "fp_conv2d_kernel_const": _conv("fp_conv2d", (p.OUTPUT, p.INPUT, p.BIAS, p.C, *SIZES, *WINDOW, *FLOAT)),
        "fp_conv2d_for_deconv2d": _conv("fp_conv2d", (*ENDS, p.BIAS, *SIZES, *TRANSPOSED, *FLOAT), rotated=True),
    }


def _integer() -> Functions:
    """Return the convolutions of integers by C name."""
    found: Functions = {}
    name = "int8_sym_quant_conv2d"
    for end, window in (("", WINDOW), ("_for_deconv2d", TRANSPOSED)):
        found[name + end] = _conv(name, (*ENDS, p.BIAS, *SIZES, *window, *SYMMETRIC), rotated=bool(end))
    name, tail = "int8_asym_quant_conv2d", (*SIZES, *WINDOW, *ASYMMETRIC)
    turned = (*SIZES, *TRANSPOSED, *ASYMMETRIC)
    found[name] = _conv(name, (*ENDS, p.ZERO, p.PAD, *tail))
    found[f"{name}_kernel_const"] = _conv(name, (p.OUTPUT, p.INPUT, p.C, p.ZERO, p.PAD, *tail))
    found[f"{name}_for_deconv2d"] = _conv(name, (*ENDS, p.ZERO, p.PAD, BETWEEN, *turned), rotated=True)
    by_channel = _conv(name, (*ENDS, ZERO_ADDR, PAD_ADDR, *tail))
    found["int8_asym_pc_quant_conv2d"] = _into(True, by_channel)
    by_channel = _conv(name, (*ENDS, ZERO_ADDR, PAD_INSERT_ADDR, *turned), rotated=True)
    found["int8_asym_pc_quant_conv2d_for_deconv2d"] = _into(False, by_channel)
    return found


def _depthwise(operation: str, *parameters: Parameter, rotated: bool = False) -> DeviceFunction:
    return _conv(operation, parameters, depthwise=True, rotated=rotated)


def _by_channel() -> Functions:
    """Return the depthwise convolutions by C name."""
    head, tail, name = (*ENDS, p.BIAS), (*SYMMETRIC, p.MODE), "int8_depthwise2d"
    real = "fp_depthwise2d"
    return {
        real: _depthwise(real, *head, p.SHAPE, *WINDOW, p.DTYPE, p.HAS_BIAS),
        "fp_ins_depthwise": _depthwise(real, *head, p.SHAPE, *INSERTING, p.DTYPE, p.HAS_BIAS),
        "fp_depthwise_for_deconv2d": _depthwise(
            *(real, *head, p.SHAPE, *TRANSPOSED, *TWO_TYPES, KERNEL_IS_CONST, p.HAS_BIAS), rotated=True
        ),
        name: _depthwise(name, *head, p.PAD, p.SHAPE, *WINDOW, *tail),
        f"{name}_kernel_const": _depthwise(name, p.OUTPUT, p.INPUT, p.BIAS, p.C, p.PAD, p.SHAPE, *WINDOW, *tail),
        "int8_pc_pad_depthwise2d": _depthwise(name, *head, PAD_ADDR, p.SHAPE, *WINDOW, *tail),
        **{
            f"int8_{kind}depthwise_for_deconv2d": _depthwise(
                *(name, *head, pad, p.SHAPE, *INTEGER_TRANSPOSED, *tail), rotated=True
            )
            for kind, pad in (("", p.PAD), ("pc_pad_", PAD_INSERT_ADDR))
        },
    }


def _pools() -> Functions:
    """Return the pools by C name."""
    head, byte = (p.OUTPUT, p.INPUT, p.SHAPE), CType.BYTE("scale")
    ends: dict[str, Source] = {"y": Place(p.OUTPUT, shape=windowed), "x": p.INPUT}
    largest = function((*head, *WINDOW, p.DTYPE, p.PAD), issue("max_pool2d", **ends, pad=p.PAD))
    mean, whole = issue("fp_avg_pool2d", **ends, scale=p.SCALE), issue("int8_avg_pool2d", **ends, scale=Place(byte, U8))
    return {
        "fp_max_pool2d": largest,
        "int8_max_pool2d": largest,
        "fp_avg_pool2d": function((*head, *WINDOW, p.DTYPE, p.SCALE), mean),
        "fp_ins_avg_pool2d": function((*head, *WINDOW, p.INSERT, p.DTYPE, p.SCALE), mean),
        "int8_avg_pool2d": function((*head, *WINDOW, *TWO_TYPES, byte, p.RSHIFT), whole),
        "int8_ins_avg_pool2d": function((*head, *INSERTING, *TWO_TYPES, byte, p.RSHIFT), whole),
    }


def _regions(
    operation: str, *types: Parameter, weights: bool = False, scale: Parameter | None = None
) -> DeviceFunction:
    """Return the function of a pool or depthwise convolution over regions (isa/operations/regions.py)."""

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
        if weights:
            operands["w"] = _weights(api, given, (c, 1, *kernel), given["weight_dtype"], True)
        if scale is not None:
            operands["scale"] = constant(given["scale"], dtype if dtype.is_float else U8)
        api.issue(operation, operands, {"y": y}, {"window": Window(kernel)})

    ends = (p.OUTPUT, p.INPUT, p.WEIGHT) if weights else (p.OUTPUT, p.INPUT)
    last = (EXCEPT_VAL,) if scale is None else (EXCEPT_VAL, scale)
    return DeviceFunction((*ends, ROI, p.SHAPE, OUTPUT_W, p.KERNEL, *types, *last), run)


#: Functions by name, without the prefix tpu_bdc_.
CONVOLUTIONS: Functions = {
    **_float(),
    **_integer(),
    **_by_channel(),
    **_pools(),
    **{f"{kind}_roi_max_pool2d": _regions("roi_max_pool2d", p.DTYPE) for kind in ("fp", "int8")},
    "fp_roi_avg_pool2d": _regions("fp_roi_avg_pool2d", p.DTYPE, scale=p.SCALE),
    "int8_roi_avg_pool2d": _regions("int8_roi_avg_pool2d", *TWO_TYPES, scale=p.SCALE),
    "int8_roi_depthwise2d": _regions("int8_roi_depthwise2d", *TWO_TYPES, p.WEIGHT_DTYPE, weights=True),
}
