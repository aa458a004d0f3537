"""A graph as text: one line a node, for people and for golden files. There is no parser.

An activation goes by the node that writes it (TFLite's own names run to hundreds of characters), a graph input
by its name, and a constant by its type and the first digits of its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Node, Quant, Tensor


def dump(graph: Graph) -> str:
    """The text of a valid graph, ending in a newline. The same graph gives the same text on every machine."""
    macs = sum(site.node.op.macs(site) for site in graph.sites())
    called = _references(graph)
    lines = [f"graph {_word(graph.name)}: {len(graph.nodes)} nodes, {macs} MACs"]
    lines += [f"input {called[name]}: {_type(graph.tensors[name])}" for name in graph.inputs]
    lines += [_node(graph, node, called) for node in graph.nodes]
    lines += [f"output {_value(graph, name, called)} as {_word(name)}" for name in graph.outputs]
    return "\n".join(lines) + "\n"


def _references(graph: Graph) -> dict[str, str]:
    """Tensor name -> what the text calls it; constants are left out."""
    called = {name: _word(name) for name in graph.inputs}
    for node in graph.nodes:
        for index, name in enumerate(node.outputs):
            called[name] = _word(node.name) + (f".{index}" if index else "")
    return called


def _node(graph: Graph, node: Node, called: Mapping[str, str]) -> str:
    inputs = ", ".join(_value(graph, name, called) for name in node.inputs)
    outputs = ", ".join(_type(graph.tensors[name]) for name in node.outputs)
    return f"{_word(node.name)}: {node.op.kind}{_attributes(node.op)} ({inputs}) -> {outputs}"


def _value(graph: Graph, name: str, called: Mapping[str, str]) -> str:
    if not name:
        return "-"
    return called[name] if name in called else _type(graph.tensors[name])


def _attributes(value: Any) -> str:
    """{field=value, ...} of a dataclass, defaults left out; nothing where all are defaults."""
    changed = [f for f in fields(value) if getattr(value, f.name) != _default(f)]
    texts = (f"{f.name}={_attribute(getattr(value, f.name))}" for f in changed)
    return "{" + ", ".join(texts) + "}" if changed else ""


def _attribute(value: Any) -> str:
    if is_dataclass(value):
        return _attributes(value)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _type(tensor: Tensor) -> str:
    """dtype[shape], quantisation, and a constant's hash."""
    text = f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
    if tensor.quant is not None:
        text += f" {_quant(tensor.quant)}"
    return text if tensor.data is None else f"{text} sha256:{_digest(tensor.data)}"


def _quant(quant: Quant) -> str:
    """One scale exactly; the range of many, with a hash of all scales and zero points."""
    if not quant.per_channel:
        return f"scale {_number(quant.scale[0])} zero {quant.zero_point[0]}"
    low, high, zeros = min(quant.scale), max(quant.scale), sorted(set(quant.zero_point))
    zero = str(zeros[0]) if len(zeros) == 1 else f"{zeros[0]}..{zeros[-1]}"
    every = hashlib.sha256(json.dumps([quant.scale, quant.zero_point]).encode()).hexdigest()[:8]
    return f"{len(quant.scale)} scales {low:.3g}..{high:.3g} zero {zero} axis {quant.axis} #{every}"


def _number(scale: float) -> str:
    """The shortest decimals that give this scale again, as float32 where it is one."""
    single = np.float32(scale)
    return str(single) if float(single) == scale else repr(scale)


def _digest(data: Array) -> str:
    return hashlib.sha256(data.astype(data.dtype.newbyteorder("<")).tobytes()).hexdigest()[:8]


def _word(name: str) -> str:
    """A name as it is, in quotes where that would be unclear."""
    plain = name and name.isprintable() and not set(name) & set(" ,(){}\"'")
    return name if plain else json.dumps(name)
