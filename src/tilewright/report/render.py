"""The report of a run, on the terminal or as HTML.

The terminal shows a table of layers, followed by facts, in plain ASCII if the output is not a terminal. The HTML is one
self-contained file with the table, the facts and the busy cycles of each unit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tilewright.files import replacing
from tilewright.report import summary as summaries
from tilewright.report.summary import CAUSE, COLUMNS, LISTED, NUMERIC, Summary, percent, shorten
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


def write_html(summary: Summary, path: str | Path) -> None:
    """Write the report of a run as HTML."""
    with replacing(path) as file:
        file.write(page(summary).encode())


def page(summary: Summary) -> str:
    """Return the report of a run as an HTML document."""
    name = escape(summaries.title(summary.result))
    head = "".join(_cell("th", column, column) for column in COLUMNS)
    rows = "".join(
        f'<tr class="{"host" if layer.where == "host" else "target"}">{_row(summaries.cells(index, layer))}</tr>\n'
        for index, layer in enumerate(summary.result.layers)
    )
    foot = _row(summaries.totals(summary.result))
    facts = "".join(
        f"<dt>{escape(topic)}</dt><dd{' class=bad' if bad else ''}>{escape(text)}</dd>"
        for topic, text, bad in summaries.facts(summary)
    )
    style = Path(__file__).with_name("page.css").read_text("ascii")
    findings = "".join(f"<li>{escape(str(finding))}</li>" for finding in summary.result.findings[: summaries.LISTED])
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title>
<style>
{style}</style>
<h1>{name}</h1>
<dl>{facts}</dl>{f"<ul class='bad'>{findings}</ul>" if findings else ""}
<h2>Layers</h2>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>
{rows}</tbody><tfoot><tr>{foot}</tr></tfoot></table></div>
{_busy(summary)}</html>
"""


def _row(values: dict[str, str]) -> str:
    return "".join(_cell("td", column, values.get(column, "")) for column in COLUMNS)


def _cell(tag: str, column: str, text: str) -> str:
    return f"<{tag}{' class=n' if column in NUMERIC else ''}>{escape(text)}</{tag}>"


def _busy(summary: Summary) -> str:
    """Return an HTML table with a bar for each unit: its busy cycles in all launches, as a share of all cycles."""
    spent: dict[str, int] = {}
    for trace in (layer.trace for layer in summary.result.layers):
        for unit, cycles in (trace.busy() if trace else {}).items():
            spent[unit] = spent.get(unit, 0) + cycles
    if not spent:
        return ""
    rows = "".join(_bar(unit, busy, summary.result.cycles) for unit, busy in spent.items())
    return f'<h2>Busy cycles of each unit</h2>\n<table class="busy">{rows}</table>\n'


def _bar(unit: str, busy: int, cycles: int) -> str:
    share = busy / cycles if cycles else 0.0
    bar = f'<div class="bar" style="width:{100 * share:.1f}%"></div>'
    return f'<tr><td>{escape(unit)}</td><td>{bar}</td><td class="n">{busy:,} ({percent(share)})</td></tr>'
