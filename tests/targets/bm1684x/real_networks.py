"""Random networks of real numbers as ONNX has them: what the machine takes, with reshapes and the host's between."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tests.model.onnx_nets import Net

WINDOWS = ("Conv", "Depthwise", "MaxPool", "AveragePool")
KINDS = (
    *WINDOWS,
    "Conv",
    "GlobalAveragePool",
    "Relu",
    "Clip",
    "Add",
    "Concat",
    "Reshape",
    "Flatten",
    "Gemm",
    "MatMul",
    "Sigmoid",
)
Shape = tuple[int, ...]


class Growing:
    """A network under construction: `open` values with their shapes."""

    def __init__(self, seed: int, layers: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.net = Net(seed, np.int8)
        shape = (1, *(int(self.rng.integers(1, top)) for top in (70, 16, 16)))
        self.input = self.net.input(shape)
        self.open: dict[str, Shape] = {self.input: shape}
        while len(self.open) <= layers:
            self.grow(str(self.rng.choice(KINDS)))

    @property
    def outputs(self) -> list[str]:
        """What nobody reads."""
        read = {name for node in self.net.nodes for name in node.input}
        return [name for name in self.open if name not in read]

    def constant(self, *shape: int, terms: int = 1) -> Any:
        return self.net.const(self.rng.normal(size=shape) / np.sqrt(terms), np.float32)

    def grow(self, kind: str) -> None:
        """A layer on one of the values, mostly the newest; none where its kind does not fit."""
        rng, names = self.rng, list(self.open)
        x = names[-1] if rng.random() < 0.7 else str(rng.choice(names))
        shape, op = self.open[x], self.net.op
        if kind in WINDOWS:
            self.window(kind, x)
        elif kind == "GlobalAveragePool" and len(shape) == 4:
            self.open[op(kind, x)] = (*shape[:2], 1, 1)
        elif kind in ("Relu", "Sigmoid"):
            self.open[op(kind, x)] = shape
        elif kind == "Clip":
            low = self.net.const(-0.5, np.float32) if rng.random() < 0.7 else ""
            self.open[op(kind, x, low, self.net.const(1.5, np.float32))] = shape
        elif kind == "Add":
            self.open[op(kind, x, str(rng.choice([n for n in names if self.open[n] == shape])))] = shape
        elif kind == "Concat":
            axis = int(rng.integers(1, len(shape)))
            fits = [
                n for n in names if shape[:axis] + shape[axis + 1 :] == self.open[n][:axis] + self.open[n][axis + 1 :]
            ]
            partner = str(rng.choice(fits))
            joined = (*shape[:axis], shape[axis] + self.open[partner][axis], *shape[axis + 1 :])
            self.open[op(kind, x, partner, axis=axis - len(shape) * int(rng.integers(2)))] = joined
        elif kind == "Flatten":
            self.open[op(kind, x)] = (1, prod(shape))
        elif kind == "Reshape":
            sizes: list[int] = []
            for _ in range(2):
                left = prod(shape) // prod(sizes)
                sizes.append(int(rng.choice([size for size in range(1, left + 1) if left % size == 0])))
            new = (1, *sizes, prod(shape) // prod(sizes))
            self.open[op(kind, x, self.net.const(new, np.int64))] = new
        elif kind in ("Gemm", "MatMul") and len(shape) == 2:
            depth, outputs = shape[1], int(rng.choice([1, 4, 10, 70]))
            operands = [x, self.constant(depth, outputs, terms=depth)]
            operands += [self.constant(outputs)] if kind == "Gemm" and rng.random() < 0.7 else []
            self.open[op(kind, *operands)] = (1, outputs)

    def window(self, kind: str, x: str) -> None:
        rng, shape = self.rng, self.open[x]
        if len(shape) != 4:
            return
        kernel = [int(rng.integers(1, min(5, size + 2) + 1)) for size in shape[2:]]
        dilation = [int(rng.integers(1, 3)) if kind != "AveragePool" else 1 for _ in kernel]
        pads = [int(rng.integers(0, size)) if rng.random() < 0.7 else 0 for size in (*kernel, *kernel)]
        spare = [shape[2 + i] + pads[i] + pads[2 + i] - (kernel[i] - 1) * dilation[i] - 1 for i in (0, 1)]
        if min(spare) < 0:
            return
        strides = [int(rng.integers(1, 4)) for _ in kernel]
        size = tuple(left // stride + 1 for left, stride in zip(spare, strides, strict=True))
        given: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        if max(dilation) > 1:
            given["dilations"] = dilation
        if kind in ("Conv", "Depthwise"):
            groups = shape[1] if kind == "Depthwise" else 1
            outputs = shape[1] if kind == "Depthwise" else int(rng.choice([1, 4, 7, 32, 70]))
            terms = shape[1] // groups * prod(kernel)
            w = self.constant(outputs, shape[1] // groups, *kernel, terms=terms)
            bias = [self.constant(outputs)] if rng.random() < 0.7 else []
            self.open[self.net.op("Conv", x, w, *bias, group=groups, **given)] = (1, outputs, *size)
        else:
            self.open[self.net.op(kind, x, **given)] = (*shape[:2], *size)
