"""Reads an ONNX file into plain records, and rejects files with damaged bytes.

The file is untrusted: its size, its counts and the size of every tensor are checked before anything is allocated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ModelError, UnsupportedError, printable
from tilewright.graph.ir import MAX_ELEMENTS, Named
from tilewright.graph.ort import DOMAINS, MAX_OPSET, ValueType, dtype_of, package
from tilewright.graph.rounding import rounding_mode

MAX_BYTES = 1 << 31  # protobuf's own limit
MAX_NODES = 1 << 14
MAX_RANK = 8
MAX_NAME = 1 << 10
#: Limit for all constants of a model together.
MAX_CONSTANT_BYTES = 1 << 32
#: PULP's custom operators, recognised by name because files do not always give their domain.
CUSTOM = ("RequantShift",)
#: The metadata key of the model's rounding mode, as `tilewright quantize` writes it.
ROUNDING = "tilewright.rounding"


@dataclass(frozen=True, eq=False)
class RawNode(Named):
    """A node of an ONNX file. `attributes` holds JSON values; attributes that are tensors are in `tensors`."""

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)

    def input(self, index: int) -> str:
        """Return the name of input `index`, or '' if this input is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def json(self) -> tuple[tuple[str, str], ...]:
        return as_json(self.attributes)


def as_json(attributes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return attributes as `OnnxOp` holds them: pairs of name and JSON text, sorted by name."""
    return tuple((name, json.dumps(attributes[name])) for name in sorted(attributes))


@dataclass(frozen=True, eq=False)
class RawModel:
    """The graph of an ONNX file. `constants` are its initializers, `inputs` its other inputs, `rounding` its mode."""

    opset: int
    nodes: tuple[RawNode, ...]
    constants: Mapping[str, Array]
    inputs: Mapping[str, ValueType]
    outputs: tuple[str, ...]
    rounding: str = "ort"


def read(path: Path) -> RawModel:
    """Return the contents of an ONNX file. Raises ModelError if it is damaged, UnsupportedError if not supported."""
    onnx, size = package("onnx"), path.stat().st_size
    if not 8 <= size < MAX_BYTES:
        raise ModelError(path, f"has {size} bytes; an ONNX file has 8 to {MAX_BYTES} bytes")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except Exception as error:  # the type depends on protobuf's implementation
        raise ModelError(path, f"is not an ONNX file: {type(error).__name__}", "export it again") from None
    graph = model.graph
    if len(graph.node) > MAX_NODES or not graph.node or not graph.output:
        reason = f"has {len(graph.node)} nodes and {len(graph.output)} outputs"
        raise ModelError(path, reason, f"1 to {MAX_NODES} nodes and at least one output are required")
    if model.functions or graph.sparse_initializer:
        raise UnsupportedError(path, "has local functions or sparse constants", "export it without them")
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if not 1 <= opset <= MAX_OPSET:
        raise UnsupportedError(path, f"uses opset {opset}", f"opsets 1 to {MAX_OPSET} are supported")
    constants = _constants(graph.initializer, path)
    inputs = {name(value.name): _input(value) for value in graph.input if value.name not in constants}
    nodes = tuple(_node(node, index, path) for index, node in enumerate(graph.node))
    outputs = tuple(name(value.name) for value in graph.output)
    made_for = {entry.key: entry.value for entry in model.metadata_props}.get(ROUNDING, "ort")
    return RawModel(opset, nodes, constants, inputs, outputs, rounding_mode(made_for).name)


def name(text: str | bytes) -> str:
    """Return `text`, a name of the file. Raises ModelError if it is empty, not printable or too long for an error."""
    if isinstance(text, bytes):  # protobuf's form of text that is not UTF-8
        raise ModelError("", f"contains the name {text[:40]!r}, which is not UTF-8")
    if not text or len(text) > MAX_NAME or not text.isprintable():
        raise ModelError("", f"contains the name {text[:40]!r}: names are printable, of at most {MAX_NAME} characters")
    return text


def _node(node: Any, index: int, path: Path) -> RawNode:
    op_type = name(node.op_type)
    # Exporters omit or repeat names; the index makes each one unique.
    given = f"{op_type}_{index}"
    domain = "" if node.domain == "ai.onnx" or op_type in CUSTOM else node.domain
    where = f"op '{given}'"
    if domain not in DOMAINS:
        reason = f"{op_type} has the unsupported domain {domain[:40]!r}"
        raise UnsupportedError(where, reason, "export it with standard operators")
    attributes: dict[str, Any] = {}
    tensors: dict[str, Array] = {}
    for attribute in node.attribute:
        key = name(attribute.name)
        if attribute.type == attribute.TENSOR:
            tensors[key] = _tensor(attribute.t, path, f"{where}: {key}")
        else:
            attributes[key] = _value(attribute, where)
    inputs, outputs = (tuple(name(text) if text else "" for text in ends) for ends in (node.input, node.output))
    if not any(outputs):
        raise ModelError(where, f"{op_type} has no outputs")
    return RawNode(given, op_type, domain, inputs, outputs, attributes, tensors)


def _value(attribute: Any, where: str) -> Any:
    """Return the value or values of an ONNX attribute: finite numbers, or text cut to MAX_NAME bytes."""
    one = {attribute.INT: attribute.i, attribute.FLOAT: attribute.f, attribute.STRING: attribute.s}
    many = {attribute.INTS: attribute.ints, attribute.FLOATS: attribute.floats, attribute.STRINGS: attribute.strings}
    if attribute.type not in one | many:
        reason = f"has the attribute {attribute.name} of the unsupported kind {attribute.type}"
        raise UnsupportedError(where, reason, "export it without control flow (If, Loop and Scan)")
    values = many[attribute.type] if attribute.type in many else [one[attribute.type]]
    found = [value[:MAX_NAME].decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]
    if not all(isinstance(value, str) or isfinite(value) for value in found):
        raise ModelError(where, f"has the attribute {attribute.name}, whose value is not finite")
    return found if attribute.type in many else found[0]


def _input(value: Any) -> ValueType:
    where = f"input '{value.name}'"
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape") or len(tensor.shape.dim) > MAX_RANK:
        raise UnsupportedError(where, "is not a tensor of known rank", f"give it a shape of at most {MAX_RANK} axes")
    shape = []
    for axis, dim in enumerate(tensor.shape.dim):
        if axis == 0 and not dim.HasField("dim_value"):  # an open batch size becomes 1: samples have a separate axis
            shape.append(1)
        elif not 1 <= dim.dim_value <= MAX_ELEMENTS:
            text = f"'{printable(dim.dim_param[:40])}'" if dim.dim_param else str(dim.dim_value)
            raise UnsupportedError(where, f"has the extent {text} at axis {axis}", "export it with constant shapes")
        else:
            shape.append(int(dim.dim_value))
    return ValueType(dtype_of(tensor.elem_type, where), tuple(shape))


def _constants(tensors: Iterable[Any], path: Path) -> dict[str, Array]:
    found: dict[str, Array] = {}
    total = 0
    for tensor in tensors:
        found[name(tensor.name)] = data = _tensor(tensor, path, f"constant '{tensor.name}'")
        total += data.nbytes
        if total > MAX_CONSTANT_BYTES:
            raise ModelError(path, f"holds more than {MAX_CONSTANT_BYTES} bytes of constants")
    return found


def _tensor(tensor: Any, path: Path, where: str) -> Array:
    """Return the values of a TensorProto. Raises ModelError if the data does not have the declared size and type."""
    where = printable(where[:40]) if not where.isprintable() else where
    dtype, shape = np.dtype(dtype_of(tensor.data_type, where)), tuple(tensor.dims)
    if len(shape) > MAX_RANK or any(not 0 <= extent <= MAX_ELEMENTS for extent in shape) or prod(shape) > MAX_ELEMENTS:
        limit = f"the limit is {MAX_RANK} axes and {MAX_ELEMENTS} elements"
        raise ModelError(where, f"has the shape {list(shape[:MAX_RANK])}; {limit}")
    count = prod(shape)
    if tensor.data_location == tensor.EXTERNAL:
        content = _external(tensor, path, where, count * dtype.itemsize)
    elif tensor.HasField("raw_data"):
        content = tensor.raw_data
    else:
        values = getattr(tensor, package("onnx").helper.tensor_dtype_to_field(tensor.data_type))
        if len(values) != count:
            raise ModelError(where, f"holds {len(values)} values for the shape {list(shape)}")
        return _typed(np.array(values), dtype, where).reshape(shape)
    if len(content) != count * dtype.itemsize:
        raise ModelError(where, f"holds {len(content)} bytes of data for {dtype}{list(shape)}")
    return np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)


def _typed(values: Array, dtype: np.dtype[Any], where: str) -> Array:
    """Return the values of a protobuf field as `dtype`. Those of a float16 tensor are its bits, held as integers."""
    if dtype.name == "float16":
        return values.astype(np.uint16).view(np.float16)
    if dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise ModelError(where, f"holds values outside the range of {dtype}")
    return values.astype(dtype)


def _external(tensor: Any, path: Path, where: str, size: int) -> bytes:
    """Return the `size` bytes of a tensor that is stored in another file of the model's folder."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    folder = path.resolve().parent
    try:
        target = (folder / fields["location"]).resolve()
        offset, length = int(fields.get("offset", "0")), int(fields.get("length", str(size)))
        if not target.is_relative_to(folder) or not target.is_file():
            raise ModelError(where, "refers to a file that is not in the model's folder")
        if offset < 0 or length != size or offset + length > target.stat().st_size:
            held = f"{length} bytes at offset {offset} of {target.name} ({target.stat().st_size} bytes)"
            raise ModelError(where, f"needs {size} bytes of data but refers to {held}")
        with target.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except (KeyError, ValueError, OSError):
        raise ModelError(where, "has external data that cannot be read", "keep its file next to the model") from None
