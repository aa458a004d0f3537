"""Imports a quantised TensorFlow Lite model (int8, or int16 activations) as a Graph with the file's quantisation.

`tflite_file.py` reads the tables and follows the values that a network keeps between samples, and
`tflite_verify.py` compares the graph with LiteRT.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError, in_file
from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Site
from tilewright.graph.ops.shape import Moved
from tilewright.graph.rounding import rounding_mode
from tilewright.graph.tensor import MAX_ELEMENTS, Tensor
from tilewright.model.tflite_file import HOW_TO_QUANTISE, STATEFUL, Call, Variables, read

CODES = ("int8", "int16")
#: A function that translates an operator of a file.
Translate = Callable[[Call], ops.Op]
#: Operators with several results.
PARTS = ("SPLIT", "SPLIT_V", "UNPACK")
PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")


def load(path: Path) -> Graph:
    """Return the validated graph of a `.tflite` file. No operator of the file is skipped.

    Raises ModelError if the file is damaged, and UnsupportedError if an operator, type or feature is not supported.
    """
    with in_file(path):
        return _Import(path).graph().pruned().validate()


class _Import:
    """The import of one file: its tensors and nodes so far, and the variables of the network."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = read(path)
        self.main = self.file[0]
        self.tensors = {tensor.name: tensor for tensor in self.main.tensors}
        self.nodes: list[Node] = []
        self.variables = Variables(self.file, self.tensors)

    def graph(self) -> Graph:
        for index, call in enumerate(self.main.calls):
            if call.code in STATEFUL:
                self.variables.follow(call)
                continue
            # Replace the inputs by the current values of variables and by constants computed so far.
            inputs = tuple(t and self.tensors[self.variables.value(t.name)] for t in call.inputs)
            self._add(index, replace(call, inputs=inputs))
        outputs = tuple(self.variables.value(name) for name in self.main.outputs)
        states = self.variables.states()
        return Graph(self.path.stem, self.tensors, tuple(self.nodes), self.main.inputs, outputs, states=states)

    def _add(self, index: int, call: Call) -> None:
        if not call.inputs or not call.outputs or None in call.outputs:
            counts = f"{len(call.inputs)} inputs and {len(call.outputs)} outputs"
            raise ModelError(f"op {index}", f"{call.code} has {counts}; outputs and at least one input are required")
        if (data := folded(call)) is not None:
            self._set(call.output, data)
            return
        if call.code not in TRANSLATE:
            remedy = f"supported are {', '.join(sorted((*TRANSLATE, *STATEFUL)))}"
            raise UnsupportedError(f"op {index}", f"{call.code} is not supported", remedy)
        translation = TRANSLATE[call.code]
        if len(call.outputs) != 1 and call.code not in PARTS:
            raise ModelError(f"op {index}", f"{call.code} has {len(call.outputs)} outputs instead of one")
        _check_types(call, translation.data)
        op = translation.translate(call)
        positions = range(len(call.inputs)) if translation.inputs is None else translation.inputs
        inputs = tuple(tensor.name if tensor else "" for tensor in map(call.optional, positions))
        outputs = tuple(tensor.name for tensor in call.outputs if tensor)
        # TFLite's LSTM overwrites its states. In the graph, the new states are results.
        if isinstance(op, ops.Lstm):
            outputs += self.variables.states_of(call, (call.tensor(18), call.tensor(19)))
        node = Node(f"{op.kind}_{index}", op, inputs, outputs)
        # Compute moves of constants (such as transposed weights) now, because compilers need constant operands.
        if isinstance(op, Moved | ops.Split) and all(self.tensors[name].data is not None for name in inputs):
            self._fold(node)
        else:
            self.nodes.append(node)

    def _fold(self, node: Node) -> None:
        site = Site(node, tuple(self.tensors[n] for n in node.inputs), tuple(self.tensors[n] for n in node.outputs))
        node.op.check_types(site)
        shapes = node.op.shapes(site)
        values = [site.constant(index)[None] for index in range(len(node.inputs))]
        results = node.op.evaluate(site, values, rounding_mode("tflm"))
        for tensor, shape, result in zip(site.outputs, shapes, results, strict=True):
            self._set(tensor, result[0].reshape(shape))

    def _set(self, tensor: Tensor, data: Array) -> None:
        content = np.ascontiguousarray(data.astype(tensor.dtype))
        self.tensors[tensor.name] = replace(tensor, shape=content.shape, data=content)


def folded(call: Call) -> Array | None:
    if call.code == "DENSIFY":  # the input is a sparse constant of the file
        return call.constant(0)
    if call.code == "SHAPE":
        return np.array(call.tensor(0).shape, np.int64)
    parts = [tensor.data for tensor in call.inputs if tensor is not None and tensor.data is not None]
    if call.code == "CONCATENATION" and len(parts) == len(call.inputs) and call.output.dtype in ("int32", "int64"):
        return np.concatenate(parts, axis=call.axis(call.option("Axis")))
    return None


def _size(call: Call, tensor: Tensor, what: str) -> tuple[int, int]:
    shape = tensor.shape
    call.fail_if(len(shape) != 4, f"has {what} of shape {list(shape)}, not four axes")
    return shape[1], shape[2]


def _window(call: Call, size: tuple[int, int] | None = None) -> ops.Window:
    return call.window(_size(call, call.tensor(1), "weights"), size)


def _transpose_conv(call: Call) -> ops.Op:
    size = _size(call, call.output, "an output")
    return ops.TransposeConv2D(call.activation, window=_window(call, size), size=size)


def _fully_connected(call: Call) -> ops.Op:
    remedy = "export the model with the default weights format"
    call.refuse_if(call.option("WeightsFormat"), "has shuffled weights", remedy)
    return ops.FullyConnected(call.activation, keep_dims=call.option("KeepNumDims", False))


def _pool(kind: type[ops.AveragePool2D | ops.MaxPool2D]) -> Translate:
    return lambda call: kind(
        call.window((call.option("FilterHeight", 1), call.option("FilterWidth", 1))), call.activation
    )


def _reduction(kind: type[ops.Mean | ops.Product]) -> Translate:
    return lambda call: kind(tuple(sorted(set(map(call.axis, call.numbers(1))))), call.option("KeepDims", False))


def _reshape(call: Call) -> ops.Op:
    return ops.Reshape(call.output.shape)


def _pad(call: Call) -> ops.Op:
    pairs = call.constant(1)
    wrong = pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.min(initial=0) < 0 or pairs.max(initial=0) > MAX_ELEMENTS
    call.fail_if(wrong, f"has the padding {pairs.tolist()}; (before, after) for each axis is required")
    value = int(call.constant(2).reshape(-1)[0]) if call.code == "PADV2" else None
    return ops.Pad(tuple((int(before), int(after)) for before, after in pairs), value)


def _transpose(call: Call) -> ops.Op:
    return ops.Transpose(tuple(call.axis(axis) for axis in call.numbers(1)))


def _strided_slice(call: Call) -> ops.Op:
    """Return the slice that TensorFlow's masks describe: bit i of a mask is for entry i of begin, end and strides."""
    masks = {name: call.option(f"{name}Mask") for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}
    begin, end, strides = (call.numbers(index) for index in (1, 2, 3))
    shape = call.tensor(0).shape
    wrong = not len(begin) == len(end) == len(strides) or 0 in strides
    call.fail_if(wrong, f"slices from {begin} to {end} by {strides}")
    if call.option("Offset", False):
        end = [first + count for first, count in zip(begin, end, strict=True)]
    # An ellipsis covers all axes that have no entry; a NewAxis entry covers no axis. New and dropped axes are ignored
    # here, because the shape of the result is in the file.
    entries: list[slice | int] = []
    remaining = len(shape) - sum(not (masks["NewAxis"] | masks["Ellipsis"]) >> i & 1 for i in range(len(begin)))
    for i, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        bit = {name: mask >> i & 1 for name, mask in masks.items()}
        if bit["Ellipsis"]:
            entries += [slice(None)] * max(0, remaining)
            remaining = 0
        elif bit["ShrinkAxis"] and not bit["NewAxis"]:
            entries.append(first)
        elif not bit["NewAxis"]:
            entries.append(slice(None if bit["Begin"] else first, None if bit["End"] else last, step))
    return _slice(call, [*entries, *[slice(None)] * max(0, len(shape) - len(entries))])


def _slice(call: Call, entries: list[slice | int]) -> ops.Op:
    """Return the operator for `entries`: a Python slice or an index for each axis of input 0."""
    shape = call.tensor(0).shape
    call.fail_if(len(entries) != len(shape), f"slices {len(entries)} axes of an input of shape {list(shape)}")
    call.fail_if(not all(0 < extent <= MAX_ELEMENTS for extent in shape), f"slices an input of shape {list(shape)}")
    ranges = []
    for entry, extent in zip(entries, shape, strict=True):
        if isinstance(entry, slice):
            ranges.append(range(*entry.indices(extent)))
        elif -extent <= entry < extent:
            ranges.append(range(entry % extent, entry % extent + 1))
        else:
            raise ModelError(call.where, f"takes element {entry} of an axis of {extent}")
    begin, counts, steps = zip(*((r.start, len(r), r.step) for r in ranges), strict=True)
    return ops.Slice(begin, counts, steps, call.output.shape)


def _plain_slice(call: Call) -> ops.Op:
    sizes = zip(call.numbers(1), call.numbers(2), strict=False)
    return _slice(call, [slice(first, None if size < 0 else first + size) for first, size in sizes])


def _split(call: Call) -> ops.Op:
    axis = call.numbers(0)[0]
    extents = call.tensor(1).shape
    count = len(call.outputs)
    rank = len(extents)
    wrong = not -rank <= axis < rank or extents[axis] % count
    call.fail_if(wrong, f"cannot split axis {axis} of {list(extents)} into {count} parts")
    return ops.Split(axis % rank, (extents[axis] // count,) * count)


def _split_sizes(call: Call) -> ops.Op:
    axis = call.axis(call.numbers(2)[0])
    sizes = call.numbers(1)
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = call.tensor(0).shape[axis] - sum(sizes) - 1
    return ops.Split(axis, tuple(sizes))


def _unpack(call: Call) -> ops.Op:
    return ops.Split(call.axis(call.option("Axis")), (1,) * len(call.outputs), keep_dims=False)


def _resize(call: Call) -> ops.Op:
    extents = call.tensor(0).shape[1:3]
    sizes = call.numbers(1)
    wrong = len(call.tensor(0).shape) != 4 or len(sizes) != 2 or not all(0 < size <= 1 << 15 for size in sizes)
    call.fail_if(wrong, f"resizes {list(call.tensor(0).shape)} to {sizes}")
    corners = call.option("AlignCorners", False)
    centres = call.option("HalfPixelCenters", False)
    positions = []
    for extent, size in zip(extents, sizes, strict=True):
        # With aligned corners, the first and last pixels of both images coincide. With half centres, pixels are areas,
        # and the position of an output pixel is the position of its centre.
        aligned = corners and size > 1
        scale = np.float32(extent - 1 if aligned else extent) / np.float32(size - 1 if aligned else size)
        real = (np.arange(size, dtype=np.float32) + np.float32(0.5 if centres else 0)) * scale
        nearest = np.floor(real + np.float32(0.5)) if corners else np.floor(real)
        positions.append(tuple(np.clip(nearest, 0, extent - 1).astype(int).tolist()))
    factors = tuple(size // extent for extent, size in zip(extents, sizes, strict=True))
    if min(factors) and all(p == tuple(i // f for i in range(len(p))) for p, f in zip(positions, factors, strict=True)):
        return ops.Upsample((factors[0], factors[1]))
    return ops.ResizeNearest(positions[0], positions[1])


def check_lstm(call: Call) -> None:
    """Check the inputs of an LSTM. Raises UnsupportedError for optional parts."""
    parts = any(call.optional(index) for index in (*range(9, 12), 16, 17, *range(20, 24)))
    call.refuse_if(parts, "is an LSTM with peepholes, a projection or layer normalisation")


def _lstm(call: Call) -> ops.Op:
    check_lstm(call)
    call.refuse_if(call.option("FusedActivationFunction", 4) != 4, "is an LSTM whose activation is not tanh")
    inside = call.intermediates[4] if len(call.intermediates) > 4 else None
    hidden = inside if inside is not None and inside.quant is not None else call.tensor(18)
    clip = call.option("CellClip", 0.0)
    return ops.Lstm(call.option("TimeMajor", False), clip, hidden.scale, hidden.zero_point)


class Translation(NamedTuple):
    """The rule for the translation of an operator.

    `inputs` are the positions of the inputs of the graph's operator (None: all); all other inputs become attributes.
    `data` is the position of the input with the data, whose type is checked.
    """

    translate: Translate
    inputs: tuple[int, ...] | None = (0,)
    data: int = 0


TRANSLATE: dict[str, Translation] = {
    "CONV_2D": Translation(lambda call: ops.Conv2D(call.activation, _window(call)), (0, 1, 2)),
    "DEPTHWISE_CONV_2D": Translation(lambda call: ops.DepthwiseConv2D(call.activation, _window(call)), (0, 1, 2)),
    "TRANSPOSE_CONV": Translation(_transpose_conv, (2, 1, 3), 2),
    "FULLY_CONNECTED": Translation(_fully_connected, (0, 1, 2)),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Translation(_lstm, (*range(9), *range(12, 16), 18, 19)),
    "AVERAGE_POOL_2D": Translation(_pool(ops.AveragePool2D)),
    "MAX_POOL_2D": Translation(_pool(ops.MaxPool2D)),
    "MEAN": Translation(_reduction(ops.Mean)),
    "REDUCE_PROD": Translation(_reduction(ops.Product)),
    "ADD": Translation(lambda call: ops.Add(call.activation), (0, 1)),
    "SUB": Translation(lambda call: ops.Sub(call.activation), (0, 1)),
    "MUL": Translation(lambda call: ops.Mul(call.activation), (0, 1)),
    "RELU": Translation(lambda call: ops.Clamp("relu")),
    "RELU6": Translation(lambda call: ops.Clamp("relu6")),
    "RELU_N1_TO_1": Translation(lambda call: ops.Clamp("relu_n1_to_1")),
    "LEAKY_RELU": Translation(lambda call: ops.LeakyRelu(call.option("Alpha", 0.0))),
    "HARD_SWISH": Translation(lambda call: ops.HardSwish()),
    "LOGISTIC": Translation(lambda call: ops.Logistic()),
    "TANH": Translation(lambda call: ops.Tanh()),
    "RESHAPE": Translation(_reshape),
    "EXPAND_DIMS": Translation(_reshape),
    "SQUEEZE": Translation(_reshape),
    "TRANSPOSE": Translation(_transpose),
    "TILE": Translation(lambda call: ops.Tile(tuple(call.numbers(1)))),
    "STRIDED_SLICE": Translation(_strided_slice),
    "SLICE": Translation(_plain_slice),
    "SPLIT": Translation(_split, (1,), 1),
    "SPLIT_V": Translation(_split_sizes),
    "PACK": Translation(lambda call: ops.Pack(call.axis(call.option("Axis"), 1)), None),
    "UNPACK": Translation(_unpack),
    "RESIZE_NEAREST_NEIGHBOR": Translation(_resize),
    "PAD": Translation(_pad),
    "PADV2": Translation(_pad),
    "CONCATENATION": Translation(lambda call: ops.Concat(call.option("Axis", -1), call.activation), None),
    "SOFTMAX": Translation(lambda call: ops.Softmax(call.option("Beta", 1.0))),
    "QUANTIZE": Translation(lambda call: ops.Quantize()),
    "DEQUANTIZE": Translation(lambda call: ops.Dequantize()),
}

#: Operators that move values of any type.
MOVES = {"RESHAPE", "EXPAND_DIMS", "SQUEEZE", "TRANSPOSE", "TILE", "STRIDED_SLICE", "SLICE", *PARTS, "PACK"}
#: For each operator that changes the type of values: whether its input or its output may be float32.
CONVERSIONS = {"QUANTIZE": "input", "DEQUANTIZE": "output"}


def _check_types(call: Call, data: int) -> None:
    if call.code in MOVES:
        return
    codes = (*CODES, "uint8") if call.code in CONVERSIONS else CODES
    for role, tensor in (("input", call.tensor(data)), ("output", call.output)):
        if tensor.dtype == "float32" and CONVERSIONS.get(call.code) == role:
            continue
        wrong_type = tensor.dtype not in codes
        lacks = f"is {tensor.dtype}, not {' or '.join(codes)}" if wrong_type else "has no quantisation parameters"
        call.refuse_if(wrong_type or tensor.quant is None, f"its {role} '{tensor.name}' {lacks}", HOW_TO_QUANTISE)
    reason = f"turns {call.tensor(data).dtype} into {call.output.dtype}; both must have the same type"
    call.refuse_if(call.code not in CONVERSIONS and call.tensor(data).dtype != call.output.dtype, reason)
    if call.code in PRODUCTS:
        _check_weights(call, call.tensor(data))


def _check_weights(call: Call, x: Tensor) -> None:
    weights = call.tensor(1)
    origin = "computed" if weights.data is None else "constant"
    reason = f"its weights are {origin} {weights.dtype}; constant int8 weights with a scale are supported"
    fits = weights.dtype == "int8" and weights.data is not None and weights.quant is not None
    call.refuse_if(not fits, reason, HOW_TO_QUANTISE)
    if x.dtype != "int16":
        return
    bias = call.optional(3 if call.code == "TRANSPOSE_CONV" else 2)
    narrow = call.option("QuantizedBiasType") == 2 and bias is None  # 2 is INT32 in TFLite's TensorType
    call.refuse_if(narrow, "sums int16 products in 32 bits", "give it an int32 bias of zeros")
    reason = "has an int32 bias for int16 inputs, which LiteRT refuses and TFLite Micro reads as int64"
    misread = call.code == "DEPTHWISE_CONV_2D" and bias is not None and bias.dtype == "int32"
    call.refuse_if(misread, reason, "give it an int64 bias")
