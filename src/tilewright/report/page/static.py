"""The parts of a page without scripts: the header, the causes of all cycles, the table of layers, and the facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from tilewright.report.record import Record
from tilewright.report.summary import LISTED, count, duration, joules, percent, share, size

Json = Mapping[str, Any]

#: Grey, and the colours of Okabe and Ito, which colour-blind readers can distinguish
#: (https://jfly.uni-koeln.de/color/).
BLUE = "#0072b2"
SKY = "#56b4e9"
GREEN = "#009e73"
ORANGE = "#e69f00"
RED = "#d55e00"
PINK = "#cc79a7"
GREY = "#8a8f98"
VIOLET = "#7b61c9"
BROWN = "#8c5a2b"
LILAC = "#b3a4e0"
#: For cycles, work is blue, data transfers are green or orange, and waits are red or pink. For energies, work is blue,
#: and DRAM is red, orange or pink.
COLOUR_OF = {
    **dict.fromkeys(("GEMM", "tiu", "engine", "execute", "CPU arithmetic", "compute"), BLUE),
    **dict.fromkeys(("ALU", "CFU wait"), SKY),
    **dict.fromkeys(("load bandwidth", "dma", "data block", "data blocks", "load"), GREEN),
    **dict.fromkeys(("store bandwidth", "result block", "result blocks", "store", "memory"), ORANGE),
    **dict.fromkeys(("DRAM latency", "weight block", "weight blocks"), RED),
    **dict.fromkeys(("DRAM contention", "bias block", "bias blocks"), PINK),
    **dict.fromkeys(("write response",), BROWN),
    **dict.fromkeys(("instruction fetch", "command queue full", "relayout"), VIOLET),
    **dict.fromkeys(("control", "host", "token queue full", "cycles"), GREY),
    **{"sram inp": GREEN, "sram wgt": BROWN, "sram acc": VIOLET, "sram out": LILAC},
    **dict.fromkeys(("sram uop", "sram alu_uop", "sram par", "sram command queues"), GREY),
    **{"macs": BLUE, "operations": SKY, "dram_read": RED, "dram_write": ORANGE, "dram_activate": PINK},
}
FURTHER_COLOURS = (BROWN, VIOLET, PINK, RED, ORANGE, GREEN, SKY, BLUE)
#: The columns of the table: the heading, and whether the cells are numbers.
COLUMNS = (
    *(("#", True), ("layer", False), ("op", False), ("where", False), ("cycles", True), ("why", False)),
    *(("cycles / bound", True), ("MACs", True), ("util", True), ("DRAM read", True), ("DRAM write", True)),
)
NOTHING: Mapping[str, str] = {}
FILTER = '<input type="search" placeholder="filter: conv, host, GEMM ..." aria-label="filter layers">'
#: The id and the heading of each section that a script fills.
FIGURES = (
    ("strip", "Layers in time"),
    ("timeline", "Timeline"),
    ("flame", "Functions"),
    ("roofline", "Roofline"),
    ("network", "Network"),
)


def palette(record: Record) -> dict[str, str]:
    summary = record.run["summary"]
    launches = record.run["launches"]
    names = [*summary["causes"], *(name for launch in launches for name in launch["causes"])]
    names += [colour for launch in launches for _, colour, *_ in launch["chart"]["kinds"] if colour]
    names += (summary.get("energy") or {}).get("by", ())
    unknown = [name for name in dict.fromkeys(names) if name not in COLOUR_OF]
    return {name: COLOUR_OF[name] for name in dict.fromkeys(names) if name in COLOUR_OF} | {
        name: FURTHER_COLOURS[index % len(FURTHER_COLOURS)] for index, name in enumerate(unknown)
    }


def body(record: Record, colours: Mapping[str, str]) -> str:
    """Return the HTML of the body of the page, without the scripts."""
    run = record.run
    summary: Json = run["summary"]
    strip, timeline, flame, roofline, network = (_figure(*figure) for figure in FIGURES)
    charts = [launch["chart"]["title"] for launch in run["launches"] if launch["chart"]["title"]]
    return "\n".join(
        (
            f'<header><h1>{escape(run["headline"])}</h1><button id="theme" title="dark or light">◐</button></header>',
            f'<ul class="cards">{"".join(card(*content) for content in _cards(run, summary))}</ul>',
            _findings(summary),
            _causes(run, colours) if summary["cycles"] else "",
            _energy(summary, colours),
            strip + timeline if run["launches"] else "",
            _figure("chart", escape(charts[0])) if charts else "",
            flame if any(launch["shares"] for launch in run["launches"]) else "",
            _table(run, colours),
            roofline if summary["cycles"] else "",
            network if run["graph"] else "",
            _about(run, summary),
        )
    )


def _cards(run: Json, summary: Json) -> list[tuple[str, str, str, bool]]:
    """Return the cards of the header: the topic, the value, a remark, and whether the value is bad."""
    cycles = summary["cycles"]
    layers = summary["layers"]
    target = summary["target"]
    macs = summary["macs"]
    mine = summary["macs_on_target"]
    on_target = sum(layer["where"] != "host" for layer in layers)
    cards = [
        ("MACs on the machine", share(mine, macs), f"{count(mine)} of {count(macs)}", 2 * mine < macs)
        if macs
        else ("layers on the machine", f"{on_target} of {len(layers)}", target, False)
    ]
    if cycles:
        part = "" if summary["complete"] else ", of the machine's layers alone"
        cards.append(("cycles", f"{cycles:,}", f"for one sample{part}", False))
        if run["clock_mhz"] > 0 and summary["complete"]:
            cards.append(("time", duration(cycles, run["clock_mhz"]), f"at {run['clock_mhz']:g} MHz", False))
        most = next(iter(summary["causes"].values()), 0)
        cards.append(("most cycles go to", summary["binds"], percent(most / cycles), False))
        cards.append(("utilisation", percent(summary["utilization"]), "of the multipliers", False))
    equal = summary["matches_reference"]
    if equal is not None:
        cards.append(("reference", "equal" if equal else "MISMATCH", "to exact integers", not equal))
    if "correct" in summary:
        right = summary["correct"]
        samples = summary["samples"]
        cards.append(("accuracy", percent(right / samples), f"{right} of {samples} samples", False))
    hazards = summary["hazards"]
    checked = summary["checked"]
    # Without a check, "0 hazards" would claim too much.
    number = str(hazards) if checked or hazards else "-"
    return [*cards, ("hazards", number, "" if checked else "not checked", hazards > 0)]


def card(topic: str, value: str, remark: str, bad: bool) -> str:
    style = " class=bad" if bad else ""
    return f"<li{style}><span>{escape(topic)}</span><b>{escape(value)}</b><small>{escape(remark)}</small></li>"


def _figure(name: str, heading: str) -> str:
    return f'<section id="{name}"><h2>{heading}</h2><div class="figure"></div></section>'


def bar(
    parts: Mapping[str, Any],
    colours: Mapping[str, str],
    unit: Callable[[Any], str] = "{:,} cycles".format,
    definitions: Mapping[str, str] = NOTHING,
) -> str:
    """Return a stacked bar of parts, as wide as its container. `definitions` explain parts in tooltips."""
    total = sum(parts.values())
    more = {name: f"&#10;{escape(text)}" for name, text in definitions.items()}  # the second line of the tooltip
    pieces = "".join(
        f'<i style="width:{100 * part / total:.3f}%;background:{colours.get(name, "#888")}"'
        f' title="{escape(name)}: {unit(part)} ({percent(part / total)}){more.get(name, "")}"></i>'
        for name, part in parts.items()
    )
    return f'<span class="bar">{pieces}</span>'


def legend(
    parts: Mapping[str, Any],
    total: float,
    colours: Mapping[str, str],
    unit: Callable[[Any], str] = "{:,}".format,
    definitions: Mapping[str, str] = NOTHING,
) -> str:
    """Return a list of the parts with colour, share and amount. `definitions` explain parts in tooltips."""
    items = "".join(
        f'<li{_tip(name, definitions)}><i style="background:{colours.get(name, "#888")}"></i>{escape(name)}'
        f" <b>{percent(part / total)}</b> <small>{unit(part)}</small></li>"
        for name, part in parts.items()
    )
    return f'<ul class="legend">{items}</ul>'


def _tip(name: str, definitions: Mapping[str, str]) -> str:
    return f' title="{escape(definitions[name])}"' if name in definitions else ""


def _causes(run: Json, colours: Mapping[str, str]) -> str:
    summary, definitions = run["summary"], run.get("definitions", NOTHING)
    causes = summary["causes"]
    shown = f'<div class="causes">{bar(causes, colours, definitions=definitions)}</div>'
    shown += legend(causes, summary["cycles"], colours, definitions=definitions)
    return f"<section><h2>Where the cycles go</h2>{shown}{_whatifs(summary)}</section>"


def _energy(summary: Json, colours: Mapping[str, str]) -> str:
    spent: Json = summary.get("energy") or {}
    if not spent or not spent["picojoules"]:
        return ""
    total = spent["picojoules"]
    names = {name.replace("_", " "): name for name in spent["by"]}
    parts = {name: spent["by"][key] for name, key in names.items()}
    shades = {name: colours.get(key, "#888") for name, key in names.items()}
    shown = f'<div class="causes">{bar(parts, shades, joules)}</div>{legend(parts, total, shades, joules)}'
    limits = f", {joules(spent['low'])} to {joules(spent['high'])}" if spent["low"] < spent["high"] else ""
    left = f" Not counted: {escape(', '.join(spent['missing']))}." if spent["missing"] else ""
    about = f"About {joules(total)} for one sample{limits}, by the table {escape(spent['table'])}: "
    about += f"{escape(spent['source'])} ({escape(spent['technology'])}).{left}"
    return f'<section id="energy"><h2>Energy (estimate)</h2>{shown}<p><small>{about}</small></p></section>'


def _whatifs(summary: Json) -> str:
    answers: Sequence[Json] = summary.get("whatifs", ())
    if not answers:
        return ""
    cycles = summary["cycles"]
    rows = "".join(
        f'<tr><td>{escape(str(answer["change"]))}</td><td class="n">{answer["cycles"]:,}</td>'
        f'<td class="n">{100 * (answer["cycles"] / cycles - 1):+.1f}%</td>'
        f'<td><span class="bar"><i style="width:{100 * min(1, answer["cycles"] / cycles):.2f}%"></i></span></td>'
        f"<td>{escape(str(answer['program']))} program</td></tr>"
        for answer in answers
    )
    table = f'<div class="wide"><table class="whatifs">{rows}</table></div>'
    return f"<h3>What would help (each found by running again)</h3>{table}"


def _findings(summary: Json) -> str:
    causes = summary.get("hazard_causes") or [{"shown": [finding], "others": ""} for finding in summary["findings"]]
    if not causes:
        return ""
    entries = (["<br>so ".join(map(_finding, cause["shown"])), escape(cause["others"])] for cause in causes[:LISTED])
    listed = "".join(f"<li>{'<br>'.join(filter(None, entry))}</li>" for entry in entries)
    return f'<section id="hazards"><h2>Hazards</h2><div class="figure"><ul class="bad">{listed}</ul></div></section>'


def _finding(finding: Json) -> str:
    return f"{escape(finding['kind'])} in {escape(finding['launch'])}: {escape(finding['message'])}"


def _table(run: Json, colours: Mapping[str, str]) -> str:
    head = "".join(f"<th{' class=n' if number else ''}><button>{name}</button></th>" for name, number in COLUMNS)
    definitions = run.get("definitions", NOTHING)
    rows = "".join(_row(index, layer, colours, definitions) for index, layer in enumerate(run["summary"]["layers"]))
    return (
        f'<section id="layers"><h2>Layers</h2><div class="tools">{FILTER}</div>'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def _row(index: int, layer: Json, colours: Mapping[str, str], definitions: Mapping[str, str]) -> str:
    host = layer["where"] == "host"
    cycles = layer["cycles"]
    bound = layer.get("bound", 0)
    if host:
        why = escape(layer["reason"])
    else:
        most = f"<small{_tip(layer['binds'], definitions)}>{escape(layer['binds'])}</small>"
        why = bar(layer["causes"], colours, definitions=definitions) + most
    utilised = percent(layer["utilization"]) if cycles and (layer["macs"] or layer["executed_macs"]) else ""
    cells = (
        (index, str(index)),
        (layer["name"], escape(layer["name"])),
        (layer["op"], escape(layer["op"])),
        (layer["where"], escape(layer["where"])),
        (cycles, "" if host else f"{cycles:,}"),
        (layer["binds"], why),
        (cycles / bound if bound else 0, f"{cycles / bound:.2f}{_optimal(layer)}" if bound else ""),
        (layer["macs"], count(layer["macs"]) if layer["macs"] else ""),
        (layer["utilization"], utilised),
        (layer["dram_read_bytes"], size(layer["dram_read_bytes"]) if layer["dram_read_bytes"] else ""),
        (layer["dram_write_bytes"], size(layer["dram_write_bytes"]) if layer["dram_write_bytes"] else ""),
    )
    inner = "".join(
        f'<td{" class=n" if number else ""} data-v="{escape(str(value))}">{text}</td>'
        for (value, text), (_, number) in zip(cells, COLUMNS, strict=True)
    )
    return f'<tr data-layer="{index}" tabindex="0"{" class=host" if host else ""}>{inner}</tr>\n'


def _optimal(layer: Json) -> str:
    why = layer.get("optimal", "")
    return f' <abbr title="{escape(why)}">optimal</abbr>' if why else ""


def _about(run: Json, summary: Json) -> str:
    facts = "".join(
        f"<dt>{escape(topic)}</dt><dd{' class=bad' if bad else ''}>{escape(text)}</dd>"
        for topic, text, bad in run["facts"]
    )
    origin = [
        ("command", run["command"]),
        ("file", run["source"]),
        ("SHA-256", run["sha256"]),
        ("made by", run["made_by"]),
    ]
    more = "".join(f"<dt>{topic}</dt><dd><code>{escape(text)}</code></dd>" for topic, text in origin if text)
    keys = "".join(f"<dt>{escape(key)}</dt><dd>{escape(str(value))}</dd>" for key, value in summary["config"].items())
    return (
        f'<section id="about"><h2>About this run</h2><dl>{facts}{more}</dl>'
        f"<details><summary>configuration of {escape(summary['target'])}</summary><dl>{keys}</dl></details></section>"
    )
