"""Forms that exporters write and quantised operators hide in, rewritten as onnxruntime rewrites them first.

Identities go; a transpose of dequantised constants becomes dequantised transposed constants; MatMul and Add of
dequantised matrices become Gemm.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.array import Array
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import DEQUANTIZE, Known, type_of


def simplify(known: Known) -> Known:
    """The same network with the same values."""
    return _gemms(_constants(_without_identities(known)))


def _without_identities(known: Known) -> Known:
    """Readers of an Identity, or of what amounts to one, read its input; one that writes an output stays."""
    source: dict[str, str] = {}
    nodes = []
    for given in known.nodes:
        node = replace(given, inputs=tuple(source.get(name, name) for name in given.inputs))
        same = _is_identity(known, node)
        if same:
            source[node.outputs[0]] = node.inputs[0]
        if not same or node.outputs[0] in known.outputs:
            nodes.append(node)
    return replace(known, nodes=tuple(nodes))


def _is_identity(known: Known, node: RawNode) -> bool:
    """A Dropout without a mask, an Expand to the shape that is there already."""
    if node.op_type == "Expand":
        return known.types[node.inputs[0]] == known.types[node.outputs[0]]
    return node.op_type in ("Identity", "Dropout") and len(node.outputs) == 1


def _constants(known: Known) -> Known:
    """dequantise(constant) -> transpose becomes dequantise(transposed constant), its axis moved along."""
    constants, types = dict(known.constants), dict(known.types)
    writer: dict[str, RawNode] = {}
    nodes = []
    for given in known.nodes:
        node = given
        before = writer.get(node.inputs[0]) if node.op_type == "Transpose" else None
        if before is not None and before.op_type == DEQUANTIZE and before.inputs[0] in constants:
            made = _transposed(node, before, constants[before.inputs[0]])
            if made is not None:
                node, data = made
                constants[node.inputs[0]], types[node.inputs[0]] = data, type_of(data)
        writer |= dict.fromkeys(node.outputs, node)
        nodes.append(node)
    return replace(known, nodes=tuple(nodes), constants=constants, types=types)


def _transposed(node: RawNode, before: RawNode, data: Array) -> tuple[RawNode, Array] | None:
    rank = data.ndim
    permutation = tuple(node.attributes.get("perm", range(rank)[::-1]))
    axis = int(before.attributes.get("axis", 1))
    if sorted(permutation) != list(range(rank)) or before.attributes.get("block_size") or not -rank <= axis < rank:
        return None
    attributes = {**before.attributes, "axis": permutation.index(axis % rank)}
    codes = f"{before.inputs[0]}:{node.name}"
    inputs = (codes, *before.inputs[1:])
    made = replace(node, op_type=DEQUANTIZE, domain=before.domain, inputs=inputs, attributes=attributes)
    return made, np.ascontiguousarray(data.transpose(permutation))


def _gemms(known: Known) -> Known:
    """MatMul -> Add as Gemm, where both matrices are dequantised and the addend is as wide as a row."""
    gone: set[str] = set()
    nodes: dict[str, RawNode] = {}
    for node in known.nodes:
        product, addend = _product(known, node) if node.op_type == "Add" and not node.domain else (None, "")
        if product is None or len(known.readers[product.outputs[0]]) > 1 or product.outputs[0] in known.outputs:
            nodes[node.name] = node
            continue
        gone.add(product.name)
        nodes[node.name] = replace(node, op_type="Gemm", inputs=(*product.inputs, addend), attributes={})
    return replace(known, nodes=tuple(node for name, node in nodes.items() if name not in gone))


def _product(known: Known, add: RawNode) -> tuple[RawNode | None, str]:
    """The MatMul whose result an Add reads, and the other operand."""
    for index in (0, 1):
        product, other = known.writer.get(add.inputs[index]), add.inputs[1 - index]
        if product is None or product.op_type != "MatMul":
            continue
        shapes = [known.types[name].shape for name in (*product.inputs, other)]
        real = all(known.writer[name].op_type == DEQUANTIZE for name in product.inputs if name in known.writer)
        if real and all(name in known.writer for name in product.inputs) and [len(s) for s in shapes[:2]] == [2, 2]:
            rows, columns = shapes[0][0], shapes[1][1]
            if shapes[2] in ((columns,), (1, columns), (rows, columns)):
                return product, other
    return None, ""
