"""The report of `explain`: the place of each step, the operations and bytes of each layer, and each compile stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Node, Quant, Site, Tensor
from tilewright.program.program import HostStep, Program
from tilewright.report.render import console
from tilewright.report.summary import count, size
from tilewright.report.table import Grid


@dataclass(frozen=True)
class Volumes:
    """The multiply-accumulates of a node for one sample, and the bytes that its tensors have in the model."""

    name: str
    op: str
    macs: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int

    @property
    def intensity(self) -> float:
        """The multiply-accumulates per byte, if each byte of a tensor is moved once."""
        moved = self.input_bytes + self.weight_bytes + self.output_bytes
        return self.macs / moved if moved else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "macs_per_byte": self.intensity}


def rows(graph: Graph) -> list[Volumes]:
    """Return one row per node, then a total with the inputs and outputs of the whole network."""
    nodes = [_row(site) for site in graph.sites()]
    ends = [sum(_bytes(graph.tensors[name]) for name in names) for names in (graph.inputs, graph.outputs)]
    macs = sum(row.macs for row in nodes)
    weights = sum(row.weight_bytes for row in nodes)
    return [*nodes, Volumes("total", "", macs, ends[0], weights, ends[1])]


def _row(site: Site) -> Volumes:
    given = [tensor for tensor in site.inputs if tensor]
    return Volumes(
        name=site.node.name,
        op=site.node.op.label,
        macs=site.node.op.macs(site),
        input_bytes=sum(_bytes(tensor) for tensor in given if tensor.data is None),
        weight_bytes=sum(_bytes(tensor) for tensor in given if tensor.data is not None),
        output_bytes=sum(_bytes(tensor) for tensor in site.outputs),
    )


def _bytes(tensor: Tensor) -> int:
    return tensor.size * np.dtype(tensor.dtype).itemsize


def show(program: Program, plans: str) -> None:
    """Print the place of each step, the analysis of each layer, the graph as text, and the target's text `plans`."""
    to = console()
    grid = Grid(("#", "step", "where", "nodes / why on host"), {"#"}, ("#",))
    for index, step in enumerate(program.steps):
        if isinstance(step, HostStep):
            row = (str(index), step.name, "host", step.reason)
        else:
            row = (str(index), step.name, program.target, ", ".join(step.nodes))
        grid.add_row(*row, style="dim" if isinstance(step, HostStep) else "")
    to.print(grid)
    if program.graph is not None:
        _analysis(program.graph)
        _section("graph", graph_text(program.graph))
    _section(f"{program.target} program", plans)


def _analysis(graph: Graph) -> None:
    to = console()
    to.print("\n== analysis ==", style="bold")
    columns = ("layer", "op", "MACs", "inputs", "weights", "outputs", "MACs per byte")
    drop = ("MACs per byte", "op", "outputs", "inputs", "weights")
    grid = Grid(columns, set(columns[2:]), drop)
    for row in rows(graph):
        volumes = (size(number) for number in (row.input_bytes, row.weight_bytes, row.output_bytes))
        grid.add_row(row.name, row.op, count(row.macs), *volumes, f"{row.intensity:.1f}")
    to.print(grid)


def _section(title: str, text: str) -> None:
    to = console()
    to.print(f"\n== {title} ==", style="bold")
    to.print(text.rstrip("\n"), soft_wrap=True)


def graph_text(graph: Graph) -> str:
    """Return a valid graph as text, one line per node, for people and golden files. There is no parser.

    The text does not depend on the computer. An activation has the name of the node that computes the activation,
    because TFLite's own names can have hundreds of characters. A graph input has its own name. A constant is shown as a
    type and the first digits of its SHA-256. A state has two lines: the initial value, and the value for the next
    sample.
    """
    macs = sum(site.node.op.macs(site) for site in graph.sites())
    called = _references(graph)
    lines = [f"graph {_word(graph.name)}: {len(graph.nodes)} nodes, {macs} MACs"]
    lines += [f"input {called[name]}: {_type(graph.tensors[name])}" for name in graph.inputs]
    for state in graph.states:
        lines.append(f"state {called[state.source]}: {_value(graph, state.initial, called)}")
    lines += [_node(graph, node, called) for node in graph.nodes]
    for state in graph.states:
        lines.append(f"then {called[state.source]} = {_value(graph, state.result, called)}")
    lines += [f"output {_value(graph, name, called)} as {_word(name)}" for name in graph.outputs]
    return "\n".join(lines) + "\n"


def _references(graph: Graph) -> dict[str, str]:
    called = {name: _word(name) for name in graph.sources}
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
    text = f"{tensor.code_type}[{','.join(map(str, tensor.shape))}]"
    if tensor.quant is not None:
        text += f" {_quant(tensor.quant)}"
    return text if tensor.data is None else f"{text} sha256:{_digest(tensor.data)}"


def _quant(quant: Quant) -> str:
    if not quant.per_channel:
        return f"scale {_number(quant.scale[0])} zero {quant.zero_point[0]}"
    low = min(quant.scale)
    high = max(quant.scale)
    zeros = sorted(set(quant.zero_point))
    # A layer may have hundreds of scales. The hash shows whether two texts have the same scales.
    zero = str(zeros[0]) if len(zeros) == 1 else f"{zeros[0]}..{zeros[-1]}"
    every = hashlib.sha256(json.dumps([quant.scale, quant.zero_point]).encode()).hexdigest()[:8]
    return f"{len(quant.scale)} scales {low:.3g}..{high:.3g} zero {zero} axis {quant.axis} #{every}"


def _number(scale: float) -> str:
    # The text is the shortest that is read back as this scale. Most scales are float32, whose texts are shorter.
    single = np.float32(scale)
    return str(single) if float(single) == scale else repr(scale)


def _digest(data: Array) -> str:
    return hashlib.sha256(data.astype(data.dtype.newbyteorder("<")).tobytes()).hexdigest()[:8]


def _word(name: str) -> str:
    plain = name and name.isprintable() and not set(name) & set(" ,(){}\"'")
    return name if plain else json.dumps(name)
