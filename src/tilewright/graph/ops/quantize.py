"""The edges between real numbers and codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.graph.arithmetic import (
    multiply_by_quantized_multiplier,
    power_of_two,
    quantize_multiplier,
    round_half_away,
    shift_up,
)
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.ops.base import Op, Shape, given
from tilewright.graph.rounding import Rounding


@dataclass(frozen=True)
class Quantize(Op):
    """float32 to codes, or codes of one scale to another."""

    kind = "quantize"

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        return (site.output,) if site.input(0).dtype == "float32" else (site.input(0), site.output)

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        return (site.input(0).shape,)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x, source, out = given(values[0]), site.input(0), site.output
        info = np.iinfo(out.dtype)
        if source.dtype == "float32":
            code = _from_real(x.astype(np.float32), np.float32(out.scale), rounding)
        else:
            code = _rescaled(x.astype(np.int64) - source.zero_point, source.scale, out.scale, rounding)
        return (np.clip(code + out.zero_point, info.min, info.max).astype(out.dtype),)


def _from_real(x: Array, scale: np.float32, rounding: Rounding) -> Array:
    """Halves away from zero; XNNPACK multiplies by 1 / scale, onnxruntime divides, and both round half to even.

    NaN becomes real zero, onnxruntime's lowest code.
    """
    if rounding.elementwise == "pow2":
        return np.nan_to_num(np.floor(x.astype(np.float64) / scale + 0.5))
    if rounding.elementwise == "ort":
        with np.errstate(over="ignore"):
            return np.nan_to_num(np.rint(x / scale).astype(np.float64), nan=-np.inf)
    code = np.rint(x * (np.float32(1) / scale)) if rounding.delegated else round_half_away(x / scale)
    return np.nan_to_num(code.astype(np.float64))


def _rescaled(centred: Array, source: float, out: float, rounding: Rounding) -> Array:
    """XNNPACK takes ratios of 1/256 to 128 and keeps 8 bits of their fraction, ties upwards.

    onnxruntime goes through real numbers.
    """
    if rounding.elementwise == "ort":
        real = centred.astype(np.float32) * np.float32(source)
        return _from_real(real, np.float32(out), rounding).astype(np.int64)
    if rounding.elementwise == "pow2":
        return shift_up(centred, power_of_two(source / out, "QUANTIZE"))
    ratio = np.float32(source) / np.float32(out)
    if rounding.delegated and 2.0**-8 <= ratio <= 2.0**7:
        code: Array = (centred * 128 * int(np.rint(ratio * 256)) + (1 << 14)) >> 15
        return code
    q, shift = quantize_multiplier(np.float64(source) / np.float64(out))
    return multiply_by_quantized_multiplier(centred, q, shift)


@dataclass(frozen=True)
class Dequantize(Op):
    """Codes to float32: scale * (code - zero_point)."""

    kind = "dequantize"

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        if site.output.dtype != "float32":
            raise UnsupportedError(f"op '{site.node.name}'", f"dequantises to {site.output.dtype}, not float32")
        return (site.input(0),)

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        return (site.input(0).shape,)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        source = site.input(0)
        codes = given(values[0]).astype(np.int32) - source.zero_point
        return (codes.astype(np.float32) * np.float32(source.scale),)
