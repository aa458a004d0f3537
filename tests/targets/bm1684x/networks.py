"""Networks of random weights, built as graphs: for shapes and arithmetic, not for what they predict."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.ops import (
    Add,
    AveragePool2D,
    Concat,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool2D,
    Mean,
    Op,
    Quantize,
    Reshape,
    Window,
)
from tilewright.graph.rounding import Activation

LOWEST = -128


class Builder:
    """Nodes one after another; each method gives the name of a tensor."""

    def __init__(self, seed: int, shape: tuple[int, ...], zero: int = -3, scale: float = 0.03) -> None:
        self.random = np.random.default_rng(seed)
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.input = self._tensor("x", (1, *shape), scale, zero).name

    def conv(
        self, x: str, channels: int, kernel: int = 3, stride: int = 1, pad: int = 1, activation: Activation = "relu"
    ) -> str:
        window = Window((kernel, kernel), (stride, stride), (pad, pad, pad, pad))
        return self._linear(Conv2D(activation, window), x, (channels, kernel, kernel, self.tensors[x].shape[3]))

    def depthwise(self, x: str, stride: int = 1, activation: Activation = "relu") -> str:
        window = Window((3, 3), (stride, stride), (1, 1, 1, 1))
        return self._linear(DepthwiseConv2D(activation, window), x, (1, 3, 3, self.tensors[x].shape[3]))

    def dense(self, x: str, outputs: int) -> str:
        return self._linear(FullyConnected("none"), x, (outputs, self.tensors[x].shape[-1]))

    def add(self, a: str, b: str, activation: Activation = "relu") -> str:
        zero = LOWEST if activation == "relu" else int(self.random.integers(-20, 20))
        scale = self.tensors[a].scale + self.tensors[b].scale
        return self._node(Add(activation), (a, b), self.tensors[a].shape, scale, zero)

    def like(self, x: str, pattern: str) -> str:
        """The codes of `x` at the scale and zero point of `other`."""
        tensor, to = self.tensors[x], self.tensors[pattern]
        return self._node(Quantize(), (x,), tensor.shape, to.scale, to.zero_point)

    def rescaled(self, x: str, ratio: float, zero: int) -> str:
        return self._node(Quantize(), (x,), self.tensors[x].shape, self.tensors[x].scale / ratio, zero)

    def concat(self, axis: int, *parts: str) -> str:
        first, *others = (self.tensors[name].shape for name in parts)
        shape = (*first[:axis], first[axis] + sum(shape_of_part[axis] for shape_of_part in others), *first[axis + 1 :])
        same = [parts[0], *(name if name == parts[0] else self.like(name, parts[0]) for name in parts[1:])]
        return self._node(
            Concat(axis), tuple(same), shape, self.tensors[parts[0]].scale, self.tensors[parts[0]].zero_point
        )

    def maximum(self, x: str, kernel: int = 3, stride: int = 2, pad: int = 1) -> str:
        return self._pool(MaxPool2D(Window((kernel, kernel), (stride, stride), (pad, pad, pad, pad))), x)

    def average(self, x: str, kernel: int) -> str:
        return self._pool(AveragePool2D(Window((kernel, kernel), (kernel, kernel))), x)

    def mean(self, x: str) -> str:
        tensor = self.tensors[x]
        shape = (1, 1, 1, tensor.shape[3])
        return self._node(Mean((1, 2), True), (x,), shape, tensor.scale * 0.7, int(self.random.integers(-30, 30)))

    def flat(self, x: str) -> str:
        tensor = self.tensors[x]
        return self._node(Reshape((1, tensor.size)), (x,), (1, tensor.size), tensor.scale, tensor.zero_point)

    def graph(self, *outputs: str) -> Graph:
        return Graph("random", self.tensors, tuple(self.nodes), (self.input,), outputs).validate()

    def inputs(self, samples: int) -> Array:
        return self.random.integers(-128, 128, (samples, *self.tensors[self.input].shape)).astype(np.int8)

    def _pool(self, op: MaxPool2D | AveragePool2D, x: str) -> str:
        tensor = self.tensors[x]
        rows, columns = op.window.output_size("pool", *tensor.shape[1:3])
        return self._node(op, (x,), (1, rows, columns, tensor.shape[3]), tensor.scale, tensor.zero_point)

    def _linear(self, op: Conv2D | DepthwiseConv2D | FullyConnected, x: str, weights: tuple[int, ...]) -> str:
        depthwise, name = isinstance(op, DepthwiseConv2D), f"n{len(self.nodes)}"
        channels = weights[-1] if depthwise else weights[0]
        axis = len(weights) - 1 if depthwise else 0
        scales = tuple(float(np.float32(s)) for s in self.random.uniform(0.002, 0.01, channels))
        data = self.random.integers(-127, 128, weights).astype(np.int8)
        bias = self.random.integers(-2000, 2000, channels).astype(np.int32)
        self.tensors[f"{name}/w"] = Tensor(f"{name}/w", weights, "int8", Quant(scales, (0,) * channels, axis), data)
        self.tensors[f"{name}/b"] = Tensor(f"{name}/b", bias.shape, "int32", None, bias)
        shape: tuple[int, ...] = (1, channels)
        if not isinstance(op, FullyConnected):
            shape = (1, *op.window.output_size(name, *self.tensors[x].shape[1:3]), channels)
        terms = np.prod(weights) / channels
        scale = self.tensors[x].scale * 0.006 * 40 * np.sqrt(terms)
        zero = LOWEST if op.activation == "relu" else int(self.random.integers(-20, 20))
        return self._node(op, (x, f"{name}/w", f"{name}/b"), shape, float(scale), zero)

    def _node(self, op: Op, inputs: tuple[str, ...], shape: tuple[int, ...], scale: float, zero: int) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(Node(name, op, inputs, (f"{name}/y",)))
        return self._tensor(f"{name}/y", shape, scale, zero).name

    def _tensor(self, name: str, shape: tuple[int, ...], scale: float, zero: int) -> Tensor:
        self.tensors[name] = Tensor(name, shape, "int8", Quant((float(np.float32(scale)),), (zero,)))
        return self.tensors[name]


def mixed(seed: int) -> tuple[Graph, Array]:
    """Every kind of layer once or more, at odd sizes, more channels than lanes and fewer; and three samples."""
    random = np.random.default_rng(seed)
    build = Builder(seed, (int(random.integers(9, 20)), int(random.integers(9, 20)), int(random.integers(1, 5))))
    x = build.conv(build.input, int(random.integers(3, 90)), 3, int(random.integers(1, 3)))
    channels = build.tensors[x].shape[3]
    y = build.conv(build.depthwise(x), channels, 1, 1, 0, "none")
    z = build.add(x, y, "relu" if seed % 2 else "none")
    z = build.conv(build.maximum(z), int(random.integers(60, 200)), 3, int(random.integers(1, 3)), activation="relu6")
    last = build.dense(build.flat(z), 12)
    means = build.dense(build.flat(build.mean(z)), 7)
    graph = build.graph(last, means)
    return graph, build.inputs(3)


def resnet18() -> Graph:
    """ResNet-18's layers at 224x224."""
    build = Builder(0, (224, 224, 3))
    x = build.maximum(build.conv(build.input, 64, 7, 2, 3))
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for block in range(2):
            step = stride if block == 0 else 1
            y = build.conv(build.conv(x, channels, 3, step), channels, activation="none")
            x = build.add(y, x if step == 1 else build.conv(x, channels, 1, step, 0, "none"))
    return build.graph(build.dense(build.flat(build.mean(x)), 1000))
