"""Where the elements of a tensor lie in memory: an index map with a shape.

A placement is declared once, as steps that arrange the elements; what moves or looks for elements follows from it:

    tiles = Placement.of((rows, columns, channels)).split(2, 16).transpose(2, 0, 1, 3)
    tiles.pack(codes)                 the bytes of memory, (S samples, bytes)
    tiles.unpack(memory)              the tensor's values in these bytes
    tiles.where                       the byte offsets of each element
    tiles.index_of(offset)            the element at a byte of memory

The last arrangement lies in memory in C order; one position of it is a slot. Slots that no element fills are padding.
An element may lie in several slots (`take`), or in none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from tilewright.array import Array, ascending

Shape = tuple[int, ...]
#: Stands for "no slot" or "no element".
NOWHERE = -1


@dataclass(frozen=True)
class _Pad:
    """Surrounds the elements with (before, after) slots along each axis, which hold `value`."""

    widths: tuple[tuple[int, int], ...]
    value: int

    def shape(self, shape: Shape) -> Shape:
        return tuple(before + size + after for size, (before, after) in zip(shape, self.widths, strict=True))

    def arrange(self, values: Array, value: int | None) -> Array:
        padded = np.full(
            (len(values), *self.shape(values.shape[1:])), self.value if value is None else value, values.dtype
        )
        self._inside(padded, values.shape[1:])[...] = values
        return padded

    def collect(self, arranged: Array, shape: Shape) -> Array:
        return self._inside(arranged, shape)

    def _inside(self, arranged: Array, shape: Shape) -> Array:
        spans = zip(self.widths, shape, strict=True)
        return arranged[:, *(slice(before, before + size) for (before, _), size in spans)]


@dataclass(frozen=True)
class _Reshape:
    """Splits and joins axes, in C order."""

    to: Shape

    def shape(self, shape: Shape) -> Shape:
        return self.to

    def arrange(self, values: Array, value: int | None) -> Array:
        return values.reshape(len(values), *self.to)

    def collect(self, arranged: Array, shape: Shape) -> Array:
        return arranged.reshape(len(arranged), *shape)


@dataclass(frozen=True)
class _Transpose:
    """Puts axis `axes[i]` in place i."""

    axes: tuple[int, ...]

    def shape(self, shape: Shape) -> Shape:
        return tuple(shape[axis] for axis in self.axes)

    def arrange(self, values: Array, value: int | None) -> Array:
        return values.transpose(0, *(axis + 1 for axis in self.axes))

    def collect(self, arranged: Array, shape: Shape) -> Array:
        return arranged.transpose(0, *(self.axes.index(axis) + 1 for axis in range(len(self.axes))))


@dataclass(frozen=True, eq=False)
class _Take:
    """Takes the elements `index` along an axis; the axes of `index` have its place."""

    axis: int
    index: Array

    def shape(self, shape: Shape) -> Shape:
        return (*shape[: self.axis], *self.index.shape, *shape[self.axis + 1 :])

    def arrange(self, values: Array, value: int | None) -> Array:
        taken: Array = np.take(values, self.index, axis=self.axis + 1)
        return taken

    def collect(self, arranged: Array, shape: Shape) -> Array:
        kept = np.zeros((len(arranged), *shape), arranged.dtype)
        kept[(slice(None),) * (self.axis + 1) + (self.index,)] = arranged
        return kept


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the elements of a tensor of `shape` lie in memory. `slots`: the extents of the last arrangement.

    An element has the type `dtype`. Its bytes lie side by side, the lowest first; or, if `planes` is not 0, in as many
    planes, the lowest first: a plane has one byte for each slot. Higher bytes than those of the planes are the sign.
    """

    shape: Shape
    slots: Shape
    dtype: np.dtype[np.generic]
    planes: int = 0
    steps: tuple[_Pad | _Reshape | _Transpose | _Take, ...] = ()

    @classmethod
    def of(cls, shape: Sequence[int], dtype: str = "int8", planes: int = 0) -> Placement:
        """Return the placement of a tensor whose elements lie in C order."""
        return cls(tuple(shape), tuple(shape), np.dtype(dtype), planes)

    def pad(self, *widths: tuple[int, int], value: int = 0) -> Placement:
        """Add (before, after) slots along each axis; `value` is what they hold."""
        return self._then(_Pad(widths, value)) if any(map(any, widths)) else self

    def reshape(self, *shape: int) -> Placement:
        """Split and join axes in C order. Raises ValueError if the number of slots would change."""
        if prod(shape) != prod(self.slots):
            raise ValueError(f"{self.slots} slots do not make {shape}")
        return self._then(_Reshape(shape))

    def split(self, axis: int, size: int) -> Placement:
        """Cut an axis into two, parts and their `size` elements; the last part is padded with zeros."""
        extent = self.slots[axis]
        widths = [(0, 0)] * len(self.slots)
        widths[axis] = 0, -extent % size
        return self.pad(*widths).reshape(*self.slots[:axis], -(-extent // size), size, *self.slots[axis + 1 :])

    def transpose(self, *axes: int) -> Placement:
        """Put axis `axes[i]` in place i."""
        return self._then(_Transpose(axes))

    def take(self, axis: int, index: Array) -> Placement:
        """Keep the elements `index` along an axis, in that order. Several axes of `index` replace the one."""
        return self._then(_Take(axis, index))

    def _then(self, step: _Pad | _Reshape | _Transpose | _Take) -> Placement:
        return replace(self, slots=step.shape(self.slots), steps=(*self.steps, step))

    @property
    def nbytes(self) -> int:
        """The size of the memory, in bytes."""
        return prod(self.slots) * (self.planes or self.dtype.itemsize)

    def arrange(self, values: Array, padding: int | None = None) -> Array:
        """Return values (S, *shape) of any type in their slots, (S, *slots). `padding` replaces what pads hold."""
        for step in self.steps:
            values = step.arrange(values, padding)
        return values

    def collect(self, arranged: Array) -> Array:
        """Return the tensor (S, *shape) whose values lie in slots, (S, *slots): 0 for elements that are in none."""
        if self._repeats:  # of several slots, a later step may have kept any
            values = arranged.reshape(len(arranged), -1)[:, self.slot]
            return np.where(self.slot == NOWHERE, 0, values)
        for step, shape in zip(reversed(self.steps), reversed(self._shapes), strict=True):
            arranged = step.collect(arranged, shape)
        return arranged

    @cached_property
    def _repeats(self) -> bool:
        """Whether an element may lie in several slots."""
        taken = (step.index for step in self.steps if isinstance(step, _Take))
        return any(len(ascending(index)) < index.size for index in taken)

    @cached_property
    def _shapes(self) -> list[Shape]:
        """The extents before each step."""
        shapes = [self.shape]
        for step in self.steps:
            shapes.append(step.shape(shapes[-1]))
        return shapes[:-1]

    def pack(self, values: Array) -> Array:
        """Return the bytes of memory, uint8 (S, bytes), for the values (S, *shape) of S samples."""
        arranged = np.ascontiguousarray(self.arrange(values), self.dtype).reshape(len(values), -1)
        raw = arranged.view(np.uint8)
        if not self.planes:
            return raw
        in_planes = raw.reshape(len(raw), -1, self.dtype.itemsize)[:, :, : self.planes].swapaxes(1, 2)
        return np.ascontiguousarray(in_planes).reshape(len(raw), -1)

    def unpack(self, memory: Array) -> Array:
        """Return the values (S, *shape) that lie in the bytes of memory, uint8 (S, bytes)."""
        return self.collect(self.read(memory))

    def read(self, memory: Array) -> Array:
        """Return the value of each slot, (S, *slots), from the bytes of memory, uint8 (S, bytes)."""
        if not self.planes:
            return np.ascontiguousarray(memory).view(self.dtype).reshape(len(memory), *self.slots)
        planes = memory.reshape(len(memory), self.planes, *self.slots)
        values: Array = planes[:, -1].view(np.int8).astype(self.dtype)
        for plane in range(self.planes - 2, -1, -1):
            values <<= 8
            values |= planes[:, plane]
        return values

    @cached_property
    def element(self) -> Array:
        """The flat index of the element in each slot, int64 [slots]; NOWHERE in padding."""
        numbers = np.arange(1, prod(self.shape) + 1).reshape(1, *self.shape)
        return self.arrange(numbers, padding=0).reshape(-1) - 1

    @cached_property
    def slot(self) -> Array:
        """The slot of each element, int64 [*shape]: the first of several, NOWHERE for none."""
        first = np.full(prod(self.shape), NOWHERE)
        filled = np.flatnonzero(self.element != NOWHERE)[::-1]  # the first slot is written last
        first[self.element[filled]] = filled
        return first.reshape(self.shape)

    @property
    def where(self) -> Array:
        """The offset in memory of each byte of each element, the lowest first: int64 [*shape, bytes of an element].

        NOWHERE for an element that is in no slot.
        """
        slot = self.slot[..., None]
        if self.planes:
            offset = slot + prod(self.slots) * np.arange(self.planes)
        else:
            offset = slot * self.dtype.itemsize + np.arange(self.dtype.itemsize)
        return np.where(slot == NOWHERE, NOWHERE, offset)

    def index_of(self, offset: int) -> tuple[int, ...] | None:
        """Return the index of the element of which a byte lies at `offset`; None in padding."""
        slot = offset % prod(self.slots) if self.planes else offset // self.dtype.itemsize
        element = int(self.element[slot])
        return None if element == NOWHERE else tuple(int(at) for at in np.unravel_index(element, self.shape))
