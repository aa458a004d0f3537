"""Rounding modes: which requantisation rule each family of operators uses, under one name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.errors import InputError
from tilewright.graph.arithmetic import RequantRule


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
