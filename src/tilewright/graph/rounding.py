"""How int32 accumulators become codes: the factors of a site, and rounding modes by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, ModelError
from tilewright.graph.arithmetic import (
    Activation,
    RequantRule,
    clamp_range,
    multiply_by_quantized_multiplier,
    power_of_two,
    quantize_multiplier,
    round_half_away,
    shift_up,
)
from tilewright.graph.ir import Tensor


@dataclass(frozen=True)
class Rounding:
    """One published implementation's choice of arithmetic; see docs/arithmetic.md for the evidence.

    `float32_scales`: ratios of scales are formed in float32, not float64, before they become multipliers;
    `elementwise`: whose kernels add, multiply, average and quantise.
    """

    name: str
    convolution: RequantRule
    fully_connected: RequantRule
    float32_scales: bool
    elementwise: Literal["tflite", "xnnpack", "ort", "pow2"]
    source: str

    @property
    def delegated(self) -> bool:
        """Element-wise operators are not TFLite's own, and clamp bounds round half to even."""
        return self.elementwise in ("xnnpack", "ort")

    def ratio(self, over: float, *factors: float) -> float:
        """The product of scales `factors` divided by the scale `over`, formed as this mode forms it."""
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
    """The mode called `name`. Raises InputError naming those that exist."""
    if name not in MODES:
        raise InputError("--rounding", f"there is no rounding mode '{name}'", f"choose one of {', '.join(MODES)}")
    return MODES[name]


#: No kernel's shift is larger.
MAX_FACTOR = 2.0**30


@dataclass(frozen=True, eq=False)
class Requant:
    """out = clamp(round(acc * real) + zero_point, low, high), `real` one factor or one for each last-axis index."""

    real: Array  # float64, for the integer rules
    real32: Array  # float32, for the float rule
    zero_point: int
    low: int
    high: int
    dtype: str

    @classmethod
    def of_product(cls, x: Tensor, w: Tensor, out: Tensor, activation: Activation, half_even: bool = False) -> Requant:
        """The requantisation of sum((x - zx) * w) to `out`; factors from the tensors' float32 scales."""
        weights = np.asarray(w.quant.scale if w.quant else [w.scale], np.float64)
        real = np.float64(x.scale) * weights / np.float64(out.scale)
        with np.errstate(over="ignore"):
            real32 = np.float32(x.scale) * weights.astype(np.float32) / np.float32(out.scale)
        if not np.all(real < MAX_FACTOR):
            raise ModelError(f"tensor '{out.name}'", f"would be scaled by {np.max(real):g}", "check its scale")
        low, high = clamp_range(activation, out.scale, out.zero_point, out.dtype, half_even)
        return cls(real, real32, out.zero_point, low, high, out.dtype)

    def apply(self, acc: Array, rule: RequantRule) -> Array:
        """Codes of dtype `dtype` for int32 or int64 accumulators of any shape (channels last)."""
        if rule == "pow2":
            scaled = shift_up(acc, power_of_two(self.real, "requantisation"))
        elif rule == "float":
            return self._float(acc)
        elif rule == "away":
            scaled = round_half_away(acc.astype(np.float64) * self.real).astype(np.int64)
        else:
            q, shift = quantize_multiplier(self.real)
            scaled = multiply_by_quantized_multiplier(acc, q, shift)
        scaled += self.zero_point
        return np.clip(scaled, self.low, self.high, out=scaled).astype(self.dtype)

    def _float(self, acc: Array) -> Array:
        """The rule `float` without integers in between: bounds are whole, so clamping may come before rounding."""
        scaled = acc.astype(np.float32)
        scaled *= self.real32
        np.clip(scaled, self.low - self.zero_point, self.high - self.zero_point, out=scaled)
        np.rint(scaled, out=scaled)
        scaled += np.float32(self.zero_point)
        return scaled.astype(self.dtype)


@dataclass(frozen=True)
class Shift:
    """PULP's RequantShift: clip(floor((x * multiplier + addend) / divisor + 1/2), low, high), in integers."""

    divisor: int = 1
    low: int = -128
    high: int = 127

    def check(self, where: str, dtype: str) -> None:
        """Raises ModelError for a divisor that is not positive and for bounds outside `dtype`."""
        limits = np.iinfo(dtype)
        if not 0 < self.divisor <= 1 << 31 or not limits.min <= self.low <= self.high <= limits.max:
            raise ModelError(where, f"requantises to {dtype} by {self}, which is not possible")

    def apply(self, x: Array, multiplier: Array, addend: Array, dtype: str) -> Array:
        """Codes of dtype `dtype`; factors of below 2**31 and 2**53 leave no product beyond int64."""
        twice = 2 * (x.astype(np.int64) * multiplier + addend)
        rounded = (twice + self.divisor) // (2 * self.divisor)
        return np.clip(rounded, self.low, self.high).astype(dtype)
