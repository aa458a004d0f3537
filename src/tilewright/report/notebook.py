"""A run in a notebook: a short HTML table, a table of data, and a picture. A script can use the same functions."""

from __future__ import annotations

import html as markup
from importlib import import_module
from typing import Any

from tilewright.errors import InputError, printable
from tilewright.report import summary as summaries
from tilewright.report.metrics import Result
from tilewright.report.summary import CAUSE, NUMERIC, Summary

#: The columns of the HTML table.
COLUMNS = ("layer", "where", "cycles", "MACs", "util", CAUSE)
#: A picture shows this many causes, and joins the others to one part.
NAMED = 8
#: In inches: the width of a picture, the height of a picture without bars, and the height of a bar.
WIDTH = 9.0
MARGIN = 1.2
BAR = 0.28


def summary(result: Result) -> Summary:
    return Summary(result, f"{result.samples} given from Python")


def html(result: Result) -> str:
    """Return an HTML fragment: the coverage, then a table of the layers, then the outcome."""
    head = "".join(f"<th>{_text(name)}</th>" for name in COLUMNS)
    rows = [summaries.cells(index, layer) for index, layer in enumerate(result.layers)]
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    foot = f"<tr>{_cells(summaries.totals(result))}</tr>"
    told = summary(result)
    return (
        f"<p><b>{_text(summaries.headline(told))}</b><br>{_text(summaries.machine_macs(result))}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody><tfoot>{foot}</tfoot></table>"
        f"<p>{_text(outcome(result))}</p>"
    )


def _text(text: str) -> str:
    return markup.escape(printable(text))


def _label(text: str) -> str:
    return printable(text).replace("$", r"\$")  # matplotlib would start a formula


def _cells(row: dict[str, str]) -> str:
    side = {True: "right", False: "left"}
    return "".join(f'<td style="text-align:{side[c in NUMERIC]}">{_text(row.get(c, ""))}</td>' for c in COLUMNS)


def line(result: Result) -> str:
    """Return one line of text about the run: its cycles, the part of the network on the machine, and the outcome."""
    cycles = f"{result.cycles:,} cycles" if result.cycles else "no cycles"
    covered = summaries.coverage(result).replace(" the MACs", " MACs")
    return printable(f"{result.model} on {result.target}: {cycles}, {covered} on {result.target}, {outcome(result)}")


def outcome(result: Result) -> str:
    """Return text about the comparison with the reference, and about the findings."""
    if result.deviations:
        worst = max(deviation.largest for deviation in result.deviations.values())
        agreed = f"differs from the reference by up to {worst:.3g}"
    else:
        said = {True: "matches the reference", False: "DIFFERS from the reference", None: "not compared"}
        agreed = said[result.matches_reference]
    if not result.checked and not result.findings:
        return f"{agreed}, hazards not checked"
    return f"{agreed}, {len(result.findings)} {'hazard' if len(result.findings) == 1 else 'hazards'}"


def rows(result: Result) -> list[dict[str, Any]]:
    """Return one flat dictionary per layer. All have the same keys. The key "causes.X" has the cycles of cause X."""
    table = []
    for layer in result.layers:
        row = {key: value for key, value in layer.to_json().items() if not isinstance(value, dict | list)}
        table.append(row | {f"causes.{name}": layer.causes.get(name, 0) for name in result.causes})
    return table


def table(result: Result) -> Any:
    """Return the layers as a pandas DataFrame, or as a list of dictionaries if pandas is not installed."""
    try:
        pandas = import_module("pandas")
    except ModuleNotFoundError:
        return rows(result)
    return pandas.DataFrame(rows(result))


def plot(result: Result) -> Any:
    """See `RunResult.plot`. Raises InputError if matplotlib is not installed, or if the run has no cycles."""
    layers = [layer for layer in result.layers if layer.cycles]
    if not layers:
        raise InputError("plot", "this run has no cycles to show", "choose a timing model")
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        raise InputError("plot", "matplotlib is not installed", "run `pip install matplotlib`") from None
    named = list(result.causes)[:NAMED]
    parts = {name: [layer.causes.get(name, 0) for layer in layers] for name in named}
    rest = [layer.cycles - sum(bars) for layer, *bars in zip(layers, *parts.values(), strict=True)]
    figure, axes = pyplot.subplots(figsize=(WIDTH, MARGIN + BAR * len(layers)), layout="constrained")
    left = [0] * len(layers)
    places = range(len(layers))
    for name, cycles in [*parts.items(), *([("other causes", rest)] if any(rest) else [])]:
        axes.barh(places, cycles, left=left, label=name)
        left = [start + length for start, length in zip(left, cycles, strict=True)]
    axes.set_yticks(places, [_label(layer.name) for layer in layers])
    axes.invert_yaxis()
    axes.set_xlabel(f"cycles per sample, for {summaries.coverage(result)}")
    axes.set_title(_label(summaries.title(result)))
    axes.legend(title="cause")
    pyplot.close(figure)  # otherwise a notebook would show the picture twice
    return figure
