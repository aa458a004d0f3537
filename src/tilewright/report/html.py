"""The report as one HTML file that needs nothing else: the table, the facts and how busy each unit was."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from tilewright.files import replacing
from tilewright.report import summary as summaries
from tilewright.report.summary import COLUMNS, NUMERIC, Summary, percent

STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #3b7dd8; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.wide { overflow-x: auto; }
.wide td:nth-child(2) { min-width: 9rem; overflow-wrap: anywhere; } .wide td:last-child { min-width: 14rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
.n { text-align: right; white-space: nowrap; } tr.host { opacity: .65; } tfoot { font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; }
dt { font-weight: 600; } dd { margin: 0; }
.busy td:nth-child(2) { width: 70%; }
.bar { background: var(--bar); height: .9rem; border-radius: 2px; min-width: 1px; }
.bad { color: #c33; }
"""


def write(summary: Summary, path: str | Path) -> None:
    """Write the report of a run."""
    with replacing(path) as file:
        file.write(page(summary).encode())


def page(summary: Summary) -> str:
    """The whole document."""
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
    findings = "".join(f"<li>{escape(str(finding))}</li>" for finding in summary.result.findings[: summaries.LISTED])
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{name}</title>
<style>{STYLE}</style>
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
    """A bar for each unit: its busy cycles in all launches, of all cycles."""
    spent: dict[str, int] = {}
    for trace in (layer.trace for layer in summary.result.layers):
        for unit, cycles in (trace.busy() if trace else {}).items():
            spent[unit] = spent.get(unit, 0) + cycles
    if not spent:
        return ""
    rows = "".join(_bars(spent.items(), summary.result.cycles))
    return f'<h2>Busy cycles of each unit</h2>\n<table class="busy">{rows}</table>\n'


def _bars(spent: Iterable[tuple[str, int]], cycles: int) -> Iterable[str]:
    for unit, busy in spent:
        share = busy / cycles if cycles else 0.0
        bar = f'<div class="bar" style="width:{100 * share:.1f}%"></div>'
        yield f'<tr><td>{escape(unit)}</td><td>{bar}</td><td class="n">{busy:,} ({percent(share)})</td></tr>'
