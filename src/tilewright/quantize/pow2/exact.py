"""A pow2 model in float32 operators that compute its exact arithmetic, for measuring it with onnxruntime.

onnxruntime rounds QuantizeLinear's ties to even; here each pair QuantizeLinear, DequantizeLinear becomes
scale * clip(floor(x / scale + 1/2), -128, 127). With powers of two all steps are exact in float32, and so are sums of
products while they stay below 2**24 steps (beyond, an int32 sum may be rounded to 24 bits before its shift). An average
of other than 2**n codes goes back to their sum, a whole number, and times its factor.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper, shape_inference

from tilewright.graph.arithmetic import mean_factor
from tilewright.quantize.network import Network
from tilewright.quantize.pow2.roles import ACTIVATIONS, AVERAGES, divisor


def exact(model: ModelProto) -> ModelProto:
    """The same network, tensor names kept, with ties rounded up."""
    averages = any(node.op_type in AVERAGES for node in model.graph.node)
    net = Network(shape_inference.infer_shapes(model) if averages else model)
    nodes, constants = [], {"half": 0.5, "lowest": -128.0, "highest": 127.0}
    for node in net.nodes:
        if node.op_type == "QuantizeLinear":
            scale = float(net.constant(node.input[1]))
            up, down = f"times_{1 / scale:g}", f"times_{scale:g}"
            constants |= {up: 1 / scale, down: scale}
            name = node.output[0]
            nodes += [
                helper.make_node("Mul", [node.input[0], up], [f"{name}_scaled"]),
                helper.make_node("Add", [f"{name}_scaled", "half"], [f"{name}_raised"]),
                helper.make_node("Floor", [f"{name}_raised"], [f"{name}_floor"]),
                helper.make_node("Clip", [f"{name}_floor", "lowest", "highest"], [name]),
            ]
        elif node.op_type == "DequantizeLinear" and not net.is_constant(node.input[0]):
            nodes.append(
                helper.make_node("Mul", [node.input[0], f"times_{float(net.constant(node.input[1])):g}"], node.output)
            )
        elif count := _count(net, node):
            unit = float(net.constant(net.producer[node.input[0]].input[1]))
            factor, exponent = mean_factor(count)
            name, to_codes, to_real = node.output[0], count / unit, factor * unit / 2**exponent
            back, times = f"times_{to_codes:.9g}", f"times_{to_real:.9g}"
            constants |= {back: to_codes, times: to_real}
            nodes += [
                _under(node, f"{name}_mean"),
                helper.make_node("Mul", [f"{name}_mean", back], [f"{name}_about"]),
                helper.make_node("Round", [f"{name}_about"], [f"{name}_sum"]),
                helper.make_node("Mul", [f"{name}_sum", times], [name]),
            ]
        else:
            nodes.append(node)
    made = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "exact", model.graph.input, model.graph.output, [*model.graph.initializer, *made])
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _count(net: Network, node: NodeProto) -> int:
    """How many codes a node averages with a factor; 0 for other nodes."""
    if node.op_type not in AVERAGES:
        return 0
    before, after = net.producer.get(node.input[0]), net.consumers.get(node.output[0], [])
    stays = [reader for reader in after if reader.op_type not in ("QuantizeLinear", *ACTIVATIONS)]
    if before is None or before.op_type != "DequantizeLinear" or stays:
        return 0  # computed on the host
    count = divisor(net, node)
    return count if count & (count - 1) else 0


def _under(node: NodeProto, output: str) -> NodeProto:
    """The node with its result under another name."""
    renamed = NodeProto()
    renamed.CopyFrom(node)
    renamed.output[0] = output
    return renamed
