"""The report of a run: the coverage, a table of layers, then facts. Piped output is plain ASCII."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from tilewright.errors import plain, shortened
from tilewright.report import summary as summaries
from tilewright.report.metrics import HOST
from tilewright.report.summary import CAUSE, COLUMNS, LISTED, NUMERIC, Summary
from tilewright.sim.findings import Finding, grouped

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.report.metrics import Result, UserKernels
    from tilewright.report.table import Fit, Grid

#: The number of characters in a line of piped output.
PIPED = 160
#: Tables are never made for shorter lines than this.
NARROWEST = 40
#: The columns that a narrow table of layers omits, in this order.
DROPPED = ("where", "serial", "DRAM write", "DRAM read", "op", "MACs", "util", "#")
#: A table omits these columns before it makes the column of causes narrower than this.
CAUSE_WIDTH = 30


def console(file: IO[str] | None = None) -> Console:
    """Return a console that prints to `file` (None: stdout). A piped line has $COLUMNS characters, or PIPED."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Plain(Console):
        """A console that prints printable text only, and raises an error for a closed pipe.

        Without this error, rich would exit with status 1 for a closed pipe, and status 1 means a finding.
        """

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(plain(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    file = file or sys.stdout
    width = None if file.isatty() or "COLUMNS" in os.environ else PIPED
    plain_console = Plain(file=file, width=width, highlight=False, markup=False, emoji=False)
    plain_console.width = max(plain_console.width, NARROWEST)
    return plain_console


def show(summary: Summary, to: Console | None = None) -> None:
    """Print the report of a run."""
    from rich.text import Text

    to = to or console()
    result = summary.result
    _say(to, "", summaries.headline(summary), "bold")
    coverage, *facts = summaries.facts(summary)
    _say_fact(to, coverage)
    if result.layers:
        to.print(_layers(result, _layers(result).fit(to.width)))
    if summary.kernels is not None:
        to.print(_kernels(summary.kernels, result))
    for fact in facts:
        _say_fact(to, fact)
    for line in _grouped(result.findings):
        to.print(Text(f"  {line}"), soft_wrap=True)


def _layers(result: Result, fit: Fit | None = None) -> Grid:
    """Return the table of layers. With `fit`, its texts are shortened to fit the terminal."""
    from tilewright.report.table import Grid

    rows = [summaries.cells(index, layer) for index, layer in enumerate(result.layers)]
    named_by_op = all(row["layer"].startswith(row["op"]) for row in rows)
    grid = Grid(COLUMNS, NUMERIC, (*(["op"] if named_by_op else []), *DROPPED), {CAUSE: CAUSE_WIDTH})
    first: dict[str, str] = {}
    for row, layer in zip(rows, result.layers, strict=True):
        on_host = layer.where == HOST
        if on_host and fit:
            before = "host: " if "where" in fit.dropped else ""
            # A reason of several lines is printed once, for the first layer. Later layers refer to this layer.
            named = first.setdefault(layer.reason, layer.name)
            repeats = named != layer.name and len(before + layer.reason) > fit.widths[-1]
            row[CAUSE] = before + (f"as {named}" if repeats else layer.reason)
        grid.add_row(*(row[name] for name in COLUMNS), style="dim" if on_host else "")
    grid.add_section()
    total = summaries.totals(result)
    grid.add_row(*(total.get(name, "") for name in COLUMNS), style="bold")
    return grid


def _kernels(kernels: UserKernels, result: Result) -> Grid:
    from tilewright.report.table import Grid

    beside = f"built-in '{kernels.beside}'"
    grid = Grid(("kernel", "layers", "cycles", beside, "ratio"), ("layers", "cycles", beside, "ratio"))
    layers = Counter(kernels.kernels.values())
    for kernel, (mine, built_in) in kernels.by_kernel(result).items():
        grid.add_row(
            kernel, str(layers[kernel]), f"{mine:,}", f"{built_in:,}", f"{mine / built_in:.3f}" if built_in else "-"
        )
    return grid


def _say_fact(to: Console, fact: summaries.Fact) -> None:
    _say(to, f"{fact.topic:<13} ", fact.statement, "red" if fact.bad else "")


def _say(to: Console, topic: str, statement: str, style: str) -> None:
    from rich.text import Text

    from tilewright.report.table import wrapped

    # Other programs read the output by lines, so for them a statement is never wrapped.
    lines = wrapped(statement, max(1, to.width - len(topic))) if to.is_terminal else [statement]
    for index, line in enumerate(lines):
        text = Text.assemble((" " * len(topic) if index else topic, "bold"), (line, style))
        to.print(text, soft_wrap=True)


def show_findings(findings: Sequence[Finding]) -> None:
    """Print the findings, grouped by cause, and then the number of findings. The root cause is first."""
    to = console()
    for line in _grouped(findings):
        to.print(line, soft_wrap=True, markup=False, highlight=False)
    causes = len(grouped(findings))
    of_causes = f" of {causes} {'cause' if causes == 1 else 'causes'}" if causes < len(findings) else ""
    to.print(f"hazards {len(findings)}{of_causes}", style="red" if findings else "green")


def _grouped(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines for each cause: its first finding, and the number of its other findings."""
    groups = grouped(findings)
    for group in groups[:LISTED]:
        yield from map(shortened, group.lines)
    if len(groups) > LISTED:
        yield f"... and {sum(len(group.findings) for group in groups[LISTED:])} more"
