"""Operators that reduce: average and maximum pools, the mean over axes, softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Shape, Site
from tilewright.graph.ops.base import Evaluation, Shaped, Window, clamped, four
from tilewright.graph.ops.elementwise import Unary
from tilewright.graph.ops.linear import merge_samples
from tilewright.graph.rounding import (
    FIXED32,
    MAX_FACTOR,
    Activation,
    mean_factor,
    multiply_by_quantized_multiplier,
    multiply_by_real,
    multiply_by_reduced_multiplier,
    power_of_two,
    quantize_multiplier,
    round_half_away,
    round_half_even,
    rounding_divide_by_pot,
    shift_up,
)

_DIFF_BITS = 5  # integer bits of (x - max) * beta in softmax
_SUM_BITS = 12  # integer bits of the sum of exponentials in softmax
#: The number of steps in TFLite's tables for functions of int16 codes, and the lowest and highest code.
STEPS = 512
LOW, HIGH = -(1 << 15), (1 << 15) - 1


@dataclass(frozen=True)
class Windowed(Shaped):
    """Base class of operators that reduce each channel over a sliding window."""

    images = True
    window: Window = Window()

    def shape_of(self, site: Site) -> Shape:
        batch, height, width, channels = four(site, 0)
        return (batch, *self.window.output_size(site.node.name, height, width), channels)

    def counts(self, site: Site) -> Array:
        """Return the number of positions of each window that are inside the image, int32 (OH, OW, 1)."""
        ones = np.ones((1, *site.input(0).shape[1:3], 1), np.int32)
        counts: Array = self.window.windows(ones).sum(axis=(3, 4), dtype=np.int32)[0]
        return counts


@dataclass(frozen=True)
class Pool(Windowed):
    """Base class of pools whose output has the input's scale and zero point. Padding does not affect the result."""

    activation: Activation = "none"

    def shape_of(self, site: Site) -> Shape:
        differs = not site.input(0).same_codes(site.output)
        site.refuse_if(differs, "has an output whose scale or zero point differs from the input's")
        return super().shape_of(site)


def shifted_mean(site: Site, total: Array, count: int) -> Array:
    """Divide sums of `count` codes by `count` in the mode `pow2`: a 7-bit factor, then a shift with ties upwards."""
    factor, exponent = mean_factor(count)
    ratio = power_of_two(site.input(0).scale / site.output.scale, site.where)
    return shift_up(total * factor, ratio - exponent)


@dataclass(frozen=True)
class AveragePool2D(Pool):
    """The mean code of each window, without padding, rounded half away from zero as in TFLite's integer kernels."""

    kind = "average_pool_2d"

    def compute(self, at: Evaluation) -> Array:
        codes = merge_samples(at.value()).astype(np.int32)
        return self.finish(at, self.window.windows(codes).sum(axis=(3, 4), dtype=np.int32))[0]

    def finish(self, site: Site, total: Array) -> tuple[Array, ...]:
        """Return the mean code of each window. `total` (.., OH, OW, C) has the sums of codes."""
        counts = np.maximum(self.counts(site), 1)  # the mean of an empty window is 0
        # Division in C truncates. The kernels first add half of the divisor with the sign of the sum, which rounds ties
        # away from zero.
        half = np.where(total >= 0, counts // 2, -(counts // 2))
        mean = np.trunc((total + half) / counts)  # exact in float64, because |total| < 2**31
        return (clamped(mean, site.output, self.activation),)


@dataclass(frozen=True)
class MaxPool2D(Pool):
    """The largest code of each window, without padding."""

    kind = "max_pool_2d"

    def compute(self, at: Evaluation) -> Array:
        lowest = np.iinfo(at.value().dtype).min
        largest = self.window.windows(merge_samples(at.value()), lowest).max(axis=(3, 4))
        return clamped(largest, at.output, self.activation, at.rounding.delegated)


@dataclass(frozen=True)
class RealAveragePool2D(Windowed):
    """onnxruntime's QLinearAveragePool: real values are summed in float32, then the mean is quantised.

    With `count_padding`, padding counts as zeros. Input and output may have different scales. All rounding modes except
    `pow2` use this arithmetic.
    """

    kind = "real_average_pool_2d"
    count_padding: bool = False

    def compute(self, at: Evaluation) -> Array:
        x = merge_samples(at.value())
        source = at.input(0)
        out = at.output
        if at.rounding.elementwise == "pow2":  # all windows have one size: there is no padding, or the padding counts
            total = self.window.windows(x.astype(np.int64)).sum(axis=(3, 4))
            return clamped(shifted_mean(at, total, prod(self.window.kernel)), out)
        real = (x.astype(np.int32) - source.zero_point).astype(np.float32) * np.float32(source.scale)
        views = self.window.windows(real)
        # The order of additions matters in float32: add the positions one by one, row by row, as onnxruntime does.
        total = np.zeros(views.shape[:3] + views.shape[5:], np.float32)
        for row, column in np.ndindex(*self.window.kernel):
            total += views[:, :, :, row, column]
        count = self.counts(at).astype(np.float32)
        if self.count_padding:
            count = np.full_like(count, prod(self.window.kernel))
        mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
        code = np.rint(mean / np.float32(out.scale) + np.float32(out.zero_point))  # the zero point is added first
        return clamped(code, out)


@dataclass(frozen=True)
class Reduction(Shaped):
    """Base class of operators that reduce over `axes`. Axis 0 is the first axis after the sample axis."""

    axes: tuple[int, ...] = ()
    keep_dims: bool = False

    def shape_of(self, site: Site) -> Shape:
        shape = site.input(0).shape
        wrong = len(set(self.axes)) < len(self.axes) or not set(self.axes) <= set(range(len(shape)))
        site.fail_if(wrong, f"cannot reduce axes {self.axes} of the shape {list(shape)}")
        if self.keep_dims:
            return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(shape))
        return tuple(extent for axis, extent in enumerate(shape) if axis not in self.axes)

    def count(self, site: Site) -> int:
        return prod(site.input(0).shape[axis] for axis in self.axes)


@dataclass(frozen=True)
class Product(Reduction):
    """The product over `axes` (TFLite's reduce.h). It is rescaled after each factor so that it does not overflow."""

    kind = "product"

    def compute(self, at: Evaluation) -> Array:
        x = at.value()
        source = at.input(0)
        out = at.output
        if at.rounding.elementwise == "xnnpack" and source.size == out.size:
            return x  # a reduction over axes of size 1: LiteRT's optimised kernel copies the codes
        inner = [axis + 1 for axis in self.axes]
        centred = np.moveaxis(x.astype(np.int64) - source.zero_point, inner, range(len(inner)))
        factors = centred.reshape(self.count(at), *centred.shape[len(inner) :])
        # For n factors, the total rescaling is scale**n / out_scale. It is done in n equal steps of scale divided by
        # the n-th root of out_scale.
        q, shift = quantize_multiplier(np.float64(source.scale) / np.power(np.float64(out.scale), 1 / len(factors)))
        total = factors[0]
        for factor in factors[1:]:
            total = multiply_by_reduced_multiplier(total * factor, q, shift)
        return at.coded(multiply_by_reduced_multiplier(total, q, shift))


@dataclass(frozen=True)
class Mean(Reduction):
    """The mean over `axes`, rescaled to the output's scale."""

    kind = "mean"

    def compute(self, at: Evaluation) -> Array:
        source = at.input(0)
        out = at.output
        count = self.count(at)
        total = at.value().sum(axis=tuple(axis + 1 for axis in self.axes), dtype=np.int64)
        centred = total - count * source.zero_point
        if at.rounding.elementwise == "pow2":
            mean = shifted_mean(at, total, count)
        elif at.rounding.elementwise == "ort":  # QLinearGlobalAveragePool: one factor, multiplied in this order
            return at.coded(round_half_even(centred.astype(np.float32) * self.factor32(at, count)))
        elif at.rounding.delegated and source.dtype != "int16":
            # XNNPACK combines both zero points in one float32 offset, which it adds before rounding.
            scale = np.float32(source.scale) / np.float32(out.scale) * (np.float32(1) / np.float32(count))
            offset = np.float32(out.zero_point) - np.float32(count) * np.float32(source.zero_point) * scale
            mean = round_half_even(total.astype(np.float32) * scale + offset)
        else:
            return at.coded(multiply_by_quantized_multiplier(centred, *self.folded(at, count)))
        return clamped(mean, out)

    @staticmethod
    def factor32(site: Site, count: int) -> np.float32:
        """Return onnxruntime's factor from a sum of `count` centred codes to a mean in steps of the output."""
        scale = np.float32(site.output.scale) * np.float32(count)
        return np.float32(np.float32(site.input(0).scale) / scale)

    @staticmethod
    def folded(site: Site, count: int) -> tuple[Array, Array]:
        """Return TFLite's multiplier and shift for a mean, with the factor 1 / count included (reduce.h)."""
        q, shift = quantize_multiplier(np.float64(site.input(0).scale) / np.float64(site.output.scale))
        # To keep its precision, the multiplier is shifted left by about log2(count) bits before it is divided by count.
        extra = min(count.bit_length() - 1, 32, 31 + int(shift))
        return (q << extra) // count, shift - extra


@dataclass(frozen=True)
class Softmax(Unary):
    """Softmax of `beta * x` over the last axis, in gemmlowp's fixed point or from LiteRT's float32 table.

    The output has scale 1/256 and zero point -128. For int16, TFLite uses tables, scale 2**-15 and zero point 0.
    """

    kind = "softmax"
    beta: float = 1.0

    def shape_of(self, site: Site) -> Shape:
        x = site.input(0)
        out = site.output
        wrong = not 0 < self.beta < MAX_FACTOR
        site.refuse_if(wrong, f"multiplies by beta = {self.beta:g}; positive numbers are supported")
        if x.dtype == "int16":
            wrong = abs(out.scale * 2**15 - 1) > 1e-3 or any((out.zero_point, x.zero_point, out.dtype != "int16"))
            site.refuse_if(wrong, "has an output scale or zero point other than 2**-15 and 0")
        else:
            wrong = (out.scale, out.zero_point) != (1 / 256, -128)
            site.refuse_if(wrong, "has an output scale or zero point other than 1/256 and -128")
        return super().shape_of(site)

    def compute(self, at: Evaluation) -> Array:
        x = at.value().astype(np.int64)
        if at.input(0).dtype == "int16":
            return self._wide(at, x, "float32" if at.rounding.name == "tflm" else "float64")
        if at.rounding.delegated:
            return self._by_table(at, x)
        real = min(
            float(np.float32(self.beta)) * np.float64(at.input(0).scale) * (1 << (31 - _DIFF_BITS)),
            float((1 << 31) - 1),
        )
        q, shift = quantize_multiplier(real)
        # softmax.h: differences beyond the radius would exceed Q5.26 after rescaling; their exponentials are set to 0.
        radius = np.floor(((1 << _DIFF_BITS) - 1) * (1 << (31 - _DIFF_BITS)) / 2.0 ** int(shift))
        diff = x - x.max(axis=-1, keepdims=True)
        inside = diff >= -radius
        scaled = multiply_by_quantized_multiplier(np.where(inside, diff, 0), q, shift)
        exponential = np.where(inside, FIXED32.exp_on_negative_values(scaled, _DIFF_BITS), 0)
        total = rounding_divide_by_pot(exponential, _SUM_BITS).sum(axis=-1, keepdims=True)
        # Normalise the sum: shifted left by its leading zeros, it is 1 + y with 0 <= y < 1, and `reciprocal` takes y.
        # The shift of `code` below undoes the normalisation.
        leading = 63 - np.floor(np.log2(total.astype(np.float64))).astype(np.int64) - 32  # leading zeros of 32 bits
        inverse = FIXED32.reciprocal((total << leading) - (1 << 31))
        code = rounding_divide_by_pot(FIXED32.high_mul(exponential, inverse), _SUM_BITS - leading + 31 - 8)
        return at.coded(code)

    def _by_table(self, at: Evaluation, x: Array) -> Array:
        """Return the codes of LiteRT's optimised kernel with a table of exp. XNNPACK has no softmax for codes."""
        step = -np.float32(at.input(0).scale) * np.float32(self.beta)
        table = np.exp((step * np.arange(256, dtype=np.float32)).astype(np.float64)).astype(np.float32)
        exponential = table[x.max(axis=-1, keepdims=True) - x]
        # cumsum adds from left to right, as the kernel does. np.sum would add pairwise and round differently.
        total = np.cumsum(exponential, axis=-1, dtype=np.float32)[..., -1:]
        code = round_half_away(exponential * (np.float32(1) / (total * np.float32(at.output.scale))))
        return at.coded(code)

    def _wide(self, site: Site, x: Array, dtype: str) -> Array:
        """Return the codes for int16 inputs, from tables of exp on -10..0 and of 1 / (1 + x) on 0..1 (softmax.h).

        `dtype` is the float type in which the runtime computes its tables.
        """
        real = np.float64(site.input(0).scale) * float(np.float32(self.beta)) / (10.0 / 65535.0)
        scaled = multiply_by_real(x - x.max(axis=-1, keepdims=True), real)
        codes = look_up(np.clip(scaled + 32767, -32768, 32767), table(np.exp, 10 / 65535, 32767, 2 / 65535, dtype))
        total = codes.sum(axis=-1, keepdims=True)  # Q16.15
        leading = 31 - np.floor(np.log2(total.astype(np.float64))).astype(np.int64)  # leading zeros of 32 bits
        shifted = ((total << (leading - 1)) + (1 << 13)) >> 14  # 1..2 in Q16
        reciprocals = table(_reciprocal, 1 / 65535, -32768, 2 / 65535, dtype)
        inverse = look_up(np.clip(shifted - (1 << 15) - (1 << 16), -32768, 32767), reciprocals)
        right = 31 - leading
        result = (codes * inverse + ((np.int64(1) << right) >> 1)) >> right
        return np.clip(result, 0, 32767).astype(np.int16)


def _reciprocal(x: Array) -> Array:
    return 1 / (1 + x)


@cache
def table(function: Callable[[Array], Array], scale: float, zero_point: int, out_scale: float, dtype: str) -> Array:
    """Return TFLite's table of a function of int16 codes, for linear interpolation (common.h).

    The table, int64, has the function's codes (at scale `out_scale`) at 512 equally spaced input codes and at the last
    input code. `scale` and `zero_point` are those of the input. `dtype` is the float type of the computation.
    """
    kind: Any = np.dtype(dtype).type
    low, high = (kind(scale) * kind(code - zero_point) for code in (LOW, HIGH))
    step = (high - low) / kind(STEPS)
    ends = [kind(out_scale) * kind(code) for code in (LOW, HIGH)]
    inverse = kind(HIGH - LOW + 1) / (ends[1] - ends[0])
    # Each float operation rounds, so the order of operations is the same as in TFLite. A step has a start, a middle and
    # an end.
    at = np.arange(STEPS, dtype=kind)
    start = low + at * step
    centre = low + at * step + step / kind(2)
    value, middle_value, following = (function(x) * inverse for x in (start, centre, low + (at + kind(1)) * step))
    sample = round_half_away(value)
    # TFLite corrects each value by half of the interpolation error in the middle of its step.
    interpolated = round_half_away((following + sample) / kind(2))
    bias = round_half_away((interpolated - round_half_away(middle_value)) / kind(2))
    last = round_half_away(function(np.atleast_1d(high)) * inverse)
    return np.clip(np.concatenate([sample - bias, last]), LOW, HIGH).astype(np.int64)


def look_up(codes: Array, values: Array) -> Array:
    """Look up int16 codes in a table: 9 bits of a code select a step, and 7 bits interpolate inside the step."""
    step = (codes >> 7) + 256
    base = values[step]
    result: Array = base + (((values[step + 1] - base) * (codes & 127) + 64) >> 7)
    return result
