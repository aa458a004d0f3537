"""Lower convolutions, depthwise convolutions and fully connected layers; requantise int32 sums to stored codes.

Most functions add operations to `write`, which collects the operations of one layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected
from tilewright.graph.ops.base import Window as GraphWindow
from tilewright.graph.ops.linear import NO_RESIDUAL, Linear
from tilewright.graph.rounding import Requant, RequantRule, power_of_two, quantize_multiplier
from tilewright.graph.rounding import Rounding as Mode
from tilewright.targets.bm1684x.compiler import layer as ir
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.stored import Stored
from tilewright.targets.bm1684x.values.dtypes import I8, I16, I32, Rounding
from tilewright.targets.bm1684x.values.window import Window

#: The largest padding, stride and dilation: their instruction fields have four bits.
LARGEST_PAD = LARGEST_STRIDE = 15


def requantise(write: ir.Writer, total: ir.Ref, to: Requant, rule: RequantRule, stored: Stored) -> None:
    """Add the operations that write `clamp(round(total * to.real) + stored.zero)` to the layer's result.

    `rule` says how to round. Raises Refused if the machine cannot compute this exactly.
    """
    clamps, into = bounds(stored, to.low, to.high)
    if rule == "double":
        q, shift = quantize_multiplier(to.real)
        result = doubled(write, total, q, shift, stored.zero, into)
    elif rule == "pow2":
        result = write.scale(total, into, power_of_two(to.real, "requantisation"), stored.zero, Rounding.HALF_UP)
    elif rule == "float":
        result = real(write, total, to.real32, stored, into)
    else:
        reason = f"the requantisation rule '{rule}' (docs/arithmetic.md) is not supported"
        raise ir.Refused(f"{reason}: the machine has no operations for it")
    clamp(write, result, clamps, stored)


def doubled(write: ir.Writer, x: ir.Ref, q: Array, shift: Array, offset: int, into: ir.Into) -> ir.Ref:
    """Add gemmlowp's rescaling of `x` by `q * 2**(shift - 31)`, then the addition of `offset`. Return the result.

    The rescaling rounds twice: after the multiplication, and after the shift, where ties go away from zero. Raises
    Refused if a shift is positive, because the result may not fit into int32.
    """
    q, shift = np.atleast_1d(q), np.atleast_1d(shift)
    if (shift > 0).any():
        raise ir.Refused("requantisation by a factor of 1 or more is not supported: it may overflow int32")
    high = write.high_product(x, q)
    return write.scale(high, into, shift, offset, Rounding.HALF_AWAY_FROM_ZERO)


def real(write: ir.Writer, x: ir.Ref, factor: Array, stored: Stored, into: ir.Into) -> ir.Ref:
    """Add the operations `half_even(f32(x) * factor) + stored.zero`, and return their result."""
    return add_zero_point(write, lambda to: write.scale_real(x, to, np.atleast_1d(factor)), stored, into)


def add_zero_point(write: ir.Writer, rounded: Callable[[ir.Into], ir.Ref], stored: Stored, into: ir.Into) -> ir.Ref:
    """Add an operation that rounds to integers, then the addition of the zero point of `stored`. Return the result.

    `rounded(target)` adds the first operation, which writes to `target`. A zero point of 0 is not added.
    """
    if not stored.zero:
        return rounded(into)
    return write.add("int_add", into, a=rounded(I16), b=Constant.of(stored.zero, I16), saturate=True)


def bounds(stored: Stored, low: int, high: int) -> tuple[list[tuple[str, int]], ir.Into]:
    """Return the (operation, bound) pairs with which `clamp` keeps codes in `low`..`high`, and where to put its input.

    The input of `clamp` is the result of the operation before it. A bound that the stored type enforces is left out.
    """
    low, high = low + stored.add, high + stored.add
    clamps = [("max", low)] if low > stored.dtype.low else []
    clamps += [("min", high)] if high < stored.dtype.high else []
    return clamps, stored.dtype if clamps else ir.Output()


def clamp(write: ir.Writer, value: ir.Ref, clamps: list[tuple[str, int]], stored: Stored) -> None:
    """Add the operations `clamps` (from `bounds`), which clamp `value`. The last one writes the layer's result."""
    for number, (operation, bound) in enumerate(clamps, 1):
        result: ir.Into = ir.Output() if number == len(clamps) else stored.dtype
        value = write.add(operation, result, a=value, b=Constant.of(bound, stored.dtype))


def linear(site: Site, x: Stored, mode: Mode) -> ir.Layer:
    """Return the layer that a convolution or fully connected node becomes. `x` says how its input is stored.

    Raises Refused if the node is not supported.
    """
    op, w = site.node.op, site.input(1)
    assert isinstance(op, Linear)
    if op.residual(site):
        raise ir.Refused(NO_RESIDUAL)
    if w.dtype != "int8" or w.quant is None or any(w.quant.zero_point) or w.data is None:
        zeros = f", zero point {w.quant.zero_point[0]}" if w.quant and any(w.quant.zero_point) else ""
        shown = f"{'constant' if w.data is not None else 'computed'} {w.dtype}{zeros}"
        raise ir.Refused(f"weights of {shown} are not supported; constant int8 with zero point 0 are")
    result = Stored.of(site.output)
    if isinstance(op, FullyConnected) and result.h * result.w > 1:  # each row is a pixel, whatever axes the input has
        x = replace(x, h=result.h, w=result.w) if x.h * x.w == result.h * result.w else x
    kernel, window = _kernel(op, w.data, x, result)
    depthwise = isinstance(op, DepthwiseConv2D)
    bias = -x.zero * kernel.sum((0, 2, 3) if depthwise else (1, 2, 3), dtype=np.int64)
    if site.optional(2) is not None:
        bias = bias + site.constant(2)
    terms = kernel[0].size // (x.c if depthwise else 1)
    if np.abs(bias).max() + 255 * 128 * terms >= 1 << 31:
        raise ir.Refused(f"sums of {terms} products plus this bias may overflow int32")
    write = ir.Writer(result.c)
    if depthwise:
        total = window_sums(write, x.zero)
    else:
        none = Constant.of(0, I8)
        product = write.add("int8_asym_quant_conv2d", I32, x=ir.Input(0, True), w=ir.Weights(), zero=none, pad=x.zero)
        total = write.add("int_add", I32, a=product, b=write.channel(bias))
    to = Requant.of_product(site.input(0), w, site.output, op.activation, mode.delegated)
    requantise(write, total, to, op.rule(mode), result)
    constants = {"kernel": ir.WeightValues(kernel, I8, depthwise), "bias": bias.astype(np.int32) if depthwise else None}
    return write.layer(site, (x,), result, **constants, window=window, row_tiles=not depthwise, macs=op.macs(site))


def window_sums(write: ir.Writer, pad: int, into: ir.Into = I32) -> ir.Ref:
    """Add a depthwise convolution: in each channel, window times kernel plus bias. Return its result, int32 sums.

    `pad` is the value of the padding.
    """
    return write.add("int8_depthwise2d", into, x=ir.Input(0), w=ir.Weights(), bias=ir.Bias(I32), right=0, pad=pad)


def _kernel(op: Linear, w: Array, x: Stored, result: Stored) -> tuple[Array, Window]:
    """Return the weights as (oc, ic, kh, kw), or (1, c, kh, kw) if depthwise, and the window in the machine's form."""
    if isinstance(op, FullyConnected):
        rows = result.h * result.w
        h, wide = (x.h, x.w) if rows == 1 else (1, 1)
        if x.c * h * wide != w.shape[1] or x.h * x.w != rows * h * wide:
            raise ir.Refused(f"weight rows of {w.shape[1]} values are not supported: they cover no whole pixels")
        return w.reshape(-1, h, wide, x.c).transpose(0, 3, 1, 2), Window((h, wide))
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    if isinstance(op, Conv2D) and w.shape[3] != x.c:
        raise ir.Refused(grouped(x.c // w.shape[3], x.c))
    if isinstance(op, DepthwiseConv2D) and w.shape[3] != x.c:
        raise ir.Refused(f"a depth multiplier of {w.shape[3] // x.c} is not supported; 1 is")
    return w.transpose(0, 3, 1, 2), machine_window(op.window, x)


def grouped(groups: int, channels: int) -> str:
    """Return the message that refuses a convolution with `groups` groups. `channels` is its number of channels."""
    return f"group={groups} is not supported; group=1 and depthwise convolutions (group={channels}) are"


def machine_window(own: GraphWindow, x: Stored) -> Window:
    """Return the machine's form of the window `own` of a convolution or pool in the graph.

    Along an axis on which the window has a single position, the stride becomes 1. Raises Refused if a padding, stride
    or dilation is too large, or if a window lies wholly in the padding.
    """
    top, bottom, left, right = own.padding
    spare = (x.h + top + bottom - own.extent[0], x.w + left + right - own.extent[1])
    down, across = (step if rest else 1 for step, rest in zip(own.stride, spare, strict=True))
    if max(own.padding) > LARGEST_PAD or max(down, across, *own.dilation) > LARGEST_STRIDE:
        sizes = {"padding": own.padding, "strides": (down, across), "dilations": own.dilation}
        name, value = next((name, value) for name, value in sizes.items() if max(value) > LARGEST_PAD)
        raise ir.Refused(f"{name}={list(value)} is not supported; the largest is {LARGEST_PAD}")
    if top >= own.extent[0] or spare[0] // down * down - top >= x.h:  # a tile of that row would read no input
        raise ir.Refused(f"padding={list(own.padding)} is not supported: a window lies wholly in the padding")
    return Window(own.kernel, (top, bottom, left, right), (down, across), own.dilation)
