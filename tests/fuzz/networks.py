"""Small ONNX networks of many operators, and ONNX files whose sizes, attributes or connections make no sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.mutate import INTEGERS
from tests.model.onnx_nets import Net, onnx

OPS = (
    "Conv",
    "Relu",
    "Slice",
    "Gather",
    "Pad",
    "Resize",
    "Tile",
    "Expand",
    "If",
    "Loop",
    "MaxPool",
    "Softmax",
    "Nothing",
)


def network(seed: int) -> Any:
    """A quantised network with a real shell: convolutions, pool, concat, slice, pad, resize, product."""
    net = Net(seed, np.int8)
    pair = net.scales()
    x = net.quantized(net.input((1, 3, 8, 8)))
    w = net.weights((4, 3, 3, 3))
    a = net.quantized(net.op("Conv", x, w, net.bias(x, w), pads=[1, 1, 1, 1]), pair)
    b = net.quantized(net.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), pair)
    c = net.quantized(net.op("Conv", b, net.weights((4, 1, 3, 3)), group=4, pads=[1, 1, 1, 1]), pair)
    d = net.quantized(net.op("Concat", net.op("Sigmoid", c), b, axis=1))
    e = net.op("Slice", d, net.const([0, 1]), net.const([6, 4]), net.const([1, 2]))
    e = net.op("Pad", e, net.const([0, 0, 1, 0, 0, 0, 0, 1]))
    e = net.op("Resize", e, "", net.const([1.0, 1.0, 2.0, 2.0], np.float32), mode="nearest")
    e = net.op("Transpose", net.op("AveragePool", e, kernel_shape=[2, 2], strides=[2, 2]), perm=[0, 2, 3, 1])
    f = net.quantized(net.op("Reshape", e, net.const([1, -1])))
    size = 6 * 4 * 5
    g = net.op("Gemm", f, net.weights((size, 5), 1))
    return net.model(net.op("Softmax", net.op("LayerNormalization", g, net.const(np.ones(5), np.float32))))


def kernels() -> Any:
    """A network of operators that onnxruntime runs, on codes and on real numbers, some in its own domain."""
    net = Net(2, np.uint8)
    x = net.quantized(net.input((1, 4, 12)))
    a = net.quantized(net.op("Conv", x, net.weights((6, 4, 3))))
    b = net.quantized(net.op("AveragePool", a, kernel_shape=[2], strides=[2], ceil_mode=1))
    pair = net.scales()
    c = net.quantized(net.op("LeakyRelu", b, alpha=0.1), pair)
    parts = net.op("Split", c, net.const([2, 4]), outputs=2, axis=1)
    d = net.quantized(
        net.op(
            "MatMul", *(net.quantized(part, pair) for part in (net.op("Transpose", parts[1], perm=[0, 2, 1]), parts[1]))
        )
    )
    e = net.op("Softmax", net.quantized(net.op("Gather", d, net.const([0, 2, 4]), axis=1)))
    f = net.op("ReduceMean", net.op("Gelu", net.quantized(e), domain="com.microsoft"), axes=[1], keepdims=0)
    g = net.op("TopK", net.op("Div", f, net.const([2.0], np.float32)), net.const([3]), outputs=2)[0]
    return net.model(net.op("Expand", net.op("Unsqueeze", g, net.const([0])), net.const([2, 1, 3])))


def shifted() -> Any:
    """A small integer network in PULP's dialect."""
    net = Net(1, opset=10)
    tensors = {
        key: onnx.numpy_helper.from_array(np.array(value, np.float32), key)
        for key, value in (("div", 64.0), ("n_levels_out", 256.0), ("signed", 1.0))
    }
    factors = (net.const(np.full((4, 1, 1), 3.0), np.float32), net.const(np.full((4, 1, 1), 40.0), np.float32))
    x = net.op("Conv", net.input((1, 3, 6, 6)), net.const(net.rng.integers(-8, 8, (4, 3, 3, 3)), np.float32))
    return net.model(net.op("RequantShift", x, *factors, domain="PACTOps", **tensors))


def real() -> Any:
    """A small network on real numbers, to quantise."""
    rng = np.random.default_rng(4)

    def weights(*shape: int) -> str:
        return net.const(rng.normal(0, 0.3, shape).astype(np.float32))

    net = Net(4, np.int8)
    x = net.op("Conv", net.input((1, 2, 6, 6)), weights(4, 2, 3, 3), weights(4), pads=[1, 1, 1, 1])
    y = net.op("MaxPool", net.op("Add", net.op("Relu", x), net.op("Sigmoid", x)), kernel_shape=[2, 2], strides=[2, 2])
    z = net.op("Gemm", net.op("Reshape", y, net.const([1, -1])), weights(36, 5), weights(5))
    made = net.model(net.op("Softmax", z))
    made.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(made.graph.output[0].name, 1, (1, 5)))
    return made


def meaningful(content: bytes, rng: np.random.Generator) -> bytes:
    """A valid file whose sizes, attributes, operators or connections make no sense."""
    model = onnx.ModelProto.FromString(content)
    graph, integer = model.graph, int(INTEGERS[rng.integers(len(INTEGERS))])
    for _ in range(int(rng.integers(1, 3))):
        _change(model, graph, rng, integer)
    return bytes(model.SerializeToString())


def _change(model: Any, graph: Any, rng: np.random.Generator, integer: int) -> None:
    """One field of a node, a constant, the input or the outputs changed."""
    node = graph.node[rng.integers(len(graph.node))]
    tensor = graph.initializer[rng.integers(len(graph.initializer))]
    names = [name for each in graph.node for name in (*each.input, *each.output)]
    name = names[rng.integers(len(names))]
    size, dims = len(tensor.raw_data), graph.input[0].type.tensor_type.shape.dim
    changes: list[Callable[[], Any]] = [
        lambda: setattr(node, "op_type", OPS[rng.integers(len(OPS))]),
        lambda: node.input.__setitem__(slice(0, 1), [name]),
        lambda: node.output.__setitem__(slice(0, 1), [name]),
        lambda: node.input.append(name),
        lambda: node.ClearField("input"),
        lambda: tensor.dims.append(integer),
        lambda: tensor.dims.__setitem__(slice(0, 1), [integer]),
        lambda: setattr(tensor, "data_type", int(rng.integers(0, 24))),
        lambda: setattr(tensor, "raw_data", rng.bytes(size)),
        lambda: setattr(tensor, "raw_data", np.full(size // 8, integer, np.int64).tobytes()),
        lambda: setattr(model.opset_import[0], "version", int(rng.integers(0, 40))),
        lambda: setattr(dims[int(rng.integers(len(dims)))], "dim_value", integer),
        lambda: graph.output.append(graph.output[0]),
        *[lambda: _attribute(graph.node, rng, integer)] * 3,
    ]
    changes[rng.integers(len(changes))]()


def _attribute(nodes: Any, rng: np.random.Generator, integer: int) -> None:
    """One attribute changed."""
    every = [attribute for node in nodes for attribute in node.attribute]
    if not every:
        return
    attribute = every[rng.integers(len(every))]
    if attribute.ints:
        attribute.ints[rng.integers(len(attribute.ints))] = integer
    elif rng.random() < 0.3:
        attribute.type = int(rng.integers(0, 15))
    else:
        attribute.i = integer
