"""Common parts of operators: base classes, the values of an evaluation, and the window of convolutions and pools."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.graph.ir import Op, Shape, Site
from tilewright.graph.rounding import Activation, Rounding, clamp_range
from tilewright.graph.tensor import Tensor


@dataclass(frozen=True)
class Evaluation(Site):
    """A node with the rounding mode and the values of its inputs. The first axis of a value is the sample axis."""

    values: tuple[Array | None, ...]
    rounding: Rounding

    def value(self, index: int = 0) -> Array:
        value = self.values[index]
        assert value is not None  # validation has checked that the input is present
        return value

    def aligned(self, index: int) -> Array:
        """Return the value of input `index`, with axes of size 1 inserted up to the output's number of axes."""
        array = self.value(index)
        shape = self.input(index).shape
        missing = len(self.output.shape) - len(shape)
        return array.reshape(array.shape[0], *(1,) * missing, *shape) if missing else array

    def centred(self, index: int = 0) -> Array:
        """Return `code - zero_point` of input `index` as int64, in the shape of `aligned`."""
        return self.aligned(index).astype(np.int64) - self.input(index).zero_point

    def broadcast(self) -> list[Array]:
        """Return the values of all inputs, with constants repeated for each sample."""
        values = list(map(self.value, range(len(self.values))))
        samples = max(map(len, values))
        return [np.broadcast_to(value, (samples, *value.shape[1:])) for value in values]

    def coded(self, steps: Array, activation: Activation = "none", half_even: bool = False) -> Array:
        """Add the output's zero point to `steps`, and clamp the codes to the output's type and an activation."""
        return clamped(steps + self.output.zero_point, self.output, activation, half_even)


@dataclass(frozen=True)
class Single(Op):
    """Base class of operators with one output."""

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        return (self.shape_of(site),)

    @abstractmethod
    def shape_of(self, site: Site) -> Shape:
        """Return the output's shape. Raises ModelError or UnsupportedError as `shapes` does."""

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        return (self.compute(Evaluation(site.node, site.inputs, site.outputs, tuple(values), rounding)),)

    @abstractmethod
    def compute(self, at: Evaluation) -> Array:
        """Return the exact output. Element-wise operators accept values of any shape, such as a table of all codes."""


@dataclass(frozen=True)
class Shaped(Single):
    """Base class of operators whose `compute` returns the output's elements in C order, in any shape."""

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        (result,) = super().evaluate(site, values, rounding)
        return (result.reshape(-1, *site.output.shape),)


def clamped(codes: Array, out: Tensor, activation: Activation = "none", half_even: bool = False) -> Array:
    """Clamp integers to the codes of `out` under an activation (see rounding.clamp_range)."""
    low, high = clamp_range(activation, out.scale, out.zero_point, out.code_type, half_even)
    return np.clip(codes, low, high).astype(out.dtype, copy=False)


def four(site: Site, index: int) -> tuple[int, int, int, int]:
    """Return the shape of input `index`. Raises ModelError unless the input has four axes."""
    shape = site.input(index).shape
    site.fail_if(len(shape) != 4, f"input {index} has the shape {list(shape)}; four axes are required")
    return shape[0], shape[1], shape[2], shape[3]


@dataclass(frozen=True)
class Window:
    """A 2-D sliding window. Pairs are (vertical, horizontal); padding is (top, bottom, left, right) positions."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def extent(self) -> tuple[int, int]:
        """The height and width of one window, in rows and columns of the input."""
        return (self.kernel[0] - 1) * self.dilation[0] + 1, (self.kernel[1] - 1) * self.dilation[1] + 1

    def output_size(self, name: str, height: int, width: int) -> tuple[int, int]:
        """Return the output's height and width. Raises ModelError if the window is impossible or does not fit."""
        top, bottom, left, right = self.padding
        if min(*self.kernel, *self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            remedy = "kernel, strides and dilations are at least 1, and paddings at least 0"
            raise ModelError(f"op '{name}'", f"has an impossible window: {self}", remedy)
        rows, columns = height + top + bottom - self.extent[0], width + left + right - self.extent[1]
        if min(rows, columns) < 0:
            raise ModelError(f"op '{name}'", f"has a {self.kernel} window that does not fit its {height}x{width} input")
        return rows // self.stride[0] + 1, columns // self.stride[1] + 1

    def pad(self, x: Array, value: int = 0) -> Array:
        if not any(self.padding):
            return x
        top, bottom, left, right = self.padding
        return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)

    def view(self, padded: Array) -> Array:
        """Return all windows of `padded` (B, H, W, C) as a NumPy view (B, OH, OW, KH, KW, C)."""
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.extent, axis=(1, 2))
        # First take the windows at all positions, with the dilated extent. Then select the windows by the stride, and
        # the taps inside each window by the dilation.
        windows = windows[:, :: self.stride[0], :: self.stride[1], :, :: self.dilation[0], :: self.dilation[1]]
        return np.moveaxis(windows, 3, 5)

    def windows(self, x: Array, fill: int = 0) -> Array:
        """Return all windows of x (B, H, W, C) and its padding, in the shape of `view`."""
        return self.view(self.pad(x, fill))

    @classmethod
    def same(
        cls, size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
    ) -> Window:
        """Return a window with TensorFlow's SAME padding: each axis has `ceil(size / stride)` outputs."""
        padding: list[int] = []
        for extent, k, s, d in zip(size, kernel, stride, dilation, strict=True):
            total = max(0, (-(-extent // s) - 1) * s + (k - 1) * d + 1 - extent) if s > 0 else 0
            # If the padding is odd, the extra position follows the input.
            padding += [total // 2, total - total // 2]
        return cls(kernel, stride, (padding[0], padding[1], padding[2], padding[3]), dilation)
