"""A TensorFlow Lite flatbuffer as plain records; whatever is wrong with the bytes is found here.

The file is untrusted. Python's flatbuffers has no verifier, so reads outside the buffer surface as Python
errors; all of them become one ModelError. Loops are bounded by the file's size, arrays are views of it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError
from tilewright.files import printable

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
#: Which options each operator has: the flatbuffer table and the fields that matter.
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


@dataclass(frozen=True, eq=False)
class RawTensor:
    """`data` is a view of the file's bytes (uint8), None for an activation."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int
    data: Array | None


@dataclass(frozen=True)
class RawOp:
    """An operator by its builtin name; tensor indices, -1 where optional and absent."""

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RawModel:
    """One subgraph; `inputs` and `outputs` are tensor indices."""

    tensors: tuple[RawTensor, ...]
    ops: tuple[RawOp, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read(path: Path) -> RawModel:
    """The records of the file's only subgraph. Raises ModelError, or UnsupportedError for control flow."""
    size = path.stat().st_size
    if not 8 <= size <= MAX_BYTES:
        raise ModelError(path, f"is {size} bytes long; a .tflite file has 8 to {MAX_BYTES}")
    content = path.read_bytes()
    if not tflite.Model.ModelBufferHasIdentifier(content, 0):
        raise ModelError(path, "is not a TensorFlow Lite model (no TFL3 mark)", "give a .tflite file")
    try:
        return _model(str(path), tflite.Model.GetRootAs(content, 0))
    except (struct.error, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
        raise ModelError(path, "is truncated or damaged: a table points outside the file", "export it again") from None


def _model(path: str, model: Any) -> RawModel:
    if model.SubgraphsLength() != 1:
        raise UnsupportedError(path, f"has {model.SubgraphsLength()} subgraphs; models with one are supported")
    graph = model.Subgraphs(0)
    buffers = [_buffer(model.Buffers(index)) for index in range(model.BuffersLength())]
    tensors = tuple(_tensor(path, graph.Tensors(index), index, buffers) for index in range(graph.TensorsLength()))
    codes = [_code(model.OperatorCodes(index)) for index in range(model.OperatorCodesLength())]
    ops = tuple(_op(graph.Operators(index), codes) for index in range(graph.OperatorsLength()))
    inputs, outputs = _indices(graph.InputsAsNumpy()), _indices(graph.OutputsAsNumpy())
    for index in {*inputs, *outputs, *(i for op in ops for i in (*op.inputs, *op.outputs))}:
        if not -1 <= index < len(tensors):
            raise ModelError(path, f"is damaged: it refers to tensor {index} of {len(tensors)}")
    if not ops or not inputs or not outputs or -1 in inputs or -1 in outputs:
        raise ModelError(path, "is damaged: it has no operators, inputs or outputs")
    return RawModel(tensors, ops, inputs, outputs)


def _indices(vector: Any) -> tuple[int, ...]:
    return tuple(int(index) for index in vector) if isinstance(vector, np.ndarray) else ()


def _buffer(buffer: Any) -> Array | None:
    data = buffer.DataAsNumpy()
    return data if isinstance(data, np.ndarray) and data.size else None


def _text(name: bytes | None) -> str:
    """A name as one printable line of bounded length."""
    return printable((name or b"")[:MAX_NAME].decode("utf-8", "replace"))


def _tensor(path: str, tensor: Any, index: int, buffers: list[Array | None]) -> RawTensor:
    name = _text(tensor.Name()) or f"tensor_{index}"
    kind = tensor.Type()
    if kind not in _DTYPES:
        raise UnsupportedError(path, f"tensor '{name}' has the element type number {kind}", "int8 models are supported")
    if tensor.ShapeLength() > MAX_RANK:
        raise UnsupportedError(path, f"tensor '{name}' has {tensor.ShapeLength()} axes; up to {MAX_RANK} are supported")
    if tensor.Sparsity() is not None:
        raise UnsupportedError(path, f"tensor '{name}' is stored sparse", "export it dense")
    if not 0 <= tensor.Buffer() < len(buffers):
        raise ModelError(path, f"is damaged: tensor '{name}' refers to buffer {tensor.Buffer()} of {len(buffers)}")
    scale, zero_point, axis = _quantization(tensor.Quantization())
    return RawTensor(
        name, _indices(tensor.ShapeAsNumpy()), _DTYPES[kind], scale, zero_point, axis, buffers[tensor.Buffer()]
    )


def _quantization(quant: Any) -> tuple[tuple[float, ...], tuple[int, ...], int]:
    scale = quant.ScaleAsNumpy() if quant is not None else 0
    if not isinstance(scale, np.ndarray) or not scale.size:
        return (), (), 0
    return tuple(float(s) for s in scale), _indices(quant.ZeroPointAsNumpy()), int(quant.QuantizedDimension())


def _code(code: Any) -> str:
    number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())  # old files fill only the former
    if number == tflite.BuiltinOperator.CUSTOM:
        return f"custom operator '{_text(code.CustomCode())}'"
    return _OPERATORS.get(number, f"operator number {number}")


def _op(op: Any, codes: list[str]) -> RawOp:
    code = codes[op.OpcodeIndex()]
    options: dict[str, Any] = {}
    if code in _OPTIONS and op.BuiltinOptions() is not None:
        kind, fields = _OPTIONS[code]
        table = kind()
        table.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        options = {field: getattr(table, field)() for field in fields}
    return RawOp(code, _indices(op.InputsAsNumpy()), _indices(op.OutputsAsNumpy()), options)
