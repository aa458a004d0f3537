"""Converts float .tflite models to ONNX, operator by operator."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from tilewright.array import Array
from tilewright.errors import UnsupportedError, in_file
from tilewright.graph import ops
from tilewright.graph.layout import TO_NCHW, TO_NHWC
from tilewright.graph.ops import Op
from tilewright.graph.rounding import Activation
from tilewright.model.tflite import TRANSLATE, check_lstm
from tilewright.model.tflite_file import Call
from tilewright.quantize.tflite_float import Conversion

#: Element-wise operators with the same meaning in ONNX.
SAME_MEANING = {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "Max", "MINIMUM": "Min", "POW": "Pow",
    "RELU": "Relu", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish", "ABS": "Abs", "NEG": "Neg",
    "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "FLOOR": "Floor", "CEIL": "Ceil", "SIN": "Sin", "COS": "Cos",
    "ELU": "Elu", "LEAKY_RELU": "LeakyRelu", "PRELU": "PRelu",
}  # fmt: skip
CLAMPS: dict[str, Activation] = {"RELU6": "relu6", "RELU_N1_TO_1": "relu_n1_to_1"}
BLOCKS = {"DEPTH_TO_SPACE": "DepthToSpace", "SPACE_TO_DEPTH": "SpaceToDepth"}
INT64_MIN = -(1 << 63)
#: The largest number of steps of an LSTM. Each step becomes about 15 nodes.
MAX_STEPS = 256


def converted(path: Path) -> ModelProto:
    """Return the ONNX model of a float .tflite file.

    Raises ModelError if the file is damaged. Raises UnsupportedError if the model is already quantised, or if an
    operator or type is not supported.
    """
    with in_file(path):
        net = Conversion(path)
        for index, call in enumerate(net.calls):
            # Inputs may have become constants, because `fold` has computed an earlier operator.
            convert(net, replace(call, inputs=tuple(t and net.tensors[t.name] for t in call.inputs)), index)
        return net.model()


def convert(net: Conversion, call: Call, index: int) -> None:
    """Add the nodes of one operator. Raises UnsupportedError for an unsupported operator."""
    if not call.outputs or call.outputs[0] is None or not call.inputs:
        raise UnsupportedError(f"op {index}", f"{call.code} has no inputs or no outputs")
    # The result of an operator on constants is a constant, and needs no node.
    if net.fold(call):
        return
    name = call.output.name
    if call.code in SAME_MEANING or call.code in CLAMPS:
        _elementwise(net, call)
    elif call.code == "SQUARE":
        net.finish(call, net.add_one("Mul", [net.value(call.tensor(0))] * 2, name))
    elif call.code == "RSQRT":
        net.finish(call, net.add_one("Reciprocal", [net.add_one("Sqrt", [net.value(call.tensor(0))], name)], name))
    elif call.code in BLOCKS:
        net.node(call, BLOCKS[call.code], first=True, blocksize=call.option("BlockSize", 1))
    elif call.code == "RESIZE_BILINEAR":
        _resize_bilinear(net, call)
    elif call.code == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        _lstm(net, call)
    elif call.code in TRANSLATE and call.code not in ("QUANTIZE", "DEQUANTIZE"):
        emit(TRANSLATE[call.code].translate(call), net, call)
    else:
        supported = {*SAME_MEANING, *CLAMPS, *BLOCKS, *TRANSLATE, "SQUARE", "RSQRT", "RESIZE_BILINEAR"} - {"QUANTIZE"}
        how = f"supported are {', '.join(sorted(supported))}"
        how = "it is quantised already; run it as it is" if call.code == "QUANTIZE" else how
        raise UnsupportedError(f"op {index}", f"{call.code} is not supported in float models", how)


def _elementwise(net: Conversion, call: Call) -> None:
    first, values = _operands(net, call)
    if call.code in CLAMPS:
        net.finish(call, values[0], first, CLAMPS[call.code])
        return
    more = {"alpha": call.option("Alpha", 0.0)} if call.code == "LEAKY_RELU" else {}
    net.finish(call, net.add_one(SAME_MEANING[call.code], values, call.output.name, **more), first, call.activation)


def _operands(net: Conversion, call: Call) -> tuple[bool, list[str]]:
    tensors = [tensor for tensor in call.inputs if tensor is not None]
    first = net.prefers_first(tensors, len(call.output.shape))
    return first, [net.value(tensor, first) for tensor in tensors]


def _weights(net: Conversion, call: Call, order: tuple[int, ...], bias: int = 2) -> dict[str, Array]:
    constants = {f"{call.output.name}:w": net.real(call.tensor(1)).transpose(order)}
    added = call.optional(bias)
    if added is not None:
        constants[f"{call.output.name}:b"] = net.real(added).reshape(-1)
    return constants


def _window(window: ops.Window) -> dict[str, Any]:
    top, bottom, left, right = window.padding
    return {"kernel_shape": window.kernel, "strides": window.stride, "pads": [top, left, bottom, right]}


@singledispatch
def emit(op: Op, net: Conversion, call: Call) -> None:
    """Add the nodes of a TFLite operator that corresponds to `op`. Raises UnsupportedError for other operators."""
    raise UnsupportedError(call.where, f"{call.code} is not supported in float models")


@emit.register
def _(op: ops.Conv2D | ops.DepthwiseConv2D, net: Conversion, call: Call) -> None:
    channels = call.tensor(0).shape[3]
    deep = isinstance(op, ops.DepthwiseConv2D)
    group = channels if deep else channels // call.tensor(1).shape[3]
    settings = {**_window(op.window), "dilations": op.window.dilation, "group": group}
    constants = _weights(net, call, (3, 0, 1, 2) if deep else TO_NCHW)
    net.node(call, "Conv", constants, first=True, activation=op.activation, **settings)


@emit.register
def _(op: ops.TransposeConv2D, net: Conversion, call: Call) -> None:
    x = call.tensor(2)
    before = op.window.padding[::2]
    axes = zip(x.shape[1:3], op.window.stride, op.window.kernel, op.size, before, strict=True)
    # Products beyond the end of the output are cut off (pads). An end without products is zero (output_padding).
    reach = [(extent - 1) * stride + kernel - size - start for extent, stride, kernel, size, start in axes]
    pads = [*before, *(max(0, beyond) for beyond in reach)]
    settings = {**_window(op.window), "pads": pads, "output_padding": [max(0, -beyond) for beyond in reach]}
    constants = _weights(net, call, (3, 0, 1, 2), 3)
    net.node(call, "ConvTranspose", constants, first=True, x=x, activation=op.activation, **settings)


@emit.register
def _(op: ops.FullyConnected, net: Conversion, call: Call) -> None:
    x = call.tensor(0)
    depth = call.tensor(1).shape[-1]
    name = call.output.name
    value = net.value(x)
    if len(x.shape) != 2 or x.shape[1] != depth:
        value = net.reshaped(value, (-1, depth), f"{name}:rows")
    constants = [net.constant(key, data) for key, data in _weights(net, call, (0, 1)).items()]
    value = net.add_one("Gemm", [value, *constants], name, transB=1)
    if len(call.output.shape) != 2:
        value = net.reshaped(value, call.output.shape, name)
    net.finish(call, value, activation=op.activation)


@emit.register
def _(op: ops.AveragePool2D | ops.MaxPool2D, net: Conversion, call: Call) -> None:
    kind = "MaxPool" if isinstance(op, ops.MaxPool2D) else "AveragePool"
    net.node(call, kind, first=True, activation=op.activation, **_window(op.window))


@emit.register
def _(op: ops.Mean | ops.Product, net: Conversion, call: Call) -> None:
    x = call.tensor(0)
    name = call.output.name
    if isinstance(op, ops.Product) or len(x.shape) != 4 or op.axes != (1, 2):
        kind = "ReduceProd" if isinstance(op, ops.Product) else "ReduceMean"
        net.node(call, kind, axes=op.axes, keepdims=int(op.keep_dims))
        return
    value = net.add_one("GlobalAveragePool", [net.value(x, first=True)], name)
    net.finish(call, value if op.keep_dims else net.add_one("Flatten", [value], name), op.keep_dims)


@emit.register
def _(op: ops.Tile, net: Conversion, call: Call) -> None:
    net.node(call, "Tile", {"repeats": np.array(op.repeats, np.int64)})


@emit.register
def _(op: ops.Softmax, net: Conversion, call: Call) -> None:
    value = net.value(call.tensor(0))
    name = call.output.name
    if op.beta != 1.0:
        value = net.add_one("Mul", [value, net.constant("beta", np.array(op.beta, np.float32))], name)
    net.finish(call, net.add_one("Softmax", [value], name, axis=-1))


@emit.register
def _(op: ops.Reshape, net: Conversion, call: Call) -> None:
    x = call.tensor(0)
    flat = len(x.shape) == 4 and x.shape[1:3] == (1, 1)  # the result is the same for both orders of axes
    value = net.value(x, flat and x.name in net.channels_first)
    net.finish(call, net.reshaped(value, call.output.shape, call.output.name))


@emit.register
def _(op: ops.Transpose, net: Conversion, call: Call) -> None:
    if op.permutation == TO_NHWC:  # from channels first
        net.finish(call, net.value(call.tensor(0)), first=True)
    elif op.permutation == TO_NCHW:
        net.finish(call, net.value(call.tensor(0), first=True))
    else:
        net.node(call, "Transpose", perm=op.permutation)


@emit.register
def _(op: ops.Slice, net: Conversion, call: Call) -> None:
    ends = np.array(op.begin, np.int64) + np.array(op.counts, np.int64) * np.array(op.steps, np.int64)
    ends = np.where(ends < 0, INT64_MIN, ends)  # -1 would be the last element, not the position before the first
    numbers = (op.begin, ends, range(len(ends)), op.steps)
    places = [net.constant("places", np.array(column, np.int64)) for column in numbers]
    value = net.add_one("Slice", [net.value(call.tensor(0)), *places], call.output.name)
    if op.shape != op.counts:
        value = net.reshaped(value, op.shape, call.output.name)
    net.finish(call, value)


@emit.register
def _(op: ops.Split, net: Conversion, call: Call) -> None:
    sizes = net.constant("sizes", np.array(op.sizes, np.int64))
    source = net.value(call.tensor(1 if call.code == "SPLIT" else 0))
    parts = net.add("Split", [source, sizes], call.output.name, len(op.sizes), axis=op.axis)
    for tensor, part in zip(call.outputs, parts, strict=True):
        assert tensor is not None
        axis = net.constant("axis", np.array([op.axis], np.int64))
        net.keep(tensor, part if op.keep_dims else net.add_one("Squeeze", [part, axis], tensor.name), False)


@emit.register
def _(op: ops.Pack, net: Conversion, call: Call) -> None:
    axis = net.constant("axis", np.array([op.axis], np.int64))
    parts = [net.add_one("Unsqueeze", [net.value(tensor), axis], tensor.name) for tensor in call.inputs if tensor]
    net.finish(call, net.add_one("Concat", parts, call.output.name, axis=op.axis))


@emit.register
def _(op: ops.Concat, net: Conversion, call: Call) -> None:
    axis = op.axis % len(call.output.shape)
    first, values = _operands(net, call)
    value = net.add_one("Concat", values, call.output.name, axis=TO_NCHW.index(axis) if first else axis)
    net.finish(call, value, first, op.activation)


@emit.register
def _(op: ops.Pad, net: Conversion, call: Call) -> None:
    x = call.tensor(0)
    first = net.prefers_first([x], len(x.shape))
    pairs = call.constant(1).reshape(-1, 2)
    pairs = pairs[list(TO_NCHW)] if first else pairs
    constants: dict[str, Array] = {"pads": pairs.T.reshape(-1).astype(np.int64)}
    if call.code == "PADV2":
        constants["fill"] = net.real(call.tensor(2)).reshape(())
    net.node(call, "Pad", constants, first)


@emit.register
def _(op: ops.Upsample, net: Conversion, call: Call) -> None:
    scales = net.constant("scales", np.array((1, 1, *op.factors), np.float32))
    settings = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    value = net.add_one("Resize", [net.value(call.tensor(0), first=True), "", scales], call.output.name, **settings)
    net.finish(call, value, first=True)


@emit.register
def _(op: ops.ResizeNearest, net: Conversion, call: Call) -> None:
    value = net.value(call.tensor(0), first=True)
    for axis, places in ((2, op.rows), (3, op.columns)):
        value = net.add_one("Gather", [value, net.constant("places", np.array(places))], call.output.name, axis=axis)
    net.finish(call, value, first=True)


def _resize_bilinear(net: Conversion, call: Call) -> None:
    x = call.tensor(0)
    sizes = call.numbers(1)
    mode = "align_corners" if call.option("AlignCorners", False) else "asymmetric"
    mode = "half_pixel" if call.option("HalfPixelCenters", False) else mode
    call.fail_if(len(x.shape) != 4 or len(sizes) != 2, f"resizes {list(x.shape)} to {sizes}")
    full_size = net.constant("sizes", np.array((x.shape[0], x.shape[3], *sizes), np.int64))
    settings = {"mode": "linear", "coordinate_transformation_mode": mode}
    value = net.add_one("Resize", [net.value(x, first=True), "", "", full_size], call.output.name, **settings)
    net.finish(call, value, first=True)


def _lstm(net: Conversion, call: Call) -> None:
    """Add the steps of an LSTM as separate nodes, so that its products are quantised. The initial states are zero."""
    check_lstm(call)
    major = call.option("TimeMajor", False)
    name = call.output.name
    size = call.tensor(18).shape[1]
    first, second, depth = call.tensor(0).shape
    steps, batch = (first, second) if major else (second, first)
    call.refuse_if(steps > MAX_STEPS, f"is an LSTM of {steps} steps; up to {MAX_STEPS} are supported")
    w, r = (np.concatenate([net.real(call.tensor(base + i)) for i in range(4)]) for base in (1, 5))
    bias = net.constant(f"{name}:b", np.concatenate([net.real(call.tensor(12 + i)) for i in range(4)]))
    x = net.value(call.tensor(0))
    x = x if major else net.add_one("Transpose", [x], name, perm=(1, 0, 2))
    x = net.add_one("Reshape", [x, net.constant("shape", np.array([-1, depth]))], name)
    gates = net.add_one("Gemm", [x, net.constant(f"{name}:w", w)], name, transB=1)
    batches = net.constant("sizes", np.array([batch] * steps, np.int64))
    parts = net.add("Split", [gates, batches], name, steps, axis=0) if steps > 1 else [gates]
    # One Gemm computes the products of the inputs of all steps. Each step adds the products of the previous hidden
    # state.
    recurrent = net.constant(f"{name}:r", r)
    quarters = net.constant("sizes", np.array([size] * 4, np.int64))
    hidden = ""
    cell = ""
    states = list[str]()
    axis = net.constant("axis", np.array([0 if major else 1], np.int64))
    # The first step has no products of the states, because both states are zero.
    for part in parts:
        added = net.add_one("Gemm", [hidden, recurrent, bias], name, transB=1) if hidden else bias
        total = net.add_one("Add", [part, added], name)
        i, f, g, o = net.add("Split", [total, quarters], name, 4, axis=1)
        kinds = ((i, "Sigmoid"), (f, "Sigmoid"), (g, "Tanh"), (o, "Sigmoid"))
        i, f, g, o = (net.add_one(kind, [gate], name) for gate, kind in kinds)
        new = net.add_one("Mul", [i, g], name)
        cell = net.add_one("Add", [net.add_one("Mul", [f, cell], name), new], name) if cell else new
        if clip := call.option("CellClip", 0.0):
            cell = net.clipped(cell, (-clip, clip), name)
        hidden = net.add_one("Mul", [o, net.add_one("Tanh", [cell], name)], name)
        states.append(net.add_one("Unsqueeze", [hidden, axis], name))
    net.finish(call, net.add_one("Concat", states, name, axis=0 if major else 1))
