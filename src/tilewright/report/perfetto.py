"""Write timelines for https://ui.perfetto.dev: in its own format, or in Chrome's JSON if the path ends in .json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tilewright.errors import InputError
from tilewright.files import replacing
from tilewright.install import hint
from tilewright.report.metrics import Result
from tilewright.report.series import Series
from tilewright.report.timeline import Args, Event, Timeline, timeline

#: All packets belong to the sequence with this id.
SEQUENCE = 1
#: The id of the machine's track. All other tracks are children of this track.
MACHINE = 1
#: The value of a counter is written with this many significant digits.
DIGITS = 6


def require(path: str | Path) -> None:
    """Check before a run that the format of `path` can be written. Raises InputError if a package is missing."""
    if Path(path).suffix == ".json":
        return
    try:
        import perfetto.trace_builder.proto_builder  # noqa: F401
    except ImportError:
        raise InputError(
            path, "needs the package perfetto", f"{hint('trace')}, or name a file that ends in .json"
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


def _args(event: Event) -> Args:
    length = {} if event.duration is None else {"cycles": event.duration}
    return {"start cycle": event.start, **length, **event.args}


def chrome(shown: Timeline) -> dict[str, Any]:
    """Return the timeline in Chrome's Trace Event Format, with times in microseconds."""
    events: list[dict[str, Any]] = [_named("process_name", 0, shown.title)]
    for tid, track in enumerate(shown.tracks):
        events.append(_named("thread_name", tid, track))
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
    for event in shown.events:
        events.extend(_chrome_event(shown, event))
    for counter in shown.counters:
        for cycle, value in _points(counter):
            at = {"ph": "C", "pid": 1, "ts": shown.nanoseconds(cycle) / 1000}
            events.append({**at, "name": counter.name, "args": {counter.unit: value}})
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": dict(shown.about)}


def _named(kind: str, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": tid, "name": kind, "args": {"name": name}}


def _chrome_event(shown: Timeline, event: Event) -> Iterator[dict[str, Any]]:
    start = shown.nanoseconds(event.start)
    place = {"pid": 1, "tid": event.track, "ts": start / 1000}
    if event.duration is None:
        yield {"ph": "i", "s": "t", "name": event.name, **place, "args": _args(event)}
    else:
        length = shown.nanoseconds(event.start + event.duration) - start
        yield {"ph": "X", "name": event.name, **place, "dur": length / 1000, "args": _args(event)}
    for arrow in event.takes:
        yield {"ph": "f", "bp": "e", "id": arrow + 1, "cat": "token", "name": shown.arrows[arrow], **place}
    for arrow in event.gives:
        yield {"ph": "s", "id": arrow + 1, "cat": "token", "name": shown.arrows[arrow], **place}


def _points(counter: Series) -> Iterator[tuple[int, int | float]]:
    for cycle, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
        yield cycle, value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


def _write_packets(shown: Timeline, file: IO[bytes]) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    builder = StreamingTraceProtoBuilder(file)

    def packet() -> Any:
        new = builder.create_packet()
        new.trusted_packet_sequence_id = SEQUENCE
        return new

    about = packet()
    for key, value in shown.about.items():
        about.trace_attributes.attribute.add(key=key, string_value=value)
    builder.write_packet(about)
    for rank, name in enumerate((shown.title, *shown.tracks, *(counter.name for counter in shown.counters))):
        descriptor = packet()
        track = descriptor.track_descriptor
        track.uuid = MACHINE + rank
        track.name = name
        if rank > len(shown.tracks):
            track.counter.unit_name = shown.counters[rank - len(shown.tracks) - 1].unit
        if rank:
            track.parent_uuid = MACHINE
            track.sibling_order_rank = rank
        else:
            track.child_ordering = TrackDescriptor.EXPLICIT
            track.description = "; ".join(f"{key}: {value}" for key, value in shown.about.items())
        builder.write_packet(descriptor)
    for cycle, track_number, part in _in_order(shown):
        moment = packet()
        moment.timestamp = shown.nanoseconds(cycle)
        edge = moment.track_event
        edge.track_uuid = MACHINE + 1 + track_number
        if part is None:
            edge.type = TrackEvent.TYPE_SLICE_END
        elif isinstance(part, Event):
            edge.type = TrackEvent.TYPE_INSTANT if part.duration is None else TrackEvent.TYPE_SLICE_BEGIN
            edge.name = part.name
            edge.flow_ids.extend(arrow + 1 for arrow in part.gives)  # Perfetto reads the id 0 as "no flow"
            edge.terminating_flow_ids.extend(arrow + 1 for arrow in part.takes)
            for key, argument in _args(part).items():
                kind = {int: "int_value", float: "double_value", str: "string_value"}[type(argument)]
                edge.debug_annotations.add(name=key, **{kind: argument})
        else:
            edge.type = TrackEvent.TYPE_COUNTER
            if isinstance(part, int):
                edge.counter_value = part
            else:
                edge.double_counter_value = part
        builder.write_packet(moment)


def _in_order(shown: Timeline) -> Iterator[tuple[int, int, Event | int | float | None]]:
    """Yield the parts of a timeline in the order of time, as (cycle, track, part).

    A part is an Event that begins, None for the end of the track's slice, or the value of a counter. The tracks of
    counters have the highest numbers. If one slice ends when another slice begins, the end comes first.
    """
    parts: list[tuple[int, int, int, bool, int, Event | int | float | None]] = []
    for place, event in enumerate(shown.events):
        parts.append((event.start, 1, place, False, event.track, event))
        if event.duration is not None:
            end = event.start + event.duration
            parts.append((end, 0 if event.duration else 1, place, True, event.track, None))
    for track, counter in enumerate(shown.counters, len(shown.tracks)):
        parts.extend((cycle, 2, track, False, track, value) for cycle, value in _points(counter))
    parts.sort(key=lambda part: part[:4])
    return ((cycle, track, part) for cycle, _, _, _, track, part in parts)
