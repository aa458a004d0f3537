"""A TensorFlow Lite int8 model as a Graph, its quantisation kept exactly; and that graph compared with LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph import ops, reference
from tilewright.graph.ir import MAX_ELEMENTS, Graph, Named, Node, Quant, Site, Tensor
from tilewright.graph.rounding import Activation
from tilewright.model.tflite_file import RawModel, RawOp, RawTensor, read
from tilewright.model.verification import Comparison, Verification, compared

_ACTIVATIONS: dict[int, Activation] = {0: "none", 1: "relu", 2: "relu_n1_to_1", 3: "relu6"}

HOW_TO_QUANTISE = (
    "quantise it to int8: TFLiteConverter with optimizations=[Optimize.DEFAULT], a representative_dataset and "
    "target_spec.supported_ops=[OpsSet.TFLITE_BUILTINS_INT8]"
)

PACKAGE = "ai-edge-litert"
#: A softmax over real numbers and its like may differ in the last bit.
REAL = 1e-6


def load(path: Path) -> Graph:
    """The validated graph of a `.tflite` file.

    Raises ModelError for a damaged file and UnsupportedError for an operator, type or feature that no
    reference exists for; nothing is skipped.
    """
    raw = read(path)
    try:
        return _Builder(path, raw).graph().validate()
    except (ModelError, UnsupportedError) as error:
        raise error.within(path) from None


@dataclass(frozen=True)
class _Call(Named):
    """One operator while it is translated: its name, its options and the tensors it reads and writes."""

    name: str
    raw: RawOp
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]

    def option(self, field: str, default: Any = 0) -> Any:
        return self.raw.options.get(field, default)

    @property
    def activation(self) -> Activation:
        code = self.option("FusedActivationFunction")
        if code not in _ACTIVATIONS:
            raise UnsupportedError(self.where, f"has the fused activation number {code}")
        return _ACTIVATIONS[code]

    def tensor(self, index: int) -> Tensor:
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise ModelError(self.where, f"{self.raw.code} lacks its input {index}")
        return tensor

    def constant(self, index: int) -> Array:
        data = self.tensor(index).data
        if data is None:
            raise UnsupportedError(
                self.where, f"{self.raw.code} takes input {index} at run time; a constant is supported"
            )
        return data

    def window(self, kernel: tuple[int, int]) -> ops.Window:
        shape = self.tensor(0).shape
        if len(shape) != 4:
            raise ModelError(self.where, f"{self.raw.code} has an input of shape {list(shape)}, not four axes")
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
        raise UnsupportedError(call.where, "has shuffled weights", "export it with the default weights format")
    return ops.FullyConnected(call.activation, bool(call.option("KeepNumDims", False)))


def _pool(kind: type[ops.AveragePool2D] | type[ops.MaxPool2D]) -> Callable[[_Call], ops.Op]:
    return lambda call: kind(
        call.window((int(call.option("FilterHeight", 1)), int(call.option("FilterWidth", 1)))), call.activation
    )


def _mean(call: _Call) -> ops.Op:
    rank = len(call.tensor(0).shape)
    axes = {int(axis) for axis in call.constant(1).reshape(-1)}
    if not axes <= set(range(-rank, rank)):
        raise ModelError(call.where, f"reduces over axes {sorted(axes)} of {rank}")
    return ops.Mean(tuple(sorted({axis % rank for axis in axes})), bool(call.option("KeepDims", False)))


def _pad(call: _Call) -> ops.Op:
    pairs = call.constant(1)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.min(initial=0) < 0 or pairs.max(initial=0) > MAX_ELEMENTS:
        raise ModelError(call.where, f"has the padding {pairs.tolist()}; (before, after) for each axis is required")
    value = int(call.constant(2).reshape(-1)[0]) if call.raw.code == "PADV2" else None
    return ops.Pad(tuple((int(before), int(after)) for before, after in pairs), value)


#: Operator -> its translation, and which inputs stay tensors of the graph (None: all).
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
    "RESHAPE": (lambda call: ops.Reshape(call.outputs[0].shape), 1),
    "PAD": (_pad, 1),
    "PADV2": (_pad, 1),
    "CONCATENATION": (lambda call: ops.Concat(int(call.option("Axis", -1)), call.activation), None),
    "SOFTMAX": (lambda call: ops.Softmax(float(call.option("Beta", 1.0))), 1),
    "QUANTIZE": (lambda call: ops.Quantize(), 1),
    "DEQUANTIZE": (lambda call: ops.Dequantize(), 1),
}


def names(raw: RawModel) -> list[str]:
    """The name of each tensor of the file, by its index; repeated names are made unique."""
    found: dict[str, None] = {}
    for index, tensor in enumerate(raw.tensors):
        name = tensor.name
        while name in found:
            name = f"{name}:{index}"
        found[name] = None
    return list(found)


class _Builder:
    """Translates the operators in order."""

    def __init__(self, path: Path, raw: RawModel) -> None:
        self.path, self.raw = path, raw
        self.names = names(raw)
        self.tensors = {name: _tensor(name, t) for name, t in zip(self.names, raw.tensors, strict=True)}

    def graph(self) -> Graph:
        nodes = tuple(self._node(index, op) for index, op in enumerate(self.raw.ops))
        inputs = tuple(self.names[index] for index in self.raw.inputs)
        outputs = tuple(self.names[index] for index in self.raw.outputs)
        return Graph(self.path.stem, self.tensors, nodes, inputs, outputs).pruned()

    def _node(self, index: int, raw: RawOp) -> Node:
        if raw.code not in _TRANSLATE:
            raise UnsupportedError(
                f"op {index}", f"{raw.code} is not supported", f"supported are {', '.join(sorted(_TRANSLATE))}"
            )
        translate, arity = _TRANSLATE[raw.code]
        inputs = tuple(self.names[i] if i >= 0 else "" for i in raw.inputs)
        if not inputs or len(raw.outputs) != 1 or raw.outputs[0] < 0:
            raise ModelError(f"op {index}", f"{raw.code} has {len(inputs)} inputs and {len(raw.outputs)} outputs")
        output = self.tensors[self.names[raw.outputs[0]]]
        call = _Call(f"{raw.code}_{index}", raw, tuple(self.tensors.get(name) for name in inputs), (output,))
        self._check_types(call)
        op = translate(call)
        return Node(f"{op.kind}_{index}", op, inputs[:arity], (output.name,))

    def _check_types(self, call: _Call) -> None:
        for role, tensor, edge in (("input", call.tensor(0), "QUANTIZE"), ("output", call.outputs[0], "DEQUANTIZE")):
            if tensor.dtype == "float32" and call.raw.code == edge:
                continue
            if tensor.dtype != "int8" or tensor.quant is None:
                lacks = "has no quantisation parameters" if tensor.dtype == "int8" else f"is {tensor.dtype}, not int8"
                raise UnsupportedError(call.where, f"its {role} '{tensor.name}' {lacks}", HOW_TO_QUANTISE)
        if call.raw.code in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            weights = call.tensor(1)
            if weights.dtype != "int8" or weights.data is None or weights.quant is None:
                origin = "computed" if weights.data is None else "constant"
                reason = f"its weights are {origin} {weights.dtype}; constant int8 is supported"
                raise UnsupportedError(call.where, reason, HOW_TO_QUANTISE)


def _tensor(name: str, raw: RawTensor) -> Tensor:
    quant = None
    if raw.scale:
        zero_point = raw.zero_point or (0,) * len(raw.scale)
        quant = Quant(raw.scale, zero_point, raw.axis)
    return Tensor(name, raw.shape, raw.dtype, quant, _constant(name, raw))


def _constant(name: str, raw: RawTensor) -> Array | None:
    if raw.data is None:
        return None
    dtype = np.dtype(raw.dtype)
    count = prod(max(0, extent) for extent in raw.shape)
    if count * dtype.itemsize != raw.data.nbytes:
        raise ModelError(f"tensor '{name}'", f"has {raw.data.nbytes} bytes of data for {raw.dtype}{list(raw.shape)}")
    return np.frombuffer(raw.data, dtype).reshape(raw.shape)


def verify(path: Path, graph: Graph, samples: Mapping[str, Array]) -> Verification:
    """Compare every tensor of `graph` under the rounding mode `litert` with LiteRT's, sample by sample."""
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
        return Verification(framework, reason=f"LiteRT does not take the file: {str(error).splitlines()[0][:120]}")
    places = {name: index for index, name in enumerate(names(read(path)))}

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
