"""Random forms of ONNX operators, rare ones among them: attributes, axes, broadcasting, types of weights, opsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.model.onnx_nets import Net

OPSETS = tuple(range(10, 22))


def random_form(kind: str, seed: int) -> tuple[Net, list[str]]:
    """A model of one operator or two, and its outputs: mostly between quantise and dequantise, or of one scale."""
    rng = np.random.default_rng([seed, *kind.encode()])
    net = Net(seed, pick(rng, np.uint8, np.int8), int(rng.choice(OPSETS)))
    net.rng = rng
    results = FORMS[kind](net)
    outputs = []
    for result in [results] if isinstance(results, str) else results:
        pairs = [tuple(node.input[1:3]) for node in net.nodes if node.op_type == "QuantizeLinear"]
        if rng.random() < 0.25:
            outputs.append(result)
            continue
        real = net.quantized(result, pick(rng, *pairs) if pairs and rng.random() < 0.5 else None)
        outputs.append(net.nodes[-1].input[0] if rng.random() < 0.2 else real)  # codes, or real again
    return net, outputs


def pick(rng: np.random.Generator, *options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def value(net: Net, shape: tuple[int, ...]) -> str:
    """An input, mostly quantised."""
    x = net.input(shape)
    return net.quantized(x) if net.rng.random() < 0.85 else x


def is_quantised(net: Net, name: str) -> bool:
    return any(name in node.output and node.op_type == "DequantizeLinear" for node in net.nodes)


def weights(net: Net, shape: tuple[int, ...], *axes: int | None) -> str:
    """Dequantised constants, per tensor before opset 13."""
    axis = pick(net.rng, None, *axes) if net.opset >= 13 else None
    return net.weights(shape, axis, pick(net.rng, np.int8, np.int8, np.uint8))


def sizes(rng: np.random.Generator, rank: int, low: int, high: int) -> list[int]:
    return [int(extent) for extent in rng.integers(low, high + 1, rank)]


def window(rng: np.random.Generator, rank: int, dilated: bool) -> dict[str, Any]:
    kernel = sizes(rng, rank, 1, 3)
    found: dict[str, Any] = {"kernel_shape": kernel}
    if rng.random() < 0.6:
        found["strides"] = sizes(rng, rank, 1, 3)
    padding = pick(rng, "", "", "VALID", "SAME_UPPER", "SAME_LOWER")
    if padding:
        found["auto_pad"] = padding
        found["strides"] = np.minimum(found.get("strides", 1), kernel).tolist()  # else onnxruntime cuts, or stops
    elif rng.random() < 0.7:
        found["pads"] = [int(rng.integers(0, k)) for k in kernel * 2]
    if dilated and not padding.startswith("SAME") and rng.random() < 0.4:  # with SAME onnxruntime ignores it
        found["dilations"] = sizes(rng, rank, 1, 2)
    return found


def conv(net: Net) -> str:
    rng, rank = net.rng, pick(net.rng, 2, 2, 2, 1, 3)
    attributes, groups = window(rng, rank, True), pick(rng, 1, 1, 2, 3)
    depth, each = sizes(rng, 2, 1, 3)
    if rng.random() < 0.25:
        groups, depth = pick(rng, 2, 3, 5), 1
    kernel = attributes["kernel_shape"]
    if rng.random() < 0.5:
        del attributes["kernel_shape"]
    x = value(net, (pick(rng, 1, 1, 2), groups * depth, *sizes(rng, rank, 7, 9)))
    w = weights(net, (groups * each, depth, *kernel), 0)
    bias = []
    if rng.random() < 0.4 and is_quantised(net, x):
        bias = [net.bias(x, w)]
    elif rng.random() < 0.3:
        bias = [net.const(rng.uniform(-1, 1, groups * each), np.float32)]
    return str(net.op("Conv", x, w, *bias, group=groups, **attributes))


def transposed(net: Net) -> str:
    rng, (inputs, outputs) = net.rng, sizes(net.rng, 2, 1, 3)
    attributes = {key: v for key, v in window(rng, 2, True).items() if key != "auto_pad"}
    x, w = value(net, (1, inputs, 5, 6)), weights(net, (inputs, outputs, *attributes["kernel_shape"]))
    bias = [net.const(rng.uniform(-1, 1, outputs), np.float32)] if rng.random() < 0.5 else []
    return str(net.op("ConvTranspose", x, w, *bias, **attributes))


def activated(net: Net) -> str:
    """An operator of one input behind a convolution, or alone."""
    rng = net.rng
    x = conv(net) if rng.random() < 0.5 else value(net, (2, 3, 4))
    kind = pick(rng, "Relu", "Clip", "Clip", "Sigmoid", "LeakyRelu", "Elu", "Tanh", "Erf", "Abs", "Sqrt", "HardSigmoid")
    low, high = pick(rng, (0.0, 6.0), (-1.0, 1.0), (-100.0, 100.0), (0.0, 100.0), (0.0, None), (None, 1.0))
    if kind != "Clip":
        return str(net.op(kind, x))
    if net.opset < 11:
        return str(net.op(kind, x, **{k: v for k, v in (("min", low), ("max", high)) if v is not None}))
    bounds = ["" if bound is None else net.const(bound, np.float32) for bound in (low, high)]
    return str(net.op(kind, x, *(bounds if bounds[1] else bounds[:1])))


def pool(net: Net) -> str:
    rng, rank = net.rng, pick(net.rng, 2, 2, 2, 1, 3)
    kind = pick(rng, "MaxPool", "AveragePool", "GlobalAveragePool")
    x = value(net, (pick(rng, 1, 2), int(rng.integers(1, 4)), *sizes(rng, rank, 6, 10)))
    if kind == "GlobalAveragePool":
        return str(net.op(kind, x))
    attributes = window(rng, rank, kind == "MaxPool" or net.opset >= 19)
    if kind == "AveragePool":
        attributes["count_include_pad"] = pick(rng, 0, 1)
    return str(net.op(kind, x, **attributes, ceil_mode=pick(rng, 0, 0, 1)))


def resize(net: Net) -> str:
    rng, x = net.rng, value(net, (1, 2, 4, 5))
    if net.opset < 11:
        return str(net.op("Resize", x, net.const([1, 1, 2, 2], np.float32), mode=pick(rng, "nearest", "linear")))
    modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize")
    attributes = {
        "mode": pick(rng, "nearest", "nearest", "linear", "cubic"),
        "coordinate_transformation_mode": modes[0],
    }
    attributes["coordinate_transformation_mode"] = mode = pick(rng, *modes)
    if attributes["mode"] == "nearest":
        attributes["nearest_mode"] = pick(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    none = "" if net.opset >= 13 else net.const([], np.float32)
    roi = net.const([0, 0, 0, 0, 1, 1, 1.3, 0.7], np.float32) if mode == "tf_crop_and_resize" else none
    if rng.random() < 0.5:
        return str(
            net.op("Resize", x, roi, net.const([1, 1, *rng.choice([0.7, 1.5, 2, 3], 2)], np.float32), **attributes)
        )
    return str(net.op("Resize", x, roi, none, net.const([1, 2, *sizes(rng, 2, 1, 9)], np.int64), **attributes))


def gemm(net: Net) -> str:
    rng, (m, k, n) = net.rng, sizes(net.rng, 3, 1, 5)
    attributes: dict[str, Any] = {"transA": pick(rng, 0, 0, 1), "transB": pick(rng, 0, 1)}
    if rng.random() < 0.3:
        attributes |= {"alpha": pick(rng, 0.5, 1.0), "beta": pick(rng, 2.0, 1.0)}
    x = net.quantized(net.input((k, m) if attributes["transA"] else (m, k)))  # real ones: see matmul
    shape = (n, k) if attributes["transB"] else (k, n)
    w = weights(net, shape, 0, 1) if rng.random() < 0.8 else value(net, shape)
    addends = [(n,), (n,), (1, n), (m, n), (m, 1), (), (1,), (1, 1)]
    addend = [net.const(rng.uniform(-1, 1, pick(rng, *addends)), np.float32)] if rng.random() < 0.6 else []
    return str(net.op("Gemm", x, w, *addend, **attributes))


MATRICES = (((3, 8), (8, 5)), ((2, 3, 8), (8, 5)), ((8,), (8, 5)), ((3, 8), (8,)), ((2, 1, 3, 8), (4, 8, 5)))


def matmul(net: Net) -> str:
    """Activations by constants or by each other; a constant sum behind two matrices becomes a Gemm."""
    rng, (a, b) = net.rng, pick(net.rng, *MATRICES, ((2, 3, 8), (2, 8, 5)), ((3, 8), (2, 8, 5)), ((1, 1, 8), (8, 1)))
    x = net.quantized(net.input(a))  # a real one by quantised weights is MatMulNBits to onnxruntime
    w = weights(net, b, len(b) - 1) if rng.random() < 0.6 and len(b) > 1 else net.quantized(net.input(b))
    y = net.op("MatMul", x, w)
    if len(a) == len(b) == 2 and rng.random() < 0.4:
        addend = net.const(rng.uniform(-1, 1, pick(rng, b[-1:], (1, b[-1]))), np.float32)
        y = net.quantized(net.op("Add", *((y, addend) if rng.random() < 0.5 else (addend, y))))
    return str(y)


def binary(net: Net) -> str:
    rng = net.rng
    full = sizes(rng, int(rng.integers(1, 5)), 1, 4)
    part = [extent if rng.random() < 0.6 else 1 for extent in full][int(rng.integers(0, len(full) + 1)) :]
    x = value(net, tuple(full))
    other = pick(rng, "value", "value", "codes", "real", "same")
    y = value(net, tuple(part)) if other == "value" else x
    if other == "codes":
        y = net.weights(part, None, net.codes.type)
    elif other == "real":
        y = net.const(rng.uniform(0.5, 1, part), np.float32)
    kind = pick(rng, "Add", "Add", "Mul", "Mul", "Sub", "Div")
    return str(net.op(kind, *((x, y) if rng.random() < 0.5 else (y, x))))


def concat(net: Net) -> str:
    rng = net.rng
    shape = sizes(rng, int(rng.integers(1, 5)), 1, 3)
    axis = int(rng.integers(-len(shape) if net.opset >= 11 else 0, len(shape)))
    pair, parts = (net.scales() if rng.random() < 0.5 else None), []
    for _ in range(int(rng.integers(1, 4))):
        shape[axis] = int(rng.integers(1, 4))
        x = net.input(shape)
        parts.append(net.quantized(x, pair) if rng.random() < 0.85 else x)
    return str(net.op("Concat", *parts, axis=axis))


def split(net: Net) -> list[str]:
    rng, x = net.rng, value(net, (2, 6, 4))
    axis = pick(rng, 1, -2) if net.opset >= 11 else 1
    if net.opset < 13:
        return list(net.op("Split", x, outputs=2, axis=axis, split=[2, 4]))
    if net.opset >= 18 and rng.random() < 0.5:
        return list(net.op("Split", x, outputs=4, axis=axis, num_outputs=4))
    return list(net.op("Split", x, net.const([2, 4]), outputs=2, axis=axis))


def select(net: Net) -> str:
    """Slice with steps of either sign, Gather with negative indices."""
    x = value(net, (2, 6, 5))
    if net.rng.random() < 0.5:
        index = pick(net.rng, [0, 1], 1, [[0, -1], [1, 0]], [-1], 0)
        return str(net.op("Gather", x, net.const(index), axis=pick(net.rng, 0, 1, 2, -1)))
    ranges = (
        ([1, 0], [6, 4], [1, 2], [2, 1]),
        ([-1], [-7], [1], [-2]),
        ([0], [100], [2], [3]),
        ([4], [-100], [-1], [-1]),
    )
    return str(net.op("Slice", x, *map(net.const, pick(net.rng, *ranges))))


def pad(net: Net) -> str:
    rng, x = net.rng, value(net, (1, 2, 4, 5))
    mode = pick(rng, "constant", "constant", "constant", "reflect", "edge")
    pads = [0, 0, *rng.integers(-1, 3, 2).tolist(), 0, 0, *rng.integers(-1, 3, 2).tolist()]
    if net.opset < 11:
        return str(net.op("Pad", x, pads=pads, mode=mode, value=pick(rng, 0.0, 0.37, -9.0)))
    filling = net.const(pick(rng, 0.0, 0.37, -9.0), np.float32) if mode == "constant" and rng.random() < 0.5 else ""
    if net.opset >= 18 and rng.random() < 0.3:
        return str(net.op("Pad", x, net.const([1, 2, 0, 1]), filling, net.const([2, -1]), mode=mode))
    return str(net.op("Pad", x, net.const(pads), *([filling] if filling else []), mode=mode))


def reduce(net: Net) -> str:
    rng, x = net.rng, value(net, (2, 3, 4, 5))
    kind = pick(rng, "ReduceMean", "ReduceMean", "ReduceSum", "ReduceL2")
    axes, keep = pick(rng, [2, 3], [1], [0, 1, 2, 3], None, [1, -1] if net.opset >= 11 else [1, 3]), pick(rng, 0, 1)
    if axes is None:
        return str(net.op(kind, x, keepdims=keep))
    if net.opset >= 18 or (kind == "ReduceSum" and net.opset >= 13):
        return str(net.op(kind, x, net.const(axes), keepdims=keep))
    return str(net.op(kind, x, keepdims=keep, axes=axes))


def reshape(net: Net) -> str:
    rng, x = net.rng, value(net, (2, 1, 4, 1))
    kind = pick(rng, "Squeeze", "Unsqueeze", "Flatten", "Reshape", "Transpose", "Expand", "Tile", "Identity", "Dropout")
    if kind in ("Squeeze", "Unsqueeze"):
        axes = pick(rng, [1], [1, 3])
        given, attribute = ([net.const(axes)], {}) if net.opset >= 13 else ([], {"axes": axes})
        return str(net.op(kind, x, *given, **attribute))
    if kind == "Flatten":
        return str(net.op(kind, x, axis=pick(rng, 0, 1, 2, 4)))
    if kind == "Transpose":
        return str(net.op(kind, x, perm=pick(rng, [0, 2, 3, 1], [3, 2, 1, 0], [0, 1, 2, 3])))
    shapes = {"Reshape": ([0, -1], [8], [2, 2, 2]), "Expand": ([2, 3, 4, 1], [4, 2], [1]), "Tile": ([1, 2, 1, 3],)}
    return str(net.op(kind, x, *([net.const(pick(rng, *shapes[kind]))] if kind in shapes else [])))


def softmax(net: Net) -> str:
    return str(net.op("Softmax", value(net, (2, 3, 4)), axis=pick(net.rng, 0, 1, 2)))


OPERATORS = (
    conv,
    transposed,
    activated,
    pool,
    resize,
    gemm,
    matmul,
    binary,
    concat,
    split,
    select,
    pad,
    reduce,
    reshape,
)
FORMS: dict[str, Callable[[Net], str | list[str]]] = {form.__name__: form for form in (*OPERATORS, softmax)}
