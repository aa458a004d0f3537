"""Reads the tables of a `.tflite` file: tensors, operators with their options, and constants.

The file is untrusted. Python's flatbuffers has no verifier, so reads outside the buffer raise various Python errors;
all of them become a ModelError. The file's size bounds every loop, and arrays are views of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import tflite

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError, printable
from tilewright.graph import ops
from tilewright.graph.ir import State, fresh_name
from tilewright.graph.rounding import Activation
from tilewright.graph.tensor import DTYPES, MAX_COMPUTED, Named, Quant, Tensor
from tilewright.model.tflite_sparse import dense

MAX_BYTES = 1 << 31  # flatbuffers' own limit
MAX_RANK = 8
MAX_NAME = 1 << 10
MAX_SUBGRAPHS = 1 << 8

#: The names of all element types of the format. Operators support only the types in DTYPES.
_DTYPES = {code: name.lower() for name, code in vars(tflite.TensorType).items() if isinstance(code, int)}
_CONSTANT_TYPES = ("float32", "float16", "int32", "uint8", "int64", "int16", "int8", "bool", "float64")
_OPERATORS = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}

#: The names of the tables for options of operators.
_OPTIONS = {code: name for name, code in vars(tflite.BuiltinOptions).items() if isinstance(code, int)}
_ACTIVATIONS: dict[int, Activation] = {0: "none", 1: "relu", 2: "relu_n1_to_1", 3: "relu6"}

#: MediaPipe's custom operator: a TRANSPOSE_CONV with a bias (mediapipe/util/tflite/operations/transpose_conv_bias.cc).
TRANSPOSE_BIAS = "custom operator 'Convolution2DTransposeBias'"
HOW_TO_QUANTISE = (
    "quantise it to int8: TFLiteConverter with optimizations=[Optimize.DEFAULT], a representative_dataset and "
    "target_spec.supported_ops=[OpsSet.TFLITE_BUILTINS_INT8]; or give the float model to `tilewright quantize`"
)


@dataclass(frozen=True)
class Call(Named):
    """An operator of a file: its builtin name `code`, options, and the tensors it reads and writes (None: absent).

    `intermediates` describe values inside the operator.
    """

    name: str
    code: str
    options: Mapping[str, Any]
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    intermediates: tuple[Tensor | None, ...] = ()

    def option(self, field: str, default: Any = 0) -> Any:
        return self.options.get(field, default)

    @property
    def activation(self) -> Activation:
        """The fused activation. Raises UnsupportedError for activations that are not in _ACTIVATIONS."""
        code = self.option("FusedActivationFunction")
        self.refuse_if(code not in _ACTIVATIONS, f"has the unsupported fused activation number {code}")
        return _ACTIVATIONS[code]

    @property
    def output(self) -> Tensor:
        """The first output. Raises ModelError if the operator has no output."""
        tensor = self.outputs[0] if self.outputs else None
        if tensor is None:
            raise ModelError(self.where, f"{self.code} has no output")
        return tensor

    def optional(self, index: int) -> Tensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def tensor(self, index: int) -> Tensor:
        """Return the tensor of the required input `index`. Raises ModelError if this input is absent."""
        tensor = self.optional(index)
        if tensor is None:
            raise ModelError(self.where, f"{self.code} lacks its input {index}")
        return tensor

    def constant(self, index: int) -> Array:
        """Return the values of input `index`. Raises UnsupportedError if this input is not constant."""
        data = self.tensor(index).data
        if data is None:
            raise UnsupportedError(self.where, f"{self.code} takes input {index} at run time; it must be constant")
        return data

    def numbers(self, index: int) -> list[int]:
        """Return the integers of constant input `index`. Raises ModelError if the input has no integers."""
        values = self.constant(index).reshape(-1)
        if values.dtype.kind not in "iu" or not values.size:
            raise ModelError(self.where, f"{self.code} has an input {index} of {values.dtype}, not integers")
        return [int(number) for number in values]

    def axis(self, axis: int, extra: int = 0) -> int:
        """Return an axis of the first output or input, counted from 0. Raises ModelError if the axis does not exist."""
        rank = len(self.tensor(0).shape) + extra
        self.fail_if(not -rank <= axis < rank, f"{self.code} has the axis {axis}; there are {rank} axes")
        return axis % rank

    def window(self, kernel: tuple[int, int], size: tuple[int, int] | None = None) -> ops.Window:
        """Return the window for an image of `size` (rows, columns) [default: the size of input 0].

        Raises ModelError if input 0 is not an image, or the window is impossible.
        """
        if size is None:
            shape = self.tensor(0).shape
            self.fail_if(len(shape) != 4, f"{self.code} has an input of shape {list(shape)}, not four axes")
            size = shape[1], shape[2]
        stride = (self.option("StrideH", 1), self.option("StrideW", 1))
        dilation = (self.option("DilationHFactor", 1), self.option("DilationWFactor", 1))
        if min(*kernel, *stride, *dilation) < 1 or max(*kernel, *stride, *dilation) > 1 << 15:
            raise ModelError(self.where, f"has an impossible kernel {kernel}, stride {stride} or dilation {dilation}")
        if self.option("Padding") == 1:
            return ops.Window(kernel, stride, (0, 0, 0, 0), dilation)
        return ops.Window.same(size, kernel, stride, dilation)


class Subgraph(NamedTuple):
    """A subgraph of a `.tflite` file: tensors by index, operators, and the names of inputs and outputs.

    `variables` are the names of the tensors that keep their values from one run to the next.
    """

    tensors: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    variables: frozenset[str]


def read(path: Path) -> tuple[Subgraph, ...]:
    """Return a file's subgraphs; the first is the network. Raises ModelError if the file is damaged."""
    size = path.stat().st_size
    if not 8 <= size <= MAX_BYTES:
        raise ModelError(path, f"is {size} bytes long; a .tflite file has 8 to {MAX_BYTES} bytes")
    content = path.read_bytes()
    if not tflite.Model.ModelBufferHasIdentifier(content, 0):
        raise ModelError(path, "is not a TensorFlow Lite model (no TFL3 mark)", "give a .tflite file")
    try:
        model = tflite.Model.GetRootAs(content, 0)
        count = model.SubgraphsLength()
        if not 1 <= count <= MAX_SUBGRAPHS:
            raise ModelError(path, f"has {count} subgraphs; 1 to {MAX_SUBGRAPHS} are possible")
        buffers = [model.Buffers(index).DataAsNumpy() for index in range(model.BuffersLength())]
        codes = [_code(model.OperatorCodes(index)) for index in range(model.OperatorCodesLength())]
        subgraphs = tuple(_subgraph(path, model.Subgraphs(index), buffers, codes) for index in range(count))
    except (struct.error, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
        raise ModelError(path, "is truncated or damaged: a table points outside the file", "export it again") from None
    if not subgraphs[0].calls or not subgraphs[0].inputs or not subgraphs[0].outputs:
        raise ModelError(path, "is damaged: it has no operators, inputs or outputs")
    return subgraphs


def _subgraph(path: Path, graph: Any, buffers: Sequence[Any], codes: Sequence[str]) -> Subgraph:
    # Every index in the file is checked before it is used: -1 means an absent tensor.
    names = set[str]()
    tensors = tuple(_tensor(path, graph.Tensors(i), i, buffers, names) for i in range(graph.TensorsLength()))
    operators = [graph.Operators(index) for index in range(graph.OperatorsLength())]
    ends = _ends(graph)
    used = {i for table in (graph, *operators) for side in _ends(table) for i in side}
    if outside := used - set(range(-1, len(tensors))):
        raise ModelError(path, f"is damaged: it refers to tensor {min(outside)} but has {len(tensors)} tensors")
    if -1 in ends[0] + ends[1]:
        raise ModelError(path, "is damaged: an input or output of the network is missing")
    calls = []
    for index, operator in enumerate(operators):
        code = codes[operator.OpcodeIndex()]
        inside = [i for i in _numbers(operator.IntermediatesAsNumpy()) if -1 <= i < len(tensors)]
        sides = (tuple(tensors[i] if i >= 0 else None for i in side) for side in (*_ends(operator), inside))
        call = Call(f"{code}_{index}", code, _options(operator), *sides)
        calls.append(_as_transpose_conv(call, operator) if code == TRANSPOSE_BIAS else call)
    inputs, outputs = (tuple(tensors[i].name for i in side) for side in ends)
    variables = frozenset(tensor.name for i, tensor in enumerate(tensors) if graph.Tensors(i).IsVariable())
    return Subgraph(tensors, tuple(calls), inputs, outputs, variables)


def _as_transpose_conv(call: Call, operator: Any) -> Call:
    # The options are a C struct of 32-bit integers: padding (1: SAME, 2: VALID), stride of columns, stride of rows.
    content = operator.CustomOptionsAsNumpy()
    if not isinstance(content, np.ndarray) or content.size < 12 or len(call.inputs) != 3:
        raise ModelError(call.where, f"{call.code} has {len(call.inputs)} inputs, not 3, or lacks its options")
    padding, right, down = (int(word) for word in np.frombuffer(content[:12].tobytes(), "<i4"))
    call.fail_if(padding not in (1, 2), f"{call.code} has the padding number {padding}, not 1 or 2")
    x, w, bias = call.inputs
    options = {"Padding": padding - 1, "StrideH": down, "StrideW": right}
    name = call.name.replace(TRANSPOSE_BIAS, "Convolution2DTransposeBias")
    return replace(call, name=name, code="TRANSPOSE_CONV", options=options, inputs=(None, w, x, bias))


def _ends(table: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return _numbers(table.InputsAsNumpy()), _numbers(table.OutputsAsNumpy())


def _numbers(vector: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in vector) if isinstance(vector, np.ndarray) else ()


def _text(name: bytes | None) -> str:
    return printable((name or b"")[:MAX_NAME].decode("utf-8", "replace"))


def _tensor(path: Path, tensor: Any, index: int, buffers: Sequence[Any], names: set[str]) -> Tensor:
    """Return the graph's tensor for tensor `index` of the file, with a name that is not in `names`."""
    name = _text(tensor.Name()) or f"tensor_{index}"
    while name in names:
        name = f"{name}:{index}"
    names.add(name)
    dtype = _DTYPES.get(tensor.Type(), f"of type number {tensor.Type()}")
    if tensor.ShapeLength() > MAX_RANK:
        raise UnsupportedError(path, f"tensor '{name}' has {tensor.ShapeLength()} axes; up to {MAX_RANK} are supported")
    if not 0 <= tensor.Buffer() < len(buffers):
        raise ModelError(path, f"is damaged: tensor '{name}' refers to buffer {tensor.Buffer()} of {len(buffers)}")
    shape = _numbers(tensor.ShapeAsNumpy())
    data = buffers[tensor.Buffer()]
    constant = isinstance(data, np.ndarray) and data.size and dtype in _CONSTANT_TYPES
    quant = _quant(tensor.Quantization())
    if quant is not None and len(shape) == 1:  # TFLite ignores the axis of a vector, which is arbitrary in files
        quant = replace(quant, axis=0)
    return Tensor(
        name, shape, dtype, quant, _constant(name, shape, dtype, data, tensor.Sparsity()) if constant else None
    )


def _constant(name: str, shape: tuple[int, ...], dtype: str, data: Array, sparsity: Any) -> Array:
    if sparsity is not None:
        return dense(name, shape, dtype, data, sparsity)
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
    number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())  # old files have only the deprecated field
    if number == tflite.BuiltinOperator.CUSTOM:
        return f"custom operator '{_text(code.CustomCode())}'"
    return _OPERATORS.get(number, f"operator number {number}")


def _options(operator: Any) -> dict[str, Any]:
    # Each table of options is a class of flatbuffers, and each field is a method. Methods with an argument (the index
    # in an array) are left out.
    kind = getattr(tflite, _OPTIONS.get(operator.BuiltinOptionsType(), ""), None)
    if kind is None or operator.BuiltinOptions() is None:
        return {}
    table = kind()
    table.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    getters = {name: member for name, member in vars(kind).items() if isinstance(member, FunctionType)}
    return {name: getter(table) for name, getter in getters.items() if getter.__code__.co_argcount == 1}


# A network may keep values from one run to the next, in two forms. Resource variables are named by VAR_HANDLE, and read
# and written by READ_VARIABLE and ASSIGN_VARIABLE. CALL_ONCE runs a subgraph that assigns their initial values.
# Variable tensors belong to one LSTM, and their initial values are zeros (the codes of zero).

STATEFUL = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")
#: A resource variable: its container and name.
Key = tuple[bytes | None, bytes | None]


class Variables:
    """The variables of a network, followed through its operators in the order of the file.

    The first READ_VARIABLE of a variable makes its output the source of a state. For a later READ_VARIABLE, the output
    is an alias of the last assigned tensor, or of the source if nothing was assigned. New tensors are added to
    `tensors`.

    `handles` has the variable of each handle tensor. `initial`, `sources` and `current` have, for each variable, the
    initial value, the source, and the tensor with the current value. `aliases` maps each alias to its tensor.
    `operator_states` are the states of variable tensors.
    """

    def __init__(self, file: Sequence[Subgraph], tensors: dict[str, Tensor]) -> None:
        self.file = file
        self.tensors = tensors
        self.names = set(tensors)
        self.handles: dict[str, Key] = {}
        self.initial: dict[Key, Tensor] = {}
        self.current: dict[Key, str] = {}
        self.sources: dict[Key, str] = {}
        self.aliases: dict[str, str] = {}
        self.operator_states: list[State] = []

    def value(self, name: str) -> str:
        return self.aliases.get(name, name)

    def follow(self, call: Call) -> None:
        """Follow one of the operators in STATEFUL. Raises ModelError if the operator is malformed."""
        if call.code == "CALL_ONCE":
            self._initialise(call)
        elif call.code == "VAR_HANDLE":
            self.handles[call.output.name] = _key(call)
        elif call.code == "READ_VARIABLE":
            self._read(call)
        else:
            self.current[self._variable(call)] = self.value(call.tensor(1).name)

    def states(self) -> tuple[State, ...]:
        """Return the states of the network. Raises ModelError if a variable has no initial value."""
        states = list(self.operator_states)
        for key, source in self.sources.items():
            if key not in self.initial:
                raise ModelError(f"tensor '{source}'", "is a variable that nothing initialises")
            states.append(State(source, self.current[key], self._add_initial(source, self.initial[key])))
        return tuple(states)

    def states_of(self, call: Call, tensors: Sequence[Tensor]) -> tuple[str, ...]:
        """Add a tensor for the new value of each variable tensor of an operator. Return the names of the new tensors.

        Raises ModelError if a tensor is not variable, UnsupportedError if its type or size is not supported.
        """
        names = []
        for tensor in tensors:
            unkept = tensor.name not in self.file[0].variables
            call.fail_if(unkept, f"has the state '{tensor.name}', which is not a variable tensor")
            wrong = tensor.dtype not in DTYPES or min(tensor.shape, default=1) < 1 or tensor.size > MAX_COMPUTED
            call.refuse_if(wrong, f"has the state '{tensor.name}' of {tensor.dtype}{list(tensor.shape)}")
            zero = tensor.quant.zero_point[0] if tensor.quant else 0
            start = replace(tensor, data=np.full(tensor.shape, zero, np.int64).astype(tensor.dtype))
            name = fresh_name(f"{tensor.name}:next", self.names)
            self.tensors[name] = replace(tensor, name=name, data=None)
            self.operator_states.append(State(tensor.name, name, self._add_initial(tensor.name, start)))
            self.aliases[tensor.name] = name
            names.append(name)
        return tuple(names)

    def _add_initial(self, source: str, value: Tensor) -> str:
        name = fresh_name(f"{source}:initial", self.names)
        self.tensors[name] = replace(value, name=name, quant=self.tensors[source].quant)
        return name

    def _variable(self, call: Call) -> Key:
        name = call.tensor(0).name
        call.fail_if(name not in self.handles, f"{call.code} takes '{name}', which no VAR_HANDLE gives")
        return self.handles[name]

    def _read(self, call: Call) -> None:
        key = self._variable(call)
        tensor = call.output
        if key not in self.current:
            self.current[key] = self.sources[key] = tensor.name
            return
        assigned = self.tensors[self.current[key]]
        differs = (assigned.shape, assigned.dtype, assigned.quant) != (tensor.shape, tensor.dtype, tensor.quant)
        call.refuse_if(differs, "reads a variable with another shape, type or scale than was assigned")
        self.aliases[tensor.name] = assigned.name

    def _initialise(self, call: Call) -> None:
        index = call.option("InitSubgraphIndex", 0)
        call.fail_if(not 1 <= index < len(self.file), f"calls subgraph {index} of {len(self.file)}")
        handles: dict[str, Key] = {}
        for step in self.file[index].calls:
            if step.code == "VAR_HANDLE":
                handles[step.output.name] = _key(step)
            elif step.code == "ASSIGN_VARIABLE" and step.tensor(0).name in handles:
                step.constant(1)
                self.initial[handles[step.tensor(0).name]] = step.tensor(1)
            else:
                raise UnsupportedError(call.where, f"initialises variables with {step.code}", "use constants")


def _key(call: Call) -> Key:
    return call.option("Container", None), call.option("SharedName", None)
