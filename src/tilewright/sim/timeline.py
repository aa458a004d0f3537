"""Time: event by event, each a step starting, a DRAM burst or a step ending; never cycle by cycle.

A step starts when its unit is free, its tokens are there and its command has been delivered. It may move
data in rows over the DRAM channel, then computes for `busy` cycles and ends; its tokens are there from then on.
The channel is granted burst by burst; how is data (Channel), and so is how commands arrive (Fetch).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.sim.events import simulate
from tilewright.sim.order import Order, runs_in_stream_order
from tilewright.sim.steps import StepTable
from tilewright.sim.trace import Trace

#: Microseconds of `simulate` for each event, uncompiled.
EVENT_US = 12


class Channel(NamedTuple):
    """The DRAM port. `latency`: cycles from a grant to its first beat; `burst`: beats of one at most (0: there is no
    port; what transfers take is part of Costs.busy).

    Without a command channel (`in_flight` 0) bursts are granted in order of request. Those of one row follow each
    other; a unit requests its next row when its data has come, or as soon as the last is granted (`pipelined`).

    With one, reads are granted one a cycle in order of Costs.priority (fetch first), none in the cycle of a last
    beat, at most `in_flight` that have not ended; `spacing` cycles from a grant to the unit's next request. Only a
    burst that finds no other one waiting for its first beat pays the latency. A write's first beat comes
    `write_latency` after its request, the unit's next request `write_response` after its last beat. When `steady`,
    last beats hold up no grant, every read pays the latency, and commands of writes run ahead like those of reads.
    """

    beat_bytes: int
    latency: int
    burst: int = 256  # AXI4
    pipelined: bool = False
    shared: bool = False  # reads and writes take turns on one data bus
    in_flight: int = 0
    spacing: int = 0
    write_latency: int = 0
    write_response: int = 0
    steady: bool = False


class Fetch(NamedTuple):
    """How commands reach the units: `insn_bytes` each, in stream order, `depth` to a queue.

    Depth 0: there is no fetch, all commands are there from the start. Commands are read in batches of `batch` (0: as
    many as a burst holds) and delivered one a cycle: each when it has arrived, or with `whole` when the batch has;
    `lag` cycles later. `turn`: cycles from the last delivery, or from the cycle before the launch, to the next
    request. A command leaves its queue when its step starts, or with `held` when it ends. With a `buffer` for so many
    commands, the next batch is requested as soon as there is room for it, and beats hold as many as fit.
    """

    insn_bytes: int
    depth: int
    batch: int = 0
    whole: bool = False
    lag: int = 0
    turn: int = 1
    held: bool = False
    buffer: int = 0


class Units(NamedTuple):
    """What units have in common. `room`: cycles from a pop to the push that uses its place; `outstanding`: steps of a
    unit that may not have ended when it lets go of the next (0: any number).
    """

    room: int = 0
    outstanding: int = 0


class Costs(NamedTuple):
    """What each step costs, int64 [n]: cycles `lead` before its transfers, `rows` of `row_bytes`, then `busy`.

    A row starts at byte `address` + row * `stride`; bursts end at multiples of the longest one. `fill` [n, 3]:
    cycles that pass beside the transfers, from the start: in those without a beat, in any, again in those without.
    `bubble`: beats of a write after which a cycle is lost (0: none).

    With a `tail` a step ends so many cycles after it has let its unit go, and `settle` cycles after its last beat;
    steps of a unit end in order, one a cycle. One that runs `ahead` lets its unit go when its last burst has been
    granted. Zeros begin after `fill_lead` cycles, when all data of the unit's steps before have come.
    """

    lead: Array
    busy: Array
    rows: Array
    row_bytes: Array
    writes: Array  # 0 reads DRAM, 1 writes it
    address: Array
    stride: Array
    priority: Array  # of its reads; lower goes first, then the lower unit
    fill: Array
    bubble: Array
    tail: Array
    settle: Array
    ahead: Array  # 0 or 1
    fill_lead: Array

    @classmethod
    def of(cls, lead: Array, busy: Array, rows: Array, row_bytes: Array, writes: Array, **others: Array) -> Costs:
        """With zeros for the columns that are not given."""
        none, fill = np.zeros(len(lead), np.int64), np.zeros((len(lead), 3), np.int64)
        given = dict.fromkeys(cls._fields[5:], none) | {"fill": fill} | others
        return cls(lead, busy, rows, row_bytes, writes, **given)


def timeline(
    table: StepTable, order: Order, costs: Costs, channel: Channel, fetch: Fetch, units: Units | None = None
) -> Trace:
    """The trace of one launch. Raises HazardError when a step never starts or never ends."""
    return _timeline(table, order, costs, channel, fetch, units or Units(), False)


def serial_timeline(
    table: StepTable, order: Order, costs: Costs, channel: Channel, fetch: Fetch, units: Units | None = None
) -> Trace | None:
    """The trace without any overlap: each step starts when the one before it in the stream has ended.

    None where the steps cannot run like that (see `runs_in_stream_order`): such a program has no serial time.
    """
    if not runs_in_stream_order(table, order):
        return None
    return _timeline(table, order, costs, channel, fetch, units or Units(), True)


def _timeline(
    table: StepTable, order: Order, costs: Costs, channel: Channel, fetch: Fetch, units: Units, serial: bool
) -> Trace:
    if not order.complete:
        raise HazardError("time", "; ".join(str(finding) for finding in order.findings))
    start, steps = table.by_unit()
    bursts = 2 + costs.row_bytes // max(1, channel.beat_bytes * channel.burst)
    events = 3 * len(table) + int((costs.rows * bursts).sum())
    begin, end, wait, cause, contention, done = simulate.of(EVENT_US * events)(
        start, steps, table.unit, order.giver, table.makes_room, costs, channel, fetch, units, serial
    )
    if done < len(table):
        raise HazardError(
            "time",
            f"{len(table) - done} instructions never end: a queue fills before the instruction that would free it runs "
            f"(commands {fetch.depth}, tokens {', '.join(str(queue.depth) for queue in table.queues)} deep)",
            "interleave the units' instructions or make the queues deeper",
        )
    moved = costs.rows * costs.row_bytes
    return Trace(
        table=table,
        start=begin,
        end=end,
        wait=wait,
        cause=cause,
        contention=contention,
        bytes_read=np.where(costs.writes == 0, moved, 0),
        bytes_written=np.where(costs.writes == 1, moved, 0),
        fetch_bytes=len(table) * fetch.insn_bytes,
        cycles=int(end.max(initial=0)),
    )
