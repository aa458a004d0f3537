"""Random float networks of images: convolutions, sums, products, pools, and what moves values."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import helper, numpy_helper

from tilewright.array import Array

IMAGES: tuple[str, ...] = ("conv", "conv", "conv", "add", "concat", "pool", "global", "relu", "clip", "host", "norm")
IMAGES += ("pad", "resize", "slice", "flatten", "transpose", "mul")
Shape = tuple[int, ...]


class Network:
    """A float network under construction: values with their shapes, the newest last."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.shapes: dict[str, Shape] = {"x": (1, int(self.rng.choice([3, 4, 16])), 8, 8)}
        self.convolve("x", self.shapes["x"])
        for _ in range(int(self.rng.integers(1, 8))):
            self.grow()

    def const(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        return name

    def op(self, kind: str, *inputs: str, shape: Shape, **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{len(self.nodes)}", **attributes))
        self.shapes[name] = shape

    def convolve(self, x: str, shape: Shape) -> None:
        rng = self.rng
        groups = shape[1] if rng.random() < 0.25 else 1
        outputs, kernel = groups if groups > 1 else int(rng.integers(1, 20)), min(int(rng.integers(1, 4)), *shape[2:])
        stride, pad = int(rng.choice([1, 1, 2])), int(rng.choice([0, kernel // 2]))
        w = rng.standard_normal((outputs, shape[1] // groups, kernel, kernel)) / kernel / np.sqrt(shape[1] / groups)
        bias = [self.const(rng.standard_normal(outputs) * 0.2)] if rng.random() < 0.6 else []
        size = tuple((extent + 2 * pad - kernel) // stride + 1 for extent in shape[2:])
        more = {"group": groups, "pads": [pad] * 4, "strides": [stride] * 2}
        self.op("Conv", x, self.const(w), *bias, shape=(1, outputs, *size), **more)

    def multiply(self, x: str, columns: int) -> None:
        rng, outputs = self.rng, int(self.rng.integers(1, 12))
        w = self.const(rng.standard_normal((columns, outputs)) / np.sqrt(columns))
        bias = [self.const(rng.standard_normal(outputs) * 0.2)] if rng.random() < 0.5 else []
        self.op("Gemm" if bias else "MatMul", x, w, *bias, shape=(1, outputs))

    def grow(self) -> None:
        rng = self.rng
        x = list(self.shapes)[-1] if rng.random() < 0.75 else str(rng.choice(list(self.shapes)))
        shape = self.shapes[x]
        other = str(rng.choice([name for name, found in self.shapes.items() if found == shape]))
        if len(shape) == 2:
            return self.multiply(x, shape[1]) if rng.random() < 0.7 else self.op("Relu", x, shape=shape)
        kind, (_, channels, height, width) = str(rng.choice(IMAGES)), shape
        if kind == "conv":
            self.convolve(x, shape)
        elif kind == "add":
            row = self.const(rng.standard_normal((channels, 1, 1)))
            self.op("Add", x, other if rng.random() < 0.7 else row, shape=shape)
        elif kind == "mul":
            self.op("Mul", x, other, shape=shape)
        elif kind == "concat":
            self.op("Concat", x, other, axis=1, shape=(1, 2 * channels, height, width))
        elif kind == "pool" and min(height, width) > 1:
            how = str(rng.choice(["MaxPool", "AveragePool"]))
            half = (1, channels, height // 2, width // 2)
            self.op(how, x, kernel_shape=[2, 2], strides=[2, 2], shape=half)
        elif kind == "global":
            self.op("GlobalAveragePool", x, shape=(1, channels, 1, 1))
        elif kind == "clip":
            self.op("Clip", x, *map(self.const, [0.0, 6.0] if rng.random() < 0.5 else [-1.0, 1.0]), shape=shape)
        elif kind == "norm":
            low, high = self.const(rng.standard_normal(channels)), self.const(rng.uniform(0.5, 1, channels))
            self.op("BatchNormalization", x, high, low, low, high, shape=shape)
        elif kind == "pad" and self.nodes[-1].op_type != "Pad":
            pads = self.const([0, 0, 1, 0, 0, 0, 0, 1], np.int64)
            self.op("Pad", x, pads, shape=(1, channels, height + 1, width + 1))
        elif kind == "resize" and max(height, width) < 12:
            nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            size = (1, channels, 2 * height, 2 * width)
            self.op("Resize", x, "", self.const([1, 1, 2, 2]), shape=size, **nearest)
        elif kind == "slice" and channels > 1:
            ends = [self.const(value, np.int64) for value in ([0], [channels - 1], [1])]
            self.op("Slice", x, *ends, shape=(1, channels - 1, height, width))
        elif kind == "transpose":
            self.op("Transpose", x, perm=[0, 1, 3, 2], shape=(1, channels, width, height))
        elif kind == "flatten" and prod(shape) < 800:
            self.op("Flatten", x, shape=(1, prod(shape)))
        elif kind in ("relu", "host"):
            self.op("Relu" if kind == "relu" else str(rng.choice(["Sigmoid", "LeakyRelu", "Tanh"])), x, shape=shape)

    def save(self, folder: Path) -> Array:
        """The model, and samples for it, as files; returns the samples."""
        read = {name for node in self.nodes for name in node.input}
        ends = [name for name in self.shapes if name not in read]
        source, *results = (
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, self.shapes[name]) for name in ["x", *ends]
        )
        tensors = [numpy_helper.from_array(values, name) for name, values in self.constants.items()]
        graph = helper.make_graph(self.nodes, "random", [source], results, tensors)
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "f.onnx"
        )
        samples = self.rng.standard_normal((6, *self.shapes["x"])).astype(np.float32)
        np.save(folder / "x.npy", samples)
        return samples
