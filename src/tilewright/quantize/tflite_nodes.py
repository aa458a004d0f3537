"""Converts float .tflite models to ONNX, which the schemes quantise: the ONNX nodes of each operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import ModelProto

from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph import ops
from tilewright.graph.ops import Op
from tilewright.graph.rounding import Activation
from tilewright.model.tflite import TRANSLATE
from tilewright.model.tflite_file import Call
from tilewright.quantize.tflite_float import FIRST, LAST, Conversion

#: Operators with the same meaning in ONNX. All are element-wise.
ALIKE = {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "Max", "MINIMUM": "Min", "POW": "Pow",
    "RELU": "Relu", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish", "ABS": "Abs", "NEG": "Neg",
    "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "FLOOR": "Floor", "CEIL": "Ceil", "SIN": "Sin", "COS": "Cos",
    "ELU": "Elu", "LEAKY_RELU": "LeakyRelu", "PRELU": "PRelu",
}  # fmt: skip
BOUNDS: dict[Activation, tuple[float, float]] = {"relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}
CLAMPS: dict[str, Activation] = {"RELU6": "relu6", "RELU_N1_TO_1": "relu_n1_to_1"}
BLOCKS = {"DEPTH_TO_SPACE": "DepthToSpace", "SPACE_TO_DEPTH": "SpaceToDepth"}
INT64_MIN = -(1 << 63)
#: Most steps of an LSTM: each becomes some 15 nodes.
MAX_STEPS = 256


def converted(path: Path) -> ModelProto:
    """Return the ONNX model of a float .tflite file.

    Raises ModelError if the file is damaged, and UnsupportedError if it is quantised already, or if an operator or
    type is not supported.
    """
    try:
        net = Conversion(path)
        for index, call in enumerate(net.calls):
            convert(net, net.current(call), index)
        return net.model()
    except (ModelError, UnsupportedError) as error:
        raise error.within(path) from None


def convert(net: Conversion, call: Call, index: int) -> None:
    """Add the nodes of one operator. Raises UnsupportedError if there are none for it."""
    if not call.outputs or call.outputs[0] is None or not call.inputs:
        raise UnsupportedError(f"op {index}", f"{call.code} has no inputs or no outputs")
    if net.fold(call):
        return
    if call.code in ALIKE or call.code in CLAMPS:
        _elementwise(net, call)
    elif call.code == "SQUARE":
        net.keep(call.output, net.one("Mul", [net.value(call.tensor(0))] * 2, call.output.name), False)
    elif call.code == "RSQRT":
        root = net.one("Sqrt", [net.value(call.tensor(0))], call.output.name)
        net.keep(call.output, net.one("Reciprocal", [root], call.output.name), False)
    elif call.code in BLOCKS:
        block = int(call.option("BlockSize", 1))
        value = net.one(BLOCKS[call.code], [net.channels_first(call.tensor(0))], call.output.name, blocksize=block)
        net.keep(call.output, value, True)
    elif call.code == "RESIZE_BILINEAR":
        _resize_bilinear(net, call)
    elif call.code == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        _lstm(net, call)
    elif call.code in TRANSLATE and call.code not in ("QUANTIZE", "DEQUANTIZE"):
        op = TRANSLATE[call.code].translate(call)
        emit = next((rule for kind, rule in RULES.items() if isinstance(op, kind)), None)
        if emit is None:
            raise UnsupportedError(call.where, f"{call.code} is not supported in float models")
        emit(net, call, op)
    else:
        known = ", ".join(
            sorted({*ALIKE, *CLAMPS, *BLOCKS, *TRANSLATE, "SQUARE", "RSQRT", "RESIZE_BILINEAR"} - {"QUANTIZE"})
        )
        how = "it is quantised already; run it as it is" if call.code == "QUANTIZE" else f"supported are {known}"
        raise UnsupportedError(f"op {index}", f"{call.code} is not supported in float models", how)


def _finish(net: Conversion, call: Call, value: str, first: bool, activation: Activation = "none") -> None:
    """Keep a result, after its fused activation."""
    if activation == "relu":
        value = net.one("Relu", [value], call.output.name)
    elif activation != "none":
        low, high = (net.constant("bound", np.array(bound, np.float32)) for bound in BOUNDS[activation])
        value = net.one("Clip", [value, low, high], call.output.name)
    net.keep(call.output, value, first)


def _elementwise(net: Conversion, call: Call) -> None:
    tensors = [tensor for tensor in call.inputs if tensor is not None]
    first = net.prefers_first(tensors, len(call.output.shape))
    values = [net.channels_first(tensor) if first else net.value(tensor) for tensor in tensors]
    if call.code in CLAMPS:
        _finish(net, call, values[0], first, CLAMPS[call.code])
        return
    more = {"alpha": float(call.option("Alpha", 0.0))} if call.code == "LEAKY_RELU" else {}
    _finish(net, call, net.one(ALIKE[call.code], values, call.output.name, **more), first, call.activation)


def _weights(net: Conversion, call: Call, order: tuple[int, ...]) -> str:
    return net.constant(f"{call.output.name}:w", net.real(call.tensor(1)).transpose(order))


def _bias(net: Conversion, call: Call, index: int = 2) -> list[str]:
    bias = call.inputs[index] if index < len(call.inputs) else None
    return [] if bias is None else [net.constant(f"{call.output.name}:b", net.real(bias).reshape(-1))]


def _pads(window: ops.Window) -> list[int]:
    top, bottom, left, right = window.padding
    return [top, left, bottom, right]


def _conv(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Conv2D | ops.DepthwiseConv2D)
    shape, channels = call.tensor(1).shape, call.tensor(0).shape[3]
    deep = isinstance(op, ops.DepthwiseConv2D)
    w = _weights(net, call, (3, 0, 1, 2) if deep else FIRST)
    settings = {"kernel_shape": op.window.kernel, "strides": op.window.stride, "dilations": op.window.dilation}
    group = channels if deep else channels // shape[3]
    inputs = [net.channels_first(call.tensor(0)), w, *_bias(net, call)]
    value = net.one("Conv", inputs, call.output.name, group=group, pads=_pads(op.window), **settings)
    _finish(net, call, value, True, op.activation)


def _transpose_conv(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.TransposeConv2D)
    (_, height, width, _), (kh, kw), (down, right) = call.tensor(2).shape, op.window.kernel, op.window.stride
    (top, _, left, _), (rows, columns) = op.window.padding, op.size
    ends = [(height - 1) * down + kh - rows - top, (width - 1) * right + kw - columns - left]
    w = _weights(net, call, (3, 0, 1, 2))
    settings = {"kernel_shape": (kh, kw), "strides": (down, right), "output_padding": [max(0, -end) for end in ends]}
    pads = [top, left, max(0, ends[0]), max(0, ends[1])]
    inputs = [net.channels_first(call.tensor(2)), w, *_bias(net, call, 3)]
    _finish(net, call, net.one("ConvTranspose", inputs, call.output.name, pads=pads, **settings), True, op.activation)


def _fully_connected(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.FullyConnected)
    x, depth, name = call.tensor(0), call.tensor(1).shape[-1], call.output.name
    value = net.value(x)
    if len(x.shape) != 2 or x.shape[1] != depth:
        value = net.one("Reshape", [value, net.constant("shape", np.array([-1, depth]))], f"{name}:rows")
    w = net.constant(f"{name}:w", net.real(call.tensor(1)))
    value = net.one("Gemm", [value, w, *_bias(net, call)], name, transB=1)
    if len(call.output.shape) != 2:
        value = net.one("Reshape", [value, net.constant("shape", np.array(call.output.shape))], name)
    _finish(net, call, value, False, op.activation)


def _pool(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.AveragePool2D | ops.MaxPool2D)
    kind = "MaxPool" if isinstance(op, ops.MaxPool2D) else "AveragePool"
    settings = {"kernel_shape": op.window.kernel, "strides": op.window.stride, "pads": _pads(op.window)}
    value = net.one(kind, [net.channels_first(call.tensor(0))], call.output.name, **settings)
    _finish(net, call, value, True, op.activation)


def _mean(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Mean)
    x, name = call.tensor(0), call.output.name
    if len(x.shape) == 4 and op.axes == (1, 2):
        value = net.one("GlobalAveragePool", [net.channels_first(x)], name)
        if not op.keep_dims:
            value = net.one("Flatten", [value], name)
        net.keep(call.output, value, op.keep_dims)
        return
    keep = int(op.keep_dims)
    net.keep(call.output, net.one("ReduceMean", [net.value(x)], name, axes=op.axes, keepdims=keep), False)


def _product(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Product)
    settings = {"axes": op.axes, "keepdims": int(op.keep_dims)}
    net.keep(call.output, net.one("ReduceProd", [net.value(call.tensor(0))], call.output.name, **settings), False)


def _tile(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Tile)
    counts = net.constant("repeats", np.array(op.repeats, np.int64))
    net.keep(call.output, net.one("Tile", [net.value(call.tensor(0)), counts], call.output.name), False)


def _softmax(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Softmax)
    value = net.value(call.tensor(0))
    if op.beta != 1.0:
        value = net.one("Mul", [value, net.constant("beta", np.array(op.beta, np.float32))], call.output.name)
    net.keep(call.output, net.one("Softmax", [value], call.output.name, axis=-1), False)


def _reshape(net: Conversion, call: Call, op: Op) -> None:
    x = call.tensor(0)
    flat = len(x.shape) == 4 and x.shape[1:3] == (1, 1)  # the order of axes makes no difference
    value = net.channels_first(x) if flat and x.name in net.first else net.value(x)
    shape = net.constant("shape", np.array(call.output.shape, np.int64))
    net.keep(call.output, net.one("Reshape", [value, shape], call.output.name), False)


def _transpose(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Transpose)
    if op.permutation == LAST:  # from channels first
        net.keep(call.output, net.value(call.tensor(0)), True)
    elif op.permutation == FIRST:
        net.keep(call.output, net.channels_first(call.tensor(0)), False)
    else:
        value = net.one("Transpose", [net.value(call.tensor(0))], call.output.name, perm=op.permutation)
        net.keep(call.output, value, False)


def _slice(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Slice)
    ends = [first + count * step for first, count, step in zip(op.begin, op.counts, op.steps, strict=True)]
    ends = [INT64_MIN if end < 0 else end for end in ends]
    lists = (op.begin, ends, range(len(ends)), op.steps)
    places = [net.constant("places", np.array(list(values), np.int64)) for values in lists]
    value = net.one("Slice", [net.value(call.tensor(0)), *places], call.output.name)
    if op.shape != op.counts:
        value = net.one("Reshape", [value, net.constant("shape", np.array(op.shape, np.int64))], call.output.name)
    net.keep(call.output, value, False)


def _split(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Split)
    sizes = net.constant("sizes", np.array(op.sizes, np.int64))
    source = net.value(call.tensor(1 if call.code == "SPLIT" else 0))
    parts = net.add("Split", [source, sizes], call.output.name, len(op.sizes), axis=op.axis)
    for tensor, part in zip(call.outputs, parts, strict=True):
        assert tensor is not None
        axis = net.constant("axis", np.array([op.axis], np.int64))
        net.keep(tensor, part if op.keep_dims else net.one("Squeeze", [part, axis], tensor.name), False)


def _pack(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Pack)
    axis = net.constant("axis", np.array([op.axis], np.int64))
    parts = [net.one("Unsqueeze", [net.value(tensor), axis], tensor.name) for tensor in call.inputs if tensor]
    net.keep(call.output, net.one("Concat", parts, call.output.name, axis=op.axis), False)


def _concat(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Concat)
    tensors = [tensor for tensor in call.inputs if tensor is not None]
    axis = op.axis % len(call.output.shape)
    first = net.prefers_first(tensors, len(call.output.shape))
    values = [net.channels_first(tensor) if first else net.value(tensor) for tensor in tensors]
    value = net.one("Concat", values, call.output.name, axis=FIRST.index(axis) if first else axis)
    _finish(net, call, value, first, op.activation)


def _pad(net: Conversion, call: Call, op: Op) -> None:
    x = call.tensor(0)
    first = net.prefers_first([x], len(x.shape))
    pairs = call.constant(1).reshape(-1, 2)
    pairs = pairs[list(FIRST)] if first else pairs
    given = [
        net.channels_first(x) if first else net.value(x),
        net.constant("pads", pairs.T.reshape(-1).astype(np.int64)),
    ]
    if call.code == "PADV2":
        given.append(net.constant("fill", net.real(call.tensor(2)).reshape(())))
    net.keep(call.output, net.one("Pad", given, call.output.name), first)


def _upsample(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.Upsample)
    scales = net.constant("scales", np.array((1, 1, *op.factors), np.float32))
    settings = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    value = net.one("Resize", [net.channels_first(call.tensor(0)), "", scales], call.output.name, **settings)
    net.keep(call.output, value, True)


def _resize(net: Conversion, call: Call, op: Op) -> None:
    assert isinstance(op, ops.ResizeNearest)
    value = net.channels_first(call.tensor(0))
    for axis, places in ((2, op.rows), (3, op.columns)):
        value = net.one("Gather", [value, net.constant("places", np.array(places))], call.output.name, axis=axis)
    net.keep(call.output, value, True)


def _resize_bilinear(net: Conversion, call: Call) -> None:
    x, sizes = call.tensor(0), call.numbers(1)
    mode = "align_corners" if call.option("AlignCorners", False) else "asymmetric"
    mode = "half_pixel" if call.option("HalfPixelCenters", False) else mode
    call.fail_if(len(x.shape) != 4 or len(sizes) != 2, f"resizes {list(x.shape)} to {sizes}")
    whole = net.constant("sizes", np.array((x.shape[0], x.shape[3], *sizes), np.int64))
    settings = {"mode": "linear", "coordinate_transformation_mode": mode}
    net.keep(call.output, net.one("Resize", [net.channels_first(x), "", "", whole], call.output.name, **settings), True)


def _lstm(net: Conversion, call: Call) -> None:
    """Add an LSTM step by step, so that its products are quantised. Each sample starts from zeros."""
    unused = [*range(9, 12), 16, 17, *range(20, 24)]
    if any(i < len(call.inputs) and call.inputs[i] is not None for i in unused):
        raise UnsupportedError(call.where, "is an LSTM with peepholes, a projection or layer normalisation")
    major, name, size = bool(call.option("TimeMajor", False)), call.output.name, call.tensor(18).shape[1]
    first, second, depth = call.tensor(0).shape
    steps, batch = (first, second) if major else (second, first)
    call.refuse_if(steps > MAX_STEPS, f"is an LSTM of {steps} steps; up to {MAX_STEPS} are supported")
    w, r = (np.concatenate([net.real(call.tensor(base + i)) for i in range(4)]) for base in (1, 5))
    bias = net.constant(f"{name}:b", np.concatenate([net.real(call.tensor(12 + i)) for i in range(4)]))
    x = net.value(call.tensor(0))
    x = x if major else net.one("Transpose", [x], name, perm=(1, 0, 2))
    x = net.one("Reshape", [x, net.constant("shape", np.array([-1, depth]))], name)
    gates = net.one("Gemm", [x, net.constant(f"{name}:w", w)], name, transB=1)
    each = net.constant("sizes", np.array([batch] * steps, np.int64))
    parts = net.add("Split", [gates, each], name, steps, axis=0) if steps > 1 else [gates]
    recurrent, quarters = net.constant(f"{name}:r", r), net.constant("sizes", np.array([size] * 4, np.int64))
    hidden, cell, states = "", "", list[str]()
    axis = net.constant("axis", np.array([0 if major else 1], np.int64))
    for part in parts:
        added = net.one("Gemm", [hidden, recurrent, bias], name, transB=1) if hidden else bias
        total = net.one("Add", [part, added], name)
        i, f, g, o = net.add("Split", [total, quarters], name, 4, axis=1)
        kinds = ((i, "Sigmoid"), (f, "Sigmoid"), (g, "Tanh"), (o, "Sigmoid"))
        i, f, g, o = (net.one(kind, [gate], name) for gate, kind in kinds)
        new = net.one("Mul", [i, g], name)
        cell = net.one("Add", [net.one("Mul", [f, cell], name), new], name) if cell else new
        if clip := float(call.option("CellClip", 0.0)):
            bounds = [net.constant("bound", np.array(bound, np.float32)) for bound in (-clip, clip)]
            cell = net.one("Clip", [cell, *bounds], name)
        hidden = net.one("Mul", [o, net.one("Tanh", [cell], name)], name)
        states.append(net.one("Unsqueeze", [hidden, axis], name))
    net.keep(call.output, net.one("Concat", states, name, axis=0 if major else 1), False)


RULES: dict[type[Op], Callable[[Conversion, Call, Op], None]] = {
    ops.Conv2D: _conv,
    ops.DepthwiseConv2D: _conv,
    ops.TransposeConv2D: _transpose_conv,
    ops.FullyConnected: _fully_connected,
    ops.AveragePool2D: _pool,
    ops.MaxPool2D: _pool,
    ops.Mean: _mean,
    ops.Product: _product,
    ops.Tile: _tile,
    ops.Softmax: _softmax,
    ops.Reshape: _reshape,
    ops.Transpose: _transpose,
    ops.Slice: _slice,
    ops.Split: _split,
    ops.Pack: _pack,
    ops.Concat: _concat,
    ops.Pad: _pad,
    ops.Upsample: _upsample,
    ops.ResizeNearest: _resize,
}
