"""The timeline of a run, as protobuf and as JSON: complete, ordered, nested, in true times; each arrow has two ends."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from tests.fake import trace
from tests.report.runs import LAUNCH, RUN, SOFTMAX, result
from tilewright.errors import InputError
from tilewright.install import hint
from tilewright.report.perfetto import chrome, require, write
from tilewright.report.timeline import HOST, LAYERS, Event, Timeline, of_launch, timeline
from tilewright.sim.causes import CONTENTION, LATENCY, TRANSFER, WORK
from tilewright.sim.causes import Path as PathOf

TRACKS = ("layers", "host", "causes by size", "load", "compute", "compute waits")
#: A load's transfer in two stretches, a stretch of no length, and the latency; then two instructions of one kind.
PATH_OF_TRACE = PathOf(
    step=np.array([0, 0, 0, 0, 1, 3]),
    kind=np.array([TRANSFER, TRANSFER, CONTENTION, LATENCY, WORK, WORK]),
    end=np.array([2, 6, 6, 10, 30, 50]),
)
COUNTERS = ("DRAM read", "DRAM write", "load->compute tokens")


def on(shown: Timeline, track: str) -> list[Event]:
    """Return the events of a track."""
    return [event for event in shown.events if event.track == shown.tracks.index(track)]


def test_launches_follow_each_other_and_host_steps_take_no_time() -> None:
    shown = timeline(RUN)
    assert shown.tracks == TRACKS
    layers = [(event.name, event.start, event.duration) for event in shown.events if event.track == LAYERS]
    assert layers == [("conv", 0, 50), ("dense", 50, 50)]
    assert [(e.name, e.start, e.duration) for e in shown.events if e.track == HOST] == [("softmax", 50, None)]
    compute = [(event.name, event.start, event.duration) for event in on(shown, "compute")]
    assert compute[:3] == [("gemm", 10, 20), ("gemm", 30, 20), ("finish", 50, 0)]
    assert compute[3] == ("gemm", 60, 20)


def test_a_step_says_what_it_waited_for_and_what_it_moved() -> None:
    load, gemm, *_ = sorted(on(timeline(RUN), "load")[:1] + on(timeline(RUN), "compute"), key=lambda e: e.start)
    assert load.args == {"index": 0, "bytes read": 160, "pushes": "load->compute"}
    assert gemm.args == {"index": 1, "wait cycles": 10, "waited for": "load->compute token", "pops": "load->compute"}


def test_a_wait_is_a_slice_with_the_instruction_that_waits_and_the_one_that_pushed_its_token() -> None:
    waits = [(event.name, event.start, event.duration) for event in on(timeline(RUN), "compute waits")]
    assert waits == [("load->compute token", 0, 10), ("load->compute token", 50, 10)]
    first = on(timeline(RUN), "compute waits")[0]
    assert first.args == {"index": 1, "for": "gemm", "token from": "#0 load inp"}


def test_a_step_that_overlaps_the_next_gives_way_to_it_and_says_when_it_ends() -> None:
    steps = trace()
    first, second = np.flatnonzero(steps.table.unit == 1)[:2]
    assert steps.end[first] == steps.start[second]
    late = replace(steps, end=np.where(np.arange(len(steps.end)) == first, steps.end + 3, steps.end))
    gemm = next(event for event in timeline(result(replace(LAUNCH, trace=late))).events if event.name == "gemm")
    assert (gemm.duration, gemm.args["cycles until its end"]) == (20, 23)


def test_tokens_are_arrows_from_the_push_to_the_pop() -> None:
    shown = timeline(RUN)
    given = {flow: event for event in shown.events for flow in event.gives}
    taken = {flow: event for event in shown.events for flow in event.takes}
    assert set(given) == set(taken) == {0, 1, 2, 3}
    assert shown.arrows == ("load->compute",) * 4
    for flow, source in given.items():
        assert (source.name, taken[flow].name) == ("load inp", "gemm")
        assert source.start + (source.duration or 0) <= taken[flow].start


def test_protobuf_parses_and_is_well_formed(tmp_path: Path) -> None:
    write(RUN, tmp_path / "t.pftrace")
    parsed = PerfettoTrace.FromString((tmp_path / "t.pftrace").read_bytes())
    assert all(packet.IsInitialized() and packet.trusted_packet_sequence_id for packet in parsed.packet)
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in parsed.packet if p.HasField("track_descriptor")}
    machine, *units = tracks.values()
    assert (machine.name, machine.child_ordering) == ("net on fake, rounding tflm", machine.EXPLICIT)
    assert [unit.name for unit in units] == [*TRACKS, *COUNTERS]
    assert [unit.counter.unit_name for unit in units[6:]] == ["bytes/cycle", "bytes/cycle", "tokens"]
    assert not any(unit.HasField("counter") for unit in units[:6])
    assert all(unit.parent_uuid == machine.uuid for unit in units)
    about = {a.key: a.string_value for p in parsed.packet for a in p.trace_attributes.attribute}
    assert "1 ns is 1 cycle" in about["time unit"]
    assert about["timing model"] == "guess: nothing at all"

    events = [(p.timestamp, p.track_event) for p in parsed.packet if p.HasField("track_event")]
    assert [time for time, _ in events] == sorted(time for time, _ in events)
    open_slices: Counter[int] = Counter()
    begun: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    for _, event in events:
        assert event.track_uuid in tracks
        if event.type == TrackEvent.TYPE_COUNTER:
            assert tracks[event.track_uuid].HasField("counter")
            assert event.WhichOneof("counter_value_field")
            continue
        if event.type == TrackEvent.TYPE_SLICE_END:
            open_slices[event.track_uuid] -= 1
            continue
        assert event.name
        assert event.debug_annotations
        begun.update(event.flow_ids)
        assert all(begun[flow] for flow in event.terminating_flow_ids)
        ended.update(event.terminating_flow_ids)
        open_slices[event.track_uuid] += event.type == TrackEvent.TYPE_SLICE_BEGIN
        assert open_slices[event.track_uuid] <= 1
    assert not any(open_slices.values())
    assert begun == ended == Counter([1, 2, 3, 4])


def test_json_is_well_formed(tmp_path: Path) -> None:
    write(RUN, tmp_path / "t.json")
    parsed = json.loads((tmp_path / "t.json").read_text())
    assert parsed["displayTimeUnit"] == "ns"
    assert "1 ns is 1 cycle" in parsed["otherData"]["time unit"]
    events = parsed["traceEvents"]
    assert all({"ph", "pid", "name"} <= set(event) for event in events)
    assert all("tid" in event for event in events if event["ph"] != "C")
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == set(TRACKS)
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == 14
    for tid in {event["tid"] for event in slices}:
        mine = [(event["ts"], event["ts"] + event["dur"]) for event in slices if event["tid"] == tid]
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(mine))
    flows = Counter((event["ph"], event["id"], event["name"]) for event in events if event["ph"] in "sf")
    assert flows == Counter((kind, flow, "load->compute") for kind in "sf" for flow in (1, 2, 3, 4))
    assert {(e["name"], *e["args"]) for e in events if e["ph"] == "C"} == {
        ("DRAM read", "bytes/cycle"),
        ("DRAM write", "bytes/cycle"),
        ("load->compute tokens", "tokens"),
    }


def test_a_trace_of_launches_alone_says_that_they_are_not_the_network() -> None:
    assert timeline(RUN).about["cycles"] == "100, for one sample"
    shown = timeline(result(replace(LAUNCH, macs=0), replace(SOFTMAX, macs=1000)))
    assert shown.about["MACs"] == "0 of 1.00 k MACs ran on fake (0 %)"
    assert shown.about["cycles"].startswith(
        "50 per sample, of 1 layer on fake only (0 % of the MACs); not the network's time"
    )


def test_a_run_without_cycles_has_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no cycles to show"):
        write(result(SOFTMAX), tmp_path / "t.json")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    with pytest.raises(InputError, match=rf"{re.escape(hint('trace'))}, or name a file that ends in \.json"):
        require(tmp_path / "t.pftrace")
    require(tmp_path / "t.json")


def test_a_launch_that_is_longer_than_its_layers_share_of_it_does_not_run_into_the_next() -> None:
    """A launch of several samples: layers are of one sample, its steps of all."""
    shown = timeline(result(replace(LAUNCH, cycles=20), replace(LAUNCH, name="dense", cycles=20)))
    assert [(event.name, event.start) for event in shown.events if event.track == LAYERS] == [
        ("conv", 0),
        ("dense", 50),
    ]
    compute = [(event.start, event.start + (event.duration or 0)) for event in on(shown, "compute")]
    assert all(before[1] <= after[0] for before, after in pairwise(compute))


@pytest.mark.parametrize(("clock", "expected"), [(100, 10), (75, 40 / 3), (0, 1), (3000, 1 / 3)])
def test_a_cycle_is_as_long_as_the_clock_says(clock: float, expected: float, tmp_path: Path) -> None:
    """Edges that are one edge in cycles stay one in both formats, whatever the rounding to nanoseconds."""
    write(replace(RUN, clock_mhz=clock), tmp_path / "t.pftrace")
    parsed = PerfettoTrace.FromString((tmp_path / "t.pftrace").read_bytes())
    begun = [p for p in parsed.packet if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert len(begun) == 14
    for packet in begun:
        cycle = next(a.int_value for a in packet.track_event.debug_annotations if a.name == "start cycle")
        assert abs(packet.timestamp - cycle * expected) <= 0.5
    shown = timeline(replace(RUN, clock_mhz=clock))
    for event in chrome(shown)["traceEvents"]:
        if event["ph"] == "X":
            first, cycles = event["args"]["start cycle"], event["args"]["cycles"]
            assert event["ts"] * 1000 == pytest.approx(round(first * expected))
            assert (event["ts"] + event["dur"]) * 1000 == pytest.approx(round((first + cycles) * expected))
    assert (f"at {clock} MHz" in shown.about["time unit"]) == bool(clock)


def test_counters_of_launches_follow_each_other() -> None:
    read, write, depth = timeline(RUN).counters
    assert [one.name for one in (read, write, depth)] == list(COUNTERS)
    for one, moved in ((read, 640), (write, 64)):
        assert one.integral() == pytest.approx(moved)
        assert one.time[-1] == 100
        assert one.value[-1] == 0
    assert list(zip(depth.time.tolist(), depth.value.tolist(), strict=True)) == [
        *((0, 0), (22, 1), (30, 0), (50, 0), (72, 1), (80, 0), (100, 0))
    ]


@pytest.mark.parametrize("suffix", ["json", "pftrace"])
def test_the_bandwidth_in_a_file_moves_all_bytes(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{suffix}"
    write(replace(RUN, clock_mhz=50), path)  # 20 ns a cycle
    points: list[tuple[float, float]]
    if suffix == "json":
        events = json.loads(path.read_text())["traceEvents"]
        points = [(e["ts"] * 1000, e["args"]["bytes/cycle"]) for e in events if e["name"] == "DRAM read"]
    else:
        packets = PerfettoTrace.FromString(path.read_bytes()).packet
        track = next(p.track_descriptor.uuid for p in packets if p.track_descriptor.name == "DRAM read")
        mine = [p for p in packets if p.track_event.track_uuid == track]
        points = [(p.timestamp, p.track_event.double_counter_value) for p in mine]
    assert points[-1] == (2000, 0)
    moved = sum(value * (after - time) / 20 for (time, value), (after, _) in pairwise(points))
    assert moved == pytest.approx(640, rel=1e-4)


def test_the_critical_path_is_a_track_of_stretches_named_by_cause() -> None:
    path = replace(trace(), walk=lambda: PATH_OF_TRACE)
    first = replace(LAUNCH, trace=path, causes={"compute": 40, "load bandwidth": 6, "DRAM latency": 4})
    shown = timeline(result(first, replace(first, name="dense")))
    assert shown.tracks[2] == "critical path"
    assert "causes by size" not in shown.tracks
    mine = [(event.name, event.start, event.duration) for event in on(shown, "critical path")]
    assert mine[:4] == [("load bandwidth", 0, 6), ("DRAM latency", 6, 4), ("compute", 10, 20), ("compute", 30, 20)]
    assert mine[4:] == [(name, start + 50, length) for name, start, length in mine[:4]]
    assert on(shown, "critical path")[3].args == {"index": 3, "instruction": "gemm", "unit": "compute"}


def test_a_launch_alone_has_its_units_waits_and_counters() -> None:
    shown = of_launch(trace(), "kernel", {"timing model": "guess"}, 200)
    assert shown.tracks == ("load", "compute", "compute waits")
    assert len(shown.events) == 6
    assert [one.name for one in shown.counters] == list(COUNTERS)
    assert shown.about["time unit"].startswith("1 cycle is 5 ns")


def test_causes_without_a_critical_path_fill_their_layer_by_size() -> None:
    layer = replace(LAUNCH, causes={"compute": 40, "load->compute token": 10})
    causes = on(timeline(result(LAUNCH, layer)), "causes by size")
    assert [(event.name, event.start, event.duration) for event in causes] == [
        ("compute", 50, 40),
        ("load->compute token", 90, 10),
    ]
