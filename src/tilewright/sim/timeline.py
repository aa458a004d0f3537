"""Time: event by event, each a step starting, a DRAM burst or a step ending; never cycle by cycle.

A step starts when its unit is free, its tokens are there and its command has been delivered. It may move
data in rows over the DRAM channel, then computes for `busy` cycles and ends; its tokens are there from then on.
Transfers are granted in order of request; the grant unit is a burst.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.sim.jit import compiled
from tilewright.sim.order import NEVER, NO_STEP, Order
from tilewright.sim.steps import StepTable
from tilewright.sim.trace import Trace

#: Microseconds of _simulate for each event, uncompiled.
EVENT_US = 8


@dataclass(frozen=True)
class Channel:
    """The DRAM port. `latency`: cycles from a request to its first beat; `burst`: beats a request at most.

    `pipelined`: a unit requests its next row as soon as the last is granted, not when its data has come;
    `shared`: reads and writes take turns on one data bus.
    """

    beat_bytes: int
    latency: int
    burst: int = 256  # AXI4
    pipelined: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Fetch:
    """How commands reach the units: `insn_bytes` each, read in bursts, queues of `depth`, in stream order."""

    insn_bytes: int
    depth: int


@dataclass(frozen=True, eq=False)
class Costs:
    """What each step costs, int64 [n]: cycles `lead` before its transfers, `rows` of `row_bytes`, then `busy`."""

    lead: Array
    busy: Array
    rows: Array
    row_bytes: Array
    writes: Array  # 0 reads DRAM, 1 writes it


def timeline(
    table: StepTable, order: Order, costs: Costs, channel: Channel, fetch: Fetch, serial: bool = False
) -> Trace:
    """The trace of one launch; `serial`: no overlap, each step starts when the one before it in the stream has ended.

    Raises HazardError when a step never starts or never ends."""
    if not order.complete:
        raise HazardError("time", "; ".join(str(finding) for finding in order.findings))
    start, steps = table.by_unit()
    beats = -(-costs.row_bytes // channel.beat_bytes)
    events = 3 * len(table) + int((costs.rows * (1 + beats // channel.burst)).sum())
    begin, end, wait, cause, contention, done = _simulate.of(EVENT_US * events)(
        start,
        steps,
        table.unit,
        order.giver,
        _makes_room(table),
        costs.lead,
        costs.busy,
        costs.rows,
        beats,
        costs.writes,
        channel.latency,
        channel.burst,
        channel.pipelined,
        channel.shared,
        -(-fetch.insn_bytes // channel.beat_bytes),
        fetch.depth,
        serial,
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


def _makes_room(table: StepTable) -> Array:
    """int64 [n, queues]: the step that takes the token which fills the place a push needs (NO_STEP: none)."""
    room = np.full((len(table), len(table.queues)), NO_STEP, np.int64)
    for index, queue in enumerate(table.queues):
        pushes = np.flatnonzero(table.pushes >> index & 1)
        pops = np.flatnonzero(table.pops >> index & 1)
        late = pushes[queue.depth :]
        room[late, index] = NEVER
        freed = pops[: len(late)]
        room[late[: len(freed)], index] = freed
    return room


@compiled
def _simulate(
    first: Array,
    steps: Array,
    unit: Array,
    giver: Array,
    room: Array,
    lead: Array,
    busy: Array,
    rows: Array,
    beats: Array,
    writes: Array,
    latency: int,
    burst: int,
    pipelined: bool,
    shared: bool,
    insn_beats: int,
    depth: int,
    serial: bool,
) -> tuple[Array, Array, Array, Array, Array, int]:
    units = first.shape[0] - 1
    count = unit.shape[0]
    queues = giver.shape[1]
    never = 1 << 62
    begin = np.full(count, never, np.int64)
    end = np.full(count, never, np.int64)
    wait = np.zeros(count, np.int64)
    cause = np.zeros(count, np.int64)
    contention = np.zeros(count, np.int64)
    delivered = np.full(count, never, np.int64)
    position = first[:-1].copy()
    free = np.zeros(units, np.int64)  # when the unit's last step ended
    # A unit inside a step: its next request, rows and beats still to move, when its last data comes.
    moving = np.zeros(units, np.bool_)
    ending = np.zeros(units, np.bool_)  # its work is done; its tokens may still need room
    request = np.zeros(units, np.int64)
    rows_left = np.zeros(units, np.int64)
    beats_left = np.zeros(units, np.int64)
    data_end = np.zeros(units, np.int64)
    channel = np.zeros(2, np.int64)  # when each data bus is free: read, write
    # Fetch: a batch of one burst is read, then its instructions are delivered one a cycle.
    fetched = 0  # instructions whose batch has been read
    sent = 0
    fetch_time = 0
    arrival = np.zeros(count, np.int64)
    batch = max(1, burst // insn_beats)
    backlog = np.zeros(units, np.int64)  # delivered but not started
    done = 0
    while done < count:
        # The earliest of all possible events; ties go to fetch, then to the lower unit.
        best_time = never
        best = -2
        if sent < count:
            if sent == fetched:
                best_time = fetch_time
                best = -1
            elif backlog[unit[sent]] < depth:
                best_time = max(fetch_time, arrival[sent])
                best = -1
        for u in range(units):
            if ending[u]:
                s = steps[position[u]]
                t = data_end[u] + busy[s]
                for q in range(queues):
                    r = room[s, q]
                    if r == -2:
                        t = never
                    elif r >= 0:
                        t = max(t, begin[r])
            elif moving[u]:
                t = request[u]
            elif position[u] < first[u + 1]:
                s = steps[position[u]]
                t = max(free[u], delivered[s])
                if serial and s > 0:
                    t = max(t, end[s - 1])
                for q in range(queues):
                    g = giver[s, q]
                    if g >= 0:
                        t = max(t, end[g])
            else:
                t = never
            if t < best_time:
                best_time = t
                best = u
        if best == -2:
            break
        if best == -1:
            if sent == fetched:
                many = min(batch, count - fetched)
                at = max(channel[0], best_time + latency)
                for k in range(many):
                    arrival[fetched + k] = at + (k + 1) * insn_beats
                channel[0] = at + many * insn_beats
                if shared:
                    channel[1] = channel[0]
                fetched += many
            else:
                delivered[sent] = best_time + 1
                backlog[unit[sent]] += 1
                fetch_time = best_time + 1
                sent += 1
            continue
        u = best
        s = steps[position[u]]
        if ending[u]:
            end[s] = best_time
            free[u] = best_time
            position[u] += 1
            ending[u] = False
            done += 1
            continue
        if not moving[u]:
            begin[s] = best_time
            wait[s] = best_time - free[u]
            if wait[s] > 0:
                cause[s] = 1
                latest = delivered[s]
                for q in range(queues):
                    g = giver[s, q]
                    if g >= 0 and end[g] > latest:
                        latest = end[g]
                        cause[s] = 2 + q
            if sent < count and unit[sent] == u and backlog[u] == depth:
                fetch_time = max(fetch_time, best_time)  # it waited for this place
            backlog[u] -= 1
            rows_left[u] = rows[s]
            if rows[s] > 0 and beats[s] > 0:
                moving[u] = True
                request[u] = best_time + lead[s]
                beats_left[u] = beats[s]
                data_end[u] = request[u]
                continue
            data_end[u] = best_time + lead[s]
        else:
            bus = 1 if writes[s] else 0
            ready = best_time + latency
            at = max(channel[bus], ready)
            contention[s] += max(0, channel[bus] - max(ready, data_end[u]))
            many = min(burst, beats_left[u])
            channel[bus] = at + many
            if shared:
                channel[1 - bus] = channel[bus]
            data_end[u] = at + many
            beats_left[u] -= many
            if beats_left[u] > 0:
                request[u] = at  # bursts of one row follow each other
                continue
            rows_left[u] -= 1
            if rows_left[u] > 0:
                beats_left[u] = beats[s]
                request[u] = at if pipelined else data_end[u]
                continue
            moving[u] = False
        ending[u] = True
    return begin, end, wait, cause, contention, done
