"""The chart of pages, against the blocks that each piece of work needs, and the arrows that end the engine's waits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.targets.zynq.cases import FAST, LAYERS, SMALL, case
from tests.targets.zynq.double import items
from tilewright.sim.chart import Chart
from tilewright.sim.order import match_tokens
from tilewright.sim.steps import Trace
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.isa.layer import Layer
from tilewright.targets.zynq.timing.service import COMPUTE, ENGINE, PAGED, PS, schedule, timed

MACHINES: dict[str, dict[str, Any]] = {
    "one frame": {},
    "one frame, one sweep": {"oc_blocking": 1, "bias_bits": 4},
    "two frames": FAST,
    "two frames, resident": {**FAST, "resident": 1, "axi_bytes": 1},
    "two frames, written behind": {**FAST, "write_behind": 1, "outputs": 2, "macs_per_dsp": 2, "fetch": "full"},
}
Box = tuple[int, int, int]  # start, end, step


def layer_of(machine: str, name: str) -> Layer:
    config = Config.read({**SMALL, **MACHINES[machine]}, {})
    return case(3, config, **LAYERS[name]).layer


def boxes(chart: Chart, text: str) -> dict[tuple[str, int], list[Box]]:
    """The boxes of kinds with a text, by row and number of the block."""
    by_frame: dict[tuple[str, int], list[Box]] = {}
    for row, kind, number, start, end, step in chart.boxes.T.tolist():
        if chart.kinds[kind].text == text:
            by_frame.setdefault((chart.rows[row].name, number), []).append((start, end, step))
    return by_frame


def work_times(layer: Layer, trace: Trace) -> list[tuple[int, int]]:
    """When the engine does each piece of work, from the engine's steps in the trace: it stops between two pieces."""
    engine = np.flatnonzero(trace.table.unit == ENGINE)
    times = np.concatenate([np.arange(trace.start[step], trace.end[step]) for step in engine])
    spans, done = [], 0
    for item in items(layer):
        if item.cycles:
            spans.append((int(times[done]), int(times[done + item.cycles - 1]) + 1))
        else:
            spans.append((0, 0))
        done += item.cycles
    return spans


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("machine", MACHINES)
def test_work_finds_its_blocks_in_a_frame(machine: str, name: str) -> None:
    """With one frame, a piece of work that needs two blocks of a store is timed as if it began with the second one."""
    layer = layer_of(machine, name)
    trace, _ = timed(layer, PAGED)
    assert trace.chart
    held = {store: boxes(trace.chart, f"{store} block #") for store in STORES}
    first: dict[tuple[str, int], int] = {}
    for item, (start, end) in zip(items(layer), work_times(layer, trace), strict=True):
        touches = {store: block for store, (*_, block) in sorted(item.touches)}  # of two blocks, the later one
        needed = item.touches if layer.config.frames > 1 else {(store, (block,)) for store, block in touches.items()}
        for store, (*_, block) in needed if item.cycles else ():
            spans = [span for (_, number), held_boxes in held[store].items() if number == block for span in held_boxes]
            assert any(low <= start and end <= high for low, high, _ in spans), (store, block, start, end)
            first.setdefault((store, block), start)
    for (_, block), held_boxes in held["result"].items():
        assert held_boxes[0][0] == first["result", block]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_frame_holds_or_moves_one_block_at_a_time(machine: str, name: str) -> None:
    layer = layer_of(machine, name)
    trace, _ = timed(layer, PAGED)
    chart = trace.chart
    assert chart
    assert len(chart.rows) == len(STORES) * layer.config.frames
    moved: list[Box] = []
    for store in STORES:
        transfers = boxes(chart, f"{store} block # moves")
        moved += [box for frame_moves in transfers.values() for box in frame_moves]
        for (_, block), frame_moves in transfers.items():
            word = "write" if store == "result" else "load"
            assert {trace.table.describe(step) for _, _, step in frame_moves} == {f"{word} {store} block {block}"}
        for row in {row.name for row in chart.rows if row.name.startswith(store)}:
            spans = sorted(
                box
                for kind in (f"{store} block #", f"{store} block # moves")
                for (name_, _), frame_moves in boxes(chart, kind).items()
                if name_ == row
                for box in frame_moves
            )
            assert all(before[1] <= after[0] for before, after in pairwise(spans))
    services = np.flatnonzero(trace.table.unit == PS)
    assert sorted(moved) == sorted(
        zip(trace.start[services].tolist(), trace.end[services].tolist(), services.tolist(), strict=True)
    )


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("machine", MACHINES)
def test_faults_are_the_waits_and_arrows_end_them(machine: str, name: str) -> None:
    layer = layer_of(machine, name)
    trace, part = timed(layer, PAGED)
    assert trace.chart
    stalls = schedule(layer).stalls()
    giver, left = match_tokens(trace.table)
    assert not left.any()
    for cause, store in enumerate(STORES):
        faults = boxes(trace.chart, f"the engine waits for {store} block # (page fault)")
        spans = [box for frame_boxes in faults.values() for box in frame_boxes]
        assert sum(end - start for start, end, _ in spans) == stalls.get(store, 0)
        waiting = np.flatnonzero(giver[:, cause] >= 0)
        assert (trace.table.unit[waiting] == ENGINE).all()
        ended = [(int(trace.start[step]), int(giver[step, cause])) for step in waiting]
        assert sorted(ended) == sorted((end, step) for _, end, step in spans)
        assert all(trace.end[step] == end for end, step in ended)
    assert part.stalls == {f"{store} blocks": cycles for store, cycles in stalls.items()}


def test_without_pages_or_an_order_of_blocks_there_is_no_chart() -> None:
    assert timed(layer_of("one frame", "conv"), COMPUTE)[0].chart is None
    config = Config.read({**SMALL, "layout": "chw"}, {})
    trace, _ = timed(case(3, config, **LAYERS["conv"]).layer, PAGED)
    assert trace.chart is None
    assert trace.table.describe(int(np.flatnonzero(trace.table.unit == PS)[0])).startswith("load data blocks x ")


def test_a_batch_shares_its_pages() -> None:
    config = Config.read({**SMALL, **FAST, "data_bits": 12, "fc_batch": 3}, {})
    trace, _ = timed(case(3, config, **LAYERS["fc"]).layer, PAGED)
    chart = trace.chart
    assert chart
    assert chart.boxes[4].max() <= trace.cycles
    giver, _ = match_tokens(trace.table)
    for step, queue in np.argwhere(giver >= 0).tolist():
        assert trace.end[giver[step, queue]] <= trace.start[step]
