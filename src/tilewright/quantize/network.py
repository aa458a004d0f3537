"""Look-ups in an ONNX graph that several steps share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from tilewright.array import Array

FLOAT = onnx.TensorProto.FLOAT


class Network:
    """A prepared model with its constants, consumers and shapes at hand."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.nodes: list[NodeProto] = list(model.graph.node)
        self.inputs = [info.name for info in model.graph.input]
        self.outputs = [info.name for info in model.graph.output]
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._arrays: dict[str, Array] = {}
        self.producer = {name: node for node in self.nodes for name in node.output if name}
        self.consumers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self.consumers.setdefault(name, []).append(node)
        self._types = {
            info.name: info.type.tensor_type
            for info in (*model.graph.value_info, *model.graph.input, *model.graph.output)
        }

    def is_constant(self, name: str) -> bool:
        return name in self._constants

    def constant(self, name: str) -> Array:
        """The value of a constant."""
        if name not in self._arrays:
            self._arrays[name] = numpy_helper.to_array(self._constants[name])
        return self._arrays[name]

    def is_float(self, name: str) -> bool:
        if self.is_constant(name):
            return self._constants[name].data_type == FLOAT
        return name in self._types and self._types[name].elem_type == FLOAT

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; () where it is not known."""
        if self.is_constant(name):
            return tuple(self._constants[name].dims)
        if name not in self._types:
            return ()
        return tuple(dim.dim_value for dim in self._types[name].shape.dim)

    def only_consumer(self, name: str) -> NodeProto | None:
        """The one node that reads a tensor, where there is one and it is no output of the model."""
        readers = self.consumers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    for item in node.attribute:
        if item.name == name:
            value = helper.get_attribute_value(item)
            return value.decode() if isinstance(value, bytes) else value
    return default


def is_zero(values: Iterable[Array]) -> bool:
    return all(not np.any(value) for value in values)
