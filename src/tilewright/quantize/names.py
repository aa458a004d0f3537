"""Names for new nodes and tensors that do not collide with existing names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto

from tilewright.graph.ir import fresh_name

#: A neutral name (see NeutralNames), which may be part of a derived name or of an error text.
_NEUTRAL = re.compile(r"(?<![A-Za-z0-9])[tn]\d+\.")


def tensors_of(model: ModelProto) -> Iterator[str]:
    """Yield the names of all tensors of a model. Names may be repeated."""
    graph = model.graph
    for entries in (graph.input, graph.output, graph.initializer, graph.value_info):
        yield from (item.name for item in entries)
    for node in graph.node:
        yield from filter(None, (*node.input, *node.output))


def name_nodes(nodes: Iterable[NodeProto]) -> None:
    """Give a new name to each node without a name or with the name of an earlier node."""
    nodes = list(nodes)
    given_names = {""}
    taken = {node.name for node in nodes}
    for index, node in enumerate(nodes):
        if node.name in given_names:
            node.name = fresh_name(node.name or f"{node.op_type}_{index}", taken)
        given_names.add(node.name)


class Names:
    """Makes names for new nodes or tensors from a hint. Calls with the same hint and purpose return the same name."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._names: dict[object, str] = {}

    def __call__(self, hint: str, purpose: object = None) -> str:
        key = (hint, purpose)
        if key not in self._names:
            self._names[key] = fresh_name(hint, self._taken)
        return self._names[key]


class Groups:
    """Disjoint groups of names (union-find). At the start, each name is a group of its own.

    One name of each group represents the group. Names that were not given to the constructor are ignored.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._parent = {name: name for name in names}

    def root(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def join(self, *names: str) -> None:
        """Join the groups of some names. The representative is that of the first name's group."""
        roots = [self.root(name) for name in names if name in self._parent]
        for name in roots[1:]:
            self._parent[name] = roots[0]

    def roots(self) -> dict[str, str]:
        return {name: self.root(name) for name in self._parent}


class NeutralNames:
    """Neutral names for a model: t0., t1., .. for tensors and n0., n1., .. for nodes.

    onnxruntime makes new names by appending text to existing names. In the user's model, the new name may already
    exist. Neutral names prevent this; afterwards, the original names are restored.
    """

    def __init__(self, model: ModelProto) -> None:
        self.tensors = {name: f"t{i}." for i, name in enumerate(dict.fromkeys(tensors_of(model)))}
        self.nodes = {node.name: f"n{i}." for i, node in enumerate(model.graph.node) if node.name}
        self._original = {neutral: name for names in (self.tensors, self.nodes) for name, neutral in names.items()}

    def save(self, model: ModelProto, path: Path) -> None:
        _rename(model, self.tensors.__getitem__, self.nodes.__getitem__)
        onnx.save(model, path)
        _rename(model, self._original.__getitem__, self._original.__getitem__)

    def text(self, text: str) -> str:
        return _NEUTRAL.sub(lambda match: self._original.get(match[0], match[0]), text)

    def restored(self, path: Path) -> ModelProto:
        """Load a model with its original names. New tensors and nodes get names that do not collide with them."""
        model = onnx.load(path)
        _rename(model, *(partial(self._restored, Names(taken)) for taken in (self.tensors, self.nodes)))
        return model

    def _restored(self, fresh: Names, name: str) -> str:
        return self._original[name] if name in self._original else fresh(self.text(name), name)


def _rename(model: ModelProto, tensor: Callable[[str], str], node: Callable[[str], str]) -> None:
    graph = model.graph
    for entries in (graph.input, graph.output, graph.initializer, graph.value_info):
        for item in entries:
            item.name = tensor(item.name)
    for graph_node in graph.node:
        graph_node.name = graph_node.name and node(graph_node.name)
        for side in (graph_node.input, graph_node.output):
            side[:] = [name and tensor(name) for name in side]
