"""What a network asks of any machine, layer by layer; what of it runs where and why; each stage of compiling it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import Graph, Site, Tensor
from tilewright.program.program import HostStep, Program
from tilewright.report.render import console, table
from tilewright.report.summary import count, size


@dataclass(frozen=True)
class Row:
    """A node; bytes as stored in the model, for one sample."""

    name: str
    op: str
    macs: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int

    @property
    def intensity(self) -> float:
        """Multiply-accumulates for each byte, every tensor moved once."""
        moved = self.input_bytes + self.weight_bytes + self.output_bytes
        return self.macs / moved if moved else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "macs_per_byte": self.intensity}


def rows(graph: Graph) -> list[Row]:
    """One row a node, and the network's: inputs and outputs of the whole, all weights."""
    found = [_row(site) for site in graph.sites()]
    ends = [sum(_bytes(graph.tensors[name]) for name in names) for names in (graph.inputs, graph.outputs)]
    macs, weights = sum(row.macs for row in found), sum(row.weight_bytes for row in found)
    return [*found, Row("total", "", macs, ends[0], weights, ends[1])]


def _row(site: Site) -> Row:
    given = [tensor for tensor in site.inputs if tensor]
    return Row(
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
    """Print where each step runs, then the graph's text and the target's own `plans`."""
    from rich.text import Text

    to = console()
    made = table(to, ("#", "step", "where", "nodes / why on host"), {"#"})
    for index, step in enumerate(program.steps):
        if isinstance(step, HostStep):
            row = (str(index), step.name, "host", step.reason)
        else:
            row = (str(index), step.name, program.target, ", ".join(step.nodes))
        made.add_row(*(Text(cell) for cell in row), style="dim" if isinstance(step, HostStep) else "")
    to.print(made)
    if program.graph is not None:
        from tilewright.graph import text

        _analysis(program.graph)
        _section("graph", text.dump(program.graph))
    _section(f"{program.target} program", plans)


def _analysis(graph: Graph) -> None:
    """Multiplications and volumes of each layer."""
    from rich.text import Text

    to = console()
    to.print("\n== analysis ==", style="bold")
    columns = ("layer", "op", "MACs", "inputs", "weights", "outputs", "MACs a byte")
    made = table(to, columns, set(columns[2:]))
    for row in rows(graph):
        volumes = (size(number) for number in (row.input_bytes, row.weight_bytes, row.output_bytes))
        cells = (row.name, row.op, count(row.macs), *volumes, f"{row.intensity:.1f}")
        made.add_row(*(Text(cell) for cell in cells))
    to.print(made)


def _section(title: str, text: str) -> None:
    to = console()
    to.print(f"\n== {title} ==", style="bold")
    to.print(text.rstrip("\n"), soft_wrap=True)
