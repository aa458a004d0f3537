"""Functions of the device API: convolutions, transposed convolutions, depthwise convolutions and pools."""

from __future__ import annotations

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import WINDOW, Function, Given, Issuer, attributes, function
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Operand, Shape
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, U16, U32, DType
from tilewright.targets.bm1684x.values.window import Window

#: The parameters of the window of a transposed convolution, and of the depthwise ones of integers.
TRANSPOSED, INTEGER_TRANSPOSED = "kernel insert padding dilation", "kernel padding insert dilation"


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


def _conv(operation: str, parameters: str, depthwise: bool = False, rotated: bool = False) -> Function:
    """Return the C function of a convolution. With `rotated`, its weights are rotated by 180 degrees."""

    def run(api: Issuer, given: Given) -> None:
        said, sizes = attributes(given), given["shape"].shape
        window: Window = said["window"]
        dtype = given.get("input_dtype", given.get("dtype"))
        weight = given.get("weight_dtype", dtype)
        outputs = sizes.c if depthwise else given["output_c"]
        shape = Shape(sizes.n, outputs, *window.out(sizes.h, sizes.w))
        y = api.local(given["output"], shape, None, given.get("output_dtype", dtype))
        operands: dict[str, Operand | Constant] = {
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

    return Function(parameters, run)


def _into(signed: bool, function: Function) -> Function:
    """Return a C function whose result must be signed, or unsigned. Others of its kind take both (measured)."""

    def run(api: Issuer, given: Given) -> None:
        if given["output_dtype"].signed != signed:
            raise MachineError(
                given["name"], f"the result is {given['output_dtype']}", f"give {I32 if signed else U32}"
            )
        function.run(api, given)

    return Function(function.parameters, run)


_ENDS, _SIZES = "output input weight", "shape input_stride output_c"
_FLOAT = "output_dtype input_dtype has_bias result_add"
_SYMMETRIC = "output_dtype input_dtype weight_dtype bias_dtype rshift has_bias result_relu"
_ASYMMETRIC = "output_dtype input_dtype weight_dtype zero_dtype result_add"
_SYM, _ASYM, _DW = "int8_sym_quant_conv2d", "int8_asym_quant_conv2d", "int8_depthwise2d"
_CONVOLUTIONS: dict[str, Function] = {
    **dict.fromkeys(
        ("fp_conv2d", "fp_conv2d_long_instr"), _conv("fp_conv2d", f"{_ENDS} bias {_SIZES} {WINDOW} {_FLOAT}")
    ),
    "fp_conv2d_kernel_const": _conv("fp_conv2d", f"output input bias C {_SIZES} {WINDOW} {_FLOAT}"),
    "fp_conv2d_for_deconv2d": _conv("fp_conv2d", f"{_ENDS} bias {_SIZES} {TRANSPOSED} {_FLOAT}", rotated=True),
    _SYM: _conv(_SYM, f"{_ENDS} bias {_SIZES} {WINDOW} {_SYMMETRIC}"),
    f"{_SYM}_for_deconv2d": _conv(_SYM, f"{_ENDS} bias {_SIZES} {TRANSPOSED} {_SYMMETRIC}", rotated=True),
    _ASYM: _conv(_ASYM, f"{_ENDS} zero pad {_SIZES} {WINDOW} {_ASYMMETRIC}"),
    f"{_ASYM}_kernel_const": _conv(_ASYM, f"output input C zero pad {_SIZES} {WINDOW} {_ASYMMETRIC}"),
    f"{_ASYM}_for_deconv2d": _conv(
        _ASYM, f"{_ENDS} zero pad between {_SIZES} {TRANSPOSED} {_ASYMMETRIC}", rotated=True
    ),
    "int8_asym_pc_quant_conv2d": _into(
        True, _conv(_ASYM, f"{_ENDS} zero_addr pad_addr {_SIZES} {WINDOW} {_ASYMMETRIC}")
    ),
    "int8_asym_pc_quant_conv2d_for_deconv2d": _into(
        False, _conv(_ASYM, f"{_ENDS} zero_addr pad_insert_addr {_SIZES} {TRANSPOSED} {_ASYMMETRIC}", rotated=True)
    ),
}
_BY_CHANNEL: dict[str, Function] = {
    "fp_depthwise2d": _conv("fp_depthwise2d", f"{_ENDS} bias shape {WINDOW} dtype has_bias", True),
    "fp_ins_depthwise": _conv(
        "fp_depthwise2d", f"{_ENDS} bias shape kernel padding stride insert dilation dtype has_bias", True
    ),
    "fp_depthwise_for_deconv2d": _conv(
        *("fp_depthwise2d", f"{_ENDS} bias shape {TRANSPOSED} output_dtype input_dtype kernel_is_const has_bias"),
        depthwise=True,
        rotated=True,
    ),
    _DW: _conv(_DW, f"{_ENDS} bias pad shape {WINDOW} {_SYMMETRIC} mode", True),
    f"{_DW}_kernel_const": _conv(_DW, f"output input bias C pad shape {WINDOW} {_SYMMETRIC} mode", True),
    "int8_pc_pad_depthwise2d": _conv(_DW, f"{_ENDS} bias pad_addr shape {WINDOW} {_SYMMETRIC} mode", True),
    **{
        f"int8_{kind}depthwise_for_deconv2d": _conv(
            _DW, f"{_ENDS} bias {pad} shape {INTEGER_TRANSPOSED} {_SYMMETRIC} mode", True, True
        )
        for kind, pad in (("", "pad"), ("pc_pad_", "pad_insert_addr"))
    },
}
_POOL, _PLACES = "output input shape", "y=output/window@L x=input@L"
_INSERTING = "kernel padding stride insert dilation"
_LIMIT = function(f"{_POOL} {WINDOW} dtype pad", "max_pool2d", f"{_PLACES} pad=pad")
_POOLS: dict[str, Function] = {
    "fp_max_pool2d": _LIMIT,
    "int8_max_pool2d": _LIMIT,
    "fp_avg_pool2d": function(f"{_POOL} {WINDOW} dtype scale", "fp_avg_pool2d", f"{_PLACES} scale=scale"),
    "fp_ins_avg_pool2d": function(f"{_POOL} {WINDOW} insert dtype scale", "fp_avg_pool2d", f"{_PLACES} scale=scale"),
    **{
        f"int8_{kind}avg_pool2d": function(
            f"{_POOL} {window} output_dtype input_dtype scale rshift", "int8_avg_pool2d", f"{_PLACES} scale=scale:u8"
        )
        for kind, window in (("", WINDOW), ("ins_", _INSERTING))
    },
}


def _regions(operation: str, typed: str, weights: bool = False, scaled: bool = False) -> Function:
    """Return the C function of a pool or depthwise convolution over regions (isa/operations/regions.py)."""
    ends, tail = f"output input {'weight ' * weights}roi", "except_val" + " scale" * scaled

    def run(api: Issuer, given: Given) -> None:
        n, c, _, _ = shape = given["shape"].shape
        columns, kernel = given["output_w"], (given["kernel"].h, given["kernel"].w)
        dtype = given.get("input_dtype", given.get("dtype"))
        y = api.local(given["output"], Shape(n, c, 1, columns), None, given.get("output_dtype", dtype))
        operands: dict[str, Operand | Constant] = {
            "x": api.local(given["input"], shape, None, dtype),
            "rois": api.local(given["roi"], Shape(1, columns, 1, 4), None, U16, layout.compact),
            "pad": constant(given["except_val"], dtype),
        }
        if weights:
            operands["w"] = _weights(api, given, (c, 1, *kernel), given["weight_dtype"], True)
        if scaled:
            operands["scale"] = constant(given["scale"], dtype if dtype.is_float else U8)
        api.issue(operation, operands, {"y": y}, {"window": Window(kernel)})

    return Function(f"{ends} shape output_w kernel {typed} {tail}", run)


_TWO_TYPES = "output_dtype input_dtype"
_REGIONS: dict[str, Function] = {
    **{f"{kind}_roi_max_pool2d": _regions("roi_max_pool2d", "dtype") for kind in ("fp", "int8")},
    "fp_roi_avg_pool2d": _regions("fp_roi_avg_pool2d", "dtype", scaled=True),
    "int8_roi_avg_pool2d": _regions("int8_roi_avg_pool2d", _TWO_TYPES, scaled=True),
    "int8_roi_depthwise2d": _regions("int8_roi_depthwise2d", f"{_TWO_TYPES} weight_dtype", weights=True),
}
#: Functions by name, without the prefix tpu_bdc_.
CONVOLUTIONS: dict[str, Function] = {**_CONVOLUTIONS, **_BY_CHANNEL, **_POOLS, **_REGIONS}
