"""The edges between real numbers and codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.graph.arithmetic import multiply_by_quantized_multiplier, quantize_multiplier
from tilewright.graph.ir import Site
from tilewright.graph.ops.base import Op, Shape, given
from tilewright.graph.rounding import Rounding


@dataclass(frozen=True)
class Quantize(Op):
    """float32 to codes, rounded half away from zero, or codes of one scale to another."""

    kind = "quantize"

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        return (site.input(0).shape,)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x, source, out = given(values[0]), site.input(0), site.output
        info = np.iinfo(out.dtype)
        if source.dtype == "float32":
            quotient = x.astype(np.float32) / np.float32(out.scale)
            code = np.nan_to_num(np.trunc(quotient + np.copysign(np.float32(0.5), quotient)).astype(np.float64))
        else:
            q, shift = quantize_multiplier(np.float64(source.scale) / np.float64(out.scale))
            code = multiply_by_quantized_multiplier(x.astype(np.int64) - source.zero_point, q, shift, rounding.other)
        return (np.clip(code + out.zero_point, info.min, info.max).astype(out.dtype),)


@dataclass(frozen=True)
class Dequantize(Op):
    """Codes to float32: scale * (code - zero_point)."""

    kind = "dequantize"

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        return (site.input(0).shape,)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        source = site.input(0)
        codes = given(values[0]).astype(np.int32) - source.zero_point
        return (codes.astype(np.float32) * np.float32(source.scale),)
