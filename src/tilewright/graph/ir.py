"""The neutral graph: tensors with exact quantisation, and nodes in execution order.

Activations are channels-last. The value of a tensor is an array of shape ``(S, *tensor.shape)`` for S independent
samples; `tensor.shape` has the axes of the model, including its batch axis of 1. A constant has S = 1 and broadcasts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from tilewright.array import Array
from tilewright.errors import ModelError, plain
from tilewright.graph.rounding import Rounding
from tilewright.graph.takes import Takes
from tilewright.graph.tensor import CODES, INT4, Located, Named, Quant, Tensor, type_of

__all__ = ["KINDS", "Graph", "Node", "Op", "Pixels", "Quant", "Shape", "Site", "State", "Tensor", "fresh_name"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Op(ABC):
    """An operator and its attributes. Each subclass with a `kind` is registered in `KINDS` under this name."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.kind:
            KINDS[cls.kind] = cls

    @abstractmethod
    def shapes(self, site: Site) -> tuple[Shape, ...]:
        """Return the output shapes. Raises ModelError or UnsupportedError if no kernel supports the inputs."""

    def codes(self, site: Site) -> tuple[Tensor, ...]:
        """Return the tensors of `site` that must hold quantised codes; by default all inputs and outputs."""
        return tuple(tensor for tensor in (*site.inputs, *site.outputs) if tensor is not None)

    def check_types(self, site: Site) -> None:
        """Raises UnsupportedError if a tensor of `codes` is not quantised, or if its type is not in CODES."""
        for tensor in self.codes(site):
            not_codes = tensor.dtype not in CODES
            lacks = f"is {tensor.dtype}, not int8, uint8 or int16" if not_codes else "has no quantisation parameters"
            site.refuse_if(not_codes or tensor.quant is None, f"tensor '{tensor.name}' {lacks}")

    @abstractmethod
    def evaluate(self, site: Site, values: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the exact outputs for the input `values`. The first axis of all arrays is the sample axis."""

    #: Whether the inputs are images. Most machines run such an operator only for a batch of one image.
    images: ClassVar[bool] = False

    def refusal(self, site: Site, takes: Takes) -> str:
        """Return the reason why a machine with the capabilities `takes` cannot run a node, or ""."""
        x = site.input(0)
        ends = (x, site.output) if takes.stores else (x,)
        for tensor in (*ends, *(end for end in (*site.inputs, *site.outputs) if end and end.code_type == INT4)):
            if tensor.code_type not in takes.dtypes:
                reason = f"{self.label} of {tensor.code_type} ('{tensor.name}') is not supported"
                return f"{reason}; {' and '.join(takes.dtypes)} codes are"
        if x.data is not None:
            return f"the constant input '{x.name}' is not supported"
        if self.images and not takes.batch and x.shape[0] != 1:
            return f"a batch of {x.shape[0]} in the model is not supported; a batch of 1 is"
        return ""

    @property
    def label(self) -> str:
        return self.kind

    def macs(self, site: Site) -> int:
        """Return the number of multiply-accumulates for one sample, including products of padding."""
        return 0


KINDS: dict[str, type[Op]] = {}


@dataclass(frozen=True)
class Node(Named):
    """One operation of a graph: an operator with attributes, and the names of its input and output tensors.

    An empty input name means an absent optional input.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __repr__(self) -> str:
        return plain(f"<Node {self.name}: {self.op.label}>")


@dataclass(frozen=True)
class Site(Located):
    """A node with its input and output tensors, for shape rules and kernels. An absent optional input is None."""

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
        """Return the values of input `index`, without a sample axis. Raises ModelError if the input is not constant."""
        tensor = self.input(index)
        if tensor.data is None:
            raise ModelError(self.where, f"input {index} ('{tensor.name}') must be constant")
        return tensor.data

    @property
    def output(self) -> Tensor:
        return self.outputs[0]


@dataclass(frozen=True)
class State(Located):
    """A value that a network keeps from one sample to the next, such as the buffer of a streaming convolution.

    Each field is the name of a tensor. `source` has the value before a sample, `result` has the value after the sample,
    and the constant `initial` has the value before the first sample. All three tensors have the same shape and type. No
    node writes `source`.
    """

    source: str
    result: str
    initial: str

    @property
    def where(self) -> str:
        return f"state '{self.source}'"


@dataclass(frozen=True)
class Pixels:
    """The conversion of pixels 0..255 to model inputs: `(pixel - mean) / std`.

    The order of channels is B, G, R if `bgr`, else R, G, B. `mean` and `std` have one number for all channels, or a
    number for each channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False


@dataclass(frozen=True, eq=False)
class Graph(Located):
    """A network: every tensor by name, nodes in execution order, and the names of inputs and outputs.

    `rounding` is the rounding mode (graph.rounding.MODES) of the runtime that the model was made for. A network with
    `states` is a stream: each sample starts from the state after the previous sample. `pixels` is the conversion of
    images to inputs, or None if the model file does not specify it.
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
        """The tensors that have values before the first node runs: inputs, and states before the sample."""
        return (*self.inputs, *(state.source for state in self.states))

    @property
    def results(self) -> tuple[str, ...]:
        """The tensors whose values are kept after the last node: outputs, and states after the sample."""
        return (*self.outputs, *(state.result for state in self.states))

    def __repr__(self) -> str:
        inputs, outputs = ([type_of(self.tensors[name]) for name in names] for names in (self.inputs, self.outputs))
        return plain(f"<Graph {self.name}: {len(self.nodes)} nodes, {', '.join(inputs)} -> {', '.join(outputs)}>")

    @property
    def where(self) -> str:
        return f"graph '{self.name}'"

    def site(self, node: Node) -> Site:
        return Site(
            node,
            tuple(self.tensors[name] if name else None for name in node.inputs),
            tuple(self.tensors[name] for name in node.outputs),
        )

    def node(self, name: str) -> Node:
        return self._named[name]

    @cached_property
    def _named(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """{tensor: the nodes that read it}, each node once, in execution order."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(filter(None, node.inputs)):
                readers.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in readers.items()}

    def sites(self) -> Iterator[Site]:
        return (self.site(node) for node in self.nodes)

    def pruned(self) -> Graph:
        """Return the graph with only its inputs, its outputs and the tensors that a node uses."""
        used = {*self.sources, *self.results, *(state.initial for state in self.states)}
        used.update(name for node in self.nodes for name in (*node.inputs, *node.outputs))
        return replace(self, tensors={name: tensor for name, tensor in self.tensors.items() if name in used})

    def validate(self) -> Graph:
        """Check the graph and return it: tensors, names and order of nodes, types and shapes.

        Raises ModelError if the graph is malformed, and UnsupportedError if an operator does not support its tensors.
        """
        for name, tensor in self.tensors.items():
            renamed = name != tensor.name or not name
            self.fail_if(renamed, f"tensor '{tensor.name}' is listed under the name '{name}'")
            tensor.check()
        self.fail_if(len(self._named) < len(self.nodes), "has two nodes with the same name")
        self.fail_if(not self.outputs, "has no outputs")
        for name in (*self.sources, *self.results):
            self.fail_if(name not in self.tensors, f"input, output or state '{name}' is not a tensor of the graph")
        for state in self.states:
            self._check_state(state)
        # A node may only read constants, sources, results of earlier nodes, and an absent input (the empty name).
        # Therefore the graph has no cycle.
        written = {name for name, tensor in self.tensors.items() if tensor.data is not None} | set(self.sources) | {""}
        for node in self.nodes:
            self._check_node(node, written)
            written.update(node.outputs)
        for name in self.results:
            self.fail_if(name not in written, f"output or state '{name}' is never written")
        return self

    def _check_state(self, state: State) -> None:
        """Check the tensors of a state. Raises ModelError if their types differ, or if `source` is used twice."""
        initial = self.tensors.get(state.initial)
        if initial is None or initial.data is None:
            raise ModelError(state.where, "has no constant initial value")
        for name in (state.source, state.result):
            state_type = type_of(self.tensors[name])
            initial_type = type_of(initial)
            reason = f"is {state_type} in '{name}', but {initial_type} in '{state.initial}'"
            state.fail_if(state_type != initial_type, reason)
        doubled = self.tensors[state.source].data is not None or self.sources.count(state.source) > 1
        state.fail_if(doubled, "is a constant, an input, or the source of another state too")

    def _check_node(self, node: Node, written: set[str]) -> None:
        for name in node.inputs:
            node.fail_if(name not in written, f"reads tensor '{name}' before anything has written it")
        for name in node.outputs:
            wrong = name not in self.tensors or name in written
            node.fail_if(wrong, f"writes tensor '{name}', which does not exist or is already written")
        site = self.site(node)
        node.op.check_types(site)
        expected = node.op.shapes(site)
        count = len(site.outputs)
        node.fail_if(len(expected) != count, f"is declared with {count} outputs; its operator has {len(expected)}")
        for tensor, shape in zip(site.outputs, expected, strict=True):
            declared = f"output '{tensor.name}' is declared as {list(tensor.shape)}"
            node.fail_if(tensor.shape != shape, f"{declared}; its inputs give {list(shape)}")


def fresh_name(hint: str, names: set[str]) -> str:
    """Return the name `hint`, followed by a number if `names` already contains `hint`. Add the result to `names`."""
    name = hint
    count = 2
    while name in names:
        name = f"{hint}{count}"
        count = count + 1
    names.add(name)
    return name
