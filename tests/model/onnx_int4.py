"""Random QDQ networks in ONNX with codes of 4 bits: convolutions, a maximum pool and a matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.array import Array

pytest.importorskip("ml_dtypes", reason="int4 needs onnx 1.19, which needs ml_dtypes")
INT4 = TensorProto.INT4


class Network:
    """Collects nodes and constants. With `exact`, scales are powers of two, so that float32 computes exactly.

    `activations` is the type of the activations; `last` the type of the last ones. Weights are int4.
    """

    def __init__(self, seed: int, exact: bool = True, activations: int = INT4, last: int | None = None) -> None:
        print(f"seed {seed}")
        self.rng = np.random.default_rng(seed)
        self.exact = exact
        self.activations = activations
        self.last = activations if last is None else last
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.notes: dict[str, str] = {}

    def constant(self, name: str, values: Array, kind: int = 0) -> str:
        if kind:
            self.constants.append(helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist()))
        else:
            self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def scale(self, name: str, exponent: int) -> float:
        real = 2.0**exponent * (1 if self.exact else self.rng.uniform(0.7, 1.4))
        self.constant(f"{name}:scale", np.array(real, np.float32))
        return float(np.float32(real))

    def quantised(self, x: str, name: str, exponent: int, zero: int = 0, last: bool = False) -> tuple[str, float]:
        kind = self.last if last else self.activations
        scale = self.scale(name, exponent)
        zeros = self.constant(f"{name}:zero", np.array(zero), kind)
        codes = self.node("QuantizeLinear", [x, f"{name}:scale", zeros], f"{name}:codes")
        return self.node("DequantizeLinear", [codes, f"{name}:scale", zeros], name), scale

    def weights(self, name: str, shape: tuple[int, ...]) -> tuple[str, float]:
        scale = self.scale(name, -4)
        codes = self.constant(f"{name}:codes", self.rng.integers(-8, 8, shape), INT4)
        return self.node("DequantizeLinear", [codes, f"{name}:scale"], name), scale

    def bias(self, name: str, count: int, scale: float) -> str:
        codes = self.constant(f"{name}:codes", self.rng.integers(-200, 200, count).astype(np.int32))
        self.constant(f"{name}:scale", np.array(scale, np.float32))
        return self.node("DequantizeLinear", [codes, f"{name}:scale"], name)

    def conv(self, x: str, scale: float, name: str, shape: tuple[int, ...], **attributes: Any) -> str:
        w, factor = self.weights(f"{name}:w", shape)
        bias = self.bias(f"{name}:b", shape[0], float(np.float32(scale) * np.float32(factor)))
        return self.node("Conv", [x, w, bias], f"{name}:sums", **attributes)

    def save(self, path: Path, output: str, shape: tuple[int, ...], size: tuple[int, ...]) -> Path:
        ends = (("x", size), (output, shape))
        first, last = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, extents)] for name, extents in ends)
        graph = helper.make_graph(self.nodes, "int4", first, last, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        helper.set_model_props(model, self.notes)
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def network(path: Path, seed: int, channels: int = 20, side: int = 8, **given: Any) -> Path:
    """Write a network: two convolutions (the first with a zero point in its result), a pool, a matrix product."""
    made = Network(seed, **given)
    x, scale = made.quantised("x", "a", -3, zero=1)
    sums = made.conv(x, scale, "c", (channels, 3, 3, 3), pads=[1, 1, 1, 1])
    low = -8 if made.activations == INT4 else -128
    x, scale = made.quantised(made.node("Relu", [sums], "r"), "d", -1, zero=low)
    x, scale = made.quantised(
        made.conv(x, scale, "e", (channels, channels, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]), "f", 0
    )
    pooled = made.node("MaxPool", [x], "p", kernel_shape=[2, 2], strides=[2, 2])
    # The pool and the Flatten keep the codes, so their pairs have the same scale.
    for name, value in (("g", pooled), ("h", "flat")):
        made.constant(f"{name}:zero", np.array(0), made.activations)
        pair = ["f:scale", f"{name}:zero"]
        codes = made.node("QuantizeLinear", [value, *pair], f"{name}:codes")
        x = made.node("DequantizeLinear", [codes, *pair], name)
        if name == "g":
            made.node("Flatten", [x], "flat")
    depth = channels * (side // 4) ** 2
    w, factor = made.weights("m:w", (10, depth))
    bias = made.bias("m:b", 10, float(np.float32(scale) * np.float32(factor)))
    y, _ = made.quantised(made.node("Gemm", [x, w, bias], "m:sums", transB=1), "y", 2, last=True)
    return made.save(path, y, (1, 10), (1, 3, side, side))


def by_onnxruntime(path: Path, samples: Array) -> Array:
    """Return the outputs of a file, node by node: onnxruntime's optimisations make types that its kernels lack."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)
    return np.stack([session.run(None, {"x": sample})[0] for sample in samples])


def changed(path: Path, edit: Mapping[str, Any]) -> Path:
    """Set fields of the constant `c:w:codes` of a file."""
    model = onnx.load(path)
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "c:w:codes")
    for name, value in edit.items():
        setattr(tensor, name, value)
    onnx.save(model, path)
    return path
