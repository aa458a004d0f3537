"""Lower nodes without weights: sums of two tensors, pools and means.

onnxruntime adds with fused multiply-adds, which round once. The machine has no fused multiply-add, so the compiler uses
separate operations instead, and tests them on every pair of codes. A mean is a depthwise convolution with weights of
one, whose sums are rescaled.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tilewright.array import Array, ascending
from tilewright.graph.ir import Site
from tilewright.graph.ops import Add, AveragePool2D, MaxPool2D, Mean
from tilewright.graph.rounding import Rounding as Mode
from tilewright.graph.rounding import clamp_range, mean_factor, power_of_two, quantize_multiplier
from tilewright.targets.bm1684x.compiler import layer as ir
from tilewright.targets.bm1684x.compiler import linear
from tilewright.targets.bm1684x.compiler.codes import every_code, neighbours
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.layouts.stored import Stored
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, Rounding
from tilewright.targets.bm1684x.values.floats import shift_right
from tilewright.targets.bm1684x.values.window import Window

#: Left shift of the operands in TFLite's addition, in bits.
EXTRA_BITS = 20
#: float32 holds all integers up to this number.
EXACT = 1 << 24
#: Bits of the factor of a mean. The products with the sums stay below 2**62.
FACTOR_BITS = 30


def add(site: Site, shapes: tuple[Stored, ...], mode: Mode) -> ir.Layer:
    """Return the layer that an addition of two tensors of one shape becomes. Raises Refused if it is not supported."""
    op, result = site.node.op, Stored.of(site.output)
    assert isinstance(op, Add)
    ir.same_shapes(site)
    write = ir.Writer(result.c)
    if mode.elementwise == "ort":
        _fused(write, site, shapes, result, mode)
    elif mode.elementwise == "tflite":
        _fixed_point(write, site, shapes, result)
    elif mode.elementwise == "pow2":
        left, right, out = op.shifts(site)
        _shifted(write, shapes, (1 << left, 1 << right), out, result)
    else:
        _multiplied(write, site, shapes, result)
    out = site.output
    linear.clamp(write, result, *clamp_range(op.activation, out.scale, out.zero_point, out.dtype, mode.delegated))
    return write.layer(site, shapes, result)


def _fixed_point(write: ir.Writer, site: Site, shapes: tuple[Stored, ...], result: Stored) -> None:
    """Add the operations that add two tensors as TFLite does.

    Both operands are rescaled to a common scale with 20 extra bits. Each rescaling rounds twice.
    """
    scales = [np.float64(site.input(index).scale) for index in (0, 1)]
    twice = 2 * max(scales)
    parts: list[ir.Ref] = []
    for index in (0, 1):
        q, shift = quantize_multiplier(scales[index] / twice)
        high = ir.HIGH_PRODUCT + EXTRA_BITS
        part = write.centred(index, I32, int(q), high, Rounding.HALF_UP, shapes[index].zero)
        if shift:
            count = Constant.of(int(shift), I8)
            part = write.add("arithmetic_shift", I32, Rounding.HALF_AWAY_FROM_ZERO, a=part, shift=count)
        parts.append(write.hold(part))
    write.release()
    total = write.add("int_add", I32, a=parts[0], b=parts[1])
    q, shift = quantize_multiplier(twice / ((1 << EXTRA_BITS) * np.float64(site.output.scale)))
    linear.doubled(write, total, q, shift, result.zero)


def _multiplied(write: ir.Writer, site: Site, shapes: tuple[Stored, ...], result: Stored) -> None:
    """Add the operations that add two tensors as XNNPACK does.

    XNNPACK uses multipliers of at most 21 bits and one shift, which rounds ties up.
    """
    out = np.float32(site.output.scale)
    ratios = [np.float32(site.input(index).scale) / out for index in (0, 1)]
    if min(ratios) < 2.0**-10 or max(ratios) >= 2.0**8:
        raise ir.Refused("scales are too far apart for XNNPACK: input scale / output scale must be in 2**-10 .. 2**8")
    shift = 21 - int(np.frexp(max(ratios))[1])
    p, q = (int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios)
    _shifted(write, shapes, (p, q), -shift, result)


def _shifted(
    write: ir.Writer, shapes: tuple[Stored, ...], factors: tuple[int, int], shift: int, result: Stored
) -> None:
    """Add the operations `round_half_up((a * p + b * q) * 2**shift) + result.zero`.

    a and b are the codes of the two inputs minus their zero points; (p, q) is `factors`.
    """
    left = write.hold(write.centred(0, I32, factors[0], 0, Rounding.HALF_UP, shapes[0].zero))
    right = write.centred(1, I32, factors[1], 0, Rounding.HALF_UP, shapes[1].zero)
    write.release()
    total = write.add("int_add", I32, a=left, b=right)
    write.scale(total, ir.Output(), np.array(shift), result.zero, Rounding.HALF_UP)


def _fused(write: ir.Writer, site: Site, shapes: tuple[Stored, ...], result: Stored, mode: Mode) -> None:
    """Add the operations that add two tensors as onnxruntime does.

    `f32(f32(a * ra) + f32(b * rb))` replaces two fused multiply-adds of the codes a and b minus their zero points.
    `_search` finds the factors ra and rb.
    """
    factors = _search(site, shapes, mode)
    left = write.hold(write.centred_real(0, factors[0], shapes[0].zero))
    right = write.centred_real(1, factors[1], shapes[1].zero)
    write.release()
    linear.add_zero_point(write, result, "cast", x=write.add("fp_add", F32, a=left, b=right))


def _search(site: Site, shapes: tuple[Stored, ...], mode: Mode) -> tuple[np.float32, np.float32]:
    """Return two float32 factors for `_fused` with which every pair of codes gives the same sum as the reference.

    The factors are close to input scale / output scale. Raises Refused if there are none.
    """
    out = site.output
    codes, expected = every_code(site, shapes, mode)
    near = [neighbours(np.float32(site.input(index).scale) / np.float32(out.scale)) for index in (0, 1)]
    parts = [
        [(code - x.zero).astype(np.float32) * factor for factor in factors]
        for code, x, factors in zip(codes, shapes, near, strict=True)
    ]
    for left, right in sorted(product(range(len(near[0])), range(len(near[1]))), key=sum):
        total = np.rint(parts[0][left][:, None] + parts[1][right])
        if np.array_equal(np.clip(total + out.zero_point, expected.min(), expected.max()), expected):
            return near[0][left], near[1][right]
    raise ir.Refused("the machine's float32 rounds some of its sums differently from onnxruntime's fused multiply-adds")


def maximum(site: Site, x: Stored, mode: Mode) -> ir.Layer:
    """Return the layer that a max pool becomes. Raises Refused if it is not supported."""
    op = site.node.op
    assert isinstance(op, MaxPool2D)
    window = linear.machine_window(op.window, x)
    write = ir.Writer(x.c)
    write.add("max_pool2d", ir.Output(), x=ir.Input(0), pad=Constant.of(x.dtype.low, x.dtype))
    _no_activation(op.activation)
    return _layer(site, x, write, window)


def average(site: Site, x: Stored, mode: Mode) -> ir.Layer:
    """Return the layer that an average pool becomes. Raises Refused if it is not supported.

    The mean is rounded with ties away from zero, as in TFLite, in every rounding mode.
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
    total, window, columns = _window_sums(write, x, linear.machine_window(op.window, x), 0)
    factor, shift = _division(count, x)
    write.scale(total, ir.Output(), np.array(-shift), x.add, Rounding.HALF_AWAY_FROM_ZERO, factor)
    return _layer(site, x, write, window, -x.add * count // columns)


def mean(site: Site, x: Stored, mode: Mode) -> ir.Layer:
    """Return the layer that a mean over rows and columns becomes. It also rescales the mean to the output's scale.

    Raises Refused if the axes or scales are not supported.
    """
    op, source, out = site.node.op, site.input(0), site.output
    assert isinstance(op, Mean)
    if len(source.shape) != 4 or {axis % 4 for axis in op.axes} != {1, 2}:
        raise ir.Refused(
            f"axes={list(op.axes)} of {list(source.shape)} is not supported; a mean over rows and columns is"
        )
    count, result = x.h * x.w, Stored.of(out)
    xnnpack = mode.elementwise == "xnnpack"  # it adds both zero points, as one float32, before rounding
    write, zero = ir.Writer(x.c), x.add if xnnpack else x.zero
    total, window, columns = _window_sums(write, x, Window((x.h, x.w)), zero)
    if xnnpack:
        scale = np.float32(source.scale) / np.float32(out.scale) * (np.float32(1) / np.float32(count))
        offset = np.float32(out.zero_point) - np.float32(count) * np.float32(source.zero_point) * scale
        named = write.parameters(scale=(scale, F32), offset=(float(offset), F32))
        code = write.add("fp32_requant", I16, Rounding.HALF_TO_EVEN, x=total, **named)
        shifted = write.add("int_add", I16, a=code, b=Constant.of(result.add, I16), saturate=True)
        write.add("cast", ir.Output(), Rounding.HALF_TO_EVEN, x=shifted)
    elif mode.elementwise == "ort":
        linear.real(write, total, np.asarray(op.factor32(site, count)), result)
    elif mode.elementwise == "tflite":
        linear.doubled(write, total, *op.folded(site, count), result.zero)
    else:
        factor, exponent = mean_factor(count)
        shift = power_of_two(source.scale / out.scale, "mean") - exponent
        write.scale(total, ir.Output(), shift, result.zero, Rounding.HALF_UP, factor)
    return _layer(site, x, write, window, -zero * count // columns)


def _window_sums(write: ir.Writer, x: Stored, window: Window, pad: int) -> tuple[ir.Ref, Window, int]:
    """Add operations that sum the codes of each window. Return the int32 sums, the layer's window, and a number.

    The number says how often the layer's bias is added to a sum.

    A command takes as many cycles for one pixel as for 64. One window over many rows and columns is therefore summed
    column by column first; the second command, in float32, adds up integers that float32 holds exactly.
    """
    h, w = window.kernel
    whole = window == Window((x.h, x.w))
    if not whole or h * w <= h + w + 2 or 255 * h * w >= EXACT:
        return linear.window_sums(write, pad), window, 1
    columns = linear.window_sums(write, pad, (1, w))
    real = write.add("cast", F32, Rounding.HALF_TO_EVEN, (1, w), x=columns)
    one = Constant.of(1.0, F32)
    total = write.add("fp_avg_pool2d", F32, x=real, scale=one, window=Window((1, w)))
    return write.add("cast", I32, Rounding.HALF_TO_EVEN, x=total), Window((h, 1)), w


def _division(count: int, x: Stored) -> tuple[int, int]:
    """Return (m, s) such that `sum * m / 2**s`, with ties rounded away from zero, is the mean of `count` codes.

    Every possible sum is tested. Raises Refused if a sum would give a wrong mean.
    """
    if count & (count - 1) == 0:
        return 1, count.bit_length() - 1
    shift = FACTOR_BITS + count.bit_length() - 1
    factor = ((1 << shift) + count // 2) // count
    sums = np.arange((x.dtype.low - x.add) * count, (x.dtype.high - x.add) * count + 1, dtype=np.int64)
    expected = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
    if not np.array_equal(shift_right(sums * factor, shift, Rounding.HALF_AWAY_FROM_ZERO), expected):
        raise ir.Refused(f"a mean of {count} values is not supported: no integer factor divides its sums exactly")
    return factor, shift


def _no_activation(activation: str) -> None:
    if activation != "none":
        raise ir.Refused(f"activation={activation} of a pool is not supported")


def _layer(site: Site, x: Stored, write: ir.Writer, window: Window, bias: int | None = None) -> ir.Layer:
    """Return the layer with the operations added so far. `bias` is that of the sums of its window; None: no sums."""
    ones: Array = np.ones((1, x.c, *window.kernel), np.int8)
    kernel = None if bias is None else ir.WeightValues(ones, I8, True)
    biases = None if bias is None else np.full(x.c, bias, np.int32)
    shapes = (x,), Stored.of(site.output)
    return write.layer(site, *shapes, kernel=kernel, bias=biases, window=window, row_tiles=False)
