"""Networks of one operator of the graph each, for every number of axes that it may have; most extents are 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Quant, Site, Tensor
from tilewright.graph.rounding import Shift

Shape = tuple[int, ...]
#: Rounding modes, and the scales and zero points of their tensors: `pow2` has powers of two only.
MODES = ("tflm", "litert", "xnnpack", "ort", "pow2")


class Draw:
    """A network in the making. Its operator has inputs and results of int8, with scales that `mode` allows."""

    def __init__(self, seed: int, rank: int, mode: str) -> None:
        self.rng, self.rank, self.mode = np.random.default_rng(seed), rank, mode
        self.tensors: dict[str, Tensor] = {}
        self.inputs: list[str] = []

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def shape(self, rank: int | None = None) -> Shape:
        """A shape of the asked rank, half of its extents 1."""
        rank = self.rank if rank is None else rank
        return tuple(int(extent) for extent in self.rng.choice([1, 1, 1, 2, 3, 5], rank))

    def quant(self, scale: float = 0.25) -> Quant:
        return Quant((scale,), (0 if self.mode == "pow2" else self.number(-9, 9),))

    def tensor(self, shape: Shape, quant: Quant | None = None, dtype: str = "int8", constant: bool = False) -> str:
        """A tensor: a constant with random values, or a value of the network."""
        name = f"t{len(self.tensors)}"
        data = None
        if constant:
            info = np.iinfo(dtype if dtype != "int64" else "int8")
            data = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)
            data = data // 100 if dtype == "int32" else data
        self.tensors[name] = Tensor(name, shape, dtype, quant, data)
        return name

    def input(self, shape: Shape | None = None, quant: Quant | None = None, dtype: str = "int8") -> str:
        name = self.tensor(self.shape() if shape is None else shape, quant or self.quant(), dtype)
        self.inputs.append(name)
        return name

    def weights(self, shape: Shape) -> str:
        return self.tensor(shape, Quant((2.0**-6,), (0,)), constant=True)

    def bias(self, channels: int) -> list[str]:
        return [self.tensor((channels,), None, "int32", constant=True)] if self.number(0, 1) else []

    def graph(
        self, op: ops.Op, inputs: Sequence[str], quants: Sequence[Quant | None] = (), dtype: str = "int8"
    ) -> Graph:
        """The network: `op`, whose rule gives the shapes of its results. `quants` are theirs [default: a new one]."""
        node = Node("n", op, tuple(inputs), ())
        quants = quants or [self.quant(0.5)]
        tensors = tuple(self.tensors[name] for name in inputs)
        drafts = tuple(Tensor(f"y{i}", (), dtype, quant) for i, quant in enumerate(quants))
        if isinstance(op, ops.Lstm):
            drafts = tuple(replace(d, dtype=("int16" if i == 2 else "int8")) for i, d in enumerate(drafts))
        shapes = op.shapes(Site(node, tensors, drafts))
        made = [replace(draft, shape=shape) for draft, shape in zip(drafts, shapes, strict=True)]
        node = replace(node, outputs=tuple(tensor.name for tensor in made))
        tensors_ = {**self.tensors, **{tensor.name: tensor for tensor in made}}
        return Graph(op.kind, tensors_, (node,), tuple(self.inputs), node.outputs, self.mode).validate()

    def quant_of(self, name: str) -> Quant | None:
        return self.tensors[name].quant


def _image(d: Draw) -> str:
    return d.input(d.shape(4))


def _window(d: Draw, x: str, padded: bool = True) -> ops.Window:
    _, height, width, _ = d.tensors[x].shape
    kernel = d.number(1, min(3, height)), d.number(1, min(3, width))
    padding = (kernel[0] // 2, 0, 0, kernel[1] // 2) if padded and d.number(0, 1) else (0, 0, 0, 0)
    return ops.Window(kernel, (d.number(1, 2), d.number(1, 2)), padding)


def conv2d(d: Draw) -> Graph:
    x, outputs = _image(d), d.number(1, 3)
    window = _window(d, x)
    return d.graph(
        ops.Conv2D("none", window=window),
        [x, d.weights((outputs, *window.kernel, d.tensors[x].shape[3])), *d.bias(outputs)],
    )


def depthwise_conv2d(d: Draw) -> Graph:
    x, window = _image(d), ops.Window()
    window, channels = _window(d, x), d.tensors[x].shape[3]
    return d.graph(
        ops.DepthwiseConv2D("none", window=window), [x, d.weights((1, *window.kernel, channels)), *d.bias(channels)]
    )


def transpose_conv2d(d: Draw) -> Graph:
    x, outputs = _image(d), d.number(1, 3)
    w = d.weights((outputs, 2, 2, d.tensors[x].shape[3]))
    size = (2 * d.tensors[x].shape[1], 2 * d.tensors[x].shape[2])
    return d.graph(ops.TransposeConv2D("none", window=ops.Window((2, 2), (2, 2)), size=size), [x, w, *d.bias(outputs)])


def fully_connected(d: Draw) -> Graph:
    x, outputs = d.input(d.shape(max(1, d.rank))), d.number(1, 3)
    w = d.weights((outputs, d.tensors[x].shape[-1]))
    return d.graph(ops.FullyConnected("none", keep_dims=bool(d.number(0, 1))), [x, w, *d.bias(outputs)])


def matmul(d: Draw) -> Graph:
    *leading, rows, depth = d.shape(max(2, d.rank))
    shape = (*leading, depth, d.number(1, 3))
    a = d.input((*leading, rows, depth))
    b = d.tensor(shape, d.quant(), constant=True) if d.number(0, 1) else d.input(shape)
    return d.graph(ops.MatMul(), [a, b])


def _pool(kind: type[ops.AveragePool2D] | type[ops.MaxPool2D]) -> Callable[[Draw], Graph]:
    def make(d: Draw) -> Graph:
        x = _image(d)
        return d.graph(kind(_window(d, x)), [x], [d.quant_of(x)])

    return make


def real_average_pool_2d(d: Draw) -> Graph:
    x = _image(d)
    return d.graph(ops.RealAveragePool2D(_window(d, x, d.mode != "pow2")), [x])


def mean(d: Draw) -> Graph:
    """A mean, often of an image; its result has `d.rank` axes, or as many as the input."""
    rank = max(d.rank, 4) if d.number(0, 2) else d.rank
    x = d.input(d.shape(rank))
    axes = tuple(sorted(d.rng.permutation(rank)[: rank - d.rank].tolist()))
    return d.graph(ops.Mean(axes, not d.number(0, 2)), [x])


def product(d: Draw) -> Graph:
    x = d.input()
    axes = tuple(sorted(d.rng.permutation(d.rank)[: d.number(0, d.rank)].tolist()))
    return d.graph(ops.Product(axes, bool(d.number(0, 1))), [x])


def tile(d: Draw) -> Graph:
    x = d.input()
    return d.graph(ops.Tile(tuple(d.number(1, 2) for _ in range(d.rank))), [x], [d.quant_of(x)])


def softmax(d: Draw) -> Graph:
    return d.graph(ops.Softmax(), [d.input(d.shape(max(1, d.rank)))], [Quant((1 / 256,), (-128,))])


def _binary(op: ops.Op) -> Callable[[Draw], Graph]:
    def make(d: Draw) -> Graph:
        """The second operand: of the same shape, broadcast, with fewer axes, or a constant."""
        shape = d.shape()
        other = tuple(extent if d.number(0, 2) else 1 for extent in shape)[d.number(0, d.rank) * d.number(0, 1) :]
        kind = d.number(0, 2)
        a = d.input(shape)
        b = d.tensor(other, d.quant(0.5), constant=True) if kind == 0 else d.input(other if kind == 1 else shape)
        return d.graph(op, [a, b] if d.number(0, 1) else [b, a])

    return make


def integer_add(d: Draw) -> Graph:
    shape = d.shape()
    return d.graph(ops.IntegerAdd(), [d.input(shape), d.input(shape)], [None], "int32")


def requant_shift(d: Draw) -> Graph:
    shape = d.shape()
    added = [d.tensor(shape[-1:], None, "int64", constant=True) for _ in range(2)]
    return d.graph(ops.RequantShift(Shift(256)), [d.input(shape), *added])


def _unary(op: ops.Op, result: Quant | None = None, dtype: str = "int8") -> Callable[[Draw], Graph]:
    return lambda d: d.graph(op, [d.input()], [result or (None if dtype == "float32" else d.quant(0.5))], dtype)


def quantize(d: Draw) -> Graph:
    if d.number(0, 1):
        return d.graph(ops.Quantize(), [d.input()])
    name = d.tensor(d.shape(), None, "float32")
    d.inputs.append(name)
    return d.graph(ops.Quantize(), [name])


def reshape(d: Draw) -> Graph:
    x = d.input()
    shape = list(d.tensors[x].shape)
    for _ in range(d.number(0, 2)):
        shape.insert(d.number(0, len(shape)), 1)
    shape = shape if d.number(0, 2) else [int(np.prod(shape))]
    return d.graph(ops.Reshape(tuple(shape)), [x], [d.quant_of(x)])


def transpose(d: Draw) -> Graph:
    x = d.input()
    return d.graph(ops.Transpose(tuple(d.rng.permutation(d.rank).tolist())), [x], [d.quant_of(x)])


def upsample(d: Draw) -> Graph:
    x = _image(d)
    return d.graph(ops.Upsample((d.number(1, 2), d.number(1, 2))), [x], [d.quant_of(x)])


def resize_nearest(d: Draw) -> Graph:
    x = _image(d)
    places = [tuple(d.rng.integers(0, extent, 3).tolist()) for extent in d.tensors[x].shape[1:3]]
    return d.graph(ops.ResizeNearest(*places), [x], [d.quant_of(x)])


def cut(d: Draw) -> Graph:
    x = d.input()
    shape = d.tensors[x].shape
    begin = tuple(d.number(0, extent - 1) for extent in shape)
    counts = tuple(d.number(1, extent - first) for first, extent in zip(begin, shape, strict=True))
    left = tuple(count for count in counts if count > 1 or d.number(0, 1))
    return d.graph(ops.Slice(begin, counts, (1,) * len(begin), left), [x], [d.quant_of(x)])


def split(d: Draw) -> Graph:
    x = d.input(d.shape(max(1, d.rank)))
    axis = d.number(0, len(d.tensors[x].shape) - 1)
    count = d.tensors[x].shape[axis]
    return d.graph(ops.Split(axis, (1,) * count, bool(d.number(0, 1))), [x], [d.quant_of(x)] * count)


def pack(d: Draw) -> Graph:
    quant, shape = d.quant(), d.shape()
    inputs = [d.input(shape, quant) for _ in range(d.number(1, 3))]
    return d.graph(ops.Pack(d.number(0, d.rank)), inputs, [quant])


def pad(d: Draw) -> Graph:
    x = d.input()
    return d.graph(ops.Pad(tuple((d.number(0, 1), d.number(0, 1)) for _ in range(d.rank))), [x], [d.quant_of(x)])


def concat(d: Draw) -> Graph:
    quant, shape = d.quant(), list(d.shape(max(1, d.rank)))
    axis, inputs = d.number(0, len(shape) - 1), list[str]()
    for _ in range(d.number(1, 3)):
        shape[axis] = d.number(1, 3)
        constant = inputs and d.number(0, 2) == 0
        inputs.append(d.tensor(tuple(shape), quant, constant=True) if constant else d.input(tuple(shape), quant))
    return d.graph(ops.Concat(axis), inputs, [quant])


def lstm(d: Draw) -> Graph:
    batch, steps, depth = d.shape(3)
    cells, hidden, cell = d.number(1, 3), Quant((2.0**-7,), (0,)), Quant((2.0**-12,), (0,))
    x = d.input((batch, steps, depth))
    w = [d.weights((cells, size)) for size in [depth] * 4 + [cells] * 4]
    biases = [d.tensor((cells,), None, "int32", constant=True) for _ in range(4)]
    state = [d.input((batch, cells), hidden), d.input((batch, cells), cell, "int16")]
    return d.graph(ops.Lstm(hidden_scale=2.0**-7), [x, *w, *biases, *state], [hidden, hidden, cell])


def onnx(d: Draw) -> Graph:
    """Real numbers, as an example of what onnxruntime runs."""
    name = d.tensor(d.shape(), None, "float32")
    d.inputs.append(name)
    node = Node("n", ops.OnnxOp("Relu"), (name,), ("y",))
    tensors = {**d.tensors, "y": replace(d.tensors[name], name="y")}
    return Graph("onnx", tensors, (node,), (name,), ("y",), d.mode).validate()


#: A network for each kind of operator.
CASES: dict[str, Callable[[Draw], Graph]] = {
    "conv2d": conv2d,
    "depthwise_conv2d": depthwise_conv2d,
    "transpose_conv2d": transpose_conv2d,
    "fully_connected": fully_connected,
    "matmul": matmul,
    "average_pool_2d": _pool(ops.AveragePool2D),
    "max_pool_2d": _pool(ops.MaxPool2D),
    "real_average_pool_2d": real_average_pool_2d,
    "mean": mean,
    "product": product,
    "tile": tile,
    "softmax": softmax,
    "add": _binary(ops.Add()),
    "sub": _binary(ops.Sub()),
    "mul": _binary(ops.Mul()),
    "integer_add": integer_add,
    "requant_shift": requant_shift,
    "clamp": _unary(ops.Clamp("relu6")),
    "leaky_relu": _unary(ops.LeakyRelu(0.25)),
    "hard_swish": _unary(ops.HardSwish()),
    "logistic": _unary(ops.Logistic(), Quant((2.0**-8,), (-128,))),
    "tanh": _unary(ops.Tanh(), Quant((2.0**-7,), (0,))),
    "quantize": quantize,
    "dequantize": _unary(ops.Dequantize(), dtype="float32"),
    "reshape": reshape,
    "transpose": transpose,
    "upsample": upsample,
    "resize_nearest": resize_nearest,
    "slice": cut,
    "split": split,
    "pack": pack,
    "pad": pad,
    "concat": concat,
    "lstm": lstm,
    "onnx": onnx,
}
#: The kinds whose operands may have any number of axes.
ANY_RANK = (
    "fully_connected", "matmul", "mean", "product", "tile", "softmax", "add", "sub", "mul", "integer_add",
    "requant_shift", "clamp",
    "leaky_relu", "hard_swish", "logistic", "tanh", "quantize", "dequantize", "reshape", "transpose", "slice", "split",
    "pack", "pad", "concat", "onnx",
)  # fmt: skip


def between_products(graph: Graph) -> Graph:
    """The network with a product in front of its first input, and behind its first result if that has int8 codes."""
    first, result = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    tensors, nodes, inputs, outputs = dict(graph.tensors), list(graph.nodes), list(graph.inputs), list(graph.outputs)
    random = np.random.default_rng(first.size)

    def product(name: str, x: Tensor, quant: Quant | None) -> Tensor:
        w = Tensor(f"{name}_w", (x.size, x.size), "int8", Quant((2.0**-6,), (0,)))
        w = replace(w, data=random.integers(-128, 128, w.shape).astype(np.int8))
        made = Tensor(f"{name}_y", (1, x.size), "int8", quant)
        tensors.update({w.name: w, made.name: made})
        return made

    if first.dtype == "int8":
        x = Tensor("before_x", (1, first.size), "int8", Quant((0.25,), (0,)))
        made = product("before", x, first.quant)
        tensors[x.name] = x
        inputs[0] = x.name
        ahead = Node("before", ops.FullyConnected("none"), (x.name, "before_w"), (made.name,))
        nodes = [ahead, Node("shaped", ops.Reshape(first.shape), (made.name,), (first.name,)), *nodes]
    if result.dtype == "int8" and result.quant:
        flat = replace(result, name="flat", shape=(1, result.size))
        tensors[flat.name] = flat
        made = product("after", flat, Quant((0.5,), (0,)))
        nodes.append(Node("flattened", ops.Reshape(flat.shape), (result.name,), (flat.name,)))
        nodes.append(Node("after", ops.FullyConnected("none"), (flat.name, "after_w"), (made.name,)))
        outputs = [*outputs, made.name]
    return replace(graph, tensors=tensors, nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs)).validate()
