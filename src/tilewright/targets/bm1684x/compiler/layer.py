"""A layer: the machine's operations on each tile of a graph node's output, and the constants that they read.

`Writer` collects them: each operation gives a temporary buffer that nothing still needed is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import F32, I8, I16, I32, DType, Rounding
from tilewright.targets.bm1684x.values.window import Window

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
