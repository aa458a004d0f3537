"""Operators that only move codes: reshape, transpose, upsampling, slices, padding, concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Op, Shape, Site
from tilewright.graph.ops.base import Evaluation, Shaped, Single, clamped, four
from tilewright.graph.rounding import Activation, Rounding


@dataclass(frozen=True)
class Moved(Shaped):
    """Base class of operators that move values of any type without changing them."""

    def check_types(self, site: Site) -> None:
        before, after = site.input(0).dtype, site.output.dtype
        site.fail_if(before != after, f"moves {before} into a tensor of {after}; both must have the same type")


@dataclass(frozen=True)
class Reshape(Moved):
    """The same elements in another shape. One extent may be -1 (computed from the others)."""

    kind = "reshape"
    shape: tuple[int, ...] = ()

    def shape_of(self, site: Site) -> Shape:
        size = site.input(0).size
        fixed_size = prod(extent for extent in self.shape if extent != -1)
        open_axes = self.shape.count(-1)
        wrong = open_axes > 1 or fixed_size < 1 or size % fixed_size or (not open_axes and size != fixed_size)
        site.fail_if(wrong, f"cannot reshape {list(site.input(0).shape)} to {list(self.shape)}")
        return tuple(size // fixed_size if extent == -1 else extent for extent in self.shape)

    def compute(self, at: Evaluation) -> Array:
        return at.value()


@dataclass(frozen=True)
class Transpose(Moved):
    """A permutation of axes: axis i of the result is axis `permutation[i]` of the input."""

    kind = "transpose"
    permutation: tuple[int, ...] = ()

    def shape_of(self, site: Site) -> Shape:
        shape = site.input(0).shape
        wrong = sorted(self.permutation) != list(range(len(shape)))
        site.fail_if(wrong, f"cannot permute the axes of {list(shape)} by {list(self.permutation)}")
        return tuple(shape[axis] for axis in self.permutation)

    def compute(self, at: Evaluation) -> Array:
        return np.ascontiguousarray(at.value().transpose(0, *(axis + 1 for axis in self.permutation)))


@dataclass(frozen=True)
class Tile(Moved):
    """Repeats the input along each axis, `repeats` times."""

    kind = "tile"
    repeats: tuple[int, ...] = ()

    def shape_of(self, site: Site) -> Shape:
        shape = site.input(0).shape
        wrong = len(self.repeats) != len(shape) or min(self.repeats, default=1) < 1
        site.fail_if(wrong, f"repeats a tensor of shape {list(shape)} {list(self.repeats)} times")
        return tuple(extent * count for extent, count in zip(shape, self.repeats, strict=True))

    def compute(self, at: Evaluation) -> Array:
        return np.tile(at.value(), (1, *self.repeats))


@dataclass(frozen=True)
class Upsample(Moved):
    """Nearest-neighbour upsampling of x (N, H, W, C): each pixel is repeated `factors` (rows, columns) times."""

    kind = "upsample"
    factors: tuple[int, int] = (1, 1)

    def shape_of(self, site: Site) -> Shape:
        batch, height, width, channels = four(site, 0)
        site.fail_if(min(self.factors) < 1, f"repeats pixels {self.factors} times; factors must be at least 1")
        return (batch, height * self.factors[0], width * self.factors[1], channels)

    def compute(self, at: Evaluation) -> Array:
        return at.value().repeat(self.factors[0], axis=2).repeat(self.factors[1], axis=3)


@dataclass(frozen=True)
class ResizeNearest(Moved):
    """Nearest-neighbour resizing of x (N, H, W, C). `rows` and `columns` have the input position of each output."""

    kind = "resize_nearest"
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    def shape_of(self, site: Site) -> Shape:
        batch, height, width, channels = four(site, 0)
        for places, extent in ((self.rows, height), (self.columns, width)):
            wrong = not places or not 0 <= min(places) <= max(places) < extent
            site.fail_if(wrong, f"resizes from positions outside its {height}x{width} input")
        return (batch, len(self.rows), len(self.columns), channels)

    def compute(self, at: Evaluation) -> Array:
        return at.value()[:, :, list(self.rows)][:, :, :, list(self.columns)]


@dataclass(frozen=True)
class Slice(Moved):
    """A slice: along each axis, it selects `counts` elements from `begin` on, at a distance of `steps`.

    Steps may be negative. The result is reshaped to `shape`, which may omit or add axes of size 1.
    """

    kind = "slice"
    begin: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()

    def shape_of(self, site: Site) -> Shape:
        extents = site.input(0).shape
        inside = len(extents) == len(self.begin) == len(self.counts) == len(self.steps)
        for begin, count, step, extent in zip(self.begin, self.counts, self.steps, extents, strict=False):
            inside = inside and count > 0 and 0 <= begin < extent and 0 <= begin + (count - 1) * step < extent
        wrong = not inside or prod(self.shape) != prod(self.counts)
        site.fail_if(wrong, f"takes a slice that is not inside its input of shape {list(extents)}")
        return self.shape

    def compute(self, at: Evaluation) -> Array:
        places = [slice(None)]
        for begin, count, step in zip(self.begin, self.counts, self.steps, strict=True):
            # With a negative step, a Python slice down to the first element ends at None: -1 would be the last element.
            end = begin + count * step
            places.append(slice(begin, None if end < 0 else end, step))
        return at.value()[tuple(places)]


@dataclass(frozen=True)
class Split(Op):
    """Cuts the input along `axis` into parts of `sizes`. Without `keep_dims`, sizes are 1, and the axis is dropped."""

    kind = "split"
    axis: int = 0
    sizes: tuple[int, ...] = ()
    keep_dims: bool = True

    def check_types(self, site: Site) -> None:
        wrong = any(tensor.dtype != site.input(0).dtype for tensor in site.outputs)
        site.fail_if(wrong, "splits a tensor into parts of other types")

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        shape = site.input(0).shape
        fits = 0 <= self.axis < len(shape) and sum(self.sizes) == shape[self.axis] and min(self.sizes, default=0) > 0
        wrong = not fits or (not self.keep_dims and max(self.sizes) > 1)
        site.fail_if(wrong, f"cannot split axis {self.axis} of {list(shape)} into {list(self.sizes)}")
        before, after = shape[: self.axis], shape[self.axis + 1 :]
        return tuple((*before, *((size,) if self.keep_dims else ()), *after) for size in self.sizes)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        (x,) = values
        assert x is not None
        parts = np.split(x, np.cumsum(self.sizes)[:-1], axis=self.axis + 1)
        return tuple(p.reshape(-1, *tensor.shape) for p, tensor in zip(parts, site.outputs, strict=True))


@dataclass(frozen=True)
class Pack(Moved):
    """Stacks inputs of equal shape along a new `axis`, without rescaling."""

    kind = "pack"
    axis: int = 0

    def shape_of(self, site: Site) -> Shape:
        tensors = [site.input(index) for index in range(len(site.inputs))]
        out = site.output
        shape = tensors[0].shape
        wrong = any(t.shape != shape or t.dtype != out.dtype for t in tensors) or not 0 <= self.axis <= len(shape)
        site.fail_if(wrong, f"cannot stack {[list(t.shape) for t in tensors]} along axis {self.axis}")
        differ = any(t.quant and out.quant and not t.same_codes(out) for t in tensors)
        site.refuse_if(differ, "stacks tensors of different scales or zero points", "requantise them")
        return (*shape[: self.axis], len(tensors), *shape[self.axis :])

    def compute(self, at: Evaluation) -> Array:
        return np.stack(at.broadcast(), axis=self.axis + 1)


@dataclass(frozen=True)
class Pad(Single):
    """Padding with the code `value` (None: the zero point). `padding` has (before, after) for each axis."""

    kind = "pad"
    padding: tuple[tuple[int, int], ...] = ()
    value: int | None = None

    def shape_of(self, site: Site) -> Shape:
        shape = site.input(0).shape
        wrong = len(self.padding) != len(shape) or any(min(pair) < 0 for pair in self.padding)
        site.fail_if(wrong, f"padding {self.padding} does not fit the shape {list(shape)}")
        info = np.iinfo(site.input(0).dtype)
        outside = self.value is not None and not info.min <= self.value <= info.max
        site.fail_if(outside, f"pads with {self.value}, which is outside {info.dtype}")
        return tuple(extent + sum(pair) for extent, pair in zip(shape, self.padding, strict=True))

    def compute(self, at: Evaluation) -> Array:
        value = at.input(0).zero_point if self.value is None else self.value
        return np.pad(at.value(), ((0, 0), *self.padding), constant_values=value)


@dataclass(frozen=True)
class Concat(Single):
    """Concatenation along `axis`, without rescaling: inputs must have the output's scale and zero point."""

    kind = "concat"
    axis: int = -1
    activation: Activation = "none"

    def shape_of(self, site: Site) -> Shape:
        tensors = [site.input(index) for index in range(len(site.inputs))]
        shapes = [tensor.shape for tensor in tensors]
        rank = len(shapes[0])
        axis = self.axis % max(1, rank)
        remaining = {(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}
        wrong = not -rank <= self.axis < rank or len(remaining) > 1
        site.fail_if(wrong, f"cannot concatenate {[list(shape) for shape in shapes]} along axis {self.axis}")
        differ = not all(tensor.same_codes(site.output) for tensor in tensors)
        site.refuse_if(differ, "joins tensors of different scales or zero points", "requantise them first")
        return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])

    def compute(self, at: Evaluation) -> Array:
        axis = self.axis % len(at.output.shape)
        return clamped(np.concatenate(at.broadcast(), axis=axis + 1), at.output, self.activation)
