"""The analysed ONNX network, which the steps of the import rewrite and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.graph import ort
from tilewright.graph.ir import fresh_name
from tilewright.graph.ort import ValueType
from tilewright.graph.tensor import INT4, Int4, Quant
from tilewright.model.onnx_file import RawNode, as_json

CODES = ("int8", "uint8", INT4)
#: The first opset in which onnxruntime's MaxPool supports codes.
MAXPOOL_OPSET = 12
QUANTIZE = "QuantizeLinear"
DEQUANTIZE = "DequantizeLinear"
#: Operators that may clamp the unrounded results of another operator.
ACTIVATIONS = ("Relu", "Clip")
#: The operators with which the Add of a residual fuses in the mode `pow2`, and the number of axes of their results.
JOINED = {"Conv": 4, "Gemm": 2}


def widened(values: Array) -> Array:
    """Return constants of int4 as int8, others unchanged."""
    return values.astype(np.int8) if values.dtype.name == INT4 else values


@dataclass(eq=False)
class OnnxNetwork:
    """An analysed network: the nodes to run, in order, the types of all values, and the values of the constants."""

    opset: int
    nodes: list[RawNode]
    types: dict[str, ValueType]
    constants: dict[str, Array]
    outputs: tuple[str, ...]
    rounding: str = "ort"

    @cached_property
    def writer(self) -> Mapping[str, RawNode]:
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def readers(self) -> Mapping[str, list[RawNode]]:
        """For each value, the nodes that read it. A node that reads the value as two of its inputs occurs twice."""
        readers: dict[str, list[RawNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        return readers

    @cached_property
    def names(self) -> set[str]:
        """The names of all values, constants and nodes, and all names that `fresh` has returned."""
        return {*self.types, *self.constants, *self.writer, *(node.name for node in self.nodes)}

    def fresh(self, hint: str) -> str:
        return fresh_name(hint, self.names)

    def only_reader(self, name: str) -> RawNode | None:
        """Return the node that reads a value; None unless there is exactly one, and for outputs of the model."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def rank(self, name: str) -> int:
        return len(self.types[name].shape)

    def dtype(self, name: str) -> str:
        return self.types[name].dtype

    def with_nodes(
        self, nodes: Iterable[RawNode], constants: Mapping[str, Array], types: Mapping[str, ValueType] | None = None
    ) -> OnnxNetwork:
        network = replace(self, nodes=list(nodes), constants={**self.constants}, types={**self.types, **(types or {})})
        network.add_constants(constants)
        return network

    def add_constants(self, constants: Mapping[str, Array]) -> None:
        self.constants |= constants
        self.types |= {name: ort.type_of(value) for name, value in constants.items()}

    def are_constant(self, names: Iterable[str]) -> bool:
        return all(not name or name in self.constants for name in names)

    def call(self, node: RawNode) -> ort.Call:
        """Return the `ort.Call` for a node. Raises UnsupportedError for tensor attributes and unnamed outputs."""
        if node.tensors:
            key = next(iter(node.tensors))
            raise UnsupportedError(node.where, f"{node.op_type} has the unsupported tensor attribute {key}")
        inputs = tuple(self.types[name] if name else None for name in node.inputs)
        node.refuse_if("" in node.outputs, f"{node.op_type} has an output without a name", "name all its outputs")
        attributes = as_json(node.attributes)
        return ort.Call(node.name, node.op_type, node.domain, self.opset, attributes, inputs, len(node.outputs))

    def fold(self, node: RawNode) -> list[Array]:
        operands = [self.constants[name] if name else None for name in node.inputs]
        call = self.call(node)
        if any(operand is not None and operand.dtype.name == INT4 for operand in operands):
            # onnxruntime's interface for Python has no arrays of int4. Plain int8 gives the same real numbers.
            node.refuse_if(node.op_type != DEQUANTIZE, f"{node.op_type} of int4 constants is not supported")
            operands = [None if operand is None else widened(operand) for operand in operands]
            kinds = tuple(None if operand is None else ort.type_of(operand) for operand in operands)
            call = replace(call, inputs=kinds)
        return ort.run(call, ort.infer(call, ort.small(dict(enumerate(operands)))), operands, {})

    def quantisation(self, node: RawNode) -> Quant | None:
        if node.attributes.get("block_size") or len(node.inputs) < 2:
            return None
        axis = int(node.attributes.get("axis", 1))
        rank = self.rank(node.inputs[0])
        quant = self.quant(node.inputs[1], node.input(2), axis, rank)
        codes = (node.outputs if node.op_type == QUANTIZE else node.inputs)[0]
        narrow = quant and self.dtype(codes) == INT4 and codes not in self.constants
        return Int4(quant.scale, quant.zero_point, quant.axis) if quant and narrow else quant

    def quant(self, scale: str, zero: str, axis: int, rank: int) -> Quant | None:
        """Return the Quant for the constants `scale` and `zero` of a tensor with `rank` axes.

        None: one of the two is not constant, or the scales are not positive numbers.
        """
        constant = self.constants.get(scale)
        if constant is None or constant.dtype != np.float32 or not self.are_constant((zero,)):
            return None
        # All channels may share one zero point; the axis matters only if there are several scales.
        scales = constant.astype(np.float64).reshape(-1)
        zeros = self.constants[zero].reshape(-1) if zero else np.zeros(scales.size, np.int64)
        if zeros.size not in (1, scales.size) or not scales.size:
            return None
        if not (np.isfinite(scales) & (scales > 0)).all() or not -rank <= axis < max(rank, 2):
            return None
        zero_points = tuple(int(z) for z in np.broadcast_to(zeros, scales.shape))
        return Quant(tuple(scales.tolist()), zero_points, axis % rank if scales.size > 1 else 0)
