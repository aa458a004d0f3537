"""The report of a run on the terminal: a table of layers, then facts, in plain ASCII if the output is no terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from tilewright.report import summary as summaries
from tilewright.report.summary import CAUSE, LISTED, NUMERIC, Summary, shorten
from tilewright.sim.findings import Finding

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


#: Characters of a layer's or operator's name; width below which a terminal is narrow; width of piped output.
NAME_WIDTH, NARROW, PIPED = 24, 120, 160


def console(file: IO[str] | None = None) -> Console:
    """Return a console on stdout. Piped output is plain and wide enough for the table, or as wide as $COLUMNS says."""
    from rich.console import Console

    class Piped(Console):
        """A console that raises an error for a closed pipe. rich would exit with status 1, which means a finding."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    file = file or sys.stdout
    width = None if file.isatty() or "COLUMNS" in os.environ else PIPED
    return Piped(file=file, width=width, highlight=False, markup=False, emoji=False)


def table(to: Console, columns: Sequence[str], numeric: set[str]) -> Table:
    """Return an empty table in the style of all reports."""
    from rich import box
    from rich.table import Table

    line = f" {'─' if to.is_terminal else '-'}" * 2
    drawn = box.Box("\n".join(("    ", "    ", line, "    ", line, line, "    ", "    ", "")), ascii=not to.is_terminal)
    made = Table(box=drawn, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        number = name in numeric
        made.add_column(
            name.replace("DRAM ", "DRAM\n"),
            justify="right" if number else "left",
            no_wrap=number,
            overflow="fold",
            vertical="top",
        )
    return made


def show(summary: Summary, to: Console | None = None) -> None:
    """Print the report of a run."""
    from rich.table import Table
    from rich.text import Text

    to = to or console()
    result = summary.result
    to.print(Text(summaries.title(result), style="bold"))
    rows = [summaries.cells(index, layer) for index, layer in enumerate(result.layers)]
    named_by_op = all(row["layer"].startswith(row["op"]) for row in rows)
    columns = list(summaries.COLUMNS)
    if to.width < NARROW:
        columns = [name for name in columns if name != "where" and not (name == "op" and named_by_op)]
        for row in rows:
            row[CAUSE] = f"host: {row[CAUSE]}" if row["where"] == "host" else row[CAUSE]
    if rows:
        made = table(to, columns, NUMERIC)
        for row in rows:
            style = "dim" if row["where"] == "host" else ""
            made.add_row(*(Text(_fit(name, row[name])) for name in columns), style=style)
        made.add_section()
        total = summaries.totals(result)
        made.add_row(*(Text(total.get(name, "")) for name in columns), style="bold")
        to.print(made)
    facts = Table.grid(padding=(0, 2))
    for topic, statement, bad in summaries.facts(summary):
        if to.is_terminal:
            facts.add_row(Text(topic, style="bold"), Text(statement, style="red" if bad else ""))
        else:
            to.print(f"{topic:<13} {statement}", soft_wrap=True)
    if to.is_terminal:
        to.print(facts)
    for finding in result.findings[:LISTED]:
        to.print(Text(f"  {finding}"), soft_wrap=True)
    if len(result.findings) > LISTED:
        to.print(Text(f"  ... and {len(result.findings) - LISTED} more"))


def show_findings(findings: Sequence[Finding]) -> None:
    """Print one line per finding, and the number of findings."""
    to = console()
    for finding in findings:
        to.print(str(finding), soft_wrap=True)
    to.print(f"hazards {len(findings)}", style="red" if findings else "green")


def _fit(column: str, text: str) -> str:
    return shorten(text, NAME_WIDTH) if column in ("layer", "op") else text
