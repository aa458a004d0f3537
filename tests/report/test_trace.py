"""The timeline of a run, as protobuf and as JSON: complete, ordered, and every arrow has two ends."""

from __future__ import annotations

import json
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
from tilewright.report.timeline import HOST, LAYERS, require, timeline, write


def test_launches_follow_each_other_and_host_steps_take_no_time() -> None:
    shown = timeline(RUN)
    assert shown.tracks == ("layers", "host", "load", "compute")
    layers = [(event.name, event.start, event.duration) for event in shown.events if event.track == LAYERS]
    assert layers == [("conv", 0, 50), ("dense", 50, 50)]
    assert [(e.name, e.start, e.duration) for e in shown.events if e.track == HOST] == [("softmax", 50, None)]
    compute = [(event.name, event.start, event.duration) for event in shown.events if event.track == 3]
    assert compute[:3] == [("gemm", 10, 20), ("gemm", 30, 20), ("finish", 50, 0)]
    assert compute[3] == ("gemm", 60, 20)


def test_a_step_says_what_it_waited_for_and_what_it_moved() -> None:
    gemm = next(event for event in timeline(RUN).events if event.name == "gemm")
    assert gemm.args == {
        "index": 1,
        "wait cycles": 10,
        "waited for": "load->compute token",
        "bytes read": 0,
        "bytes written": 0,
    }


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
    assert set(given) == set(taken) == {1, 2, 3, 4}
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
    assert [unit.name for unit in units] == ["layers", "host", "load", "compute"]
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
    assert all({"ph", "pid", "tid", "name"} <= set(event) for event in events)
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"layers", "host", "load", "compute"}
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == 12
    for tid in {event["tid"] for event in slices}:
        mine = [(event["ts"], event["ts"] + event["dur"]) for event in slices if event["tid"] == tid]
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(mine))
    flows = Counter((event["ph"], event["id"]) for event in events if event["ph"] in "sf")
    assert flows == Counter((kind, flow) for kind in "sf" for flow in (1, 2, 3, 4))


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
    with pytest.raises(InputError, match=r"pip install 'tilewright\[trace\]', or name a file that ends in \.json"):
        require(tmp_path / "t.pftrace")
    require(tmp_path / "t.json")


def test_a_launch_that_is_longer_than_its_layers_share_of_it_does_not_run_into_the_next() -> None:
    """A launch of several samples: layers are of one sample, its steps of all."""
    shown = timeline(result(replace(LAUNCH, cycles=20), replace(LAUNCH, name="dense", cycles=20)))
    assert [(event.name, event.start) for event in shown.events if event.track == LAYERS] == [
        ("conv", 0),
        ("dense", 50),
    ]
    compute = [(event.start, event.start + (event.duration or 0)) for event in shown.events if event.track == 3]
    assert all(before[1] <= after[0] for before, after in pairwise(compute))
