"""The page of two runs: the difference in cycles by layer and by cause."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

from tilewright.report.compare import Change, Comparison, compare, setting
from tilewright.report.page import document, save
from tilewright.report.page.static import bar, card, legend, palette
from tilewright.report.record import Record


def write(before: Record, after: Record, path: str | Path) -> None:
    save(page(before, after), path)


def page(before: Record, after: Record) -> str:
    runs = before.run["summary"], after.run["summary"]
    comparison = compare(*runs)
    colours = palette(before) | palette(after)
    longest = max(1, *comparison.cycles)
    bars = "".join(
        f"<h3>{escape(name)}: {cycles:,} cycles</h3>"
        f'<div class="causes" style="width:{100 * cycles / longest:.2f}%">{bar(run["causes"], colours)}</div>'
        f"{legend(run['causes'], cycles, colours, definitions=record.run.get('definitions', {}))}"
        for name, cycles, run, record in zip(comparison.names, comparison.cycles, runs, (before, after), strict=True)
    )
    layers = [{layer["name"]: layer["causes"] for layer in run["layers"]} for run in runs]
    rows = "".join(_row(layer, layers, colours) for layer in comparison.layers)
    title = f"{comparison.names[0]} → {comparison.names[1]}"
    body = f"""<header><h1>{escape(title)}</h1></header>
<ul class="cards">{_cards(comparison)}</ul>
<section><h2>Where the cycles go</h2>{bars}</section>
<section id="layers"><h2>Layers</h2><div class="wide"><table>
<thead><tr><th>layer</th><th>where</th><th class=n>before</th><th class=n>after</th><th class=n>change</th>
<th>before and after</th><th>why</th></tr></thead>
<tbody>
{rows}</tbody></table></div></section>
{_settings(comparison)}"""
    return document(title, body)


def _cards(comparison: Comparison) -> str:
    first, second = comparison.cycles
    ratio = f"{100 * comparison.difference / first:+.1f} %" if first else ""
    largest = next(iter(comparison.causes.items()), ("none", 0))
    cards = [
        ("cycles before", f"{first:,}", _macs(comparison, 0), False),
        ("cycles after", f"{second:,}", _macs(comparison, 1), False),
        ("difference", f"{comparison.difference:+,}", ratio, comparison.difference > 0),
        ("largest cause", largest[0], f"{largest[1]:+,} cycles", False),
        ("layers that differ", f"{len(comparison.changed)}", f"of {len(comparison.layers)}", False),
    ]
    return "".join(card(*content) for content in cards)


def _macs(comparison: Comparison, run: int) -> str:
    mine, whole = comparison.macs[run]
    return f"for {100 * mine / whole:.4g} % of the MACs" if whole else ""


def _row(layer: Change, causes: list[dict[str, Mapping[str, int]]], colours: Mapping[str, str]) -> str:
    most = max(1, layer.before, layer.after)
    bars = "".join(
        f'<div style="width:{100 * cycles / most:.1f}%">{bar(by_layer.get(layer.name, {}), colours)}</div>'
        for cycles, by_layer in zip((layer.before, layer.after), causes, strict=True)
        if cycles
    )
    where = " → ".join(dict.fromkeys(place or "not there" for place in layer.where))
    why = ", ".join(f"{name} {cycles:+,}" for name, cycles in layer.causes.items())
    style = " class=bad" if layer.cycles > 0 else ""
    return (
        f"<tr><td>{escape(layer.name)}</td><td>{escape(where)}</td><td class=n>{layer.before:,}</td>"
        f"<td class=n>{layer.after:,}</td><td class=n><span{style}>{layer.cycles:+,}</span></td>"
        f"<td>{bars}</td><td><small>{escape(why)}</small></td></tr>\n"
    )


def _settings(comparison: Comparison) -> str:
    if not comparison.settings:
        return ""
    rows = "".join(
        f"<dt>{escape(key)}</dt><dd>{escape(setting(before))} → {escape(setting(after))}</dd>"
        for key, (before, after) in comparison.settings.items()
    )
    return f"<section><h2>Settings that differ</h2><dl>{rows}</dl></section>"
