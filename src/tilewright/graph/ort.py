"""Runs one ONNX operator: onnx infers its output types, onnxruntime computes its values.

Both packages are imported at first use. A `Call` may come from a damaged file, so its attributes and sizes are checked
before they reach these packages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError, printable
from tilewright.graph.tensor import DTYPES, INT4, MAX_COMPUTED, Named
from tilewright.install import hint

#: The domain of onnxruntime's own operators.
MICROSOFT = "com.microsoft"
DOMAINS = ("", MICROSOFT)
MAX_OPSET = 30
#: Shape inference gets constants up to this number of elements, which includes all shapes, axes and sizes.
SMALL = 1 << 10
#: Constants up to this size in bytes are built into a session.
MAX_INSIDE = 1 << 28
#: Limits of the session cache: the sessions, and the bytes of their constants.
MAX_SESSIONS = 1 << 11
MAX_SESSION_BYTES = 1 << 30
#: Alignment of inputs in bytes: a cache line, and the widest vector of x86-64.
ALIGNMENT = 64
#: These attributes are divisors or step sizes in kernels, so their values must be positive.
_STEPS = frozenset(("strides", "kernel_shape", "dilations", "blocksize", "group"))
#: In these attributes, the largest integer means "to the end".
_OPEN = frozenset(("starts", "ends"))
_IR_VERSION = 10
#: Before this opset, shape inference with `ceil_mode` counts windows that begin outside the image. Runtimes do not.
POOL_OPSET = 22
_POOLS = ("MaxPool", "AveragePool", "LpPool")
_ORT_TYPES = {f"tensor({name})": name for name in DTYPES} | {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
}


@dataclass(frozen=True)
class ValueType:
    """The type of a tensor: its dtype (one of graph.ir.DTYPES) and its shape."""

    dtype: str
    shape: tuple[int, ...]


def type_of(value: Array) -> ValueType:
    return ValueType(value.dtype.name, value.shape)


@dataclass(frozen=True)
class Call(Named):
    """An ONNX operator to run. Attributes are pairs (name, JSON text). The type of an absent input is None."""

    name: str
    op_type: str
    domain: str
    opset: int
    attributes: tuple[tuple[str, str], ...]
    inputs: tuple[ValueType | None, ...]
    outputs: int


def package(name: str) -> Any:
    """Import and return `onnx` or `onnxruntime`. Raises UnsupportedError if the package is not installed."""
    try:
        return import_module(name)
    except ImportError:
        reason = f"the package {name} is not installed"
        raise UnsupportedError("ONNX", reason, hint("onnx")) from None


def least_outputs(op_type: str, domain: str, opset: int) -> int:
    """Return the smallest number of outputs of an operator; 0 if onnx does not know the operator."""
    onnx = package("onnx")
    try:
        return max(1, int(onnx.defs.get_schema(op_type, opset, domain).min_output))
    except Exception:  # onnx's own SchemaError
        return 0


def session(model: Any, **settings: Any) -> Any:
    """Return an onnxruntime session that runs the nodes of `model` without graph optimisations and without a log."""
    runtime = package("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # no log, because errors are raised as exceptions
    for name, value in settings.items():
        setattr(options, name, value)
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


#: Cached results of `infer`. With constants, the types depend on their values, so such calls are not cached.
_INFERRED: dict[tuple[Call, int], tuple[ValueType, ...]] = {}


def infer(call: Call, constants: Mapping[int, Array], limit: int = MAX_COMPUTED) -> tuple[ValueType, ...]:
    """Return the output types of a call. `constants` has its small constant inputs, {position: array}.

    Raises ModelError if the operator does not accept the inputs, or if an output has more than `limit` elements.
    Raises UnsupportedError if onnx does not know the operator, or if an output shape depends on run-time values.
    """
    onnx = package("onnx")
    if call.domain != "":
        return _types_by_session(call)
    key = replace(call, name=""), limit
    if not constants and key in _INFERRED:
        return _INFERRED[key]
    unknown = not least_outputs(call.op_type, call.domain, call.opset)
    call.refuse_if(unknown, f"ONNX has no {call.op_type} in opset {call.opset}", "check its opset")
    if call.op_type in _POOLS:
        call = _pool(call)
    model = _model(call, None, constants)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=False)
    except Exception as error:  # onnx raises several exception types of its own
        raise ModelError(call.where, f"{call.op_type} is not valid: {one_line(error)}") from None
    by_name = {value.name: value.type for value in inferred.graph.output}
    types = tuple(_declared_type(call, by_name.get(f"y{index}"), limit) for index in range(call.outputs))
    if not constants and len(_INFERRED) < MAX_SESSIONS:
        _INFERRED[key] = types
    return types


def _pool(call: Call) -> Call:
    """Return the call of a pool, in a later opset if onnx infers a wrong output shape in the given opset.

    Raises UnsupportedError if the pool combines dilations and SAME padding.
    """
    attributes = {name: _attribute(call, name, text) for name, text in call.attributes}
    dilations = attributes.get("dilations", [])
    unsupported = str(attributes.get("auto_pad")).startswith("SAME") and any(d != 1 for d in np.atleast_1d(dilations))
    reason = "has dilations and auto_pad: onnxruntime ignores dilations when it computes the padding"
    call.refuse_if(unsupported, reason, "export the padding as explicit pads")
    return replace(call, opset=max(POOL_OPSET, call.opset)) if attributes.get("ceil_mode") == 1 else call


def small(constants: Mapping[int, Array | None]) -> dict[int, Array]:
    """Return the constants {input position: array} that are small enough for shape inference."""
    return {index: data for index, data in constants.items() if data is not None and data.size <= SMALL}


def run(
    call: Call, outputs: tuple[ValueType, ...], values: Sequence[Array | None], constants: Mapping[int, Array]
) -> list[Array]:
    """Return the results of a call for one sample. `outputs` are the required types.

    `constants` {position: array} replaces some of the input `values`. Raises ModelError if onnxruntime cannot run the
    operator, or returns other types.
    """
    # onnxruntime packs constant weights, which may change the order of additions. Therefore the constants of the user's
    # model are also constants of the session, except very large ones.
    inside = {index: data for index, data in constants.items() if data.nbytes <= MAX_INSIDE}
    kernel = _session_of(call, outputs, inside)
    operands = [constants.get(index, value) for index, value in enumerate(values)]
    feed = {f"x{i}": aligned(value) for i, value in enumerate(operands) if value is not None and i not in inside}
    try:
        results = kernel.run(None, feed)
    except Exception as error:
        raise ModelError(call.where, f"onnxruntime cannot run {call.op_type}: {one_line(error)}") from None
    for result, declared in zip(results, outputs, strict=True):
        actual = f"{result.dtype}{list(result.shape)}, not {declared.dtype}{list(declared.shape)}"
        call.fail_if(type_of(result) != declared, f"{call.op_type} returns {actual}")
    return list(results)


def aligned(value: Array) -> Array:
    """Return `value` as a contiguous array whose address is a multiple of ALIGNMENT."""
    # onnxruntime's kernels treat the elements before the first aligned address separately. The order of additions, and
    # with it the last bits of a float result, would depend on the address.
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    if not array.ctypes.data % ALIGNMENT:
        return array
    buffer = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    copy = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


#: Sessions by call and by the `id` of each constant. Sessions keep their constants alive, so that the ids stay unique.
_SESSIONS: dict[Any, tuple[Any, tuple[Array, ...]]] = {}


def _session_of(call: Call, outputs: tuple[ValueType, ...] | None, constants: Mapping[int, Array]) -> Any:
    """Return an onnxruntime session for a call from the cache, or a new one. A full cache is emptied first."""
    # A session has one thread, because with several threads the order of additions would depend on the computer.
    identities = tuple((index, id(data)) for index, data in sorted(constants.items()))
    key = (replace(call, name=""), outputs, identities)  # without the name, so that equal nodes share a session
    if key not in _SESSIONS:
        arrays_kept = (
            (*constants.values(), *(data for _, arrays in _SESSIONS.values() for data in arrays)) if constants else ()
        )
        if len(_SESSIONS) >= MAX_SESSIONS or sum(data.nbytes for data in arrays_kept) > MAX_SESSION_BYTES:
            _SESSIONS.clear()
        settings = {"intra_op_num_threads": 1, "inter_op_num_threads": 1, "enable_cpu_mem_arena": False}
        try:
            kernel = session(_model(call, outputs, constants), **settings)
        except Exception as error:
            raise ModelError(call.where, f"onnxruntime does not accept {call.op_type}: {one_line(error)}") from None
        _SESSIONS[key] = kernel, tuple(constants.values())
    return _SESSIONS[key][0]


def _model(call: Call, outputs: tuple[ValueType, ...] | None, constants: Mapping[int, Array]) -> Any:
    onnx = package("onnx")
    helper = onnx.helper
    supported = call.domain in DOMAINS and 1 <= call.opset <= MAX_OPSET and 1 <= call.outputs <= 1 << 10
    call.refuse_if(
        not supported, f"{call.op_type} of the domain '{call.domain}' at opset {call.opset} is not supported"
    )
    # Constants are initializers with the names of the inputs that they replace.
    names = [f"x{index}" if kind is not None else "" for index, kind in enumerate(call.inputs)]
    typed = [
        value_info(name, kind)
        for index, (name, kind) in enumerate(zip(names, call.inputs, strict=True))
        if kind is not None and index not in constants
    ]
    ends = [f"y{index}" for index in range(call.outputs)]
    if outputs is None:
        results = [onnx.ValueInfoProto(name=name) for name in ends]
    else:
        results = list(map(value_info, ends, outputs))
    attributes = {name: _attribute(call, name, text) for name, text in call.attributes}
    node = helper.make_node(call.op_type, names, ends, domain=call.domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    tensors = [onnx.numpy_helper.from_array(value, f"x{index}") for index, value in constants.items()]
    versions = [helper.make_opsetid("", call.opset), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph([node], "one", typed, results, tensors)
    return helper.make_model(graph, opset_imports=versions, ir_version=_IR_VERSION)


def _attribute(call: Call, name: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelError(call.where, f"has the attribute {name} = {text[:40]}, which is not JSON") from None
    items = value if isinstance(value, list) else [value]
    kinds = {type(item) for item in items}
    malformed = len(kinds) > 1 or not kinds <= {int, float, str} or len(items) > SMALL
    call.fail_if(malformed, f"has the attribute {name}, whose value is neither numbers nor text")
    # onnx and onnxruntime compute sizes from attributes without checking for overflow, and divide by step sizes.
    bound = 1 << 15 if name in _STEPS else 1 << 63 if name in _OPEN else 1 << 31
    large = int in kinds and not all(-bound <= item <= bound for item in items)
    call.fail_if(large, f"has the attribute {name} = {text[:40]}, which is out of range")
    wrong = name in _STEPS and not all(isinstance(item, int) and item >= 1 for item in items)
    call.fail_if(wrong, f"has the attribute {name} = {text[:40]}; it must be positive")
    return value


def value_info(name: str, kind: ValueType) -> Any:
    onnx = package("onnx")
    int4 = kind.dtype == INT4
    number = onnx.TensorProto.INT4 if int4 else onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
    return onnx.helper.make_tensor_value_info(name, number, kind.shape)


def _declared_type(call: Call, inferred: Any, limit: int) -> ValueType:
    """Return an inferred type. Raises UnsupportedError for an incomplete shape, ModelError for too many elements."""
    tensor = inferred.tensor_type if inferred is not None and inferred.HasField("tensor_type") else None
    if tensor is None or not tensor.HasField("shape") or any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
        remedy = "make its shapes constant (onnxsim does)"
        raise UnsupportedError(call.where, f"{call.op_type} has an output whose shape depends on data", remedy)
    dtype = dtype_of(tensor.elem_type, call.where)
    return bounded(call, ValueType(dtype, tuple(int(dim.dim_value) for dim in tensor.shape.dim)), limit)


def bounded(call: Call, value: ValueType, limit: int = MAX_COMPUTED) -> ValueType:
    """Return `value`. Raises ModelError if an extent is negative or the tensor has more than `limit` elements."""
    reason = f"{call.op_type} has an output of shape {list(value.shape)}; the limit is {limit} elements"
    call.fail_if(any(extent < 0 for extent in value.shape) or prod(value.shape) > limit, reason)
    return value


def dtype_of(number: int, where: str) -> str:
    """Return the dtype of an ONNX element type number: one of DTYPES, or INT4. Raises UnsupportedError for others."""
    onnx = package("onnx")
    try:
        name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)).name
        name = "string" if name == "object" else name
    except (KeyError, ValueError, TypeError):
        name = f"number {number}"
    if number == onnx.TensorProto.INT4 and name != INT4:
        raise UnsupportedError(where, f"is {INT4}, which onnx {onnx.__version__} cannot hold", "install onnx 1.19")
    if name not in (*DTYPES, INT4):
        raise UnsupportedError(where, f"has the element type {name}", f"supported are {', '.join(DTYPES)}")
    return name


def _types_by_session(call: Call) -> tuple[ValueType, ...]:
    """Return the output types of an operator of onnxruntime, for which onnx has no shape inference."""
    types = []
    for output in _session_of(call, None, {}).get_outputs():
        dtype = _ORT_TYPES.get(output.type, "")
        unknown = not dtype or not all(isinstance(extent, int) for extent in output.shape)
        call.refuse_if(unknown, f"{call.op_type} has an output of unknown type or shape")
        types.append(bounded(call, ValueType(dtype, tuple(output.shape))))
    return tuple(types)


def one_line(error: Exception) -> str:
    """Return an error of onnx or onnxruntime as one printable line of at most 200 characters."""
    text = printable(" ".join(str(error).split()))
    return text if len(text) <= 200 else text[:197] + "..."
