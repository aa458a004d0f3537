"""Matrix products, convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Function, Given, Issuer, attributes
from tilewright.targets.bm1684x.capi.names import constant
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.operand import Operand
from tilewright.targets.bm1684x.layouts.spread import ConvWeights, Matrix
from tilewright.targets.bm1684x.layouts.tensor import Rows, Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I32, U8, DType
from tilewright.targets.bm1684x.values.window import Window

Operands = dict[str, Operand | Constant]
WINDOW = "kernel padding stride dilation"


def _by_rows(turns: Mapping[str, Any], integer: bool) -> Function:
    """Products whose rows go from lane to lane. Sizes are those of the stored factors."""
    swapped, turned = turns.get("both_transposed"), turns.get("right_transposed")
    types = "left_dtype right_dtype" if integer else "out_dtype dtype"
    adds = "" if turned else " result_add"
    parameters = f"output left right {'zero ' * integer}left_rows left_columns right_size {types}{adds}"

    def run(api: Issuer, given: Given) -> None:
        rows, depth, size = given["left_rows"], given["left_columns"], given["right_size"]
        sizes = {"L": (rows, depth), "R": (depth, size), "y": (rows, size)}
        if turned:
            sizes["R"] = (size, depth)
        if swapped:
            sizes = {"L": (rows, depth), "R": (size, rows), "y": (size, depth)}
        types: dict[str, DType]
        if integer:
            types = {"y": I32, "L": given["left_dtype"], "R": given["right_dtype"]}
        else:
            types = {"y": given["out_dtype"], "L": given["dtype"], "R": given["dtype"]}

        def factor(name: str, address: str) -> Rows:
            height, width = sizes[name]
            return Rows(api.local(given[address], Shape(1, height, 1, width), None, types[name]))

        y = factor("y", "output")
        operands: Operands = {"L": factor("L", "left"), "R": factor("R", "right")}
        if integer:
            operands["zero"] = constant(given["zero"], types["R"])
        if given.get("result_add"):
            operands["acc"] = y
        api.issue("int8_zp_mm" if integer else "fp_mm", operands, {"y": y}, turns)

    return Function(parameters, run)


def _spread(integer: bool, transposed: bool) -> Function:
    """Products whose columns are spread over lanes. `left` is stored as (left_rows, left_columns)."""
    types = "out_dtype left_dtype right_dtype bias_dtype lshift rshift " * integer
    sizes = "left_rows left_columns right_columns left_width right_width"
    parameters = f"output left right bias {sizes} {types}has_bias result_add{' result_relu' * integer}"

    def run(api: Issuer, given: Given) -> None:
        rows, depth, columns = given["left_rows"], given["left_columns"], given["right_columns"]
        if integer and given["result_add"]:
            reason = "what it adds to the old result, shifted left, no vector shows"
            raise MachineError(given["name"], reason, "add in a command of its own")

        def spread(address: str, height: int, length: int, width: str, dtype: DType) -> Matrix:
            channels = -(-length // given[width])
            return Matrix(api.local(given[address], Shape(height, channels, 1, given[width]), None, dtype), length)

        left = spread("left", rows, depth, "left_width", given.get("left_dtype", F32))
        inner, height = (rows, depth) if transposed else (depth, rows)
        y = spread("output", height, columns, "right_width", given.get("out_dtype", F32))
        right = spread("right", inner, columns, "right_width", given.get("right_dtype", F32))
        operands: Operands = {"L": left, "R": right}
        if given["has_bias"]:
            operands["bias"] = spread("bias", 1, columns, "right_width", given.get("bias_dtype", F32))
        if given["result_add"]:
            operands["acc"] = y
        said = {"left_transposed": transposed, **attributes(given)}
        api.issue("int8_mm" if integer else "fp_mm", operands, {"y": y}, said)

    return Function(parameters, run)


def _window(given: Given) -> Window:
    kernel, pads, stride, dilation = (given[name] for name in WINDOW.split())
    around = (pads.top, pads.bottom, pads.left, pads.right)
    return Window((kernel.h, kernel.w), around, (stride.h, stride.w), (dilation.h, dilation.w))


def _conv(operation: str, before: str, after: str, depthwise: bool = False) -> Function:
    """Convolutions; `before` stands between weights and shape, `after` behind the window."""
    shape = "shape" if depthwise else "shape input_stride output_c"

    def run(api: Issuer, given: Given) -> None:
        window, sizes = _window(given), given["shape"].shape
        dtype = given.get("input_dtype", given.get("dtype"))
        weight = given.get("weight_dtype", dtype)
        outputs = sizes.c if depthwise else given["output_c"]
        shape = Shape(sizes.n, outputs, *window.out(sizes.h, sizes.w))
        y = api.local(given["output"], shape, None, given.get("output_dtype", dtype))
        operands: Operands = {"x": api.local(given["input"], sizes, given.get("input_stride"), dtype)}
        taps = (window.kernel[0], window.kernel[1])
        if depthwise:
            operands["w"] = api.local(given["weight"], Shape(1, outputs, *taps), None, weight, layout.compact)
        else:
            operands["w"] = ConvWeights(LOCAL_BASE + given["weight"], (outputs, sizes.c, *taps), weight, api.config)
        if given.get("has_bias"):
            kind = given.get("bias_dtype", dtype if depthwise else F32)
            operands["bias"] = api.local(given["bias"], Shape(1, outputs, 1, 1), None, kind, layout.compact)
        if "zero" in given:
            operands["zero"] = constant(given["zero"], given["zero_dtype"])
        if given.get("result_add"):
            operands["acc"] = y
        said = {"window": window, **attributes(given)}
        if "pad" in given:
            said["pad"] = int(constant(given["pad"], dtype).value)
        api.issue(operation, operands, {"y": y}, said)

    return Function(f"output input weight {before} {shape} {WINDOW} {after}", run)


def _pool(operation: str, tail: str, value: str, dtype: DType | None = None) -> Function:
    """Pools; `value` is a constant operand: what is padded with, or the factor of each element."""

    def run(api: Issuer, given: Given) -> None:
        window, shape = _window(given), given["shape"].shape
        source = given.get("input_dtype", given.get("dtype"))
        x: Tensor = api.local(given["input"], shape, None, source)
        result = Shape(shape.n, shape.c, *window.out(shape.h, shape.w))
        y = api.local(given["output"], result, None, given.get("output_dtype", source))
        operands: Operands = {"x": x, value: constant(given[value], dtype or source)}
        api.issue(operation, operands, {"y": y}, {"window": window, **attributes(given)})

    return Function(f"output input shape {WINDOW} {tail}", run)


_SYMMETRIC = "output_dtype input_dtype weight_dtype bias_dtype rshift has_bias result_relu"
_ASYMMETRIC = "output_dtype input_dtype weight_dtype zero_dtype result_add"
_LIMIT = _pool("max_pool2d", "dtype pad", "pad")
#: By name without tpu_bdc_.
NEURAL: dict[str, Function] = {
    **{
        f"{name}_mm{which}": _by_rows(turns, name == "int8_zp")
        for name in ("fp", "int8_zp")
        for which, turns in (
            ("", {}),
            ("_R_trans", {"right_transposed": True}),
            ("_all_trans", {"both_transposed": True}),
        )
    },
    **{
        f"{name}_mm{which}": _spread(name == "int8", bool(which))
        for name in ("fp32", "int8")
        for which in ("", "_L_trans")
    },
    "fp_conv2d": _conv("fp_conv2d", "bias", "output_dtype input_dtype has_bias result_add"),
    "int8_sym_quant_conv2d": _conv("int8_sym_quant_conv2d", "bias", _SYMMETRIC),
    "int8_asym_quant_conv2d": _conv("int8_asym_quant_conv2d", "zero pad", _ASYMMETRIC),
    "fp_depthwise2d": _conv("fp_depthwise2d", "bias", "dtype has_bias", depthwise=True),
    "int8_depthwise2d": _conv("int8_depthwise2d", "bias pad", f"{_SYMMETRIC} mode", depthwise=True),
    "fp_max_pool2d": _LIMIT,
    "int8_max_pool2d": _LIMIT,
    "fp_avg_pool2d": _pool("fp_avg_pool2d", "dtype scale", "scale"),
    "int8_avg_pool2d": _pool("int8_avg_pool2d", "output_dtype input_dtype scale rshift", "scale", U8),
}
