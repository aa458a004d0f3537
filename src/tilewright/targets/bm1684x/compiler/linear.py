"""Lower convolutions, depthwise convolutions and fully connected layers; requantise int32 sums to stored codes.

Most functions add operations to `write`, which collects the operations of one layer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected
from tilewright.graph.ops.base import Window as GraphWindow
from tilewright.graph.ops.linear import Linear
from tilewright.graph.rounding import Requant, RequantRule, power_of_two, quantize_multiplier
from tilewright.graph.rounding import Rounding as Mode
from tilewright.graph.takes import Takes
from tilewright.targets.bm1684x.compiler import layer as ir
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.stored import Stored
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, Rounding
from tilewright.targets.bm1684x.values.window import Window

#: The largest padding, stride and dilation: their instruction fields have four bits.
LARGEST_PAD = LARGEST_STRIDE = 15
TAKES = Takes(("int8", "uint8"))


def requantise(write: ir.Writer, total: ir.Ref, to: Requant, rule: RequantRule, stored: Stored) -> None:
    """Add the operations that write `clamp(round(total * to.real) + stored.zero)` to the layer's result.

    `rule` says how to round. Raises Refused if the machine cannot compute this exactly.
    """
    if rule == "double":
        doubled(write, total, *quantize_multiplier(to.real), stored.zero)
    elif rule == "pow2":
        write.scale(total, ir.Output(), power_of_two(to.real, "requantisation"), stored.zero, Rounding.HALF_UP)
    elif rule == "float":
        real(write, total, to.real32, stored)
    else:
        reason = f"the requantisation rule '{rule}' (docs/arithmetic.md) is not supported"
        raise ir.Refused(f"{reason}: the machine has no operations for it")
    clamp(write, stored, to.low, to.high)


def doubled(write: ir.Writer, x: ir.Ref, q: Array, shift: Array, offset: int) -> None:
    """Write gemmlowp's rescaling of `x` by `q * 2**(shift - 31)`, plus `offset`, to the layer's result.

    The rescaling rounds twice: after the multiplication, and after the shift, where ties go away from zero. Raises
    Refused if a shift is positive, because the result may not fit into int32.
    """
    q, shift = np.atleast_1d(q), np.atleast_1d(shift)
    if (shift > 0).any():
        raise ir.Refused("requantisation by a factor of 1 or more is not supported: it may overflow int32")
    high = write.high_product(x, q)
    write.scale(high, ir.Output(), shift, offset, Rounding.HALF_AWAY_FROM_ZERO)


def real(write: ir.Writer, x: ir.Ref, factor: Array, stored: Stored) -> None:
    """Write `half_even(f32(x) * factor) + stored.zero` to the layer's result."""
    named = write.parameters(scale=(np.atleast_1d(factor), F32), offset=(0.0, F32))
    add_zero_point(write, stored, "fp32_requant", x=x, **named)


def add_zero_point(write: ir.Writer, stored: Stored, operation: str, **operands: ir.Ref) -> None:
    """Write the result of an operation that rounds half to even, plus the zero point of `stored`, as the layer's result.

    A zero point of 0 is not added.
    """
    if not stored.zero:
        write.add(operation, ir.Output(), Rounding.HALF_TO_EVEN, **operands)
        return
    rounded = write.add(operation, I16, Rounding.HALF_TO_EVEN, **operands)
    write.add("int_add", ir.Output(), a=rounded, b=Constant.of(stored.zero, I16), saturate=True)


def clamp(write: ir.Writer, stored: Stored, low: int, high: int) -> None:
    """Keep the codes that the last operation writes to the layer's result in `low`..`high`.

    A bound that the stored type enforces costs nothing.
    """
    low, high = low + stored.add, high + stored.add
    clamps = [("max", low)] if low > stored.dtype.low else []
    clamps += [("min", high)] if high < stored.dtype.high else []
    for operation, bound in clamps:
        last = write.operations.pop()
        value = write.add(last.operation, stored.dtype, **last.operands, **last.attributes)
        write.add(operation, ir.Output(), a=value, b=Constant.of(bound, stored.dtype))


def linear(site: Site, x: Stored, mode: Mode) -> ir.Layer:
    """Return the layer that a convolution or fully connected node becomes. `x` says how its input is stored.

    Raises Refused if the node is not supported.
    """
    op, w = site.node.op, site.input(1)
    assert isinstance(op, Linear)
    if reason := op.refusal(site, TAKES):
        raise ir.Refused(reason)
    assert w.data is not None
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


def window_sums(write: ir.Writer, pad: int, size: tuple[int, int] | None = None) -> ir.Ref:
    """Add a depthwise convolution: in each channel, window times kernel plus bias. Return its int32 sums.

    `pad` is the value of the padding, `size` that of the buffer for the sums (see Temp).
    """
    operands = {"x": ir.Input(0), "w": ir.Weights(), "bias": ir.Bias(I32)}
    return write.add("int8_depthwise2d", I32, size=size, **operands, right=0, pad=pad)


def _kernel(op: Linear, w: Array, x: Stored, result: Stored) -> tuple[Array, Window]:
    """Return the weights as (oc, ic, kh, kw), or (1, c, kh, kw) if depthwise, and the window in the machine's form."""
    if isinstance(op, FullyConnected):
        rows = result.h * result.w
        h, wide = (x.h, x.w) if rows == 1 else (1, 1)
        if x.c * h * wide != w.shape[1] or x.h * x.w != rows * h * wide:
            raise ir.Refused(f"weight rows of {w.shape[1]} values are not supported: they cover no whole pixels")
        return w.reshape(-1, h, wide, x.c).transpose(0, 3, 1, 2), Window((h, wide))
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    if isinstance(op, DepthwiseConv2D) and w.shape[3] != x.c:
        raise ir.Refused(f"a depth multiplier of {w.shape[3] // x.c} is not supported; 1 is")
    return w.transpose(0, 3, 1, 2), machine_window(op.window, x)


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
