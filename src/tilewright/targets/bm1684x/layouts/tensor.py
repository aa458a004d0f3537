"""The operands of commands, which map the elements of a logical array to memory.

An operand has a shape, a type and the bus address of every element. Commands read and write at these addresses, and
footprints and drawings are computed from them. There are four kinds of operands: strided tensors, tensors viewed as
matrices, matrices with columns spread over lanes, and convolution weights. The cube (matrix unit) reads the last two
kinds.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, one_of
from tilewright.targets.bm1684x.config import ADDRESS_END, LOCAL_BASE, Config
from tilewright.targets.bm1684x.layouts import drawing, layout
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.values.dtypes import DType

#: The largest size along an axis in the device API.
LARGEST = 65535


class Operand(Protocol):
    """The interface of tensors, matrices and weights."""

    axes: ClassVar[tuple[str, ...]]

    @property
    def config(self) -> Config: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def stride(self) -> Stride | None: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def addresses(self) -> Array: ...
    @property
    def storage(self) -> Tensor:
        """The tensor that contains the elements (for a tensor: itself)."""


class Drawable:
    """The base class of operands that can be drawn: by `explain()` as text, and by `svg()` as a picture."""

    axes: ClassVar[tuple[str, ...]] = ("n", "c", "h", "w")

    def __repr__(self: Operand) -> str:
        return f"{type(self).__name__}({title(self)})"

    @property
    def lane_end(self: Operand) -> int:
        return self.storage.lane_end

    def explain(self: Operand) -> str:
        """Draw the operand as text, a line for each run of elements. Raises InputError if it cannot be drawn."""
        return drawing.text(title(self), self.axes, self.addresses, self.dtype, self.config)

    def svg(self: Operand) -> str:
        """Draw the operand as SVG: one box per element. Raises InputError if the operand cannot be drawn."""
        return drawing.svg(title(self), self.axes, self.addresses, self.dtype, self.config)


def title(operand: Operand) -> str:
    first = int(operand.addresses.flat[0])
    named = "oc" in operand.axes  # names the axes, because frameworks order them differently
    sizes = (f"{axis} {size}" if named else str(size) for axis, size in zip(operand.axes, operand.shape, strict=True))
    text = f"{operand.dtype} ({', '.join(sizes)})"
    if operand.stride:
        n, c, h, w = operand.stride
        text += f": strides n {n}, c {c}, h {h}, w {w} elements"
    if not LOCAL_BASE <= first < LOCAL_BASE + operand.config.local_bytes:
        return f"{text}; at {first:#x}"
    start, offset = divmod(first - LOCAL_BASE, operand.config.lane_bytes)
    return f"{text}; from lane {start}, byte {offset:#x}; {operand.config.lanes} lanes"


def sizes_of(shape: tuple[int, ...], dtype: DType) -> Shape:
    """Return `shape` as a Shape. Raises InputError if `shape` is not four integers, or `dtype` is not a DType."""
    if not isinstance(dtype, DType):
        raise InputError("tensor", f"its type is {dtype!r}", "give one of tilewright.targets.bm1684x.values.dtypes")
    try:
        n, c, h, w = (operator.index(size) for size in shape)
    except (TypeError, ValueError):
        raise InputError("tensor", f"its shape is {shape!r}", "give four integers: n, c, h, w") from None
    return Shape(n, c, h, w)


@dataclass(frozen=True, repr=False)
class Tensor(Drawable):
    """A strided (n, c, h, w) tensor at a bus address. In local memory consecutive channels lie in consecutive lanes.

    Raises InputError for a shape, stride or address that no command can encode.
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
            reason = f"it ends at byte {self.lane_end} of a lane, which has {self.config.lane_bytes} bytes"
            raise InputError("tensor", reason, "make it smaller, or begin at a lower offset")

    @classmethod
    def local(
        cls, start: int, offset: int, shape: tuple[int, ...], dtype: DType, config: Config, kind: str = "aligned"
    ) -> Tensor:
        """Return a tensor at byte `offset` of lane `start` of local memory, in the layout `kind` of layout.LAYOUTS.

        Raises InputError if the layout is unknown, if it cannot begin at this offset, or if the tensor does not fit.
        """
        if kind not in layout.LAYOUTS:
            raise InputError("layout", f"there is no layout '{kind}'", one_of(kind, layout.LAYOUTS))
        sizes = sizes_of(shape, dtype)
        if reason := layout.off_grid(kind, start * config.lane_bytes + offset, config):
            raise InputError(f"tensor {dtype} {tuple(sizes)}", reason, "give such an offset, or strides (layout free)")
        return cls.free(start, offset, sizes, layout.LAYOUTS[kind](sizes, dtype, start, config), dtype, config)

    @classmethod
    def free(
        cls, start: int, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], dtype: DType, config: Config
    ) -> Tensor:
        """Return a tensor in local memory with the given strides. Raises InputError if the tensor does not fit."""
        if not 0 <= start < config.lanes or not 0 <= offset < config.lane_bytes:
            reason = f"lane {start}, offset {offset} is outside {config.lanes} lanes of {config.lane_bytes} bytes"
            raise InputError("tensor", reason)
        address = LOCAL_BASE + start * config.lane_bytes + offset
        return cls(address, Shape(*shape), Stride(*stride), dtype, config)

    @classmethod
    def ddr(cls, address: int, shape: tuple[int, ...], dtype: DType, config: Config) -> Tensor:
        """Return a tensor without gaps in another memory. Raises InputError for an illegal shape or address."""
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
        return (self.address - LOCAL_BASE) % self.config.lane_bytes

    @cached_property
    def addresses(self) -> Array:
        """The bus address of every element, int64 (n, c, h, w)."""
        n, c, h, w = (np.arange(size, dtype=np.int64) for size in self.shape)
        return self._address_of(n[:, None, None, None], c[:, None, None], h[:, None], w)

    def _address_of(self, n: Array | int, c: Array | int, h: Array | int, w: Array | int) -> Array:
        base = self.address
        lane = np.zeros(1, np.int64)
        slot = np.asarray(c)
        # In local memory, the channel determines the lane and the slot, and `stride.c` is the distance between slots.
        # All other memories count as one lane.
        if self.is_local:
            slot, lane = np.divmod(self.start_lane + slot, self.config.lanes)
            base = LOCAL_BASE + self.lane_offset
        elements = n * self.stride.n + slot * self.stride.c + h * self.stride.h + w * self.stride.w
        return base + lane * self.config.lane_bytes + elements * self.dtype.bytes

    @property
    def slots(self) -> int:
        """The number of slots of a tensor in local memory: the largest number of its channels in any lane."""
        return layout.slots(self.start_lane, self.shape.c, self.config)

    @property
    def spans(self) -> Iterator[tuple[int, int, int]]:
        """For each slot of a tensor in local memory: its first channel, its first lane, and one past its last lane."""
        channel = 0
        lane = self.start_lane
        while channel < self.shape.c:
            end = min(self.config.lanes, lane + self.shape.c - channel)
            yield channel, lane, end
            channel = channel + end - lane
            lane = 0

    @property
    def runs(self) -> tuple[int, int]:
        """The number of contiguous runs per channel, and the length of a run in elements (with gaps along w)."""
        _, _, h, w = self.shape
        across = (w - 1) * self.stride.w + 1
        if h == 1 or self.stride.h == 0:
            return 1, across
        return (1, h * w) if self.stride.w == 1 and self.stride.h == w else (h, across)

    @property
    def lane_end(self) -> int:
        """One past the highest byte of the tensor, as an offset in a lane."""
        last = self.shape._replace(c=self.slots)
        elements = sum((size - 1) * stride for size, stride in zip(last, self.stride, strict=True))
        return self.lane_offset + (elements + 1) * self.dtype.bytes

    def __getitem__(self, index: slice | tuple[slice, ...]) -> Tensor:
        """Return a part of the tensor as a view.

        The index has one slice begin:end per axis, and an omitted slice selects the whole axis. Raises InputError for
        an index that is not a slice, and for a slice that is empty or has a step.
        """
        slices = index if isinstance(index, tuple) else (index,)
        if wrong := [part for part in slices if not isinstance(part, slice)]:
            raise InputError("tensor", f"{wrong[0]!r} is not a slice", "every axis stays: give begin:end for each")
        ranges = [s.indices(size) for s, size in zip((*slices, *[slice(None)] * 4), self.shape, strict=False)]
        if any(step != 1 or stop <= begin for begin, stop, step in ranges):
            raise InputError("tensor", "a slice is empty or has a step", "give begin:end")
        n, c, h, w = (begin for begin, _, _ in ranges)
        # A view has the same strides; only the address and the shape change.
        first = int(self._address_of(n, c, h, w).flat[0])
        return replace(self, address=first, shape=Shape(*(stop - begin for begin, stop, _ in ranges)))

    def with_shape(self, *shape: int) -> Tensor:
        return replace(self, shape=Shape(*shape))

    def over(self, n: int, c: int, h: int, w: int) -> Tensor:
        """Broadcast the tensor to a larger shape.

        Only two kinds of axes can repeat: axes of size 1, and channels in local memory that fill all lanes. Raises
        InputError if another axis would repeat. A single channel in local memory cannot repeat, because only one lane
        stores this channel.
        """
        sizes = list(self.shape)
        strides = list(self.stride)
        for axis, (size, new) in enumerate(zip(self.shape, (n, c, h, w), strict=True)):
            # Along c, a stride of 0 repeats a whole slot, and each lane reads its own channel of the slot. Channels can
            # therefore repeat only if they fill all lanes.
            lanes = self.is_local and axis == 1
            fills = self.config.lanes if lanes and self.start_lane == 0 else 1 - lanes
            if new != size and (new < size or size != fills):
                reason = f"its {'nchw'[axis]} is {size}, which does not repeat to {new}"
                remedy = "give every lane a copy (npu_bcast, dma_broadcast)" if lanes else "repeat an axis of size 1"
                raise InputError("tensor", reason, remedy)
            if new != size:
                sizes[axis] = new
                strides[axis] = 0
        return replace(self, shape=Shape(*sizes), stride=Stride(*strides))

    def split(self, width: int) -> Tensor:
        """View the tensor (n, c, 1, W) as (n, c, W / width, width). Raises InputError for other shapes."""
        n, c, h, w = self.shape
        if h != 1 or width < 1 or w % width:
            reason = f"{h} rows of {w} columns cannot be split into rows of {width}"
            raise InputError("tensor", reason, "give one row and a divisor of its width")
        stride = self.stride._replace(h=width * self.stride.w)
        return replace(self, shape=Shape(n, c, w // width, width), stride=stride)

    def transposed_hw(self) -> Tensor:
        n, c, h, w = self.shape
        ns, cs, hs, ws = self.stride
        return replace(self, shape=Shape(n, c, w, h), stride=Stride(ns, cs, ws, hs))

    def typed(self, dtype: DType) -> Tensor:
        """Return a tensor of another type at the same address.

        The strides are the same if the types have the same width. Otherwise the new tensor has the layout `aligned`.
        """
        if dtype.bytes == self.dtype.bytes:
            return replace(self, dtype=dtype)
        return Tensor.local(self.start_lane, self.lane_offset, self.shape, dtype, self.config)

    def resized(self, *shape: int) -> Tensor:
        """Return an aligned tensor of another shape at this address. Raises InputError if the shape is too large."""
        resized = Tensor.local(self.start_lane, self.lane_offset, shape, self.dtype, self.config)
        if resized.lane_end > self.lane_end:
            reason = f"{shape} needs {resized.lane_end - self.lane_offset} bytes of a lane"
            raise InputError("tensor", reason, f"give a shape of at most {self.lane_end - self.lane_offset} bytes")
        return resized

    def rows(self) -> Rows:
        """View the tensor as a matrix with one row per channel. n and h must be 1."""
        return Rows(self)

    def grid(self) -> Grid:
        """View the tensor, which must be outside of local memory, as a matrix (h, w). n and c must be 1."""
        return Grid(self)


@dataclass(frozen=True, repr=False)
class View(Drawable):
    """The base class of operands that view a tensor in another shape, with the elements in the same order."""

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
    """A (rows, columns) matrix with consecutive rows in consecutive lanes, stored as a tensor (1, rows, 1, columns)."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.storage.shape.c, self.storage.shape.w


class Grid(View):
    """A (rows, columns) matrix outside of local memory, stored as a tensor (1, 1, rows, columns)."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.storage.shape.h, self.storage.shape.w


class Flat(View):
    """All elements of a tensor as one axis, in NCHW order, as the sorting engine reads them."""

    axes: ClassVar[tuple[str, ...]] = ("element",)

    @property
    def shape(self) -> tuple[int]:
        return (self.storage.shape.elements,)


@dataclass(frozen=True, repr=False)
class Matrix(View):
    """A (rows, columns) matrix in local memory, stored as a tensor (rows, ceil(columns / width), 1, width)."""

    columns: int

    @classmethod
    def local(cls, start: int, offset: int, shape: tuple[int, int], width: int, dtype: DType, config: Config) -> Matrix:
        """Return an aligned matrix at byte `offset` of lane `start`. Raises InputError if it does not fit."""
        rows, columns = shape
        if not 1 <= width <= columns:
            raise InputError("matrix", f"its width is {width} columns per channel", f"give 1..{columns}")
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
class ConvWeights(Drawable):
    """Convolution weights (oc, ic, kh, kw) in local memory.

    The layout is 64IC for 8-bit weights, 32IC for 16-bit weights, and compact for f32 weights. Consecutive output
    channels lie in consecutive lanes. Input channels lie in groups, each as wide as the matrix unit.
    """

    axes: ClassVar[tuple[str, ...]] = ("oc", "ic", "kh", "kw")
    stride: ClassVar[None] = None
    address: int
    shape: tuple[int, int, int, int]
    dtype: DType
    config: Config

    @property
    def group(self) -> int:
        """The number of input channels whose weights are adjacent in memory."""
        return self.config.cube_group(self.dtype.bytes)

    @cached_property
    def storage(self) -> Tensor:
        """The weights as a tensor (1, oc, groups * kh * kw, group): a row per group of input channels and per tap."""
        shape = self.storage_shape
        return Tensor(self.address, shape, Stride(0, shape.h * shape.w, shape.w, 1), self.dtype, self.config)

    @property
    def storage_shape(self) -> Shape:
        oc, ic, kh, kw = self.shape
        return Shape(1, oc, -(-ic // self.group) * kh * kw, self.group)

    @cached_property
    def addresses(self) -> Array:
        return self.unpacked(self.storage.addresses)

    def unpacked(self, stored: Array) -> Array:
        """Reorder values from storage order to (oc, ic, kh, kw), without the padding of the last group."""
        oc, ic, kh, kw = self.shape
        # The order in memory is: output channel, group of input channels, tap, input channel within the group (64IC,
        # 32IC).
        grouped = stored.reshape(oc, -1, kh, kw, self.group)
        return grouped.transpose(0, 1, 4, 2, 3).reshape(oc, -1, kh, kw)[:, :ic]


def packed(weights: Array, dtype: DType, config: Config) -> Array:
    """Reorder weights (oc, ic, kh, kw) to the shape of ConvWeights.storage. Groups are padded with 0."""
    oc, ic, kh, kw = weights.shape
    weights_in_lanes = ConvWeights(LOCAL_BASE, (oc, ic, kh, kw), dtype, config)
    storage = np.zeros(weights_in_lanes.storage_shape, weights.dtype)
    storage.reshape(-1)[weights_in_lanes.unpacked(np.arange(storage.size))] = weights
    return storage
