"""Element-wise operators, with broadcasting: sums, products, clamps, and quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.ops.base import Op, Shape, clamped, given
from tilewright.graph.rounding import (
    Activation,
    Rounding,
    Shift,
    fused_multiply_add,
    multiply_by_quantized_multiplier,
    power_of_two,
    quantize_multiplier,
    round_half_away,
    round_half_even,
    shift_up,
)

_INTEGERS = ("int8", "uint8", "int32")


@dataclass(frozen=True)
class Broadcast(Op):
    """Base class of operators whose inputs broadcast to the shape of the output."""

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the broadcast shape. Raises ModelError if the inputs do not broadcast."""
        shapes = [site.input(index).shape for index in range(max(2, len(site.inputs)))]
        try:
            return (np.broadcast_shapes(*shapes),)
        except ValueError:
            text = " and ".join(str(list(shape)) for shape in shapes)
            raise ModelError(site.where, f"inputs {text} do not broadcast to one shape") from None


@dataclass(frozen=True)
class Binary(Broadcast):
    """Base class of operators on two tensors of codes, each with its own scale; `activation` clamps the result."""

    activation: Activation = "none"

    def _clamp(self, site: Site, result: Array, half_even: bool) -> tuple[Array, ...]:
        return (clamped(result + site.output.zero_point, site.output, self.activation, half_even),)


def aligned(site: Site, index: int, value: Array | None) -> Array:
    """Return the value of input `index`, with axes of 1 after the sample axis up to the output's number of axes."""
    array, shape = given(value), site.input(index).shape
    return array.reshape(array.shape[0], *(1,) * (len(site.output.shape) - len(shape)), *shape)


def centred(site: Site, index: int, value: Array | None) -> Array:
    """Return `code - zero_point` for the codes `value` of input `index`, as int64, with axes as in `aligned`."""
    return aligned(site, index, value).astype(np.int64) - site.input(index).zero_point


@dataclass(frozen=True)
class Sum(Binary):
    """Base class of a + b and a - b for two tensors of codes, by the rule of the rounding mode.

    TFLite's rule (add.h) is a common scale with 20 extra bits (int16: 15), and three multipliers.
    """

    sign: ClassVar[int] = 1

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        if rounding.elementwise == "ort" and self.sign > 0:
            return (self._fused(site, values),)
        a, b = (centred(site, index, values[index]) for index in (0, 1))
        b = self.sign * b
        if rounding.elementwise == "pow2":
            return self._clamp(site, self._shifted(site, a, b), False)
        delegated = rounding.delegated and site.output.dtype != "int16"
        total = self._delegated(site, a, b) if delegated else None
        return self._clamp(site, self._fixed_point(site, a, b) if total is None else total, delegated)

    def _fixed_point(self, site: Site, a: Array, b: Array) -> Array:
        scales = [np.float64(site.input(index).scale) for index in (0, 1)]
        twice_max, extra = 2 * max(scales), 15 if site.output.dtype == "int16" else 20
        total = np.zeros(1, np.int64)
        for operand, scale in zip((a, b), scales, strict=True):
            q, shift = quantize_multiplier(scale / twice_max)
            total = total + multiply_by_quantized_multiplier(operand << extra, q, shift)
        q, shift = quantize_multiplier(twice_max / ((1 << extra) * np.float64(site.output.scale)))
        return multiply_by_quantized_multiplier(total, q, shift)

    def shifts(self, site: Site) -> tuple[int, int, int]:
        """Return the log2 of three factors: of a and b to the finer of their scales, and of a + b to the output's.

        Raises ModelError if a ratio of scales is not a power of two.
        """
        scales = [site.input(index).scale for index in (0, 1)]
        finer = min(scales)
        a, b = (int(power_of_two(scale / finer, site.where)) for scale in scales)
        return a, b, int(power_of_two(finer / site.output.scale, site.where))

    def _shifted(self, site: Site, a: Array, b: Array) -> Array:
        left, right, out = self.shifts(site)
        return shift_up((a << left) + (b << right), out)

    def _delegated(self, site: Site, a: Array, b: Array) -> Array | None:
        """Return a + b, without the zero point, as XNNPACK's vadd computes it; None if vadd refuses the scales.

        vadd uses multipliers of at most 21 bits and one shift, with ties rounded upwards.
        """
        out = np.float32(site.output.scale)
        ratios = [np.float32(site.input(index).scale) / out for index in (0, 1)]
        if min(ratios) < 2.0**-10 or max(ratios) >= 2.0**8:
            return None
        shift = 21 - int(np.frexp(max(ratios))[1])
        p, q = (int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios)
        total: Array = (a * p + b * q + (1 << (shift - 1))) >> shift
        return total

    def _fused(self, site: Site, values: Sequence[Array | None]) -> Array:
        """Return the codes of the sum by onnxruntime's QLinearAdd: two fused multiply-adds, one constant addend."""
        a, b, out = site.input(0), site.input(1), site.output
        ra, rb = (np.float32(tensor.scale) / np.float32(out.scale) for tensor in (a, b))
        zero = fused_multiply_add(ra, np.float32(a.zero_point), rb * np.float32(b.zero_point))
        inner = fused_multiply_add(aligned(site, 1, values[1]), rb, np.float32(out.zero_point) - zero)
        total = fused_multiply_add(aligned(site, 0, values[0]), ra, inner)
        return clamped(np.rint(total), out, self.activation, True)


@dataclass(frozen=True)
class Add(Sum):
    """a + b."""

    kind = "add"


@dataclass(frozen=True)
class Sub(Sum):
    """a - b."""

    kind = "sub"
    sign = -1


@dataclass(frozen=True)
class Mul(Binary):
    """The product of two tensors of codes, requantised by one factor as the rounding mode does (TFLite: mul.h)."""

    kind = "mul"

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        product = centred(site, 0, values[0]) * centred(site, 1, values[1])
        real = rounding.ratio(site.output.scale, site.input(0).scale, site.input(1).scale)
        narrow = site.output.dtype != "int16"
        if narrow and rounding.elementwise == "xnnpack" and 2.0**-16 <= real < 2.0**8:
            if site.node.inputs[0] == site.node.inputs[1]:
                return self._clamp(site, self._square(site, values[0]), True)
            return self._clamp(site, round_half_even(product.astype(np.float32) * np.float32(real)), True)
        if rounding.elementwise == "pow2":
            return self._clamp(site, shift_up(product, power_of_two(real, site.where)), False)
        if rounding.elementwise == "ort":  # the zero point is added before rounding
            out = site.output
            scaled = product.astype(np.float32) * np.float32(real) + np.float32(out.zero_point)
            return self._clamp(site, round_half_even(scaled) - out.zero_point, True)
        q, shift = quantize_multiplier(real)
        return self._clamp(site, multiply_by_quantized_multiplier(product, q, shift), narrow and rounding.delegated)

    def _square(self, site: Site, value: Array | None) -> Array:
        """Return x * x, without the zero point, as XNNPACK's square computes it: the zero point affects rounding."""
        x, out = site.input(0), site.output
        real = centred(site, 0, value).astype(np.float32) * np.float32(x.scale)
        zero = np.float32(out.zero_point)
        return round_half_even(real * real * (np.float32(1) / np.float32(out.scale)) + zero) - out.zero_point


@dataclass(frozen=True)
class Unary(Op):
    """Base class of operators with one input, and an output of the same shape."""

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        return (site.input(0).shape,)


@dataclass(frozen=True)
class Clamp(Unary):
    """A stand-alone RELU, RELU6 or RELU_N1_TO_1, which also rescales if the input's and the output's scale differ.

    In the mode `tflm`, RELU6 clamps the input's codes and ignores the output's scale, as TFLite-Micro does.
    """

    kind = "clamp"
    activation: Activation = "relu"

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x, out = site.input(0), site.output
        if rounding.name == "tflm" and self.activation == "relu6":
            return (clamped(given(values[0]), x, self.activation),)
        q, shift = quantize_multiplier(rounding.ratio(out.scale, x.scale))
        scaled = multiply_by_quantized_multiplier(centred(site, 0, values[0]), q, shift)
        return (clamped(scaled + out.zero_point, out, self.activation),)


@dataclass(frozen=True)
class Quantize(Unary):
    """Conversion of float32 to codes, or of codes to codes of another scale or zero point."""

    kind = "quantize"

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        return (site.output,) if site.input(0).dtype == "float32" else (site.input(0), site.output)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x, source, out = given(values[0]), site.input(0), site.output
        if source.dtype == "float32":
            code = _from_real(x.astype(np.float32), np.float32(out.scale), rounding)
        else:
            narrow = source.dtype == out.dtype != "int16"
            code = _rescaled(x.astype(np.int64) - source.zero_point, source.scale, out.scale, rounding, narrow)
        return (clamped(code + out.zero_point, out),)


def _from_real(x: Array, scale: np.float32, rounding: Rounding) -> Array:
    """Return `round(x / scale)`, the codes without the zero point, by the rule of a rounding mode.

    TFLite divides and rounds half away from zero. XNNPACK multiplies by 1 / scale and rounds half to even. onnxruntime
    divides and rounds half to even. `pow2` rounds half up. NaN becomes 0; in onnxruntime it becomes the lowest code.
    """
    if rounding.elementwise == "pow2":
        return np.nan_to_num(np.floor(x.astype(np.float64) / scale + 0.5))
    if rounding.elementwise == "ort":
        with np.errstate(over="ignore"):
            return np.nan_to_num(np.rint(x / scale).astype(np.float64), nan=-np.inf)
    code = np.rint(x * (np.float32(1) / scale)) if rounding.delegated else round_half_away(x / scale)
    return np.nan_to_num(code.astype(np.float64))


def rescaled_xnnpack(centred: Array, ratio: float | np.float32) -> Array:
    """Return centred codes times a ratio of scales, which is rounded to 8 fractional bits; ties go upwards."""
    code: Array = (centred * 128 * int(np.rint(ratio * 256)) + (1 << 14)) >> 15
    return code


def _rescaled(centred: Array, source: float, out: float, rounding: Rounding, narrow: bool) -> Array:
    """Return centred codes (`code - zero_point`), converted from the scale `source` to the scale `out`.

    XNNPACK's rule is that of `rescaled_xnnpack` for ratios from 1/256 to 128, if codes are `narrow`: both int8 or
    both uint8.
    onnxruntime converts the codes to real numbers and back.
    """
    if rounding.elementwise == "ort":
        real = centred.astype(np.float32) * np.float32(source)
        return _from_real(real, np.float32(out), rounding).astype(np.int64)
    if rounding.elementwise == "pow2":
        return shift_up(centred, power_of_two(source / out, "QUANTIZE"))
    ratio = np.float32(source) / np.float32(out)
    if rounding.delegated and narrow and 2.0**-8 <= ratio <= 2.0**7:
        return rescaled_xnnpack(centred, ratio)
    q, shift = quantize_multiplier(np.float64(source) / np.float64(out))
    return multiply_by_quantized_multiplier(centred, q, shift)


@dataclass(frozen=True)
class Dequantize(Unary):
    """Conversion of codes to float32: scale * (code - zero_point)."""

    kind = "dequantize"

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        """Return the input tensor, which must hold codes. Raises UnsupportedError if the output is not float32."""
        if site.output.dtype != "float32":
            raise UnsupportedError(site.where, f"dequantises to {site.output.dtype}, not float32")
        return (site.input(0),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        source = site.input(0)
        codes = given(values[0]).astype(np.int32) - source.zero_point
        return (codes.astype(np.float32) * np.float32(source.scale),)


# Operators on integers without scales, for PULP's networks.


@dataclass(frozen=True)
class IntegerAdd(Broadcast):
    """The sum of two integer tensors as int32, without rescaling."""

    kind = "integer_add"

    def check_types(self, site: Site) -> None:
        """Check types: inputs int8, uint8 or int32, output int32. Raises UnsupportedError for other types."""
        if {site.input(0).dtype, site.input(1).dtype} - set(_INTEGERS) or site.output.dtype != "int32":
            raise UnsupportedError(site.where, "adds types other than int8, uint8 and int32, or its sum is not int32")

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        a, b = (aligned(site, index, values[index]).astype(np.int32) for index in (0, 1))
        return (a + b,)


@dataclass(frozen=True)
class RequantShift(Broadcast):
    """Requantisation of input 0 by the rule `shift`. Inputs 1 and 2 (int64) are its multiplier and addend."""

    kind = "requant_shift"
    shift: Shift = Shift()

    def check_types(self, site: Site) -> None:
        """Check types: input 0 int8, uint8 or int32, inputs 1 and 2 int64. Raises UnsupportedError for others."""
        if site.input(0).dtype not in _INTEGERS or {site.input(1).dtype, site.input(2).dtype} != {"int64"}:
            reason = "requantises types other than int8, uint8 and int32, or by constants that are not int64"
            raise UnsupportedError(site.where, reason)
        self.shift.check(site.where, site.output.dtype)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x, multiplier, addend = (aligned(site, index, given(values[index])) for index in range(3))
        return (self.shift.apply(x, multiplier, addend, site.output.dtype),)
