"""Addition, multiplication and clamps, element by element with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.graph.arithmetic import clamp_range, multiply_by_quantized_multiplier, quantize_multiplier
from tilewright.graph.ir import Site
from tilewright.graph.ops.base import Op, Shape, given
from tilewright.graph.rounding import Rounding


@dataclass(frozen=True)
class Binary(Op):
    """Two inputs that broadcast to the output."""

    activation: str = "none"

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        a, b = site.input(0).shape, site.input(1).shape
        try:
            return (np.broadcast_shapes(a, b),)
        except ValueError:
            raise ModelError(f"op '{site.node.name}'", f"inputs {list(a)} and {list(b)} do not broadcast") from None

    def _clamp(self, site: Site, result: Array) -> tuple[Array, ...]:
        low, high = clamp_range(self.activation, site.output.scale, site.output.zero_point, site.output.dtype)
        return (np.clip(result, low, high).astype(site.output.dtype),)


def centred(site: Site, index: int, value: Array | None) -> Array:
    """codes - zero_point as int64, axes aligned so that sample axes meet."""
    tensor = site.input(index)
    rank = len(site.output.shape)
    array = given(value).astype(np.int64) - tensor.zero_point
    return array.reshape(array.shape[0], *(1,) * (rank - len(tensor.shape)), *tensor.shape)


@dataclass(frozen=True)
class Add(Binary):
    """a + b at a common scale with 20 extra bits (TFLite add.h): three multipliers."""

    kind = "add"

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        a, b, out = site.input(0), site.input(1), site.output
        twice_max = 2 * max(np.float64(a.scale), np.float64(b.scale))
        total = np.zeros(1, np.int64)
        for index, tensor in enumerate((a, b)):
            q, shift = quantize_multiplier(np.float64(tensor.scale) / twice_max)
            total = total + multiply_by_quantized_multiplier(
                centred(site, index, values[index]) << 20, q, shift, rounding.other
            )
        q, shift = quantize_multiplier(twice_max / ((1 << 20) * np.float64(out.scale)))
        return self._clamp(site, multiply_by_quantized_multiplier(total, q, shift, rounding.other) + out.zero_point)


@dataclass(frozen=True)
class Mul(Binary):
    """a * b, one multiplier (TFLite mul.h)."""

    kind = "mul"

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        a, b, out = site.input(0), site.input(1), site.output
        product = centred(site, 0, values[0]) * centred(site, 1, values[1])
        q, shift = quantize_multiplier(np.float64(a.scale) * np.float64(b.scale) / np.float64(out.scale))
        return self._clamp(site, multiply_by_quantized_multiplier(product, q, shift, rounding.other) + out.zero_point)


@dataclass(frozen=True)
class Clamp(Op):
    """A stand-alone RELU, RELU6 or RELU_N1_TO_1, rescaled to the output where the scales differ."""

    kind = "clamp"
    activation: str = "relu"

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        return (site.input(0).shape,)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x, out = site.input(0), site.output
        q, shift = quantize_multiplier(np.float64(x.scale) / np.float64(out.scale))
        scaled = multiply_by_quantized_multiplier(centred(site, 0, values[0]), q, shift, rounding.other)
        low, high = clamp_range(self.activation, out.scale, out.zero_point, out.dtype)
        return (np.clip(scaled + out.zero_point, low, high).astype(out.dtype),)
