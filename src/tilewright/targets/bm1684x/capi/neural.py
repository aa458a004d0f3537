"""Matrix products, convolutions and pools of floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.targets.bm1684x import layout
from tilewright.targets.bm1684x.arithmetic.window import Window
from tilewright.targets.bm1684x.capi.names import constant, dim2, dim4, padding_t
from tilewright.targets.bm1684x.command import Constant
from tilewright.targets.bm1684x.config import LOCAL_BASE
from tilewright.targets.bm1684x.dtypes import F32, DType
from tilewright.targets.bm1684x.layout import Shape
from tilewright.targets.bm1684x.tensor import Kernel, Operand, Rows

if TYPE_CHECKING:
    from tilewright.targets.bm1684x.capi.tpu import DeviceApi


def _fp_mm(
    api: DeviceApi,
    y: int,
    left: int,
    right: int,
    rows: int,
    depth: int,
    columns: int,
    out: DType,
    dtype: DType,
    result_add: bool,
) -> None:
    _product(api, y, (left, rows, depth), (right, depth, columns), (rows, columns), out, dtype, result_add, {})


def _fp_mm_r_trans(
    api: DeviceApi, y: int, left: int, right: int, rows: int, depth: int, columns: int, out: DType, dtype: DType
) -> None:
    transposed = {"right_transposed": True}
    _product(api, y, (left, rows, depth), (right, columns, depth), (rows, columns), out, dtype, False, transposed)


def _product(
    api: DeviceApi,
    y: int,
    left: tuple[int, int, int],
    right: tuple[int, int, int],
    shape: tuple[int, int],
    out: DType,
    dtype: DType,
    result_add: bool,
    attributes: Mapping[str, Any],
) -> None:
    def rows(address: int, height: int, width: int, kind: DType) -> Rows:
        return Rows(api.local(address, Shape(1, height, 1, width), None, kind))

    result = rows(y, *shape, out)
    operands: dict[str, Operand] = {"L": rows(*left, dtype), "R": rows(*right, dtype)}
    if result_add:
        operands["acc"] = result
    api.issue("fp_mm", operands, {"y": result}, attributes)


def _fp_conv2d(
    api: DeviceApi,
    output: int,
    x: int,
    weight: int,
    bias: int,
    shape: dim4,
    input_stride: dim4 | None,
    output_c: int,
    kernel: dim2,
    padding: padding_t,
    stride: dim2,
    dilation: dim2,
    out: DType,
    dtype: DType,
    has_bias: bool,
    result_add: bool,
) -> None:
    window = _window(kernel, padding, stride, dilation)
    weights = Kernel(LOCAL_BASE + weight, (output_c, shape.c, kernel.h, kernel.w), dtype, api.config)
    y = api.local(output, Shape(shape.n, output_c, *window.out(shape.h, shape.w)), None, out)
    operands: dict[str, Operand] = {"x": api.local(x, shape.shape, input_stride, dtype), "w": weights}
    if has_bias:
        operands["bias"] = api.local(bias, Shape(1, output_c, 1, 1), None, F32, layout.compact)
    if result_add:
        operands["acc"] = y
    api.issue("fp_conv2d", operands, {"y": y}, {"window": window})


def _pool(
    operation: str,
    value_name: str,
    api: DeviceApi,
    output: int,
    x: int,
    shape: dim4,
    kernel: dim2,
    padding: padding_t,
    stride: dim2,
    dilation: dim2,
    dtype: DType,
    value: Any,
) -> None:
    window = _window(kernel, padding, stride, dilation)
    y = api.local(output, Shape(shape.n, shape.c, *window.out(shape.h, shape.w)), None, dtype)
    operands: dict[str, Operand | Constant] = {
        "x": api.local(x, shape.shape, None, dtype),
        value_name: constant(value, dtype),
    }
    api.issue(operation, operands, {"y": y}, {"window": window})


def _window(kernel: dim2, padding: padding_t, stride: dim2, dilation: dim2) -> Window:
    pads = (padding.top, padding.bottom, padding.left, padding.right)
    return Window((kernel.h, kernel.w), pads, (stride.h, stride.w), (dilation.h, dilation.w))


#: By name without tpu_bdc_: called with the API, then the call's arguments.
NEURAL: dict[str, Callable[..., None]] = {
    "fp_mm": _fp_mm,
    "fp_mm_R_trans": _fp_mm_r_trans,
    "fp_conv2d": _fp_conv2d,
    "fp_max_pool2d": partial(_pool, "max_pool2d", "pad"),
    "fp_avg_pool2d": partial(_pool, "fp_avg_pool2d", "scale"),
}
