"""Analyses an ONNX network before it runs: infers the type of every value, and computes the constant values.

An If node is replaced by the nodes of its branches. If the condition is constant, or if only one branch fits the shapes
of the inputs, the other branch is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph import ort
from tilewright.graph.ort import ValueType, package
from tilewright.graph.tensor import MAX_COMPUTED, MAX_ELEMENTS
from tilewright.model.onnx_file import CUSTOM, RawGraph, RawModel, RawNode, read
from tilewright.model.onnx_values import DEQUANTIZE, OnnxNetwork
from tilewright.model.shapes import Shapes

#: Limit of constant folding: the total number of elements of all folded constants of a model.
MAX_FOLDED = 1 << 26
#: The attributes of If that hold its branches.
THEN = "then_branch"
ELSE = "else_branch"
_IR_VERSION = 8
_INFERENCE = "export the model for inference"
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")


def resolve(raw: RawModel) -> OnnxNetwork:
    """Return the analysed form of an ONNX graph, with the types of all values and with computed constants.

    Raises ModelError if nodes are out of order, a name is written twice, an output is never written, or constants are
    too large.
    """
    used = {*_names_read(raw.nodes), *raw.outputs}
    network = _Analysis(raw.opset, [], dict(raw.inputs), {}, raw.outputs, raw.rounding, used)
    network.add_constants(raw.constants)
    network.add(raw.nodes)
    for name in raw.outputs:
        if name not in network.types:
            raise ModelError("", f"output '{name}' is never written")
    return network


def _names_read(nodes: Iterable[RawNode]) -> Iterator[str]:
    for node in nodes:
        yield from node.inputs
        for graph in node.graphs.values():
            yield from _names_read(graph.nodes)
            yield from graph.outputs


@dataclass(eq=False)
class _Analysis(OnnxNetwork):
    """The analysed part of a network. Types are inferred in the order of the nodes.

    `used` has all names that the network reads. `folded` is the number of elements in computed constants.
    """

    used: set[str] = field(default_factory=set)
    folded: int = 0

    def add(self, nodes: Iterable[RawNode]) -> None:
        """Analyse more nodes in their order. Raises ModelError if a node is damaged, or reads a later node's result."""
        pending = deque(nodes)
        while pending:
            node = pending.popleft()
            for name in node.inputs:
                reason = f"reads '{name}' before anything has written it: a cycle or a wrong order"
                node.fail_if(name and name not in self.types, reason)
            if node.graphs:
                inner, constants = _without_if(self, node)
                self.used.update(_names_read(inner))
                self.add_constants(constants)
                pending.extendleft(reversed(inner))
            else:
                self._add(replace(node, outputs=self._used_outputs(node)))

    def _add(self, node: RawNode) -> None:
        for name in node.outputs:
            node.fail_if(name in self.types, f"writes '{name}', a name that is already in use")
        names = filter(None, node.outputs)
        values = self._folded(node)
        if values is None:
            self.nodes.append(node)
            if node.same_types:
                self._check_same_types(node)
            self.types |= zip(names, self._types(node), strict=True)
            return
        # Do not count a constant with a stride of 0 (ConstantOfShape), because its elements share one number in memory.
        self.folded += sum(value.size for value in values if 0 not in value.strides or value.size == 1)
        node.fail_if(self.folded > MAX_FOLDED, f"exceeds the limit of {MAX_FOLDED} elements for computed constants")
        self.add_constants(dict(zip(names, values, strict=True)))

    def _used_outputs(self, node: RawNode) -> tuple[str, ...]:
        # Leave out unused outputs at the end: a MaxPool without indices or a Dropout without a mask is simpler.
        last = max((index for index, name in enumerate(node.outputs) if name and name in self.used), default=0)
        if last + 1 < len(node.outputs):
            last = max(last, ort.least_outputs(node.op_type, node.domain, self.opset) - 1)
        return node.outputs[: last + 1]

    def error_of(self, branch: RawGraph) -> ModelError | None:
        """Try to analyse a branch of an If with the known shapes. Return the error, or None if the branch fits."""
        used = self.used | set(_names_read(branch.nodes))
        trial = replace(self, nodes=[], types=dict(self.types), constants=dict(self.constants), used=used)
        trial.add_constants(branch.constants)
        try:
            trial.add(branch.nodes)
        except ModelError as error:
            return error
        return None

    def _check_same_types(self, node: RawNode) -> None:
        yes, no = (self.types[name] for name in node.inputs[1:])
        types = f"{yes.dtype}{list(yes.shape)} and {no.dtype}{list(no.shape)}"
        reason = f"If has branches with results of different types, {types}"
        node.refuse_if(yes != no, reason, "export the model so that its condition is constant")

    def _types(self, node: RawNode) -> tuple[ValueType, ...]:
        node.refuse_if(node.op_type in _RANDOM, f"{node.op_type} is random", _INFERENCE)
        if node.op_type == "Dropout" and len(node.inputs) > 2 and self.constants.get(node.inputs[2], True):
            raise UnsupportedError(node.where, "Dropout trains, or decides at run time whether to train", _INFERENCE)
        if node.op_type in CUSTOM:
            return (self.types[node.inputs[0]],)
        small = ort.small({index: self.constants.get(name) for index, name in enumerate(node.inputs)})
        # Dequantised weights may exceed MAX_COMPUTED, because fused operators read their codes instead. For all other
        # uses, the graph has its own limit.
        weights = node.op_type == DEQUANTIZE and node.inputs[0] in self.constants
        return ort.infer(self.call(node), small, MAX_ELEMENTS if weights else MAX_COMPUTED)

    def _folded(self, node: RawNode) -> list[Array] | None:
        if node.op_type == "Constant":
            return [_constant_value(node)]
        # Shape and ConstantOfShape do not use `fold`. The shape of a value may be known before the value; and a size
        # from the untrusted file must not be allocated.
        if node.op_type == "Shape" and len(node.inputs) == 1:
            shape = self.types[node.inputs[0]].shape
            start, end = node.attributes.get("start", 0), node.attributes.get("end", len(shape))
            return [np.array(shape[start:end], np.int64)]
        if node.op_type == "ConstantOfShape" and node.inputs and node.inputs[0] in self.constants:
            extents = tuple(int(extent) for extent in self.constants[node.inputs[0]].reshape(-1)[:9])
            large = len(extents) > 8 or any(not 0 <= extent <= MAX_ELEMENTS for extent in extents)
            reason = f"makes a constant of shape {list(extents)}; the limit is {MAX_ELEMENTS} elements"
            node.fail_if(large or prod(extents) > MAX_ELEMENTS, reason)
            value = node.tensors.get("value", np.zeros(1, np.float32)).reshape(-1)
            return [np.broadcast_to(value[0] if value.size else np.float32(0), extents)]
        # The dequantise of a constant is not folded, because fused operators read the codes.
        excluded = node.op_type in (*CUSTOM, *_RANDOM, DEQUANTIZE)
        return self.fold(node) if node.inputs and self.are_constant(node.inputs) and not excluded else None


def _constant_value(node: RawNode) -> Array:
    if "value" in node.tensors:
        return node.tensors["value"]
    for key in ("value_int", "value_ints", "value_float", "value_floats"):
        if key in node.attributes:
            return np.array(node.attributes[key], np.int64 if "int" in key else np.float32)
    raise UnsupportedError(node.where, "is a Constant whose value is neither a tensor nor numbers")


def _without_if(before: _Analysis, node: RawNode) -> tuple[list[RawNode], dict[str, Array]]:
    """Return the nodes that replace an If, in order, and their constants. `before` are the nodes before the If.

    Raises ModelError if the condition or the branches are malformed or if no branch fits, and UnsupportedError for a
    computed condition before opset 9.
    """
    condition = node.input(0)
    types = before.types
    node.fail_if(condition not in types or {*node.graphs} != {THEN, ELSE}, "If lacks its condition or a branch")
    mismatch = any(len(graph.outputs) != len(node.outputs) for graph in node.graphs.values())
    node.fail_if(mismatch, "If has a branch with more or fewer results than its own")
    scalar = types[condition].dtype == "bool" and prod(types[condition].shape) == 1
    node.fail_if(not scalar, "If has a condition that is not one bool")
    results = [(at, out) for at, out in enumerate(node.outputs) if out]
    # 1. If the condition is constant, return the nodes of its branch, and an Identity for each result.
    if condition in before.constants:
        branch = _inlined(node, THEN if before.constants[condition].reshape(-1)[0] else ELSE)
        identities = [
            RawNode(f"{node.name}:{out}", "Identity", "", (branch.outputs[at],), (out,)) for at, out in results
        ]
        return [*branch.nodes, *identities], dict(branch.constants)
    reason = f"If has a computed condition in opset {before.opset}"
    node.refuse_if(before.opset < 9, reason, "export with opset 13")  # onnxruntime has Where from opset 9 on
    # 2. If the condition is computed at run time, return the nodes of both branches, which run for every sample. This
    # is correct, because branches in ONNX have no side effects. A branch that fails the analysis with the known shapes
    # would also fail at run time, so such a branch is left out.
    sides = {key: _inlined(node, key) for key in (THEN, ELSE)}
    errors = {key: error for key, side in sides.items() if (error := before.error_of(side))}
    if len(errors) == len(sides):
        raise errors[THEN]
    test = f"{node.name}:condition"
    shape = f"{node.name}:shape"
    reshape = RawNode(f"{node.name}:reshape", "Reshape", "", (condition, shape), (test,))
    constants: dict[str, Array] = {shape: np.zeros(0, np.int64)}
    for key in sides.keys() - errors.keys():
        constants |= sides[key].constants
    if not errors:  # both branches fit, so a Where selects each result
        yes = sides[THEN]
        no = sides[ELSE]
        selects = [
            RawNode(f"{node.name}:{out}", "Where", "", (test, yes.outputs[at], no.outputs[at]), (out,), same_types=True)
            for at, out in results
        ]
        return [*yes.nodes, *no.nodes, reshape, *selects], constants
    (key,) = sides.keys() - errors.keys()
    nodes, more = _select_only(node, key, sides[key], test, before.opset)
    return [*sides[key].nodes, reshape, *nodes], constants | more


def _select_only(
    node: RawNode, key: str, side: RawGraph, test: str, opset: int
) -> tuple[list[RawNode], dict[str, Array]]:
    # At run time, the nodes must fail for a sample whose condition `test` chooses the other branch.
    # ONNX has no operator that fails. Therefore each result gets an axis with one element, and a Gather reads from this
    # axis: element 0 if the condition chooses this branch, else element 1, which is an error in onnxruntime.
    first, second, axis, place = (f"{node.name}:only_{key}_fits:{part}" for part in ("0", "1", "axis", "place"))
    constants = {first: np.array(0), second: np.array(1), axis: np.array([0])}
    values = (first, second) if key == THEN else (second, first)
    select = RawNode(f"{node.name}:only_{key}_fits", "Where", "", (test, *values), (place,))
    # The axes of Unsqueeze are an input from opset 13 on.
    more, attributes = ((axis,), {}) if opset >= 13 else ((), {"axes": [0]})
    widened_names = [f"{node.name}:{out}:wide" for out in node.outputs]
    widened = [
        RawNode(f"{name}:node", "Unsqueeze", "", (source, *more), (name,), attributes)
        for source, name in zip(side.outputs, widened_names, strict=True)
    ]
    gathered = [
        RawNode(f"{select.name}:{out}", "Gather", "", (name, place), (out,), {"axis": 0})
        for name, out in zip(widened_names, node.outputs, strict=True)
        if out
    ]
    return [select, *widened, *gathered], constants


def _inlined(node: RawNode, key: str) -> RawGraph:
    graph = node.graphs[key]
    names = {*graph.constants, *(name for inner in graph.nodes for name in inner.outputs)} - {""}
    return _renamed(graph, {name: f"{node.name}.{key}:{name}" for name in names}, f"{node.name}.{key}:")


def _renamed(graph: RawGraph, names: Mapping[str, str], prefix: str = "") -> RawGraph:
    def renamed(originals: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in originals)

    nodes = tuple(
        replace(
            node,
            name=prefix + node.name,
            inputs=renamed(node.inputs),
            outputs=renamed(node.outputs),
            graphs={key: _renamed(inner, names) for key, inner in node.graphs.items()},
        )
        for node in graph.nodes
    )
    constants = {names.get(name, name): value for name, value in graph.constants.items()}
    return RawGraph(nodes, constants, renamed(graph.outputs))


def without_branches(path: Path, shapes: Shapes | None = None, until: Collection[str] = ()) -> Any:
    """Return the model of an `.onnx` file as a ModelProto in which If nodes and constants are resolved.

    Open extents of inputs get the extents in `shapes`. Raises the errors of `read` and `resolve`.
    """
    raw = read(path, shapes, until)
    network = resolve(raw)
    onnx = package("onnx")
    helper = onnx.helper
    to_tensor = onnx.numpy_helper.from_array

    def written(node: RawNode) -> Any:
        # Leave out empty lists: their type is unknown, and an empty list is the default.
        attributes = {key: value for key, value in node.attributes.items() if value != []}
        attributes |= {key: to_tensor(array) for key, array in node.tensors.items()}
        return helper.make_node(node.op_type, node.inputs, node.outputs, node.name, domain=node.domain, **attributes)

    used = {name for node in network.nodes for name in node.inputs} | set(network.outputs)
    constants = {name: np.asarray(value, order="C") for name, value in network.constants.items() if name in used}
    initializers = [to_tensor(value, name) for name, value in constants.items()]
    inputs, outputs = (
        [ort.value_info(name, network.types[name]) for name in ends] for ends in (raw.inputs, raw.outputs)
    )
    graph = helper.make_graph([written(node) for node in network.nodes], path.stem, inputs, outputs, initializers)
    domains = sorted({node.domain for node in network.nodes} - {""})
    opsets = [helper.make_opsetid("", network.opset), *(helper.make_opsetid(name, 1) for name in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
