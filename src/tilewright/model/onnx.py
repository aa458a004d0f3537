"""Imports an ONNX model as a Graph: quantised operators run exactly on codes, onnxruntime runs all others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tilewright.errors import ModelError, in_file
from tilewright.graph import ops
from tilewright.graph.ir import Graph
from tilewright.graph.layout import channels_last
from tilewright.graph.tensor import INT4, Tensor
from tilewright.model import onnx_file, onnx_quantised, onnx_shift
from tilewright.model.onnx_build import SAME, Builder, Coded, Fused, one_scale
from tilewright.model.onnx_file import CUSTOM, RawNode, as_json
from tilewright.model.onnx_fuse import fuse
from tilewright.model.onnx_resolve import resolve
from tilewright.model.onnx_rewrite import rewritten
from tilewright.model.onnx_values import CODES, DEQUANTIZE, QUANTIZE, OnnxNetwork
from tilewright.model.shapes import Shapes

#: The exceptions raised by the use of an attribute of a wrong type or length.
_DAMAGE = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError)


def load(path: Path, shapes: Shapes | None = None, until: Collection[str] = ()) -> Graph:
    """Return the validated graph of an `.onnx` file. Inputs and outputs keep the model's shapes.

    The arguments are those of `model.load`. Raises ModelError if the file is damaged, UnsupportedError for unsupported
    features, InputError if a shape does not fit.
    """
    graph = imported(path, shapes, until)
    with in_file(path):
        return codes_first(channels_last(graph)).validate()


def imported(path: Path, shapes: Shapes | None = None, until: Collection[str] = ()) -> Graph:
    """Return the graph of an `.onnx` file before its layout changes. Raises ModelError if the file is damaged."""
    try:
        with in_file(path):
            raw = onnx_file.read(path, shapes, until)
            network = resolve(raw)
            integer = any(node.op_type in CUSTOM for node in network.nodes)  # PULP's dialect
            graph = (onnx_shift.build if integer else _build)(network, path.stem, tuple(raw.inputs))
            return replace(graph, rounding=raw.rounding, pixels=raw.pixels).validate()
    except _DAMAGE as error:
        text = " ".join(ascii(str(error)).split())[:120]
        reason = f"has an attribute or tensor of a wrong type or size ({type(error).__name__}: {text})"
        raise ModelError(path, reason, "export it again") from None


def _build(network: OnnxNetwork, name: str, inputs: tuple[str, ...]) -> Graph:
    network = rewritten(network)
    # Only the translation of an operator shows whether it can compute on codes. If it cannot, fuse the whole network
    # again with this operator in real arithmetic, because its neighbours may fuse differently.
    real: frozenset[str] = frozenset()
    while True:
        builder = Builder(network)
        for step in fuse(network, real):
            if isinstance(step, Fused):
                onnx_quantised.translate(builder, step)
            else:
                _emit_unfused(builder, step)
        if not builder.refused:
            return builder.graph(name, inputs)
        real |= builder.refused


def _emit_unfused(builder: Builder, node: RawNode) -> None:
    network = builder.network
    if node.op_type in (QUANTIZE, DEQUANTIZE):
        if network.are_constant(node.inputs):
            (value,) = network.fold(node)
            builder.dequantised.add(node.outputs[0])
            builder.tensors[node.outputs[0]] = Tensor(node.outputs[0], value.shape, value.dtype.name, None, value)
            return
        if _emit_conversion(builder, node):
            return
    # Operators that only move reals become operators of the graph, so that transposes can cancel; onnxruntime runs all
    # other operators on reals.
    narrow = INT4 in (network.dtype(name) for name in (*node.inputs, *node.outputs) if name)
    node.refuse_if(narrow, f"{node.op_type} of {INT4} is not supported", "quantise with one scale, or to int8")
    outputs = [Tensor(name, network.types[name].shape, network.types[name].dtype) for name in node.outputs]
    same_type = len(outputs) == 1 and bool(node.inputs) and network.dtype(node.inputs[0]) == outputs[0].dtype
    if node.op_type in SAME and same_type:
        builder.emit(node.name, ops.Reshape(outputs[0].shape), (builder.value(node.inputs[0]),), *outputs)
        return
    if node.op_type == "Transpose":
        rank = len(outputs[0].shape)
        permutation = tuple(node.attributes.get("perm", range(rank)[::-1]))
        builder.emit(node.name, ops.Transpose(permutation), (builder.value(node.inputs[0]),), *outputs)
        return
    fed = tuple(index for index, name in enumerate(node.inputs) if name in builder.dequantised)
    op = ops.OnnxOp(node.op_type, node.domain, network.opset, as_json(node.attributes), fed)
    builder.emit(node.name, op, [builder.value(name) for name in node.inputs], *outputs)


def _emit_conversion(builder: Builder, node: RawNode) -> bool:
    """Emit a quantise or dequantise between float32 and codes of one scale. Return False for all others."""
    network = builder.network
    real, codes = (node.inputs[0], node.outputs[0])[:: 1 if node.op_type == QUANTIZE else -1]
    coded = Coded(codes, network.quantisation(node))
    if not one_scale(network, coded) or network.dtype(real) != "float32":
        return False
    if node.op_type == QUANTIZE:
        builder.emit(node.name, ops.Quantize(), (builder.value(real),), builder.result(coded))
    else:
        out = Tensor(real, network.types[real].shape, "float32")
        builder.emit(node.name, ops.Dequantize(), (builder.tensor_of(coded),), out)
    return True


def codes_first(graph: Graph) -> Graph:
    """Reorder a valid graph: a node that writes no codes runs only when a node with codes needs its result."""
    writer = {name: index for index, node in enumerate(graph.nodes) for name in node.outputs}
    ordered: dict[int, None] = {}  # indices of nodes
    for index, node in enumerate(graph.nodes):
        if all(graph.tensors[name].dtype not in CODES for name in node.outputs):
            continue
        needed = {index}  # this node, and all nodes before it that it needs and that are not in `ordered` yet
        pending = list(node.inputs)
        while pending:
            before = writer.get(pending.pop())
            if before is not None and before not in needed and before not in ordered:
                needed.add(before)
                pending += graph.nodes[before].inputs
        ordered |= dict.fromkeys(sorted(needed))
    ordered |= dict.fromkeys(range(len(graph.nodes)))  # the remaining nodes
    return replace(graph, nodes=tuple(graph.nodes[index] for index in ordered))
