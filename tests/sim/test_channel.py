"""Edges of a port with a command channel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.steps import costs, steps_of
from tilewright.sim.costs import Channel, Costs, Fetch, Simulated
from tilewright.sim.order import order
from tilewright.sim.steps import Trace
from tilewright.sim.timeline import timeline

DELAY = 10
PORT = Channel(8, DELAY, burst=4, in_flight=3, write_latency=3)
NO_FETCH = Fetch(16, depth=0)
Loads = list[tuple[int, int]]  # of each unit: the cycle of its first request, beats


def loads(requests: Loads, channel: Channel = PORT, priority: tuple[int, ...] = (0, 0, 0), rows: int = 1) -> Trace:
    """One load a unit, from cycle 0."""
    count = len(requests)
    steps = steps_of(list(range(count)))
    cost = costs([0] * count, [rows] * count, [8 * beats for _, beats in requests])._replace(
        lead=np.array([lead for lead, _ in requests]), priority=np.array(priority[:count])
    )
    return timeline(steps, order(steps), Simulated(cost, channel, NO_FETCH))


def test_without_fetch_everything_starts_at_once() -> None:
    assert loads([(1, 1)]).start.tolist() == [0]
    assert loads([(1, 1)]).fetch_bytes == 16


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_of_two_requests_in_a_cycle_the_lower_priority_goes_first(first: int, second: int) -> None:
    trace = loads([(5, 2), (5, 3)], priority=(first, second))
    ends = [5 + DELAY + 2, 5 + DELAY + 2 + 3] if first < second else [5 + DELAY + 3 + 2, 5 + DELAY + 3]
    assert trace.end.tolist() == ends


def test_an_earlier_request_goes_before_a_higher_priority() -> None:
    assert loads([(4, 2), (5, 3)], priority=(9, 1)).end.tolist() == [4 + DELAY + 2, 4 + DELAY + 5]


def test_one_grant_a_cycle() -> None:
    """The third of three equal requests is granted two cycles late, and only then may the first unit's next be."""
    slow = PORT._replace(in_flight=16)
    assert loads([(5, 1)] * 3, slow).end.tolist() == [16, 17, 18]


@pytest.mark.parametrize(("request_at", "end"), [(14, 14 + DELAY + 1), (17, 17 + DELAY + 1)])
def test_every_read_pays_the_delay_from_its_own_grant(request_at: int, end: int) -> None:
    trace = loads([(5, 2), (request_at, 1)])
    assert trace.end.tolist() == [5 + DELAY + 2, end]


def test_so_many_bursts_are_in_flight() -> None:
    """Bursts of one beat, a grant a cycle: the one without a place is granted when the first has ended."""
    for in_flight in (3, 4):
        port = PORT._replace(in_flight=in_flight, burst=1)
        assert loads([(5, in_flight)], port).end[0] == 5 + DELAY + in_flight
        assert loads([(5, in_flight + 1)], port).end[0] == 5 + DELAY + 1 + DELAY + 1
        assert loads([(5, in_flight + 1)], port._replace(in_flight=in_flight + 1)).end[0] == 5 + DELAY + in_flight + 1


def test_writes_run_ahead_of_their_data() -> None:
    """Two rows of a burst of four beats and one of two: a command a cycle, then beat after beat."""
    steps = steps_of([2])
    cost = costs([0], [2], [48])._replace(writes=np.array([1]))
    assert timeline(steps, order(steps), Simulated(cost, PORT, NO_FETCH)).end[0] == 3 + 2 * (4 + 2)


def test_contention_is_what_others_cost() -> None:
    assert loads([(5, 4)]).contention.tolist() == [0]
    assert loads([(5, 4), (5, 4)]).contention.tolist() == [0, 4]
    assert loads([(5, 20)], PORT._replace(in_flight=16)).contention.tolist() == [0]


def test_fill_takes_cycles_without_a_beat() -> None:
    def end(fill: int, beats: int = 4, lead: int = 5) -> int:
        steps = steps_of([0])
        cost = Costs.of(*(np.array([v]) for v in (lead, 0, 1, 8 * beats, 0)), fill=np.array([fill]))
        return int(timeline(steps, order(steps), Simulated(cost, PORT, NO_FETCH)).end[0])

    free = 5 + DELAY
    assert [end(free + more) - end(0) for more in (-1, 0, 1, 3)] == [0, 0, 1, 3]
