"""Requantisation, from int32 accumulators to 8-bit codes: named rounding rules, and the modes that select them.

An accumulator is multiplied by a real factor, usually below one. The rules differ in the rounding of the product:

- `double`: gemmlowp's rounding high multiply, then a rounding shift (ties away from zero): two roundings;
- `away`: float64 product, rounded half away from zero (LiteRT's reference fully connected);
- `float`: float32 product, rounded half to even (XNNPACK, onnxruntime);
- `pow2`: factors that are powers of two, ties upwards (VTA's own arithmetic, docs/quantize.md);
- `reduced`: a 16-bit multiplier, one rounding with ties upwards (TFLite's kernels for int16 with 64-bit sums);
- `shift`: integer multiplier, addend and divisor stored in the model (PULP's RequantShift, see the class `Shift`).

gemmlowp's fixed-point functions (exp, logistic, tanh, reciprocals) compute with numbers of 32 or 16 bits, here in int64
arrays. A number in Qm has a sign bit and m integer bits; its other bits are fraction bits.

Sources: gemmlowp fixedpoint.h, TFLite kernels/internal/common.h; checked against goldens in tests/graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, ModelError, one_of, option
from tilewright.graph.tensor import Tensor, code_limits

RequantRule = Literal["double", "away", "float", "reduced", "shift", "pow2"]
Activation = Literal["none", "relu", "relu6", "relu_n1_to_1"]
#: The range of the real results of each activation (None: unbounded).
BOUNDS: dict[Activation, tuple[float | None, float | None]] = {
    "none": (None, None),
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
}

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
#: Requantisation factors must be below this bound, because no kernel shifts left by more than 30.
MAX_FACTOR = 2.0**30
FACTOR_LIMIT = "factors must be below 2**30"


def quantize_multiplier(real: float | Sequence[float] | Array) -> tuple[Array, Array]:
    """Return (q, shift) such that `real` is about q * 2**(shift - 31). q has int32 values in an int64 array."""
    fraction, shift = np.frexp(np.asarray(real, np.float64))
    q = np.floor(fraction * (1 << 31) + 0.5).astype(np.int64)  # equals std::round, because factors are not negative
    # A fraction just below 1 is rounded to 2**31, which is not an int32 value.
    overflow = q == 1 << 31
    q = np.where(overflow, q // 2, q)
    shift = np.where(overflow, shift + 1, shift)
    # TFLite replaces factors below 2**-32 by 0.
    tiny = shift < -31
    return np.where(tiny, 0, q), np.where(tiny, 0, shift).astype(np.int64)


def saturating_rounding_doubling_high_mul(a: Array, b: Array) -> Array:
    """Return the high 32 bits of `2 * a * b`, rounded with ties upwards, for int64 arrays of int32 values."""
    # gemmlowp adds 2**30 (1 - 2**30 if the product is negative) and divides by 2**31 towards zero. This shift is equal.
    product: Array = a * b
    product += 1 << 30
    product >>= 31
    return np.minimum(product, INT32_MAX, out=product)  # only INT32_MIN * INT32_MIN exceeds INT32_MAX


def rounding_divide_by_pot(x: Array, exponent: Array | int) -> Array:
    """Return x / 2**exponent as int64, rounded half away from zero, for exponents in 0..31."""
    exponent = np.asarray(exponent, np.int64)
    rounded: Array = x >> 63  # -1 for negative x, so that ties go away from zero
    rounded = (np.where(exponent > 0, rounded, 0) if (exponent == 0).any() else rounded) + x
    rounded += (np.int64(1) << exponent) >> 1
    rounded >>= exponent
    return rounded


def wrap_int32(x: Array) -> Array:
    """Return int64 values wrapped to the int32 range, modulo 2**32; the dtype stays int64."""
    return x.astype(np.int32).astype(np.int64)


def multiply_by_quantized_multiplier(x: Array, q: Array, shift: Array) -> Array:
    """Return x * q * 2**(shift - 31), rounded twice (rule `double`), for int64 arrays of int32 values."""
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    x = x.astype(np.int64, copy=False)
    if left.any():
        x = wrap_int32(x << left)
    return rounding_divide_by_pot(saturating_rounding_doubling_high_mul(x, q), right)


def multiply_by_real(x: Array, real: float | Array) -> Array:
    """Return x * real, with the factor as a quantised multiplier, rounded twice (rule `double`)."""
    return multiply_by_quantized_multiplier(x, *quantize_multiplier(real))


def multiply_by_reduced_multiplier(x: Array, q: Array, shift: Array) -> Array:
    """Return x * q * 2**(shift - 31) for int64 sums by the rule `reduced`: q is first rounded to 16 bits."""
    # The product of a 48-bit sum and 16 bits fits int64. From 0x7FFF0000 on, rounding would give 1 << 15, which needs
    # 17 bits with its sign.
    reduced = np.where(q < 0x7FFF0000, (q + (1 << 15)) >> 16, 0x7FFF)
    down = 15 - shift
    return wrap_int32((x * reduced + (np.int64(1) << (down - 1))) >> down)


def power_of_two(real: float | Array, where: str) -> Array:
    """Return the log2 (int64) of factors that are powers of two. Raises ModelError for other factors."""
    fraction, exponent = np.frexp(np.asarray(real, np.float64))
    if (fraction != 0.5).any():
        raise ModelError(where, f"would be scaled by {real}, which is not a power of two", "use another rounding mode")
    return np.asarray(exponent - 1, np.int64)


def shift_up(x: Array, exponent: Array | int) -> Array:
    """Return x * 2**exponent rounded to the nearest integer, ties upwards, int64."""
    exponent = np.asarray(exponent, np.int64)
    right = np.maximum(-exponent, 0)
    shifted: Array = ((x.astype(np.int64) << np.maximum(exponent, 0)) + ((np.int64(1) << right) >> 1)) >> right
    return shifted


def mean_factor(count: int) -> tuple[int, int]:
    """Return integers (m, k) such that m / 2**k is about 1 / count, for a mean of codes. m has at most 7 bits."""
    if count & (count - 1) == 0:
        return 1, count.bit_length() - 1
    # The factor is exact only for a power of two. Otherwise its relative error is at most 1 / 128.
    k = (255 * count).bit_length() - 2  # the largest k with 2**k / count < 127.5
    return ((2 << k) + count) // (2 * count), k


def round_half_even(x: Array) -> Array:
    """Saturate float32 values to the int32 range and round them half to even, to int64 (arbitrary for NaN)."""
    with np.errstate(invalid="ignore"):  # 2**31 - 128 is the largest float32 below 2**31
        return np.rint(np.clip(x, np.float32(-(2.0**31)), np.float32(2.0**31 - 128))).astype(np.int64)


def fused_multiply_add(a: Array | np.float32, b: Array | np.float32, c: Array | np.float32) -> Array:
    """Return a * b + c of float32 values, rounded once to float32, as FMA instructions do."""
    # The product is exact in float64. The sum is rounded to odd in float64, so that the final rounding to float32 gives
    # the correctly rounded value (Boldo and Melquiond, 2008).
    product = np.float64(a) * np.float64(b)
    addend = np.float64(c)
    total = np.asarray(product + addend)
    # Knuth's two-sum: `error` is the exact rounding error of the float64 addition.
    back = total - product
    error = (product - (total - back)) + (addend - back)
    inexact = error != 0
    if inexact.any():  # seldom
        # Round to odd: replace an inexact sum with an even last bit by its odd neighbour towards the exact sum. A
        # number with an odd last bit is never halfway between two float32 numbers.
        even = (total.view(np.int64) & 1) == 0
        total = np.where(inexact & even, np.nextafter(total, np.copysign(np.inf, error)), total)
    return total.astype(np.float32)


def round_half_away(x: Array) -> Array:
    """Return x rounded half away from zero, like C's round(), in the same dtype."""
    whole = np.trunc(x)
    rounded: Array = whole + np.sign(x) * (np.abs(x - whole) >= 0.5)
    return rounded


def clamp_range(
    activation: Activation, scale: float, zero_point: int, dtype: str = "int8", half_even: bool = False
) -> tuple[int, int]:
    """Return the smallest and largest output code under an activation. `half_even` selects the rounding of XNNPACK."""
    least, most = code_limits(dtype)

    def code(real: float | None, limit: int) -> int:
        if real is None:
            return limit
        steps = np.asarray(np.float32(real) / np.float32(scale))
        # TFLite rounds half away from zero, and then adds the zero point. XNNPACK adds first, and rounds half to even.
        return int(np.rint(steps + np.float32(zero_point)) if half_even else zero_point + int(round_half_away(steps)))

    low, high = BOUNDS[activation]
    return max(least, code(low, least)), min(most, code(high, most))


@dataclass(frozen=True)
class Rounding:
    """A rounding mode: the arithmetic of one implementation (see docs/arithmetic.md for the evidence).

    If `float32_scales`, ratios of scales are computed in float32, otherwise in float64. `elementwise` is the runtime
    that defines the arithmetic of additions, products, averages and quantisation.
    """

    name: str
    convolution: RequantRule
    fully_connected: RequantRule
    float32_scales: bool
    elementwise: Literal["tflite", "xnnpack", "ort", "pow2"]
    source: str

    @property
    def delegated(self) -> bool:
        """Whether element-wise operators follow XNNPACK or onnxruntime, which round clamp bounds half to even."""
        return self.elementwise in ("xnnpack", "ort")

    def ratio(self, over: float, *factors: float) -> float:
        """Return the product of the scales `factors` divided by the scale `over`, in this mode's arithmetic."""
        kind = np.float32 if self.float32_scales else np.float64
        product = kind(1)
        for factor in factors:
            product = kind(product * kind(factor))
        return float(product / kind(over))


MODES = {
    mode.name: mode
    for mode in (
        Rounding("tflm", "double", "double", False, "tflite", "TFLite-Micro reference kernels"),
        Rounding("litert", "double", "away", True, "tflite", "LiteRT 2.3 reference kernels (BUILTIN_REF)"),
        Rounding(
            "xnnpack", "float", "float", True, "xnnpack", "LiteRT 2.3 default: XNNPACK where it takes an operator"
        ),
        Rounding("pow2", "pow2", "pow2", True, "pow2", "shifts only, ties upwards (docs/quantize.md)"),
        Rounding("ort", "float", "float", True, "ort", "onnxruntime 1.31, x86-64: QLinear kernels"),
    )
}


def rounding_mode(name: str) -> Rounding:
    """Return the rounding mode called `name`. Raises InputError if there is no such mode."""
    if name not in MODES:
        raise InputError(option("--rounding"), f"there is no rounding mode '{name}'", one_of(name, MODES))
    return MODES[name]


@dataclass(frozen=True, eq=False)
class Requant:
    """Requantisation of accumulators: `out = clamp(round(acc * real) + zero_point, low, high)`.

    `real` is one factor, or one factor per output channel (the last axis).
    """

    real: Array  # float64, for all rules except `float`
    real32: Array  # float32, for the rule `float`
    zero_point: int
    low: int
    high: int
    dtype: str

    @classmethod
    def of_product(cls, x: Tensor, w: Tensor, out: Tensor, activation: Activation, half_even: bool = False) -> Requant:
        """Return the requantisation of products of `x` and `w`. Raises ModelError for a factor >= MAX_FACTOR."""
        real = np.float64(x.scale) * w.scales / np.float64(out.scale)
        with np.errstate(over="ignore"):
            real32 = np.float32(x.scale) * w.scales.astype(np.float32) / np.float32(out.scale)
        too_much = not np.all(real < MAX_FACTOR)
        out.fail_if(too_much, f"would be scaled by {np.max(real):g}; {FACTOR_LIMIT}", "check its scale")
        low, high = clamp_range(activation, out.scale, out.zero_point, out.code_type, half_even)
        return cls(real, real32, out.zero_point, low, high, out.dtype)

    def apply(self, acc: Array, rule: RequantRule) -> Array:
        """Return the codes for int32 or int64 accumulators of any shape (channels last), rounded by `rule`."""
        if rule == "float":
            # In float32. Clamping before rounding gives the same result, because the bounds are integers.
            real = acc.astype(np.float32)
            real *= self.real32
            np.clip(real, self.low - self.zero_point, self.high - self.zero_point, out=real)
            np.rint(real, out=real)
            real += np.float32(self.zero_point)
            return real.astype(self.dtype)
        if rule == "pow2":
            scaled = shift_up(acc, power_of_two(self.real, "requantisation"))
        elif rule == "away":
            scaled = round_half_away(acc.astype(np.float64) * self.real).astype(np.int64)
        else:
            q, shift = quantize_multiplier(self.real)
            multiply = multiply_by_reduced_multiplier if rule == "reduced" else multiply_by_quantized_multiplier
            scaled = multiply(acc, q, shift)
        scaled += self.zero_point
        return np.clip(scaled, self.low, self.high, out=scaled).astype(self.dtype)


@dataclass(frozen=True)
class Shift:
    """PULP's RequantShift, in integers: `clip(floor((x * multiplier + addend) / divisor + 1/2), low, high)`."""

    divisor: int = 1
    low: int = -128
    high: int = 127

    def check(self, where: str, dtype: str) -> None:
        """Check the divisor (1..2**31) and the bounds (within `dtype`). Raises ModelError if a value is wrong."""
        limits = np.iinfo(dtype)
        if not 0 < self.divisor <= 1 << 31 or not limits.min <= self.low <= self.high <= limits.max:
            reason = f"requantises to {dtype} by {self}; the divisor must be in 1..2**31, low..high within {dtype}"
            raise ModelError(where, reason)

    def apply(self, x: Array, multiplier: Array, addend: Array, dtype: str) -> Array:
        """Requantise x to `dtype`. Multipliers below 2**31 and addends below 2**53 cannot overflow int64."""
        twice = 2 * (x.astype(np.int64) * multiplier + addend)
        rounded = (twice + self.divisor) // (2 * self.divisor)
        return np.clip(rounded, self.low, self.high).astype(dtype)


@dataclass(frozen=True)
class FixedPoint:
    """gemmlowp's functions of fixed-point numbers with 32 or 16 bits (fixedpoint.h)."""

    bits: int = 32

    @property
    def largest(self) -> int:
        """The largest number. In Q0, the largest number also represents 1, because the range ends just below 1."""
        return (1 << (self.bits - 1)) - 1

    def saturated(self, x: Array) -> Array:
        return np.clip(x, -self.largest - 1, self.largest)

    def high_mul(self, a: Array, b: Array | int) -> Array:
        """Return the product of a number in Qm and a number in Q0: in Qm, rounded with ties upwards, and saturated."""
        product: Array = a * b
        product = (product + (1 << (self.bits - 2))) >> (self.bits - 1)
        return np.minimum(product, self.largest)

    def _constant(self, value: int) -> int:
        """Round a 32-bit constant to `bits` bits (gemmlowp's RescaleConstantInitializer)."""
        return int(rounding_divide_by_pot(np.array(value, np.int64), 32 - self.bits))

    def exp_on_negative_values(self, a: Array, integer_bits: int) -> Array:
        """Return exp(a) in Q0 for a <= 0 in Q(integer_bits)."""
        # a = remainder - whole, with -1/4 <= remainder < 0. A polynomial gives exp(remainder). For each bit of `whole`
        # that is set, with the weight 2**k, the result is then multiplied by exp(-2**k).
        fraction = self.bits - 1 - integer_bits
        quarter = 1 << (fraction - 2)
        remainder = (a & (quarter - 1)) - quarter
        # Taylor series around -1/8, in Q0, with x = remainder + 1/8: exp(-1/8) * (1 + x + x**2 / 2 + x**3 / 6 + x**4 /
        # 24). The constants are 1/3 and exp(-1/8).
        x = (remainder << integer_bits) + (1 << (self.bits - 4))
        x2 = self.high_mul(x, x)
        x3 = self.high_mul(x2, x)
        x4_over_4 = rounding_divide_by_pot(self.high_mul(x2, x2), 2)
        tail = rounding_divide_by_pot(self.high_mul(x4_over_4 + x3, self._constant(715827883)) + x2, 1)
        middle = self._constant(1895147668)
        result = self.saturated(middle + self.high_mul(x + tail, middle))
        whole = remainder - a  # a non-negative multiple of 1/4
        factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # exp(-2**k), k = -2..4
        for bit, factor in enumerate(factors[: integer_bits + 2], start=fraction - 2):
            result = np.where(whole & (1 << bit), self.high_mul(result, self._constant(factor)), result)
        if integer_bits > 5:  # `factors` ends at exp(-16), because exp(-32) is 0 in Q0
            result = np.where(a < -(32 << fraction), 0, result)
        return np.where(a == 0, self.largest, result)

    def _newton(self, x: Array) -> Array:
        """Return 2 / (1 + x) in Q2 for x in Q0, 0 <= x < 1, by three Newton-Raphson steps."""
        half = (x + self.largest + 1) >> 1  # (x + 1) / 2, rounded
        # Compute the reciprocal of d = half, 1/2 <= d < 1. The first estimate is the best linear approximation, 48/17 -
        # 32/17 d. Each Newton step y + y * (1 - d * y) doubles the number of correct bits.
        y = self._constant(1515870810) + self.high_mul(half, self._constant(-1010580540))
        for _ in range(3):
            error = (1 << (self.bits - 3)) - self.high_mul(half, y)
            y = y + self.saturated(self.high_mul(y, error) << 2)
        return y

    def reciprocal(self, x: Array) -> Array:
        """Return 1 / (1 + x) in Q0 for x in Q0, 0 <= x < 1."""
        return self.saturated(self._newton(x) << 1)

    def logistic(self, a: Array, integer_bits: int) -> Array:
        """Return 1 / (1 + exp(-a)) in Q0 for a in Q(integer_bits)."""
        positive = self.reciprocal(self.exp_on_negative_values(-np.abs(a), integer_bits))
        return np.where(a == 0, 1 << (self.bits - 2), np.where(a > 0, positive, self.largest - positive))

    def tanh(self, a: Array, integer_bits: int) -> Array:
        """Return tanh(a) in Q0 for a in Q(integer_bits)."""
        # tanh(a) = 2 / (1 + exp(-2 a)) - 1. With one more integer bit, the same bits represent 2 a.
        decay = self.exp_on_negative_values(-np.abs(a), integer_bits + 1)
        return np.sign(a) * self.saturated((self._newton(decay) - (1 << (self.bits - 3))) << 2)


FIXED32 = FixedPoint(32)
FIXED16 = FixedPoint(16)
