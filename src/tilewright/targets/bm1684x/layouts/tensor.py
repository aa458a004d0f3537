"""Operands: where in memory each element of a logical array lies.

Strided tensors, tensors seen as matrices, and operands of the cube: matrices whose columns are spread over lanes, and
weights of convolutions.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.targets.bm1684x.config import ADDRESS_END, LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Drawn, Shape, Stride
from tilewright.targets.bm1684x.values.dtypes import DType

#: Largest size of a dimension: the device API.
LARGEST = 65535


def sizes_of(shape: tuple[int, ...], dtype: DType) -> Shape:
    """Four sizes, and a type. Raises InputError for anything else."""
    if not isinstance(dtype, DType):
        raise InputError("tensor", f"its type is {dtype!r}", "give one of tilewright.targets.bm1684x.values.dtypes")
    try:
        n, c, h, w = (operator.index(size) for size in shape)
    except (TypeError, ValueError):
        raise InputError("tensor", f"its shape is {shape!r}", "give four integers: n, c, h, w") from None
    return Shape(n, c, h, w)


@dataclass(frozen=True, repr=False)
class Tensor(Drawn):
    """A strided (n, c, h, w) tensor at a bus address; in local memory channels go from lane to lane.

    Raises InputError for a shape, stride or address that no command can carry.
    """

    address: int
    shape: Shape
    stride: Stride
    dtype: DType
    config: Config

    def __post_init__(self) -> None:
        if not all(1 <= size <= LARGEST for size in self.shape):
            raise InputError("tensor", f"its shape is {tuple(self.shape)}", f"every size must be 1..{LARGEST}")
        if min(self.stride) < 0:
            raise InputError("tensor", f"its stride is {tuple(self.stride)}", "strides must not be negative")
        if not 0 <= self.address < ADDRESS_END or self.address % self.dtype.bytes:
            reason = f"its address is {self.address:#x}"
            raise InputError("tensor", reason, f"give a multiple of {self.dtype.bytes} below {ADDRESS_END:#x}")
        if self.is_local and self.lane_end > self.config.lane_bytes:
            reason = f"it ends at byte {self.lane_end} of a lane, which has {self.config.lane_bytes}"
            raise InputError("tensor", reason, "make it smaller, or begin lower")

    @classmethod
    def local(
        cls, start: int, offset: int, shape: tuple[int, ...], dtype: DType, config: Config, kind: str = "aligned"
    ) -> Tensor:
        """In local memory from byte `offset` of lane `start` on, in one of layout.LAYOUTS. Raises InputError."""
        if kind not in layout.LAYOUTS:
            raise InputError("layout", f"there is no layout '{kind}'", f"choose one of {', '.join(layout.LAYOUTS)}")
        sizes = sizes_of(shape, dtype)
        return cls.free(start, offset, sizes, layout.LAYOUTS[kind](sizes, dtype, start, config), dtype, config)

    @classmethod
    def free(
        cls, start: int, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], dtype: DType, config: Config
    ) -> Tensor:
        """In local memory, with strides of its own. Raises InputError."""
        if not 0 <= start < config.lanes or not 0 <= offset < config.lane_bytes:
            reason = f"lane {start}, offset {offset} is outside {config.lanes} lanes of {config.lane_bytes} bytes"
            raise InputError("tensor", reason)
        address = LOCAL_BASE + start * config.lane_bytes + offset
        return cls(address, Shape(*shape), Stride(*stride), dtype, config)

    @classmethod
    def ddr(cls, address: int, shape: tuple[int, ...], dtype: DType, config: Config) -> Tensor:
        """Without gaps, outside of local memory."""
        sizes = sizes_of(shape, dtype)
        return cls(address, sizes, layout.continuous(sizes), dtype, config)

    @property
    def storage(self) -> Tensor:
        return self

    @property
    def is_local(self) -> bool:
        return LOCAL_BASE <= self.address < LOCAL_BASE + self.config.local_bytes

    @property
    def start_lane(self) -> int:
        return (self.address - LOCAL_BASE) // self.config.lane_bytes

    @property
    def lane_offset(self) -> int:
        """Byte offset within a lane of local memory."""
        return (self.address - LOCAL_BASE) % self.config.lane_bytes

    @cached_property
    def addresses(self) -> Array:
        """Bus address of every element, int64 (n, c, h, w)."""
        n, c, h, w = (np.arange(size, dtype=np.int64) for size in self.shape)
        return self._address_of(n[:, None, None, None], c[:, None, None], h[:, None], w)

    def _address_of(self, n: Array | int, c: Array | int, h: Array | int, w: Array | int) -> Array:
        """Where elements lie, by index."""
        base, lane, slot = self.address, np.zeros(1, np.int64), np.asarray(c)
        if self.is_local:
            slot, lane = np.divmod(self.start_lane + slot, self.config.lanes)
            base = LOCAL_BASE + self.lane_offset
        elements = n * self.stride.n + slot * self.stride.c + h * self.stride.h + w * self.stride.w
        return base + lane * self.config.lane_bytes + elements * self.dtype.bytes

    @property
    def lane_end(self) -> int:
        """One past the highest byte that it has in a lane."""
        n, c, h, w = self.shape
        last = Shape(n, layout.slots(self.start_lane, c, self.config), h, w)
        elements = sum((size - 1) * stride for size, stride in zip(last, self.stride, strict=True))
        return self.lane_offset + (elements + 1) * self.dtype.bytes

    def __getitem__(self, index: slice | tuple[slice, ...]) -> Tensor:
        """A part of it, in place: one slice without a step for each of n, c, h, w (left out: all).

        Raises InputError for an empty part.
        """
        slices = index if isinstance(index, tuple) else (index,)
        if wrong := [part for part in slices if not isinstance(part, slice)]:
            raise InputError("tensor", f"{wrong[0]!r} is no range", "every axis stays: give begin:end")
        ranges = [s.indices(size) for s, size in zip((*slices, *[slice(None)] * 4), self.shape, strict=False)]
        if any(step != 1 or stop <= begin for begin, stop, step in ranges):
            raise InputError("tensor", "a part of it is empty or has a step", "give begin:end")
        n, c, h, w = (begin for begin, _, _ in ranges)
        first = int(self._address_of(n, c, h, w).flat[0])
        return replace(self, address=first, shape=Shape(*(stop - begin for begin, stop, _ in ranges)))

    def with_shape(self, *shape: int) -> Tensor:
        """The same strides over other sizes."""
        return replace(self, shape=Shape(*shape))

    def over(self, n: int, c: int, h: int, w: int) -> Tensor:
        """Its elements over a larger shape: axes of size 1 repeat; so do channels, where they fill all lanes.

        Raises InputError for another axis, and for one channel of local memory over many: it lies in one lane only.
        """
        sizes, strides = list(self.shape), list(self.stride)
        for axis, (size, new) in enumerate(zip(self.shape, (n, c, h, w), strict=True)):
            lanes = self.is_local and axis == 1
            fills = self.config.lanes if lanes and self.start_lane == 0 else 1 - lanes
            if new != size and (new < size or size != fills):
                reason = f"its {'nchw'[axis]} is {size}, which does not repeat to {new}"
                remedy = "give every lane its own (npu_bcast, dma_broadcast)" if lanes else "repeat an axis of size 1"
                raise InputError("tensor", reason, remedy)
            if new != size:
                sizes[axis], strides[axis] = new, 0
        return replace(self, shape=Shape(*sizes), stride=Stride(*strides))

    def split(self, width: int) -> Tensor:
        """Rows of one height as rows of `width`: (n, c, 1, W) as (n, c, W / width, width). Raises InputError."""
        n, c, h, w = self.shape
        if h != 1 or width < 1 or w % width:
            raise InputError("tensor", f"a height of {h} and {w} columns", f"no rows of {width} can be made of it")
        stride = self.stride._replace(h=width * self.stride.w)
        return replace(self, shape=Shape(n, c, w // width, width), stride=stride)

    def transposed_hw(self) -> Tensor:
        """With h and w exchanged, in place."""
        (n, c, h, w), (ns, cs, hs, ws) = self.shape, self.stride
        return replace(self, shape=Shape(n, c, w, h), stride=Stride(ns, cs, ws, hs))

    def typed(self, dtype: DType) -> Tensor:
        """Another type in its place: the same bits where the size is the same, else a new aligned tensor."""
        if dtype.bytes == self.dtype.bytes:
            return replace(self, dtype=dtype)
        return Tensor.local(self.start_lane, self.lane_offset, self.shape, dtype, self.config)

    def resized(self, *shape: int) -> Tensor:
        """An aligned tensor of another shape in its place. Raises InputError where it does not fit there."""
        made = Tensor.local(self.start_lane, self.lane_offset, shape, self.dtype, self.config)
        if made.lane_end > self.lane_end:
            reason = f"{shape} takes {made.lane_end - self.lane_offset} bytes of a lane"
            raise InputError("tensor", reason, f"there are {self.lane_end - self.lane_offset}: make it smaller")
        return made

    def rows(self) -> Rows:
        """As a matrix whose rows are its channels: for n and h of 1."""
        return Rows(self)

    def grid(self) -> Grid:
        """As a matrix of its h and w: for n and c of 1, outside of local memory."""
        return Grid(self)


@dataclass(frozen=True, repr=False)
class View(Drawn):
    """The elements of a tensor, in their order, in another shape."""

    axes: ClassVar[tuple[str, ...]] = ("row", "column")
    stride: ClassVar[None] = None
    storage: Tensor

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    def config(self) -> Config:
        return self.storage.config

    @property
    def dtype(self) -> DType:
        return self.storage.dtype

    @cached_property
    def addresses(self) -> Array:
        return self.storage.addresses.reshape(self.shape)


class Rows(View):
    """A (rows, columns) matrix whose rows go from lane to lane: the tensor (1, rows, 1, columns)."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.storage.shape.c, self.storage.shape.w


class Grid(View):
    """A (rows, columns) matrix outside of local memory: the tensor (1, 1, rows, columns)."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.storage.shape.h, self.storage.shape.w


class Flat(View):
    """The elements of a tensor in NCHW order, shape (elements,): what the sorting engine sees."""

    axes: ClassVar[tuple[str, ...]] = ("element",)

    @property
    def shape(self) -> tuple[int]:
        return (self.storage.shape.elements,)


@dataclass(frozen=True, repr=False)
class Matrix(View):
    """A (rows, columns) matrix in local memory: `width` columns to a channel, as the tensor of `storage`'s shape
    (rows, ceil(columns / width), 1, width)."""

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
        return self.config.cube_group(self.dtype.bytes)

    @cached_property
    def storage(self) -> Tensor:
        """What a copy moves: (1, oc, groups * kh * kw, group), one row an input group and tap."""
        oc, ic, kh, kw = self.shape
        rows = -(-ic // self.group) * kh * kw
        strides = Stride(0, rows * self.group, self.group, 1)
        return Tensor(self.address, Shape(1, oc, rows, self.group), strides, self.dtype, self.config)

    @cached_property
    def addresses(self) -> Array:
        _, ic, kh, kw = self.shape
        i = np.arange(ic, dtype=np.int64)
        row = (i // self.group * (kh * kw))[:, None, None] + np.arange(kh * kw, dtype=np.int64).reshape(kh, kw)
        return self.storage.addresses[0][:, row, (i % self.group)[:, None, None]]


def packed(weights: Array, dtype: DType, config: Config) -> Array:
    """Weights (oc, ic, kh, kw) in the order of ConvWeights.storage; channels that fill up a group are 0."""
    oc, ic, kh, kw = weights.shape
    group = config.cube_group(dtype.bytes)
    full = np.pad(weights, ((0, 0), (0, -ic % group), (0, 0), (0, 0)))
    return np.ascontiguousarray(full.reshape(oc, -1, group, kh * kw).transpose(0, 1, 3, 2).reshape(1, oc, -1, group))
