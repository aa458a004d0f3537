"""The graph while it is built from ONNX steps: tensors by name, nodes in order, layouts changed where asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.graph import ops
from tilewright.graph.arithmetic import Activation
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.model.onnx_codes import Coded
from tilewright.model.onnx_values import Known

#: Channels last, and back.
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class Builder:
    """Values keep their ONNX names and shapes; what is added is named after them, as `x:nhwc`."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.dequantised: set[str] = set()  # constants that onnxruntime makes of codes in each run
        self.refused: set[str] = set()  # operators that have to be computed on real numbers
        self._names = set(known.types)
        self._made: dict[tuple[str, str], str] = {}

    def graph(self, name: str, inputs: Sequence[str]) -> Graph:
        """The graph of all that was emitted, with tensors that something uses."""
        known = self.known
        for end in (*inputs, *known.outputs):
            self.value(end)
        used = {n for node in self.nodes for n in (*node.inputs, *node.outputs)} | {*inputs, *known.outputs}
        tensors = {key: tensor for key, tensor in self.tensors.items() if key in used}
        return Graph(name, tensors, tuple(self.nodes), tuple(inputs), known.outputs, "ort")

    def shape(self, name: str) -> tuple[int, ...]:
        return self.known.types[name].shape

    def constant_of(self, name: str) -> Array | None:
        return self.known.constants.get(name)

    def value(self, name: str) -> str:
        """An ONNX value as a tensor of the graph, without quantisation of its own; '' stays ''."""
        if name and name not in self.tensors:
            kind = self.known.types[name]
            data = self.known.constants.get(name)
            self.tensors[name] = Tensor(name, kind.shape, kind.dtype, None, data)
        return name

    def coded(self, coded: Coded) -> str:
        """A tensor of codes with the quantisation that its reader gives it; an alias where it has another."""
        tensor = self.tensors[self.value(coded.tensor)]
        if tensor.quant is None and coded.quant is not None:
            self.tensors[tensor.name] = replace(tensor, quant=coded.quant)
        elif tensor.quant != coded.quant and coded.quant is not None:
            key = (coded.tensor, repr(coded.quant))
            if key not in self._made:
                self._made[key] = self.fresh(f"{coded.tensor}:again")
                again = replace(tensor, name=self._made[key], quant=coded.quant)
                if tensor.data is None:
                    self.emit(again.name, ops.Reshape(tensor.shape), (tensor.name,), (again,))
                else:
                    self.tensors[again.name] = again
            return self._made[key]
        return coded.tensor

    def constant(self, hint: str, data: Array, quant: Quant | None = None) -> str:
        name = self.fresh(hint)
        self.tensors[name] = Tensor(name, data.shape, data.dtype.name, quant, np.array(data, order="C"))
        return name

    def scalars(self, quant: Quant, dtype: str, hint: str) -> tuple[str, str]:
        """Scale and zero point as constants, as QLinear operators take them."""
        many = quant.per_channel
        scale = np.array(quant.scale if many else quant.scale[0], np.float32)
        zero = np.array(quant.zero_point if many else quant.zero_point[0], dtype)
        return self.constant(f"{hint}:scale", scale), self.constant(f"{hint}:zero", zero)

    def result(self, coded: Coded) -> Tensor:
        """The tensor that an operator on codes writes."""
        kind = self.known.types[coded.tensor]
        return Tensor(coded.tensor, kind.shape, kind.dtype, coded.quant)

    def emit(self, name: str, op: ops.Op, inputs: Sequence[str], outputs: Sequence[Tensor]) -> None:
        self.tensors |= {tensor.name: tensor for tensor in outputs}
        self.nodes.append(Node(name, op, tuple(inputs), tuple(tensor.name for tensor in outputs)))

    def emit_nhwc(self, name: str, op: ops.Op, inputs: Sequence[str], output: Tensor) -> None:
        """An operator on images: its first input and its output in channels-last layout, transposed around it."""
        first = self.nhwc(inputs[0])
        inner = replace(output, name=self.fresh(f"{output.name}:nhwc"), shape=permuted(output.shape, TO_NHWC))
        self.emit(name, op, (first, *inputs[1:]), (inner,))
        self.emit(self.fresh(f"{output.name}:nchw"), ops.Transpose(TO_NCHW), (inner.name,), (output,))

    def clamp(self, name: str, output: str, activation: Activation) -> None:
        """A clamp of its own behind the node that was emitted last, which writes `output` without one."""
        out, node = self.tensors.pop(output), self.nodes.pop()
        inner = replace(out, name=self.fresh(f"{output}:unclamped"))
        self.emit(node.name, node.op, node.inputs, (inner,))
        self.emit(self.fresh(f"{name}:{activation}"), ops.Clamp(activation), (inner.name,), (out,))

    def nhwc(self, name: str) -> str:
        key = (name, "nhwc")
        if key not in self._made:
            tensor = self.tensors[name]
            self._made[key] = self.fresh(f"{name}:nhwc")
            image = replace(tensor, name=self._made[key], shape=permuted(tensor.shape, TO_NHWC))
            if tensor.data is None:
                self.emit(image.name, ops.Transpose(TO_NHWC), (name,), (image,))
            else:
                data = np.ascontiguousarray(tensor.data.transpose(TO_NHWC))
                self.tensors[image.name] = replace(image, data=data)
        return self._made[key]

    def fresh(self, hint: str) -> str:
        name, count = hint, 2
        while name in self._names:
            name, count = f"{hint}{count}", count + 1
        self._names.add(name)
        return name


def permuted(shape: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in permutation)
