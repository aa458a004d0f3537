"""Steps that overlap inside a unit, and a fetch that reads ahead: each time by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sim.steps import costs, steps_of
from tilewright.sim.costs import Channel, Costs, Fetch, Simulated, Units
from tilewright.sim.order import order
from tilewright.sim.steps import StepTable
from tilewright.sim.timeline import timeline

PORT = Channel(8, 10, burst=4, in_flight=3, write_latency=2)
NO_FETCH = Fetch(16, depth=0)


def times(steps: StepTable, cost: Costs, **others: Any) -> list[tuple[int, int]]:
    """(start, end) of each step."""
    trace = timeline(steps, order(steps), Simulated(cost, **{"channel": PORT, "fetch": NO_FETCH, **others}))
    return list(zip(trace.start.tolist(), trace.end.tolist(), strict=True))


def loads(beats: list[int], ahead: int) -> Costs:
    """Loads of so many beats, requested after 2 cycles, on one unit; 0: a NOP of a cycle."""
    cost = costs([0] * len(beats), [int(some > 0) for some in beats], [8 * some for some in beats])
    lead = np.where(np.array(beats) > 0, 2, 1)
    flags = np.where(np.array(beats) > 0, ahead, 0)
    return cost._replace(lead=lead, tail=np.full(len(beats), 2), settle=np.full(len(beats), 1), ahead=flags)


def test_a_tail_is_behind_the_start_of_the_next_step() -> None:
    cost = costs([4, 4])._replace(tail=np.array([5, 5]))
    assert times(steps_of([1, 1]), cost) == [(0, 9), (4, 13)]


def test_a_step_ahead_lets_the_next_one_request_while_its_data_come() -> None:
    steps = steps_of([0, 0])
    assert times(steps, loads([2, 2], ahead=1)) == [(0, 2 + 10 + 2 + 1), (3, 5 + 10 + 2 + 1)]
    assert times(steps, loads([2, 2], ahead=0)) == [(0, 14 + 2), (14, 14 + 14 + 2)]


def test_steps_of_a_unit_end_in_order_one_a_cycle() -> None:
    assert times(steps_of([0, 0, 0]), loads([4, 0, 0], ahead=1)) == [(0, 17), (3, 18), (4, 19)]


def test_so_many_steps_may_be_outstanding() -> None:
    steps, cost = steps_of([0, 0, 0]), loads([4, 0, 0], ahead=1)
    assert times(steps, cost, units=Units(outstanding=1)) == [(0, 17), (3, 19), (17, 21)]
    assert times(steps, cost, units=Units(outstanding=2)) == [(0, 17), (3, 18), (4, 19)]


@pytest.mark.parametrize("room", [0, 1])
def test_a_place_is_free_some_cycles_after_the_pop(room: int) -> None:
    steps = steps_of([0, 0, 1, 1], pops=[0, 0, 1, 1], pushes=[1, 1, 0, 0])
    steps = replace(steps, queues=tuple(replace(queue, depth=1) for queue in steps.queues))
    cost = costs([1, 1, 5, 5])._replace(tail=np.array([1, 1, 0, 0]))
    assert times(steps, cost, units=Units(room=room)) == [(0, 2), (1, 3 + room), (2, 7), (7, 12)]


def test_zeros_wait_for_the_data_of_steps_before() -> None:
    """The first load's data end at 16; the second has 3 zeros only, from 3 cycles after its start at the earliest."""
    fill = np.array([0, 3])
    cost = loads([4, 0], ahead=1)._replace(fill=fill, fill_lead=np.array([3, 3]))
    assert times(steps_of([0, 0]), cost)[1] == (3, 16 + 3 + 2)
    assert times(steps_of([0, 1]), cost)[1] == (0, 3 + 3 + 2)


def test_commands_of_writes_run_ahead() -> None:
    """Three rows of two beats: a beat a cycle from 2 cycles after the first request."""
    cost = loads([2], ahead=0)._replace(rows=np.array([3]), writes=np.array([1]), stride=np.array([64]))
    assert times(steps_of([2]), cost) == [(0, 2 + 2 + 6 + 2)]


def test_every_read_pays_the_latency() -> None:
    """The second unit's is granted while the first waits for its data: its own come 10 cycles after its grant."""
    cost = loads([1, 1], ahead=0)._replace(lead=np.array([2, 6]))
    assert times(steps_of([0, 1]), cost) == [(0, 2 + 10 + 1 + 2), (0, 6 + 10 + 1 + 2)]


def test_fetch_asks_for_the_next_batch_when_its_buffer_has_room() -> None:
    """Batches of two, four places. The third waits for the second delivery, in cycle 14."""
    fetch = Fetch(16, depth=8, batch=2, buffer=4)
    starts = [start for start, _ in times(steps_of([1] * 6), costs([0] * 6), fetch=fetch)]
    assert starts == [13, 15, 17, 19, 15 + 10 + 2 + 1, 15 + 10 + 4 + 1]
