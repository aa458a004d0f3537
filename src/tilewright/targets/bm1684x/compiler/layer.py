"""The compiler's form of a node: the storage of its tensors, its machine operations on each tile, and their constants.

`Gather` describes a tensor in which the compute engine stores taps of a convolution as additional channels. `Writer`
collects the operations, and chooses a free temporary buffer for each intermediate result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from tilewright.array import Array, ascending
from tilewright.graph.ir import Site
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.samples import SampleFormat
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, DType, Rounding
from tilewright.targets.bm1684x.values.window import Window


@dataclass(frozen=True)
class Gather:
    """Describes a gathered tensor: one copy of the input per folded tap, with copies `spacing` channels apart.

    `source` is the format of the input. The input has `replicas` copies of its channels in local memory, also `spacing`
    channels apart, because a copy command cannot move values to other lanes. `window` is the window of the convolution
    in the graph. `rows` and `columns` tell along which axes taps are folded.
    """

    source: SampleFormat
    window: Window
    rows: bool
    columns: bool
    spacing: int
    replicas: int

    @property
    def taps(self) -> list[tuple[int, int]]:
        """The folded taps, each as its row and column in the kernel."""
        kh, kw = self.window.kernel
        return list(product(range(kh if self.rows else 1), range(kw if self.columns else 1)))

    @property
    def left(self) -> Window:
        """The window of the convolution that reads the gathered tensor."""
        window = self.window
        top, bottom, left, right = self.window.pads
        pads = (*((0, 0) if self.rows else (top, bottom)), *((0, 0) if self.columns else (left, right)))
        kernel, stride, dilation = (
            (1 if self.rows else pair[0], 1 if self.columns else pair[1])
            for pair in (window.kernel, window.stride, window.dilation)
        )
        return Window(kernel, pads, stride, dilation)

    @property
    def form(self) -> SampleFormat:
        out = self.window.out(self.source.h, self.source.w)
        h, w = out[0] if self.rows else self.source.h, out[1] if self.columns else self.source.w
        return replace(self.source, c=len(self.taps) * self.spacing, h=h, w=w)

    def kernel(self, values: Array) -> Array:
        """Return the kernel (oc, channels, kh, kw) of the convolution that reads the gathered tensor.

        `values` is the kernel in the graph. The weights of unused channels between copies are zero.
        """
        oc, ic, _, _ = values.shape
        kh, kw = self.window.kernel
        lh, lw = self.left.kernel
        split = values.reshape(oc, ic, kh // lh, lh, kw // lw, lw)
        spaced = np.pad(split, ((0, 0), (0, self.spacing - ic), *((0, 0),) * 4))
        return np.ascontiguousarray(spaced.transpose(0, 2, 4, 1, 3, 5).reshape(oc, -1, lh, lw))

    def commands(self, source: int, gathered: int, config: Config) -> Iterator[Command]:
        """Yield the commands that fill the gathered tensor. `source` and `gathered` are offsets in bytes of a lane."""
        form = self.form
        x = Tensor.local(0, source, _shape(self.source, self.replicas * self.spacing), form.dtype, config)
        y = Tensor.local(0, gathered, _shape(form, form.c), form.dtype, config)
        zero = Constant.of(form.zero, form.dtype)
        for number, tap in enumerate(self.taps):
            tap_channels = y[:, number * self.spacing : (number + 1) * self.spacing]
            replica = number % self.replicas * self.spacing
            (r0, r1, first_row), (c0, c1, first_column) = (
                self._inside(axis, tap[axis], folded) for axis, folded in ((0, self.rows), (1, self.columns))
            )
            down = self.window.stride[0] if self.rows else 1
            across = self.window.stride[1] if self.columns else 1
            # Only pixels inside of the image are copied. The commands below fill the rest with padding.
            if r0 < r1 and c0 < c1:
                inside = x[:, replica : replica + self.spacing, first_row:, first_column:]
                stride = inside.stride._replace(h=inside.stride.h * down, w=across)
                inside = replace(inside, shape=inside.shape._replace(h=r1 - r0, w=c1 - c0), stride=stride)
                yield Command(OPERATIONS["copy"], {"a": inside}, {"y": tap_channels[:, :, r0:r1, c0:c1]})
            else:
                r0 = r1 = 0
            # padding above, below, left and right
            for rows, columns in (
                (slice(0, r0), slice(0, form.w)),
                (slice(r1, form.h), slice(0, form.w)),
                (slice(r0, r1), slice(0, c0)),
                (slice(r0, r1), slice(c1, form.w)),
            ):
                if rows.start < rows.stop and columns.start < columns.stop:
                    yield Command(OPERATIONS["copy"], {"a": zero}, {"y": tap_channels[:, :, rows, columns]})

    def _inside(self, axis: int, tap: int, folded: bool) -> tuple[int, int, int]:
        size, extent = ((self.source.h, self.form.h), (self.source.w, self.form.w))[axis]
        if not folded:
            return 0, extent, 0
        step = self.window.stride[axis]
        # Returns first, end and source: the gathered rows (or columns) [first, end) copy input rows (or columns) from
        # `source` on. Gathered row r copies row begin + r * step of the input.
        begin = tap * self.window.dilation[axis] - self.window.pads[2 * axis]
        first = max(0, -(begin // step))  # rounds up: the smallest row with begin + first * step >= 0
        end = min(extent, -(-(size - begin) // step))
        return first, max(first, end), begin + first * step


def _shape(form: SampleFormat, channels: int) -> tuple[int, int, int, int]:
    return 1, channels, form.h, form.w


#: Target size of a temporary buffer, in bytes per lane: one bank. A tile of minimum size may need a larger buffer.
TEMP_BYTES = 1 << 14
#: Shift of gemmlowp's high product: the exact product of two int32 is divided by 2**31, and ties round up.
HIGH_PRODUCT = -31


@dataclass(frozen=True)
class Input:
    """An operand: input `index` of the layer. With `whole`, it has all channels, else only the channels of the tile."""

    index: int
    whole: bool = False


@dataclass(frozen=True)
class Output:
    """The result of an operation that writes the layer's result."""


@dataclass(frozen=True)
class Temp:
    """An intermediate result of a tile, in a buffer. `size` gives rows and columns (None: those of the tile)."""

    index: int
    dtype: DType
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class PerChannel:
    """An operand with one value per channel: word `index` of the channel's parameters."""

    index: int
    dtype: DType


@dataclass(frozen=True)
class Weights:
    """An operand: the layer's convolution kernel."""


@dataclass(frozen=True)
class Bias:
    """An operand: the layer's bias, in the compact layout that convolutions read."""

    dtype: DType


Ref = Input | Output | Temp | PerChannel | Weights | Bias | Constant


@dataclass(frozen=True)
class LayerOperation:
    """A machine operation of a layer, which runs once per tile: its name, operands, result and attributes."""

    name: str
    operands: Mapping[str, Ref]
    result: Output | Temp
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class WeightValues:
    """Constant weights stored as `dtype`: (oc, ic, kh, kw), or (1, c, kh, kw) for a depthwise convolution."""

    values: Array
    dtype: DType
    depthwise: bool = False


@dataclass(frozen=True, eq=False)
class Layer:
    """A node of the graph in the compiler's form: machine `operations`, which run on each tile of its result.

    `inputs` and `output` name tensors of the graph; `shapes` and `result` are their formats. `words` are the parameters
    per channel, each an int32 or float32 array [c]. `bias` is an array [c], stored in the compact layout. `window` is
    the window of the operations (None for element-wise operations). If `row_tiles` is true, a tile may have fewer rows
    than the result. `explain` shows `note`. A layer that joins its inputs has no operations, and `axis` (1 to 3 for c,
    h, w) is the axis of the join. All other layers have axis 0. A layer with a `gather` reads a gathered tensor, and
    `shapes` describes this tensor.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    shapes: tuple[SampleFormat, ...]
    result: SampleFormat
    operations: tuple[LayerOperation, ...]
    words: tuple[Array, ...] = ()
    kernel: WeightValues | None = None
    bias: Array | None = None
    window: Window | None = None
    row_tiles: bool = True
    macs: int = 0
    note: str = ""
    axis: int = 0
    gather: Gather | None = None

    @property
    def joined(self) -> Iterator[tuple[str, SampleFormat, tuple[slice, ...]]]:
        """For each joined input: its name, its format, and its ranges in the result on the axes n, c, h, w."""
        begin = 0
        for name, form in zip(self.inputs, self.shapes, strict=True) if self.axis else ():
            ranges = [slice(0, size) for size in (1, form.c, form.h, form.w)]
            end = begin + ranges[self.axis].stop
            ranges[self.axis] = slice(begin, end)
            yield name, form, tuple(ranges)
            begin = end


class Refused(Exception):
    """Raised, with the reason, if the machine cannot compute a node exactly."""


def same_shapes(site: Site) -> None:
    """Check that all operands have the shape of the result. Raises Refused if an operand has another shape."""
    for tensor in site.inputs:
        if tensor is None or tensor.shape != site.output.shape:
            shapes = " and ".join(str(list(operand.shape)) for operand in site.inputs if operand is not None)
            raise Refused(f"{site.node.op.label} of the shapes {shapes} is not supported; equal shapes are")


class Writer:
    """Collects the operations of a layer, and the parameters of its `channels` channels."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.operations: list[LayerOperation] = []
        self.words: list[Array] = []
        self._kept: list[Ref] = []

    def layer(self, site: Site, shapes: tuple[SampleFormat, ...], result: SampleFormat, **more: Any) -> Layer:
        """Return the layer of a node with the operations added so far.

        The layer reads the first len(shapes) inputs of the node, in the formats `shapes`. `more` are other fields of
        Layer.
        """
        inputs = site.node.inputs[: len(shapes)]
        operations = tuple(self.operations)
        return Layer(site.node.name, inputs, site.output.name, shapes, result, operations, tuple(self.words), **more)

    def hold(self, value: Ref) -> Ref:
        """Reserve the temporary buffer of `value` until `release` is called, and return `value`."""
        self._kept.append(value)
        return value

    def release(self) -> None:
        self._kept.clear()

    def add(
        self,
        operation: str,
        into: DType | Output,
        mode: Rounding | None = None,
        size: tuple[int, int] | None = None,
        **operands: Any,
    ) -> Ref:
        """Add an operation, and return its result: the layer's output, or a new buffer of the type `into`.

        `size` is the size of the buffer (see Temp). Keywords that are not of the type Ref are attributes.
        """
        refs = {name: value for name, value in operands.items() if isinstance(value, Ref)}
        attributes = {name: value for name, value in operands.items() if name not in refs}
        attributes |= {} if mode is None else {"mode": mode}
        result: Output | Temp
        if isinstance(into, DType):
            # An operation does not work in place, so its result needs a buffer that is neither an operand nor reserved.
            # Its operands' buffers become free afterwards.
            used = {ref.index for ref in (*refs.values(), *self._kept) if isinstance(ref, Temp)}
            result = Temp(next(index for index in range(len(used) + 1) if index not in used), into, size)
        else:
            result = into
        self.operations.append(LayerOperation(operation, refs, result, attributes))
        return result

    def channel(self, values: Array | Sequence[int] | float, dtype: DType = I32) -> PerChannel:
        storage = np.float32 if dtype is F32 else np.int32
        self.words.append(np.ascontiguousarray(np.broadcast_to(np.asarray(values, storage), (self.channels,))))
        return PerChannel(len(self.words) - 1, dtype)

    def high_product(self, x: Ref, q: Array) -> Ref:
        """Add the int32 operation `(x * q + 2**30) >> 31`, and return its result."""
        # If all channels have the same value, it becomes a constant, which needs no local memory and no transfer.
        only = _only(q)
        factor: Ref = self.channel(q) if only is None else Constant.of(int(only), I32)
        return self.add("int_mul", I32, Rounding.HALF_UP, a=x, b=factor, shift=Constant.of(HIGH_PRODUCT, I8))

    def scale(self, x: Ref, into: DType | Output, shift: Array, offset: int, mode: Rounding, factor: int = 1) -> Ref:
        """Add the operation `saturate(round(x * factor * 2**shift) + offset)`, and return its result."""
        named = self.parameters(multiplier=(factor, I32), shift=(shift, I8), offset=(offset, I16))
        return self.add("int_requant", into, mode, x=x, **named)

    def centred(self, index: int, into: DType, factor: int, shift: int, mode: Rounding, zero: int) -> Ref:
        """Add the operation `round((code - zero) * factor * 2**shift)` on input `index`, and return its result."""
        named = self.parameters(offset=(zero, I16), multiplier=(factor, I32), shift=(shift, I16))
        return self.add("int_dequant", into, mode, x=Input(index), **named)

    def centred_real(self, index: int, factor: np.float32, zero: int) -> Ref:
        """Add the operation `f32(code - zero) * factor` on input `index`, and return its result."""
        named = self.parameters(offset=(zero, I32), scale=(factor, F32))
        return self.add("fp32_dequant", F32, x=Input(index), **named)

    def parameters(self, **named: tuple[Any, DType]) -> dict[str, Any]:
        """Return, by name, the operand for each argument `name=(values, type)`.

        If each argument has the same value in all channels, all operands are constants. Otherwise every operand has one
        value per channel, because one command cannot mix both forms.
        """
        only = {name: (_only(np.asarray(values)), dtype) for name, (values, dtype) in named.items()}
        if all(value is not None for value, _ in only.values()):
            return {name: Constant.of(value.item(), dtype) for name, (value, dtype) in only.items()}
        return {name: self.channel(values, F32 if dtype is F32 else I32) for name, (values, dtype) in named.items()}


def _only(values: Array) -> Any:
    return values.flat[0] if len(ascending(values)) == 1 else None
