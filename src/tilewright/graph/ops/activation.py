"""Activation functions on codes, as TFLite's integer kernels compute them: leaky ReLU, hard swish, logistic, tanh.

TFLite Micro computes logistic and tanh of 8-bit codes in fixed point, LiteRT in float32. The modes `ort` and `pow2`
use the arithmetic of TFLite Micro.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Shape, Site
from tilewright.graph.ops.base import Evaluation
from tilewright.graph.ops.elementwise import Unary, rescaled_xnnpack
from tilewright.graph.rounding import (
    FACTOR_LIMIT,
    FIXED16,
    FIXED32,
    MAX_FACTOR,
    multiply_by_quantized_multiplier,
    multiply_by_real,
    quantize_multiplier,
    round_half_away,
    rounding_divide_by_pot,
    wrap_int32,
)


@dataclass(frozen=True)
class LeakyRelu(Unary):
    """x where x >= 0, else alpha * x, rescaled to the output's scale (leaky_relu.h)."""

    kind = "leaky_relu"
    alpha: float = 0.0

    def shape_of(self, site: Site) -> Shape:
        ratio = site.input(0).scale / site.output.scale
        bounded = ratio < MAX_FACTOR and abs(ratio * self.alpha) < MAX_FACTOR
        site.fail_if(not bounded, f"would be scaled by {ratio:g} and {ratio * self.alpha:g}; {FACTOR_LIMIT}")
        return super().shape_of(site)

    def compute(self, at: Evaluation) -> Array:
        x = at.input(0)
        out = at.output
        centred = at.centred()
        factors = [at.rounding.ratio(out.scale, x.scale), at.rounding.ratio(out.scale, x.scale, self.alpha)]
        narrow = out.dtype != "int16" and all(2.0**-8 <= abs(factor) <= 2.0**7 for factor in factors)
        if at.rounding.elementwise == "xnnpack" and narrow:
            scaled = [rescaled_xnnpack(centred, factor) for factor in factors]
        else:
            scaled = [multiply_by_real(centred, abs(factor)) * (-1 if factor < 0 else 1) for factor in factors]
        return at.coded(np.where(centred >= 0, *scaled))


@dataclass(frozen=True)
class HardSwish(Unary):
    """x * relu6(x + 3) / 6 for 8-bit codes, with 16-bit multipliers (hard_swish.h)."""

    kind = "hard_swish"

    def shape_of(self, site: Site) -> Shape:
        site.refuse_if(site.input(0).dtype == "int16", "is a HARD_SWISH of int16", "quantise it to int8")
        site.refuse_if(self._multipliers(site)[1] > 0, "has an output scale below 1/128 of the input's")
        return super().shape_of(site)

    @staticmethod
    def _multipliers(site: Site) -> tuple[int, int, int, int]:
        """Return (multiplier, exponent) for the output's scale, then (multiplier, exponent) for the scale of `gate`."""
        fine = np.float32(1 / 128) * np.float32(site.input(0).scale)
        scales = np.array([site.output.scale, np.float32(3) / np.float32(32768)], np.float32)
        q, shift = quantize_multiplier((fine / scales).astype(np.float64))
        to_out, to_gate = np.minimum((q + (1 << 15)) >> 16, (1 << 15) - 1).tolist()
        return to_out, int(shift[0]), to_gate, int(shift[1])

    def compute(self, at: Evaluation) -> Array:
        to_out, out_shift, to_gate, gate_shift = self._multipliers(at)
        # `fine` has seven bits more than the codes. `gate` is relu6(x + 3) / 6 in Q0: first x is rescaled so that the
        # int16 range means -3..3, with saturation, then this range is mapped to 0..1. As in TFLite, the last bit of a
        # left shift is shifted after the product.
        fine = at.centred() << 7
        gate = FIXED16.saturated(fine << (gate_shift - 1)) if gate_shift > 0 else fine
        gate = FIXED16.high_mul(gate, to_gate)
        gate = FIXED16.saturated(gate << 1) if gate_shift > 0 else rounding_divide_by_pot(gate, -gate_shift)
        gate = (gate + (1 << 15)) >> 1
        product = np.fix(gate * FIXED16.high_mul(fine, to_out) / (1 << 15)).astype(np.int64)  # exact below 2**53
        if out_shift <= -16:  # gemmlowp's 16-bit remainder overflows, so every product becomes 1 or -1
            return at.coded(np.where(product < 0, -1, 1))
        return at.coded(rounding_divide_by_pot(product, -out_shift))


@dataclass(frozen=True)
class Sigmoidal(Unary):
    """Base class of logistic and tanh: fixed point or float32 for 8-bit codes, a table of 256 values for int16."""

    def shape_of(self, site: Site) -> Shape:
        x = site.input(0)
        out = site.output
        scale, zero = self.output_quant[x.dtype]
        wrong = abs(out.scale / scale - 1) > 1e-3 or out.zero_point != zero or (x.dtype == "int16" and x.zero_point)
        reason = f"has an output scale or zero point other than {scale:g} and {zero}"
        site.refuse_if(wrong, reason if out.dtype == x.dtype else f"{reason}, or another type")
        return super().shape_of(site)

    #: {type of the output: the scale and zero point that TFLite requires}.
    output_quant: ClassVar[Mapping[str, tuple[float, int]]]
    #: The left shifts by which an int16 input becomes Q3.12 without a multiplication.
    exact_shifts: ClassVar[tuple[int, ...]]

    @abstractmethod
    def in_float32(self, x: Array) -> Array:
        """Return the function of float32 numbers x. Each step is rounded to float32 as in LiteRT."""

    @abstractmethod
    def in_32_bits(self, x: Array) -> Array:
        """Return the function of x in Q4.27 as codes without the zero point, in 32-bit fixed point."""

    @abstractmethod
    def in_16_bits(self, x: Array) -> Array:
        """Return the function of x in Q3.12 as int16 codes, in 16-bit fixed point."""

    @abstractmethod
    def by_table(self, x: Array) -> Array:
        """Return the function of x / 12288 as int16 codes, from the table."""

    def compute(self, at: Evaluation) -> Array:
        scale = at.input(0).scale
        if at.input(0).dtype == "int16":
            x = at.value().astype(np.int64)
            left = left_shift(scale, self.exact_shifts)
            if at.rounding.elementwise == "xnnpack" and left is not None:  # LiteRT's optimised kernel
                return self.in_16_bits(x << left).astype(np.int16)
            return self.by_table(in_12288ths(x, scale, left)).astype(np.int16)
        centred = at.centred()
        if at.rounding.name not in ("litert", "xnnpack"):
            return at.coded(self._by_fixed_point(scale, centred))
        real = self.in_float32(centred.astype(np.float32) * np.float32(scale))
        steps = real * (np.float32(1) / np.float32(at.output.scale))
        rounded = np.rint(steps) if at.rounding.delegated else round_half_away(steps)
        return at.coded(rounded.astype(np.int64))

    def _by_fixed_point(self, scale: float, centred: Array) -> Array:
        """Return the codes, without the zero point, that TFLite Micro computes."""
        q, shift = quantize_multiplier(np.float64(scale) * (1 << 27))
        # Codes at or beyond the radius would exceed Q4.27 after rescaling. For these codes, the function is at its
        # limit, so the result is 512 or -512 steps, which saturates any 8-bit code. For scales of 8 and above, the
        # radius is 0.
        radius = np.floor(15 * 2.0**27 / 2.0 ** int(shift))
        inside = np.abs(centred) < radius
        steps = self.in_32_bits(multiply_by_quantized_multiplier(np.where(inside, centred, 0), q, shift))
        return np.where(inside, steps, np.where(centred <= -radius, -512, 512))


def left_shift(scale: float, exact_shifts: Sequence[int]) -> int | None:
    """Return k if `scale` is about 2**(k - 12) (log2 within 0.001) and k is in `exact_shifts`, else None."""
    log2 = np.log2(np.float32(scale))
    left = 12 + int(np.rint(log2))
    return left if abs(log2 - np.rint(log2)) < 1e-3 and left in exact_shifts else None


def in_12288ths(x: Array, scale: float, left: int | None) -> Array:
    """Convert int16 codes to units of 1 / 12288. `left` is the result of `left_shift` for the scale."""
    if left is not None:
        return x * (3 << left)
    multiplier, shift = float(np.float32(scale)) * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return wrap_int32(x * int(multiplier) + ((1 << shift) >> 1)) >> shift  # overflows for scales above 5.34, as TFLite


#: At these indices, TFLite's logistic table is one more than the correctly rounded value.
_ROUNDED_UP = (
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44, 45,
    46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
)  # fmt: skip


@cache
def _table() -> Array:
    """Return TFLite's table of 2**16 * logistic(i / 24) for i = 0..255 (common.h), int64."""
    table = np.rint(65536 / (1 + np.exp(-np.arange(256, dtype=np.float64) / 24))).astype(np.int64)
    table[list(_ROUNDED_UP)] += 1
    return table


def _interpolated(x: Array, bits: int, top: int) -> Array:
    """Interpolate the table at |x| / 2**bits. Return the value times 2**bits, or `top` after the last entry."""
    size = np.abs(x)
    entry = size >> bits
    part = size & ((1 << bits) - 1)
    low, high = _table()[np.minimum(entry, 254)], _table()[np.minimum(entry, 254) + 1]
    return np.where(entry >= 255, top, (low << bits) + part * (high - low))


@dataclass(frozen=True)
class Logistic(Sigmoidal):
    """1 / (1 + exp(-x)). The output has scale 1/256 and the lowest code as zero point (int16: 2**-15 and 0)."""

    kind = "logistic"
    output_quant: ClassVar = {"int8": (2.0**-8, -128), "uint8": (2.0**-8, 0), "int16": (2.0**-15, 0)}
    exact_shifts: ClassVar = (0,)

    def in_float32(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            power = np.exp(-x.astype(np.float64)).astype(np.float32)
        return np.float32(1) / (np.float32(1) + power)

    def in_32_bits(self, x: Array) -> Array:
        return rounding_divide_by_pot(FIXED32.logistic(x, 4), 31 - 8)

    def in_16_bits(self, x: Array) -> Array:
        return FIXED16.logistic(x, 3)

    def by_table(self, x: Array) -> Array:
        # The distance of two entries is 1 / 24 = 512 / 12288. An interpolated value has 16 + 9 fraction bits and is
        # rounded to 15. logistic(-x) is computed as 1 - logistic(x), so ties go up for x > 0 and down for x < 0.
        value = _interpolated(x, 9, 0x7FFF << 10)
        return np.where(x >= 0, value + (1 << 9), (1 << 25) - value + (1 << 9) - 1) >> 10


@dataclass(frozen=True)
class Tanh(Sigmoidal):
    """tanh(x). The output has scale 1/128 and zero point 0 (uint8: 1/128 and 128; int16: 2**-15 and 0)."""

    kind = "tanh"
    output_quant: ClassVar = {"int8": (2.0**-7, 0), "uint8": (2.0**-7, 128), "int16": (2.0**-15, 0)}
    exact_shifts: ClassVar = (0, 1)

    def in_float32(self, x: Array) -> Array:
        return np.tanh(x.astype(np.float64)).astype(np.float32)

    def in_32_bits(self, x: Array) -> Array:
        return rounding_divide_by_pot(FIXED32.tanh(x, 4), 31 - 7)

    def in_16_bits(self, x: Array) -> Array:
        return FIXED16.tanh(FIXED16.saturated(x), 3)

    def by_table(self, x: Array) -> Array:
        # tanh(x) = 2 * logistic(2 x) - 1, so the distance of two entries is 256 / 12288, half of that of logistic.
        value = _interpolated(x, 8, 0xFFFF << 8)
        return np.where(x >= 0, value - (1 << 23) + (1 << 7), -value + (1 << 23) + (1 << 7) - 1) >> 8
