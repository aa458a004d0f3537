"""The page of a study: an HTML file with the Pareto front, and with all machines in parallel coordinates.

For each machine of the front, the page lists the causes of its difference from the base machine.
"""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from tilewright.explore.results import rows
from tilewright.explore.study import Study
from tilewright.explore.trial import MEASURED, Trial
from tilewright.report.page import document, save, scripts
from tilewright.report.page.static import card

_HERE = Path(__file__).parent
STYLE = """
#front svg, #all svg { width: 100%; display: block; touch-action: none }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif }
"""
#: The number of causes, and of layers, in the comparison of a machine with the base machine.
SHOWN = 3


def write(study: Study, path: Path) -> None:
    save(page(study), path)


def page(study: Study) -> str:
    summary = study.to_json()
    title = f"{', '.join(m.name for m in study.subject.models)} on {study.subject.target}"
    cards = [
        ("machines measured", f"{summary['trials']:,}", f"of {summary['points']:,} points", False),
        ("on the front", str(len(summary["front"])), f"for {', '.join(study.objectives)}", False),
        ("left out by bounds", f"{summary['pruned']:,}", "cannot reach the front", False),
        ("left out by rules", f"{summary['excluded']:,}", "; ".join(study.subject.rules), False),
        ("refused", f"{summary['refused']:,}", "illegal machines", False),
    ]
    script = (_HERE / "page.js").read_text("utf-8")
    body = f"""<header><h1>{escape(title)}</h1></header>
<ul class="cards">{"".join(card(*content) for content in cards)}</ul>
<section id="front"><h2>The front</h2><div class="tools"></div><div class="figure"></div></section>
<section id="all"><h2>All machines</h2><p class="hint">Drag along an axis to keep the machines in that
range; click the axis to keep all again.</p><div class="figure"></div></section>
{_table(study)}
{_refusals(study)}
{scripts(_data(study), script)}"""
    return document(title, body, STYLE)


def _data(study: Study) -> dict[str, Any]:
    columns, table = rows(study)
    keys = [axis.key for axis in study.space.axes if len(axis.values) > 1]
    measured = [row for row in table if row["status"] == MEASURED]
    numeric = [name for name in columns if measured and all(_number(row.get(name)) for row in measured)]
    base = {name: study.base.values.get(name) for name in columns} if study.base else {}
    order = {axis.key: list(axis.values) for axis in study.space.axes if not axis.ordered}
    return {
        "keys": keys,
        "objectives": list(study.objectives),
        "estimates": study.estimates,
        "numeric": [name for name in numeric if name not in ("point", "seconds")],
        "words": order,
        "rows": measured,
        "base": base,
    }


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table(study: Study) -> str:
    keys = [axis.key for axis in study.space.axes if len(axis.values) > 1]
    marks = dict.fromkeys(study.estimates, " (estimate)")
    head = "".join(f"<th class=n>{escape(name)}{marks.get(name, '')}</th>" for name in study.objectives)
    head = f"<th>machine</th>{head}" + "".join(f"<th>{escape(name)}</th>" for name in keys)
    body = "".join(_row(study, trial, keys) for trial in study.front())
    return (
        '<section id="machines"><h2>Machines of the front</h2><div class="wide"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _row(study: Study, trial: Trial, keys: list[str]) -> str:
    cells = "".join(f"<td class=n>{float(trial.values[name]):,.6g}</td>" for name in study.objectives)
    cells += "".join(f"<td>{escape(trial.set[key])}</td>" for key in keys)
    first_row = f'<tr data-point="{trial.point}"><td>{trial.point}</td>{cells}</tr>'
    why = because(study, trial)
    width = 1 + len(keys) + len(study.objectives)
    return f"{first_row}<tr><td colspan={width}><small>{escape(why)}</small></td></tr>" if why else first_row


def because(study: Study, trial: Trial) -> str:
    """Return a sentence about the cycles of a machine and of the base machine: differences by cause, then by layer."""
    if not study.base:
        return ""
    total = Counter[str]()
    layers = dict[tuple[str, str], Counter[str]]()
    # A layer may run on only one of the two machines.
    for model, layer in dict.fromkeys(
        (m, name) for compared in (trial, study.base) for m in compared.layers for name in compared.layers[m]
    ):
        layers[model, layer] = change = Counter(trial.by_cause(model, layer))
        change.subtract(study.base.by_cause(model, layer))
        total.update(change)
    several = len(trial.layers) > 1
    largest = sorted(layers.items(), key=lambda item: -abs(item[1].total()))[:SHOWN]
    named = [
        f"{f'{model}: ' if several else ''}{layer} {change.total():+,} ({_most(change, 1)})"
        for (model, layer), change in largest
        if change.total()
    ]
    if not named:
        return ""
    return f"{total.total():+,} cycles beside the base machine: {_most(total, SHOWN)}. Most in {', '.join(named)}"


def _most(change: Counter[str], count: int) -> str:
    largest = sorted(change.items(), key=lambda item: -abs(item[1]))[:count]
    return ", ".join(f"{cause} {by:+,}" for cause, by in largest if by)


def _refusals(study: Study) -> str:
    refusals = study.refusals()
    if not refusals:
        return ""
    items = "".join(f"<li>{count:,}: {escape(rule)}</li>" for rule, count in refusals.items())
    return f"<section><h2>Refused</h2><ul>{items}</ul></section>"
