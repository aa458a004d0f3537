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
from tilewright.graph.tensor import Named, Quant, Tensor
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import CODES, MAXPOOL_OPSET, Known

#: Operators that return the same elements in the same order.
SAME = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
#: Operators that onnxruntime runs directly on codes if input and output have the same quantisation.
MOVES = {*SAME, "Transpose", "Slice", "Gather", "Split", "Expand", "Tile", "Resize", "MaxPool", "Pad"}
MOVES |= {"DepthToSpace", "SpaceToDepth"}
#: Operators whose second operand may have another type, and one scale per channel.
LINEAR = ("Conv", "Gemm", "MatMul")


@dataclass(frozen=True)
class Coded:
    """The name of a tensor of codes, and its quantisation; `quant` is None for real results of operators on codes."""

    tensor: str
    quant: Quant | None


@dataclass(frozen=True, eq=False)
class Fused(Named):
    """An operator on codes. `bias` names the tensor of int32 bias codes; it is '' if there is no bias.

    `plain` names the inputs that are not codes. `residual` is added to the sums, and `activation` clamps the results,
    before they are rounded.
    """

    name: str
    op_type: str
    attributes: Mapping[str, Any]
    inputs: tuple[Coded, ...]
    bias: str
    plain: tuple[str, ...]
    outputs: tuple[Coded, ...]
    activation: Activation = "none"
    residual: Coded | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        more = (self.residual.tensor,) if self.residual else ()
        return (*(coded.tensor for coded in self.inputs), self.bias, *self.plain, *more)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(coded.tensor for coded in self.outputs)


def is_unscaled(node: RawNode | Fused) -> bool:
    """Return whether a Gemm multiplies neither its products nor its bias."""
    return node.attributes.get("alpha", 1.0) == node.attributes.get("beta", 1.0) == 1.0


def one_scale(known: Known, coded: Coded) -> bool:
    """Return whether the tensor `coded` holds 8-bit codes with a single scale."""
    return known.dtype(coded.tensor) in CODES and coded.quant is not None and not coded.quant.per_channel


def takes(known: Known, made: Fused) -> bool:
    """Return whether an integer kernel exists for the operator `made` with its types and scales."""
    activations = made.inputs[:1] if made.op_type in LINEAR else made.inputs
    ends = (*activations, *(coded for coded in made.outputs if coded.quant))
    dtypes = {known.dtype(coded.tensor) for coded in ends}
    if len(dtypes) > 1 or not all(one_scale(known, coded) for coded in ends):
        return False
    if made.op_type in MOVES:
        return all(coded.quant == made.inputs[0].quant for coded in made.outputs) and _moves_codes(known, made)
    if made.op_type in LINEAR:
        weights = known.dtype(made.inputs[1].tensor)
        quant = made.inputs[1].quant
        columns = known.types[made.outputs[0].tensor].shape[-1:]
        if made.op_type == "Gemm" and quant and quant.per_channel and (len(quant.scale),) != columns:
            return False
        return weights in CODES and not (dtypes == {"int8"} and weights == "uint8")
    return True


def _moves_codes(known: Known, made: Fused) -> bool:
    """Return whether the operator `made` of MOVES can move codes: no interpolation, and its padding has a code."""
    mode = made.attributes.get("mode")
    if made.op_type == "Resize":
        fills = made.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        return mode in (None, "nearest") and not fills  # with a real value
    if made.op_type == "Pad":
        constant = mode in (None, "constant")
        # onnxruntime's Pad takes codes from opset 11 on.
        return padding_of(known, made) is not None if constant else known.opset >= 11
    if made.op_type == "MaxPool" and known.opset < MAXPOOL_OPSET:
        return known.rank(made.inputs[0].tensor) == 4  # other ranks need onnxruntime's
    return True


def padding_of(known: Known, made: Fused) -> tuple[tuple[tuple[int, int], ...], float] | None:
    """Return the (before, after) of each axis of a Pad, and the real value to pad with; None if unknown or negative."""
    rank = known.rank(made.inputs[0].tensor)
    if len(made.plain) > 2 or not known.are_constant(made.plain):
        return None
    attribute = np.array(made.attributes.get("pads", ()))
    given = known.constants.get(made.plain[0], attribute) if made.plain else attribute
    if given.size != 2 * rank or (given < 0).any():
        return None
    value = float(made.attributes.get("value", 0.0))
    if len(made.plain) > 1 and made.plain[1]:
        value = float(known.constants[made.plain[1]].reshape(-1)[0])
    return tuple((int(before), int(after)) for before, after in given.reshape(2, -1).T), value


class Builder:
    """Collects the tensors and nodes of a graph. ONNX values keep name and shape; added tensors are named `x:nhwc`."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.dequantised: set[str] = set()  # constants that onnxruntime quantises or dequantises in each run
        self.refused: set[str] = set()  # operators that must compute on real numbers
        self._names = set(known.types)
        self._made: dict[tuple[str, str], str] = {}

    def graph(self, name: str, inputs: tuple[str, ...]) -> Graph:
        for end in (*inputs, *self.known.outputs):
            self.value(end)
        return Graph(name, self.tensors, tuple(self.nodes), inputs, self.known.outputs, "ort").pruned()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.known.types[name].shape

    def value(self, name: str) -> str:
        """Return `name`, an ONNX value or ''. A value that is new becomes a tensor without quantisation."""
        if name and name not in self.tensors:
            self.tensors[name] = replace(self.result(Coded(name, None)), data=self.known.constants.get(name))
        return name

    def coded(self, coded: Coded) -> str:
        """Return the name of a tensor with the codes and quantisation of `coded`; emit a copy if there is none yet."""
        tensor = self.tensors[self.value(coded.tensor)]
        if tensor.quant is None and coded.quant is not None:
            self.tensors[tensor.name] = replace(tensor, quant=coded.quant)
        elif tensor.quant != coded.quant and coded.quant is not None:
            key = (coded.tensor, repr(coded.quant))
            if key not in self._made:
                self._made[key] = self.fresh(f"{coded.tensor}:again")
                again = replace(tensor, name=self._made[key], quant=coded.quant)
                if tensor.data is None:
                    self.emit(again.name, ops.Reshape(tensor.shape), (tensor.name,), again)
                else:
                    self.tensors[again.name] = again
            return self._made[key]
        return coded.tensor

    def constant(self, hint: str, data: Array, quant: Quant | None = None) -> str:
        name = self.fresh(hint)
        self.tensors[name] = Tensor(name, data.shape, data.dtype.name, quant, np.array(data, order="C"))
        return name

    def scalars(self, coded: Coded) -> tuple[str, str]:
        """Return the names of new constants for the scale and zero point of `coded`, as inputs of QLinear nodes."""
        assert coded.quant is not None
        shape = (-1,) if coded.quant.per_channel else ()
        scale = np.array(coded.quant.scale, np.float32).reshape(shape)
        zero = np.array(coded.quant.zero_point, self.known.dtype(coded.tensor)).reshape(shape)
        return self.constant(f"{coded.tensor}:scale", scale), self.constant(f"{coded.tensor}:zero", zero)

    def result(self, coded: Coded) -> Tensor:
        """Return the graph's tensor for `coded`, which an operator on codes writes."""
        kind = self.known.types[coded.tensor]
        return Tensor(coded.tensor, kind.shape, kind.dtype, coded.quant)

    def emit(self, name: str, op: ops.Op, inputs: Sequence[str], *outputs: Tensor) -> None:
        self.tensors |= {tensor.name: tensor for tensor in outputs}
        self.nodes.append(Node(name, op, tuple(inputs), tuple(tensor.name for tensor in outputs)))

    def emit_nhwc(self, name: str, op: ops.Op, inputs: Sequence[str], output: Tensor) -> None:
        """Emit an operator on images in channels-last layout, with transposes of its first input and its output."""
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
        if key not in self._made:
            tensor = self.tensors[name]
            if tensor.data is None:
                self._made[key] = self.moved(name, "nhwc", ops.Transpose(TO_NHWC))
            else:
                self._made[key] = self.constant(f"{name}:nhwc", tensor.data.transpose(TO_NHWC), tensor.quant)
        return self._made[key]

    def moved(self, name: str, hint: str, op: ops.Op, *more: str, **known: Any) -> str:
        """Emit `op` on tensor `name`; return the result's name. `known` are its Tensor fields that the op changes."""
        source = self.tensors[name]
        made = replace(source, name=self.fresh(f"{name}:{hint}"), data=None, **known)
        node = Node(made.name, op, (name, *more), (made.name,))
        (told,) = op.shapes(Site(node, (source,), (made,)))
        self.emit(node.name, op, node.inputs, replace(made, shape=told))
        return made.name

    def fresh(self, hint: str) -> str:
        return fresh_name(hint, self._names)
