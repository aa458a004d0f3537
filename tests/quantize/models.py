"""Small float ONNX models for the quantiser's tests, and a reading of pow2 models in integers alone."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Values = dict[str, np.ndarray[Any, Any]]


def model(
    nodes: list[NodeProto], constants: Values, shape: list[int | str], outputs: dict[str, list[int]], opset: int = 17
) -> ModelProto:
    """A model with the one input `x`."""
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in outputs.items()]
    graph = helper.make_graph(nodes, "small", [source], results, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(made)
    return made


def residual(seed: int = 0, batch: int | str = 1, size: int = 8) -> ModelProto:
    """Conv, depthwise, Add, ReLU6, two branches, Concat, MaxPool, average, Gemm: every integer role."""
    draw = np.random.default_rng(seed).standard_normal
    node = helper.make_node
    constants: Values = {
        "w0": draw((8, 3, 3, 3)) * 0.3,
        "b0": draw(8),
        "w1": draw((8, 1, 3, 3)) * 0.5,
        "w2": draw((8, 8, 1, 1)) * 0.4,
        "b2": draw(8) * 0.1,
        "w3": draw((4, 8, 3, 3)) * 0.1,
        "w4": draw((4, 8, 1, 1)) * 0.3,
        "offset": draw((1, 8, 1, 1)),
        "w5": draw((8, 5)),
        "b5": draw((1, 5)),  # as CNTK writes it
        "low": np.array(0.0),
        "high": np.array(6.0),
    }
    constants = {name: value.astype(np.float32) for name, value in constants.items()}
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], name="conv0", pads=[1] * 4),
        node("Relu", ["c0"], ["r0"], name="relu0"),
        node("Conv", ["r0", "w1"], ["c1"], name="depthwise", group=8, pads=[1] * 4),
        node("Conv", ["c1", "w2", "b2"], ["c2"], name="conv2"),
        node("Add", ["c2", "r0"], ["sum"], name="add"),
        node("Clip", ["sum", "low", "high"], ["six"], name="relu6"),
        node("Conv", ["six", "w3"], ["c3"], name="conv3", pads=[1] * 4),
        node("Conv", ["six", "w4"], ["c4"], name="conv4"),
        node("Concat", ["c3", "c4"], ["both"], name="concat", axis=1),
        node("Add", ["both", "offset"], ["moved"], name="shifted"),
        node("MaxPool", ["moved"], ["pooled"], name="maxpool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["pooled"], ["mean"], name="average"),
        node("Flatten", ["mean"], ["flat"], name="flatten"),
        node("Gemm", ["flat", "w5", "b5"], ["scores"], name="dense"),
    ]
    return model(nodes, constants, [batch, 3, size, size], {"scores": [1, 5]})


def samples(count: int = 16, seed: int = 1, size: int = 8) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 3, size, size)).astype(np.float32)


def save(folder: Path, made: ModelProto, data: Any) -> tuple[str, str]:
    """Files of a model and of its samples."""
    onnx.save(made, folder / "m.onnx")
    np.save(folder / "x.npy", data)
    return str(folder / "m.onnx"), str(folder / "x.npy")


def round_shift(total: Any, amount: int) -> Any:
    """VTA's requantisation: add half, shift right, saturate; `total` is int64."""
    if amount > 0:
        total = (total + (1 << (amount - 1))) >> amount
    assert amount >= 0
    return np.clip(total, -128, 127)


def integers(quantised: ModelProto, x: Any) -> Values:
    """Every int8 tensor of a pow2 model for one sample, by shifts, int64 sums and comparisons: {real name: codes}."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantised.graph.initializer}
    real: dict[str, tuple[Any, int]] = {}  # what DequantizeLinear gives, as codes and exponent
    pending: dict[str, tuple[Any, int]] = {}  # sums that were not requantised yet
    stored: Values = {}
    for node in quantised.graph.node:
        if node.op_type == "QuantizeLinear":
            exponent = int(log2(float(constants[node.input[1]])))
            if node.input[0] == "x":
                codes = np.clip(np.floor(np.ldexp(x.astype(np.float64), -exponent) + 0.5), -128, 127).astype(np.int64)
            else:
                total, unit = pending[node.input[0]]
                codes = round_shift(total, exponent - unit)
            stored[node.input[0].removesuffix("_float")] = codes
            pending[node.output[0]] = (codes, exponent)
        elif node.op_type == "DequantizeLinear":
            codes = constants.get(node.input[0])
            codes = pending[node.input[0]][0] if codes is None else codes.astype(np.int64)
            real[node.output[0]] = (codes, int(log2(float(constants[node.input[1]]))))
        else:
            pending[node.output[0]] = _OPS[node.op_type](node, [{**pending, **real}.get(name) for name in node.input])
    return stored


def _settings(node: NodeProto) -> dict[str, Any]:
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


def _conv(node: NodeProto, inputs: list[Any]) -> tuple[Any, int]:
    (x, ex), (w, ew), *bias = inputs
    settings = _settings(node)
    pads, groups = settings.get("pads", [0] * 4), settings.get("group", 1)
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    windows = windows.reshape(1, groups, -1, *windows.shape[2:])
    kernels = w.reshape(groups, -1, *w.shape[1:])
    total = np.einsum("ngchwij,gocij->ngohw", windows, kernels).reshape(1, -1, *windows.shape[3:5])
    if bias:
        assert bias[0][1] == ex + ew
        total = total + bias[0][0][:, None, None]
    return total, ex + ew


def _add(node: NodeProto, inputs: list[Any]) -> tuple[Any, int]:
    (a, ea), (b, eb) = inputs
    unit = min(ea, eb)
    return (a << (ea - unit)) + (b << (eb - unit)), unit


def _gemm(node: NodeProto, inputs: list[Any]) -> tuple[Any, int]:
    (x, ex), (w, ew), *bias = inputs
    assert not bias or bias[0][1] == ex + ew
    return x @ w + (bias[0][0] if bias else 0), ex + ew


def _average(node: NodeProto, inputs: list[Any]) -> tuple[Any, int]:
    x, exponent = inputs[0]
    high, wide = _settings(node).get("kernel_shape", x.shape[2:])
    rows = x.reshape(*x.shape[:2], x.shape[2] // high, high, x.shape[3] // wide, wide)
    m, k = mean_factor(high * wide)
    mean = rows.sum((3, 5)) * m
    return mean if _settings(node).get("keepdims", 1) else mean[:, :, 0, 0], exponent - k


def mean_factor(count: int) -> tuple[int, int]:
    """As docs/quantize.md says it: the best factor of seven bits, 1 for powers of two."""
    if log2(count).is_integer():
        return 1, int(log2(count))
    k = max(k for k in range(31) if 2**k / count < 127.5)
    return round(2**k / count), k


def _maxpool(node: NodeProto, inputs: list[Any]) -> tuple[Any, int]:
    x, exponent = inputs[0]
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5)), exponent


def _clip(node: NodeProto, inputs: list[Any]) -> tuple[Any, int]:
    total, unit = inputs[0]
    return np.clip(total, 0, np.ldexp(6.0, -unit).astype(np.int64)), unit


_OPS: dict[str, Callable[[NodeProto, list[Any]], tuple[Any, int]]] = {
    "Conv": _conv,
    "Add": _add,
    "Gemm": _gemm,
    "MatMul": _gemm,
    "GlobalAveragePool": _average,
    "AveragePool": _average,
    "ReduceMean": _average,
    "MaxPool": _maxpool,
    "Clip": _clip,
    "Relu": lambda node, inputs: (np.maximum(inputs[0][0], 0), inputs[0][1]),
    "Concat": lambda node, inputs: (np.concatenate([codes for codes, _ in inputs], 1), inputs[0][1]),
    "Flatten": lambda node, inputs: (inputs[0][0].reshape(1, -1), inputs[0][1]),
}


def every_kernel(seed: int = 0) -> ModelProto:
    """Every operator with a kernel in the CFU's firmware; SAME and VALID padding, two averages, a softmax."""
    draw = np.random.default_rng(seed).standard_normal
    node = helper.make_node
    shapes = {"w0": (8, 3, 3, 3), "w1": (8, 1, 3, 3), "w2": (8, 8, 1, 1), "w3": (16, 8, 3, 3), "w4": (10, 16)}
    constants: Values = {name: draw(shape) * 0.3 for name, shape in shapes.items()}
    constants |= {f"b{index}": draw(size) for index, size in enumerate((8, 8, 8, 16, 10))}
    constants = {name: value.astype(np.float32) for name, value in constants.items()}
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1] * 4),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1] * 4, group=8),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"]),
        node("Add", ["c2", "r0"], ["sum"]),
        node("MaxPool", ["sum"], ["most"], kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["most"], ["some"], kernel_shape=[2, 2]),
        node("Conv", ["some", "w3", "b3"], ["c3"], strides=[2, 2]),
        node("Relu", ["c3"], ["r3"]),
        node("GlobalAveragePool", ["r3"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("Gemm", ["flat", "w4", "b4"], ["scores"], transB=1),
        node("Softmax", ["scores"], ["y"], axis=-1),
    ]
    return model(nodes, constants, [1, 3, 16, 16], {"y": [1, 10]})
