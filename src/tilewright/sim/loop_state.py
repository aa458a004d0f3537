"""The state of the time pass (sim/timeline.py): the data that its event loop reads and writes."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.costs import Channel, Costs, Fetch, Units

#: The bool columns of State, which are its last columns.
FLAGS = ("ending", "filling", "moving", "writing")
#: A time later than any event.
NOT_YET = 1 << 62
#: Entries of Run.port: when each data bus is free, when the next read may be granted, how many reads were granted, and
#: the time of the last granted read's first beat.
READ_BUS, WRITE_BUS, COMMAND_FREE, GRANTED, STREAMED = range(5)
#: Entries of Run.fetched: instructions requested, instructions delivered, when the next instruction may be delivered.
FETCHED, SENT, DELIVERS = range(3)


class Stream(NamedTuple):
    """The steps of a launch as `simulate` reads them.

    The steps of unit u are `order[first[u]:first[u + 1]]`. `giver` is Order.giver, `room` is StepTable.makes_room.
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
    worked: Array  # when its work was done
    released: Array  # when it freed its unit
    wait: Array
    cause: Array
    contention: Array
    arrival: Array  # when the instruction has been read


class State(NamedTuple):
    """The state of each client of the DRAM port (units, then fetch), int64 or bool [units + 1].

    A unit first moves the data of its step. Then the step is `ending`: its work is done at `work_end`, but its queues
    may still lack room for its tokens.
    """

    position: Array  # in Stream.order
    free: Array  # when the unit's last step released it
    last_end: Array
    work_end: Array
    backlog: Array  # commands in the unit's queue
    rows_left: Array
    row_address: Array
    beats_left: Array  # beats of this row still to come
    to_edge: Array  # beats up to the address where a burst must end
    data_end: Array
    arrived: Array  # when all data of the steps that have released the unit have arrived
    fill_left: Array  # tiles of zeros still to be written, one in each cycle without a beat
    pause_left: Array  # cycles of Costs.fill_pause still to pass
    filled: Array  # fill_left is up to date at this time
    request: Array
    priority: Array
    ending: Array  # bool, like the columns below
    filling: Array
    moving: Array
    writing: Array


class Run(NamedTuple):
    """The data that the event loop `simulate` reads and writes. `bursts`: when the last granted reads end."""

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
