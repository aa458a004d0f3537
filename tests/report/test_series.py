"""Series of a launch over time: integrals and levels against sums taken step by step and element by element."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.fake import trace
from tilewright.array import Array
from tilewright.report import occupancy as blocks
from tilewright.report.series import Series, bandwidth, occupancy, queue_depths, series
from tilewright.sim import jit
from tilewright.sim.steps import READ, WRITE, Footprints, Space, StepTable, Trace

SIZE = 48


def levels(shown: Series) -> Array:
    """Return the value in each cycle."""
    assert shown.time[0] == 0
    assert (np.diff(shown.time) > 0).all()
    return np.repeat(shown.value[:-1], np.diff(shown.time))


@pytest.mark.parametrize("windows", [1, 3, 7, 50, 1000])
def test_bandwidth_spreads_the_bytes_of_each_step_evenly_over_it(windows: int) -> None:
    steps = trace()
    read, write = bandwidth(steps, windows)
    assert [read.integral(), write.integral()] == pytest.approx([320, 32])
    assert len(read.time) <= windows + 1
    exact = np.zeros(50)
    exact[:10] += 16
    exact[10:22] += 160 / 12
    width = -(-50 // windows)
    expected = np.concatenate([np.full(len(part), part.mean()) for part in np.split(exact, range(width, 50, width))])
    assert levels(read) == pytest.approx(expected)


def test_bandwidth_is_exactly_0_where_nothing_moves() -> None:
    steps, rng = random_trace(0), np.random.default_rng(1)
    count = len(steps.start)
    start = np.arange(count) // 5 * 100 + rng.integers(0, 20, count)  # groups in overlap, with gaps between groups
    moving = replace(steps, start=start, end=start + rng.integers(1, 60, count), bytes_read=rng.integers(1, 99, count))
    moving = replace(moving, cycles=int(moving.end.max()))
    idle = np.ones(moving.cycles, np.bool_)
    for begin, end in zip(moving.start, moving.end, strict=True):
        idle[begin:end] = False
    assert (levels(bandwidth(moving, moving.cycles)[0]) == 0).tolist() == idle.tolist()


def test_bandwidth_of_random_steps_moves_all_bytes() -> None:
    steps, rng = random_trace(0), np.random.default_rng(1)
    moved = rng.integers(0, 1000, len(steps.start))
    instant = replace(steps, bytes_read=moved, end=np.where(moved % 3, steps.end, steps.start))
    assert bandwidth(instant, 9)[0].integral() == pytest.approx(moved.sum())


def test_a_queue_is_as_deep_as_pushes_at_ends_less_pops_at_starts() -> None:
    (depth,) = queue_depths(trace())
    assert (depth.name, depth.most) == ("load->compute tokens", 8)
    assert list(zip(depth.time.tolist(), depth.value.tolist(), strict=True)) == [(0, 0), (22, 1), (30, 0), (50, 0)]


def test_the_peaks_of_a_long_series_remain() -> None:
    time = np.arange(1001)
    shown = Series("n", "", time, np.where(time == 777, 5, time % 2))
    coarse = shown.at_most(10)
    assert coarse.time[-1] == 1000
    assert len(coarse.time) <= 11
    assert coarse.value.max() == 5
    assert coarse.at_most(10) is coarse


def test_series_without_any_value_are_left_out() -> None:
    assert [one.name for one in series(trace())] == ["DRAM read", "DRAM write", "load->compute tokens"]
    still = replace(trace(), bytes_read=np.zeros(5, np.int64), bytes_written=np.zeros(5, np.int64))
    assert [one.name for one in series(still)] == ["load->compute tokens"]


def random_trace(seed: int) -> Trace:
    """Steps that touch two memories at random, in overlap; the first step fills both."""
    rng = np.random.default_rng(seed)
    count, kinds = 50, 20
    rows = [np.array([(0, WRITE, 0, SIZE, 1, 0), (1, WRITE, 0, SIZE, 1, 0)])]
    rows += [
        np.array([(rng.integers(2), rng.integers(1, 4), rng.integers(20), *rng.integers(1, (6, 4, 9)))])
        for _ in range(kinds)
    ]
    none = np.zeros(count, np.int64)
    table = StepTable(
        units=("a", "b"),
        queues=(),
        spaces=(Space("a", SIZE, scratchpad="pad"), Space("b", SIZE, scratchpad="other"), Space("DRAM", SIZE)),
        unit=rng.integers(0, 2, count),
        pops=none,
        pushes=none,
        footprint=np.append(0, rng.integers(1, kinds + 1, count - 1)),
        footprints=Footprints.of(rows),
    )
    start = np.cumsum(rng.integers(0, 6, count))
    end = start + rng.integers(1, 9, count)
    return Trace(table, start, end, none, none, none, none, none, 0, int(end.max()))


def live_elements(steps: Trace, space: int) -> Array:
    """Return the live elements in each cycle, counted element by element."""
    table = steps.table
    touched: list[list[tuple[int, int, int]]] = [[] for _ in range(SIZE)]
    for step in np.argsort(steps.start, kind="stable"):
        for where, mode, base, length, count, stride in table.footprints.of_step(int(table.footprint[step])).tolist():
            for element in (
                {base + k * stride + j for k in range(count) for j in range(length)} if where == space else ()
            ):
                touched[element].append((int(steps.start[step]), int(steps.end[step]), mode))
    found = np.zeros(steps.cycles, np.int64)
    for accesses in touched:
        begin = until = 0
        for start, end, mode in accesses:
            if mode & READ:
                until = max(until, end)
            else:
                found[begin : min(until, start)] += 1
                begin, until = start, 0
        found[begin:until] += 1
    return found


@pytest.mark.parametrize("seed", range(20))
def test_elements_are_live_from_a_write_to_its_last_read(seed: int) -> None:
    steps = random_trace(seed)
    shown = occupancy(steps)
    assert [(one.name, one.most) for one in shown] == [("pad live", SIZE), ("other live", SIZE)]
    for space, one in enumerate(shown):
        np.testing.assert_array_equal(levels(one), live_elements(steps, space))
        assert one.value[-1] == 0


@pytest.mark.parametrize("seed", range(5))
def test_compiled_and_uncompiled_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = random_trace(seed)
    monkeypatch.setattr(jit.Compiled, "of", lambda self, _: self.python)
    plain = occupancy(steps)
    monkeypatch.setattr(jit.Compiled, "of", lambda self, _: self)
    for a, b in zip(plain, occupancy(steps), strict=True):
        np.testing.assert_array_equal(np.stack((a.time, a.value)), np.stack((b.time, b.value)), err_msg=f"seed {seed}")


@pytest.mark.parametrize("seed", range(20))
def test_in_large_blocks_no_live_element_is_missed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_ACCESSES", 200)
    steps = random_trace(seed)
    for space, one in enumerate(occupancy(steps)):
        exact = live_elements(steps, space)
        assert (levels(one) >= exact).all()
        assert (levels(one) > exact).any()
        assert one.value.max() <= SIZE


def test_contents_from_before_the_launch_are_live_until_they_are_read() -> None:
    steps = random_trace(0)
    reads = Footprints.of([np.array([(0, READ, 3, 7, 1, 0)])])
    (pad, other) = occupancy(replace(steps, table=replace(steps.table, footprint=steps.table.pops, footprints=reads)))
    assert (pad.value.tolist(), pad.time.tolist()) == ([7, 0], [0, steps.cycles])
    assert not other.value.any()
