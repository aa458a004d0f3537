"""The input of the time pass besides the step table: costs of steps, the DRAM port, the delivery of commands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array


class Channel(NamedTuple):
    """The DRAM port: cycles from a grant to its first beat (`latency`), the most beats of a burst (`burst`).

    If `burst` is 0, there is no port, and Costs.busy includes the cycles of transfers.

    If `in_flight` is 0, bursts are granted in order of request. Bursts of a row follow each other, and a unit requests
    its next row when the data of the previous row has arrived.

    If `in_flight` is n > 0, there is a command channel. One read is granted per cycle, in order of Costs.priority,
    fetch first, with at most n reads outstanding. A unit requests its next burst, of reads or writes, in the cycle
    after a grant. The first beat of a write comes `write_latency` cycles after its grant.

    The other numbers describe a command channel whose clients wait for more than a grant:
    - `turn`: cycles from a grant to the client's next request;
    - `rests`: no read is granted in the cycle of a last beat;
    - `streams`: a read has no latency if it is granted before the first beat of the read before it;
    - `answer`: cycles from a write's last beat to its answer (-1: writes are not answered). The write's data end with
      the answer, and the unit's next write follows it;
    - `pause`: a write pauses for one cycle after this many beats (0: never), but not after its last beat.
    """

    beat_bytes: int
    latency: int
    burst: int = 256  # AXI4
    in_flight: int = 0
    write_latency: int = 0
    turn: int = 1
    rests: bool = False
    streams: bool = False
    answer: int = -1
    pause: int = 0


class Fetch(NamedTuple):
    """The delivery of commands to the units: `insn_bytes` each, in stream order, into queues of `depth` commands.

    If `depth` is 0, there is no fetch, and all commands are delivered at the start. Commands are read in batches of
    `batch` (0: as many as a burst holds) and delivered one per cycle. The next batch is requested when the last command
    has been delivered. With a `buffer` (its size in commands), the next batch is requested as soon as the buffer has
    room for it, and beats hold as many commands as fit. A command leaves its queue when its step starts.

    The first batch is requested in cycle `lead`, each other one `turn` cycles after the last delivery. A command
    reaches its queue `delay` cycles after it is delivered. Delivery begins with the first command of a batch that has
    arrived; if `unpack` is not -1, it begins `unpack` cycles after the end of the whole batch's data.
    """

    insn_bytes: int
    depth: int
    batch: int = 0
    buffer: int = 0
    lead: int = 0
    turn: int = 1
    delay: int = 1
    unpack: int = -1


class Units(NamedTuple):
    """Properties that all units share.

    `room`: cycles from a pop to a push into the freed place. `outstanding`: most steps of a unit that have released the
    unit but have not ended (0: any number).
    """

    room: int = 0
    outstanding: int = 0


class Costs(NamedTuple):
    """The costs of steps, int64 [n]: `lead` cycles, then a transfer of `rows` of `row_bytes`, then `busy` cycles."""

    lead: Array
    busy: Array
    rows: Array
    row_bytes: Array
    writes: Array  # 0 reads DRAM, 1 writes it
    #: A row starts at byte `address` + row * `stride`; bursts end at multiples of the longest burst.
    address: Array
    stride: Array
    priority: Array  # of its reads; lower goes first, then the lower unit
    #: Cycles in which zeros are written; only cycles without a beat count. Filling begins `fill_lead` cycles after the
    #: start, and after the data of the unit's earlier steps have arrived.
    fill: Array
    #: A step with a `tail` ends at least `tail` cycles after it releases its unit, and at least `settle` cycles after
    #: its last beat; the steps of a unit end in order, one per cycle.
    tail: Array
    settle: Array
    #: 1: the step releases its unit when its last burst is granted.
    ahead: Array
    fill_lead: Array
    #: Before the `fill_last` last of these cycles, filling pauses for `fill_pause` cycles, with or without beats.
    fill_last: Array
    fill_pause: Array

    @classmethod
    def of(cls, lead: Array, busy: Array, rows: Array, row_bytes: Array, writes: Array, **others: Array) -> Costs:
        """Return costs with zeros for the columns that are not given."""
        none = np.zeros(len(lead), np.int64)
        return cls(lead, busy, rows, row_bytes, writes, **dict.fromkeys(cls._fields[5:], none) | others)


class Simulated(NamedTuple):
    """A timing model's numbers for one launch, which the time pass needs besides the step table."""

    costs: Costs
    channel: Channel
    fetch: Fetch
    units: Units = Units()


def least_cycles(simulated: Simulated) -> Array:
    """Return the least cycles for which each step occupies its unit, int64 [n].

    They are its lead and its work. A step that moves data before it releases the unit adds the latency of its first
    beat, and one cycle for each beat. A step that runs ahead counts as 0: its unit may be free before its data arrive.
    """
    costs = simulated.costs
    return np.maximum(costs.lead + np.where(costs.ahead, 0, data_cycles(simulated)) + costs.busy, 0) * (1 - costs.ahead)


def data_cycles(simulated: Simulated) -> Array:
    """Return the least cycles from each step's first request to the end of its data, int64 [n]; 0 without data.

    An answered write has a latency, its pauses and an answer in each row. Bursts that end inside a row are not counted.
    """
    costs = simulated.costs
    channel = simulated.channel
    beats = -(-costs.row_bytes // channel.beat_bytes)
    read = channel.latency + costs.rows * beats
    pauses = (beats - 1) // channel.pause if channel.pause else 0
    latency = channel.write_latency if channel.in_flight else channel.latency
    answered = costs.rows * (latency + beats + pauses + channel.answer)
    write = answered if channel.answer >= 0 else latency + costs.rows * beats
    moves = (costs.rows > 0) & (costs.row_bytes > 0) & (channel.burst > 0)
    return np.where(moves, np.where(costs.writes == 1, write, read), 0)
