"""The summary of a run: the object of `--json`, the cells of the table of layers, and the facts below the table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.energy import DEFAULT, Energy, Table
from tilewright.graph.ir import Graph
from tilewright.model.verification import Verification
from tilewright.report.metrics import HOST, RECOMPILED, Deviation, Layer, Result, UserKernels, WhatIf

CAUSE = "most cycles go to / why on host"
COLUMNS = ("#", "layer", "op", "where", "cycles", "serial", "MACs", "util", "DRAM read", "DRAM write", CAUSE)
NUMERIC = {"#", "cycles", "serial", "MACs", "util", "DRAM read", "DRAM write"}
#: A report lists this many predictions or findings, and counts the others.
LISTED = 20
#: A report lists this many what-ifs.
BEST = 5
#: A report lists this many classes for each sample.
TOP = 5
#: The best classes of each sample, best first, with their scores.
Ranking = tuple[tuple[tuple[int, float], ...], ...]
#: A report begins with a warning if less than this share of the MACs ran on the machine. A network counts as not
#: quantised if the host computes more than this share of the MACs on real numbers.
HALF = 0.5
#: A report lists as many parts of the energy as are needed for this share.
MOST = 0.9


@dataclass(frozen=True, eq=False)
class Summary:
    """A result, the source of its samples, and the predicted and true class of each sample.

    `advice` explains how to run more of the network on the machine ("" if no way is known). `table` is a table of
    energies, the name of such a table, or its file. If `table` is None, the text of the report omits the energy.
    `kernels` are the kernels of the user's firmware (None: built-in firmware). `ranked` is the result of the function
    `ranked`. `names` has the names of the classes.
    """

    result: Result
    source: str
    predictions: tuple[int, ...] | None = None
    labels: tuple[int, ...] | None = None
    verification: Verification | None = None
    advice: str = ""
    table: str | Table | None = None
    kernels: UserKernels | None = None
    ranked: Ranking | None = None
    names: tuple[str, ...] | None = None

    @cached_property
    def energy(self) -> Energy | None:
        """The estimated energy of the launches. Raises ConfigError if the table cannot be read."""
        return self.result.energy(self.table or DEFAULT)

    @property
    def wrong(self) -> list[int] | None:
        """The indices of the samples with a wrong prediction, or None without predictions or labels."""
        if self.predictions is None or self.labels is None:
            return None
        pairs = zip(self.predictions, self.labels, strict=True)
        return [sample for sample, (predicted, label) in enumerate(pairs) if predicted != label]

    @property
    def in_top(self) -> int | None:
        """The number of samples whose label is among the TOP best classes, or None without ranking or labels."""
        if self.ranked is None or self.labels is None:
            return None
        pairs = zip(self.ranked, self.labels, strict=True)
        return sum(label in [kind for kind, _ in best] for best, label in pairs)

    def name_of(self, kind: int) -> str:
        """Return a class as text: its number, and its name if it has one."""
        name = self.names[kind] if self.names and kind < len(self.names) else ""
        return f"{kind} ({name})" if name else str(kind)

    @property
    def passed(self) -> bool:
        if self.verification is not None and self.verification.differences:
            return False
        return not self.result.findings and self.result.matches_reference is not False

    def to_json(self) -> dict[str, Any]:
        printed = self.result.to_json(self.energy) | {"inputs": self.source, "checked": self.result.checked}
        if self.predictions is not None:
            printed["predictions"] = list(self.predictions)
        if self.ranked is not None:
            printed["top"] = [[self._entry(*entry) for entry in best] for best in self.ranked]
        if self.wrong is not None:
            printed["correct"] = self.result.samples - len(self.wrong)
        if self.in_top is not None:
            printed["correct_in_top"] = self.in_top
        if self.verification is not None:
            printed["verification"] = self.verification.to_json()
        if self.advice:
            printed["advice"] = self.advice
        if self.kernels is not None:
            printed["firmware"] = self.kernels.to_json(self.result)
        return printed

    def _entry(self, kind: int, score: float) -> dict[str, Any]:
        named = {"name": self.names[kind]} if self.names and kind < len(self.names) else {}
        return {"class": kind, "score": score, **named}


def predict(graph: Graph | None, outputs: Mapping[str, Array]) -> tuple[int, ...] | None:
    """Return the class with the highest score for each sample, or None if the output is not one vector of scores."""
    # An output with the shape of an input is a reconstruction (as of an autoencoder), so it has no classes.
    scores = _scores(graph, outputs)
    return None if scores is None else tuple(int(best) for best in np.argmax(scores, axis=1))


def ranked(graph: Graph | None, outputs: Mapping[str, Array]) -> Ranking | None:
    """Return the TOP best classes of each sample, the best first, with their scores as real numbers.

    Return None if `predict` returns None, or if the network has at most TOP classes. Among equal scores, the lower
    class is first.
    """
    scores = _scores(graph, outputs)
    if graph is None or scores is None or scores.shape[1] <= TOP:  # every label would be among the TOP best classes
        return None
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :TOP]
    tensor = graph.tensors[graph.outputs[0]]
    best = np.take_along_axis(scores, order, 1).astype(np.float64)
    if tensor.quant is not None:
        best = (best - tensor.zero_point) * tensor.scale
    return tuple(tuple(zip(*sample, strict=True)) for sample in zip(order.tolist(), best.tolist(), strict=True))


def _scores(graph: Graph | None, outputs: Mapping[str, Array]) -> Array | None:
    """Return the scores (samples, classes) of the only output, or None if it is not one vector of scores."""
    if graph is None:
        return None
    shapes = [graph.tensors[name].shape for name in graph.outputs]
    if len(shapes) != 1 or not shapes[0] or shapes[0][-1] < 2 or graph.tensors[graph.outputs[0]].size != shapes[0][-1]:
        return None
    if any(graph.tensors[name].shape == shapes[0] for name in graph.inputs):
        return None
    scores = outputs[graph.outputs[0]]
    return scores.reshape(scores.shape[0], -1)


def cells(index: int, layer: Layer) -> dict[str, str]:
    on_host = layer.where == "host"
    return dict(
        zip(
            COLUMNS,
            (
                str(index),
                layer.name,
                layer.op,
                layer.where,
                "-" if on_host else f"{layer.cycles:,}",
                f"{layer.serial_cycles:,}" if layer.serial_cycles else "-",
                count(layer.macs) if layer.macs else "-",
                percent(layer.utilization) if layer.cycles and (layer.macs or layer.executed_macs) else "-",
                size(layer.dram_read_bytes) if layer.dram_read_bytes else "-",
                size(layer.dram_write_bytes) if layer.dram_write_bytes else "-",
                layer.reason if on_host else top_causes(layer.causes),
            ),
            strict=True,
        )
    )


def totals(result: Result) -> dict[str, str]:
    """Return the row of totals, the last row of the table of layers: {column name: text}."""
    read = sum(layer.dram_read_bytes for layer in result.layers)
    written = sum(layer.dram_write_bytes for layer in result.layers)
    return {
        "layer": "total",
        "cycles": f"{result.cycles:,}",
        "serial": f"{result.serial_cycles:,}" if result.serial_cycles else "-",
        "MACs": count(result.macs),
        "util": percent(result.utilization) if result.cycles else "-",
        "DRAM read": size(read) if read else "-",
        "DRAM write": size(written) if written else "-",
        CAUSE: f"cycles: {_only(result)}" if result.cycles and not result.complete else top_causes(result.causes),
    }


def title(result: Result) -> str:
    rounding = f", rounding {result.rounding}" if result.rounding else ""
    return f"{result.model} on {result.target}{rounding}"


def headline(summary: Summary) -> str:
    """Return the first line of the report. It is a warning if less than HALF of the network ran on the machine."""
    result = summary.result
    if result.coverage >= HALF:
        return title(result)
    return "; ".join(filter(None, (f"{title(result)}: only {coverage(result)} ran on {result.target}", summary.advice)))


def coverage(result: Result) -> str:
    """Return the part of a network that ran on the machine, such as "41.3 % of the MACs" or "2 of 5 layers"."""
    if result.macs:
        return f"{share(result.macs_on_target, result.macs)} of the MACs"
    return f"{sum(layer.where != HOST for layer in result.layers)} of {len(result.layers)} layers"


class Fact(NamedTuple):
    """One line below the table of layers; `bad` marks a failure."""

    topic: str
    statement: str
    bad: bool = False


def facts(summary: Summary) -> Iterator[Fact]:
    result = summary.result
    yield Fact("MACs", machine_macs(result))
    yield Fact("inputs", summary.source)
    if result.cycles:
        yield from _of_time(result)
    if (kernels := summary.kernels) is not None:
        whole = f"{sum(kernels.cycles.values()):,} cycles with the built-in '{kernels.beside}'"
        yield Fact("firmware", f"{kernels.firmware}, {kernels.compiler}; {whole}")
    if summary.table:
        yield Fact("energy", energy(summary))
    if summary.advice and result.coverage >= HALF:  # if the coverage is smaller, the first line has this advice
        left = sum(layer.where == HOST for layer in result.layers)
        yield Fact("on the host", f"{_layers(left)}; {summary.advice}")
    yield from _of_classes(summary)
    yield Fact("simulated in", f"{result.seconds:.2f} s")
    yield Fact("reference", _reference(result), result.matches_reference is False)
    if summary.verification is not None:
        yield Fact("import", str(summary.verification), bool(summary.verification.differences))
    hazards = str(len(result.findings)) if result.checked or result.findings else "not checked"
    yield Fact("hazards", hazards, bool(result.findings))


def _of_time(result: Result) -> Iterator[Fact]:
    yield Fact("time", _time(result)) if result.complete else Fact("cycles", cycles_of_launches(result))
    if result.serial_cycles:
        saved = percent(1 - result.cycles / result.serial_cycles)
        yield Fact("overlap", f"saves {saved} of the {result.serial_cycles:,} cycles in serial order")
    elif result.serial_cycles is None:
        yield Fact("overlap", _no_serial(result))
    yield Fact("timing model", f"{result.timing}: {result.evidence}")
    peak = f"{percent(result.utilization)} of {_peak(result)}"
    yield Fact("utilisation", f"{peak} (executed MACs, in the cycles on {result.target})")
    for whatif in better(result):
        recompiled = " (compiled again)" if whatif.program == RECOMPILED else ""
        less = share(result.cycles - whatif.cycles, result.cycles)
        yield Fact("what-if", f"{whatif.change}{recompiled}: {whatif.cycles:,} cycles (-{less})")


def _of_classes(summary: Summary) -> Iterator[Fact]:
    if summary.predictions is not None:
        yield Fact("predictions", _listed([str(best) for best in summary.predictions]))
    ranked = summary.ranked if summary.ranked and len(summary.ranked[0]) > 2 else ()
    if ranked:
        first = ", ".join(f"{summary.name_of(kind)} {score:.3g}" for kind, score in ranked[0])
        yield Fact(f"top {len(ranked[0])}", first if len(ranked) == 1 else f"sample 0: {first}")
    if summary.wrong is not None:
        yield Fact("accuracy", _accuracy(summary, summary.wrong))
    if summary.in_top is not None and ranked:
        right = f"{summary.in_top} of {len(ranked)} among the best {len(ranked[0])}"
        yield Fact("in the top", f"{right} ({percent(summary.in_top / len(ranked))})")


def better(result: Result) -> list[WhatIf]:
    """Return the what-ifs that take fewer cycles than the run: at most BEST, and the fastest first."""
    return [whatif for whatif in result.whatifs if whatif.cycles < result.cycles][:BEST]


def energy(summary: Summary) -> str:
    """Return text with the estimated energy of a sample, its largest parts, and the table of energies."""
    estimated = summary.energy
    if estimated is None:
        return f"not estimated: {summary.result.target} counts no events"
    total = estimated.total
    told = 0.0
    shown = list[str]()
    for cause, cost in estimated.by.items():
        shown.append(f"{cause.replace('_', ' ')} {percent(cost.picojoules / total.picojoules)}")
        told += cost.picojoules
        if told >= MOST * total.picojoules:
            break
    limits = f" ({joules(total.low)} to {joules(total.high)})" if total.low < total.high else ""
    parts = f": {', '.join(shown)}" if shown else ""
    missing = f"; not counted: {', '.join(estimated.missing)}" if estimated.missing else ""
    return f"about {joules(total.picojoules)}{limits}, an estimate by the table {estimated.table.name}{parts}{missing}"


def real_share(graph: Graph, nodes: Collection[str]) -> float:
    """Return the share (0 to 1) of the network's multiply-accumulates that the nodes `nodes` do on floats."""
    macs = [(site.node.op.macs(site), site) for site in graph.sites() if site.inputs]
    real = sum(n for n, s in macs if s.inputs[0] and s.inputs[0].dtype.startswith("float") and s.node.name in nodes)
    return real / max(1, sum(count for count, _ in macs))


def weightiest(graph: Graph, reasons: Mapping[str, str]) -> str:
    """Return the reason that keeps the most MACs on the host. `reasons` says why the host runs each node."""
    total: dict[str, int] = {}
    for site in graph.sites():
        if reason := reasons.get(site.node.name):
            total[reason] = total.get(reason, 0) + site.node.op.macs(site)
    return max(total, key=lambda reason: total[reason], default="")


def machine_macs(result: Result) -> str:
    """Return text with the number of MACs that ran on the machine, such as "0 of 12.5 M MACs ran on cfu (0 %)"."""
    if not result.macs:
        mine = sum(layer.where != HOST for layer in result.layers)
        return f"none to run; {mine} of {len(result.layers)} layers ran on {result.target}"
    mine = result.macs_on_target
    text = f"{count(mine)} of {count(result.macs)} MACs ran on {result.target} ({share(mine, result.macs)})"
    executed = count(result.executed_macs)
    return text if executed == count(mine) else f"{text}, which executed {executed}"


def cycles_of_launches(result: Result) -> str:
    """Return text about the cycles of a run in which the host ran some layers. The cycles exclude these layers."""
    text = f"{result.cycles:,} per sample, {_only(result)}"
    if not result.macs:
        return f"{text}; not the network's time: the host ran the other layers"
    left = f"{count(result.macs - result.macs_on_target)} MACs ran on the host"
    return f"{text} ({coverage(result)}); not the network's time: {left}"


def _only(result: Result) -> str:
    return f"of {_layers(sum(layer.where != HOST for layer in result.layers))} on {result.target} only"


def _layers(number: int) -> str:
    return f"{number} {'layer' if number == 1 else 'layers'}"


def _peak(result: Result) -> str:
    # Some machines do more MACs per cycle on operands of fewer bits. Then the layers have several peaks.
    peaks = {layer.macs_per_cycle or result.macs_per_cycle for layer in result.layers if layer.cycles}
    return " and ".join(str(peak) for peak in sorted(peaks)) + " MAC/cycle"


def _time(result: Result) -> str:
    text = f"{result.cycles:,} cycles per sample"
    if result.clock_mhz > 0:
        text += f" = {duration(result.cycles, result.clock_mhz)} at {result.clock_mhz:g} MHz"
    text += f", for {coverage(result)}"
    return text + " (host steps not counted)" if any(layer.where == HOST for layer in result.layers) else text


def duration(cycles: int, clock_mhz: float) -> str:
    """Return as text how long `cycles` take at a clock of `clock_mhz`, which must not be 0."""
    micro = cycles / clock_mhz
    return f"{micro / 1000:,.3f} ms" if micro >= 100 else f"{micro:.2f} us"


def _no_serial(result: Result) -> str:
    names = [layer.name for layer in result.layers if layer.serial_cycles is None]
    return (
        f"the time in serial order is not defined: in {_listed(names)} an instruction needs a token, or room for one, "
        "from a later instruction of the stream"
    )


def _accuracy(summary: Summary, wrong: list[int]) -> str:
    total = summary.result.samples
    text = f"{total - len(wrong)} of {total} right ({percent(1 - len(wrong) / total)})"
    if wrong and summary.labels and summary.predictions:
        first = wrong[0]
        text += f"; first wrong: sample {first} is {summary.labels[first]}, predicted {summary.predictions[first]}"
    return text


def _reference(result: Result) -> str:
    if result.deviations:
        return "; ".join(_deviation(name, deviation) for name, deviation in result.deviations.items())
    if result.matches_reference is None:
        return "not compared"
    if result.matches_reference:
        return "all outputs are equal"
    return f"MISMATCH: outputs differ from the {'integer reference' if result.rounding else 'expected bytes'}"


def _deviation(name: str, deviation: Deviation) -> str:
    ratio = "" if deviation.snr_db is None else f", signal to noise {deviation.snr_db:.1f} dB"
    if deviation.overflowed:
        name = f"{deviation.overflowed:,} values of {name} overflow (choose a type with a larger range); the rest"
    return f"{name} differs by up to {deviation.largest:.3g}{ratio}"


def _listed(items: list[str]) -> str:
    more = f" ... and {len(items) - LISTED} more" if len(items) > LISTED else ""
    return " ".join(items[:LISTED]) + more


def top_causes(causes: Mapping[str, int]) -> str:
    """Return the largest causes, which explain at least half of the cycles, with their shares."""
    total = sum(causes.values())
    told = 0
    shown: list[str] = []
    for cause, cycles in causes.items():
        shown.append(f"{cause} {100 * cycles / total:.0f}%")
        told += cycles
        if 2 * told >= total:
            break
    return ", ".join(shown) or "-"


def percent(part: float) -> str:
    return f"{100 * part:.1f}%"


def share(part: int, whole: int) -> str:
    """Return `part / whole` in percent as text. Only an exact share of 0 or 1 becomes 0 % or 100 %."""
    if part in (0, whole):
        return "100 %" if part else "0 %"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"


def count(number: int) -> str:
    """Return a number as text with three digits and a decimal prefix, such as 257 k."""
    return _scaled(number, 1000, ("", " k", " M", " G", " T"))


def size(number: int) -> str:
    """Return a number of bytes as text with three digits and a binary unit, such as 17.2 KiB."""
    return _scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def joules(picojoules: float) -> str:
    return _scaled(picojoules, 1000, (" pJ", " nJ", " uJ", " mJ", " J"))


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    value = float(number)
    unit = 0
    while value >= 999.5 and unit < len(units) - 1:
        value = value / base
        unit = unit + 1
    digits = 0 if not unit or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}{units[unit]}"
