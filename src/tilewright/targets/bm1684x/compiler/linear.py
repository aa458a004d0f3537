"""Lower convolutions, fully connected layers, pools and means; requantise int32 sums to stored codes.

A mean is a depthwise convolution with all weights equal to 1, followed by a rescaling. Most functions add operations to
the Writer `write`, which collects the operations of one layer. The last operation writes the layer's result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.array import Array, ascending
from tilewright.graph.ir import Site
from tilewright.graph.ops import AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D, Mean
from tilewright.graph.ops.base import Window as GraphWindow
from tilewright.graph.ops.linear import Linear
from tilewright.graph.rounding import Requant, RequantRule, mean_factor, power_of_two, quantize_multiplier
from tilewright.graph.rounding import Rounding as Mode
from tilewright.graph.takes import Takes
from tilewright.targets.bm1684x.compiler import layer as ir
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.samples import SampleFormat
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, Rounding
from tilewright.targets.bm1684x.values.floats import shift_right
from tilewright.targets.bm1684x.values.window import Window

#: The largest padding, stride and dilation: their instruction fields have four bits.
LARGEST_PAD = LARGEST_STRIDE = 15
TAKES = Takes(("int8", "uint8"))
#: float32 holds all integers up to this number.
EXACT = 1 << 24
#: The number of bits of the factor for a mean. With this size, the factor times a sum stays below 2**62.
FACTOR_BITS = 30


def requantise(write: ir.Writer, total: ir.Ref, to: Requant, rule: RequantRule, form: SampleFormat) -> None:
    """Add the operations that write `clamp(round(total * to.real) + form.zero)` to the layer's result.

    Raises Refused if the machine cannot round exactly by `rule`.
    """
    if rule == "double":
        doubled(write, total, *quantize_multiplier(to.real), form.zero)
    elif rule == "pow2":
        write.scale(total, ir.Output(), power_of_two(to.real, "requantisation"), form.zero, Rounding.HALF_UP)
    elif rule == "float":
        real(write, total, to.real32, form)
    else:
        reason = f"the requantisation rule '{rule}' (docs/arithmetic.md) is not supported"
        raise ir.Refused(f"{reason}: the machine has no operations for it")
    clamp(write, form, to.low, to.high)


def doubled(write: ir.Writer, x: ir.Ref, q: Array, shift: Array, offset: int) -> None:
    """Rescale `x` by `q * 2**(shift - 31)` as gemmlowp does, add `offset`, and write the layer's result.

    The rescaling rounds after the multiplication, and again after the shift, with ties away from zero. Raises Refused
    if a shift is positive, because the result may not fit into int32.
    """
    q = np.atleast_1d(q)
    shift = np.atleast_1d(shift)
    if (shift > 0).any():
        raise ir.Refused("requantisation by a factor of 1 or more is not supported: it may overflow int32")
    high = write.high_product(x, q)
    write.scale(high, ir.Output(), shift, offset, Rounding.HALF_AWAY_FROM_ZERO)


def real(write: ir.Writer, x: ir.Ref, factor: Array, form: SampleFormat) -> None:
    """Write `half_even(f32(x) * factor) + form.zero` to the layer's result."""
    named = write.parameters(scale=(np.atleast_1d(factor), F32), offset=(0.0, F32))
    add_zero_point(write, form, "fp32_requant", x=x, **named)


def add_zero_point(write: ir.Writer, form: SampleFormat, operation: str, **operands: Any) -> None:
    """Add `operation` (rounding half to even), and then add the zero point of `form` unless it is 0."""
    if not form.zero:
        write.add(operation, ir.Output(), Rounding.HALF_TO_EVEN, **operands)
        return
    rounded = write.add(operation, I16, Rounding.HALF_TO_EVEN, **operands)
    write.add("int_add", ir.Output(), a=rounded, b=Constant.of(form.zero, I16), saturate=True)


def clamp(write: ir.Writer, form: SampleFormat, low: int, high: int) -> None:
    """Clamp the codes of the layer's result to `low`..`high`. A limit of the stored type needs no operation."""
    # Each bound makes the last operation write to a buffer, and adds an operation that clamps this buffer into the
    # layer's result.
    low, high = low + form.add, high + form.add
    clamps = [("max", low)] if low > form.dtype.low else []
    clamps += [("min", high)] if high < form.dtype.high else []
    for operation, bound in clamps:
        last = write.operations.pop()
        operands: dict[str, Any] = {**last.operands, **last.attributes}
        value = write.add(last.name, form.dtype, **operands)
        write.add(operation, ir.Output(), a=value, b=Constant.of(bound, form.dtype))


def linear(site: Site, x: SampleFormat, mode: Mode) -> ir.Layer:
    """Return the layer for a convolution or fully connected node. Raises Refused if it is not supported."""
    op = site.node.op
    w = site.input(1)
    assert isinstance(op, Linear)
    if reason := op.refusal(site, TAKES):
        raise ir.Refused(reason)
    assert w.data is not None
    result = SampleFormat.of(site.output)
    if isinstance(op, FullyConnected) and result.h * result.w > 1:  # each row of the input is one pixel
        x = replace(x, h=result.h, w=result.w) if x.h * x.w == result.h * result.w else x
    kernel, window = _kernel(op, w.data, x, result)
    depthwise = isinstance(op, DepthwiseConv2D)
    # The machine multiplies stored codes, which contain the zero point. The zero point adds a constant to every sum, so
    # the bias is reduced by this constant. Padding represents 0, so it has the value of the zero point.
    bias = -x.zero * kernel.sum((0, 2, 3) if depthwise else (1, 2, 3), dtype=np.int64)
    if site.optional(2) is not None:
        bias = bias + site.constant(2)
    terms = kernel[0].size // (x.c if depthwise else 1)
    # The product of a stored code and a weight is at most 255 * 128 in magnitude.
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
    """Add a depthwise convolution, and return its int32 sums: in each channel, window times kernel plus bias.

    `pad` is the value of the padding, and `size` is the size of the buffer for the sums (see Temp).
    """
    weights = ir.Weights()
    bias = ir.Bias(I32)
    return write.add("int8_depthwise2d", I32, size=size, x=ir.Input(0), w=weights, bias=bias, right=0, pad=pad)


def _kernel(op: Linear, w: Array, x: SampleFormat, result: SampleFormat) -> tuple[Array, Window]:
    # A fully connected layer becomes a convolution whose window is the whole image or one pixel.
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


def machine_window(window: GraphWindow, x: SampleFormat) -> Window:
    """Convert the window of a convolution or pool from the graph's form to the machine's form.

    If the window has a single position along an axis, the stride of this axis becomes 1. Raises Refused if a padding,
    stride or dilation is too large, or if a window lies wholly in the padding.
    """
    top, bottom, left, right = window.padding
    # If an axis has a single position, the stride does not affect the result, but a stride above 1 makes pools slower.
    spare = (x.h + top + bottom - window.extent[0], x.w + left + right - window.extent[1])
    down, across = (step if rest else 1 for step, rest in zip(window.stride, spare, strict=True))
    if max(window.padding) > LARGEST_PAD or max(down, across, *window.dilation) > LARGEST_STRIDE:
        sizes = {"padding": window.padding, "strides": (down, across), "dilations": window.dilation}
        name, value = next((name, value) for name, value in sizes.items() if max(value) > LARGEST_PAD)
        raise ir.Refused(f"{name}={list(value)} is not supported; the largest is {LARGEST_PAD}")
    if top >= window.extent[0] or spare[0] // down * down - top >= x.h:  # a tile of such windows would read no input
        raise ir.Refused(f"padding={list(window.padding)} is not supported: a window lies wholly in the padding")
    return Window(window.kernel, (top, bottom, left, right), (down, across), window.dilation)


def maximum(site: Site, x: SampleFormat, mode: Mode) -> ir.Layer:
    op = site.node.op
    assert isinstance(op, MaxPool2D)
    window = machine_window(op.window, x)
    write = ir.Writer(x.c)
    write.add("max_pool2d", ir.Output(), x=ir.Input(0), pad=Constant.of(x.dtype.low, x.dtype))
    _no_activation(op.activation)
    return _layer(site, x, write, window)


def average(site: Site, x: SampleFormat, mode: Mode) -> ir.Layer:
    """Return the layer for an average pool.

    In every rounding mode, ties of the mean round away from zero, as in TFLite. Raises Refused if the pool is not
    supported.
    """
    op = site.node.op
    assert isinstance(op, AveragePool2D)
    _no_activation(op.activation)
    counts = ascending(op.counts(site))
    if len(counts) > 1:
        reason = f"padding={list(op.window.padding)} is not supported for an average pool"
        raise ir.Refused(f"{reason}: windows at the border average fewer values than others")
    count = int(counts[0])
    write = ir.Writer(x.c)
    total, window, columns = _window_sums(write, x, machine_window(op.window, x), 0)
    factor, shift = _division(count, x)
    write.scale(total, ir.Output(), np.array(-shift), x.add, Rounding.HALF_AWAY_FROM_ZERO, factor)
    return _layer(site, x, write, window, -x.add * count // columns)


def mean(site: Site, x: SampleFormat, mode: Mode) -> ir.Layer:
    """Return the layer for a mean over rows and columns, rescaled. Raises Refused if the node is not supported."""
    op = site.node.op
    source = site.input(0)
    out = site.output
    assert isinstance(op, Mean)
    if len(source.shape) != 4 or {axis % 4 for axis in op.axes} != {1, 2}:
        raise ir.Refused(
            f"axes={list(op.axes)} of {list(source.shape)} is not supported; a mean over rows and columns is"
        )
    count = x.h * x.w
    result = SampleFormat.of(out)
    xnnpack = mode.elementwise == "xnnpack"  # XNNPACK adds both zero points, as one float32, before it rounds
    write = ir.Writer(x.c)
    zero = x.add if xnnpack else x.zero
    total, window, columns = _window_sums(write, x, Window((x.h, x.w)), zero)
    if xnnpack:
        scale = np.float32(source.scale) / np.float32(out.scale) * (np.float32(1) / np.float32(count))
        offset = np.float32(out.zero_point) - np.float32(count) * np.float32(source.zero_point) * scale
        named = write.parameters(scale=(scale, F32), offset=(float(offset), F32))
        code = write.add("fp32_requant", I16, Rounding.HALF_TO_EVEN, x=total, **named)
        shifted = write.add("int_add", I16, a=code, b=Constant.of(result.add, I16), saturate=True)
        write.add("cast", ir.Output(), Rounding.HALF_TO_EVEN, x=shifted)
    elif mode.elementwise == "ort":
        real(write, total, np.asarray(op.factor32(site, count)), result)
    elif mode.elementwise == "tflite":
        doubled(write, total, *op.folded(site, count), result.zero)
    else:
        factor, exponent = mean_factor(count)
        shift = power_of_two(source.scale / out.scale, "mean") - exponent
        write.scale(total, ir.Output(), shift, result.zero, Rounding.HALF_UP, factor)
    return _layer(site, x, write, window, -zero * count // columns)


def _window_sums(write: ir.Writer, x: SampleFormat, window: Window, pad: int) -> tuple[ir.Ref, Window, int]:
    """Add operations that sum each window. Return the sums, the window, and the number of biases in each sum."""
    h, w = window.kernel
    # A command takes the same time for 64 pixels as for one. Over a whole image, two commands are faster: the first
    # sums each column (h taps), and the second adds the column sums (w taps), plus two casts. The second command is a
    # float32 average with the scale 1, which is exact for sums below 2**24. The bias of the first command is added once
    # per column.
    whole = window == Window((x.h, x.w))
    if not whole or h * w <= h + w + 2 or 255 * h * w >= EXACT:
        return window_sums(write, pad), window, 1
    columns = window_sums(write, pad, (1, w))
    real = write.add("cast", F32, Rounding.HALF_TO_EVEN, (1, w), x=columns)
    unit = Constant.of(1.0, F32)
    total = write.add("fp_avg_pool2d", F32, x=real, scale=unit, window=Window((1, w)))
    return write.add("cast", I32, Rounding.HALF_TO_EVEN, x=total), Window((h, 1)), w


def _division(count: int, x: SampleFormat) -> tuple[int, int]:
    # Returns (m, s) such that `round(sum * m / 2**s)` is the mean of `count` codes, with ties away from zero.
    # Dividing by a power of two needs only a shift.
    if count & (count - 1) == 0:
        return 1, count.bit_length() - 1
    shift = FACTOR_BITS + count.bit_length() - 1
    factor = ((1 << shift) + count // 2) // count
    # TFLite divides integers exactly. The factor here is rounded, so it might round a tie in the wrong direction.
    sums = np.arange((x.dtype.low - x.add) * count, (x.dtype.high - x.add) * count + 1, dtype=np.int64)
    expected = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
    if not np.array_equal(shift_right(sums * factor, shift, Rounding.HALF_AWAY_FROM_ZERO), expected):
        raise ir.Refused(f"a mean of {count} values is not supported: no integer factor divides its sums exactly")
    return factor, shift


def _no_activation(activation: str) -> None:
    if activation != "none":
        raise ir.Refused(f"activation={activation} of a pool is not supported")


def _layer(site: Site, x: SampleFormat, write: ir.Writer, window: Window, bias: int | None = None) -> ir.Layer:
    # With a bias, the layer sums windows: all weights are 1, and the bias is added to each sum.
    ones: Array = np.ones((1, x.c, *window.kernel), np.int8)
    kernel = None if bias is None else ir.WeightValues(ones, I8, True)
    biases = None if bias is None else np.full(x.c, bias, np.int32)
    shapes = (x,), SampleFormat.of(site.output)
    return write.layer(site, *shapes, kernel=kernel, bias=biases, window=window, row_tiles=False)
