"""Operators that only move codes: reshape, transpose, upsampling, slices, padding, concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.ir import Site
from tilewright.graph.ops.base import Op, Shape, clamped, four, given
from tilewright.graph.rounding import Activation, Rounding


@dataclass(frozen=True)
class Moved(Op):
    """Base class of operators that move values of any type without changing them."""

    def check_types(self, site: Site) -> None:
        """Check the tensors' types. Raises ModelError if input and output have different types."""
        before, after = site.input(0).dtype, site.output.dtype
        if before != after:
            raise ModelError(site.where, f"moves {before} into a tensor of {after}; both must have the same type")


@dataclass(frozen=True)
class Reshape(Moved):
    """The same values under another shape with the same number of elements; one extent may be -1."""

    kind = "reshape"
    shape: tuple[int, ...] = ()

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the shape with -1 resolved. Raises ModelError if the numbers of elements differ."""
        size = site.input(0).size
        known = prod(extent for extent in self.shape if extent != -1)
        unknown = self.shape.count(-1)
        if unknown > 1 or known < 1 or size % known or (not unknown and size != known):
            raise ModelError(site.where, f"cannot reshape {list(site.input(0).shape)} to {list(self.shape)}")
        return (tuple(size // known if extent == -1 else extent for extent in self.shape),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x = given(values[0])
        return (x.reshape(x.shape[0], *site.output.shape),)


@dataclass(frozen=True)
class Transpose(Moved):
    """A permutation of axes: axis i of the result is axis `permutation[i]` of the input."""

    kind = "transpose"
    permutation: tuple[int, ...] = ()

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the permuted shape. Raises ModelError if `permutation` does not permute the input's axes."""
        shape = site.input(0).shape
        if sorted(self.permutation) != list(range(len(shape))):
            raise ModelError(site.where, f"cannot permute the axes of {list(shape)} by {list(self.permutation)}")
        return (tuple(shape[axis] for axis in self.permutation),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        return (np.ascontiguousarray(given(values[0]).transpose(0, *(axis + 1 for axis in self.permutation))),)


@dataclass(frozen=True)
class Tile(Moved):
    """The input, repeated `repeats` times along each axis."""

    kind = "tile"
    repeats: tuple[int, ...] = ()

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the repeated shape. Raises ModelError unless there is a positive number for each axis."""
        shape = site.input(0).shape
        if len(self.repeats) != len(shape) or min(self.repeats, default=1) < 1:
            raise ModelError(site.where, f"repeats a tensor of shape {list(shape)} {list(self.repeats)} times")
        return (tuple(extent * count for extent, count in zip(shape, self.repeats, strict=True)),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        return (np.tile(given(values[0]), (1, *self.repeats)),)


@dataclass(frozen=True)
class Upsample(Moved):
    """Nearest-neighbour upsampling of x (N, H, W, C): each pixel is repeated `factors` (rows, columns) times."""

    kind = "upsample"
    factors: tuple[int, int] = (1, 1)

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the upsampled shape. Raises ModelError if a factor is below 1."""
        batch, height, width, channels = four(site, 0)
        if min(self.factors) < 1:
            raise ModelError(site.where, f"repeats pixels {self.factors} times; factors must be at least 1")
        return ((batch, height * self.factors[0], width * self.factors[1], channels),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        return (given(values[0]).repeat(self.factors[0], axis=2).repeat(self.factors[1], axis=3),)


@dataclass(frozen=True)
class ResizeNearest(Moved):
    """Nearest-neighbour resizing of x (N, H, W, C): `rows` and `columns` are the input positions of the output's."""

    kind = "resize_nearest"
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the resized shape. Raises ModelError if a position is outside the input."""
        batch, height, width, channels = four(site, 0)
        for places, extent in ((self.rows, height), (self.columns, width)):
            if not places or not 0 <= min(places) <= max(places) < extent:
                raise ModelError(site.where, f"resizes from positions outside its {height}x{width} input")
        return ((batch, len(self.rows), len(self.columns), channels),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        return (given(values[0])[:, :, list(self.rows)][:, :, :, list(self.columns)],)


@dataclass(frozen=True)
class Slice(Moved):
    """Every `steps`-th of `counts` elements from `begin` on, along each axis; the result has the shape `shape`.

    Steps may be negative. `shape` may leave out axes of 1, or have more of them.
    """

    kind = "slice"
    begin: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the shape of the slice. Raises ModelError if it is outside the input."""
        extents = site.input(0).shape
        inside = len(extents) == len(self.begin) == len(self.counts) == len(self.steps)
        for begin, count, step, extent in zip(self.begin, self.counts, self.steps, extents, strict=False):
            inside = inside and count > 0 and 0 <= begin < extent and 0 <= begin + (count - 1) * step < extent
        if not inside or prod(self.shape) != prod(self.counts):
            raise ModelError(site.where, f"takes a slice that is not inside its input of shape {list(extents)}")
        return (self.shape,)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x, places = given(values[0]), [slice(None)]
        for begin, count, step in zip(self.begin, self.counts, self.steps, strict=True):
            end = begin + count * step
            places.append(slice(begin, None if end < 0 else end, step))
        return (x[tuple(places)].reshape(x.shape[0], *self.shape),)


@dataclass(frozen=True)
class Split(Op):
    """Cuts the input along `axis` into parts of `sizes`; if not `keep_dims`, each part has size 1 and no such axis."""

    kind = "split"
    axis: int = 0
    sizes: tuple[int, ...] = ()
    keep_dims: bool = True

    def check_types(self, site: Site) -> None:
        """Check the tensors' types. Raises ModelError if an output has another type than the input."""
        if any(tensor.dtype != site.input(0).dtype for tensor in site.outputs):
            raise ModelError(site.where, "splits a tensor into parts of other types")

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the shapes of the parts. Raises ModelError if the sizes do not add up to the axis."""
        shape = site.input(0).shape
        fits = 0 <= self.axis < len(shape) and sum(self.sizes) == shape[self.axis] and min(self.sizes, default=0) > 0
        if not fits or (not self.keep_dims and max(self.sizes) > 1):
            raise ModelError(site.where, f"cannot split axis {self.axis} of {list(shape)} into {list(self.sizes)}")
        before, after = shape[: self.axis], shape[self.axis + 1 :]
        return tuple((*before, *((size,) if self.keep_dims else ()), *after) for size in self.sizes)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        x = given(values[0])
        parts = np.split(x, np.cumsum(self.sizes)[:-1], axis=self.axis + 1)
        return tuple(p.reshape(x.shape[0], *tensor.shape) for p, tensor in zip(parts, site.outputs, strict=True))


@dataclass(frozen=True)
class Pack(Moved):
    """Inputs of one shape, stacked along a new `axis` of the result. Nothing is rescaled."""

    kind = "pack"
    axis: int = 0

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the output shape. Raises ModelError if inputs differ in shape, UnsupportedError if in scale."""
        tensors, out = [site.input(index) for index in range(len(site.inputs))], site.output
        shape = tensors[0].shape
        if any(t.shape != shape or t.dtype != out.dtype for t in tensors) or not 0 <= self.axis <= len(shape):
            raise ModelError(site.where, f"cannot stack {[list(t.shape) for t in tensors]} along axis {self.axis}")
        if any(t.quant and out.quant and (t.scale, t.zero_point) != (out.scale, out.zero_point) for t in tensors):
            raise UnsupportedError(site.where, "stacks tensors of different scales or zero points", "requantise them")
        return ((*shape[: self.axis], len(tensors), *shape[self.axis :]),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        samples = max(given(value).shape[0] for value in values)
        parts = [np.broadcast_to(given(value), (samples, *given(value).shape[1:])) for value in values]
        return (np.stack(parts, axis=self.axis + 1),)


@dataclass(frozen=True)
class Pad(Op):
    """Padding with the code `value` (None: the zero point); `padding` is (before, after) for each axis."""

    kind = "pad"
    padding: tuple[tuple[int, int], ...] = ()
    value: int | None = None

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the padded shape. Raises ModelError if the padding or its value does not fit the input."""
        shape = site.input(0).shape
        if len(self.padding) != len(shape) or any(min(pair) < 0 for pair in self.padding):
            raise ModelError(site.where, f"padding {self.padding} does not fit the shape {list(shape)}")
        info = np.iinfo(site.input(0).dtype)
        if self.value is not None and not info.min <= self.value <= info.max:
            dtype = site.input(0).dtype
            raise ModelError(site.where, f"pads with {self.value}, which is outside {dtype}")
        return (tuple(extent + sum(pair) for extent, pair in zip(shape, self.padding, strict=True)),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        value = site.input(0).zero_point if self.value is None else self.value
        return (np.pad(given(values[0]), ((0, 0), *self.padding), constant_values=value),)


@dataclass(frozen=True)
class Concat(Op):
    """Concatenation along `axis`. Nothing is rescaled: inputs must have the output's scale and zero point."""

    kind = "concat"
    axis: int = -1
    activation: Activation = "none"

    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the output shape. Raises ModelError if shapes do not fit, UnsupportedError if scales differ."""
        tensors = [site.input(index) for index in range(len(site.inputs))]
        shapes, out = [tensor.shape for tensor in tensors], site.output
        first, where = shapes[0], site.where
        axis = self.axis % len(first) if first else 0
        if not -len(first) <= self.axis < len(first) or any(
            len(s) != len(first) or s[:axis] + s[axis + 1 :] != first[:axis] + first[axis + 1 :] for s in shapes
        ):
            raise ModelError(where, f"cannot concatenate {[list(s) for s in shapes]} along axis {self.axis}")
        if any((tensor.scale, tensor.zero_point) != (out.scale, out.zero_point) for tensor in tensors):
            raise UnsupportedError(where, "joins tensors of different scales or zero points", "requantise them first")
        return ((*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :]),)

    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        out = site.output
        samples = max(given(value).shape[0] for value in values)
        parts = [np.broadcast_to(given(v), (samples, *given(v).shape[1:])) for v in values]
        return (clamped(np.concatenate(parts, axis=self.axis % len(out.shape) + 1), out, self.activation),)
