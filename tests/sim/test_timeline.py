"""Timing edges: each cost moves the end by exactly itself, and nothing starts a cycle early."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.sim.programs import random_table
from tests.sim.steps import FETCH, L2C, PORT, costs, steps_of
from tilewright.errors import HazardError
from tilewright.sim.causes import CAUSE_TOKEN
from tilewright.sim.costs import Channel, Costs, Fetch, Simulated
from tilewright.sim.order import order
from tilewright.sim.steps import StepTable, Trace
from tilewright.sim.timeline import timeline, times

FIRST = 10 + 2 + 1  # the fetch's latency, two beats of one instruction, delivery
SECOND = FIRST + 2  # the port carries an instruction in two beats


def trace_of(steps: StepTable, cost: Costs, channel: Channel = PORT, fetch: Fetch = FETCH) -> Trace:
    return timeline(steps, order(steps), Simulated(cost, channel, fetch))


def test_the_first_step_starts_when_its_instruction_is_delivered() -> None:
    trace = trace_of(steps_of([1]), costs([5]))
    assert (trace.start[0], trace.end[0], trace.cycles) == (FIRST, FIRST + 5, FIRST + 5)


@pytest.mark.parametrize("busy", [1, 7, 100])
def test_a_unit_runs_one_step_at_a_time(busy: int) -> None:
    trace = trace_of(steps_of([1, 1]), costs([busy, 1]))
    assert trace.start[1] == max(trace.end[0], SECOND)


def test_steps_of_a_unit_that_overlap_are_busy_once() -> None:
    """Each ends 7 cycles after it has let the unit go; the third starts when the second is long over."""
    steps, cost = steps_of([1, 1, 0, 1], [0, 0, 0, L2C], [0, 0, L2C, 0]), costs([5, 5, 100, 5])
    trace = trace_of(steps, cost._replace(tail=np.full(4, 7)))
    assert trace.start[1] == trace.start[0] + 5 < trace.end[0]
    assert trace.busy()["compute"] == (5 + 5 + 7) + (5 + 7)
    assert trace.busy()["store"] == 0
    assert all(busy <= trace.cycles for busy in trace.busy().values())


def test_a_token_is_there_when_its_step_ends_and_not_before() -> None:
    trace = trace_of(steps_of([0, 1], [0, L2C], [L2C, 0]), costs([20, 1]))
    assert trace.start[1] == trace.end[0] == FIRST + 20
    assert trace.cause[1] == CAUSE_TOKEN + 0
    assert trace.wait[1] == trace.start[1]
    free = trace_of(steps_of([0, 1]), costs([20, 1]))
    assert free.start[1] == SECOND


@pytest.mark.parametrize(("size", "beats"), [(8, 1), (9, 2), (32, 4), (33, 5), (64, 8)])
def test_a_transfer_takes_its_latency_once_and_a_cycle_a_beat(size: int, beats: int) -> None:
    trace = trace_of(steps_of([0]), costs([0], [1], [size]))
    assert trace.end[0] - trace.start[0] == 10 + beats if beats <= 4 else True
    # Bursts of one row follow each other: the second's latency runs from when the first was granted.
    if beats > 4:
        assert trace.end[0] - trace.start[0] == 10 + max(4, 10) + beats - 4


def test_rows_wait_for_each_other() -> None:
    serial = trace_of(steps_of([0]), costs([0], [3], [16]))
    assert serial.end[0] - serial.start[0] == 3 * (10 + 2)


def test_two_units_share_the_channel_in_order_of_request() -> None:
    trace = trace_of(steps_of([0, 1]), costs([0, 0], [1, 1], [32, 32]))
    alone = 10 + 4
    assert trace.end[0] == FIRST + alone
    assert trace.end[1] == trace.end[0] + 4  # requested two cycles later, so its latency is hidden
    assert trace.contention.tolist() == [0, 2]


def test_a_write_does_not_wait_for_reads() -> None:
    steps, cost = steps_of([0, 2]), costs([0, 0], [1, 1], [32, 32])
    cost = cost._replace(writes=np.array([0, 1], np.int64))
    assert trace_of(steps, cost).contention.tolist() == [0, 0]


def test_a_full_command_queue_holds_back_fetch() -> None:
    steps = steps_of([1, 1, 1, 0])
    long = costs([50, 50, 50, 1])
    assert trace_of(steps, long, fetch=Fetch(16, 8)).start[3] < 50
    held = trace_of(steps, long, fetch=Fetch(16, 1))
    # The third instruction is delivered when the second starts and frees its place; the fourth after it.
    assert held.start[1] == FIRST + 50
    assert held.start[3] == held.start[1] + 2


def test_a_command_queue_that_can_never_drain_is_an_error() -> None:
    steps = steps_of([1, 1, 0], [L2C, 0, 0], [0, 0, L2C])
    assert trace_of(steps, costs([1, 1, 1]), fetch=Fetch(16, 2)).cycles
    with pytest.raises(HazardError, match="a queue fills"):
        trace_of(steps, costs([1, 1, 1]), fetch=Fetch(16, 1))


@pytest.mark.parametrize("seed", range(8))
def test_every_start_respects_its_unit_and_its_tokens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = random_table(rng, 200)
    relation = order(steps)
    assert relation.complete
    count = len(steps)
    cost = costs(
        rng.integers(1, 30, count).tolist(), rng.integers(0, 3, count).tolist(), rng.integers(1, 99, count).tolist()
    )
    trace = timeline(steps, relation, Simulated(cost, PORT, FETCH))
    for step in range(count):
        for giver in relation.giver[step]:
            assert giver < 0 or trace.start[step] >= trace.end[giver], f"seed {seed}"
    for unit in range(3):
        mine = np.flatnonzero(steps.unit == unit)
        assert (trace.start[mine[1:]] - trace.end[mine[:-1]] == trace.wait[mine[1:]]).all()
    assert (trace.end - trace.start >= cost.busy).all()


def test_a_push_waits_for_room_in_its_queue() -> None:
    """Four tokens into a queue of two: the third push ends when the first pop starts, not before."""
    steps = steps_of([0, 0, 0, 0, 1, 1, 1, 1], [0] * 4 + [L2C] * 4, [L2C] * 4 + [0] * 4)
    queues = tuple(replace(queue, depth=2) for queue in steps.queues)
    cost = costs([1] * 4 + [100] * 4)
    deep, short = trace_of(steps, cost), trace_of(replace(steps, queues=queues), cost)
    assert deep.end[3] < deep.end[4]
    assert short.end[2] == max(deep.end[2], short.start[4])
    assert short.end[3] == short.start[5]


def test_a_token_queue_that_can_never_drain_is_an_error() -> None:
    steps = steps_of([0, 0, 1], pushes=[L2C, L2C, 0])
    with pytest.raises(HazardError, match="tokens 1"):
        trace_of(replace(steps, queues=tuple(replace(queue, depth=1) for queue in steps.queues)), costs([1, 1, 1]))


def test_in_serial_order_nothing_overlaps() -> None:
    steps, cost = steps_of([0, 1, 2]), costs([5, 7, 9], [1, 1, 1], [64, 64, 64])
    trace = times(steps, order(steps), Simulated(cost, PORT, FETCH))[1]
    assert trace is not None
    assert (trace.start[1:] >= trace.end[:-1]).all()
    assert trace.cycles > trace_of(steps, cost).cycles


def test_steps_that_need_a_later_one_have_no_serial_time() -> None:
    """A pop before its push, and a token without room until a later step pops: both end, neither one step at a time."""
    waits = steps_of([1, 0], [L2C, 0], [0, L2C])
    fills = steps_of([0, 0, 1, 1], [0, 0, L2C, L2C], [L2C, L2C, 0, 0])
    shallow = replace(fills, queues=tuple(replace(queue, depth=1) for queue in fills.queues))
    for steps in (waits, shallow):
        cost = costs([5] * len(steps))
        assert trace_of(steps, cost).cycles > 0
        assert times(steps, order(steps), Simulated(cost, PORT, FETCH))[1] is None
    alone = times(fills, order(fills), Simulated(costs([5] * 4), PORT, FETCH))[1]
    assert alone is not None
    assert trace_of(waits, costs([5, 5])).parts(np.array([0, 1]), None, "load")[1].serial_cycles is None


def test_a_part_has_the_cycles_in_which_its_multiply_accumulates_are_done() -> None:
    """Steps on the middle unit multiply. Those of part 1 run while part 0 still stores, so part 0 ends before them."""
    steps = steps_of([1, 2, 1, 2])
    trace = trace_of(steps, costs([10, 100, 40, 5]))
    part, macs = np.array([0, 0, 1, 1]), np.array([7, 0, 7, 0])
    assert trace.end[1] > trace.end[2] > trace.start[2] > trace.end[0]
    whole = [own.cycles for own in trace.parts(part, None, "compute")]
    fair = [own.cycles for own in trace.parts(part, None, "compute", macs)]
    assert whole == [trace.end[1], trace.cycles - trace.end[1]]
    assert fair == [trace.start[2], trace.cycles - trace.start[2]]
    assert [sum(own.causes.values()) for own in trace.parts(part, None, "compute", macs)] == fair
    idle = trace.parts(np.array([0, 1, 2, 2]), None, "compute", macs)  # part 1 multiplies nothing
    assert [own.cycles for own in idle] == [trace.end[0], trace.start[2] - trace.end[0], fair[1]]
