"""Replaces If nodes by the nodes of their branches.

If the condition is constant once shapes are known, only the branch that is taken remains. Otherwise both branches run
for every sample, and a Where selects each result: branches of ONNX have no side effects. A branch that does not fit the
shapes of the inputs would fail if it were taken: it is left out, and a sample that takes it ends in an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.ort import ValueType
from tilewright.model.onnx_file import RawGraph, RawNode

#: The attributes of If that hold its branches.
THEN, ELSE = "then_branch", "else_branch"
#: The first opset whose Where onnxruntime has.
WHERE_OPSET = 9
#: The first opset in which the axes of Unsqueeze are an input.
AXES_OPSET = 13
#: Analyses the nodes of a branch, with its constants: returns the error, or None.
Fits = Callable[[Sequence[RawNode], Mapping[str, Array]], ModelError | None]


def names_read(nodes: Iterable[RawNode]) -> Iterator[str]:
    """Yield the names of all values that nodes read, and that the nodes of their branches read or return."""
    for node in nodes:
        yield from node.inputs
        for graph in node.graphs.values():
            yield from names_read(graph.nodes)
            yield from graph.outputs


def inlined(
    node: RawNode, opset: int, types: Mapping[str, ValueType], constants: Mapping[str, Array], fits: Fits
) -> tuple[list[RawNode], dict[str, Array]]:
    """Return the nodes that replace an If, in order, and their constants. `types` and `constants` are those before it.

    `fits` analyses a branch. Raises ModelError if the condition or the branches are malformed or if no branch fits, and
    UnsupportedError for a computed condition before opset 9.
    """
    condition = node.input(0)
    node.fail_if(condition not in types or {*node.graphs} != {THEN, ELSE}, "If has no condition or not two branches")
    if any(len(graph.outputs) != len(node.outputs) for graph in node.graphs.values()):
        raise ModelError(node.where, "If has a branch with another number of results")
    if types[condition].dtype != "bool" or prod(types[condition].shape) != 1:
        raise ModelError(node.where, "If has a condition that is not one bool")
    if condition in constants:
        taken = _inlined(node, THEN if constants[condition].reshape(-1)[0] else ELSE)
        return [*taken.nodes, *_each(node, lambda at: ("Identity", taken.outputs[at]))], dict(taken.constants)
    node.refuse_if(opset < WHERE_OPSET, f"If has a computed condition in opset {opset}", "export with opset 13")
    sides = {key: _inlined(node, key) for key in (THEN, ELSE)}
    errors = {key: error for key, side in sides.items() if (error := fits(side.nodes, side.constants))}
    if len(errors) == len(sides):
        raise errors[THEN]
    test, shape = f"{node.name}:condition", f"{node.name}:shape"
    scalar = RawNode(f"{node.name}:reshape", "Reshape", "", (condition, shape), (test,))
    made: dict[str, Array] = {shape: np.zeros(0, np.int64)}
    for key in sides.keys() - errors.keys():
        made |= sides[key].constants
    if not errors:
        yes, no = sides[THEN], sides[ELSE]
        selects = _each(node, lambda at: ("Where", test, yes.outputs[at], no.outputs[at]), alike=True)
        return [*yes.nodes, *no.nodes, scalar, *selects], made
    (key,) = sides.keys() - errors.keys()
    # The only element of an axis is gathered from place 0, or from place 1, at which onnxruntime reports an error.
    first, second, axis, place = (f"{node.name}:only_{key}_fits:{part}" for part in ("0", "1", "axis", "place"))
    made |= {first: np.array(0), second: np.array(1), axis: np.array([0])}
    values = (first, second) if key == THEN else (second, first)
    chosen = RawNode(f"{node.name}:only_{key}_fits", "Where", "", (test, *values), (place,))
    wide = [f"{node.name}:{out}:wide" for out in node.outputs]
    widened = [
        RawNode(f"{name}:node", "Unsqueeze", "", (source, axis), (name,))
        if opset >= AXES_OPSET
        else RawNode(f"{name}:node", "Unsqueeze", "", (source,), (name,), {"axes": [0]})
        for source, name in zip(sides[key].outputs, wide, strict=True)
    ]
    gathered = _each(node, lambda at: ("Gather", wide[at], place), {"axis": 0}, title=chosen.name)
    return [*sides[key].nodes, scalar, chosen, *widened, *gathered], made


def _each(
    node: RawNode,
    of: Callable[[int], tuple[str, ...]],
    attributes: Mapping[str, Any] | None = None,
    alike: bool = False,
    title: str = "",
) -> list[RawNode]:
    """Return a node for each result of an If. `of` gives the operator and the inputs for the result at an index.

    Names of the nodes begin with `title` [the name of the If].
    """
    return [
        RawNode(f"{title or node.name}:{out}", of(at)[0], "", of(at)[1:], (out,), attributes or {}, alike=alike)
        for at, out in enumerate(node.outputs)
        if out
    ]


def check_alike(node: RawNode, types: Mapping[str, ValueType]) -> None:
    """Check that a Where of `inlined` selects between values of one type. Raises UnsupportedError if it does not."""
    yes, no = (types[name] for name in node.inputs[1:])
    if yes != no:
        types_of = f"{yes.dtype}{list(yes.shape)} and {no.dtype}{list(no.shape)}"
        reason = f"If has branches with results of different types, {types_of}"
        raise UnsupportedError(node.where, reason, "export the model so that its condition is constant")


def _inlined(node: RawNode, key: str) -> RawGraph:
    """Return a branch with its own values and nodes renamed so that their names are unique."""
    graph = node.graphs[key]
    own = {*graph.constants, *(name for each in graph.nodes for name in each.outputs)} - {""}
    renamed = {name: f"{node.name}.{key}:{name}" for name in own}
    return _under(graph, renamed, f"{node.name}.{key}:")


def _under(graph: RawGraph, renamed: Mapping[str, str], prefix: str = "") -> RawGraph:
    """Return a branch with names of values replaced as `renamed` says, also in branches inside it."""

    def each(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(renamed.get(name, name) for name in names)

    nodes = tuple(
        replace(
            node,
            name=prefix + node.name,
            inputs=each(node.inputs),
            outputs=each(node.outputs),
            graphs={key: _under(inner, renamed) for key, inner in node.graphs.items()},
        )
        for node in graph.nodes
    )
    constants = {renamed.get(name, name): value for name, value in graph.constants.items()}
    return RawGraph(nodes, constants, each(graph.outputs))
