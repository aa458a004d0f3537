"""Edges of a channel with a command channel, and of a fetch that delivers whole batches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.test_timeline import L2C, costs, steps_of
from tilewright.sim.order import order
from tilewright.sim.timeline import Channel, Costs, Fetch, timeline
from tilewright.sim.tokens import lost_tokens
from tilewright.sim.trace import Trace

DELAY = 10
PORT = Channel(8, DELAY, burst=4, in_flight=3, spacing=2, write_latency=3, write_response=1)
NO_FETCH = Fetch(16, depth=0)
Loads = list[tuple[int, int]]  # of each unit: the cycle of its first request, beats


def loads(requests: Loads, channel: Channel = PORT, priority: tuple[int, ...] = (0, 0, 0), rows: int = 1) -> Trace:
    """One load a unit, from cycle 0."""
    count = len(requests)
    steps = steps_of(list(range(count)))
    cost = costs([0] * count, [rows] * count, [8 * beats for _, beats in requests])._replace(
        lead=np.array([lead for lead, _ in requests]), priority=np.array(priority[:count])
    )
    return timeline(steps, order(steps), cost, channel, NO_FETCH)


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


@pytest.mark.parametrize(("request_at", "end"), [(14, 18), (15, 26), (16, 28), (17, 28)])
def test_only_a_burst_that_finds_none_waiting_pays_the_delay(request_at: int, end: int) -> None:
    """The first burst's beats are in cycles 15 and 16. Granted before 15, the second follows, else it pays."""
    trace = loads([(5, 2), (request_at, 1)])
    assert trace.end[0] == 5 + DELAY + 2
    assert trace.end[1] == end


def test_no_grant_in_the_cycle_of_a_last_beat() -> None:
    """The first burst's only beat is in cycle 15."""
    for request_at, granted in ((14, 14), (15, 16), (16, 16)):
        trace = loads([(5, 1), (request_at, 1)])
        assert trace.end[1] == (16 + 1 if granted == 14 else granted + DELAY + 1)


def test_so_many_bursts_are_in_flight() -> None:
    """Bursts of one beat: the one without a place waits for the last beat of all, finds none waiting and pays."""
    for in_flight in (3, 4):
        port = PORT._replace(in_flight=in_flight, burst=1)
        full = 5 + DELAY + in_flight
        assert loads([(5, in_flight)], port).end[0] == full
        assert loads([(5, in_flight + 1)], port).end[0] == full + DELAY + 1
        assert loads([(5, in_flight + 1)], port._replace(in_flight=in_flight + 1)).end[0] == full + 1


def test_a_units_commands_are_spaced() -> None:
    """Without delay the gap between bursts of one beat is that of the commands: 3, for a last beat bars a cycle."""
    port = PORT._replace(latency=2, burst=1)
    assert loads([(5, 3)], port).end[0] == 5 + 2 + 1 + 2 * 3
    assert loads([(5, 3)], port._replace(spacing=4)).end[0] == 5 + 2 + 1 + 2 * 4


def test_a_write_waits_for_its_response_before_its_next_burst() -> None:
    steps = steps_of([2])
    cost = costs([0], [2], [48])._replace(writes=np.array([1]))
    for bubble, lost in ((0, 0), (2, 1), (1, 3 + 1)):
        trace = timeline(steps, order(steps), cost._replace(bubble=np.array([bubble])), PORT, NO_FETCH)
        # Two rows of a burst of four beats and one of two; a cycle is lost after each `bubble` beats but the last.
        assert trace.end[0] == 2 * (3 + 4 + 1 + 3 + 2) + 2 * lost + 1


def test_contention_is_what_others_cost() -> None:
    assert loads([(5, 4)]).contention.tolist() == [0]
    assert loads([(5, 4), (5, 4)]).contention.tolist() == [0, 4]
    assert loads([(5, 20)]).contention.tolist() == [0]


def fetched(count: int, fetch: Fetch) -> list[int]:
    steps = steps_of([1] * count)
    return timeline(steps, order(steps), costs([0] * count), PORT, fetch).start.tolist()


def test_a_whole_batch_is_delivered_after_its_last_beat() -> None:
    fetch = Fetch(16, depth=99, batch=2, whole=True, lag=1, turn=3)
    first = 2 + DELAY + 4 + 1 + 1
    assert fetched(2, fetch) == [first, first + 1]
    # The last delivery is the cycle before the last start; the next request 3 after it.
    assert fetched(3, fetch)[2] == first + 3 + DELAY + 2 + 1 + 1
    assert fetched(3, fetch._replace(turn=4))[2] == fetched(3, fetch)[2] + 2  # the first request too
    assert fetched(3, fetch._replace(lag=2)) == [
        start + late for start, late in zip(fetched(3, fetch), (1, 1, 2), strict=True)
    ]


def counted(pushes: list[int], pops: list[int], limit: int) -> bool:
    """Whether load loses a token: pushes are the last cycles of its steps, pops the first of compute's."""
    count = len(pushes)
    steps = steps_of([0] * count + [1] * len(pops), [0] * count + [L2C] * len(pops), [L2C] * count + [0] * len(pops))
    none = np.zeros(len(steps), np.int64)
    start = np.array([*pushes, *pops])
    trace = Trace(steps, start, start + 1, none, none, none, none, none, 0, 0)
    return bool(lost_tokens(trace, limit))


def test_a_counter_loses_what_it_cannot_hold() -> None:
    assert not counted([1, 2, 3], [9, 10, 11], 3)
    assert counted([1, 2, 3, 4], [9, 10, 11, 12], 3)
    assert not counted([1, 2, 3, 5], [4, 9, 10, 11], 3)
    assert not counted([1, 2, 3, 4], [4, 9, 10, 11], 3)  # taken in the same cycle
    assert counted([1, 2, 3, 4], [5, 9, 10, 11], 3)


def test_fill_takes_cycles_without_a_beat() -> None:
    def end(*fill: int, beats: int = 4, lead: int = 5) -> int:
        steps = steps_of([0])
        cost = Costs.of(*(np.array([v]) for v in (lead, 0, 1, 8 * beats, 0)), fill=np.array([fill]))
        return int(timeline(steps, order(steps), cost, PORT, NO_FETCH).end[0])

    free = 5 + DELAY
    plain = end(0, 0, 0)
    assert [end(free + more, 0, 0) - plain for more in (-1, 0, 1, 3)] == [0, 0, 1, 3]
    assert [end(0, free + 4 + more, 0) - plain for more in (0, 1)] == [0, 1]  # passes beats as well
    assert [end(1, free - 1 + 4, more) - plain for more in (0, 1, 2)] == [0, 1, 2]
    assert [end(free, 4, more) - plain for more in (0, 1)] == [0, 1]
    assert end(free + 1, 4, 0) - plain == 5  # the zeros bar what is behind them
