"""Lower ONNX nodes on float32 tensors.

The machine computes these nodes in the float type `config.precision`. The results differ from onnxruntime's float32
results, and `tilewright run` prints the differences. The machine's own float arithmetic is simulated exactly
(docs/bm1684x.md).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import OnnxOp
from tilewright.graph.ops.base import Window as GraphWindow
from tilewright.targets.bm1684x.compiler import layer as ir
from tilewright.targets.bm1684x.compiler.codes import joined
from tilewright.targets.bm1684x.compiler.linear import machine_window
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.samples import SampleFormat
from tilewright.targets.bm1684x.values.dtypes import F32, DType, Rounding, dtype_of
from tilewright.targets.bm1684x.values.floats import narrow
from tilewright.targets.bm1684x.values.window import Window

#: The supported attributes of convolutions and pools. A node with any other attribute is refused.
WINDOW = {"kernel_shape", "strides", "pads", "dilations", "group", "auto_pad", "ceil_mode", "count_include_pad"}
#: Attributes with a single supported value.
ONLY = {"auto_pad": "NOTSET"}


def real(site: Site, config: Config) -> ir.Layer:
    """Return the layer for an ONNX node on float32 tensors. Raises Refused if the node is not supported."""
    op = site.node.op
    assert isinstance(op, OnnxOp)
    if op.domain or op.op_type not in RULES:
        of = f" of {op.domain}" if op.domain else ""
        raise ir.Refused(f"the bm1684x compiler has no rule for {op.label}{of}")
    if config.precision == "host":
        reason = f"{op.label} of real numbers runs on the host with precision=host"
        raise ir.Refused(f"{reason}; precision=f16 (bf16, f32) computes it on the machine")
    data = [tensor for tensor in (*site.inputs, site.output) if tensor is not None and tensor.data is None]
    # ONNX tensors already have the axes n, c, h, w, so they need no transposition. n must be 1.
    for tensor in data:
        if tensor.dtype != "float32" or tensor.shape[:1] != (1,) or len(tensor.shape) not in (2, 4):
            only = "float32 of the shape [1, c] or [1, c, h, w] is"
            raise ir.Refused(f"tensor '{tensor.name}' of {tensor.dtype}{list(tensor.shape)} is not supported; {only}")
    attributes = {name: json.loads(value) for name, value in op.attributes}
    dtype = dtype_of(config.precision)
    return RULES[op.op_type](site, attributes, dtype, ir.Writer(1))


def convolution(site: Site, attributes: dict[str, Any], dtype: DType, write: ir.Writer) -> ir.Layer:
    """Return the layer for a Conv with group=1 or a depthwise Conv. Raises Refused if the node is not supported."""
    w = _constant(site, 1)
    groups = attributes.get("group", 1)
    if w.ndim != 4:
        raise ir.Refused(f"a Conv over {w.ndim - 2} spatial axes is not supported; a Conv over rows and columns is")
    if groups != 1 and not groups == w.shape[0] == site.input(0).shape[1]:
        channels = site.input(0).shape[1]
        only = f"group=1 and depthwise convolutions (group={channels})"
        raise ir.Refused(f"group={groups} is not supported; {only} are")
    window = _window(site, attributes, w.shape[2:])
    return _product(site, w.transpose(1, 0, 2, 3) if groups > 1 else w, window, dtype, write, groups > 1)


def product(site: Site, attributes: dict[str, Any], dtype: DType, write: ir.Writer) -> ir.Layer:
    """Return the layer for a matrix product: a convolution of one pixel. Raises Refused if it is not supported."""
    for name, only in (("transA", 0), ("alpha", 1.0), ("beta", 1.0)):
        if attributes.get(name, only) != only:
            raise ir.Refused(f"{name}={attributes[name]} is not supported; {name}={only} is")
    w = _constant(site, 1)
    x = site.input(0)
    if w.ndim != 2 or len(site.output.shape) != 2:
        reason = f"a product of the shapes {list(x.shape)} and {list(w.shape)} is not supported"
        raise ir.Refused(f"{reason}; one row times a constant matrix is")
    _, c, h, wide = (*x.shape, 1, 1)[:4]
    rows = w if attributes.get("transB") else w.T
    return _product(site, rows.reshape(len(rows), c, h, wide), Window((h, wide)), dtype, write)


def _product(site: Site, w: Array, window: Window, dtype: DType, write: ir.Writer, depthwise: bool = False) -> ir.Layer:
    channels = w.shape[1 if depthwise else 0]
    bias = _bias(site, channels)
    if depthwise:
        bias = narrow(bias, dtype)
        write.add("fp_depthwise2d", ir.Output(), x=ir.Input(0), w=ir.Weights(), bias=ir.Bias(dtype))
    else:
        write.add("fp_conv2d", ir.Output(), x=ir.Input(0, whole=True), w=ir.Weights(), bias=ir.Bias(F32))
    kernel = ir.WeightValues(narrow(w.astype(np.float32), dtype), dtype, depthwise)
    return _layer(site, write, dtype, window, kernel, bias)


def rectify(site: Site, attributes: dict[str, Any], dtype: DType, write: ir.Writer) -> ir.Layer:
    write.add("max", ir.Output(), a=ir.Input(0), b=Constant.of(0.0, dtype))
    return _layer(site, write, dtype)


def clip(site: Site, attributes: dict[str, Any], dtype: DType, write: ir.Writer) -> ir.Layer:
    low, high = (
        float(_constant(site, index)) if site.optional(index) is not None else attributes.get(key, bound)
        for index, key, bound in ((1, "min", -np.inf), (2, "max", np.inf))
    )
    above = write.add("max", dtype, a=ir.Input(0), b=Constant.of(low, dtype))
    write.add("min", ir.Output(), a=above, b=Constant.of(high, dtype))
    return _layer(site, write, dtype)


def add(site: Site, attributes: dict[str, Any], dtype: DType, write: ir.Writer) -> ir.Layer:
    """Return the layer for an Add. Raises Refused if operands differ in shape or are constant."""
    _check_computed(site, "two computed tensors")
    ir.same_shapes(site)
    write.add("fp_add", ir.Output(), a=ir.Input(0), b=ir.Input(1))
    return _layer(site, write, dtype, operands=2)


def join(site: Site, attributes: dict[str, Any], dtype: DType, write: ir.Writer) -> ir.Layer:
    """Return the layer for a Concat. Raises Refused for a constant operand, or for a join along the sample axis."""
    *shapes, result = (
        SampleFormat.real(tensor.shape, dtype) for tensor in (*site.inputs, site.output) if tensor is not None
    )
    _check_computed(site, "computed tensors")
    axis = attributes["axis"] % len(site.output.shape)
    if not axis:
        raise ir.Refused("axis=0 of Concat is not supported; channels, rows and columns are")
    return joined(site, tuple(shapes), result, axis)


def _check_computed(site: Site, only: str) -> None:
    for tensor in site.inputs:
        if tensor is not None and tensor.data is not None:
            what = f"the constant operand '{tensor.name}' of {site.node.op.label}"
            raise ir.Refused(f"{what} is not supported; {only} are")


def maximum(site: Site, attributes: dict[str, Any], dtype: DType, write: ir.Writer) -> ir.Layer:
    """Return the layer for a MaxPool. Raises Refused if the node is not supported."""
    if len(site.outputs) > 1:
        raise ir.Refused("the second output of MaxPool, its indices, is not supported")
    window = _window(site, attributes, attributes["kernel_shape"])
    write.add("max_pool2d", ir.Output(), x=ir.Input(0), pad=Constant.of(-np.inf, dtype))
    return _layer(site, write, dtype, window)


def mean(site: Site, attributes: dict[str, Any], dtype: DType, write: ir.Writer) -> ir.Layer:
    """Return the layer for an average without padding. Raises Refused if the node is not supported."""
    size = (site.input(0).shape[2], site.input(0).shape[3])
    window = _window(site, attributes, attributes["kernel_shape"]) if "kernel_shape" in attributes else Window(size)
    if any(window.pads):
        raise ir.Refused(f"pads={attributes.get('pads')} is not supported for AveragePool; pads=0 is")
    scale = Constant.of(1 / (window.kernel[0] * window.kernel[1]), F32)
    if dtype is F32:
        write.add("fp_avg_pool2d", ir.Output(), x=ir.Input(0), scale=scale)
    else:
        # The reference adds in float32. f16 and bf16 would round after every addition.
        wide = write.add("cast", F32, Rounding.HALF_TO_EVEN, size, x=ir.Input(0))
        total = write.add("fp_avg_pool2d", F32, x=wide, scale=scale)
        write.add("cast", ir.Output(), Rounding.HALF_TO_EVEN, x=total)
    return _layer(site, write, dtype, window)


def _window(site: Site, attributes: dict[str, Any], kernel: Any) -> Window:
    refused = [name for name in attributes if name not in WINDOW]
    refused += [name for name, only in ONLY.items() if attributes.get(name, only) != only]
    if refused:
        raise ir.Refused(f"{', '.join(f'{name}={attributes[name]}' for name in refused)} is not supported")
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    stride, dilation = (tuple(attributes.get(key, (1, 1))) for key in ("strides", "dilations"))
    graph_window = GraphWindow((kernel[0], kernel[1]), stride, (top, bottom, left, right), dilation)
    if attributes.get("ceil_mode"):
        graph_window = _rounded_up(graph_window, site)
    return machine_window(graph_window, SampleFormat.real(site.input(0).shape, F32))


def _rounded_up(window: GraphWindow, site: Site) -> GraphWindow:
    top, bottom, left, right = window.padding
    sizes, results = (tensor.shape[2:] for tensor in (site.input(0), site.output))
    # Pad until the last windows are complete. An average would count this padding, so only a maximum may have it.
    used = [(out - 1) * step + extent for out, step, extent in zip(results, window.stride, window.extent, strict=True)]
    down, across = (max(0, need - size - pad) for need, size, pad in zip(used, sizes, (top, left), strict=True))
    wider = replace(window, padding=(top, max(bottom, down), left, max(right, across)))
    if wider != window and site.node.op.label != "MaxPool":
        raise ir.Refused(f"ceil_mode=1 is not supported for {site.node.op.label} if its windows leave pixels over")
    return wider


def _bias(site: Site, channels: int) -> Array:
    bias = _constant(site, 2).reshape(-1) if site.optional(2) is not None else np.zeros(channels)
    if bias.size not in (1, channels):
        raise ir.Refused(f"a bias of {bias.size} values for {channels} channels is not supported")
    return np.broadcast_to(bias, channels).astype(np.float32)


def _constant(site: Site, index: int) -> Array:
    tensor = site.input(index)
    if tensor.data is None:
        raise ir.Refused(f"the operand '{tensor.name}' is computed; only a constant is supported there")
    return tensor.data


def _layer(
    site: Site,
    write: ir.Writer,
    dtype: DType,
    window: Window | None = None,
    kernel: ir.WeightValues | None = None,
    bias: Array | None = None,
    operands: int = 1,
) -> ir.Layer:
    tensors = [*(site.input(index) for index in range(operands)), site.output]
    *shapes, result = (SampleFormat.real(tensor.shape, dtype) for tensor in tensors)
    rows = window is None or (kernel is not None and not kernel.depthwise)
    constants = {"kernel": kernel, "bias": bias, "window": window}
    return write.layer(site, tuple(shapes), result, **constants, row_tiles=rows, macs=site.node.op.macs(site))


RULES: dict[str, Any] = {
    "Conv": convolution,
    "Gemm": product,
    "MatMul": product,
    "Relu": rectify,
    "Clip": clip,
    "Add": add,
    "Concat": join,
    "MaxPool": maximum,
    "AveragePool": mean,
    "GlobalAveragePool": mean,
}
