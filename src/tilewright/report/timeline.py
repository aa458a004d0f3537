"""A run as a timeline: one track per unit, one slice per instruction, one arrow per token. A cycle is one nanosecond.

The files are for https://ui.perfetto.dev: native protobuf, or Chrome's JSON if the path ends in .json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from tilewright.errors import InputError
from tilewright.files import replacing
from tilewright.report.metrics import Result
from tilewright.report.summary import cycles_of_launches, machine_macs, title
from tilewright.sim.steps import Trace

LAYERS, HOST = 0, 1

Args = Mapping[str, int | float | str]
Flows = tuple[list[int], list[int]]
#: Perfetto's id of the only packet sequence, and of the machine's track, whose child tracks are the units.
SEQUENCE, MACHINE = 1, 1


@dataclass(frozen=True, slots=True)
class Event:
    """A slice of `duration` cycles, or an instant (None). Arrows with ids in `gives` start here, `takes` end here."""

    track: int
    name: str
    start: int
    duration: int | None
    args: Args
    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """The events of a run or launch, ordered by start. Events of one track do not overlap."""

    title: str
    tracks: tuple[str, ...]
    events: tuple[Event, ...]
    about: Mapping[str, str]


def timeline(result: Result) -> Timeline:
    """Return the timeline of all launches of a run, one after another. Raises InputError if the run has no cycles."""
    if not any(layer.trace for layer in result.layers):
        raise InputError("--trace", "this run has no cycles to show", "choose a timing model")
    tracks = ["layers", "host"]
    events: list[Event] = []
    now = flows = busy = 0
    for layer in result.layers:
        if layer.trace or layer.where == "host":
            now = max(now, busy)  # a launch of several samples takes longer than its layers' cycles for one sample
        if layer.where == "host":
            args: Args = {"op": layer.op, "reason": layer.reason, "host seconds": round(layer.seconds, 6)}
            events.append(Event(HOST, layer.name, now, None, args))
            continue
        stalls = {f"stall: {cause}": cycles for cause, cycles in layer.stalls.items()}
        about: Args = {"op": layer.op, "cycles": layer.cycles, "MACs": layer.macs, **stalls}
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


def _tokens(trace: Trace, used: int) -> list[Flows]:
    """Return, for each step, the ids of the tokens that it pushes and of those that it pops, from `used` + 1 on."""
    from tilewright.sim.order import match_tokens

    flows: list[Flows] = [([], []) for _ in range(len(trace.table))]
    giver, _ = match_tokens(trace.table)
    for identity, (taker, queue) in enumerate(np.argwhere(giver >= 0), used + 1):
        flows[giver[taker, queue]][0].append(identity)
        flows[taker][1].append(identity)
    return flows


def of_launch(trace: Trace, name: str, about: Mapping[str, str]) -> Timeline:
    """Return the timeline of one launch, with one track per unit."""
    units = trace.table.units
    events = _steps(trace, 0, _tokens(trace, 0), list(range(len(units))))
    return Timeline(name, tuple(units), tuple(sorted(events, key=lambda event: (event.start, event.track))), about)


def _steps(trace: Trace, offset: int, tokens: list[Flows], track_of: list[int]) -> list[Event]:
    """Return one slice per step, as an Event. It stops where the unit's next step starts; `args` give the true end."""
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


def require(path: str | Path) -> None:
    """Check, before a long run, that the format of `path` can be written.

    Raises InputError if the format needs a package that is not installed.
    """
    if Path(path).suffix == ".json":
        return
    try:
        import perfetto.trace_builder.proto_builder  # noqa: F401
    except ImportError:
        raise InputError(
            path,
            "needs the package perfetto",
            "pip install 'tilewright[trace]', or name a file that ends in .json",
        ) from None


def write(result: Result, path: str | Path) -> None:
    """Write a run's timeline. Raises InputError if the run has no cycles, or if a package is missing."""
    save(timeline(result), path)


def save(shown: Timeline, path: str | Path) -> None:
    """Write a timeline. Raises InputError if a package is missing."""
    require(path)
    with replacing(path) as file:
        if Path(path).suffix == ".json":
            file.write(json.dumps(chrome(shown), separators=(",", ":")).encode())
        else:
            _write_packets(shown, file)


def chrome(shown: Timeline) -> dict[str, Any]:
    """Return the timeline in Chrome's Trace Event Format. Times are in microseconds, so a cycle is 0.001."""
    events: list[dict[str, Any]] = [_named("process_name", 0, shown.title)]
    for tid, track in enumerate(shown.tracks):
        events.append(_named("thread_name", tid, track))
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
    for event in shown.events:
        events.extend(_chrome_event(event))
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": dict(shown.about)}


def _named(kind: str, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": tid, "name": kind, "args": {"name": name}}


def _chrome_event(event: Event) -> Iterator[dict[str, Any]]:
    place = {"pid": 1, "tid": event.track, "ts": event.start / 1000}
    if event.duration is None:
        yield {"ph": "i", "s": "t", "name": event.name, **place, "args": dict(event.args)}
    else:
        yield {"ph": "X", "name": event.name, **place, "dur": event.duration / 1000, "args": dict(event.args)}
    for flow in event.takes:
        yield {"ph": "f", "bp": "e", "id": flow, "cat": "token", "name": "token", **place}
    for flow in event.gives:
        yield {"ph": "s", "id": flow, "cat": "token", "name": "token", **place}


def _write_packets(shown: Timeline, file: IO[bytes]) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    builder = StreamingTraceProtoBuilder(file)
    packet = builder.create_packet()
    packet.trusted_packet_sequence_id = SEQUENCE
    for key, value in shown.about.items():
        packet.trace_attributes.attribute.add(key=key, string_value=value)
    builder.write_packet(packet)
    for rank, name in enumerate((shown.title, *shown.tracks)):
        packet = builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        track = packet.track_descriptor
        track.uuid, track.name = MACHINE + rank, name
        if rank:
            track.parent_uuid, track.sibling_order_rank = MACHINE, rank
        else:
            track.child_ordering = TrackDescriptor.EXPLICIT
            track.description = "; ".join(f"{key}: {value}" for key, value in shown.about.items())
        builder.write_packet(packet)
    for time, begins, event in _edges(shown):
        packet = builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.timestamp = time
        edge = packet.track_event
        edge.track_uuid = MACHINE + 1 + event.track
        if not begins:
            edge.type = TrackEvent.TYPE_SLICE_END
        else:
            edge.type = TrackEvent.TYPE_INSTANT if event.duration is None else TrackEvent.TYPE_SLICE_BEGIN
            edge.name = event.name
            edge.flow_ids.extend(event.gives)
            edge.terminating_flow_ids.extend(event.takes)
            for key, argument in event.args.items():
                kind = {int: "int_value", float: "double_value", str: "string_value"}[type(argument)]
                edge.debug_annotations.add(name=key, **{kind: argument})
        builder.write_packet(packet)


def _edges(shown: Timeline) -> list[tuple[int, bool, Event]]:
    """Return the edges of events as (time, begins, event), by time; at equal times, slices end before others begin."""
    edges = []
    for place, event in enumerate(shown.events):
        edges.append((event.start, 1, place, True, event))
        if event.duration is not None:
            end = event.start + event.duration
            edges.append((end, 0 if event.duration else 1, place, False, event))
    edges.sort(key=lambda edge: (edge[0], edge[1], edge[2], not edge[3]))
    return [(time, begins, event) for time, _, _, begins, event in edges]
