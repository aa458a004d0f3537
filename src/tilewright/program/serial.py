"""Exact conversion of graphs and programs to JSON values and arrays, and back.

Input is untrusted, so each value is checked against a declared type. Mappings are sorted by key, so that equal programs
give equal data. Arrays are stored separately as {key: array}; the JSON values contain their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, fields, is_dataclass
from math import isfinite
from typing import Any

from tilewright.array import Array
from tilewright.errors import ModelError, ProgramError, UnsupportedError, shown
from tilewright.fields import decode, record
from tilewright.graph.ir import Graph, Node, Pixels, Quant, State, Tensor
from tilewright.graph.ops import KINDS
from tilewright.graph.tensor import INT4, Int4
from tilewright.program.program import HostStep, Launch, Program

#: A JSON object, and {key: array} for the keys in it.
Data = dict[str, Any]
Arrays = dict[str, Array]

DTYPES = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
)

_NAMES = tuple[str, ...]
_GRAPH: Data = {"name": str, "tensors": list, "nodes": list, "inputs": _NAMES, "outputs": _NAMES}
_GRAPH |= {"rounding": str, "states": tuple[State, ...], "pixels": Pixels | None}
#: Default values of optional entries of a graph. Older files do not have these entries.
_ABSENT: Data = {"states": (), "pixels": None}
_TENSOR = {"name": str, "shape": tuple[int, ...], "dtype": str, "quant": Quant | None, "data": str | None}
_NODE = {"name": str, "kind": str, "attributes": dict, "inputs": _NAMES, "outputs": _NAMES}
_PROGRAM = {"target": str, "config": dict, "digest": str, "rounding": str, "graph": dict | None, "steps": list}
_LAUNCH = {"name": str, "nodes": _NAMES, "meta": dict, "arrays": dict}


def program_to_data(program: Program) -> tuple[Data, Arrays]:
    """Convert a program to JSON values and arrays. Raises ProgramError if a value cannot be stored exactly."""
    graph, arrays = (None, {}) if program.graph is None else graph_to_data(program.graph)
    steps = []
    for index, step in enumerate(program.steps):
        where = f"steps[{index}]"
        if isinstance(step, HostStep):
            steps.append({"host": encode(step, where)})
            continue
        keys = {name: f"step/{index:04}/{i:04}" for i, name in enumerate(sorted(step.arrays))}
        arrays |= {key: _portable(step.arrays[name], f"{where}.arrays.{name}") for name, key in keys.items()}
        meta = encode(step.meta, f"{where}.meta")
        steps.append({"launch": {"name": step.name, "nodes": list(step.nodes), "meta": meta, "arrays": keys}})
    data = {"target": program.target, "config": encode(program.config, "config"), "digest": program.digest}
    return data | {"rounding": program.rounding, "graph": graph, "steps": steps}, arrays


def program_from_data(data: Any, arrays: Mapping[str, Array]) -> Program:
    """Convert the result of `program_to_data` to a program, and check it. Raises ProgramError if it is invalid."""
    rest = dict(arrays)
    values = record(_PROGRAM, data, "program")
    graph = None if values["graph"] is None else _graph(values["graph"], rest)
    nodes = {node.name for node in graph.nodes} if graph else set()
    steps = tuple(_step(step, nodes, rest, f"steps[{index}]") for index, step in enumerate(values["steps"]))
    if graph:
        _check_order(graph, steps)
    for name in sorted(rest)[:1]:
        raise ProgramError("program", f"holds the array '{name}', which is not used")
    return Program(**values | {"graph": graph, "steps": steps})


def graph_to_data(graph: Graph) -> tuple[Data, Arrays]:
    """Convert a graph to JSON values and constants. Raises ProgramError if a value cannot be stored exactly."""
    arrays: Arrays = {}
    tensors = []
    for index, name in enumerate(sorted(graph.tensors)):
        tensor = graph.tensors[name]
        key = None if tensor.data is None else f"graph/{index:04}"
        if key is not None and tensor.data is not None:
            arrays[key] = _portable(tensor.data, f"tensor '{name}'")
        quant = encode(tensor.quant, f"tensor '{name}'")
        tensors.append(
            {"name": name, "shape": list(tensor.shape), "dtype": tensor.code_type, "quant": quant, "data": key}
        )
    nodes = [
        {
            "name": node.name,
            "kind": node.op.kind,
            "attributes": encode(node.op, f"op '{node.name}'"),
            "inputs": list(node.inputs),
            "outputs": list(node.outputs),
        }
        for node in graph.nodes
    ]
    data = {"name": graph.name, "tensors": tensors, "nodes": nodes}
    data |= {"inputs": list(graph.inputs), "outputs": list(graph.outputs), "rounding": graph.rounding}
    if graph.states:  # omitted if empty, so that older versions of Tilewright can read the file
        data |= {"states": encode(graph.states, "states")}
    if graph.pixels is not None:
        data["pixels"] = encode(graph.pixels, "graph.pixels")
    return data, arrays


def encode(value: Any, where: str) -> Any:
    """Convert JSON values, tuples and dataclasses to JSON values. Raises ProgramError, naming `where`, for others."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and isfinite(value):
        # NumPy's float64 is a subclass of float.
        return float(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value)}
    if isinstance(value, list | tuple):
        return [encode(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: encode(value[key], f"{where}.{key}") for key in sorted(value)}
    remedy = "use JSON values (finite numbers, text, lists, objects with text keys), and arrays for bulk data"
    raise ProgramError(where, f"is {shown(value)}, a {type(value).__name__}, which a program cannot hold", remedy)


def _step(data: Any, graph_nodes: set[str], arrays: Arrays, where: str) -> Launch | HostStep:
    if type(data) is dict and list(data) == ["host"]:
        host: HostStep = decode(HostStep, data["host"], where)
        _check_nodes((host.node,), graph_nodes, where)
        return host
    if type(data) is not dict or list(data) != ["launch"]:
        raise ProgramError(where, f"is {shown(data)}, neither a launch nor a host step")
    values = record(_LAUNCH, data["launch"], where)
    _check_nodes(values["nodes"], graph_nodes, where)
    step_arrays = {name: _take(arrays, key, f"{where}.arrays.{name}") for name, key in values["arrays"].items()}
    return Launch(**values | {"arrays": step_arrays})


def _graph(data: Any, arrays: Arrays) -> Graph:
    values = record(_GRAPH, data, "graph", _ABSENT)
    tensors = [_tensor(tensor, arrays, f"graph.tensors[{index}]") for index, tensor in enumerate(values["tensors"])]
    nodes = [_node(node, f"graph.nodes[{index}]") for index, node in enumerate(values["nodes"])]
    by_name = {tensor.name: tensor for tensor in tensors}
    if len(by_name) < len(tensors):
        raise ProgramError("graph.tensors", "has two tensors with the same name")
    try:
        return Graph(**values | {"tensors": by_name, "nodes": tuple(nodes)}).validate()
    except (ModelError, UnsupportedError) as error:
        raise ProgramError(error.where, error.reason, error.remedy) from None
    except (LookupError, ValueError, ArithmeticError, TypeError) as error:  # a shape rule fails on malformed attributes
        raise ProgramError("graph", f"is not valid: {error}") from None


def _tensor(data: Any, arrays: Arrays, where: str) -> Tensor:
    values = record(_TENSOR, data, where)
    if not values["name"] or (values["quant"] and not values["quant"].scale):
        raise ProgramError(where, "has quantisation without a scale" if values["name"] else "has no name")
    if values["dtype"] == INT4 and values["quant"]:
        values |= {"dtype": "int8", "quant": Int4(*astuple(values["quant"]))}
    if values["dtype"] not in DTYPES:
        reason = f"has the unknown dtype {shown(values['dtype'])}"
        raise ProgramError(where, reason, f"choose one of {', '.join(sorted(DTYPES))}")
    if values["data"] is not None:
        values["data"] = _take(arrays, values["data"], where)
    return Tensor(**values)


def _node(data: Any, where: str) -> Node:
    values = record(_NODE, data, where)
    kind = values.pop("kind")
    if kind not in KINDS or not values["outputs"]:
        raise ProgramError(where, f"has the unknown kind '{kind}'" if kind not in KINDS else "has no outputs")
    return Node(op=decode(KINDS[kind], values.pop("attributes"), f"{where}.attributes"), **values)


def _check_order(graph: Graph, steps: Iterable[Launch | HostStep]) -> None:
    """Raises ProgramError if a launch has no nodes, or if a host step runs before a step that computes its inputs."""
    later = {name for node in graph.nodes for name in node.outputs}
    for index, step in enumerate(steps):
        nodes = [graph.node(name) for name in (step.nodes if isinstance(step, Launch) else (step.node,))]
        if not nodes:
            raise ProgramError(f"steps[{index}]", "has no nodes", "compile it again")
        if isinstance(step, HostStep) and (early := later.intersection(nodes[0].inputs)):
            reason = f"needs tensor {shown(min(early))}, which a later step computes"
            raise ProgramError(f"steps[{index}]", reason, "compile it again")
        later.difference_update(*(node.outputs for node in nodes))


def _take(arrays: Arrays, key: Any, where: str) -> Array:
    """Remove and return the array `key`, because each array may be used only once."""
    if type(key) is not str or key not in arrays:
        raise ProgramError(where, f"refers to the array {shown(key)}, which is missing or used twice")
    return arrays.pop(key)


def _portable(array: Array, where: str) -> Array:
    if array.dtype.name not in DTYPES:
        raise ProgramError(where, f"is an array of {array.dtype}", f"program files hold {', '.join(sorted(DTYPES))}")
    return array


def _check_nodes(names: Iterable[str], graph_nodes: set[str], where: str) -> None:
    for name in names:
        if name not in graph_nodes:
            raise ProgramError(where, f"refers to the node {shown(name)}, which does not exist")
