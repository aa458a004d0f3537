"""Random files of one operator each: shapes, scales, zero points and options are drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.model.tflite_writer import Quantised, Writer
from tilewright.array import Array
from tilewright.graph.ir import Graph


def _one(quant: Quantised) -> float:
    assert isinstance(quant.scale, float)
    return quant.scale


Ends = tuple[list[int], list[int]]
INTEGERS = np.int64
INT32_BIAS = ("int32", "int64")
SAMPLES = 3


class Case:
    """A file in the making, with random draws."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.rng, self.dtype, self.w, self.bias_axis = np.random.default_rng(seed), dtype, Writer(), 0
        self.bias_kind = ""

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self) -> bool:
        return bool(self.rng.integers(2))

    def quant(self, around: float = 0.0) -> Quantised:
        """A scale, near `around` if given, and a zero point: 0 for int16."""
        spread = self.rng.uniform(-1, 1)
        scale = around * np.exp(spread) if around else np.exp(3 * spread - 3)
        return Quantised(float(np.float32(scale)), 0 if self.dtype == "int16" else self.number(-128, 127))

    def activation(self) -> int:
        return self.number(0, 3)

    def tensor(self, shape: Sequence[int], quant: Quantised) -> int:
        return self.w.tensor(shape, self.dtype, quant)

    def shape(self, rank: int, most: int = 6) -> tuple[int, ...]:
        return tuple(self.number(1, most) for _ in range(rank))

    def weights(self, shape: tuple[int, ...], axis: int, channels: int) -> tuple[int, Array]:
        """Weights with one scale per channel; the scales."""
        scales = np.exp(self.rng.uniform(-4, -1, channels)).astype(np.float32)
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        return self.w.constant(data, Quantised(scales.tolist(), [0] * channels, axis)), scales

    def bias(self, channels: int, scales: Array, kinds: Sequence[str], always: bool = False) -> list[int]:
        """A bias, of int32 for int8 codes, else of one of `kinds`; it may be absent, unless `always`."""
        if not always and not self.bias_kind and self.number(0, 3) == 0:
            return []
        kind = self.bias_kind or ("int32" if self.dtype == "int8" else kinds[self.number(0, len(kinds) - 1)])
        values = self.rng.integers(-3000, 3000, channels).astype(kind)
        # The axis of a vector means nothing: files have any number there.
        return [self.w.constant(values, Quantised(scales.tolist(), [0] * len(scales), self.bias_axis))]

    def sums(self, bias: Sequence[int]) -> dict[str, Any]:
        """The option that a 32-bit bias of int16 products needs."""
        narrow = self.dtype == "int16" and bias and self.w.graphs[0].tensors[bias[0]].type == 2
        return {"quantizedBiasType": 2} if narrow else {}

    def product(self, x: Quantised, scales: Array, depth: int) -> Quantised:
        """A quantisation of sums of `depth` products that saturates some of them."""
        levels = 64 if self.dtype == "int8" else 64 * 256
        reach = 127 if self.dtype == "int8" else 20000
        return self.quant(_one(x) * float(scales.mean()) * 70 * reach * np.sqrt(depth) / levels)


def _image(c: Case, least: int = 3) -> tuple[int, int, int, int]:
    return 1, c.number(least, 8), c.number(least, 8), c.number(1, 5)


def _extent(size: int, kernel: int, stride: int, same: bool, dilation: int = 1) -> int:
    return -(-size // stride) if same else (size - (kernel - 1) * dilation - 1) // stride + 1


def conv(c: Case, depthwise: bool = False) -> Ends:
    shape, same = _image(c), c.chance()
    kernel, stride = (c.number(1, 3), c.number(1, 3)), (c.number(1, 2), c.number(1, 2))
    dilation = (2, 1) if shape[1] >= 5 and stride == (1, 1) and c.number(0, 3) == 0 else (1, 1)
    multiplier = c.number(1, 3)
    channels = shape[3] * multiplier if depthwise else c.number(1, 6)
    x, of_x = c.quant(), None
    of_x = c.tensor(shape, x)
    form = (1, *kernel, channels) if depthwise else (channels, *kernel, shape[3])
    w, scales = c.weights(form, 3 if depthwise else 0, channels)
    bias = c.bias(channels, scales, ("int64",) if depthwise else INT32_BIAS, always=True)
    rows, columns = (_extent(shape[1 + i], kernel[i], stride[i], same, dilation[i]) for i in (0, 1))
    y = c.tensor((1, rows, columns, channels), c.product(x, scales, prod(form) // channels))
    common: dict[str, Any] = {"padding": 0 if same else 1, "strideH": stride[0], "strideW": stride[1]}
    common |= {} if depthwise else c.sums(bias)
    common |= {
        "dilationHFactor": dilation[0],
        "dilationWFactor": dilation[1],
        "fusedActivationFunction": c.activation(),
    }
    if depthwise:
        c.w.op(
            "DEPTHWISE_CONV_2D", [of_x, w, *bias], [y], "DepthwiseConv2DOptions", depthMultiplier=multiplier, **common
        )
    else:
        c.w.op("CONV_2D", [of_x, w, *bias], [y], "Conv2DOptions", **common)
    return [of_x], [y]


def depthwise(c: Case) -> Ends:
    return conv(c, True)


def transpose_conv(c: Case) -> Ends:
    shape, same = _image(c, 1), c.chance()
    kernel, stride, channels = (c.number(1, 4), c.number(1, 4)), (c.number(1, 3), c.number(1, 3)), c.number(1, 4)
    same = same and all(k >= s for k, s in zip(kernel, stride, strict=True))  # else XNNPACK does not take it
    size = tuple(shape[1 + i] * stride[i] + (0 if same else max(0, kernel[i] - stride[i])) for i in (0, 1))
    x = c.quant()
    source = c.tensor(shape, x)
    w, scales = c.weights((channels, *kernel, shape[3]), 0, channels)
    bias = c.bias(channels, scales, ("int64",))
    y = c.tensor((1, *size, channels), c.product(x, scales, prod(kernel) * shape[3]))
    extent = c.w.constant(np.array((1, *size, channels), np.int32))
    options: dict[str, Any] = {"padding": 0 if same else 1, "strideH": stride[0], "strideW": stride[1]}
    c.w.op("TRANSPOSE_CONV", [extent, w, source, *bias], [y], "TransposeConvOptions", **options, **c.sums(bias))
    return [source], [y]


def fully_connected(c: Case) -> Ends:
    rows, depth, channels = c.number(1, 3), c.number(1, 40), c.number(1, 8)
    x = c.quant()
    source = c.tensor((rows, depth), x)
    scale = np.exp(c.rng.uniform(-4, -1, 1)).astype(np.float32)
    w = c.w.constant(c.rng.integers(-127, 128, (channels, depth)).astype(np.int8), Quantised(float(scale[0])))
    bias = c.bias(channels, scale * np.float32(_one(x)), ("int64",))
    y = c.tensor((rows, channels), c.product(x, scale, depth))
    options: dict[str, Any] = {"fusedActivationFunction": c.activation(), **c.sums(bias)}
    c.w.op("FULLY_CONNECTED", [source, w, *(bias or [-1])], [y], "FullyConnectedOptions", **options)
    return [source], [y]


def _binary(c: Case, code: str, options: str, product: bool = False, **more: Any) -> Ends:
    shape = c.shape(c.number(1, 4))
    other = tuple(extent if c.number(0, 3) else 1 for extent in shape)
    a, b = c.quant(), c.quant()
    b = Quantised(_one(a) * float(np.exp(c.rng.uniform(-3, 3))), b.zero)
    reach = 100 if c.dtype == "int8" else 20000
    around = _one(a) * _one(b) * reach if product else max(_one(a), _one(b))
    inputs = [c.tensor(shape, a), c.tensor(other, b)]
    y = c.tensor(tuple(np.broadcast_shapes(shape, other)), c.quant(around))
    c.w.op(code, inputs, [y], options, fusedActivationFunction=c.activation(), **more)
    return inputs, [y]


def add(c: Case) -> Ends:
    return _binary(c, "ADD", "AddOptions", potScaleInt16=False)


def sub(c: Case) -> Ends:
    return _binary(c, "SUB", "SubOptions", potScaleInt16=False)


def mul(c: Case) -> Ends:
    return _binary(c, "MUL", "MulOptions", product=True)


def _unary(c: Case, code: str, options: str, result: Quantised | None, **values: Any) -> Ends:
    shape, x = c.shape(c.number(1, 4), 9), c.quant()
    source, y = c.tensor(shape, x), c.tensor(shape, result or c.quant(_one(x)))
    c.w.op(code, [source], [y], options, **values)
    return [source], [y]


def leaky_relu(c: Case) -> Ends:
    return _unary(c, "LEAKY_RELU", "LeakyReluOptions", None, alpha=float(c.rng.uniform(0, 1.2)))


def hard_swish(c: Case) -> Ends:
    return _unary(c, "HARD_SWISH", "HardSwishOptions", None)


def logistic(c: Case) -> Ends:
    return _sigmoidal(c, "LOGISTIC", Quantised(1 / 256, -128))


def tanh(c: Case) -> Ends:
    return _sigmoidal(c, "TANH", Quantised(1 / 128, 0))


def _sigmoidal(c: Case, code: str, result: Quantised) -> Ends:
    shape, x = c.shape(c.number(1, 4), 9), c.quant()
    if c.dtype == "int16":  # also powers of two, which need no multiplier
        scale = 2.0 ** -c.number(10, 13) if c.chance() else _one(x) / 200
        x, result = Quantised(float(np.float32(scale))), Quantised(2.0**-15)
    source, y = c.tensor(shape, x), c.tensor(shape, result)
    c.w.op(code, [source], [y])
    return [source], [y]


def relu(c: Case) -> Ends:
    return _unary(c, ("RELU", "RELU6")[c.number(0, 1)], "", None)


def mean(c: Case, code: str = "MEAN") -> Ends:
    shape, x, keep = _image(c, 1), c.quant(), c.chance()
    axes = (1, 2) if c.chance() else (3,)
    result = tuple(1 if i in axes else e for i, e in enumerate(shape) if keep or i not in axes)
    around = _one(x)
    if code == "REDUCE_PROD":  # of a scale with which the product of usual codes does not overflow
        usual = 40 if c.dtype == "int8" else 9000
        x = Quantised(float(np.float32(5 ** (1 / prod(shape[i] for i in axes)) / usual)), x.zero)
        around = 5 / usual
    source, y = c.tensor(shape, x), c.tensor(result, c.quant(around))
    c.w.op(code, [source, c.w.constant(np.array(axes, np.int32))], [y], "ReducerOptions", keepDims=keep)
    return [source], [y]


def reduce_prod(c: Case) -> Ends:
    return mean(c, "REDUCE_PROD")


def tile(c: Case) -> Ends:
    shape = c.shape(c.number(1, 4), 4)
    x, counts = c.tensor(shape, c.quant()), [c.number(1, 3) for _ in shape]
    kind = ("int32", "int64")[c.number(0, 1)]
    form = [extent * count for extent, count in zip(shape, counts, strict=True)]
    return [x], _moved(c, "TILE", [x, c.w.constant(np.array(counts, kind))], [form])


def _pool(c: Case, code: str) -> Ends:
    shape, x, same = _image(c), c.quant(), c.chance()
    kernel, stride = (c.number(1, 3), c.number(1, 3)), (c.number(1, 3), c.number(1, 3))
    size = [_extent(shape[1 + i], kernel[i], stride[i], same) for i in (0, 1)]
    source, y = c.tensor(shape, x), c.tensor((1, *size, shape[3]), x)
    options: dict[str, Any] = {"padding": 0 if same else 1, "strideH": stride[0], "strideW": stride[1]}
    options |= {"filterHeight": kernel[0], "filterWidth": kernel[1], "fusedActivationFunction": c.activation()}
    c.w.op(code, [source], [y], "Pool2DOptions", **options)
    return [source], [y]


def average_pool(c: Case) -> Ends:
    return _pool(c, "AVERAGE_POOL_2D")


def max_pool(c: Case) -> Ends:
    return _pool(c, "MAX_POOL_2D")


def requantise(c: Case) -> Ends:
    """QUANTIZE from one type of codes to another."""
    shape, x = c.shape(c.number(1, 4), 9), c.quant()
    kinds = ("int8", "uint8", "int16") if c.dtype == "int8" else ("int8", "int16")
    kind = kinds[c.number(0, len(kinds) - 1)]
    wide = {"int8": 1.0, "uint8": 1.0, "int16": 1 / 256}
    zero = {"int8": c.number(-128, 127), "uint8": c.number(0, 255), "int16": 0}[kind]
    scale = _one(x) * wide[kind] / wide[c.dtype] * float(np.exp(c.rng.uniform(-1, 1)))
    source = c.tensor(shape, x)
    y = c.w.tensor(shape, kind, Quantised(float(np.float32(scale)), zero))
    c.w.op("QUANTIZE", [source], [y], "QuantizeOptions")
    return [source], [y]


def softmax(c: Case) -> Ends:
    shape, x = c.shape(c.number(1, 3), 9), c.quant()
    result = Quantised(1 / 256, -128)
    if c.dtype == "int16":
        x, result = Quantised(float(np.float32(_one(x) / 100))), Quantised(2.0**-15)
    source, y = c.tensor(shape, x), c.tensor(shape, result)
    c.w.op("SOFTMAX", [source], [y], "SoftmaxOptions", beta=1.0)
    return [source], [y]


def _moved(
    c: Case, code: str, inputs: Sequence[int], shapes: Sequence[Sequence[int]], options: str = "", **v: Any
) -> list[int]:
    """Add an operator whose results have the quantisation of its first tensor."""
    first = next(t for t in c.w.graphs[0].tensors if t.quantization is not None)
    same = Quantised(float(first.quantization.scale[0]), int(first.quantization.zeroPoint[0]))
    outputs = [c.tensor(shape, same) for shape in shapes]
    c.w.op(code, inputs, outputs, options, **v)
    return outputs


def _ints(c: Case, *values: int) -> int:
    return c.w.constant(np.array(values, np.int32))


def transpose(c: Case) -> Ends:
    shape = c.shape(c.number(1, 4))
    order = c.rng.permutation(len(shape)).tolist()
    x = c.tensor(shape, c.quant())
    return [x], _moved(c, "TRANSPOSE", [x, _ints(c, *order)], [[shape[i] for i in order]], "TransposeOptions")


def strided_slice(c: Case) -> Ends:
    shape = c.shape(c.number(1, 4))
    x = c.tensor(shape, c.quant())
    masks = {name: c.number(0, (1 << len(shape)) - 1) for name in ("begin", "end")}
    begin: list[int] = []
    end: list[int] = []
    strides: list[int] = []
    shrink = 0
    for i, extent in enumerate(shape):
        a, b, step = c.number(-extent, extent - 1), c.number(-extent - 1, extent + 1), (-2, -1, 1, 2)[c.number(0, 3)]
        if c.number(0, 3) == 0:  # one element, without its axis
            shrink |= 1 << i
            masks = {name: mask & ~(1 << i) for name, mask in masks.items()}
            b, step = a + 1 if a != -1 else extent, 1
        first, last = (None if masks[name] >> i & 1 else at for name, at in (("begin", a), ("end", b)))
        if not range(*slice(first, last, step).indices(extent)):
            a, b, step = 0, extent, 1
        begin, end, strides = [*begin, a], [*end, b], [*strides, step]
    form = []
    for i, extent in enumerate(shape):
        places = slice(
            None if masks["begin"] >> i & 1 else begin[i], None if masks["end"] >> i & 1 else end[i], strides[i]
        )
        if not shrink >> i & 1:
            form.append(len(range(*places.indices(extent))))
    options: dict[str, Any] = {"beginMask": masks["begin"], "endMask": masks["end"], "shrinkAxisMask": shrink}
    parts = [_ints(c, *values) for values in (begin, end, strides)]
    return [x], _moved(c, "STRIDED_SLICE", [x, *parts], [form], "StridedSliceOptions", **options)


def plain_slice(c: Case) -> Ends:
    shape = c.shape(c.number(1, 4))
    begin = [c.number(0, extent - 1) for extent in shape]
    size = [c.number(1, extent - first) for first, extent in zip(begin, shape, strict=True)]
    x = c.tensor(shape, c.quant())
    return [x], _moved(c, "SLICE", [x, _ints(c, *begin), _ints(c, *size)], [size], "SliceOptions")


def split(c: Case) -> Ends:
    shape, axis, parts = list(c.shape(c.number(1, 4))), 0, c.number(1, 4)
    axis = c.number(0, len(shape) - 1)
    part = [*shape[:axis], shape[axis], *shape[axis + 1 :]]
    shape[axis] *= parts
    place = c.w.constant(np.array(axis, np.int32))
    x = c.tensor(shape, c.quant())
    return [x], _moved(c, "SPLIT", [place, x], [part] * parts, "SplitOptions", numSplits=parts)


def split_sizes(c: Case) -> Ends:
    shape, sizes = list(c.shape(c.number(1, 4))), [c.number(1, 4) for _ in range(c.number(1, 4))]
    axis = c.number(0, len(shape) - 1)
    shape[axis] = sum(sizes)
    x = c.tensor(shape, c.quant())
    parts = [[*shape[:axis], size, *shape[axis + 1 :]] for size in sizes]
    inputs = [x, _ints(c, *sizes), c.w.constant(np.array(axis, np.int32))]
    return [x], _moved(c, "SPLIT_V", inputs, parts, "SplitVOptions", numSplits=len(sizes))


def pack(c: Case) -> Ends:
    shape, quant = list(c.shape(c.number(1, 3))), c.quant()
    inputs, axis = [c.tensor(shape, quant) for _ in range(c.number(1, 4))], c.number(0, len(shape))
    form = [*shape[:axis], len(inputs), *shape[axis:]]
    return inputs, _moved(c, "PACK", inputs, [form], "PackOptions", axis=axis, valuesCount=len(inputs))


def unpack(c: Case) -> Ends:
    shape = c.shape(c.number(2, 4))
    axis = c.number(0, len(shape) - 1)
    x, part = c.tensor(shape, c.quant()), [*shape[:axis], *shape[axis + 1 :]]
    return [x], _moved(c, "UNPACK", [x], [part] * shape[axis], "UnpackOptions", axis=axis, num=shape[axis])


def expand_dims(c: Case) -> Ends:
    shape = c.shape(c.number(1, 3))
    axis = c.number(0, len(shape))
    x = c.tensor(shape, c.quant())
    form = [*shape[:axis], 1, *shape[axis:]]
    return [x], _moved(c, "EXPAND_DIMS", [x, _ints(c, axis)], [form], "ExpandDimsOptions")


def concatenation(c: Case) -> Ends:
    shape, quant = list(c.shape(c.number(1, 4))), c.quant()
    axis = c.number(0, len(shape) - 1)
    sizes = [c.number(1, 4) for _ in range(c.number(1, 4))]
    inputs = [c.tensor([*shape[:axis], size, *shape[axis + 1 :]], quant) for size in sizes]
    form = [*shape[:axis], sum(sizes), *shape[axis + 1 :]]
    return inputs, _moved(c, "CONCATENATION", inputs, [form], "ConcatenationOptions", axis=axis)


def pad(c: Case) -> Ends:
    shape = c.shape(c.number(1, 4))
    pairs = [(c.number(0, 2), c.number(0, 2)) for _ in shape]
    x = c.tensor(shape, c.quant())
    amounts = c.w.constant(np.array(pairs, np.int32))
    form = [extent + sum(pair) for extent, pair in zip(shape, pairs, strict=True)]
    return [x], _moved(c, "PAD", [x, amounts], [form], "PadOptions")


def resize(c: Case) -> Ends:
    shape, size = _image(c, 1), (c.number(1, 12), c.number(1, 12))
    x, corners = c.tensor(shape, c.quant()), c.chance()
    options: dict[str, Any] = {"alignCorners": corners, "halfPixelCenters": not corners and c.chance()}
    form = [1, *size, shape[3]]
    inputs = [x, _ints(c, *size)]
    return [x], _moved(c, "RESIZE_NEAREST_NEIGHBOR", inputs, [form], "ResizeNearestNeighborOptions", **options)


def lstm(c: Case) -> Ends:
    """An LSTM with scales as TensorFlow's converter chooses them."""
    time_major = c.chance()
    batch, steps, depth, cells = c.number(1, 2), c.number(1, 5), c.number(1, 9), c.number(1, 9)
    x, hidden, power = (
        c.quant(0.02),
        Quantised(float(np.float32(c.rng.uniform(0.004, 0.01))), c.number(-20, 20)),
        -c.number(9, 14),
    )
    shape = (steps, batch, depth) if time_major else (batch, steps, depth)
    source = c.tensor(shape, x)
    weights = []
    for size in [depth] * 4 + [cells] * 4:
        data = c.rng.integers(-127, 128, (cells, size)).astype(np.int8)
        weights.append(c.w.constant(data, Quantised(float(np.float32(c.rng.uniform(0.002, 0.03))))))
    biases = [c.w.constant(c.rng.integers(-9000, 9000, cells).astype(np.int32), Quantised(1e-4)) for _ in range(4)]
    state = c.w.tensor((batch, cells), "int8", hidden, variable=True)
    memory = c.w.tensor((batch, cells), "int16", Quantised(2.0**power), variable=True)
    inside = [c.w.tensor((0,), "float32") for _ in range(4)] + [c.w.tensor((0,), "int8", hidden)]
    y = c.w.tensor((*shape[:2], cells), "int8", hidden)
    inputs = [source, *weights, -1, -1, -1, *biases, -1, -1, state, memory, -1, -1, -1, -1]
    clip = float(c.rng.uniform(0.1, 2)) if c.chance() else 0.0
    options: dict[str, Any] = {"fusedActivationFunction": 4, "timeMajor": time_major, "cellClip": clip}
    c.w.op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        inputs,
        [y],
        "UnidirectionalSequenceLSTMOptions",
        intermediates=inside,
        **options,
    )
    return [source], [y]


class Kind(NamedTuple):
    make: Callable[[Case], Ends]
    dtypes: tuple[str, ...] = ("int8", "int16")
    #: Types for which LiteRT's default kernels are not claimed (docs/arithmetic.md).
    unclaimed: tuple[str, ...] = ()
    #: Whether TFLite Micro has the operator.
    micro: bool = True


KINDS = {
    kind.make.__name__: kind
    for kind in (
        Kind(conv, unclaimed=("int16",)), Kind(depthwise), Kind(transpose_conv), Kind(mul),
        Kind(fully_connected, unclaimed=("int16",)), Kind(add, unclaimed=("int16",)), Kind(sub, unclaimed=("int16",)),
        Kind(leaky_relu), Kind(hard_swish, ("int8",)), Kind(logistic), Kind(tanh), Kind(relu), Kind(mean),
        Kind(average_pool), Kind(max_pool), Kind(requantise, unclaimed=("int8",)), Kind(softmax),
        Kind(transpose),
        Kind(strided_slice), Kind(plain_slice), Kind(split), Kind(split_sizes), Kind(pack), Kind(unpack),
        Kind(reduce_prod, micro=False), Kind(tile, micro=False),
        Kind(expand_dims), Kind(concatenation), Kind(pad), Kind(resize), Kind(lstm, ("int8",)),
    )
}  # fmt: skip
EACH = [(name, dtype) for name, kind in KINDS.items() for dtype in kind.dtypes]


def written(name: str, dtype: str, seed: int, path: Path, bias_axis: int = 0, bias_kind: str = "") -> Path:
    """The file of an operator. `bias_axis` is the axis that biases say their scales have, `bias_kind` their type."""
    case = Case(seed, dtype)
    case.bias_axis, case.bias_kind = bias_axis, bias_kind
    inputs, outputs = KINDS[name].make(case)
    return case.w.written(path, inputs, outputs)


def codes(graph: Graph, seed: int) -> dict[str, Array]:
    """Random codes of every input, extremes among them."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in graph.inputs:
        tensor, info = graph.tensors[name], np.iinfo(graph.tensors[name].dtype)
        some = rng.integers(info.min, info.max + 1, (SAMPLES, *tensor.shape))
        ends = rng.choice([info.min, info.max], some.shape)
        made[name] = np.where(rng.random(some.shape) < 0.05, ends, some).astype(tensor.dtype)
    return made
