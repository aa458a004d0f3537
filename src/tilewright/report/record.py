"""A finished run as plain data, for its page, a saved run (FILE.twr) and a comparison of runs.

The data are one JSON object and arrays. Launch i has these arrays, which are int64 except for the series:

- `steps/i` [columns, n]: the steps, with the columns COLUMNS
- `tokens/i` [3, m]: for each token, the step that pushes the token, the step that pops the token, and the queue
- `path/i` [3, k]: the step, the cause and the end of each section of the critical path
- `series/i/j` float64 [2, k]: the times and the values of series j (report/series.py)
- `chart/i` [6, k]: the boxes of the launch's own figure (sim/chart.py), none if the launch has no figure
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.fields import Open, Range, decode, types
from tilewright.fields import record as checked
from tilewright.graph.ir import Graph
from tilewright.program import archive
from tilewright.program.program import HostStep, Program
from tilewright.report.series import series
from tilewright.report.summary import Summary, facts, headline, title
from tilewright.sim.causes import NAMES
from tilewright.sim.chart import NO_CHART, STYLES
from tilewright.sim.figures import Figures
from tilewright.sim.order import match_tokens
from tilewright.sim.steps import StepTable, Trace

FORMAT = archive.Format("tilewright run", "run.json", "saved run", "save the run again with `tilewright run --save`")

#: The columns of a launch's steps. `kind`, `wait_for` and `text` are indices of the launch's causes, waits and texts.
#: Times are in cycles from the start of the launch.
COLUMNS = ("unit", "kind", "start", "until", "end", "wait", "wait_for", "text", "read", "written")
#: A longer series is reduced to this many points.
POINTS = 256
#: In a launch with more steps, the texts of the instructions would take too much space. Such a launch has
#: only the kinds of its instructions.
DESCRIBED = 200_000

_RUN = {
    "summary": dict,
    "title": str,
    "headline": str,
    "facts": tuple[tuple[str, str, bool], ...],
    "clock_mhz": float,
    "machine": dict,
    "definitions": dict[str, str],
    "made_by": str,
    "command": str,
    "source": str,
    "sha256": str,
    "graph": list,
    "launches": list,
}
_NODE = {"name": str, "op": str, "inputs": tuple[str, ...], "outputs": tuple[str, ...], "shape": str, "reason": str}
_LAUNCH = {
    "name": str,
    "layer": int,
    "layers": int,
    "cycles": int,
    "units": tuple[str, ...],
    "queues": tuple[str, ...],
    "causes": tuple[str, ...],
    "waits": tuple[str, ...],
    "texts": tuple[str, ...],
    "series": tuple[tuple[str, str, int], ...],  # name, unit, largest possible value
    "shares": dict,  # Trace.shares: the cycles of each step by part
    "chart": dict,
}
_CHART = {
    "title": str,  # empty: the launch has no chart
    "rows": tuple[tuple[str, int], ...],
    "kinds": tuple[tuple[str, str, str, int, int], ...],
}


def _list(hints: Mapping[str, Any]) -> Any:
    return GenericAlias(list, (Open(hints),))


#: Below are the types of the keys that the page and `compare` read: in the summary, its layers, its findings and its
#: what-ifs. A file may have other keys, because a later version may add keys.
Count: TypeAlias = Annotated[int, Range(0)]
Amount: TypeAlias = Annotated[float, Range(0)]
_CAUSES = {"causes": dict[str, Annotated[int, Range(1)]], "binds": str, "cycles": Count}
_LAYER = {
    **_CAUSES,
    **{name: Count for name, hint in types(Figures).items() if hint is int},
    **{"name": str, "op": str, "where": str, "reason": str, "macs": Count, "utilization": Amount},
}
_FINDING = {"kind": str, "launch": str, "message": str, "steps": tuple[Count, ...]}
_CAUSE = {"count": Count, "others": str, "shown": _list(_FINDING)}
_WHATIF = {"change": str, "cycles": Count, "program": str}
_ENERGY = Open(
    {
        **{"picojoules": Amount, "low": Amount, "high": Amount, "by": dict[str, Amount], "missing": dict},
        **{"table": str, "technology": str, "source": str},
    }
)
_SUMMARY = Open(
    {
        **_CAUSES,
        **{"model": str, "target": str, "config": dict, "complete": bool, "utilization": Amount, "samples": Count},
        **{"macs": Count, "macs_on_target": Count, "matches_reference": bool | None, "checked": bool, "hazards": Count},
        **{"layers": _list(_LAYER), "findings": _list(_FINDING), "whatifs": _list(_WHATIF)},
        **{"correct": Count, "timing": str, "rounding": str, "hazard_causes": _list(_CAUSE)},
    },
    {"correct": 0, "timing": "", "rounding": "", "hazard_causes": []},
)


class Origin(NamedTuple):
    """Where a run comes from: the command line, the file that ran, its SHA-256 (hex), and Tilewright's version."""

    command: str = ""
    source: str = ""
    sha256: str = ""
    made_by: str = ""


ANYWHERE = Origin()


class Record(NamedTuple):
    """The data of a run: the JSON object `run` with the keys of _RUN, and the arrays."""

    run: Mapping[str, Any]
    arrays: Mapping[str, Array]


def of(summary: Summary, origin: Origin = ANYWHERE) -> Record:
    arrays: dict[str, Array] = {}
    program = summary.result.program
    launches = []
    for index, (first, count, trace) in enumerate(_launches(summary)):
        launch, launch_arrays = _launch(trace)
        name = summary.result.layers[first].name
        launches.append({"name": name, "layer": first, "layers": count, **launch})
        for key, array in launch_arrays.items():
            kind, *number = key.split("/")
            arrays["/".join((kind, str(index), *number))] = array
    run = {
        "summary": summary.to_json(),
        "title": title(summary.result),
        "headline": headline(summary),
        "facts": [list(fact) for fact in facts(summary)],
        "clock_mhz": summary.result.clock_mhz,
        "machine": dict(summary.result.machine),
        "definitions": {name: str(cause) for name, cause in summary.result.definitions.items()},
        **origin._asdict(),
        "graph": _nodes(program.graph, program) if program and program.graph else [],
        "launches": launches,
    }
    return Record(run, arrays)


def save(record: Record, path: str | Path) -> None:
    """Write a saved run (.twr) completely, or not at all. Raises ProgramError if the file cannot be written."""
    archive.write(path, FORMAT, record.run, record.arrays, compress=True)


def load(path: str | Path) -> Record:
    """Read a saved run. Raises ProgramError with the name of the file if the file cannot be read or is malformed."""
    data, arrays = archive.read(path, FORMAT)
    with archive.naming(path), archive.damage_of(FORMAT):
        run = checked(_RUN, data, "run", {"definitions": {}})
        for index, node in enumerate(run["graph"]):
            checked(_NODE, node, f"graph[{index}]")
        layers = _layers(run["summary"])
        used = set[str]()
        for index, launch in enumerate(run["launches"]):
            values = checked(_LAUNCH, launch, f"launches[{index}]")
            if not (values["layer"] >= 0 and 1 <= values["layers"] <= layers - values["layer"]):
                raise ProgramError(f"launches[{index}]", f"names layers that are not among the run's {layers}")
            _check(values, index, arrays)
            used |= {f"{key}/{index}" for key in _ARRAYS}
            used |= {f"series/{index}/{number}" for number in range(len(values["series"]))}
        if extra := arrays.keys() - used:
            raise ProgramError("", f"holds the array '{min(extra)}', which is not used")
    return Record(data, arrays)


def _launches(summary: Summary) -> Iterator[tuple[int, int, Trace]]:
    layers = summary.result.layers
    starts = [index for index, layer in enumerate(layers) if layer.trace or layer.where == "host"] + [len(layers)]
    for first, after in pairwise(starts):
        if trace := layers[first].trace:
            yield first, after - first, trace


def _launch(trace: Trace) -> tuple[dict[str, Any], dict[str, Array]]:
    table = trace.table
    works, work = trace.kinds()
    causes = (*works, *NAMES)
    reads, writes = trace.bytes_read > 0, trace.bytes_written > 0
    # A step is a pure transfer if it either reads or writes DRAM. A step that does both also computes.
    moves = np.where(reads == writes, work, len(works) + writes)
    texts, text = _texts(table, work, works)
    columns = (table.unit, moves, trace.start, trace.until, trace.end, trace.wait, trace.cause, text)
    giver, _ = match_tokens(table)
    taker, queue = np.nonzero(giver >= 0)
    arrays = {
        "steps": np.stack((*columns, trace.bytes_read, trace.bytes_written)).astype(np.int64),
        "tokens": np.stack((giver[taker, queue], taker, queue)).astype(np.int64),
        "path": np.zeros((3, 0), np.int64),
    }
    if trace.path:
        arrays["path"] = np.stack((trace.path.step, trace.causes_on(trace.path)[1], trace.path.end))
    chart = trace.chart or NO_CHART
    arrays["chart"] = chart.boxes
    shown = series(trace)
    for index, curve in enumerate(shown):
        short = curve.at_most(POINTS)
        arrays[f"series/{index}"] = np.stack((short.time, short.value)).astype(np.float64)
    about = {
        "cycles": trace.cycles,
        "units": list(table.units),
        "queues": [queue.name for queue in table.queues],
        "causes": list(causes),
        "waits": trace.cause_names(),
        "texts": texts,
        "series": [[curve.name, curve.unit, curve.most] for curve in shown],
        "shares": {name: [dict(parts) for parts in steps] for name, steps in trace.shares.items()},
        "chart": {
            "title": chart.title,
            "rows": [[*row] for row in chart.rows],
            "kinds": [[*curve] for curve in chart.kinds],
        },
    }
    return about, arrays


def _texts(table: StepTable, work: Array, works: tuple[str, ...]) -> tuple[list[str], Array]:
    if len(table) > DESCRIBED:
        return list(works), work
    numbers: dict[str, int] = {}
    text = np.array([numbers.setdefault(table.describe(step), len(numbers)) for step in range(len(table))], np.int64)
    return list(numbers), text


def _nodes(graph: Graph, program: Program) -> list[dict[str, Any]]:
    reasons = {step.node: step.reason for step in program.steps if isinstance(step, HostStep)}
    return [
        {
            "name": site.node.name,
            "op": site.node.op.label,
            "inputs": [name for name in site.node.inputs if name and graph.tensors[name].data is None],
            "outputs": list(site.node.outputs),
            "shape": " ".join("x".join(map(str, tensor.shape)) for tensor in site.outputs),
            "reason": reasons.get(site.node.name, ""),
        }
        for site in graph.sites()
    ]


#: The arrays of a launch, with their number of rows.
_ARRAYS = {"steps": len(COLUMNS), "tokens": 3, "path": 3, "chart": len(NO_CHART.boxes)}


def _layers(summary: Mapping[str, Any]) -> int:
    """Return the number of layers of a run. Raises ProgramError if the summary differs in form from --json."""
    decode(_SUMMARY, summary, "summary")
    if summary.get("energy") is not None:
        decode(_ENERGY, summary["energy"], "summary.energy")
    for index, cause in enumerate(summary.get("hazard_causes", ())):
        if not cause["shown"]:
            raise ProgramError(f"summary.hazard_causes[{index}].shown", "is empty")
    return len(summary["layers"])


def _check(launch: Mapping[str, Any], index: int, arrays: Mapping[str, Array]) -> None:
    """Check that a launch's arrays fit each other. Raises ProgramError with the name of the array that does not fit."""
    for key, rows in _ARRAYS.items():
        array = arrays.get(f"{key}/{index}")
        if array is None or array.dtype != np.int64 or array.ndim != 2 or len(array) != rows:
            raise ProgramError(f"{key}/{index}", f"is missing, or is no int64 array of {rows} rows")
    for number in range(len(launch["series"])):
        curve = arrays.get(f"series/{index}/{number}")
        if (
            curve is None
            or curve.dtype != np.float64
            or curve.ndim != 2
            or len(curve) != 2
            or not np.isfinite(curve).all()
        ):
            raise ProgramError(f"series/{index}/{number}", "is missing, or is no float64 array of 2 finite rows")
    steps = arrays[f"steps/{index}"]
    columns = dict(zip(COLUMNS, steps, strict=True))
    count = steps.shape[1]
    # All limits are exclusive, and a step may end at `cycles`.
    limits = [(columns[name], launch["cycles"] + 1, name) for name in ("start", "until", "end", "wait")]
    for name, among in (("unit", "units"), ("kind", "causes"), ("wait_for", "waits"), ("text", "texts")):
        limits.append((columns[name], len(launch[among]), name))
    giver, taker, queue = arrays[f"tokens/{index}"]
    step, cause, end = arrays[f"path/{index}"]
    limits += [(giver, count, "tokens"), (taker, count, "tokens"), (queue, len(launch["queues"]), "tokens")]
    limits += [(step, count, "path"), (cause, len(launch["causes"]), "path"), (end, launch["cycles"] + 1, "path")]
    limits += _limits(launch, index, arrays[f"chart/{index}"], count)
    for values, limit, name in limits:
        if values.size and not (values.min() >= 0 and values.max() < limit):
            raise ProgramError(f"launch {index}", f"has a value of '{name}' that is not in 0..{limit - 1}")


def _limits(launch: Mapping[str, Any], index: int, boxes: Array, count: int) -> list[tuple[Array, int, str]]:
    """Return a tuple for each column of a launch's chart: the column, the limit of its values, and its name in errors.

    `count` is the number of steps of the launch. Raises ProgramError if the chart is malformed.
    """
    chart = checked(_CHART, launch["chart"], f"launches[{index}].chart")
    for text, _, style, top, bottom in chart["kinds"]:
        if style not in STYLES or not 0 <= top < bottom <= 100:
            raise ProgramError(f"launches[{index}].chart", f"has a kind '{text}' that cannot be drawn")
    limits = (len(chart["rows"]), len(chart["kinds"]), 1 << 53, *[launch["cycles"] + 1] * 2, count)
    return [(column, limit, "chart") for column, limit in zip(boxes, limits, strict=True)]
