"""Convolutions, depthwise convolutions and fully connected layers as layers of the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected
from tilewright.graph.ops.base import Window as GraphWindow
from tilewright.graph.ops.linear import Linear
from tilewright.graph.rounding import Requant, Rounding
from tilewright.targets.bm1684x.compiler.layer import Bias, Input, Layer, Weights, WeightValues
from tilewright.targets.bm1684x.compiler.requant import requantise
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.compiler.writer import Refused, Writer
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import I8, I32
from tilewright.targets.bm1684x.values.window import Window

#: Pads and strides are fields of four bits, strides of operands of sixteen.
LARGEST_PAD = LARGEST_STRIDE = 15
LARGEST_PLANE = (1 << 16) - 1


def linear(site: Site, x: Stored, mode: Rounding) -> Layer:
    """A node of sums of products; x is how its input is stored. Raises Refused."""
    op, w = site.node.op, site.input(1)
    assert isinstance(op, Linear)
    if w.dtype != "int8" or w.quant is None or any(w.quant.zero_point) or w.data is None:
        zeros = f", zero point {w.quant.zero_point[0]}" if w.quant and any(w.quant.zero_point) else ""
        shown = f"{'constant' if w.data is not None else 'computed'} {w.dtype}{zeros}"
        raise Refused(f"weights of {shown} are not supported; constant int8 with zero point 0 are")
    result = Stored.of(site.output)
    if isinstance(op, FullyConnected) and result.h * result.w > 1:  # rows are pixels, however its input calls them
        x = replace(x, h=result.h, w=result.w) if x.h * x.w == result.h * result.w else x
    kernel, window = _kernel(op, w.data, x, result)
    depthwise = isinstance(op, DepthwiseConv2D)
    axis = 1 if depthwise else 0
    over = tuple(i for i in range(4) if i != axis)
    bias = -x.zero * kernel.sum(over, dtype=np.int64)
    if site.optional(2) is not None:
        bias = bias + site.constant(2)
    terms = kernel[0].size // (x.c if depthwise else 1)
    if np.abs(bias).max() + 255 * 128 * terms >= 1 << 31:
        raise Refused(f"sums of {terms} products with this bias may leave int32")
    write = Writer(result.c)
    padding: dict[str, Any] = {"window": window, "pad": x.zero}
    if depthwise:
        total = write.add("int8_depthwise2d", I32, x=Input(0), w=Weights(), bias=Bias(I32), right=0, **padding)
    else:
        product = write.add(
            "int8_asym_quant_conv2d", I32, x=Input(0, whole=True), w=Weights(), zero=Constant.of(0, I8), **padding
        )
        total = write.add("int_add", I32, a=product, b=write.channel(bias))
    to = Requant.of_product(site.input(0), w, site.output, op.activation, mode.delegated)
    requantise(write, total, to, op.rule(mode), result)
    return Layer(
        name=site.node.name,
        inputs=(site.node.inputs[0],),
        output=site.output.name,
        shapes=(x,),
        result=result,
        operations=tuple(write.operations),
        words=tuple(write.words),
        kernel=WeightValues(kernel, I8, depthwise),
        bias=bias.astype(np.int32) if depthwise else None,
        window=window,
        row_tiles=not depthwise,
        macs=op.macs(site),
    )


def _kernel(op: Linear, w: Array, x: Stored, result: Stored) -> tuple[Array, Window]:
    """Weights as (oc, ic, kh, kw), (1, c, kh, kw) of a depthwise convolution; and the window."""
    if isinstance(op, FullyConnected):
        rows = result.h * result.w
        h, wide = (x.h, x.w) if rows == 1 else (1, 1)
        if x.c * h * wide != w.shape[1] or x.h * x.w != rows * h * wide:
            raise Refused(f"rows of {w.shape[1]} elements are not supported: they are not the pixels of its input")
        return w.reshape(-1, h, wide, x.c).transpose(0, 3, 1, 2), Window((h, wide))
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    if isinstance(op, Conv2D) and w.shape[3] != x.c:
        raise Refused(grouped(x.c // w.shape[3], x.c))
    if isinstance(op, DepthwiseConv2D) and w.shape[3] != x.c:
        raise Refused(f"a depth multiplier of {w.shape[3] // x.c} is not supported; 1 is")
    return w.transpose(0, 3, 1, 2), machine_window(op.window, x)


def grouped(groups: int, channels: int) -> str:
    """The reason against a convolution in groups."""
    return f"group={groups} is not supported; group=1 and depthwise convolutions (group={channels}) are"


def machine_window(own: GraphWindow, x: Stored) -> Window:
    """A window of the graph, of stride 1 where it has one position only. Raises Refused."""
    top, bottom, left, right = own.padding
    spare = (x.h + top + bottom - own.extent[0], x.w + left + right - own.extent[1])
    down, across = (step if rest else 1 for step, rest in zip(own.stride, spare, strict=True))
    if max(own.padding) > LARGEST_PAD or max(down, across, *own.dilation) > LARGEST_STRIDE:
        sizes = {"padding": own.padding, "strides": (down, across), "dilations": own.dilation}
        name, value = next((name, value) for name, value in sizes.items() if max(value) > LARGEST_PAD)
        raise Refused(f"{name}={list(value)} is not supported; the largest is {LARGEST_PAD}")
    if top >= own.extent[0] or spare[0] // down * down - top >= x.h:  # tiles of such rows would have no input
        raise Refused(f"padding={list(own.padding)} is not supported: a window lies wholly in it")
    return Window(own.kernel, (top, bottom, left, right), (down, across), own.dilation)
