"""The input of the time pass besides the step table: costs of steps, the DRAM port, the delivery of commands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array


class Channel(NamedTuple):
    """The DRAM port: `latency` cycles pass from a grant to its first beat; a burst has at most `burst` beats.

    If `burst` is 0, there is no port, and Costs.busy includes the cycles of transfers.

    If `in_flight` is 0, bursts are granted in order of request. The bursts of a row are requested without a pause, and
    a unit requests its next row when the data of the previous row has arrived.

    If `in_flight` is n > 0, there is a command channel. One read is granted per cycle, in order of Costs.priority,
    fetch first, with at most n reads outstanding. A unit requests its next burst, of reads or writes, in the cycle
    after a grant. The first beat of a write comes `write_latency` cycles after its grant.

    The other numbers describe a command channel whose clients wait for more than a grant:
    - `turn`: the number of cycles from a grant to the client's next request;
    - `rests`: no read is granted in the cycle in which a burst has its last beat;
    - `streams`: a read has no latency if its grant precedes the first beat of the previous read;
    - `answer`: the number of cycles from a write's last beat to its response (-1: writes have no response). The
      response ends the write, and the unit's next write follows the response;
    - `pause`: a write pauses for one cycle after every `pause` beats (0: never), but not after its last beat.
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
    """The delivery of commands of `insn_bytes` bytes to the units, in stream order, into queues of `depth` commands.

    If `depth` is 0, there is no fetch, and all commands are delivered at the start. Commands are read in batches of
    `batch` commands (0: one burst) and delivered one per cycle. The next batch is requested when the last command has
    been delivered. With a `buffer` (its size in commands), the next batch is requested as soon as the buffer has room
    for a batch, and commands are packed into beats without gaps. A command leaves its queue when its step starts.

    The first batch is requested in cycle `lead`, and each later batch `turn` cycles after the last delivery. A command
    reaches its queue `delay` cycles after it is delivered. If `unpack` is -1, delivery begins when the first command of
    a batch has arrived, else `unpack` cycles after the data of the whole batch have arrived.
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

    `room`: the number of cycles from a pop to a push into the freed entry. `outstanding`: the largest number of steps
    of a unit that have released the unit but have not ended (0: no limit).
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
    priority: Array  # of the step's reads: the lowest number is granted first; of equal numbers, the lowest unit
    #: The number of cycles without a beat that the step needs to write zeros. Filling begins `fill_lead` cycles after
    #: the start, and after the data of the unit's earlier steps have arrived.
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

    These cycles are the step's lead and work. If the step moves data before it releases the unit, the latency of its
    first beat and one cycle per beat are added. The result is 0 for a step that runs ahead, because its unit may be
    free before its data arrive.
    """
    costs = simulated.costs
    return np.maximum(costs.lead + np.where(costs.ahead, 0, data_cycles(simulated)) + costs.busy, 0) * (1 - costs.ahead)


def data_cycles(simulated: Simulated) -> Array:
    """Return the least cycles from each step's first request to the end of its data, int64 [n]; 0 without data.

    If writes have a response, each row of a write adds its latency, its pauses and a response. Bursts that end inside a
    row are not counted.
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
