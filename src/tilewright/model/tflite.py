"""Imports a TensorFlow Lite int8 model as a Graph with exactly the file's quantisation, and compares it with LiteRT.

The file is untrusted. Python's flatbuffers has no verifier, so reads outside the buffer raise various Python errors;
all of them become a ModelError. The file's size bounds every loop, and arrays are views of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tflite

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError, printable
from tilewright.graph import ops, reference
from tilewright.graph.ir import MAX_ELEMENTS, Graph, Named, Node, Quant, Site, Tensor
from tilewright.graph.rounding import Activation
from tilewright.model.verification import Comparison, Verification, compared

MAX_BYTES = 1 << 31  # flatbuffers' own limit
MAX_RANK = 8
MAX_NAME = 1 << 10

_DTYPES = {
    tflite.TensorType.FLOAT32: "float32",
    tflite.TensorType.FLOAT16: "float16",
    tflite.TensorType.INT32: "int32",
    tflite.TensorType.UINT8: "uint8",
    tflite.TensorType.INT64: "int64",
    tflite.TensorType.INT16: "int16",
    tflite.TensorType.INT8: "int8",
    tflite.TensorType.BOOL: "bool",
    tflite.TensorType.FLOAT64: "float64",
}
_OPERATORS = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}

_WINDOW = ("Padding", "StrideH", "StrideW", "FusedActivationFunction")
#: The options of each operator: the flatbuffer table, and the fields that are read.
_OPTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "CONV_2D": (tflite.Conv2DOptions, (*_WINDOW, "DilationHFactor", "DilationWFactor")),
    "DEPTHWISE_CONV_2D": (tflite.DepthwiseConv2DOptions, (*_WINDOW, "DilationHFactor", "DilationWFactor")),
    "AVERAGE_POOL_2D": (tflite.Pool2DOptions, (*_WINDOW, "FilterHeight", "FilterWidth")),
    "MAX_POOL_2D": (tflite.Pool2DOptions, (*_WINDOW, "FilterHeight", "FilterWidth")),
    "FULLY_CONNECTED": (tflite.FullyConnectedOptions, ("FusedActivationFunction", "KeepNumDims", "WeightsFormat")),
    "ADD": (tflite.AddOptions, ("FusedActivationFunction",)),
    "MUL": (tflite.MulOptions, ("FusedActivationFunction",)),
    "CONCATENATION": (tflite.ConcatenationOptions, ("Axis", "FusedActivationFunction")),
    "MEAN": (tflite.ReducerOptions, ("KeepDims",)),
    "SOFTMAX": (tflite.SoftmaxOptions, ("Beta",)),
}

_ACTIVATIONS: dict[int, Activation] = {0: "none", 1: "relu", 2: "relu_n1_to_1", 3: "relu6"}

HOW_TO_QUANTISE = (
    "quantise it to int8: TFLiteConverter with optimizations=[Optimize.DEFAULT], a representative_dataset and "
    "target_spec.supported_ops=[OpsSet.TFLITE_BUILTINS_INT8]"
)

PACKAGE = "ai-edge-litert"
#: Tolerance of real tensors, relative to their largest magnitude: a real softmax may differ in the last bit.
REAL = 1e-6


def load(path: Path) -> Graph:
    """Return the validated graph of a `.tflite` file. No operator of the file is skipped.

    Raises ModelError if the file is damaged, and UnsupportedError if an operator, type or feature is not supported.
    """
    try:
        tensors, calls, inputs, outputs = read(path)
        nodes = tuple(_node(index, call) for index, call in enumerate(calls))
        by_name = {tensor.name: tensor for tensor in tensors}
        return Graph(path.stem, by_name, nodes, inputs, outputs).pruned().validate()
    except (ModelError, UnsupportedError) as error:
        raise error.within(path) from None


@dataclass(frozen=True)
class _Call(Named):
    """An operator of a file: its builtin name `code`, options, and the tensors it reads and writes (None: absent)."""

    name: str
    code: str
    options: Mapping[str, Any]
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]

    def option(self, field: str, default: Any = 0) -> Any:
        return self.options.get(field, default)

    @property
    def activation(self) -> Activation:
        code = self.option("FusedActivationFunction")
        if code not in _ACTIVATIONS:
            raise UnsupportedError(self.where, f"has the unsupported fused activation number {code}")
        return _ACTIVATIONS[code]

    @property
    def output(self) -> Tensor:
        (tensor,) = self.outputs
        assert tensor is not None
        return tensor

    def tensor(self, index: int) -> Tensor:
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise ModelError(self.where, f"{self.code} lacks its input {index}")
        return tensor

    def constant(self, index: int) -> Array:
        data = self.tensor(index).data
        if data is None:
            raise UnsupportedError(self.where, f"{self.code} takes input {index} at run time; it must be constant")
        return data

    def window(self, kernel: tuple[int, int]) -> ops.Window:
        shape = self.tensor(0).shape
        if len(shape) != 4:
            raise ModelError(self.where, f"{self.code} has an input of shape {list(shape)}, not four axes")
        stride = (int(self.option("StrideH", 1)), int(self.option("StrideW", 1)))
        dilation = (int(self.option("DilationHFactor", 1)), int(self.option("DilationWFactor", 1)))
        if min(*kernel, *stride, *dilation) < 1 or max(*kernel, *stride, *dilation) > 1 << 15:
            raise ModelError(self.where, f"has an impossible kernel {kernel}, stride {stride} or dilation {dilation}")
        if self.option("Padding") == 1:
            return ops.Window(kernel, stride, (0, 0, 0, 0), dilation)
        return ops.Window.same((shape[1], shape[2]), kernel, stride, dilation)


def _kernel_of_weights(call: _Call) -> tuple[int, int]:
    shape = call.tensor(1).shape
    if len(shape) != 4:
        raise ModelError(call.where, f"has weights of shape {list(shape)}, not four axes")
    return shape[1], shape[2]


def _fully_connected(call: _Call) -> ops.Op:
    if call.option("WeightsFormat"):
        raise UnsupportedError(call.where, "has shuffled weights", "export the model with the default weights format")
    return ops.FullyConnected(call.activation, bool(call.option("KeepNumDims", False)))


def _pool(kind: type[ops.AveragePool2D] | type[ops.MaxPool2D]) -> Callable[[_Call], ops.Op]:
    return lambda call: kind(
        call.window((int(call.option("FilterHeight", 1)), int(call.option("FilterWidth", 1)))), call.activation
    )


def _mean(call: _Call) -> ops.Op:
    rank = len(call.tensor(0).shape)
    axes = {int(axis) for axis in call.constant(1).reshape(-1)}
    if not axes <= set(range(-rank, rank)):
        raise ModelError(call.where, f"reduces over axes {sorted(axes)}; its input has {rank} axes")
    return ops.Mean(tuple(sorted({axis % rank for axis in axes})), bool(call.option("KeepDims", False)))


def _pad(call: _Call) -> ops.Op:
    pairs = call.constant(1)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.min(initial=0) < 0 or pairs.max(initial=0) > MAX_ELEMENTS:
        raise ModelError(call.where, f"has the padding {pairs.tolist()}; (before, after) for each axis is required")
    value = int(call.constant(2).reshape(-1)[0]) if call.code == "PADV2" else None
    return ops.Pad(tuple((int(before), int(after)) for before, after in pairs), value)


#: Operator -> its translation, and the number of inputs that stay tensors of the graph (None: all).
_TRANSLATE: dict[str, tuple[Callable[[_Call], ops.Op], int | None]] = {
    "CONV_2D": (lambda call: ops.Conv2D(call.activation, call.window(_kernel_of_weights(call))), 3),
    "DEPTHWISE_CONV_2D": (lambda call: ops.DepthwiseConv2D(call.activation, call.window(_kernel_of_weights(call))), 3),
    "FULLY_CONNECTED": (_fully_connected, 3),
    "AVERAGE_POOL_2D": (_pool(ops.AveragePool2D), 1),
    "MAX_POOL_2D": (_pool(ops.MaxPool2D), 1),
    "MEAN": (_mean, 1),
    "ADD": (lambda call: ops.Add(call.activation), 2),
    "MUL": (lambda call: ops.Mul(call.activation), 2),
    "RELU": (lambda call: ops.Clamp("relu"), 1),
    "RELU6": (lambda call: ops.Clamp("relu6"), 1),
    "RELU_N1_TO_1": (lambda call: ops.Clamp("relu_n1_to_1"), 1),
    "RESHAPE": (lambda call: ops.Reshape(call.output.shape), 1),
    "PAD": (_pad, 1),
    "PADV2": (_pad, 1),
    "CONCATENATION": (lambda call: ops.Concat(int(call.option("Axis", -1)), call.activation), None),
    "SOFTMAX": (lambda call: ops.Softmax(float(call.option("Beta", 1.0))), 1),
    "QUANTIZE": (lambda call: ops.Quantize(), 1),
    "DEQUANTIZE": (lambda call: ops.Dequantize(), 1),
}


def _node(index: int, call: _Call) -> Node:
    if call.code not in _TRANSLATE:
        remedy = f"supported are {', '.join(sorted(_TRANSLATE))}"
        raise UnsupportedError(f"op {index}", f"{call.code} is not supported", remedy)
    translate, arity = _TRANSLATE[call.code]
    if not call.inputs or len(call.outputs) != 1 or None in call.outputs:
        counts = f"{len(call.inputs)} inputs and {len(call.outputs)} outputs"
        raise ModelError(f"op {index}", f"{call.code} has {counts}; one output and at least one input are required")
    _check_types(call)
    op = translate(call)
    inputs = tuple(tensor.name if tensor else "" for tensor in call.inputs[:arity])
    return Node(f"{op.kind}_{index}", op, inputs, (call.output.name,))


def _check_types(call: _Call) -> None:
    for role, tensor, edge in (("input", call.tensor(0), "QUANTIZE"), ("output", call.output, "DEQUANTIZE")):
        if tensor.dtype == "float32" and call.code == edge:
            continue
        if tensor.dtype != "int8" or tensor.quant is None:
            lacks = "has no quantisation parameters" if tensor.dtype == "int8" else f"is {tensor.dtype}, not int8"
            raise UnsupportedError(call.where, f"its {role} '{tensor.name}' {lacks}", HOW_TO_QUANTISE)
    if call.code in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        weights = call.tensor(1)
        if weights.dtype != "int8" or weights.data is None or weights.quant is None:
            origin = "computed" if weights.data is None else "constant"
            reason = f"its weights are {origin} {weights.dtype}; constant int8 weights with a scale are supported"
            raise UnsupportedError(call.where, reason, HOW_TO_QUANTISE)


class Subgraph(NamedTuple):
    """The contents of a `.tflite` file: tensors by index, operators, and the names of inputs and outputs."""

    tensors: tuple[Tensor, ...]
    calls: tuple[_Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def read(path: Path) -> Subgraph:
    """Return a file's only subgraph. Raises ModelError if it is damaged, UnsupportedError for several subgraphs."""
    size = path.stat().st_size
    if not 8 <= size <= MAX_BYTES:
        raise ModelError(path, f"is {size} bytes long; a .tflite file has 8 to {MAX_BYTES} bytes")
    content = path.read_bytes()
    if not tflite.Model.ModelBufferHasIdentifier(content, 0):
        raise ModelError(path, "is not a TensorFlow Lite model (no TFL3 mark)", "give a .tflite file")
    try:
        return _subgraph(str(path), tflite.Model.GetRootAs(content, 0))
    except (struct.error, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
        raise ModelError(path, "is truncated or damaged: a table points outside the file", "export it again") from None


def _subgraph(path: str, model: Any) -> Subgraph:
    if model.SubgraphsLength() != 1:
        raise UnsupportedError(path, f"has {model.SubgraphsLength()} subgraphs; only models with one are supported")
    graph, names = model.Subgraphs(0), set[str]()
    buffers = [model.Buffers(index).DataAsNumpy() for index in range(model.BuffersLength())]
    tensors = tuple(_tensor(path, graph.Tensors(i), i, buffers, names) for i in range(graph.TensorsLength()))
    codes = [_code(model.OperatorCodes(index)) for index in range(model.OperatorCodesLength())]
    operators = [graph.Operators(index) for index in range(graph.OperatorsLength())]
    ends = _ends(graph)
    for index in {i for table in (graph, *operators) for side in _ends(table) for i in side}:
        if not -1 <= index < len(tensors):
            raise ModelError(path, f"is damaged: it refers to tensor {index} but has {len(tensors)} tensors")
    if not operators or not all(ends) or any(-1 in side for side in ends):
        raise ModelError(path, "is damaged: it has no operators, inputs or outputs")
    calls = []
    for index, operator in enumerate(operators):
        code = codes[operator.OpcodeIndex()]
        sides = (tuple(tensors[i] if i >= 0 else None for i in side) for side in _ends(operator))
        calls.append(_Call(f"{code}_{index}", code, _options(code, operator), *sides))
    inputs, outputs = (tuple(tensors[i].name for i in side) for side in ends)
    return Subgraph(tensors, tuple(calls), inputs, outputs)


def _ends(table: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the indices of a subgraph's or operator's inputs, and those of its outputs; -1 is an absent tensor."""
    return _numbers(table.InputsAsNumpy()), _numbers(table.OutputsAsNumpy())


def _numbers(vector: Any) -> tuple[int, ...]:
    """Return a flatbuffers vector of integers as a tuple; flatbuffers gives 0 for an empty vector."""
    return tuple(int(number) for number in vector) if isinstance(vector, np.ndarray) else ()


def _text(name: bytes | None) -> str:
    """Return a name as one printable line of at most MAX_NAME characters."""
    return printable((name or b"")[:MAX_NAME].decode("utf-8", "replace"))


def _tensor(path: str, tensor: Any, index: int, buffers: Sequence[Any], names: set[str]) -> Tensor:
    """Return the graph's tensor for tensor `index` of the file. Its name is made unique and added to `names`."""
    name = _text(tensor.Name()) or f"tensor_{index}"
    while name in names:
        name = f"{name}:{index}"
    names.add(name)
    kind = tensor.Type()
    if kind not in _DTYPES:
        raise UnsupportedError(path, f"tensor '{name}' has the element type number {kind}", "int8 models are supported")
    if tensor.ShapeLength() > MAX_RANK:
        raise UnsupportedError(path, f"tensor '{name}' has {tensor.ShapeLength()} axes; up to {MAX_RANK} are supported")
    if tensor.Sparsity() is not None:
        raise UnsupportedError(path, f"tensor '{name}' is stored sparse", "export the model with dense tensors")
    if not 0 <= tensor.Buffer() < len(buffers):
        raise ModelError(path, f"is damaged: tensor '{name}' refers to buffer {tensor.Buffer()} of {len(buffers)}")
    shape, dtype, data = _numbers(tensor.ShapeAsNumpy()), _DTYPES[kind], buffers[tensor.Buffer()]
    held = _constant(name, shape, dtype, data) if isinstance(data, np.ndarray) and data.size else None
    return Tensor(name, shape, dtype, _quant(tensor.Quantization()), held)


def _constant(name: str, shape: tuple[int, ...], dtype: str, data: Array) -> Array:
    count = prod(max(0, extent) for extent in shape)
    if count * np.dtype(dtype).itemsize != data.nbytes:
        raise ModelError(f"tensor '{name}'", f"has {data.nbytes} bytes of data for {dtype}{list(shape)}")
    return np.frombuffer(data, dtype).reshape(shape)


def _quant(quant: Any) -> Quant | None:
    scale = quant.ScaleAsNumpy() if quant is not None else 0
    if not isinstance(scale, np.ndarray) or not scale.size:
        return None
    zero_point = _numbers(quant.ZeroPointAsNumpy()) or (0,) * scale.size
    return Quant(tuple(float(s) for s in scale), zero_point, int(quant.QuantizedDimension()))


def _code(code: Any) -> str:
    number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())  # old files fill only the first
    if number == tflite.BuiltinOperator.CUSTOM:
        return f"custom operator '{_text(code.CustomCode())}'"
    return _OPERATORS.get(number, f"operator number {number}")


def _options(code: str, operator: Any) -> dict[str, Any]:
    if code not in _OPTIONS or operator.BuiltinOptions() is None:
        return {}
    kind, fields = _OPTIONS[code]
    table = kind()
    table.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    return {field: getattr(table, field)() for field in fields}


def verify(path: Path, graph: Graph, samples: Mapping[str, Array]) -> Verification:
    """Compare every tensor that `graph` computes in the rounding mode `litert` with the same tensor in LiteRT."""
    try:
        litert = import_module("ai_edge_litert.interpreter")
    except ImportError:
        return Verification("LiteRT", reason=f"{PACKAGE} is not installed; pip install {PACKAGE}")
    framework = f"LiteRT {version(PACKAGE)}"
    try:
        model = litert.Interpreter(
            str(path),
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
        model.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        return Verification(framework, reason=f"LiteRT cannot load the file: {str(error).splitlines()[0][:120]}")
    places = {tensor.name: index for index, tensor in enumerate(read(path).tensors)}

    def compare(sample: Mapping[str, Array], found: Comparison) -> None:
        for name, array in sample.items():
            model.set_tensor(places[name], array[0])
        model.invoke()
        reference.run(graph, sample, "litert", partial(_observe, model, places, found))

    return compared(framework, samples, compare)


def _observe(model: Any, places: Mapping[str, int], found: Comparison, site: Site, results: tuple[Array, ...]) -> None:
    for tensor, ours in zip(site.outputs, results, strict=True):
        theirs = model.get_tensor(places[tensor.name]).reshape(tensor.shape)
        if tensor.quant is None:
            steps = (ours[0].astype(np.float64) - theirs) / max(1e-30, float(np.abs(theirs).max(initial=0)))
            found.add(tensor.name, np.abs(steps) > REAL, steps)
        else:
            found.add_equal(tensor.name, ours[0], theirs)
