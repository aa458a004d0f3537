"""The positions of a tensor's elements in memory.

A placement is declared once, as a series of steps that rearrange the elements. Packing, unpacking and lookups are
derived from the steps:

    tiles = Placement.of((rows, columns, channels)).split(2, 16).transpose(2, 0, 1, 3)
    tiles.pack(codes)                 the bytes of memory, (S samples, bytes)
    tiles.unpack(memory)              the values of the tensor
    tiles.where                       the byte offsets of each element

The final arrangement is stored in memory in C order. Its positions are called slots. A slot without an element is
padding. After `take`, an element may be in several slots or in no slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, ascending, in_nibbles, nibbles

Shape = tuple[int, ...]
#: Stands for "no slot" or "no element".
NOWHERE = -1


class _Step(NamedTuple):
    """A step that rearranges values (S, *slots).

    `arrange(values, padding)` applies the step to values; if `padding` is not None, new slots get this value. `collect`
    is the inverse of `arrange`.
    """

    arrange: Callable[[Array, int | None], Array]
    collect: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Placement:
    """The positions of a tensor's elements in memory. `slots` is the shape of the final arrangement.

    `dtype` is the type of the elements. If `planes` is 0, the bytes of an element are adjacent (little-endian).
    Otherwise, memory has one plane for the lowest bytes of all slots, one for the next bytes, and so on. Bytes without
    a plane are filled with the sign. If `repeats`, an element may be in several slots. With `parts` int [planes, n],
    each plane has n equal parts, and part i of plane p is part `parts[p, i]` of memory (NOWHERE: not stored). With
    `bits` = 4, a byte of memory has two elements (or two slots of a plane), and planes have 4 bits.
    """

    shape: Shape
    slots: Shape
    dtype: np.dtype[np.generic]
    planes: int = 0
    steps: tuple[_Step, ...] = ()
    repeats: bool = False
    parts: Array | None = None
    bits: int = 8

    @classmethod
    def of(cls, shape: Sequence[int], dtype: str = "int8", planes: int = 0, bits: int = 8) -> Placement:
        """Return the placement of a tensor in C order."""
        return cls(tuple(shape), tuple(shape), np.dtype(dtype), planes, bits=bits)

    def pad(self, *widths: tuple[int, int], value: int = 0) -> Placement:
        """Add `before` and `after` slots along each axis, which contain `value`."""
        if not any(map(any, widths)):
            return self
        spans = [(before, before + size, after) for size, (before, after) in zip(self.slots, widths, strict=True)]
        slots = tuple(end + after for _, end, after in spans)
        inside = (slice(None), *(slice(before, end) for before, end, _ in spans))

        def arrange(values: Array, padding: int | None) -> Array:
            padded = np.full((len(values), *slots), value if padding is None else padding, values.dtype)
            padded[inside] = values
            return padded

        return self._then(slots, arrange, lambda arranged: arranged[inside])

    def reshape(self, *shape: int) -> Placement:
        """Reshape the slots in C order. Raises ValueError if their number would change."""
        before = self.slots
        if prod(shape) != prod(before):
            raise ValueError(f"{before} slots do not make {shape}")
        return self._then(
            shape,
            lambda values, _: values.reshape(len(values), *shape),
            lambda arranged: arranged.reshape(len(arranged), *before),
        )

    def split(self, axis: int, size: int) -> Placement:
        """Split an axis into parts of `size` elements, as two axes. The last part is padded with zeros."""
        extent = self.slots[axis]
        widths = [(0, 0)] * len(self.slots)
        widths[axis] = 0, -extent % size
        return self.pad(*widths).reshape(*self.slots[:axis], -(-extent // size), size, *self.slots[axis + 1 :])

    def transpose(self, *axes: int) -> Placement:
        """Reorder the axes: axis `axes[i]` becomes axis i."""
        forwards = (0, *(axis + 1 for axis in axes))
        backwards = (0, *(axes.index(axis) + 1 for axis in range(len(axes))))
        return self._then(
            tuple(self.slots[axis] for axis in axes),
            lambda values, _: values.transpose(forwards),
            lambda arranged: arranged.transpose(backwards),
        )

    def take(self, axis: int, index: Array) -> Placement:
        """Select elements along an axis, as np.take does. The axes of `index` replace this axis."""
        before = self.slots

        def collect(arranged: Array) -> Array:
            # An element that was not selected becomes 0.
            values = np.zeros((len(arranged), *before), arranged.dtype)
            values[(slice(None),) * (axis + 1) + (index,)] = arranged
            return values

        slots = (*before[:axis], *index.shape, *before[axis + 1 :])
        placement = self._then(slots, lambda values, _: np.take(values, index, axis=axis + 1), collect)
        return replace(placement, repeats=self.repeats or len(ascending(index)) < index.size)

    def _then(
        self, slots: Shape, arrange: Callable[[Array, int | None], Array], collect: Callable[[Array], Array]
    ) -> Placement:
        return replace(self, slots=slots, steps=(*self.steps, _Step(arrange, collect)))

    @property
    def nbytes(self) -> int:
        values = prod(self.slots) * (self.planes or self.dtype.itemsize)
        if self.parts is not None:
            values = (int(self.parts.max()) + 1) * (prod(self.slots) // self.parts.shape[1])
        return values * self.bits // 8

    def arrange(self, values: Array, padding: int | None = None) -> Array:
        """Arrange values (S, *shape) of any type in slots (S, *slots). `padding` is the value in padding, if given."""
        for step in self.steps:
            values = step.arrange(values, padding)
        return values

    def collect(self, arranged: Array) -> Array:
        """Return the tensor (S, *shape) from values of the slots (S, *slots). Elements without a slot are 0."""
        # The inverse of a `take` that repeats elements reads one slot of each, which a later step may have removed.
        # Therefore such a placement uses `slot`, which only has slots of the final arrangement.
        if self.repeats:
            values = arranged.reshape(len(arranged), -1)[:, self.slot]
            return np.where(self.slot == NOWHERE, 0, values)
        for step in reversed(self.steps):
            arranged = step.collect(arranged)
        return arranged

    def pack(self, values: Array) -> Array:
        """Convert values (S, *shape) to the bytes of memory, uint8 (S, bytes)."""
        arranged = np.ascontiguousarray(self.arrange(values), self.dtype).reshape(len(values), -1)
        if self.bits == 4:
            planes = arranged[:, None] >> (4 * np.arange(self.planes or 1))[:, None]
            return in_nibbles(planes.reshape(len(values), -1))
        raw = arranged.view(np.uint8)
        if not self.planes:
            return raw
        in_planes = raw.reshape(len(raw), -1, self.dtype.itemsize)[:, :, : self.planes].swapaxes(1, 2)
        return np.ascontiguousarray(in_planes).reshape(len(raw), -1)

    def unpack(self, memory: Array) -> Array:
        """Convert the bytes of memory, uint8 (S, bytes), to the values of the tensor (S, *shape)."""
        return self.collect(self.read(memory))

    def read(self, memory: Array) -> Array:
        """Convert the bytes of memory, uint8 (S, bytes), to the values of the slots (S, *slots)."""
        if not self.planes:
            return self.signed(memory).view(self.dtype).reshape(len(memory), *self.slots)
        if self.parts is not None:
            memory = self.gathered(memory)
        planes = self.signed(memory.reshape(len(memory), -1)).reshape(len(memory), self.planes, *self.slots)
        # The highest stored plane has the sign.
        values: Array = planes[:, -1].astype(self.dtype)
        for plane in range(self.planes - 2, -1, -1):
            values <<= self.bits
            unsigned = planes[:, plane].view(np.uint8)
            values |= unsigned if self.bits == 8 else unsigned & 15
        return values

    def gathered(self, memory: Array) -> Array:
        """Return the planes (S, planes, parts, bytes), uint8, of a memory with parts in other places."""
        assert self.parts is not None
        size = prod(self.slots) // self.parts.shape[1] * self.bits // 8
        stored = memory[:, : self.nbytes].reshape(len(memory), -1, size)
        planes = stored[:, self.parts]
        for plane, parts in enumerate(self.parts):
            absent = parts == NOWHERE
            planes[:, plane, absent] = planes[:, plane - 1, absent].view(np.int8) >> 7
        return planes

    def signed(self, memory: Array) -> Array:
        """Return bytes of memory, uint8 (S, bytes), as the int8 values of `bits` bits that they contain."""
        return nibbles(memory) if self.bits == 4 else np.ascontiguousarray(memory).view(np.int8)

    @cached_property
    def element(self) -> Array:
        """The flat index of the element in each slot, int64 [slots] (padding: NOWHERE)."""
        # Elements are numbered from 1 on, because 0 marks padding.
        numbers = np.arange(1, prod(self.shape) + 1).reshape(1, *self.shape)
        return self.arrange(numbers, padding=0).reshape(-1) - 1

    @cached_property
    def slot(self) -> Array:
        """The first slot of each element, int64 [*shape] (elements without a slot: NOWHERE)."""
        first = np.full(prod(self.shape), NOWHERE)
        filled = np.flatnonzero(self.element != NOWHERE)[::-1]  # descending, so that the first slot is assigned last
        first[self.element[filled]] = filled
        return first.reshape(self.shape)

    @property
    def where(self) -> Array:
        """The offsets of each element's bytes, lowest first: int64 [*shape, bytes]. Without a slot, NOWHERE."""
        slot = self.slot[..., None]
        if self.parts is not None:
            size = prod(self.slots) // self.parts.shape[1]
            part = self.parts[np.arange(self.planes), slot // size]
            offset = np.where(part == NOWHERE, NOWHERE, part * size + slot % size)
        elif self.planes:
            offset = slot + prod(self.slots) * np.arange(self.planes)
        else:
            offset = slot * self.dtype.itemsize + np.arange(self.dtype.itemsize)
        return np.where(slot == NOWHERE, NOWHERE, offset * self.bits // 8)
