"""Quantised operators in an ONNX graph: dequantise -> operator -> quantise as one, as onnxruntime fuses them.

Rules of onnxruntime 1.31's QDQ transformers (`session.qdqisint8allowed` = 1): an operator becomes an integer one where
its data inputs come from DequantizeLinear, its only reader is QuantizeLinear, and input and output have one type.
A Relu or Clip in front of QuantizeLinear that the range of codes implies anyway disappears.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Quant
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import DEQUANTIZE, QUANTIZE, Known, type_of

CODES = ("int8", "uint8")
#: Operators that onnxruntime runs on codes as they are, where input and output have the same quantisation.
MOVES = frozenset(
    ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Split", "Resize", "Identity")
    + ("Expand", "Tile", "DepthToSpace", "SpaceToDepth", "MaxPool", "Pad", "Dropout")
)
#: Operators with an integer kernel, and how many of their inputs must be codes (0: all).
COMPUTES = {"Conv": 2, "Gemm": 2, "MatMul": 2, "Add": 2, "Mul": 2, "Concat": 0} | dict.fromkeys(
    ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), 1
)
#: Operators that have an integer kernel with real results as well.
REAL_RESULTS = ("Gemm", "MatMul")
#: How far a convolution's bias scale may be off (numpy.isclose's form; measured).
BIAS_SCALE_ABSOLUTE, BIAS_SCALE_RELATIVE = 1e-6, 1e-2
#: QOperator form -> the operator, and where its tensors are (scale and zero point follow each).
QOPERATORS = {
    "QLinearConv": ("Conv", (0, 3), 6, 8),
    "QLinearMatMul": ("MatMul", (0, 3), 6, None),
    "QGemm": ("Gemm", (0, 3), 7, 6),
    "QLinearAdd": ("Add", (0, 3), 6, None),
    "QLinearMul": ("Mul", (0, 3), 6, None),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,), 3, None),
    "QLinearAveragePool": ("AveragePool", (0,), 3, None),
    "QLinearLeakyRelu": ("LeakyRelu", (0,), 3, None),
    "QLinearSigmoid": ("Sigmoid", (0,), 3, None),
    "QLinearSoftmax": ("Softmax", (0,), 3, None),
}


@dataclass(frozen=True)
class Coded:
    """A tensor of codes and how it is quantised; None where that does not matter (a bias)."""

    tensor: str
    quant: Quant | None


@dataclass(frozen=True, eq=False)
class Fused:
    """An operator on codes. `plain`: its other inputs, which are no codes; `bias`: int32 codes, '' without."""

    name: str
    op_type: str
    attributes: Mapping[str, Any]
    inputs: tuple[Coded, ...]
    bias: str
    plain: tuple[str, ...]
    outputs: tuple[Coded, ...]

    @property
    def where(self) -> str:
        return f"op '{self.name}'"

    @property
    def reads(self) -> tuple[str, ...]:
        return (*(coded.tensor for coded in self.inputs), self.bias, *self.plain)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(coded.tensor for coded in self.outputs)


Step = Fused | RawNode


def fuse(known: Known) -> tuple[Known, list[Step]]:
    """The graph's steps in order, quantised operators fused, and without those that nothing reads any more.

    What is known then includes biases that became codes.
    """
    found = _Patterns(known)
    steps: list[Step] = [found.fused(node) or node for node in known.nodes]
    biases = {name: type_of(data) for name, data in found.biases.items()}
    known = replace(known, types={**known.types, **biases}, constants={**known.constants, **found.biases})
    written = {name for step in steps if isinstance(step, Fused) for name in step.writes}
    steps = [step for step in steps if isinstance(step, Fused) or not set(step.outputs) <= written]
    needed, kept = set(known.outputs), []
    for step in reversed(steps):
        if needed.intersection(step.writes if isinstance(step, Fused) else step.outputs):
            needed.update(step.reads if isinstance(step, Fused) else step.inputs)
            kept.append(step)
    return known, kept[::-1]


class _Patterns:
    """Who writes and who reads each value."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.writer = {name: node for node in known.nodes for name in node.outputs}
        self.biases: dict[str, Array] = {}
        self.readers: dict[str, list[RawNode]] = {}
        for node in known.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)

    def fused(self, node: RawNode) -> Fused | None:
        if node.op_type in QOPERATORS:
            return self._qoperator(node)
        if node.op_type == "QLinearConcat":
            return self._qlinear_concat(node)
        if node.op_type == QUANTIZE:
            return self._requantised(node)
        if node.domain or not (node.op_type in COMPUTES or node.op_type in MOVES) or not node.inputs:
            return None
        count = COMPUTES.get(node.op_type, 1) or len(node.inputs)
        inputs = [self.dequantised(name) for name in node.inputs[:count]]
        outputs = [self._quantised(name) for name in node.outputs]
        if outputs == [None] and node.op_type in REAL_RESULTS:
            outputs = [Coded(node.outputs[0], None)]
        if len(inputs) < count or None in inputs or None in outputs:
            return None
        coded, results = tuple(filter(None, inputs)), tuple(filter(None, outputs))
        bias, rest = "", node.inputs[count:]
        made = Fused(node.name, node.op_type, node.attributes, coded, bias, rest, results)
        if not self._taken(made):
            return None
        if node.op_type not in ("Conv", "Gemm") or not any(rest):
            return made
        if any(node.attributes.get(key, 1.0) != 1.0 for key in ("alpha", "beta")):
            return None
        bias = self._bias(rest[0], coded, checked=node.op_type == "Conv")
        return replace(made, bias=bias, plain=()) if bias else None

    def _taken(self, made: Fused) -> bool:
        """Whether the types allow an integer kernel."""
        activations = made.inputs[:1] if made.op_type in ("Conv", "Gemm", "MatMul") else made.inputs
        results = tuple(coded for coded in made.outputs if coded.quant)
        dtypes = {self._dtype(coded) for coded in (*activations, *results)}
        per_tensor = all(coded.quant and not coded.quant.per_channel for coded in (*activations, *results))
        if len(dtypes) > 1 or not dtypes <= set(CODES) or not per_tensor:
            return False
        if made.op_type in MOVES:
            return all(coded.quant == made.inputs[0].quant for coded in made.outputs)
        if made.op_type in ("Conv", "Gemm", "MatMul"):
            weights = self._dtype(made.inputs[1])
            return weights in CODES and not (dtypes == {"int8"} and weights == "uint8")
        return True

    def _dtype(self, coded: Coded) -> str:
        return self.known.types[coded.tensor].dtype

    def dequantised(self, name: str) -> Coded | None:
        """The codes behind a dequantised value."""
        node = self.writer.get(name)
        if node is None or node.op_type != DEQUANTIZE or self.known.types[name].dtype != "float32":
            return None
        return self._coded(node, node.inputs[0], node.inputs[0])

    def _coded(self, node: RawNode, codes: str, shaped: str) -> Coded | None:
        """Codes under the scale and zero point of a quantise or dequantise node."""
        quant = quantisation(self.known, node, len(self.known.types[shaped].shape))
        return Coded(codes, quant) if quant else None

    def _quant(self, scale: str, zero: str, axis: int, rank: int) -> Quant | None:
        return quant_of(self.known, scale, zero, axis, rank)

    def _quantised(self, name: str) -> Coded | None:
        """The codes that the only reader of a value makes of it, a Relu or Clip without effect left out."""
        node = self._only_reader(name)
        if node is not None and node.op_type in ("Relu", "Clip"):
            after = self._only_reader(node.outputs[0])
            codes = self._codes_of(after)
            if codes is None or not self._implied(node, codes):
                return None
            return codes
        return self._codes_of(node)

    def _only_reader(self, name: str) -> RawNode | None:
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.known.outputs else None

    def _codes_of(self, node: RawNode | None) -> Coded | None:
        if node is None or node.op_type != QUANTIZE or self.known.types[node.inputs[0]].dtype != "float32":
            return None
        return self._coded(node, node.outputs[0], node.inputs[0])

    def _implied(self, node: RawNode, codes: Coded) -> bool:
        """Whether quantising clips at least as much as a Relu or Clip does."""
        if codes.quant is None or codes.quant.per_channel or self._dtype(codes) not in CODES:
            return False
        info = np.iinfo(self._dtype(codes))
        scale, zero = codes.quant.scale[0], codes.quant.zero_point[0]
        if node.op_type == "Relu":
            return zero == info.min
        low, high = (self._bound(node, index, key) for index, key in ((1, "min"), (2, "max")))
        slack = float(np.finfo(np.float32).eps)
        return low - (info.min - zero) * scale < slack and (info.max - zero) * scale - high < slack

    def _bound(self, node: RawNode, index: int, key: str) -> float:
        """A bound of a Clip: an attribute up to opset 10, an input since; infinite where absent."""
        none = -np.inf if key == "min" else np.inf
        if len(node.inputs) > index and node.inputs[index]:
            value = self.known.constants.get(node.inputs[index])
            return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else -none
        return float(node.attributes.get(key, none))

    def _bias(self, name: str, coded: tuple[Coded, ...], checked: bool) -> str:
        """The int32 codes of a bias, whose scale is that of the products; real ones become such codes.

        `checked`: a scale further off than onnxruntime allows makes the operator a real one.
        """
        node = self.writer.get(name)
        scale = _product_scale(coded)
        if node is None and name in self.known.constants:
            return self._real_bias(name, scale)
        if checked and node is not None:
            found = quantisation(self.known, node, 1)
            own = np.array(found.scale if found else [np.inf])
            if not (np.abs(own - scale) <= BIAS_SCALE_ABSOLUTE + BIAS_SCALE_RELATIVE * scale).all():
                return ""
        if node is None or node.op_type != DEQUANTIZE:
            return ""
        codes = node.inputs[0]
        zero = self.known.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        plain = codes in self.known.constants and (zero is None or not zero.any())
        return codes if plain and self.known.types[codes].dtype == "int32" else ""

    def _real_bias(self, name: str, scale: Array) -> str:
        data = self.known.constants[name]
        if data.dtype != np.float32 or data.ndim != 1 or scale.size not in (1, data.size):
            return ""
        codes = np.rint(data / scale.astype(np.float32))
        if not (np.abs(codes) < 2.0**31).all():
            return ""
        made = f"{name}:codes:{len(self.biases)}"
        self.biases[made] = codes.astype(np.int32)
        return made

    def _requantised(self, node: RawNode) -> Fused | None:
        """Codes of one quantisation to another: dequantise -> quantise (-> Relu or Clip without effect between)."""
        source = node.inputs[0]
        before = self.writer.get(source)
        codes = self._codes_of(node)
        if before is not None and before.op_type in ("Relu", "Clip") and codes and self._implied(before, codes):
            source = before.inputs[0]
        coded = self.dequantised(source)
        if coded is None or codes is None:
            return None
        ends = (coded, codes)
        if any(end.quant is None or end.quant.per_channel or self._dtype(end) not in CODES for end in ends):
            return None
        return Fused(node.name, "Requantize", {}, (coded,), "", (), (codes,))

    def _qoperator(self, node: RawNode) -> Fused | None:
        op_type, places, out, bias = QOPERATORS[node.op_type]
        inputs = [self._operand(node, place) for place in places]
        rank = len(self.known.types[node.outputs[0]].shape)
        quant = self._quant(_input(node, out), _input(node, out + 1), 1, rank)
        if None in inputs or quant is None:
            return None
        if bias is not None and _input(node, bias) and _input(node, bias) not in self.known.constants:
            return None
        named = _input(node, bias) if bias is not None else ""
        coded = tuple(filter(None, inputs))
        made = Fused(node.name, op_type, node.attributes, coded, named, (), (Coded(node.outputs[0], quant),))
        return made if self._taken(made) else None

    def _operand(self, node: RawNode, place: int) -> Coded | None:
        codes = _input(node, place)
        if not codes:
            return None
        # Weights have their channels in front in convolutions, in the last axis of a product.
        rank = len(self.known.types[codes].shape)
        axis = 0 if node.op_type == "QLinearConv" or node.attributes.get("transB") else rank - 1
        quant = self._quant(_input(node, place + 1), _input(node, place + 2), axis, rank)
        return Coded(codes, quant) if quant else None

    def _qlinear_concat(self, node: RawNode) -> Fused | None:
        rank = len(self.known.types[node.outputs[0]].shape)
        places = range(2, len(node.inputs), 3)
        inputs = [(node.inputs[p], self._quant(_input(node, p + 1), _input(node, p + 2), 1, rank)) for p in places]
        quant = self._quant(_input(node, 0), _input(node, 1), 1, rank)
        coded = tuple(Coded(name, given) for name, given in inputs if given)
        if quant is None or len(coded) < len(inputs) or not coded:
            return None
        return Fused(node.name, "Concat", node.attributes, coded, "", (), (Coded(node.outputs[0], quant),))


def quantisation(known: Known, node: RawNode, rank: int) -> Quant | None:
    """The constant scale and zero point of a QuantizeLinear or DequantizeLinear; None where it has others."""
    if node.attributes.get("block_size") or len(node.inputs) < 2:
        return None
    return quant_of(known, node.inputs[1], _input(node, 2), int(node.attributes.get("axis", 1)), rank)


def quant_of(known: Known, scale: str, zero: str, axis: int, rank: int) -> Quant | None:
    """Constants as a Quant; None where they are not constant, of another type, or not positive."""
    constants = known.constants
    if scale not in constants or (zero and zero not in constants):
        return None
    scales = constants[scale].astype(np.float64).reshape(-1)
    zeros = constants[zero].reshape(-1) if zero else np.zeros(scales.size, np.int64)
    if constants[scale].dtype != np.float32 or zeros.size not in (1, scales.size) or not scales.size:
        return None
    if not (np.isfinite(scales) & (scales > 0)).all() or not -rank <= axis < max(rank, 2):
        return None
    each = tuple(int(z) for z in np.broadcast_to(zeros, scales.shape))
    return Quant(tuple(scales.tolist()), each, axis % rank if scales.size > 1 else 0)


def _product_scale(coded: tuple[Coded, ...]) -> Array:
    """The scale of sums of products, one or one for each output: float32 values."""
    scales = [np.array(each.quant.scale if each.quant else (1.0,), np.float32) for each in coded[:2]]
    return scales[0] * scales[1]


def _input(node: RawNode, index: int) -> str:
    return node.inputs[index] if index < len(node.inputs) else ""
