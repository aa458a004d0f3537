"""An ONNX model under construction from a float .tflite file. Weights may be float16, or int8 with scales.

Values with four axes are channels-first between convolutions. Operators that depend on the order of axes get values in
the order of the file, which is also the order of the model's inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.ir import fresh_name
from tilewright.graph.layout import TO_NCHW, TO_NHWC
from tilewright.graph.rounding import BOUNDS, Activation
from tilewright.graph.tensor import Tensor
from tilewright.model.tflite import folded
from tilewright.model.tflite_file import Call, read

OPSET = 14
IR_VERSION = 8  # for OPSET, the first opset with HardSwish


class Conversion:
    """An ONNX model under construction. Raises UnsupportedError if an input of the file is not float32.

    `in_file_order` and `channels_first` map values to their ONNX names in this order of axes. If a value is needed in
    an order in which it has no name, a transpose is added.
    """

    def __init__(self, path: Path) -> None:
        network = read(path)[0]
        self.name = path.stem
        self.calls = network.calls
        self.inputs = network.inputs
        self.outputs = network.outputs
        self.tensors = {tensor.name: tensor for tensor in network.tensors}
        self.names = set(self.tensors)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.in_file_order: dict[str, str] = {name: name for name in self.inputs}
        self.channels_first: dict[str, str] = {}
        for name in self.inputs:
            tensor = self.tensors[name]
            if tensor.dtype != "float32":
                how = "run it without quantising" if tensor.dtype in ("int8", "int16", "uint8") else "use float32"
                raise UnsupportedError(f"input '{name}'", f"is {tensor.dtype}, not float32", how)

    def fold(self, call: Call) -> bool:
        """Compute an operator with constant inputs and store its result. Return False for other operators."""
        data = folded(call)
        if data is None and call.code == "DEQUANTIZE" and call.tensor(0).data is not None:
            data = self.real(call.tensor(0))
        if data is None:
            return False
        self.tensors[call.output.name] = replace(call.output, shape=data.shape, data=data.astype(call.output.dtype))
        return True

    def real(self, tensor: Tensor) -> Array:
        """Return a constant as float32, dequantised if it has scales. Raises UnsupportedError for other tensors."""
        data = tensor.data
        if data is None:
            raise UnsupportedError(f"tensor '{tensor.name}'", "is computed where a constant is required")
        if data.dtype.kind == "f":
            return data.astype(np.float32)
        if tensor.quant is None:
            raise UnsupportedError(f"tensor '{tensor.name}'", f"is {tensor.dtype} without a scale", "use float32")
        scale, zero = map(tensor.spread, (tensor.quant.scale, tensor.quant.zero_point))
        return np.asarray((data.astype(np.float64) - zero) * scale, np.float32)

    def constant(self, hint: str, data: Array) -> str:
        name = fresh_name(hint, self.names)
        self.constants[name] = data
        return name

    def add(self, kind: str, inputs: Sequence[str], hint: str, count: int = 1, **attributes: Any) -> list[str]:
        outputs = [fresh_name(hint, self.names) for _ in range(count)]
        name = fresh_name(f"{hint}:{kind}", self.names)  # with a colon, because onnxruntime names new nodes like Mul_1
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name, **attributes))
        return outputs

    def add_one(self, kind: str, inputs: Sequence[str], hint: str, **attributes: Any) -> str:
        return self.add(kind, inputs, hint, **attributes)[0]

    def node(
        self,
        call: Call,
        kind: str,
        constants: Mapping[str, Array] | None = None,
        first: bool = False,
        x: Tensor | None = None,
        activation: Activation = "none",
        **attributes: Any,
    ) -> None:
        """Add a node of `x` and `constants`, and store its result. If `first`, the node uses channels first."""
        x = call.tensor(0) if x is None else x
        inputs = [self.value(x, first)]
        inputs += [self.constant(name, data) for name, data in (constants or {}).items()]
        self.finish(call, self.add_one(kind, inputs, call.output.name, **attributes), first, activation)

    def reshaped(self, value: str, shape: Sequence[int], hint: str) -> str:
        return self.add_one("Reshape", [value, self.constant("shape", np.array(shape, np.int64))], hint)

    def finish(self, call: Call, value: str, first: bool = False, activation: Activation = "none") -> None:
        """Apply the fused activation of an operator, and store its result."""
        if activation == "relu":
            value = self.add_one("Relu", [value], call.output.name)
        elif activation != "none":
            value = self.clipped(value, BOUNDS[activation], call.output.name)
        self.keep(call.output, value, first)

    def clipped(self, value: str, bounds: Sequence[float | None], hint: str) -> str:
        limits = [self.constant("bound", np.array(bound, np.float32)) for bound in bounds]
        return self.add_one("Clip", [value, *limits], hint)

    def value(self, tensor: Tensor, first: bool = False) -> str:
        """Return the ONNX name of a value: with four axes and channels first if `first`, else in the file's order.

        Constants are reshaped to four axes if necessary. Raises ModelError if no operator has computed the value.
        """
        name = tensor.name
        names, others = (
            (self.channels_first, self.in_file_order) if first else (self.in_file_order, self.channels_first)
        )
        if name in names:
            return names[name]
        # Integer constants without a scale are indices or shapes, so they stay integers.
        if tensor.data is not None:
            integers = tensor.data.dtype.kind in "ib" and tensor.quant is None and not first
            data = tensor.data if integers else self.real(tensor)
            if first:
                data = data.reshape((1,) * (4 - data.ndim) + data.shape).transpose(TO_NCHW)
            names[name] = self.constant(f"{name}:first" if first else name, data)
        elif name in others:
            hint, order = (f"{name}:first", TO_NCHW) if first else (f"{name}:last", TO_NHWC)
            names[name] = self.add_one("Transpose", [others[name]], hint, perm=order)
        else:
            raise ModelError(f"tensor '{name}'", "is read before anything has written it")
        return names[name]

    def prefers_first(self, tensors: Sequence[Tensor], rank: int) -> bool:
        """Return whether an element-wise operator should compute with channels first."""
        computed = [tensor for tensor in tensors if tensor.data is None]
        # An operand that exists only with channels first would otherwise need a transpose.
        is_first = any(x.name in self.channels_first and x.name not in self.in_file_order for x in computed)
        return rank == 4 and is_first and all(len(x.shape) == 4 for x in computed)

    def keep(self, tensor: Tensor, name: str, first: bool) -> None:
        """Record the ONNX name of a tensor, with channels first or in the file's order."""
        (self.channels_first if first else self.in_file_order)[tensor.name] = name

    def model(self) -> ModelProto:
        """Raises UnsupportedError if an output is not float32."""
        ends: list[ValueInfoProto] = []
        for name in self.outputs:
            tensor = self.tensors[name]
            if tensor.dtype != "float32":
                raise UnsupportedError(f"output '{name}'", f"is {tensor.dtype}, not float32")
            # An output that is also an input needs another name.
            final = name if name not in self.inputs else f"{name}:output"
            self.nodes.append(helper.make_node("Identity", [self.value(tensor)], [final], f"output_{len(ends)}"))
            ends.append(helper.make_tensor_value_info(final, TensorProto.FLOAT, tensor.shape))
        starts = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, self.tensors[name].shape) for name in self.inputs
        ]
        arrays = {name: np.ascontiguousarray(data) for name, data in self.constants.items()}
        initializers = [numpy_helper.from_array(data, name) for name, data in arrays.items()]
        graph = helper.make_graph(self.nodes, self.name, starts, ends, initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
