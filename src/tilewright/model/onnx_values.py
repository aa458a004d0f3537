"""Analyses an ONNX graph before it runs: infers the type of every value, and computes the constant values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph import ort
from tilewright.graph.ir import fresh_name
from tilewright.graph.ort import ValueType
from tilewright.graph.tensor import MAX_COMPUTED, MAX_ELEMENTS, Quant
from tilewright.model.onnx_control import check_alike, inlined, names_read
from tilewright.model.onnx_file import CUSTOM, RawModel, RawNode

#: Limit of constant folding: elements of all folded constants of a model together.
MAX_FOLDED = 1 << 26
CODES = ("int8", "uint8")
#: The first opset in which onnxruntime's MaxPool takes codes.
MAXPOOL_OPSET = 12
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
#: Operators that may clamp the results of another operator before they are rounded.
ACTIVATIONS = ("Relu", "Clip")
#: Operators whose sums an addition may join in the rounding mode `pow2`, and the number of axes of their results.
JOINED = {"Conv": 4, "Gemm": 2}
_INFERENCE = "export the model for inference"
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")


@dataclass(frozen=True, eq=False)
class Known:
    """An analysed network: the nodes to run, in order, the types of all values, and the values of the constants."""

    opset: int
    nodes: tuple[RawNode, ...]
    types: Mapping[str, ValueType]
    constants: Mapping[str, Array]
    outputs: tuple[str, ...]
    rounding: str = "ort"

    @cached_property
    def writer(self) -> Mapping[str, RawNode]:
        """A mapping from the name of each value to the node that writes it."""
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def readers(self) -> Mapping[str, list[RawNode]]:
        """A mapping from the name of each value to the nodes that read it. A node that reads it twice occurs twice."""
        found: dict[str, list[RawNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def names(self) -> set[str]:
        """The names of all values, constants and nodes, and those that `fresh` has given."""
        return {*self.types, *self.constants, *self.writer, *(node.name for node in self.nodes)}

    def fresh(self, hint: str) -> str:
        """Return `hint` as an unused name, for a new value, constant or node."""
        return fresh_name(hint, self.names)

    def only_reader(self, name: str) -> RawNode | None:
        """Return the only node that reads a value; None if there is not exactly one, or the model outputs the value."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def rank(self, name: str) -> int:
        return len(self.types[name].shape)

    def having(
        self, nodes: Iterable[RawNode], constants: Mapping[str, Array], types: Mapping[str, ValueType] | None = None
    ) -> Known:
        """Return the network with `nodes` in place of its nodes, and with additional constants and types of values."""
        more = {name: type_of(value) for name, value in constants.items()} | dict(types or {})
        return replace(
            self, nodes=tuple(nodes), constants={**self.constants, **constants}, types={**self.types, **more}
        )


def quantisation(known: Known, node: RawNode) -> Quant | None:
    """Return the scale and zero point of a QuantizeLinear or DequantizeLinear; None if computed or given per block."""
    if node.attributes.get("block_size") or len(node.inputs) < 2:
        return None
    axis, rank = int(node.attributes.get("axis", 1)), known.rank(node.inputs[0])
    return quant_of(known, node.inputs[1], node.input(2), axis, rank)


def quant_of(known: Known, scale: str, zero: str, axis: int, rank: int) -> Quant | None:
    """Return the Quant of the values named `scale` and `zero`; None unless constant, with positive float32 scales."""
    constants = known.constants
    if scale not in constants or (zero and zero not in constants):
        return None
    if constants[scale].dtype != np.float32:
        return None
    scales = constants[scale].astype(np.float64).reshape(-1)
    zeros = constants[zero].reshape(-1) if zero else np.zeros(scales.size, np.int64)
    if zeros.size not in (1, scales.size) or not scales.size:
        return None
    if not (np.isfinite(scales) & (scales > 0)).all() or not -rank <= axis < max(rank, 2):
        return None
    each = tuple(int(z) for z in np.broadcast_to(zeros, scales.shape))
    return Quant(tuple(scales.tolist()), each, axis % rank if scales.size > 1 else 0)


def resolve(raw: RawModel) -> Known:
    """Return an ONNX graph with the types of all its values inferred and its constant values computed.

    Raises ModelError if nodes are out of order, a name is written twice, an output is never written, or constants are
    too large.
    """
    given = _Resolved(raw.opset, dict(raw.inputs), {}, set(names_read(raw.nodes)) | set(raw.outputs))
    given.hold(raw.constants)
    given.add(raw.nodes)
    for name in raw.outputs:
        if name not in given.types:
            raise ModelError("", f"output '{name}' is never written")
    return Known(raw.opset, tuple(given.nodes), given.types, given.constants, raw.outputs, raw.rounding)


@dataclass(eq=False)
class _Resolved:
    """The analysed part of a network: its nodes, and the types and constant values so far. `used` are names read."""

    opset: int
    types: dict[str, ValueType]
    constants: dict[str, Array]
    used: set[str]
    nodes: list[RawNode] = field(default_factory=list)
    folded: int = 0

    def hold(self, constants: Mapping[str, Array]) -> None:
        self.constants |= constants
        self.types |= {name: type_of(value) for name, value in constants.items()}

    def add(self, nodes: Iterable[RawNode]) -> None:
        """Analyse more nodes, in order, and those that replace them. Raises ModelError or UnsupportedError."""
        pending = deque(nodes)
        while pending:
            given = pending.popleft()
            for name in given.inputs:
                reason = f"reads '{name}' before anything has written it: a cycle or a wrong order"
                given.fail_if(name and name not in self.types, reason)
            if given.graphs:
                inner, constants = inlined(given, self.opset, self.types, self.constants, self._fits)
                self.used.update(names_read(inner))
                self.hold(constants)
                pending.extendleft(reversed(inner))
            else:
                self._add(replace(given, outputs=_wanted(given, self.opset, self.used)))

    def _add(self, node: RawNode) -> None:
        for name in node.outputs:
            node.fail_if(name in self.types, f"writes '{name}', a name that is already in use")
        values = _constant(node, self.opset, self.types, self.constants)
        if values is None:
            self.nodes.append(node)
            if node.alike:
                check_alike(node, self.types)
            made = _types(node, self.opset, self.types, self.constants)
            self.types |= zip(filter(None, node.outputs), made, strict=True)
            return
        self.folded += sum(value.size for value in values if 0 not in value.strides or value.size == 1)
        node.fail_if(self.folded > MAX_FOLDED, f"exceeds the limit of {MAX_FOLDED} elements for computed constants")
        self.hold(dict(zip(filter(None, node.outputs), values, strict=True)))

    def _fits(self, nodes: Sequence[RawNode], constants: Mapping[str, Array]) -> ModelError | None:
        """Return the error of analysing a branch with the shapes that are known before it; None if it has none."""
        used = self.used | set(names_read(nodes))
        trial = _Resolved(self.opset, dict(self.types), dict(self.constants), used, folded=self.folded)
        trial.hold(constants)
        try:
            trial.add(nodes)
        except ModelError as error:
            return error
        return None


def _wanted(node: RawNode, opset: int, used: set[str]) -> tuple[str, ...]:
    """Return a node's output names up to the last one that is used: unused optional outputs at the end are left out."""
    last = max((index for index, name in enumerate(node.outputs) if name and name in used), default=0)
    if last + 1 < len(node.outputs):
        last = max(last, ort.least_outputs(node.op_type, node.domain, opset) - 1)
    return node.outputs[: last + 1]


def type_of(value: Array) -> ValueType:
    return ValueType(value.dtype.name, value.shape)


def call_of(node: RawNode, opset: int, types: Mapping[str, ValueType]) -> ort.Call:
    """Return a node as an `ort.Call`. Raises UnsupportedError if an attribute is a tensor or an output has no name."""
    if node.tensors:
        key = next(iter(node.tensors))
        raise UnsupportedError(node.where, f"{node.op_type} has the unsupported tensor attribute {key}")
    inputs = tuple(types[name] if name else None for name in node.inputs)
    node.refuse_if("" in node.outputs, f"{node.op_type} has an output without a name", "name all its outputs")
    return ort.Call(node.name, node.op_type, node.domain, opset, node.json, inputs, len(node.outputs))


def _types(
    node: RawNode, opset: int, types: Mapping[str, ValueType], constants: Mapping[str, Array]
) -> tuple[ValueType, ...]:
    node.refuse_if(node.op_type in _RANDOM, f"{node.op_type} is random", _INFERENCE)
    if node.op_type == "Dropout" and len(node.inputs) > 2 and constants.get(node.inputs[2], True):
        raise UnsupportedError(node.where, "Dropout trains, or decides at run time whether to train", _INFERENCE)
    if node.op_type in CUSTOM:
        return (types[node.inputs[0]],)
    known = ort.small({index: constants.get(name) for index, name in enumerate(node.inputs)})
    # Dequantised weights may exceed MAX_COMPUTED: fused operators read the codes, and the graph refuses other uses.
    weights = node.op_type == DEQUANTIZE and node.inputs[0] in constants
    return ort.infer(call_of(node, opset, types), known, MAX_ELEMENTS if weights else MAX_COMPUTED)


def _constant(
    node: RawNode, opset: int, types: Mapping[str, ValueType], constants: Mapping[str, Array]
) -> list[Array] | None:
    """Return the values of a node's outputs if they are constant; None if the node must run for each sample."""
    where = node.where
    if node.op_type == "Constant":
        return [_literal(node)]
    if node.op_type == "Shape" and len(node.inputs) == 1:
        shape = types[node.inputs[0]].shape
        start, end = node.attributes.get("start", 0), node.attributes.get("end", len(shape))
        return [np.array(shape[start:end], np.int64)]
    if node.op_type == "ConstantOfShape" and node.inputs and node.inputs[0] in constants:
        extents = tuple(int(extent) for extent in constants[node.inputs[0]].reshape(-1)[:9])
        if len(extents) > 8 or any(not 0 <= e <= MAX_ELEMENTS for e in extents) or prod(extents) > MAX_ELEMENTS:
            raise ModelError(where, f"makes a constant of shape {list(extents)}; the limit is {MAX_ELEMENTS} elements")
        value = node.tensors.get("value", np.zeros(1, np.float32)).reshape(-1)
        return [np.broadcast_to(value[0] if value.size else np.float32(0), extents)]
    kept = (*CUSTOM, *_RANDOM, DEQUANTIZE)
    if not node.inputs or not all(not name or name in constants for name in node.inputs) or node.op_type in kept:
        return None
    return fold(node, opset, types, constants)


def fold(node: RawNode, opset: int, types: Mapping[str, ValueType], constants: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a node with constant inputs, computed by onnxruntime."""
    call = call_of(node, opset, types)
    operands = [constants[name] if name else None for name in node.inputs]
    outputs = ort.infer(call, ort.small(dict(enumerate(operands))))
    return ort.run(call, outputs, operands, {})


def _literal(node: RawNode) -> Array:
    if "value" in node.tensors:
        return node.tensors["value"]
    for key in ("value_int", "value_ints", "value_float", "value_floats"):
        if key in node.attributes:
            return np.array(node.attributes[key], np.int64 if "int" in key else np.float32)
    raise UnsupportedError(node.where, "is a Constant whose value is neither a tensor nor numbers")
