"""Pools and means as layers of the machine. A mean is a depthwise convolution with ones, whose sums are rescaled."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import AveragePool2D, MaxPool2D, Mean
from tilewright.graph.rounding import Rounding as Mode
from tilewright.graph.rounding import mean_factor, power_of_two
from tilewright.targets.bm1684x.compiler.layer import Bias, Input, Layer, Output, Ref, Weights, WeightValues
from tilewright.targets.bm1684x.compiler.linear import machine_window
from tilewright.targets.bm1684x.compiler.requant import doubled, real
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.compiler.writer import Refused, Writer
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import I8, I16, I32, Rounding
from tilewright.targets.bm1684x.values.rounding import shift_right
from tilewright.targets.bm1684x.values.window import Window

#: Bits of the factor of a mean: sums of 16 bits times it stay below 2**62.
FACTOR_BITS = 30


def maximum(site: Site, x: Stored, mode: Mode) -> Layer:
    """The largest code of each window."""
    op = site.node.op
    assert isinstance(op, MaxPool2D)
    window = machine_window(op.window, x)
    write = Writer(x.c)
    write.add("max_pool2d", Output(), x=Input(0), pad=Constant.of(x.dtype.low, x.dtype), window=window)
    _no_activation(op.activation)
    return _layer(site, x, write, window)


def average(site: Site, x: Stored, mode: Mode) -> Layer:
    """The mean of codes, halves away from zero: TFLite's, in every mode."""
    op = site.node.op
    assert isinstance(op, AveragePool2D)
    _no_activation(op.activation)
    counts = np.unique(op.counts(site))
    if len(counts) > 1:
        reason = f"padding={list(op.window.padding)} is not supported for a mean"
        raise Refused(f"{reason}: windows at the border hold fewer values than others")
    count = int(counts[0])
    window = machine_window(op.window, x)
    write = Writer(x.c)
    total = _sum(write, window, 0)
    factor, shift = _division(count, x)
    write.scale(total, Output(), np.array(-shift), x.add, Rounding.HALF_AWAY_FROM_ZERO, factor)
    return _layer(site, x, write, window, -x.add * count)


def mean(site: Site, x: Stored, mode: Mode) -> Layer:
    """The mean over rows and columns, rescaled."""
    op, source, out = site.node.op, site.input(0), site.output
    assert isinstance(op, Mean)
    if len(source.shape) != 4 or {axis % 4 for axis in op.axes} != {1, 2}:
        raise Refused(f"axes={list(op.axes)} of {list(source.shape)} is not supported; a mean over rows and columns is")
    count, result = x.h * x.w, Stored.of(out)
    window, write, zero = Window((x.h, x.w)), Writer(x.c), x.zero
    if mode.elementwise == "xnnpack":  # it adds both zero points, as one float32, before it rounds
        zero = x.add
        total = _sum(write, window, zero)
        scale = np.float32(source.scale) / np.float32(out.scale) * (np.float32(1) / np.float32(count))
        offset = np.float32(out.zero_point) - np.float32(count) * np.float32(source.zero_point) * scale
        code = write.scale_real(total, I16, np.asarray(scale), float(offset))
        shifted = write.add("int_add", I16, a=code, b=Constant.of(result.add, I16), saturate=True)
        write.add("cast", Output(), Rounding.HALF_TO_EVEN, x=shifted)
    else:
        total = _sum(write, window, zero)
        if mode.elementwise == "ort":
            real(write, total, np.asarray(op.factor32(site, count)), result, Output())
        elif mode.elementwise == "tflite":
            doubled(write, total, *op.folded(site, count), result.zero, Output())
        else:
            factor, exponent = mean_factor(count)
            shift = power_of_two(source.scale / out.scale, "mean") - exponent
            write.scale(total, Output(), shift, result.zero, Rounding.HALF_UP, factor)
    return _layer(site, x, write, window, -zero * count)


def _sum(write: Writer, window: Window, pad: int) -> Ref:
    """The sum of each window and the bias, int32."""
    return write.add("int8_depthwise2d", I32, x=Input(0), w=Weights(), bias=Bias(I32), right=0, window=window, pad=pad)


def _division(count: int, x: Stored) -> tuple[int, int]:
    """(m, s): sums of `count` codes times m / 2**s, rounded half away, are their means. Tried on every sum there is."""
    if count & (count - 1) == 0:
        return 1, count.bit_length() - 1
    shift = FACTOR_BITS + count.bit_length() - 1
    factor = ((1 << shift) + count // 2) // count
    sums = np.arange((x.dtype.low - x.add) * count, (x.dtype.high - x.add) * count + 1, dtype=np.int64)
    expected = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
    if not np.array_equal(shift_right(sums * factor, shift, Rounding.HALF_AWAY_FROM_ZERO), expected):
        raise Refused(f"a mean of {count} values is not supported: no integer factor divides its sums exactly")
    return factor, shift


def _no_activation(activation: str) -> None:
    if activation != "none":
        raise Refused(f"activation={activation} of a pool is not supported")


def _layer(site: Site, x: Stored, write: Writer, window: Window, bias: int | None = None) -> Layer:
    ones: Array = np.ones((1, x.c, *window.kernel), np.int8)
    return Layer(
        name=site.node.name,
        inputs=(site.node.inputs[0],),
        output=site.output.name,
        shapes=(x,),
        result=Stored.of(site.output),
        operations=tuple(write.operations),
        words=tuple(write.words),
        kernel=None if bias is None else WeightValues(ones, I8, True),
        bias=None if bias is None else np.full(x.c, bias, np.int32),
        window=window,
        row_tiles=False,
    )
