"""Quantised operators in the QOperator form: onnxruntime's QLinear nodes, scales and zero points among their inputs."""

from __future__ import annotations

from tilewright.model.onnx_codes import Coded, Fused, operand, quant_of, takes
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import Known

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
FORMS = (*QOPERATORS, "QLinearConcat")


def fused(known: Known, node: RawNode) -> Fused | None:
    """A QLinear node as an operator on codes; None where a scale is no constant or no kernel takes its types."""
    if node.op_type == "QLinearConcat":
        return _concat(known, node)
    op_type, places, out, bias = QOPERATORS[node.op_type]
    inputs = [_coded(known, node, place) for place in places]
    rank = len(known.types[node.outputs[0]].shape)
    quant = quant_of(known, operand(node, out), operand(node, out + 1), 1, rank)
    if None in inputs or quant is None:
        return None
    if bias is not None and operand(node, bias) and operand(node, bias) not in known.constants:
        return None
    named = operand(node, bias) if bias is not None else ""
    coded = tuple(filter(None, inputs))
    made = Fused(node.name, op_type, node.attributes, coded, named, (), (Coded(node.outputs[0], quant),))
    return made if takes(known, made) else None


def _coded(known: Known, node: RawNode, place: int) -> Coded | None:
    codes = operand(node, place)
    if not codes:
        return None
    # Weights have their channels in front in convolutions, in the last axis of a product.
    rank = len(known.types[codes].shape)
    axis = 0 if node.op_type == "QLinearConv" or node.attributes.get("transB") else rank - 1
    quant = quant_of(known, operand(node, place + 1), operand(node, place + 2), axis, rank)
    return Coded(codes, quant) if quant else None


def _concat(known: Known, node: RawNode) -> Fused | None:
    rank = len(known.types[node.outputs[0]].shape)
    places = range(2, len(node.inputs), 3)
    inputs = [(node.inputs[p], quant_of(known, operand(node, p + 1), operand(node, p + 2), 1, rank)) for p in places]
    quant = quant_of(known, operand(node, 0), operand(node, 1), 1, rank)
    coded = tuple(Coded(name, given) for name, given in inputs if given)
    if quant is None or len(coded) < len(inputs) or not coded:
        return None
    return Fused(node.name, "Concat", node.attributes, coded, "", (), (Coded(node.outputs[0], quant),))
