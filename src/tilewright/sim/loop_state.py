"""The state of the time pass (sim/timeline.py): the data that its event loop reads and writes."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.costs import Channel, Costs, Fetch, Units

#: The last columns of State, which are bool.
FLAGS = ("ending", "filling", "moving", "writing")
#: A time later than any event.
NOT_YET = 1 << 62
#: Entries of Run.port: the times at which the read bus and the write bus are free, the time at which the next read can
#: be granted, the number of granted reads, and the time of the first beat of the last granted read.
READ_BUS, WRITE_BUS, COMMAND_FREE, GRANTED, STREAMED = range(5)
#: Entries of Run.fetched: the number of requested instructions, the number of delivered instructions, and the earliest
#: time of the next delivery.
FETCHED, SENT, DELIVERS = range(3)


class Stream(NamedTuple):
    """The steps of a launch. The steps of unit u are `order[first[u]:first[u + 1]]`.

    `giver` is Order.giver, and `room` is StepTable.makes_room.
    """

    first: Array
    order: Array
    unit: Array
    giver: Array
    room: Array


class Outcome(NamedTuple):
    """The columns of the trace that `simulate` writes, int64 [n]. A time is NOT_YET until it is known."""

    begin: Array
    end: Array
    delivered: Array
    worked: Array  # the end of the step's work
    released: Array  # the time when the unit was free for the next step
    wait: Array
    cause: Array
    contention: Array
    arrival: Array  # the time when fetch has read the command
    granted: Array  # the time when fetch got the bus for the command's batch


class State(NamedTuple):
    """The state of each client of the DRAM port (units, then fetch), int64 or bool [units + 1].

    While a unit moves the data of its step, it is `moving`. Then the step is `ending` until it releases the unit. The
    release may be after `work_end`, when the work is done, because a queue may lack room for a token of the step.
    """

    position: Array  # in Stream.order
    free: Array  # the time when the unit's last step released the unit
    last_end: Array
    work_end: Array
    backlog: Array  # the number of commands in the unit's queue
    rows_left: Array
    row_address: Array
    beats_left: Array  # the remaining beats of this row
    to_edge: Array  # the number of beats before the next multiple of the longest burst, where a burst must end
    data_end: Array
    arrived: Array  # the time when the data of all finished steps have arrived
    fill_left: Array  # the remaining tiles of zeros; the unit writes one tile in each cycle without a beat
    pause_left: Array  # the remaining cycles of Costs.fill_pause
    filled: Array  # the time up to which `fill_left` and `pause_left` are computed
    request: Array
    priority: Array
    ending: Array  # this column and all following columns are bool
    filling: Array
    moving: Array
    writing: Array


class Run(NamedTuple):
    """The data that the event loop `simulate` reads and writes.

    `bursts` is a ring buffer with the end times of the last `in_flight` granted reads.
    """

    stream: Stream
    out: Outcome
    state: State
    port: Array
    bursts: Array
    fetched: Array
    costs: Costs
    channel: Channel
    fetch: Fetch
    units: Units
