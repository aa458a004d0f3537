"""A layer: how its tensors are stored, the machine's operations on each tile of its output, the constants they read.

A tensor of the graph is stored as channels, rows and columns of some type; an input perhaps by phase. The cube
multiplies 64 channels of a pixel at a time; an image has 3. So for a convolution of few channels the host lays the
network's input out, padded, by phase: pixel (y * sh + py, x * sw + px) of channel c is element (y, x) of channel
(py, px, c), and a convolution of stride (sh, sw) becomes one of stride 1 with fewer taps. Then the DMA engine loads it
once for each tap to be folded, each time shifted by it, into other lanes: taps become channels too.

`Writer` collects the operations: each gives a temporary buffer that nothing still needed is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site, Tensor
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, U8, DType, Rounding
from tilewright.targets.bm1684x.values.floats import as_stored, narrow
from tilewright.targets.bm1684x.values.window import Window


@dataclass(frozen=True)
class Phases:
    """An image (c, h, w) in DDR as (sh * sw * c, rows, columns) with `top` and `left` padding; loaded at `offsets`."""

    c: int
    h: int
    w: int
    sh: int
    sw: int
    top: int
    left: int
    rows: int
    columns: int
    offsets: tuple[int, ...]

    @property
    def channels(self) -> int:
        return self.sh * self.sw * self.c

    @property
    def elements(self) -> int:
        """With what a shifted load reads behind the last row."""
        return self.channels * self.rows * self.columns + max(self.offsets) + 1 & ~1

    def spread(self, image: Array, fill: int) -> Array:
        """(S, c, h, w) as (S, elements); `fill` is the padding."""
        samples = len(image)
        area = np.full((samples, self.c, self.rows * self.sh, self.columns * self.sw), fill, image.dtype)
        inside = area[:, :, self.top : self.top + self.h, self.left : self.left + self.w]
        inside[...] = image[:, :, : inside.shape[2], : inside.shape[3]]
        split = area.reshape(samples, self.c, self.rows, self.sh, self.columns, self.sw)
        laid = split.transpose(0, 3, 5, 1, 2, 4).reshape(samples, -1)
        return np.pad(laid, ((0, 0), (0, self.elements - laid.shape[1])))


@dataclass(frozen=True)
class Stored:
    """(c, h, w) elements of a sample: codes of the graph plus `add`, whose zero point is `zero`.

    Codes whose zero point is their lowest one (what a ReLU gives) are stored unsigned from 0 on: then clamping is
    the type's own, nothing is added behind a rounding, and padding is 0. Others are stored signed.
    """

    c: int
    h: int
    w: int
    dtype: DType
    add: int = 0
    zero: int = 0
    phases: Phases | None = None  # of an input that lies in DDR otherwise than in local memory

    @classmethod
    def of(cls, tensor: Tensor) -> Stored:
        """An 8-bit tensor. Its last axis is the channels, the axes before it are pixels."""
        *before, c = tensor.shape or (1,)
        image = len(before) == 3 and before[0] == 1
        h, w = (before[1], before[2]) if image else (1, prod(before))
        lowest = int(np.iinfo(tensor.dtype).min)
        dtype, add = (U8, -lowest) if tensor.zero_point == lowest else (I8, -lowest - 128)
        return cls(c, h, w, dtype, add, tensor.zero_point + add)

    @classmethod
    def real(cls, shape: tuple[int, ...], dtype: DType) -> Stored:
        """A float32 tensor (1, c), or (1, c, h, w) as ONNX has it, rounded to a float type."""
        c, h, w = (*shape[1:], 1, 1)[:3]
        return cls(c, h, w, dtype)

    @property
    def nbytes(self) -> int:
        """Of a sample in DDR."""
        elements = self.phases.elements if self.phases else self.c * self.h * self.w
        return elements * self.dtype.bytes

    def slots(self, config: Config) -> int:
        return -(-self.c // config.lanes)

    def plane(self, config: Config) -> int:
        """Bytes of one channel in local memory."""
        return plane_bytes(self.h * self.w, self.dtype, config)

    def lane_bytes(self, config: Config) -> int:
        """Of a sample in each lane of local memory."""
        return self.slots(config) * self.plane(config)

    def pack(self, values: Array) -> Array:
        """Values of the graph (S, ...) as they are stored in DDR: (S, elements)."""
        c, h, w = (self.phases.c, self.phases.h, self.phases.w) if self.phases else (self.c, self.h, self.w)
        if self.dtype.is_float:
            stored = narrow(values.reshape(len(values), c, h, w), self.dtype)
        else:
            codes = values.reshape(len(values), h, w, c).transpose(0, 3, 1, 2)
            stored = (codes.astype(np.int16) + self.add).astype(self.dtype.storage)
        return self.phases.spread(stored, self.zero) if self.phases else stored.reshape(len(values), -1)

    def unpack(self, stored: Array, tensor: Tensor) -> Array:
        """Elements (S, c * h * w) as values of the graph, (S, *shape)."""
        shape = (len(stored), *tensor.shape)
        if self.dtype.is_float:
            return as_stored(stored, self.dtype).reshape(shape)
        codes = (stored.astype(np.int16) - self.add).astype(tensor.dtype).reshape(-1, self.c, self.h, self.w)
        return np.ascontiguousarray(codes.transpose(0, 2, 3, 1)).reshape(shape)


def plane_bytes(elements: int, dtype: DType, config: Config) -> int:
    """One channel in the aligned layout."""
    return -(-elements * dtype.bytes // config.eu_bytes) * config.eu_bytes


#: Exact products of two int32, cut behind bit 31 and rounded upwards at ties: gemmlowp's high product.
HIGH_PRODUCT = -31


@dataclass(frozen=True)
class Input:
    """An operand of the layer: `whole` is all of its channels, else those of the tile."""

    index: int
    whole: bool = False


@dataclass(frozen=True)
class Output:
    """The layer's result."""


@dataclass(frozen=True)
class Temp:
    """A tile's intermediate result, in buffer `index` of the layer: of its result's shape, or of its input's."""

    index: int
    dtype: DType
    of_input: bool = False


@dataclass(frozen=True)
class PerChannel:
    """The word `index` of each channel's parameters."""

    index: int
    dtype: DType


@dataclass(frozen=True)
class Weights:
    """The layer's kernel."""


@dataclass(frozen=True)
class Bias:
    """A bias that lies compactly, as depthwise convolutions read it."""

    dtype: DType


Ref = Input | Output | Temp | PerChannel | Weights | Bias | Constant


@dataclass(frozen=True)
class Operate:
    """One operation on a tile."""

    operation: str
    operands: Mapping[str, Ref]
    result: Output | Temp
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class WeightValues:
    """Constant weights, (oc, ic, kh, kw) of a convolution or (1, c, kh, kw) of a depthwise one, stored as `dtype`."""

    values: Array
    dtype: DType
    depthwise: bool = False


@dataclass(frozen=True, eq=False)
class Layer:
    """`operations` run on each tile. `words` are the parameters of each channel, int32 or float32 [c] each, `bias` is
    int32 [c] of a depthwise convolution. `window` is that of its operations; without one (None) it works element by
    element.

    `inputs` and `output` name tensors of the graph. `row_tiles`: a tile may be some rows.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    shapes: tuple[Stored, ...]
    result: Stored
    operations: tuple[Operate, ...]
    words: tuple[Array, ...] = ()
    kernel: WeightValues | None = None
    bias: Array | None = None
    window: Window | None = None
    row_tiles: bool = True
    macs: int = 0
    note: str = ""


#: Where an operation's result goes: into a new buffer of a type, or to the layer's result.
Into = DType | Output


class Refused(Exception):
    """Why the machine does not compute a node exactly: a sentence for the user, with the attribute and its value."""


def same_shapes(site: Site) -> None:
    """Raise Refused for operands of other shapes than the result's."""
    for tensor in site.inputs:
        if tensor is None or tensor.shape != site.output.shape:
            shapes = " and ".join(str(list(own.shape)) for own in site.inputs if own is not None)
            raise Refused(f"{site.node.op.label} of the shapes {shapes} is not supported; equal shapes are")


class Writer:
    """Collects operations, and the parameters of `channels` channels."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.operations: list[Operate] = []
        self.words: list[Array] = []
        self._held: list[Ref] = []

    def layer(self, site: Site, shapes: tuple[Stored, ...], result: Stored, **more: Any) -> Layer:
        """The layer of a node, which reads its first inputs, stored as `shapes`; `more`: other fields of Layer."""
        inputs, operations = site.node.inputs[: len(shapes)], tuple(self.operations)
        return Layer(site.node.name, inputs, site.output.name, shapes, result, operations, tuple(self.words), **more)

    def hold(self, value: Ref) -> Ref:
        """Keep a buffer that a later operation needs, but not the next one; until `release`."""
        self._held.append(value)
        return value

    def release(self) -> None:
        self._held.clear()

    def add(self, operation: str, result: Into, mode: Rounding | None = None, **operands: Ref | Any) -> Ref:
        """An operation into a new buffer of a type, or into the output. What is no operand is an attribute."""
        refs = {name: value for name, value in operands.items() if isinstance(value, Ref)}
        attributes = {name: value for name, value in operands.items() if name not in refs}
        attributes |= {} if mode is None else {"mode": mode}
        if isinstance(result, DType):
            taken = {ref.index for ref in (*refs.values(), *self._held) if isinstance(ref, Temp)}
            result_ref: Output | Temp = Temp(next(i for i in range(len(taken) + 1) if i not in taken), result)
        else:
            result_ref = result
        self.operations.append(Operate(operation, refs, result_ref, attributes))
        return result_ref

    def widen(self, x: Ref) -> Ref:
        """An operand as float32, in a buffer of its shape."""
        wide = Temp(0, F32, of_input=True)
        self.operations.append(Operate("cast", {"x": x}, wide, {"mode": Rounding.HALF_TO_EVEN}))
        return wide

    def channel(self, values: Array | Sequence[int] | float, dtype: DType = I32) -> PerChannel:
        """A parameter of each channel."""
        storage = np.float32 if dtype is F32 else np.int32
        self.words.append(np.ascontiguousarray(np.broadcast_to(np.asarray(values, storage), (self.channels,))))
        return PerChannel(len(self.words) - 1, dtype)

    def high_product(self, x: Ref, q: Array) -> Ref:
        """(x * q + 2**30) >> 31, int32."""
        only = _only(q)
        factor: Ref = self.channel(q) if only is None else Constant.of(int(only), I32)
        return self.add("int_mul", I32, Rounding.HALF_UP, a=x, b=factor, shift=Constant.of(HIGH_PRODUCT, I8))

    def scale(self, x: Ref, result: Into, shift: Array, offset: int, mode: Rounding, factor: int = 1) -> Ref:
        """sat(round(x * factor * 2**shift) + offset)."""
        named = self._parameters(multiplier=(factor, I32), shift=(shift, I8), offset=(offset, I16))
        return self.add("int_requant", result, mode, x=x, **named)

    def scale_real(self, x: Ref, result: Into, factor: Array, offset: float = 0.0) -> Ref:
        """sat(half_even(f32(f32(x) * factor) + offset))."""
        named = self._parameters(scale=(factor, F32), offset=(offset, F32))
        return self.add("fp32_requant", result, Rounding.HALF_TO_EVEN, x=x, **named)

    def _parameters(self, **given: tuple[Any, DType]) -> dict[str, Ref]:
        """Values, and their types as constants: constants if none differs by channel, else all by channel."""
        only = {name: (_only(np.asarray(values)), dtype) for name, (values, dtype) in given.items()}
        if all(value is not None for value, _ in only.values()):
            return {name: Constant.of(value.item(), dtype) for name, (value, dtype) in only.items()}
        return {name: self.channel(values, F32 if dtype is F32 else I32) for name, (values, dtype) in given.items()}


def _only(values: Array) -> Any:
    """The one value of all channels; None where they differ."""
    return values.flat[0] if len(np.unique(values)) == 1 else None
