"""Reads an ONNX file into plain records, and rejects damaged files.

The file is untrusted: its size, its counts and the size of every tensor are checked before anything is allocated.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import isnan, prod
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array, nibbles
from tilewright.errors import ModelError, UnsupportedError, printable, shown
from tilewright.fields import decode, naming, parsed
from tilewright.graph.ir import Pixels
from tilewright.graph.ort import DOMAINS, MAX_OPSET, ValueType, dtype_of, package
from tilewright.graph.rounding import rounding_mode
from tilewright.graph.tensor import INT4, MAX_ELEMENTS, Named
from tilewright.model.shapes import MAX_RANK, Shapes, cut, declared, domain_remedy, fixed_shapes

MAX_BYTES = 1 << 31  # protobuf's own limit
MAX_NODES = 1 << 14
MAX_NAME = 1 << 10
MAX_CHANNELS = 4
#: Limit for all constants of a model together.
MAX_CONSTANT_BYTES = 1 << 32
#: PULP's custom operators. They are recognised by name, because some files omit their domain.
CUSTOM = ("RequantShift",)
#: The metadata key of the model's rounding mode, as `tilewright quantize` writes it.
ROUNDING = "tilewright.rounding"
#: The metadata key of the conversion of images to inputs: the fields of a `Pixels` as JSON.
PIXELS = "tilewright.pixels"


@dataclass(frozen=True, eq=False)
class RawNode(Named):
    """A node of an ONNX file. `attributes` holds JSON values; tensors are in `tensors`, branches of If in `graphs`."""

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)
    graphs: Mapping[str, RawGraph] = field(default_factory=dict)
    #: Whether the second and the third input must have the same type (true for the Where that replaces an If).
    same_types: bool = False

    def input(self, index: int) -> str:
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True, eq=False)
class RawGraph:
    """Nodes, constants and the names of results. A branch of an If may also read values of the graph around it."""

    nodes: tuple[RawNode, ...]
    constants: Mapping[str, Array]
    outputs: tuple[str, ...]


def as_json(attributes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, json.dumps(attributes[name])) for name in sorted(attributes))


@dataclass(frozen=True, eq=False)
class RawModel(RawGraph):
    """The graph of an ONNX file. `inputs` lists the inputs that are not constants; `rounding` is the model's rounding
    mode. `pixels` is the conversion of images to inputs; None if the file does not specify it.
    """

    opset: int
    inputs: Mapping[str, ValueType]
    rounding: str = "ort"
    pixels: Pixels | None = None


def read(path: Path, shapes: Shapes | None = None, until: Collection[str] = ()) -> RawModel:
    """Return the contents of an ONNX file; inputs with open extents get the given `shapes`.

    If `until` is given, these values become the outputs instead of the file's outputs, and only the nodes before them
    are read. Raises ModelError if the file is damaged, UnsupportedError if the file is not supported, InputError if a
    shape does not fit.
    """
    onnx = package("onnx")
    size = path.stat().st_size
    if not 8 <= size < MAX_BYTES:
        raise ModelError(path, f"has {size} bytes; an ONNX file has 8 to {MAX_BYTES} bytes")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except Exception as error:  # the type depends on protobuf's implementation
        raise ModelError(path, f"is not an ONNX file: {type(error).__name__}", "export it again") from None
    graph = model.graph
    if until:
        cut(graph, until)
    if (count := nodes_in(graph)) > MAX_NODES or not graph.node or not graph.output:
        reason = f"has {count} nodes and {len(graph.output)} outputs"
        raise ModelError(path, reason, f"1 to {MAX_NODES} nodes and at least one output are required")
    if model.functions or graph.sparse_initializer:
        raise UnsupportedError(path, "has local functions or sparse constants", "export it without them")
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if not 1 <= opset <= MAX_OPSET:
        raise UnsupportedError(path, f"uses opset {opset}", f"opsets 1 to {MAX_OPSET} are supported")
    for index, node in enumerate(graph.node):
        _check_domain(node, f"op '{node.op_type}_{index}'", graph)
    constants = {tensor.name for tensor in graph.initializer}
    inputs = _inputs((value for value in graph.input if value.name not in constants), shapes)
    content = _graph(graph, path)
    notes = {entry.key: entry.value for entry in model.metadata_props}
    mode = rounding_mode(notes.get(ROUNDING, "ort")).name
    pixels = notes.get(PIXELS)
    return RawModel(
        content.nodes,
        content.constants,
        content.outputs,
        opset,
        inputs,
        mode,
        None if pixels is None else _pixels(pixels),
    )


def _pixels(text: str) -> Pixels:
    where = f"metadata '{PIXELS}'"
    form = 'it holds {"mean": [...], "std": [...], "bgr": false}'
    try:
        with naming(where, ModelError, form):
            pixels: Pixels = decode(Pixels, parsed(text), "")
    except ValueError as error:
        raise ModelError(where, f"is not JSON: {error}", form) from None
    if not all(1 <= len(numbers) <= MAX_CHANNELS for numbers in (pixels.mean, pixels.std)) or not all(pixels.std):
        raise ModelError(where, f"is {shown(text)}", form)
    return pixels


def name(text: str | bytes) -> str:
    """Return `text` as a str. Raises ModelError if this name is empty, not printable, not UTF-8 or too long."""
    if isinstance(text, bytes):  # protobuf returns bytes if the text is not UTF-8
        raise ModelError("", f"contains the name {text[:40]!r}, which is not UTF-8")
    if not text or len(text) > MAX_NAME or not text.isprintable():
        raise ModelError("", f"contains the name {text[:40]!r}: names are printable, of at most {MAX_NAME} characters")
    return text


def _node(node: Any, index: int, path: Path) -> RawNode:
    op_type = name(node.op_type)
    # The file's own names of nodes are not used, because some exporters omit them or use them twice.
    title = f"{op_type}_{index}"
    where = f"op '{title}'"
    domain = _check_domain(node, where)
    attributes: dict[str, Any] = {}
    tensors: dict[str, Array] = {}
    graphs: dict[str, RawGraph] = {}
    for attribute in node.attribute:
        key = name(attribute.name)
        if attribute.type == attribute.TENSOR:
            tensors[key] = _tensor(attribute.t, path, f"{where}: {key}")
        elif attribute.type == attribute.GRAPH and op_type == "If":
            branch = attribute.g
            if branch.input or branch.sparse_initializer or not branch.output:
                raise ModelError(where, "has a branch that has inputs, sparse constants or no results")
            graphs[key] = _graph(branch, path)
        else:
            attributes[key] = _value(attribute, where)
    inputs, outputs = (tuple(name(text) if text else "" for text in ends) for ends in (node.input, node.output))
    if not any(outputs):
        raise ModelError(where, f"{op_type} has no outputs")
    return RawNode(title, op_type, domain, inputs, outputs, attributes, tensors, graphs)


def _check_domain(node: Any, where: str, graph: Any = None) -> str:
    """Return a node's domain ("" for standard ONNX). Raises UnsupportedError, with a remedy, for unknown domains."""
    domain = "" if node.domain == "ai.onnx" or node.op_type in CUSTOM else str(node.domain)
    if domain not in DOMAINS:
        reason = f"{printable(node.op_type[:40])} has the unsupported domain {domain[:40]!r}"
        remedy = domain_remedy(graph, (*DOMAINS, "ai.onnx")) if graph else "export it with standard operators"
        raise UnsupportedError(printable(where), reason, remedy)
    return domain


def _graph(graph: Any, path: Path) -> RawGraph:
    constants = _constants(graph.initializer, path)
    nodes = tuple(_node(node, index, path) for index, node in enumerate(graph.node))
    return RawGraph(nodes, constants, tuple(name(value.name) for value in graph.output))


def nodes_in(graph: Any) -> int:
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.type == attribute.GRAPH)
    return len(graph.node) + sum(map(nodes_in, inner))


def _value(attribute: Any, where: str) -> Any:
    # Texts are cut to MAX_NAME bytes.
    lists = (attribute.INTS, attribute.FLOATS, attribute.STRINGS)
    if attribute.type not in (attribute.INT, attribute.FLOAT, attribute.STRING, *lists):
        reason = f"has the attribute {attribute.name} of the unsupported kind {attribute.type}"
        raise UnsupportedError(where, reason, "export it without loops (Loop and Scan)")
    value = package("onnx").helper.get_attribute_value(attribute)
    items = value if attribute.type in lists else [value]
    values = [item[:MAX_NAME].decode("utf-8", "replace") if isinstance(item, bytes) else item for item in items]
    if not all(isinstance(item, str) or not isnan(item) for item in values):
        raise ModelError(where, f"has the attribute {attribute.name}, whose value is not a number (NaN)")
    return values if attribute.type in lists else values[0]


def _inputs(values: Iterable[Any], given: Shapes | None) -> dict[str, ValueType]:
    types = {}
    inputs = []
    for value in values:
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(f"input '{name(value.name)}'", "is not a tensor", "export it with tensors only")
        types[name(value.name)] = value.type.tensor_type.elem_type
        inputs.append(declared(value))
    shapes = fixed_shapes(inputs, given)
    kinds = {title: dtype_of(kind, f"input '{title}'") for title, kind in types.items()}
    for title in (title for title, kind in kinds.items() if kind == INT4):
        raise UnsupportedError(f"input '{title}'", f"is {INT4}", "begin with a QuantizeLinear of a float32 input")
    return {title: ValueType(kind, shapes[title]) for title, kind in kinds.items()}


def _constants(tensors: Iterable[Any], path: Path) -> dict[str, Array]:
    constants: dict[str, Array] = {}
    total = 0
    for tensor in tensors:
        constants[name(tensor.name)] = data = _tensor(tensor, path, f"constant '{tensor.name}'")
        total += data.nbytes
        if total > MAX_CONSTANT_BYTES:
            raise ModelError(path, f"holds more than {MAX_CONSTANT_BYTES} bytes of constants")
    return constants


def _tensor(tensor: Any, path: Path, where: str) -> Array:
    """Return the values of a TensorProto. Raises ModelError if the data does not have the declared size and type."""
    where = printable(where[:40]) if not where.isprintable() else where
    name = dtype_of(tensor.data_type, where)
    if name == INT4:
        return _int4(tensor, path, where)
    dtype = np.dtype(name)
    shape = _shape(tensor, where)
    # The data have one of three forms: bytes in another file, bytes in this file, or a list of numbers.
    count = prod(shape)
    if tensor.data_location == tensor.EXTERNAL:
        content = _external(tensor, path, where, count * dtype.itemsize)
    elif tensor.HasField("raw_data"):
        content = tensor.raw_data
    else:
        onnx = package("onnx")
        values = np.array(getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type)))
        if len(values) != count:
            raise ModelError(where, f"holds {len(values)} values for the shape {list(shape)}")
        limits = np.iinfo(dtype) if dtype.kind in "iu" and count else None
        if limits and (values.min() < limits.min or values.max() > limits.max):
            raise ModelError(where, f"holds values outside the range of {dtype}")
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    if len(content) != count * dtype.itemsize:
        raise ModelError(where, f"holds {len(content)} bytes of data for {dtype}{list(shape)}")
    return np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)


def _int4(tensor: Any, path: Path, where: str) -> Array:
    """Return a constant of 4-bit values, as an array of onnx's own type int4. A byte of the file has two values."""
    shape = _shape(tensor, where)
    size = -(-prod(shape) // 2)
    if tensor.data_location == tensor.EXTERNAL:
        content = np.frombuffer(_external(tensor, path, where, size), np.uint8)
    elif tensor.HasField("raw_data"):
        content = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        content = np.array(tensor.int32_data, np.int64).astype(np.uint8)
    if content.size != size:
        raise ModelError(where, f"holds {content.size} bytes of data for {INT4}{list(shape)}")
    kind = package("onnx").helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return nibbles(content)[: prod(shape)].reshape(shape).astype(kind)


def _shape(tensor: Any, where: str) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    if len(shape) > MAX_RANK or any(not 0 <= extent <= MAX_ELEMENTS for extent in shape) or prod(shape) > MAX_ELEMENTS:
        limit = f"the limit is {MAX_RANK} axes and {MAX_ELEMENTS} elements"
        raise ModelError(where, f"has the shape {list(shape[:MAX_RANK])}; {limit}")
    return shape


def _external(tensor: Any, path: Path, where: str, size: int) -> bytes:
    fields, target = external_file(tensor, path, where)
    try:
        offset = int(fields.get("offset", "0"))
        length = int(fields.get("length", str(size)))
        if offset < 0 or length != size or offset + length > target.stat().st_size:
            reference = f"{length} bytes at offset {offset} of {target.name} ({target.stat().st_size} bytes)"
            raise ModelError(where, f"needs {size} bytes of data but refers to {reference}")
        with target.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except (ValueError, OSError):
        raise _unreadable(where) from None


def external_file(tensor: Any, path: Path, where: str) -> tuple[dict[str, str], Path]:
    """Return the fields that describe a tensor's data outside the model's file, and the path of the data file.

    Raises ModelError, naming the file, if the file is not in the model's folder.
    """
    fields = {entry.key: entry.value for entry in tensor.external_data}
    folder = path.resolve().parent
    try:
        target = (folder / fields["location"]).resolve()
        inside = target.is_relative_to(folder) and target.is_file()
    except (KeyError, ValueError, OSError):
        raise _unreadable(where) from None
    if not inside:
        reason = f"has its data in '{printable(fields['location'])[:MAX_NAME]}', which is not in the model's folder"
        raise ModelError(where, reason, "put the file next to the model")
    return fields, target


def _unreadable(where: str) -> ModelError:
    return ModelError(where, "has external data that cannot be read", "keep its file next to the model")
