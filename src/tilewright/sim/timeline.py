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
from tilewright.sim.events import NOT_YET, Outcome, Run, State, Stream, simulate
from tilewright.sim.order import Order, runs_in_stream_order
from tilewright.sim.steps import StepTable, Trace

#: The columns of State that are bool, its last ones.
FLAGS = ("ending", "filling", "moving", "writing")
#: Microseconds of `simulate` for each event, uncompiled.
EVENT_US = 12


class Channel(NamedTuple):
    """The DRAM port. `latency`: cycles from a grant to its first beat; `burst`: beats of one at most.

    `burst` 0: there is no port, and Costs.busy holds what transfers take.

    `in_flight` 0: bursts are granted in order of request. Bursts of a row follow each other, and a unit requests its
    next row when its data has come.

    `in_flight` n: there is a command channel. Reads are granted one a cycle in order of Costs.priority, fetch first,
    with at most n that have not ended. A unit requests its next burst in the cycle after a grant. Writes run ahead
    in the same way; the first beat of a write comes `write_latency` after its grant.
    """

    beat_bytes: int
    latency: int
    burst: int = 256  # AXI4
    in_flight: int = 0
    write_latency: int = 0


class Fetch(NamedTuple):
    """How commands reach the units: `insn_bytes` each, in stream order, `depth` to a queue.

    Depth 0: there is no fetch, and all commands are there from the start. Commands are read in batches of `batch`
    (0: as many as a burst holds) and delivered one a cycle. The next batch is requested when the last command has been
    delivered. With a `buffer` for so many commands, it is requested as soon as there is room for it, and beats hold as
    many commands as fit. A command leaves its queue when its step starts.
    """

    insn_bytes: int
    depth: int
    batch: int = 0
    buffer: int = 0


class Units(NamedTuple):
    """What units have in common.

    `room`: cycles from a pop to the push that uses its place. `outstanding`: steps of a unit that may not have ended
    when it lets go of the next one (0: any number).
    """

    room: int = 0
    outstanding: int = 0


class Costs(NamedTuple):
    """What each step costs, int64 [n]: cycles `lead` before its transfers, `rows` of `row_bytes`, then `busy`.

    A row starts at byte `address` + row * `stride`; bursts end at multiples of the longest one. `fill`: cycles that
    pass while no beat comes; they begin `fill_lead` cycles after the start, when all data of the unit's earlier steps
    have come.

    With a `tail`, a step ends so many cycles after it has let its unit go, and `settle` cycles after its last beat;
    steps of a unit end in order, one a cycle. A step that runs `ahead` lets its unit go when its last burst has been
    granted.
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
    tail: Array
    settle: Array
    ahead: Array  # 0 or 1
    fill_lead: Array

    @classmethod
    def of(cls, lead: Array, busy: Array, rows: Array, row_bytes: Array, writes: Array, **others: Array) -> Costs:
        """The costs with zeros for the columns that are not given."""
        none = np.zeros(len(lead), np.int64)
        return cls(lead, busy, rows, row_bytes, writes, **dict.fromkeys(cls._fields[5:], none) | others)


class Simulated(NamedTuple):
    """Everything that the time pass needs besides the step table: a timing model's numbers for one launch."""

    costs: Costs
    channel: Channel
    fetch: Fetch
    units: Units = Units()


def times(table: StepTable, order: Order, simulated: Simulated) -> tuple[Trace, Trace | None]:
    """The trace of a launch, and the one without any overlap: None where its steps cannot run in stream order.

    Raises HazardError as timeline().
    """
    alone = timeline(table, order, simulated, serial=True) if runs_in_stream_order(table, order) else None
    return timeline(table, order, simulated), alone


def timeline(table: StepTable, order: Order, simulated: Simulated, serial: bool = False) -> Trace:
    """The trace of one launch; `serial`: each step starts when the one before it in the stream has ended.

    Raises HazardError when a step never starts or never ends.
    """
    if not order.complete:
        raise HazardError("time", "; ".join(str(finding) for finding in order.findings))
    costs, channel, fetch, _ = simulated
    bursts = 2 + costs.row_bytes // max(1, channel.beat_bytes * channel.burst)
    events = 3 * len(table) + int((costs.rows * bursts).sum())
    run = _before(table, order, simulated)
    done = simulate.of(EVENT_US * events)(run, serial)
    if done < len(table):
        raise HazardError(
            "time",
            f"{len(table) - done} instructions never end: a queue fills before the instruction that would free it runs "
            f"(commands {fetch.depth}, tokens {', '.join(str(queue.depth) for queue in table.queues)} deep)",
            "interleave the units' instructions or make the queues deeper",
        )
    moved, out = costs.rows * costs.row_bytes, run.out
    return Trace(
        table=table,
        start=out.begin,
        end=out.end,
        wait=out.wait,
        cause=out.cause,
        contention=out.contention,
        bytes_read=np.where(costs.writes == 0, moved, 0),
        bytes_written=np.where(costs.writes == 1, moved, 0),
        fetch_bytes=len(table) * fetch.insn_bytes,
        cycles=int(out.end.max(initial=0)),
    )


def _before(table: StepTable, order: Order, simulated: Simulated) -> Run:
    """Everything as it is before the first event."""
    count, clients = len(table), len(table.units) + 1
    unknown = np.full((3, count), NOT_YET, np.int64)
    numbers = np.zeros((len(State._fields) - len(FLAGS), clients), np.int64)
    return Run(
        Stream(*table.by_unit, table.unit, order.giver, table.makes_room),
        Outcome(*unknown, *np.zeros((len(Outcome._fields) - 3, count), np.int64)),
        State(*numbers, *np.zeros((len(FLAGS), clients), np.bool_)),
        np.zeros(4, np.int64),
        np.zeros(max(1, simulated.channel.in_flight), np.int64),
        np.zeros(3, np.int64),
        *simulated,
    )
