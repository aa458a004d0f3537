"""A run as one timeline: a track a unit, a slice an instruction, an arrow a token. One cycle is one nanosecond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.errors import InputError
from tilewright.report.metrics import Layer, Result
from tilewright.report.summary import cycles_of_launches, machine_macs, title
from tilewright.sim.steps import Trace

LAYERS, HOST = 0, 1

Args = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Event:
    """A slice of `duration` cycles, or an instant (None). Tokens leave by `gives` and arrive by `takes`: flow ids."""

    track: int
    name: str
    start: int
    duration: int | None
    args: Args
    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """Events ordered by start; those of one track do not overlap."""

    title: str
    tracks: tuple[str, ...]
    events: tuple[Event, ...]
    about: Mapping[str, str]


def timeline(result: Result) -> Timeline:
    """All launches of a run one after another. Raises InputError for a run without cycles."""
    if not any(layer.trace for layer in result.layers):
        raise InputError("--trace", "this run has no cycles to show", "choose a timing model")
    tracks = ["layers", "host"]
    events: list[Event] = []
    now = flows = busy = 0
    for layer in result.layers:
        if layer.trace or layer.where == "host":
            now = max(now, busy)  # a launch of several samples is longer than its layers' shares of one
        if layer.where == "host":
            args: Args = {"op": layer.op, "reason": layer.reason, "host seconds": round(layer.seconds, 6)}
            events.append(Event(HOST, layer.name, now, None, args))
            continue
        about: Args = {"op": layer.op, "cycles": layer.cycles, "MACs": layer.macs, **_stalls(layer)}
        events.append(Event(LAYERS, layer.name, now, layer.cycles, about))
        if layer.trace:
            busy = now + layer.trace.cycles
            tracks += [unit for unit in layer.trace.table.units if unit not in tracks[2:]]
            tokens = _tokens(layer.trace, flows)
            events += _steps(layer.trace, now, tokens, [tracks.index(unit, 2) for unit in layer.trace.table.units])
            flows += sum(len(gives) for gives, _ in tokens)
        now += layer.cycles
    about_run = {
        "made by": "tilewright",
        "time unit": "1 ns is 1 cycle of the machine; host steps take no time",
        "timing model": f"{result.timing}: {result.evidence}",
        "cycles": f"{result.cycles}, for one sample" if result.complete else cycles_of_launches(result),
        "MACs": machine_macs(result),
    }
    order = sorted(events, key=lambda e: (e.start, e.track > HOST, e.start + (e.duration or 0)))
    return Timeline(title(result), tuple(tracks), tuple(order), about_run)


def _stalls(layer: Layer) -> dict[str, int]:
    return {f"stall: {cause}": cycles for cause, cycles in (layer.stalls or {}).items()}


Flows = tuple[list[int], list[int]]


def _tokens(trace: Trace, used: int) -> list[Flows]:
    """For each step the flow ids that it gives and takes: one a token, numbered from `used` + 1."""
    from tilewright.sim.order import match_tokens

    flows: list[Flows] = [([], []) for _ in range(len(trace.table))]
    giver, _ = match_tokens(trace.table)
    for identity, (taker, queue) in enumerate(np.argwhere(giver >= 0), used + 1):
        flows[giver[taker, queue]][0].append(identity)
        flows[taker][1].append(identity)
    return flows


def of_launch(trace: Trace, name: str, about: Mapping[str, str]) -> Timeline:
    """One launch by itself: a track a unit."""
    units = trace.table.units
    events = _steps(trace, 0, _tokens(trace, 0), list(range(len(units))))
    return Timeline(name, tuple(units), tuple(sorted(events, key=lambda event: (event.start, event.track))), about)


def _steps(trace: Trace, offset: int, tokens: list[Flows], track_of: list[int]) -> list[Event]:
    """Slices; one that overlaps the next of its unit gives way to it, and says when it ends."""
    causes = trace.cause_names()
    columns = (trace.table.unit, trace.start, trace.until, trace.end, trace.wait, trace.cause, trace.contention)
    moved = zip(trace.bytes_read.tolist(), trace.bytes_written.tolist(), strict=True)
    events = []
    for index, (row, (read, written)) in enumerate(zip(np.stack(columns, 1).tolist(), moved, strict=True)):
        unit, start, until, end, wait, cause, contention = row
        args: dict[str, int | float | str] = {"index": index, "wait cycles": wait}
        if wait:
            args["waited for"] = causes[cause] or "unknown"
        if contention:
            args["DRAM contention cycles"] = contention
        if until < end:
            args["cycles until its end"] = end - start
        args["bytes read"], args["bytes written"] = read, written
        gives, takes = tokens[index]
        name = trace.table.describe(index)
        events.append(Event(track_of[unit], name, offset + start, until - start, args, tuple(gives), tuple(takes)))
    return events
