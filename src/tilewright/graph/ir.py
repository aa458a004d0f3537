"""The neutral graph: tensors with exact quantisation, and nodes in execution order.

Activations are channels-last. The value of a tensor is an array of shape ``(S, *tensor.shape)`` for S independent
samples; `tensor.shape` has the model's own axes, its batch of 1 included. A constant has S = 1 and broadcasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, plain

if TYPE_CHECKING:
    from tilewright.graph.ops.base import Op

#: Elements of the largest constant. Larger ones are refused before anything is allocated: model files are untrusted.
MAX_ELEMENTS = 1 << 28
#: Elements of the largest computed tensor: its evaluation takes up to 64 bytes per element.
MAX_COMPUTED = 1 << 24
DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")


@dataclass(frozen=True)
class Quant:
    """Affine quantisation of a tensor: `real = scale * (code - zero_point)`.

    `scale` holds float32 values exactly. `scale` and `zero_point` have one entry, or one per index of axis `axis`.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0

    @property
    def per_channel(self) -> bool:
        return len(self.scale) > 1


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the graph. `data` holds the values of a constant (an array of this shape and dtype), else None."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    quant: Quant | None = None
    data: Array | None = None

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def image(self) -> tuple[int, int, int, int]:
        """The shape as batch, rows, columns and channels, for any number of axes: missing ones in front are 1."""
        rows, columns, channels = (1, 1, 1, *self.shape)[-3:]
        return prod(self.shape[:-3]), rows, columns, channels

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def scale(self) -> float:
        """The per-tensor scale. Raises ModelError if the tensor has no scale, or one per channel."""
        return self._single().scale[0]

    @property
    def zero_point(self) -> int:
        """The per-tensor zero point. Raises ModelError if the tensor has no zero point, or one per channel."""
        return self._single().zero_point[0]

    def __repr__(self) -> str:
        scales = self.quant.scale if self.quant else ()
        text = f"<Tensor {self.name}: {_type(self)}"
        text += f", scale {scales[0]:.6g}" if len(scales) == 1 else f", {len(scales)} scales" if scales else ""
        return plain(f"{text}, constant>" if self.data is not None else f"{text}>")

    def _single(self) -> Quant:
        if self.quant is None:
            raise ModelError(f"tensor '{self.name}'", "has no quantisation parameters", "quantise the model to int8")
        if self.quant.per_channel:
            raise ModelError(f"tensor '{self.name}'", "is quantised per channel where one scale is required")
        return self.quant


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"


class Named:
    """Base class of objects that have an operator's name, such as nodes."""

    name: str

    @property
    def where(self) -> str:
        """The operator's name as error messages print it: op 'NAME'."""
        return f"op '{self.name}'"


@dataclass(frozen=True)
class Node(Named):
    """One operation of a graph. `op` holds its kind and attributes; `inputs` and `outputs` are names of tensors.

    An empty input name means an absent optional input.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __repr__(self) -> str:
        return plain(f"<Node {self.name}: {self.op.label}>")


@dataclass(frozen=True)
class Site:
    """A node together with its input and output tensors: the argument of the operators' shape rules and kernels."""

    node: Node
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]

    @property
    def where(self) -> str:
        return self.node.where

    def optional(self, index: int) -> Tensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> Tensor:
        """Return the tensor of the required input `index`. Raises ModelError if this input is absent."""
        tensor = self.optional(index)
        if tensor is None:
            raise ModelError(self.where, f"input {index} is missing")
        return tensor

    def constant(self, index: int) -> Array:
        """Return the values of input `index`, without a sample axis. Raises ModelError if it is not a constant."""
        tensor = self.input(index)
        if tensor.data is None:
            raise ModelError(self.where, f"input {index} ('{tensor.name}') must be constant")
        return tensor.data

    @property
    def output(self) -> Tensor:
        return self.outputs[0]


@dataclass(frozen=True)
class State:
    """A value that a network keeps from one sample to the next, such as the buffer of a streaming convolution.

    Each field names a tensor: `source` is the value before a sample, `result` the value after it, and the constant
    `initial` the value before the first sample. No node writes `source`. The three have the same shape and type.
    """

    source: str
    result: str
    initial: str


@dataclass(frozen=True)
class Pixels:
    """The conversion of pixels 0..255 to model inputs: `(pixel - mean) / std`, for R, G, B (if `bgr`: B, G, R).

    `mean` and `std` have one number, or one for each channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: every tensor by name, nodes in execution order, and the names of inputs and outputs.

    `rounding` names the rounding mode (graph.rounding.MODES) of the runtime that the model was made for. A network with
    `states` is a stream: each sample sees the state that the sample before it left. `pixels` says how images become
    inputs; None if the model's file does not say it.
    """

    name: str
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rounding: str = "tflm"
    states: tuple[State, ...] = ()
    pixels: Pixels | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the tensors that have values before the first node runs: inputs, and states before a sample."""
        return (*self.inputs, *(state.source for state in self.states))

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the tensors whose values are kept after the last node: outputs, and states after a sample."""
        return (*self.outputs, *(state.result for state in self.states))

    def __repr__(self) -> str:
        given, made = ([_type(self.tensors[name]) for name in names] for names in (self.inputs, self.outputs))
        return plain(f"<Graph {self.name}: {len(self.nodes)} nodes, {', '.join(given)} -> {', '.join(made)}>")

    def site(self, node: Node) -> Site:
        return Site(
            node,
            tuple(self.tensors[name] if name else None for name in node.inputs),
            tuple(self.tensors[name] for name in node.outputs),
        )

    def node(self, name: str) -> Node:
        """Return the node called `name`."""
        return self._named[name]

    @cached_property
    def _named(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each tensor, by the tensor's name: each node once, in order."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(filter(None, node.inputs)):
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def sites(self) -> Iterator[Site]:
        return (self.site(node) for node in self.nodes)

    def pruned(self) -> Graph:
        """Return the graph without the tensors that no node uses and that are neither inputs nor outputs."""
        used = {*self.sources, *self.results, *(state.initial for state in self.states)}
        used.update(name for node in self.nodes for name in (*node.inputs, *node.outputs))
        return replace(self, tensors={name: tensor for name, tensor in self.tensors.items() if name in used})

    def validate(self) -> Graph:
        """Check the tensors, the names and order of the nodes, and the types and shapes that they use; return self.

        Raises ModelError if the graph is malformed, and UnsupportedError if an operator does not take its tensors.
        """
        where = f"graph '{self.name}'"
        for name, tensor in self.tensors.items():
            if name != tensor.name or not name:
                raise ModelError(where, f"tensor '{tensor.name}' is listed under the name '{name}'")
            _check_tensor(tensor)
        names = [node.name for node in self.nodes]
        if len(set(names)) < len(names) or not self.outputs:
            raise ModelError(where, "has two nodes with the same name, or has no outputs")
        for name in (*self.sources, *self.results):
            if name not in self.tensors:
                raise ModelError(where, f"input, output or state '{name}' is not a tensor of the graph")
        for state in self.states:
            self._check_state(state)
        known = {name for name, tensor in self.tensors.items() if tensor.data is not None} | set(self.sources) | {""}
        for node in self.nodes:
            self._check_node(node, known)
            known.update(node.outputs)
        for name in self.results:
            if name not in known:
                raise ModelError(where, f"output or state '{name}' is never written")
        return self

    def _check_state(self, state: State) -> None:
        """Check a state's tensors. Raises ModelError if types differ, or if two states or inputs have one source."""
        where = f"state '{state.source}'"
        initial = self.tensors.get(state.initial)
        if initial is None or initial.data is None:
            raise ModelError(where, "has no constant initial value")
        for name in (state.source, state.result):
            if (self.tensors[name].shape, self.tensors[name].dtype) != (initial.shape, initial.dtype):
                reason = f"is {_type(self.tensors[name])} in '{name}', but {_type(initial)} in '{state.initial}'"
                raise ModelError(where, reason)
        if self.tensors[state.source].data is not None or self.sources.count(state.source) > 1:
            raise ModelError(where, "is a constant, an input, or the source of another state too")

    def _check_node(self, node: Node, known: set[str]) -> None:
        where = node.where
        for name in node.inputs:
            if name not in known:
                raise ModelError(where, f"reads tensor '{name}' before anything has written it")
        for name in node.outputs:
            if name not in self.tensors or name in known:
                raise ModelError(where, f"writes tensor '{name}', which does not exist or is already written")
        site = self.site(node)
        node.op.check_types(site)
        expected = node.op.shapes(site)
        if len(expected) != len(site.outputs):
            raise ModelError(where, f"is declared with {len(site.outputs)} outputs; its operator has {len(expected)}")
        for tensor, shape in zip(site.outputs, expected, strict=True):
            if tensor.shape != shape:
                reason = f"output '{tensor.name}' is declared as {list(tensor.shape)}; its inputs give {list(shape)}"
                raise ModelError(where, reason)


def fresh_name(hint: str, names: set[str]) -> str:
    """Return the name `hint`, with a number appended if `names` already has it. The result is added to `names`."""
    name, count = hint, 2
    while name in names:
        name, count = f"{hint}{count}", count + 1
    names.add(name)
    return name


def _check_tensor(tensor: Tensor) -> None:
    where = f"tensor '{tensor.name}'"
    if tensor.dtype not in DTYPES:
        raise ModelError(where, f"has the unknown element type {tensor.dtype}")
    limit = MAX_COMPUTED if tensor.data is None else MAX_ELEMENTS
    least = 1 if tensor.data is None else 0  # an empty constant may stand for an absent operand
    if any(extent < least for extent in tensor.shape) or tensor.size > limit:
        reason = f"has the shape {list(tensor.shape)}; extents must be positive, with at most {limit} elements in total"
        raise ModelError(where, reason)
    if tensor.data is not None and (tensor.data.shape != tensor.shape or str(tensor.data.dtype) != tensor.dtype):
        actual = f"{tensor.data.dtype}{list(tensor.data.shape)}"
        raise ModelError(where, f"is declared as {tensor.dtype}{list(tensor.shape)}, but its data is {actual}")
    quant = tensor.quant
    if quant is None:
        return
    if not quant.scale or not all(0.0 < s < float("inf") for s in quant.scale):
        raise ModelError(where, "has a quantisation scale that is not a positive number")
    if len(quant.zero_point) != len(quant.scale):
        raise ModelError(where, f"has {len(quant.scale)} scales but {len(quant.zero_point)} zero points")
    if tensor.dtype in ("int8", "uint8", "int16"):
        info = np.iinfo(tensor.dtype)
        if not all(info.min <= zero <= info.max for zero in quant.zero_point):
            raise ModelError(where, f"has a zero point outside the range of {tensor.dtype}")
    if quant.per_channel and not (0 <= quant.axis < len(tensor.shape) and tensor.shape[quant.axis] == len(quant.scale)):
        raise ModelError(where, f"has {len(quant.scale)} scales for axis {quant.axis} of shape {list(tensor.shape)}")
