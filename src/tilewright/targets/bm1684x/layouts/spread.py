"""Operands of the cube: matrices whose columns are spread over lanes, and weights of convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.operand import Drawn
from tilewright.targets.bm1684x.layouts.tensor import Tensor, View
from tilewright.targets.bm1684x.values.dtypes import F32, DType


@dataclass(frozen=True, repr=False)
class Matrix(View):
    """A (rows, columns) matrix in local memory: `width` columns to a channel, as the tensor of `storage`'s shape
    (rows, ceil(columns / width), 1, width)."""

    axes: ClassVar[tuple[str, ...]] = ("row", "column")
    columns: int

    @classmethod
    def local(cls, start: int, offset: int, shape: tuple[int, int], width: int, dtype: DType, config: Config) -> Matrix:
        """In the aligned layout. A vector is a matrix of one row. Raises InputError."""
        rows, columns = shape
        if not 1 <= width <= columns:
            raise InputError("matrix", f"{width} columns a channel", f"give 1..{columns}")
        channels = -(-columns // width)
        return cls(Tensor.local(start, offset, (rows, channels, 1, width), dtype, config), columns)

    @property
    def lane_end(self) -> int:
        return self.storage.lane_end

    @property
    def shape(self) -> tuple[int, int]:
        return self.storage.shape.n, self.columns

    @cached_property
    def addresses(self) -> Array:
        rows = self.storage.shape.n
        return self.storage.addresses.reshape(rows, -1)[:, : self.columns]


@dataclass(frozen=True, repr=False)
class ConvWeights(Drawn):
    """Convolution weights (oc, ic, kh, kw) in local memory: 64IC (8-bit), 32IC (16-bit) or compact (f32).

    Output channels go from lane to lane; input channels lie side by side in groups as wide as the cube.
    """

    axes: ClassVar[tuple[str, ...]] = ("oc", "ic", "kh", "kw")
    stride: ClassVar[None] = None
    address: int
    shape: tuple[int, int, int, int]
    dtype: DType
    config: Config

    @property
    def group(self) -> int:
        """Input channels side by side."""
        return 1 if self.dtype is F32 else self.config.eu_bytes // self.dtype.bytes

    @property
    def storage(self) -> Tensor:
        """What a copy moves: (1, oc, groups * kh * kw, group), one row an input group and tap."""
        oc, ic, kh, kw = self.shape
        rows = -(-ic // self.group) * kh * kw
        strides = Stride(0, rows * self.group, self.group, 1)
        return Tensor(self.address, Shape(1, oc, rows, self.group), strides, self.dtype, self.config)

    @property
    def lane_end(self) -> int:
        return self.storage.lane_end

    @cached_property
    def addresses(self) -> Array:
        _, ic, kh, kw = self.shape
        i = np.arange(ic, dtype=np.int64)
        row = (i // self.group * (kh * kw))[:, None, None] + np.arange(kh * kw, dtype=np.int64).reshape(kh, kw)
        return self.storage.addresses[0][:, row, (i % self.group)[:, None, None]]


def packed(weights: Array, dtype: DType, config: Config) -> Array:
    """Weights (oc, ic, kh, kw) in the order of ConvWeights.storage; channels that fill up a group are 0."""
    oc, ic, kh, kw = weights.shape
    group = ConvWeights(LOCAL_BASE, (oc, ic, kh, kw), dtype, config).group
    full = np.pad(weights, ((0, 0), (0, -ic % group), (0, 0), (0, 0)))
    return np.ascontiguousarray(full.reshape(oc, -1, group, kh * kw).transpose(0, 1, 3, 2).reshape(1, oc, -1, group))
