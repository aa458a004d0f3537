"""Quantise and dequantise pairs carried through operators that only move values, so that more operators fuse.

onnxruntime's QDQPropagation: a QuantizeLinear moves up and a DequantizeLinear down past the operators of `MOVED`.
No value changes, as these operators neither compute nor round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tilewright.graph.ort import ValueType
from tilewright.model.onnx_codes import MAXPOOL_OPSET
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import DEQUANTIZE, QUANTIZE, Known

MOVED = ("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice")


def propagate(known: Known) -> Known:
    """The same network with pairs of quantise and dequantise added around operators that move values."""
    return _down(_up(known))


def _up(known: Known) -> Known:
    """moved -> quantise becomes quantise -> dequantise -> moved -> quantise, unless codes come in already."""
    types = dict(known.types)
    readers = Counter(name for node in known.nodes for name in node.inputs)
    writer = {name: node.op_type for node in known.nodes for name in node.outputs}
    wanted: dict[str, RawNode] = {}
    made: list[RawNode] = []

    def want(value: str, node: RawNode) -> None:
        if readers[value] == 1 and value not in known.outputs:
            wanted[value] = node

    for node in reversed(known.nodes):
        if node.op_type == QUANTIZE and _one_scale(known, node):
            want(node.inputs[0], node)
        asked = wanted.get(node.outputs[0])
        real = node.inputs[0] if node.inputs else ""
        if asked is None or not _moves(known, node) or writer.get(real, QUANTIZE) in (QUANTIZE, DEQUANTIZE):
            made.append(node)
            continue
        pair = _pair(real, f"{node.name}:up", asked, types, types[asked.outputs[0]].dtype)
        made += [replace(node, inputs=(pair[1].outputs[0], *node.inputs[1:])), *pair[::-1]]
        want(real, pair[0])
    return replace(known, nodes=tuple(made[::-1]), types=types)


def _down(known: Known) -> Known:
    """dequantise -> moved becomes dequantise -> moved -> quantise -> dequantise, unless it is quantised anyway."""
    types = dict(known.types)
    readers: dict[str, list[str]] = {}
    for node in known.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node.op_type)
    coded: dict[str, RawNode] = {}
    renamed: dict[str, str] = {}
    made: list[RawNode] = []
    for given in known.nodes:
        node = replace(given, inputs=tuple(renamed.get(name, name) for name in given.inputs))
        made.append(node)
        if node.op_type == DEQUANTIZE and _one_scale(known, node) and node.inputs[0] not in known.constants:
            coded[node.outputs[0]] = node
        source, value = coded.get(node.inputs[0]) if node.inputs else None, node.outputs[0]
        if source is None or not _moves(known, node) or value in known.outputs:
            continue
        if QUANTIZE not in readers.get(value, [QUANTIZE]):
            pair = _pair(value, f"{node.name}:down", source, types, types[source.inputs[0]].dtype)
            made += pair
            renamed[value] = pair[1].outputs[0]
            coded[pair[1].outputs[0]] = pair[1]
    return replace(known, nodes=tuple(made), types=types)


def _moves(known: Known, node: RawNode) -> bool:
    """Whether a pair may pass a node: it has one output, and its other inputs are constant."""
    old = node.op_type == "MaxPool" and known.opset < MAXPOOL_OPSET
    fixed = all(not name or name in known.constants for name in node.inputs[1:])
    return node.op_type in MOVED and not old and fixed and len(node.outputs) == 1


def _one_scale(known: Known, node: RawNode) -> bool:
    return all(name in known.constants and known.constants[name].size == 1 for name in node.inputs[1:])


def _pair(value: str, name: str, like: RawNode, types: dict[str, ValueType], codes: str) -> Sequence[RawNode]:
    """QuantizeLinear and DequantizeLinear of `value` with the parameters of the node `like`."""
    shape = types[value].shape
    quantised, back = f"{value}:{name}:codes", f"{value}:{name}:real"
    types[quantised], types[back] = ValueType(codes, shape), ValueType("float32", shape)
    first = RawNode(f"{name}:{QUANTIZE}", QUANTIZE, "", (value, *like.inputs[1:]), (quantised,), {}, {})
    second = RawNode(f"{name}:{DEQUANTIZE}", DEQUANTIZE, "", (quantised, *like.inputs[1:]), (back,), {}, {})
    return [first, second]
