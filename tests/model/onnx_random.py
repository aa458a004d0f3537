"""Random quantised ONNX networks: layers that read each other's results, pairs shared, kept apart or left out."""

from __future__ import annotations

from math import prod

import numpy as np

from tests.model.onnx_forms import pick
from tests.model.onnx_nets import Net

OPSETS = (13, 14, 17, 19, 21)
IMAGES: tuple[str, ...] = (
    "conv",
    "conv",
    "conv",
    "depthwise",
    "add",
    "add",
    "mul",
    "concat",
    "max",
    "average",
    "global",
    "each",
    "each",
)
IMAGES += ("transpose", "flatten", "slice", "pad", "resize", "split", "gemm")
ROWS = ("matmul", "matmul", "gemm", "add", "each", "softmax", "image", "concat")
EACH = ("Relu", "Sigmoid", "LeakyRelu", "Identity", "Dropout", "HardSigmoid")
Shape = tuple[int, ...]


def random_network(seed: int) -> tuple[Net, list[str]]:
    """A network of up to 8 layers, and its outputs: all that nobody reads, and now and then a value in the middle."""
    rng = np.random.default_rng(seed)
    growing = Growing(rng, seed)
    for _ in range(int(rng.integers(2, 9))):
        growing.grow()
    net = growing.net
    read = {name for node in net.nodes for name in node.input}
    made = [name for node in net.nodes for name in node.output]
    return net, [name for name in made if name not in read or (name in growing.coded and rng.random() < 0.1)]


class Growing:
    """A network under construction: `open` values with their shapes, `coded` those that come dequantised."""

    def __init__(self, rng: np.random.Generator, seed: int) -> None:
        self.net = Net(seed, pick(rng, np.uint8, np.int8), pick(rng, *OPSETS))
        self.net.rng = self.rng = rng
        self.open: dict[str, Shape] = {}
        self.coded: dict[str, tuple[str, tuple[str, str]]] = {}
        self.pairs: list[tuple[str, str]] = []
        self.keep(self.net.input((1, 4, 8, 8)), (1, 4, 8, 8), quantised=True)

    def keep(self, name: str, shape: Shape, quantised: bool = False, pair: tuple[str, str] | None = None) -> None:
        """A result, mostly through quantise and dequantise; then a few times real as well."""
        rng, net = self.rng, self.net
        if quantised or rng.random() < 0.8:
            pair = pair or (pick(rng, *self.pairs) if self.pairs and rng.random() < 0.4 else net.scales())
            self.pairs.append(pair)
            codes = net.op("QuantizeLinear", name, *pair)
            real = net.op("DequantizeLinear", codes, *pair)
            self.coded[real] = codes, pair
            if not quantised and rng.random() < 0.15:
                self.open[name] = shape
            self.open[real] = shape
        else:
            self.open[name] = shape

    def operand(self, *names: str) -> str:
        """One of the values, mostly the last; at times dequantised once more."""
        rng = self.rng
        name = names[-1] if rng.random() < 0.7 else str(rng.choice(names))
        if name in self.coded and rng.random() < 0.2:
            codes, pair = self.coded[name]
            return str(self.net.op("DequantizeLinear", codes, *pair))
        return name

    def grow(self) -> None:
        rng, net = self.rng, self.net
        first = self.operand(*self.open)
        shape = self.open.get(first) or next(
            self.open[n] for n, (c, _) in self.coded.items() if c == self.codes_of(first)
        )
        kind = pick(rng, *(IMAGES if len(shape) == 4 else ROWS))
        alike = [name for name, other in self.open.items() if other == shape]
        if kind in ("add", "mul"):
            constant = net.weights((shape[1], 1, 1) if len(shape) == 4 else shape[-1:], None, net.codes.type)
            pair = [first, self.operand(*alike) if rng.random() < 0.7 else constant]
            self.keep(net.op(kind.capitalize(), *rng.permutation(pair)), shape)
        elif kind == "concat":
            parts = [self.operand(*alike) for _ in range(pick(rng, 1, 2))]
            self.keep(net.op("Concat", first, *parts, axis=1), (shape[0], shape[1] * (1 + len(parts)), *shape[2:]))
        elif kind == "each":
            self.keep(net.op(pick(rng, *EACH), first), shape)
        elif kind == "softmax":
            self.keep(net.op("Softmax", first, axis=-1), shape)
        elif kind == "image":
            self.keep(net.op("Reshape", first, net.const([1, 1, 1, -1])), (1, 1, 1, prod(shape)))
        elif kind in ("flatten", "gemm", "matmul"):
            self.rows(kind, first, shape)
        elif kind in ("conv", "depthwise"):
            self.convolve(kind, first, shape)
        else:
            self.move(kind, first, shape)

    def codes_of(self, name: str) -> str:
        return next(str(node.input[0]) for node in self.net.nodes if name in node.output)

    def convolve(self, kind: str, x: str, shape: Shape) -> None:
        rng, net = self.rng, self.net
        groups = shape[1] if kind == "depthwise" else 1
        kernel, outputs = min(pick(rng, 1, 2, 3), *shape[2:]), groups if groups > 1 else int(rng.integers(1, 6))
        stride, pad = pick(rng, 1, 1, 2), pick(rng, 0, kernel // 2)
        w, bias = net.weights((outputs, shape[1] // groups, kernel, kernel), pick(rng, 0, None)), []
        chosen = rng.random()
        if chosen < 0.4 and x in self.coded:
            bias = [net.bias(x, w)]
        elif chosen < 0.6:
            bias = [net.const(rng.uniform(-1, 1, outputs), np.float32)]
        y = net.op("Conv", x, w, *bias, group=groups, strides=[stride] * 2, pads=[pad] * 4)
        self.keep(y, (shape[0], outputs, *((extent + 2 * pad - kernel) // stride + 1 for extent in shape[2:])))

    def rows(self, kind: str, x: str, shape: Shape) -> None:
        """A product by constants; both operands are dequantised, as else onnxruntime has kernels of another kind."""
        rng, net = self.rng, self.net
        if len(shape) == 4:
            x, shape = net.op("Flatten", x), (shape[0], prod(shape[1:]))
        if kind == "flatten" or shape[1] > 600:
            return self.keep(x, shape)
        x = x if x in self.coded else net.quantized(x)
        outputs = int(rng.integers(1, 7))
        addend = [net.const(rng.uniform(-1, 1, outputs), np.float32)] if rng.random() < 0.5 else []
        if kind == "gemm":
            y = net.op("Gemm", x, net.weights((outputs, shape[1]), pick(rng, 0, None)), *addend, transB=1)
            return self.keep(y, (shape[0], outputs))
        y = net.op("MatMul", x, net.weights((shape[1], outputs), pick(rng, 1, None)))
        return self.keep(net.op("Add", y, *addend) if addend else y, (shape[0], outputs), quantised=True)

    def move(self, kind: str, x: str, shape: Shape) -> None:
        """Pools, and what moves values."""
        net, (batch, channels, height, width) = self.net, shape
        kernel = [min(2, height), min(2, width)]
        if kind == "max":
            y, shape = (
                net.op("MaxPool", x, kernel_shape=kernel, strides=kernel),
                (height // kernel[0], width // kernel[1]),
            )
            self.keep(y, (batch, channels, *shape))
        elif kind == "average":
            y, shape = net.op("AveragePool", x, kernel_shape=kernel), (height + 1 - kernel[0], width + 1 - kernel[1])
            self.keep(y, (batch, channels, *shape))
        elif kind == "global":
            self.keep(net.op("GlobalAveragePool", x), (batch, channels, 1, 1))
        elif kind == "transpose":
            order = pick(self.rng, [0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2])
            # Of another scale, pairs may meet where onnxruntime moves transposes, and become one.
            pair = self.coded[x][1] if x in self.coded else None
            self.keep(net.op("Transpose", x, perm=order), tuple(shape[axis] for axis in order), pair=pair)
        elif kind == "slice":
            rows = max(1, height - 1)
            self.keep(net.op("Slice", x, *map(net.const, ([0], [rows], [2]))), (batch, channels, rows, width))
        elif kind == "pad":
            y = net.op("Pad", x, net.const([0, 0, 1, 0, 0, 0, 0, 1]))
            # Before a real MaxPool onnxruntime takes it for the pool's own padding, which has no value.
            self.keep(y, (batch, channels, height + 1, width + 1), quantised=True)
        elif kind == "resize" and max(height, width) < 20:
            scales = net.const([1, 1, 2, 2], np.float32)
            self.keep(net.op("Resize", x, "", scales, mode="nearest"), (batch, channels, 2 * height, 2 * width))
        elif kind == "split" and channels % 2 == 0:
            for part in net.op("Split", x, net.const([channels // 2] * 2), outputs=2, axis=1):
                self.keep(part, (batch, channels // 2, height, width))
