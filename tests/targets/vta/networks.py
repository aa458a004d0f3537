"""Random quantised networks of several layers: what chains, what cannot, what more than one layer reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod, sqrt

import numpy as np

from tilewright.graph.ir import Graph, Node, Quant, Site, Tensor
from tilewright.graph.ops import (
    Add,
    AveragePool2D,
    Concat,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool2D,
    Mean,
    Mul,
    Op,
    Pad,
    Quantize,
    Reshape,
    Transpose,
    Window,
)
from tilewright.graph.rounding import Activation

#: Layers of `grow`: what a machine may take, and what is the host's.
MACHINE_KINDS = ("conv", "conv", "pointwise", "depthwise", "max", "average", "add", "add", "fc")
HOST_KINDS = ("concat", "concat", "mul", "mean", "pad", "quantize", "reshape", "transpose")
ACTIVATIONS: tuple[Activation, ...] = ("none", "none", "relu", "relu6", "relu_n1_to_1")
ZERO_POINTS = (-128, 0, 7, 127)


@dataclass
class Builder:
    """A graph under construction; `open` are the activations that a next layer may read."""

    rng: np.random.Generator
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def quant(self) -> Quant:
        rng = self.rng
        zero = int(rng.choice(ZERO_POINTS)) if rng.random() < 0.7 else int(rng.integers(-128, 128))
        return Quant((float(np.float32(rng.uniform(0.01, 0.1))),), (zero,))

    def given(self, shape: tuple[int, ...]) -> str:
        """A new input of the graph."""
        name = f"x{len(self.inputs)}"
        self.tensors[name] = Tensor(name, shape, "int8", self.quant())
        self.inputs.append(name)
        self.open.append(name)
        return name

    def layer(self, op: Op, *inputs: str, constants: tuple[Tensor, ...] = (), quant: Quant | None = None) -> str:
        name = f"n{len(self.nodes)}"
        constants = tuple(replace(tensor, name=f"{name}.{tensor.name}") for tensor in constants)
        node = Node(name, op, (*inputs, *(tensor.name for tensor in constants)), (f"y{name}",))
        out = Tensor(f"y{name}", (), "int8", quant or self.quant())
        site = Site(node, (*(self.tensors[i] for i in inputs), *constants), (out,))
        (shape,) = op.shapes(site)
        self.tensors |= {tensor.name: tensor for tensor in (*constants, replace(out, shape=shape))}
        self.nodes.append(node)
        self.open.append(out.name)
        return out.name

    def linear(self, op: Conv2D | DepthwiseConv2D | FullyConnected, x: str, shape: tuple[int, ...], axis: int) -> str:
        """Weights of `shape` whose factors spread sums over the codes; now and then factors of one and more."""
        rng, channels = self.rng, shape[axis]
        terms = prod(shape) // channels
        data = rng.integers(-128, 128, shape) if rng.random() < 0.8 else rng.integers(-1, 2, shape)
        spread = 74.0 * max(1.0, float(data.std())) * sqrt(terms)
        real = rng.uniform(20, 90, channels if rng.random() < 0.7 else 1) / spread * rng.choice([1.0, 1.0, 0.1, 3.0])
        quant = self.quant()
        scale = real * quant.scale[0] / self.tensors[x].scale
        weights = Quant(tuple(float(np.float32(s)) for s in scale), (0,) * len(scale), axis if len(scale) > 1 else 0)
        bias = rng.integers(-(1 << 12), 1 << 12, channels).astype(np.int32)
        constants = [
            Tensor("w", shape, "int8", weights, data.astype(np.int8)),
            Tensor("b", (channels,), "int32", None, bias),
        ]
        return self.layer(op, x, constants=tuple(constants[: 1 + (rng.random() < 0.8)]), quant=quant)

    def window(self, size: tuple[int, int], pointwise: bool) -> Window:
        rng = self.rng
        stride = (1, 1) if rng.random() < 0.6 else (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        if pointwise:
            return Window((1, 1), stride)
        kernel = [int(rng.integers(1, min(5, extent) + 1)) for extent in size]
        dilation = [
            int(rng.integers(1, 3)) if (k - 1) * 2 + 1 <= extent else 1 for k, extent in zip(kernel, size, strict=True)
        ]
        if rng.random() < 0.5:
            return Window.same(size, (kernel[0], kernel[1]), stride, (dilation[0], dilation[1]))
        pads = [int(rng.integers(0, (k - 1) * d + 1)) for k, d in zip(kernel, dilation, strict=True) for _ in "ab"]
        return Window((kernel[0], kernel[1]), stride, (pads[0], pads[1], pads[2], pads[3]), (dilation[0], dilation[1]))

    def grow(self, kind: str = "") -> None:
        """One more layer on an activation, mostly the newest; of any machine's kind where none is given."""
        rng = self.rng
        x = self.open[-1] if rng.random() < 0.75 else str(rng.choice(self.open))
        shape = self.tensors[x].shape
        activation = ACTIVATIONS[rng.integers(len(ACTIVATIONS))]
        kind = kind or str(rng.choice(MACHINE_KINDS if len(shape) == 4 else ["fc", "fc", "add"]))
        outputs = int(rng.choice([3, 4, 8, 16, 20, 33]))
        if kind in HOST_KINDS:
            self.move(kind, x)
        elif len(shape) != 4 and kind not in ("add", "fc"):
            return
        elif kind == "add":
            self.add(x, activation)
        elif kind == "fc":
            depth = shape[-1] if rng.random() < 0.5 else prod(shape)
            if depth <= 1200:
                self.linear(FullyConnected(activation), x, (outputs, depth), 0)
        elif kind in ("max", "average"):
            pool = MaxPool2D if kind == "max" else AveragePool2D
            window = self.window((shape[1], shape[2]), False)
            if max(window.padding) == 0 or all(p < k for p, k in zip(window.padding[::2], window.kernel, strict=True)):
                self.layer(pool(window, activation), x, quant=self.tensors[x].quant)
        elif kind == "depthwise":
            outputs = shape[3] * int(rng.choice([1, 1, 1, 2]))
            window = self.window((shape[1], shape[2]), False)
            self.linear(DepthwiseConv2D(activation, window), x, (1, *window.kernel, outputs), 3)
        else:
            window = self.window((shape[1], shape[2]), kind == "pointwise")
            self.linear(Conv2D(activation, window), x, (outputs, *window.kernel, shape[3]), 0)

    def add(self, x: str, activation: Activation) -> None:
        """With an activation of the same shape, or with a new input of the graph."""
        rng, shape = self.rng, self.tensors[x].shape
        alike = [name for name in self.open if self.tensors[name].shape == shape]
        other = str(rng.choice(alike)) if rng.random() < 0.7 else self.given(shape)
        self.layer(Add(activation), *((x, other) if rng.random() < 0.5 else (other, x)))

    def move(self, kind: str, x: str) -> None:
        """A layer that no VTA computes: most move codes only, and keep their scale."""
        rng, tensor = self.rng, self.tensors[x]
        shape, axes, same = tensor.shape, range(len(tensor.shape)), tensor.quant
        if kind == "concat":
            alike = [n for n in self.open if self.tensors[n].shape[:-1] == shape[:-1]]
            parts = [x, *(str(name) for name in rng.choice(alike, rng.integers(1, 3)))]
            ready = [n if self.tensors[n].quant == same else self.layer(Quantize(), n, quant=same) for n in parts]
            if sum(self.tensors[name].shape[-1] for name in ready) <= 100:
                self.layer(Concat(-1), *ready, quant=same)
        elif kind == "mul":
            self.layer(Mul(), x, str(rng.choice([n for n in self.open if self.tensors[n].shape == shape])))
        elif kind == "mean" and len(shape) == 4:
            self.layer(Mean((1, 2), True), x)
        elif kind == "quantize":
            self.layer(Quantize(), x)
        elif kind == "pad":
            pairs = ((0, 0), *((int(rng.integers(3)), int(rng.integers(3))) for _ in axes[1:-1]), (0, 0))
            self.layer(Pad(pairs[: len(axes)]), x, quant=same)
        elif kind == "reshape":
            self.layer(Reshape((shape[0], *shape[:0:-1])), x, quant=same)
        elif kind == "transpose":
            self.layer(Transpose((0, *(1 + rng.permutation(len(axes) - 1)).tolist())), x, quant=same)

    def graph(self) -> Graph:
        """Outputs: the last tensor, those that nobody reads, and now and then one in the middle."""
        read = {name for node in self.nodes for name in node.inputs}
        made = [node.outputs[0] for node in self.nodes]
        outputs = [name for name in made if name not in read or self.rng.random() < 0.2]
        inputs = tuple(name for name in self.inputs if name in read)
        tensors = {n: t for n, t in self.tensors.items() if n in read or n in made}
        return Graph("random", tensors, tuple(self.nodes), inputs, tuple(outputs)).validate()


def random_network(rng: np.random.Generator, layers: int = 6) -> Graph:
    """Up to `layers` layers from an image of odd size."""
    builder = Builder(rng)
    size = int(rng.integers(3, 14)), int(rng.integers(3, 14))
    builder.given((1, *size, int(rng.choice([1, 3, 4, 8, 16, 17, 24]))))
    while len(builder.nodes) < max(1, int(rng.integers(1, layers + 1))):
        builder.grow()
    return builder.graph()
