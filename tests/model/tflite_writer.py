"""Writes small .tflite files for tests, and runs them in LiteRT and TFLite Micro."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from tilewright.array import Array
from tilewright.model.tflite_file import read
from tilewright.model.tflite_verify import in_tflite_micro

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")

#: The first version of each operator that takes the types which the tests use, where it is not 1.
VERSIONS = {
    "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "ADD": 2, "SUB": 2, "MUL": 2, "SOFTMAX": 2, "PAD": 2,
    "MAX_POOL_2D": 2, "AVERAGE_POOL_2D": 2, "CONCATENATION": 2, "LOGISTIC": 2, "TANH": 2, "LEAKY_RELU": 2, "MEAN": 2,
    "TRANSPOSE_CONV": 3, "STRIDED_SLICE": 2, "TRANSPOSE": 2, "SPLIT": 2, "SPLIT_V": 2, "PACK": 2, "QUANTIZE": 2,
    "REDUCE_PROD": 2, "TILE": 2,
    "RESIZE_NEAREST_NEIGHBOR": 2, "UNIDIRECTIONAL_SEQUENCE_LSTM": 2, "DEQUANTIZE": 2, "SLICE": 2,
}  # fmt: skip


@dataclass
class Quantised:
    """Scales and zero points, along one axis if there are several."""

    scale: Sequence[float] | float
    zero: Sequence[int] | int = 0
    axis: int = 0


@dataclass
class Subgraph:
    tensors: list[Any] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


class Writer:
    """A .tflite file in the making. Tensors are numbered from 0 in each subgraph; subgraph 0 is the network."""

    def __init__(self) -> None:
        self.buffers: list[Any] = [schema.BufferT()]
        self.codes: list[str] = []
        self.graphs = [Subgraph()]

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "int8",
        quant: Quantised | None = None,
        data: Array | None = None,
        graph: int = 0,
        variable: bool = False,
    ) -> int:
        made, graph_ = schema.TensorT(), self.graphs[graph]
        made.name, made.shape, made.isVariable = f"t{graph}_{len(graph_.tensors)}", list(shape), variable
        made.type, made.buffer = getattr(schema.TensorType, dtype.upper()), 0
        if data is not None:
            held = schema.BufferT()
            held.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            made.buffer = len(self.buffers)
            self.buffers.append(held)
        if quant is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = np.atleast_1d(np.array(quant.scale, np.float32))
            made.quantization.zeroPoint = np.broadcast_to(np.array(quant.zero, np.int64), made.quantization.scale.shape)
            made.quantization.quantizedDimension = quant.axis
        graph_.tensors.append(made)
        return len(graph_.tensors) - 1

    def constant(self, data: Array, quant: Quantised | None = None, graph: int = 0) -> int:
        return self.tensor(data.shape, str(data.dtype), quant, data, graph)

    def op(
        self,
        code: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        graph: int = 0,
        intermediates: Sequence[int] = (),
        custom: bytes = b"",
        **values: Any,
    ) -> None:
        made = schema.OperatorT()
        if code not in self.codes:
            self.codes.append(code)
        made.opcodeIndex, made.inputs, made.outputs = self.codes.index(code), list(inputs), list(outputs)
        made.intermediates = list(intermediates) or None
        made.customOptions = list(custom) or None
        if options:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            made.builtinOptions = getattr(schema, f"{options}T")()
            for name, value in values.items():
                assert hasattr(made.builtinOptions, name), name
                setattr(made.builtinOptions, name, value)
        self.graphs[graph].operators.append(made)

    def written(self, path: Path, inputs: Sequence[int], outputs: Sequence[int]) -> Path:
        model = schema.ModelT()
        model.version, model.buffers, model.subgraphs, model.operatorCodes = 3, self.buffers, [], []
        self.graphs[0].inputs, self.graphs[0].outputs = list(inputs), list(outputs)
        for graph in self.graphs:
            made = schema.SubGraphT()
            made.tensors, made.operators = graph.tensors, graph.operators
            made.inputs, made.outputs = graph.inputs, graph.outputs
            model.subgraphs.append(made)
        for code in self.codes:
            known = schema.OperatorCodeT()
            number = getattr(schema.BuiltinOperator, code, schema.BuiltinOperator.CUSTOM)
            known.customCode = code if number == schema.BuiltinOperator.CUSTOM else None
            known.builtinCode, known.deprecatedBuiltinCode, known.version = (
                number,
                min(number, 127),
                VERSIONS.get(code, 1),
            )
            model.operatorCodes.append(known)
        builder = flatbuffers.Builder(1 << 12)
        builder.Finish(model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return path


def litert(path: Path, mode: str = "litert") -> Any:
    """An interpreter of LiteRT: its reference kernels, or as it runs by default (`xnnpack`)."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    kinds = interpreter.OpResolverType
    kind = kinds.BUILTIN_REF if mode == "litert" else kinds.AUTO
    made = interpreter.Interpreter(str(path), experimental_op_resolver_type=kind, num_threads=1)
    made.allocate_tensors()
    return made


def run_litert(path: Path, samples: Mapping[int, Array], mode: str = "litert", reset: bool = False) -> list[Array]:
    """The outputs, each (S, *shape), for `samples` {input position: (S, *shape)} that are fed one after another."""
    model = litert(path, mode)
    rows: list[list[Array]] = []
    for index in range(len(next(iter(samples.values())))):
        if reset:
            model.reset_all_variables()
        for position, detail in enumerate(model.get_input_details()):
            model.set_tensor(detail["index"], samples[position][index])
        model.invoke()
        rows.append([model.get_tensor(detail["index"]) for detail in model.get_output_details()])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def run_tflm(path: Path, samples: Mapping[int, Array], reset: bool = False) -> list[Array]:
    """As `run_litert`, in TFLite Micro."""
    pytest.importorskip("tflite_micro.python.tflite_micro.runtime", reason="pip install tflite-micro")
    network = read(path)[0]
    golden = in_tflite_micro(path, {name: samples[i] for i, name in enumerate(network.inputs)}, reset)
    assert golden is not None, "TFLite Micro does not run the file"
    return [golden[name] for name in network.outputs]
