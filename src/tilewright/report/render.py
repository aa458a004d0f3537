"""The report of a run, on the terminal or as HTML.

The terminal shows the coverage, a table of layers and facts, in plain ASCII if the output is not a terminal. The HTML
is one self-contained file with the table, the facts and the busy cycles of each unit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tilewright.files import replacing
from tilewright.report import summary as summaries
from tilewright.report.metrics import HOST
from tilewright.report.summary import CAUSE, COLUMNS, LISTED, NUMERIC, Summary, percent
from tilewright.sim.findings import Finding

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.report.metrics import Result
    from tilewright.report.table import Fit, Grid

#: Characters a line of piped output, and of the narrowest terminal that tables are made for.
PIPED, NARROWEST = 160, 40
#: Columns that the table of layers can do without, the first to go first, and the width that its causes should have.
DROPPED = ("where", "serial", "DRAM write", "DRAM read", "op", "MACs", "util", "#")
CAUSE_WIDTH = 30


def console(file: IO[str] | None = None) -> Console:
    """Return a console on stdout. Piped output is plain and wide enough for the table, or as wide as $COLUMNS says."""
    from rich.console import Console

    class Piped(Console):
        """A console that raises an error for a closed pipe. rich would exit with status 1, which means a finding."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    file = file or sys.stdout
    width = None if file.isatty() or "COLUMNS" in os.environ else PIPED
    made = Piped(file=file, width=width, highlight=False, markup=False, emoji=False)
    made.width = max(made.width, NARROWEST)
    return made


def table(
    columns: Sequence[str], numeric: Collection[str], drop: Sequence[str] = (), least: Mapping[str, int] | None = None
) -> Grid:
    """Return an empty table in the style of all reports, for `Console.print`. `Grid` documents the arguments."""
    from tilewright.report.table import Grid

    return Grid(columns, numeric, drop, least)


def show(summary: Summary, to: Console | None = None) -> None:
    """Print the report of a run: its coverage first, then the table of layers, then the other facts."""
    from rich.text import Text

    to = to or console()
    result = summary.result
    _say(to, "", summaries.headline(summary), "bold")
    coverage, *facts = summaries.facts(summary)
    _say_fact(to, coverage)
    if result.layers:
        to.print(_layers(result, _layers(result).fit(to.width)))
    for fact in facts:
        _say_fact(to, fact)
    for finding in result.findings[:LISTED]:
        to.print(Text(f"  {finding}"), soft_wrap=True)
    if len(result.findings) > LISTED:
        to.print(Text(f"  ... and {len(result.findings) - LISTED} more"))


def _layers(result: Result, fit: Fit | None = None) -> Grid:
    """Return the table of layers, as it is or as it fits: then the last column can take over the column `where`.

    A reason that does not fit in one line is printed once. Later layers refer to the first with this reason.
    """
    rows = [summaries.cells(index, layer) for index, layer in enumerate(result.layers)]
    named_by_op = all(row["layer"].startswith(row["op"]) for row in rows)
    made = table(COLUMNS, NUMERIC, (*(["op"] if named_by_op else []), *DROPPED), {CAUSE: CAUSE_WIDTH})
    first: dict[str, str] = {}
    for row, layer in zip(rows, result.layers, strict=True):
        on_host = layer.where == HOST
        if on_host and fit:
            before = "host: " if "where" in fit.dropped else ""
            named = first.setdefault(layer.reason, layer.name)
            again = named != layer.name and len(before + layer.reason) > fit.widths[-1]
            row[CAUSE] = before + (f"as {named}" if again else layer.reason)
        made.add_row(*(row[name] for name in COLUMNS), style="dim" if on_host else "")
    made.add_section()
    total = summaries.totals(result)
    made.add_row(*(total.get(name, "") for name in COLUMNS), style="bold")
    return made


def _say_fact(to: Console, fact: summaries.Fact) -> None:
    _say(to, f"{fact.topic:<13} ", fact.statement, "red" if fact.bad else "")


def _say(to: Console, topic: str, statement: str, style: str) -> None:
    """Print a statement: on one line, for other programs, or wrapped at words if the output is a terminal."""
    from rich.text import Text

    from tilewright.report.table import wrapped

    lines = wrapped(statement, max(1, to.width - len(topic))) if to.is_terminal else [statement]
    for index, line in enumerate(lines):
        text = Text.assemble((" " * len(topic) if index else topic, "bold"), (line, style))
        to.print(text, soft_wrap=True)


def show_findings(findings: Sequence[Finding]) -> None:
    """Print one line per finding, and the number of findings."""
    to = console()
    for finding in findings:
        to.print(str(finding), soft_wrap=True)
    to.print(f"hazards {len(findings)}", style="red" if findings else "green")


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
<h1>{escape(summaries.headline(summary))}</h1>
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
