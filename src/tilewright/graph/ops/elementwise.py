"""Element-wise operators, with broadcasting: sums, products, clamps, and quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.graph.ir import Shape, Site
from tilewright.graph.ops.base import Evaluation, Single, clamped
from tilewright.graph.rounding import (
    Activation,
    Rounding,
    Shift,
    fused_multiply_add,
    multiply_by_real,
    power_of_two,
    round_half_away,
    round_half_even,
    shift_up,
)
from tilewright.graph.tensor import Tensor

_INTEGERS = ("int8", "uint8", "int32")


@dataclass(frozen=True)
class Broadcast(Single):
    """Base class of operators whose inputs broadcast to the shape of the output."""

    def shape_of(self, site: Site) -> Shape:
        """Return the broadcast shape. Raises ModelError if the inputs do not broadcast."""
        shapes = [site.input(index).shape for index in range(max(2, len(site.inputs)))]
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            text = " and ".join(str(list(shape)) for shape in shapes)
            raise ModelError(site.where, f"inputs {text} do not broadcast to one shape") from None


@dataclass(frozen=True)
class Sum(Broadcast):
    """Base class of a + b and a - b for tensors of codes with different scales.

    TFLite rescales both operands to a common scale with 20 extra bits (int16: 15), and rescales the sum to the output.
    """

    sign: ClassVar[int] = 1
    activation: Activation = "none"

    def compute(self, at: Evaluation) -> Array:
        if at.rounding.elementwise == "ort" and self.sign > 0:  # onnxruntime has an integer kernel only for Add
            return self._fused(at)
        a = at.centred(0)
        b = self.sign * at.centred(1)
        delegated = at.rounding.delegated and at.output.dtype != "int16"
        total = self._delegated(at, a, b) if delegated else None
        if at.rounding.elementwise == "pow2":
            left, right, out = self.shifts(at)
            total = shift_up((a << left) + (b << right), out)
        elif total is None:
            total = self._fixed_point(at, a, b)
        return at.coded(total, self.activation, delegated)

    def _fixed_point(self, site: Site, a: Array, b: Array) -> Array:
        # add.h: both operands are rescaled to the scale `twice_max`, so that their sum cannot overflow, with `extra`
        # fraction bits. Then the sum is rescaled to the output's scale.
        scales = [np.float64(site.input(index).scale) for index in (0, 1)]
        twice_max = 2 * max(scales)
        extra = 15 if site.output.dtype == "int16" else 20
        total = np.zeros(1, np.int64)
        for operand, scale in zip((a, b), scales, strict=True):
            total = total + multiply_by_real(operand << extra, scale / twice_max)
        return multiply_by_real(total, twice_max / ((1 << extra) * np.float64(site.output.scale)))

    def shifts(self, site: Site) -> tuple[int, int, int]:
        """Return the log2 of the factors of a, b and the sum. Raises ModelError if one is not a power of two."""
        # The operand with the coarser scale is shifted left, so that neither operand loses a bit before the sum.
        scales = [site.input(index).scale for index in (0, 1)]
        finer = min(scales)
        a, b = (int(power_of_two(scale / finer, site.where)) for scale in scales)
        return a, b, int(power_of_two(finer / site.output.scale, site.where))

    def _delegated(self, site: Site, a: Array, b: Array) -> Array | None:
        """Return a + b without the zero point, as XNNPACK's vadd computes it, or None if vadd rejects the scales.

        vadd uses multipliers of at most 21 bits and one shift, and rounds ties upwards.
        """
        out = np.float32(site.output.scale)
        ratios = [np.float32(site.input(index).scale) / out for index in (0, 1)]
        if min(ratios) < 2.0**-10 or max(ratios) >= 2.0**8:
            return None
        shift = 21 - int(np.frexp(max(ratios))[1])  # the larger multiplier gets 21 bits
        p, q = (int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios)
        total: Array = (a * p + b * q + (1 << (shift - 1))) >> shift
        return total

    def _fused(self, at: Evaluation) -> Array:
        """Return the codes of onnxruntime's QLinearAdd: two fused multiply-adds, the first with a constant addend."""
        a = at.input(0)
        b = at.input(1)
        out = at.output
        ra, rb = (np.float32(tensor.scale) / np.float32(out.scale) for tensor in (a, b))
        zero = fused_multiply_add(ra, np.float32(a.zero_point), rb * np.float32(b.zero_point))
        inner = fused_multiply_add(at.aligned(1), rb, np.float32(out.zero_point) - zero)
        total = fused_multiply_add(at.aligned(0), ra, inner)
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
class Mul(Broadcast):
    """The product of two tensors of codes, requantised with one factor (TFLite: mul.h)."""

    kind = "mul"
    activation: Activation = "none"

    def compute(self, at: Evaluation) -> Array:
        product = at.centred(0) * at.centred(1)
        real = at.rounding.ratio(at.output.scale, at.input(0).scale, at.input(1).scale)
        rule = at.rounding.elementwise
        zero = at.output.zero_point
        half_even = rule == "ort" or (at.rounding.delegated and at.output.dtype != "int16")
        if rule == "pow2":
            scaled = shift_up(product, power_of_two(real, at.where))
        elif rule == "ort":  # the zero point is added before rounding
            scaled = round_half_even(product.astype(np.float32) * np.float32(real) + np.float32(zero)) - zero
        elif not half_even or not 2.0**-16 <= real < 2.0**8:  # XNNPACK has no kernel for other factors
            scaled = multiply_by_real(product, real)
        elif at.node.inputs[0] == at.node.inputs[1]:  # XNNPACK's square: the zero point affects rounding
            value = at.centred().astype(np.float32) * np.float32(at.input(0).scale)
            steps = value * value * (np.float32(1) / np.float32(at.output.scale))
            scaled = round_half_even(steps + np.float32(zero)) - zero
        else:
            scaled = round_half_even(product.astype(np.float32) * np.float32(real))
        return at.coded(scaled, self.activation, half_even)


@dataclass(frozen=True)
class Unary(Single):
    """Base class of operators with one input, and an output of the same shape."""

    def shape_of(self, site: Site) -> Shape:
        return site.input(0).shape


@dataclass(frozen=True)
class Clamp(Unary):
    """A stand-alone RELU, RELU6 or RELU_N1_TO_1, which also rescales the input to the output's scale.

    TFLite Micro's RELU6 is an exception: it clamps the codes of the input and ignores the scale of the output.
    """

    kind = "clamp"
    activation: Activation = "relu"

    def compute(self, at: Evaluation) -> Array:
        x = at.input(0)
        out = at.output
        if at.rounding.name == "tflm" and self.activation == "relu6":
            return clamped(at.value(), x, self.activation)
        return at.coded(multiply_by_real(at.centred(), at.rounding.ratio(out.scale, x.scale)), self.activation)


@dataclass(frozen=True)
class Quantize(Unary):
    """Conversion of float32 to codes, or of codes to another scale or zero point."""

    kind = "quantize"

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        return (site.output,) if site.input(0).dtype == "float32" else (site.input(0), site.output)

    def compute(self, at: Evaluation) -> Array:
        real = at.input(0).dtype == "float32"
        return at.coded(_from_real(at.value(), np.float32(at.output.scale), at.rounding) if real else _rescaled(at))


def _from_real(x: Array, scale: np.float32, rounding: Rounding) -> Array:
    """Return the codes `round(x / scale)` without the zero point. NaN becomes 0 (onnxruntime: the lowest code)."""
    if rounding.elementwise == "pow2":  # ties upwards
        return np.nan_to_num(np.floor(x.astype(np.float64) / scale + 0.5))
    if rounding.elementwise == "ort":  # division; ties to even
        with np.errstate(over="ignore"):
            return np.nan_to_num(np.rint(x / scale).astype(np.float64), nan=-np.inf)
    # XNNPACK multiplies by 1 / scale and rounds ties to even. TFLite divides and rounds ties away from zero.
    code = np.rint(x * (np.float32(1) / scale)) if rounding.delegated else round_half_away(x / scale)
    return np.nan_to_num(code.astype(np.float64))


def rescaled_xnnpack(centred: Array, ratio: float | np.float32) -> Array:
    """Return `centred * ratio` with the ratio rounded to 8 fraction bits. Ties of the result go upwards."""
    code: Array = (centred * 128 * int(np.rint(ratio * 256)) + (1 << 14)) >> 15
    return code


def _rescaled(at: Evaluation) -> Array:
    source = at.input(0)
    out = at.output
    if at.rounding.elementwise == "ort":  # to real numbers and back
        real = at.centred().astype(np.float32) * np.float32(source.scale)
        return _from_real(real, np.float32(out.scale), at.rounding).astype(np.int64)
    if at.rounding.elementwise == "pow2":
        return shift_up(at.centred(), power_of_two(source.scale / out.scale, "QUANTIZE"))
    ratio = np.float32(source.scale) / np.float32(out.scale)
    # XNNPACK's kernel supports ratios from 1/256 to 128, int8 to int8 or uint8 to uint8; LiteRT runs all other cases.
    narrow = source.dtype == out.dtype != "int16"
    if at.rounding.delegated and narrow and 2.0**-8 <= ratio <= 2.0**7:
        return rescaled_xnnpack(at.centred(), ratio)
    return multiply_by_real(at.centred(), np.float64(source.scale) / np.float64(out.scale))


@dataclass(frozen=True)
class Dequantize(Unary):
    """Conversion of codes to float32: scale * (code - zero_point)."""

    kind = "dequantize"

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        site.refuse_if(site.output.dtype != "float32", f"dequantises to {site.output.dtype}, not float32")
        return (site.input(0),)

    def compute(self, at: Evaluation) -> Array:
        return at.centred().astype(np.float32) * np.float32(at.input(0).scale)


# Operators of PULP's networks, on integers without scales.


@dataclass(frozen=True)
class IntegerAdd(Broadcast):
    """The sum of two integer tensors as int32, without rescaling."""

    kind = "integer_add"

    def check_types(self, site: Site) -> None:
        wrong = {site.input(0).dtype, site.input(1).dtype} - set(_INTEGERS) or site.output.dtype != "int32"
        site.refuse_if(wrong, "adds types other than int8, uint8 and int32, or its sum is not int32")

    def compute(self, at: Evaluation) -> Array:
        return at.aligned(0).astype(np.int32) + at.aligned(1).astype(np.int32)


@dataclass(frozen=True)
class RequantShift(Broadcast):
    """Requantisation of input 0 by the rule `shift`. Inputs 1 and 2 (int64) are the multiplier and the addend."""

    kind = "requant_shift"
    shift: Shift = Shift()

    def check_types(self, site: Site) -> None:
        wrong = site.input(0).dtype not in _INTEGERS or {site.input(1).dtype, site.input(2).dtype} != {"int64"}
        site.refuse_if(wrong, "requantises types other than int8, uint8 and int32, or by constants that are not int64")
        self.shift.check(site.where, site.output.dtype)

    def compute(self, at: Evaluation) -> Array:
        return self.shift.apply(at.aligned(0), at.aligned(1), at.aligned(2), at.output.dtype)
