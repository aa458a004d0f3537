"""Random float networks over rows, images and volumes, with every activation behind every operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import helper, numpy_helper

from tilewright.array import Array

Shape = tuple[int, ...]
ACTIVATIONS = ("Relu", "Clip06", "Clip11", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Elu", "")
OPERATORS: tuple[str, ...] = (
    "Conv",
    "Conv",
    "Product",
    "Product",
    "MatMul",
    "Gemm",
    "Add",
    "Mul",
    "Concat",
    "AveragePool",
)
OPERATORS += ("GlobalAveragePool", "ReduceMean", "MaxPool", "Transpose", "Pad")
#: Values of more elements are not grown any further.
MOST = 4000


class Shaped:
    """A network of a few operators, each with an activation behind it; `x` is (1, C, ...) with 1 to 3 more axes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.shapes: dict[str, Shape] = {}
        rng, axes = self.rng, int(self.rng.integers(1, 4))
        size = {1: (5, 24), 2: (4, 9), 3: (3, 6)}[axes]
        self.last = self.keep("x", (1, int(rng.integers(1, 6)), *(int(n) for n in rng.integers(*size, axes))))
        self.conv()
        self.activate()
        for _ in range(int(rng.integers(0, 4))):
            getattr(self, str(rng.choice(OPERATORS)).lower())()
            self.activate()

    def keep(self, name: str, shape: Shape) -> str:
        self.shapes[name] = shape
        return name

    def const(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> None:
        """A node; onnx infers the shape of its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{len(self.nodes)}", **attributes))
        inferred = onnx.shape_inference.infer_shapes(self.model(name), strict_mode=True, data_prop=True)
        (value,) = inferred.graph.output
        self.last = self.keep(name, tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim))

    def model(self, *outputs: str) -> Any:
        source = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.shapes["x"])
        results = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, self.shapes.get(name)) for name in outputs
        ]
        graph = helper.make_graph(self.nodes, "shaped", [source], results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    @property
    def shape(self) -> Shape:
        return self.shapes[self.last]

    def activate(self) -> None:
        kind = str(self.rng.choice(ACTIVATIONS))
        if kind.startswith("Clip"):
            self.op("Clip", self.last, *map(self.const, (0.0, 6.0) if kind == "Clip06" else (-1.0, 1.0)))
        elif kind == "LeakyRelu":
            self.op(kind, self.last, alpha=float(self.rng.choice([0.25, 0.1])))
        elif kind:
            self.op(kind, self.last)

    def conv(self) -> None:
        rng, shape = self.rng, self.shape
        axes = len(shape) - 2
        if axes < 1:
            return
        groups = int(rng.choice([g for g in range(1, shape[1] + 1) if shape[1] % g == 0]))
        outputs = groups * int(rng.integers(1, 4))
        dilations = [int(d) for d in rng.choice([1, 1, 1, 2], axes)]
        kernel = [
            min(int(k), 1 + (n - 1) // d)
            for k, n, d in zip(rng.integers(1, 4, axes), shape[2:], dilations, strict=True)
        ]
        w = rng.standard_normal((outputs, shape[1] // groups, *kernel)) / np.sqrt(shape[1] // groups * np.prod(kernel))
        bias = [self.const(rng.standard_normal(outputs) * 0.2)] if rng.random() < 0.6 else []
        attributes: dict[str, Any] = {"group": groups, "dilations": dilations}
        attributes["strides"] = [int(s) for s in rng.choice([1, 1, 2], axes)]
        if rng.random() < 0.2 and max(dilations) == 1:  # onnxruntime pads nothing that is dilated by itself
            attributes |= {"auto_pad": str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))}
        else:
            attributes["pads"] = [int(rng.integers(0, k)) for k in kernel * 2]
        self.op("Conv", self.last, self.const(w), *bias, **attributes)

    def product(self) -> None:
        """A value by its own transpose, matrix by matrix; at times by the first of them only, which broadcasts."""
        shape, x = self.shape, self.last
        rank = len(shape)
        if rank < 3 or np.prod(shape) * shape[-2] > 16 * MOST:
            return
        self.op("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
        if shape[1] > 1 and rank > 3 and self.rng.random() < 0.3:
            self.op("Slice", self.last, *(self.const([value], np.int64) for value in (0, 1, 1)))
        self.op("MatMul", x, self.last)

    def matmul(self) -> None:
        w = self.rng.standard_normal((self.shape[-1], int(self.rng.integers(1, 7)))) / np.sqrt(self.shape[-1])
        self.op("MatMul", self.last, self.const(w))

    def gemm(self) -> None:
        if len(self.shape) > 2:
            self.op("Flatten", self.last)
        rng, columns = self.rng, int(self.rng.integers(1, 7))
        w = rng.standard_normal((columns, self.shape[1])) / np.sqrt(self.shape[1])
        bias = [self.const(rng.standard_normal(columns) * 0.2)] if rng.random() < 0.5 else []
        self.op("Gemm", self.last, self.const(w), *bias, transB=1)

    def other(self) -> str:
        return str(self.rng.choice([name for name, shape in self.shapes.items() if shape == self.shape]))

    def add(self) -> None:
        row = self.const(self.rng.standard_normal(self.shape[-1:]))
        self.op("Add", self.last, self.other() if self.rng.random() < 0.7 else row)

    def mul(self) -> None:
        self.op("Mul", self.last, self.other())

    def concat(self) -> None:
        if np.prod(self.shape) < MOST:
            self.op("Concat", self.last, self.other(), axis=int(self.rng.integers(1, len(self.shape))))

    def averagepool(self) -> None:
        self._pool("AveragePool")

    def maxpool(self) -> None:
        self._pool("MaxPool")

    def _pool(self, kind: str) -> None:
        if len(self.shape) > 2:
            kernel = [
                min(n, int(k))
                for n, k in zip(self.shape[2:], self.rng.integers(1, 4, len(self.shape) - 2), strict=True)
            ]
            self.op(
                kind, self.last, kernel_shape=kernel, strides=kernel if self.rng.random() < 0.5 else [1] * len(kernel)
            )

    def globalaveragepool(self) -> None:
        if len(self.shape) > 2:
            self.op("GlobalAveragePool", self.last)

    def reducemean(self) -> None:
        rank = len(self.shape)
        axes = sorted(int(axis) for axis in self.rng.choice(np.arange(1, rank), int(self.rng.integers(1, rank)), False))
        self.op("ReduceMean", self.last, axes=axes, keepdims=1)

    def transpose(self) -> None:
        self.op("Transpose", self.last, perm=[0, *(1 + int(a) for a in self.rng.permutation(len(self.shape) - 1))])

    def pad(self) -> None:
        rank = len(self.shape)
        if self.nodes[-1].op_type == "Pad":  # onnxruntime's preparation merges two
            return
        pads = [0, *(int(n) for n in self.rng.integers(0, 2, rank - 1))] * 2
        if np.prod(self.shape) < MOST:
            self.op("Pad", self.last, self.const(pads, np.int64))

    def save(self, folder: Path, samples: int = 4) -> Array:
        """The model `f.onnx`, and samples for it `x.npy`; returns the samples (S, 1, C, ...)."""
        read = {name for node in self.nodes for name in node.input}
        onnx.save(self.model(*(name for name in self.shapes if name not in read)), folder / "f.onnx")
        values = self.rng.standard_normal((samples, *self.shapes["x"])).astype(np.float32)
        np.save(folder / "x.npy", values)
        return values
