"""Names that rewriting makes: unused ones, also where onnxruntime makes them from given names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto

from tilewright.graph.ir import fresh_name

#: A name that `Plain` gives to a tensor or a node, as it occurs in names and texts made of it.
_PLAIN = re.compile(r"(?<![A-Za-z0-9])[tn]\d+\.")


def tensors_of(model: ModelProto) -> Iterator[str]:
    """Yield the names of all tensors of a model, with repetitions."""
    graph = model.graph
    for held in (graph.input, graph.output, graph.initializer, graph.value_info):
        yield from (item.name for item in held)
    for node in graph.node:
        yield from filter(None, (*node.input, *node.output))


def name_nodes(nodes: Iterable[NodeProto]) -> None:
    """Give a name to each node without one, and a new name to each node whose name an earlier node has."""
    nodes = list(nodes)
    before = {""}
    taken = {node.name for node in nodes}
    for index, node in enumerate(nodes):
        if node.name in before:
            node.name = fresh_name(node.name or f"{node.op_type}_{index}", taken)
        before.add(node.name)


class Names:
    """Makes names for new nodes or tensors from hints; the same `purpose` gets the same name again."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._made: dict[object, str] = {}

    def __call__(self, hint: str, purpose: object = None) -> str:
        key = (hint, purpose)
        if key not in self._made:
            self._made[key] = fresh_name(hint, self._taken)
        return self._made[key]


class Groups:
    """Groups of names, each called by one of its names; at first, each name is a group. Other names have no group."""

    def __init__(self, names: Iterable[str]) -> None:
        self._parent = {name: name for name in names}

    def root(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def join(self, *names: str) -> None:
        roots = [self.root(name) for name in names if name in self._parent]
        for name in roots[1:]:
            self._parent[name] = roots[0]

    def roots(self) -> dict[str, str]:
        """Return what the group of each name is called."""
        return {name: self.root(name) for name in self._parent}


class Plain:
    """Names for a model so plain that none can be made from another: t0., t1., .. for tensors, n0., n1., .. for nodes.

    onnxruntime sees the model under these names, so that what it appends to them is never a name of the user's.
    """

    def __init__(self, model: ModelProto) -> None:
        self.tensors = {name: f"t{i}." for i, name in enumerate(dict.fromkeys(tensors_of(model)))}
        self.nodes = {node.name: f"n{i}." for i, node in enumerate(model.graph.node) if node.name}
        self._original = {plain: name for given in (self.tensors, self.nodes) for name, plain in given.items()}

    def save(self, model: ModelProto, path: Path) -> None:
        _rename(model, self.tensors.__getitem__, self.nodes.__getitem__)
        onnx.save(model, path)
        _rename(model, self._original.__getitem__, self._original.__getitem__)

    def text(self, text: str) -> str:
        return _PLAIN.sub(lambda found: self._original.get(found[0], found[0]), text)

    def restored(self, path: Path) -> ModelProto:
        """Return the model of a file, with the original names, and with unused names for what is new."""
        model = onnx.load(path)
        _rename(model, *(partial(self._restored, Names(taken)) for taken in (self.tensors, self.nodes)))
        return model

    def _restored(self, fresh: Names, name: str) -> str:
        return self._original[name] if name in self._original else fresh(self.text(name), name)


def _rename(model: ModelProto, tensor: Callable[[str], str], node: Callable[[str], str]) -> None:
    graph = model.graph
    for held in (graph.input, graph.output, graph.initializer, graph.value_info):
        for item in held:
            item.name = tensor(item.name)
    for each in graph.node:
        each.name = each.name and node(each.name)
        for side in (each.input, each.output):
            side[:] = [name and tensor(name) for name in side]
