"""The base class of operators (attributes, shape rule, integer reference), and the window of convolutions and pools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.rounding import Activation, Rounding, clamp_range

Shape = tuple[int, ...]
CODES = ("int8", "uint8", "int16")


@dataclass(frozen=True)
class Op(ABC):
    """An operator and its attributes. Each subclass that sets `kind` is registered in `KINDS` under that name."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.kind:
            KINDS[cls.kind] = cls

    @abstractmethod
    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the output shapes that follow from the input shapes. Raises ModelError if the inputs do not fit."""

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        """Return the tensors of `site` that must hold quantised codes; by default all inputs and outputs."""
        return tuple(tensor for tensor in (*site.inputs, *site.outputs) if tensor is not None)

    def check_types(self, site: Site) -> None:
        """Check types. Raises UnsupportedError unless all tensors that `codes` returns are quantised CODES."""
        for tensor in self.codes(site):
            if tensor.dtype not in CODES or tensor.quant is None:
                other = f"is {tensor.dtype}, not int8, uint8 or int16"
                kind = other if tensor.dtype not in CODES else "has no quantisation parameters"
                raise UnsupportedError(site.where, f"tensor '{tensor.name}' {kind}")

    @abstractmethod
    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the exact outputs for the input `values`. All arrays have a sample axis in front (see graph.ir)."""

    @property
    def label(self) -> str:
        """The operator's name for display."""
        return self.kind

    def macs(self, site: Site) -> int:
        """Return the number of multiply-accumulates for one sample. As is customary, those on padding count."""
        return 0


KINDS: dict[str, type[Op]] = {}


def given(value: Array | None) -> Array:
    """Return `value`, the value of a required input. It is not None: validation has checked that it is present."""
    assert value is not None
    return value


def clamped(codes: Array, out: Tensor, activation: Activation = "none", half_even: bool = False) -> Array:
    """Return whole numbers as codes of `out`, clamped to its type and to an activation (see rounding.clamp_range)."""
    low, high = clamp_range(activation, out.scale, out.zero_point, out.dtype, half_even)
    return np.clip(codes, low, high).astype(out.dtype, copy=False)


def four(site: Site, index: int) -> tuple[int, int, int, int]:
    """Return the shape of input `index`, which must have four axes. Raises ModelError if it has another number."""
    shape = site.input(index).shape
    if len(shape) != 4:
        raise ModelError(site.where, f"input {index} has the shape {list(shape)}; four axes are required")
    return shape


@dataclass(frozen=True)
class Window:
    """A 2-D sliding window. Pairs are (vertical, horizontal); padding is (top, bottom, left, right) positions."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def extent(self) -> tuple[int, int]:
        """The numbers of input rows and columns that one window spans."""
        return (self.kernel[0] - 1) * self.dilation[0] + 1, (self.kernel[1] - 1) * self.dilation[1] + 1

    def output_size(self, name: str, height: int, width: int) -> tuple[int, int]:
        """Return the output's height and width. Raises ModelError if the window is impossible or does not fit."""
        top, bottom, left, right = self.padding
        if min(*self.kernel, *self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            raise ModelError(f"op '{name}'", f"has an impossible window: {self}")
        rows, columns = height + top + bottom - self.extent[0], width + left + right - self.extent[1]
        if rows < 0 or columns < 0:
            raise ModelError(f"op '{name}'", f"has a {self.kernel} window that does not fit its {height}x{width} input")
        return rows // self.stride[0] + 1, columns // self.stride[1] + 1

    def pad(self, x: Array, value: int = 0) -> Array:
        """Return x (B, H, W, C) with this window's padding around it, filled with `value`."""
        if not any(self.padding):
            return x
        top, bottom, left, right = self.padding
        return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)

    def view(self, padded: Array) -> Array:
        """Return all windows of `padded` (B, H, W, C) as a NumPy view (B, OH, OW, KH, KW, C), without copying."""
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.extent, axis=(1, 2))
        windows = windows[:, :: self.stride[0], :: self.stride[1], :, :: self.dilation[0], :: self.dilation[1]]
        return np.moveaxis(windows, 3, 5)

    @classmethod
    def same(
        cls, size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
    ) -> Window:
        """Return a window with TensorFlow's SAME padding for an input of `size`.

        It gives `ceil(size / stride)` outputs per axis. An odd padding has one more position after the input than
        before it.
        """
        padding: list[int] = []
        for extent, k, s, d in zip(size, kernel, stride, dilation, strict=True):
            total = max(0, (-(-extent // s) - 1) * s + (k - 1) * d + 1 - extent) if s > 0 else 0
            padding += [total // 2, total - total // 2]
        return cls(kernel, stride, (padding[0], padding[1], padding[2], padding[3]), dilation)
