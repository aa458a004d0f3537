"""A pow2 model in float32 operators that compute its exact arithmetic, for measuring it with onnxruntime.

onnxruntime rounds QuantizeLinear's ties to even; here each pair QuantizeLinear, DequantizeLinear becomes
scale * clip(floor(x / scale + 1/2), -128, 127). With powers of two all steps are exact in float32, and so are sums of
products while they stay below 2**24 steps (beyond, an int32 sum may be rounded to 24 bits before its shift).
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from tilewright.quantize.network import Network


def exact(model: ModelProto) -> ModelProto:
    """The same network, tensor names kept, with ties rounded up."""
    net = Network(model)
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
        else:
            nodes.append(node)
    made = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "exact", model.graph.input, model.graph.output, [*model.graph.initializer, *made])
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
