"""Small networks of random weights that run wholly on the engine, but for their reshapes."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.ops import Conv2D, FullyConnected, MaxPool2D, Op, Reshape, Window

SAME, HALF = Window((3, 3), (1, 1), (1, 1, 1, 1)), Window((2, 2), (2, 2))


class Chain:
    """Layers one after another; `graph` ends it."""

    def __init__(self, seed: int, shape: tuple[int, ...], dtype: str = "int8") -> None:
        self.random, self.dtype = np.random.default_rng(seed), dtype
        self.tensors = {"x": Tensor("x", (1, *shape), dtype, Quant((0.03,), (self._zero(),)))}
        self.nodes: list[Node] = []
        self.last = self.tensors["x"]

    def conv(self, channels: int) -> Chain:
        shape = (channels, 3, 3, self.last.shape[3])
        return self._sum(Conv2D("relu", SAME), (*self.last.shape[:3], channels), shape)

    def pool(self) -> Chain:
        batch, rows, cols, channels = self.last.shape
        return self._add(MaxPool2D(HALF), (batch, rows // 2, cols // 2, channels), self.last.quant)

    def flat(self) -> Chain:
        return self._add(Reshape((1, self.last.size)), (1, self.last.size), self.last.quant)

    def dense(self, outputs: int, relu: bool = False) -> Chain:
        return self._sum(FullyConnected("relu" if relu else "none"), (1, outputs), (outputs, self.last.shape[1]))

    def graph(self) -> Graph:
        return Graph("chain", self.tensors, tuple(self.nodes), ("x",), (self.last.name,)).validate()

    def inputs(self, samples: int) -> Array:
        info = np.iinfo(self.dtype)
        shape = (samples, *self.tensors["x"].shape)
        return self.random.integers(info.min, info.max + 1, shape).astype(self.dtype)

    def _zero(self) -> int:
        return int(self.random.integers(-9, 9)) if self.dtype == "int8" else int(self.random.integers(100, 150))

    def _sum(self, op: Op, shape: tuple[int, ...], weights: tuple[int, ...]) -> Chain:
        name, channels = f"n{len(self.nodes)}", weights[0]
        scales = tuple(float(np.float32(s)) for s in self.random.uniform(0.002, 0.01, channels))
        data = self.random.integers(-127, 128, weights).astype(np.int8)
        bias = self.random.integers(-2000, 2000, channels).astype(np.int32)
        self.tensors[f"{name}/w"] = Tensor(f"{name}/w", weights, "int8", Quant(scales, (0,) * channels), data)
        self.tensors[f"{name}/b"] = Tensor(f"{name}/b", bias.shape, "int32", None, bias)
        scale = float(np.float32(0.006 * self.last.scale * 40 * np.sqrt(np.prod(weights[1:]))))
        zero = int(np.iinfo(self.dtype).min) if getattr(op, "activation", "") == "relu" else self._zero()
        return self._add(op, shape, Quant((scale,), (zero,)), f"{name}/w", f"{name}/b")

    def _add(self, op: Op, shape: tuple[int, ...], quant: Quant | None, *constants: str) -> Chain:
        name = f"n{len(self.nodes)}"
        out = Tensor(f"{name}/y", shape, self.dtype, quant)
        self.tensors[out.name] = out
        self.nodes.append(Node(name, op, (self.last.name, *constants), (out.name,)))
        self.last = out
        return self
