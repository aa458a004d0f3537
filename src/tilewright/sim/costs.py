"""The inputs of the time pass, in addition to the step table: costs of steps, DRAM port, delivery of commands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array


class Channel(NamedTuple):
    """The DRAM port: `latency` cycles pass from a grant to its first beat; a burst has at most `burst` beats.

    If `burst` is 0, there is no port, and Costs.busy includes the cycles of transfers.

    If `in_flight` is 0, bursts are granted in order of request. The bursts of a row are requested without a pause, and
    a unit requests its next row when the data of the previous row has arrived.

    If `in_flight` is n > 0, there is a command channel. One read is granted per cycle: fetch has the highest priority,
    then the unit with the lowest Costs.priority. At most n reads are outstanding. A unit requests its next burst in
    the cycle after a grant. The first beat of a write comes `write_latency` cycles after its grant.

    The other numbers are for a command channel with further delays:
    - `turn`: the number of cycles from a grant to the client's next request;
    - `rests`: no read is granted in the cycle in which a burst has its last beat;
    - `streams`: a read has no latency if its grant precedes the first beat of the previous read;
    - `answer`: the number of cycles from a write's last beat to its response (-1: writes have no response). The
      unit cannot request its next write before this response;
    - `pause`: a write pauses for one cycle after every `pause` beats, except after its last beat (0: no pauses).
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
    """The fetch of commands from DRAM, `insn_bytes` bytes each, and their delivery to the units in stream order.

    Each unit has a queue of `depth` commands. A command leaves its queue when its step starts. If `depth` is 0, there
    is no fetch, and all commands are delivered at the start.

    Commands are read in batches of `batch` commands (0: one burst), and delivered one per cycle. The first batch is
    requested in cycle `lead`. Without a buffer (`buffer` 0), a batch is requested `turn` cycles after the delivery of
    the last command. With a buffer for `buffer` commands, a batch is requested as soon as there is room for it, and
    commands are packed into beats without gaps. A command reaches its queue `delay` cycles after its delivery. If
    `unpack` is -1, a command can be delivered when it has arrived. Otherwise, delivery waits until the whole batch has
    arrived, and then for `unpack` cycles.
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

    `room` is the number of cycles from a pop to a push into the freed entry. `outstanding` limits the number of steps
    of a unit that have released the unit and have not ended (0: no limit).
    """

    room: int = 0
    outstanding: int = 0


class Costs(NamedTuple):
    """The costs of steps, int64 [n]. A step takes `lead` cycles, transfers `rows` rows, and works for `busy` cycles."""

    lead: Array
    busy: Array
    rows: Array
    row_bytes: Array
    writes: Array  # 0 reads DRAM, 1 writes it
    #: A row starts at byte `address` + row * `stride`; bursts end at multiples of the longest burst.
    address: Array
    stride: Array
    #: If several units request reads, the lowest number has priority. For equal numbers, the lowest unit has priority.
    priority: Array
    #: The number of cycles in which the step writes zeros. These cycles have no beat. Filling begins `fill_lead` cycles
    #: after the start, and after the data of the unit's earlier steps have arrived.
    fill: Array
    #: If `tail` is above 0, the step ends at least `tail` cycles after it releases its unit, and at least `settle`
    #: cycles after its last beat. The steps of a unit end in order, one per cycle.
    tail: Array
    settle: Array
    #: 1: the step runs ahead, which means that it releases its unit when its last burst is granted.
    ahead: Array
    fill_lead: Array
    #: When `fill_last` of the filling cycles remain, filling pauses for `fill_pause` cycles (with or without beats).
    fill_last: Array
    fill_pause: Array

    @classmethod
    def of(cls, lead: Array, busy: Array, rows: Array, row_bytes: Array, writes: Array, **others: Array) -> Costs:
        """Return costs with zeros for the columns that are not given."""
        none = np.zeros(len(lead), np.int64)
        return cls(lead, busy, rows, row_bytes, writes, **dict.fromkeys(cls._fields[5:], none) | others)


class Simulated(NamedTuple):
    """The numbers of a timing model for one launch."""

    costs: Costs
    channel: Channel
    fetch: Fetch
    units: Units = Units()


def least_cycles(simulated: Simulated) -> Array:
    """Return, for each step, the minimum number of cycles for which it occupies its unit, int64 [n].

    These are the cycles of the lead, the data (`data_cycles`) and the work. The minimum is 0 for a step that runs ahead
    (Costs.ahead), because the step may release its unit before its data arrive.
    """
    costs = simulated.costs
    return np.maximum(costs.lead + np.where(costs.ahead, 0, data_cycles(simulated)) + costs.busy, 0) * (1 - costs.ahead)


def data_cycles(simulated: Simulated) -> Array:
    """Return, for each step, the minimum number of cycles from its first request to its last data, int64 [n].

    The bound assumes one burst per row. If writes have a response, each row waits for the response of the previous row.
    """
    costs = simulated.costs
    channel = simulated.channel
    beats = -(-costs.row_bytes // channel.beat_bytes)
    read = channel.latency + costs.rows * beats
    pauses = (beats - 1) // channel.pause if channel.pause else 0
    latency = channel.write_latency if channel.in_flight else channel.latency
    # The latency is added only once, because the result is a lower bound. A write is certain to wait after each row
    # only if the memory sends responses.
    answered = costs.rows * (latency + beats + pauses + channel.answer)
    write = answered if channel.answer >= 0 else latency + costs.rows * beats
    moves = (costs.rows > 0) & (costs.row_bytes > 0) & (channel.burst > 0)
    return np.where(moves, np.where(costs.writes == 1, write, read), 0)
