"""Writes the int8 part of a quantised graph as a .tflite file, so that the frameworks themselves can run it."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Tensor

Op, Options = schema.BuiltinOperator, schema.BuiltinOptions
TYPES = {"int8": schema.TensorType.INT8, "int32": schema.TensorType.INT32}
#: The first version of each operator that takes int8, where it is not 1.
VERSIONS = {Op.CONV_2D: 3, Op.DEPTHWISE_CONV_2D: 3, Op.FULLY_CONNECTED: 4, Op.ADD: 2, Op.SOFTMAX: 2}
VERSIONS |= dict.fromkeys((Op.MAX_POOL_2D, Op.AVERAGE_POOL_2D), 2)
ACTIVATIONS = {"none": 0, "relu": 1, "relu_n1_to_1": 2, "relu6": 3}


def _filled(kind: Any, **fields: Any) -> Any:
    made = kind()
    for name, value in fields.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made


def _padding(window: ops.Window, shape: tuple[int, ...]) -> int:
    if not any(window.padding):
        return int(schema.Padding.VALID)
    assert window == ops.Window.same((shape[1], shape[2]), window.kernel, window.stride, window.dilation)
    return int(schema.Padding.SAME)


def _options(graph: Graph, node: Node) -> tuple[int, int, Any]:
    """The code of an operator, and its options."""
    op, shape = node.op, graph.tensors[node.inputs[0]].shape
    active = ACTIVATIONS[getattr(op, "activation", "none")]
    if isinstance(op, ops.Conv2D | ops.DepthwiseConv2D | ops.MaxPool2D | ops.AveragePool2D):
        steps = {"strideH": op.window.stride[0], "strideW": op.window.stride[1]}
        common = {"padding": _padding(op.window, shape), **steps, "fusedActivationFunction": active}
        if isinstance(op, ops.Conv2D):
            return Op.CONV_2D, Options.Conv2DOptions, _filled(schema.Conv2DOptionsT, **common)
        if isinstance(op, ops.DepthwiseConv2D):
            common["depthMultiplier"] = graph.tensors[node.outputs[0]].shape[3] // shape[3]
            made = _filled(schema.DepthwiseConv2DOptionsT, **common)
            return Op.DEPTHWISE_CONV_2D, Options.DepthwiseConv2DOptions, made
        filters = {"filterHeight": op.window.kernel[0], "filterWidth": op.window.kernel[1]}
        code = Op.MAX_POOL_2D if isinstance(op, ops.MaxPool2D) else Op.AVERAGE_POOL_2D
        return code, Options.Pool2DOptions, _filled(schema.Pool2DOptionsT, **common, **filters)
    if isinstance(op, ops.FullyConnected):
        made = _filled(schema.FullyConnectedOptionsT, fusedActivationFunction=active)
        return Op.FULLY_CONNECTED, Options.FullyConnectedOptions, made
    if isinstance(op, ops.Add):
        return Op.ADD, Options.AddOptions, _filled(schema.AddOptionsT, fusedActivationFunction=active)
    if isinstance(op, ops.Softmax):
        return Op.SOFTMAX, Options.SoftmaxOptions, _filled(schema.SoftmaxOptionsT, beta=op.beta)
    assert isinstance(op, ops.Reshape), op
    made = _filled(schema.ReshapeOptionsT, newShape=list(graph.tensors[node.outputs[0]].shape))
    return Op.RESHAPE, Options.ReshapeOptions, made


def _tensor(tensor: Tensor, buffer: int) -> Any:
    made = _filled(schema.TensorT, name=tensor.name, shape=list(tensor.shape), type=TYPES[tensor.dtype], buffer=buffer)
    if tensor.quant is not None:
        scales, zeros = np.array(tensor.quant.scale, np.float32), np.array(tensor.quant.zero_point, np.int64)
        axis = tensor.quant.axis
        made.quantization = _filled(
            schema.QuantizationParametersT, scale=scales, zeroPoint=zeros, quantizedDimension=axis
        )
    return made


def written(graph: Graph, source: str, result: str) -> bytes:
    """The file of the nodes between two tensors of int8 codes, which are its input and output."""
    buffers, codes, nodes = [schema.BufferT()], list[int](), list[Any]()
    tensors: list[Any] = []
    index: dict[str, int] = {}

    def place(name: str) -> int:
        if name not in index:
            tensor = graph.tensors[name]
            if tensor.data is not None:
                raw = np.frombuffer(np.ascontiguousarray(tensor.data).tobytes(), np.uint8)
                buffers.append(_filled(schema.BufferT, data=raw))
            index[name] = len(tensors)
            tensors.append(_tensor(tensor, len(buffers) - 1 if tensor.data is not None else 0))
        return index[name]

    reached = {source}
    for node in graph.nodes:
        computed = [name for name in node.inputs if name and graph.tensors[name].data is None]
        if not computed or not set(computed) <= reached or node.outputs[0] in reached or result in reached:
            continue
        reached.add(node.outputs[0])
        code, kind, made = _options(graph, node)
        if code not in codes:
            codes.append(code)
        ends = {"inputs": [place(name) for name in node.inputs if name], "outputs": [place(node.outputs[0])]}
        nodes.append(
            _filled(
                schema.OperatorT, opcodeIndex=codes.index(code), **ends, builtinOptionsType=kind, builtinOptions=made
            )
        )
    part = _filled(schema.SubGraphT, tensors=tensors, inputs=[index[source]], outputs=[index[result]], operators=nodes)
    known = [
        _filled(schema.OperatorCodeT, builtinCode=code, deprecatedBuiltinCode=code, version=VERSIONS.get(code, 1))
        for code in codes
    ]
    model = _filled(schema.ModelT, version=3, operatorCodes=known, subgraphs=[part], buffers=buffers)
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
