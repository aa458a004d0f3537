"""Operators on codes before they become nodes of the graph (`Fused`), and the graph in construction (`Builder`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Site, fresh_name
from tilewright.graph.layout import TO_NCHW, TO_NHWC
from tilewright.graph.rounding import Activation
from tilewright.graph.tensor import INT4, Named, Quant, Tensor
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import CODES, MAXPOOL_OPSET, OnnxNetwork, widened

#: Operators that return their input's elements in the same order.
SAME = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
#: Operators that onnxruntime runs directly on codes if input and output have the same quantisation.
MOVES = {*SAME, "Transpose", "Slice", "Gather", "Split", "Expand", "Tile", "Resize", "MaxPool", "Pad"}
MOVES |= {"DepthToSpace", "SpaceToDepth"}
#: Operators whose second operand is weights. Weights may have another type than activations, and a scale per channel.
LINEAR = ("Conv", "Gemm", "MatMul")
#: Other operators that the graph computes on codes of 4 bits, without onnxruntime's kernels.
NARROW = ("Add", "Mul", "Concat", "Requantize")


@dataclass(frozen=True)
class Coded:
    """The name of a tensor of codes, and its quantisation; `quant` is None for real results of operators on codes."""

    tensor: str
    quant: Quant | None


@dataclass(frozen=True, eq=False)
class Fused(Named):
    """An operator that reads and writes codes, made of the nodes of a pattern."""

    name: str
    op_type: str
    attributes: Mapping[str, Any]
    inputs: tuple[Coded, ...]
    #: The tensor of int32 bias codes; '' if there is no bias.
    bias: str
    #: The inputs that are not codes, such as a shape.
    other_inputs: tuple[str, ...]
    outputs: tuple[Coded, ...]
    #: The activation that clamps the results before rounding.
    activation: Activation = "none"
    #: The tensor of codes that is added to the sums before rounding.
    residual: Coded | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        more = (self.residual.tensor,) if self.residual else ()
        return (*(coded.tensor for coded in self.inputs), self.bias, *self.other_inputs, *more)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(coded.tensor for coded in self.outputs)


def is_unscaled(node: RawNode | Fused) -> bool:
    return node.attributes.get("alpha", 1.0) == node.attributes.get("beta", 1.0) == 1.0


def one_scale(network: OnnxNetwork, coded: Coded) -> bool:
    return network.dtype(coded.tensor) in CODES and coded.quant is not None and not coded.quant.per_channel


def has_kernel(network: OnnxNetwork, fused: Fused) -> bool:
    # All activations and results must be 8-bit codes of the same type, each with one scale. Weights may have another
    # type, and a scale per channel.
    activations = fused.inputs[:1] if fused.op_type in LINEAR else fused.inputs
    ends = (*activations, *(coded for coded in fused.outputs if coded.quant))
    dtypes = {network.dtype(coded.tensor) for coded in ends}
    mixed = len(dtypes) > 1 and not (fused.op_type in LINEAR and dtypes == {"int8", INT4})
    if mixed or not all(one_scale(network, coded) for coded in ends):
        return False
    if fused.op_type in MOVES:
        return all(coded.quant == fused.inputs[0].quant for coded in fused.outputs) and _moves_codes(network, fused)
    if fused.op_type in LINEAR:
        weights = network.dtype(fused.inputs[1].tensor)
        quant = fused.inputs[1].quant
        columns = network.types[fused.outputs[0].tensor].shape[-1:]
        # QGemm supports a scale per column of its result, but no kernel supports uint8 weights with int8 activations.
        if fused.op_type == "Gemm" and quant and quant.per_channel and (len(quant.scale),) != columns:
            return False
        return weights in CODES and not (dtypes == {"int8"} and weights == "uint8")
    return INT4 not in dtypes or fused.op_type in NARROW


def _moves_codes(network: OnnxNetwork, fused: Fused) -> bool:
    """Return whether an operator of MOVES can move codes: it does not interpolate, and its padding has a code."""
    mode = fused.attributes.get("mode")
    if fused.op_type == "Resize":
        fills = fused.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        return mode in (None, "nearest") and not fills  # the fill value is a real number
    if fused.op_type == "Pad":
        constant = mode in (None, "constant")
        # onnxruntime's Pad supports codes from opset 11 on.
        return padding_of(network, fused) is not None if constant else network.opset >= 11
    if fused.op_type == "MaxPool" and network.opset < MAXPOOL_OPSET:
        return network.rank(fused.inputs[0].tensor) == 4  # images use the graph's own MaxPool2D, others onnxruntime
    return True


def padding_of(network: OnnxNetwork, fused: Fused) -> tuple[tuple[tuple[int, int], ...], float] | None:
    """Return the padding (before, after) of each axis, and the real fill value; None: negative or not constant."""
    rank = network.rank(fused.inputs[0].tensor)
    if len(fused.other_inputs) > 2 or not network.are_constant(fused.other_inputs):
        return None
    attribute = np.array(fused.attributes.get("pads", ()))
    pads = network.constants.get(fused.other_inputs[0], attribute) if fused.other_inputs else attribute
    if pads.size != 2 * rank or (pads < 0).any():
        return None
    value = float(fused.attributes.get("value", 0.0))
    if len(fused.other_inputs) > 1 and fused.other_inputs[1]:
        value = float(network.constants[fused.other_inputs[1]].reshape(-1)[0])
    return tuple((int(before), int(after)) for before, after in pads.reshape(2, -1).T), value


class Builder:
    """Collects the tensors and nodes of a graph. ONNX values keep name and shape; new tensors are named `x:nhwc`."""

    def __init__(self, network: OnnxNetwork) -> None:
        self.network = network
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.dequantised: set[str] = set()  # results of quantise or dequantise nodes with a constant input
        self.refused: set[str] = set()  # operators that must compute on real numbers
        self._names = set(network.types)
        self._copies: dict[tuple[str, str], str] = {}

    def graph(self, name: str, inputs: tuple[str, ...]) -> Graph:
        for end in (*inputs, *self.network.outputs):
            self.value(end)
        return Graph(name, self.tensors, tuple(self.nodes), inputs, self.network.outputs, "ort").pruned()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.network.types[name].shape

    def value(self, name: str) -> str:
        """Return `name`. If there is no tensor for this ONNX value yet, add a tensor without quantisation."""
        if name and name not in self.tensors:
            data = self.network.constants.get(name)
            self.tensors[name] = replace(self.result(Coded(name, None)), data=None if data is None else widened(data))
        return name

    def tensor_of(self, coded: Coded) -> str:
        tensor = self.tensors[self.value(coded.tensor)]
        if tensor.quant is None and coded.quant is not None:
            self.tensors[tensor.name] = replace(tensor, quant=coded.quant)
        elif tensor.quant != coded.quant and coded.quant is not None:
            # A tensor of the graph has one quantisation, but a file may read the same codes at several scales.
            key = (coded.tensor, repr(coded.quant))
            if key not in self._copies:
                self._copies[key] = self.fresh(f"{coded.tensor}:again")
                copy = replace(tensor, name=self._copies[key], quant=coded.quant)
                if tensor.data is None:
                    self.emit(copy.name, ops.Reshape(tensor.shape), (tensor.name,), copy)
                else:
                    self.tensors[copy.name] = copy
            return self._copies[key]
        return coded.tensor

    def constant(self, hint: str, data: Array, quant: Quant | None = None) -> str:
        name = self.fresh(hint)
        data = widened(data)
        self.tensors[name] = Tensor(name, data.shape, data.dtype.name, quant, np.array(data, order="C"))
        return name

    def scalars(self, coded: Coded) -> tuple[str, str]:
        assert coded.quant is not None
        shape = (-1,) if coded.quant.per_channel else ()
        scale = np.array(coded.quant.scale, np.float32).reshape(shape)
        zero = np.array(coded.quant.zero_point, self.network.dtype(coded.tensor)).reshape(shape)
        return self.constant(f"{coded.tensor}:scale", scale), self.constant(f"{coded.tensor}:zero", zero)

    def result(self, coded: Coded) -> Tensor:
        kind = self.network.types[coded.tensor]
        return Tensor(coded.tensor, kind.shape, "int8" if kind.dtype == INT4 else kind.dtype, coded.quant)

    def emit(self, name: str, op: ops.Op, inputs: Sequence[str], *outputs: Tensor) -> None:
        self.tensors |= {tensor.name: tensor for tensor in outputs}
        self.nodes.append(Node(name, op, tuple(inputs), tuple(tensor.name for tensor in outputs)))

    def emit_nhwc(self, name: str, op: ops.Op, inputs: Sequence[str], output: Tensor) -> None:
        first = self.nhwc(inputs[0])
        shape = tuple(output.shape[axis] for axis in TO_NHWC)
        inner = replace(output, name=self.fresh(f"{output.name}:nhwc"), shape=shape)
        self.emit(name, op, (first, *inputs[1:]), inner)
        self.emit(self.fresh(f"{output.name}:nchw"), ops.Transpose(TO_NCHW), (inner.name,), output)

    def clamp(self, name: str, output: str, activation: Activation) -> None:
        """Emit a separate clamp after the last emitted node, so that `output` holds the clamped values."""
        out = self.tensors.pop(output)
        node = self.nodes.pop()
        inner = replace(out, name=self.fresh(f"{output}:unclamped"))
        self.emit(node.name, node.op, node.inputs, inner)
        self.emit(self.fresh(f"{name}:{activation}"), ops.Clamp(activation), (inner.name,), out)

    def nhwc(self, name: str) -> str:
        key = (name, "nhwc")
        if key not in self._copies:
            tensor = self.tensors[name]
            if tensor.data is None:
                self._copies[key] = self.apply(name, "nhwc", ops.Transpose(TO_NHWC))
            else:
                self._copies[key] = self.constant(f"{name}:nhwc", tensor.data.transpose(TO_NHWC), tensor.quant)
        return self._copies[key]

    def apply(self, name: str, hint: str, op: ops.Op, *more: str, **changed: Any) -> str:
        """Emit `op` on tensor `name`; return the result's name. `changed` has the Tensor fields that `op` changes."""
        source = self.tensors[name]
        result = replace(source, name=self.fresh(f"{name}:{hint}"), data=None, **changed)
        node = Node(result.name, op, (name, *more), (result.name,))
        (shape,) = op.shapes(Site(node, (source,), (result,)))
        self.emit(node.name, op, node.inputs, replace(result, shape=shape))
        return result.name

    def fresh(self, hint: str) -> str:
        return fresh_name(hint, self._names)
