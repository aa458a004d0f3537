"""Trace files for https://ui.perfetto.dev: native protobuf, or Chrome's JSON for a path that ends in .json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tilewright.errors import InputError
from tilewright.files import replacing
from tilewright.report.events import Event, Timeline, timeline
from tilewright.report.metrics import Result

#: All packets come from one writer; the whole machine is one track with its units below.
SEQUENCE, MACHINE = 1, 1


def require(path: str | Path) -> None:
    """Raise InputError now, before a long run, where the format of `path` needs a package that is missing."""
    if Path(path).suffix == ".json":
        return
    try:
        import perfetto.trace_builder.proto_builder  # noqa: F401
    except ImportError:
        raise InputError(
            str(path),
            "needs the package perfetto",
            "pip install 'tilewright[trace]', or name a file that ends in .json",
        ) from None


def write(result: Result, path: str | Path) -> None:
    """Write a run's timeline. Raises InputError for a run without cycles or a missing package."""
    require(path)
    save(timeline(result), path)


def save(shown: Timeline, path: str | Path) -> None:
    """Write a timeline. Raises InputError for a missing package."""
    require(path)
    with replacing(path) as file:
        if Path(path).suffix == ".json":
            file.write(json.dumps(chrome(shown), separators=(",", ":")).encode())
        else:
            _write_packets(shown, file)


def chrome(shown: Timeline) -> dict[str, Any]:
    """The Trace Event Format's object; its times are microseconds, so a cycle is 0.001."""
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
    """(time, begins, event) in order of time: at one time, slices that ran end before others begin."""
    edges = []
    for place, event in enumerate(shown.events):
        edges.append((event.start, 1, place, True, event))
        if event.duration is not None:
            end = event.start + event.duration
            edges.append((end, 0 if event.duration else 1, place, False, event))
    edges.sort(key=lambda edge: (edge[0], edge[1], edge[2], not edge[3]))
    return [(time, begins, event) for time, _, _, begins, event in edges]
