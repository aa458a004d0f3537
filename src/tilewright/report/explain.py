"""What of a network runs where and why, and each stage of compiling it."""

from __future__ import annotations

from tilewright.graph.ir import Graph
from tilewright.program.program import HostStep, Program
from tilewright.report import analysis
from tilewright.report.summary import count, size
from tilewright.report.text import console, table


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
    for row in analysis.rows(graph):
        volumes = (size(number) for number in (row.input_bytes, row.weight_bytes, row.output_bytes))
        cells = (row.name, row.op, count(row.macs), *volumes, f"{row.intensity:.1f}")
        made.add_row(*(Text(cell) for cell in cells))
    to.print(made)


def _section(title: str, text: str) -> None:
    to = console()
    to.print(f"\n== {title} ==", style="bold")
    to.print(text.rstrip("\n"), soft_wrap=True)
