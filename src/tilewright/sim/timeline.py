"""The time pass: simulates a launch event by event (a step starts, a DRAM burst, a step ends), never cycle by cycle.

A step starts when its unit is free, its tokens are available and its command has been delivered. It may move data in
rows over the DRAM channel, then computes for `busy` cycles; when it ends, its tokens become available. The channel is
granted for one burst at a time. `Channel` describes the arbitration, and `Fetch` describes the delivery of commands.

The pass is one loop (`simulate`) with one iteration per event. The clients of the DRAM port are the units that move
data, followed by fetch.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tilewright.errors import HazardError
from tilewright.sim.causes import CAUSE_COMMAND, CAUSE_TOKEN, Limits, StepTimes, critical_path
from tilewright.sim.costs import Simulated
from tilewright.sim.jit import compiled, part
from tilewright.sim.loop_state import (
    COMMAND_FREE,
    DELIVERS,
    FETCHED,
    FLAGS,
    GRANTED,
    NOT_YET,
    READ_BUS,
    SENT,
    STREAMED,
    WRITE_BUS,
    Outcome,
    Run,
    State,
    Stream,
)
from tilewright.sim.order import Order, runs_in_stream_order
from tilewright.sim.steps import NEVER, Fetched, StepTable, Trace

#: Microseconds that uncompiled `simulate` takes per event.
EVENT_US = 12


def times(table: StepTable, order: Order, simulated: Simulated) -> tuple[Trace, Trace | None]:
    """Return the trace of a launch, and a second trace in which each step waits for the end of the previous step.

    The second trace is None if the steps cannot run in stream order.

    Raises HazardError if a step never starts or never ends.
    """
    serial = timeline(table, order, simulated, serial=True) if runs_in_stream_order(table, order) else None
    return timeline(table, order, simulated), serial


def timeline(table: StepTable, order: Order, simulated: Simulated, serial: bool = False) -> Trace:
    """Return the trace of one launch. With `serial`, each step waits for the end of the previous step in the stream.

    Raises HazardError if a step never starts or never ends.
    """
    if not order.complete:
        raise HazardError("time", "; ".join(str(finding) for finding in order.findings))
    costs, channel, fetch, _ = simulated
    bursts = 2 + costs.row_bytes // max(1, channel.beat_bytes * channel.burst)
    events = 3 * len(table) + int((costs.rows * bursts).sum())
    run = _before_the_first_event(table, order, simulated)
    done = simulate.of(EVENT_US * events)(run, serial)
    if done < len(table):
        raise HazardError(
            "time",
            f"{len(table) - done} instructions never end: a queue fills before the instruction that would free it runs "
            f"(depths: {fetch.depth} commands; tokens {', '.join(str(queue.depth) for queue in table.queues)})",
            "interleave the units' instructions or make the queues deeper",
        )
    moved = costs.rows * costs.row_bytes
    out = run.out
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
        fetched=Fetched(out.granted, out.arrival, out.delivered) if fetch.depth else None,
        walk=partial(critical_path, *_step_times(run)),
    )


def _step_times(run: Run) -> tuple[StepTimes, Limits]:
    costs = run.costs
    channel = run.channel
    stream = run.stream
    out = run.out
    beats = costs.rows * -(-costs.row_bytes // max(1, channel.beat_bytes)) * (channel.burst > 0)
    columns = {name: getattr(out, name) for name in StepTimes._fields if name in Outcome._fields}
    columns |= {name: getattr(stream, name) for name in StepTimes._fields if name in Stream._fields}
    step_times = StepTimes(**columns, start=out.begin, beats=beats)
    return step_times, Limits(run.fetch.depth, run.units.room, run.units.outstanding)


def _before_the_first_event(table: StepTable, order: Order, simulated: Simulated) -> Run:
    count = len(table)
    clients = len(table.units) + 1
    unknown = np.full((5, count), NOT_YET, np.int64)
    numbers = np.zeros((len(State._fields) - len(FLAGS), clients), np.int64)
    numbers[0, :-1] = table.by_unit[0][:-1]  # State.position
    numbers[State._fields.index("request"), -1] = simulated.fetch.lead
    return Run(
        Stream(*table.by_unit, table.unit, order.giver, table.makes_room),
        Outcome(*unknown, *np.zeros((len(Outcome._fields) - 5, count), np.int64)),
        State(*numbers, *np.zeros((len(FLAGS), clients), np.bool_)),
        np.zeros(5, np.int64),
        np.zeros(max(1, simulated.channel.in_flight), np.int64),
        np.zeros(3, np.int64),
        *simulated,
    )


@compiled
def simulate(run: Run, serial: bool) -> int:
    """Run all steps and write the columns of `run.out`. Return how many steps ended.

    If not all steps end, there is a deadlock: no further event can happen. With `serial`, each step waits for the end
    of the previous step in the stream.
    """
    stream = run.stream
    state = run.state
    units = stream.first.shape[0] - 1
    count = stream.unit.shape[0]
    state.priority[units] = -1  # fetch goes first
    state.moving[units] = count > 0 and run.fetch.depth > 0
    if run.fetch.depth == 0:
        run.out.delivered[:] = 0
        run.fetched[:] = count
    done = now = 0
    while done < count:
        # There are three kinds of events, and the earliest event comes next. At equal times, the order is: steps (the
        # lowest unit first), deliveries, grants. So the port can grant a request in the cycle in which a step makes it.
        time, unit = next_step(run, serial)
        delivery = next_delivery(run)
        grant, client = next_grant(run, now, min(time, delivery))
        now = min(time, delivery, grant)
        if now == NOT_YET:
            break
        if client == units:
            grant_fetch(run, now)
        elif client >= 0:
            if grant_step(run, client, now):
                next_row(run, client, now)
        elif delivery < time:
            deliver(run, now)
        elif state.ending[unit]:
            end(run, unit, now)
            done += 1
        else:
            start(run, unit, now)
            next_row(run, unit, now)
    return done


@part
def next_step(run: Run, serial: bool) -> tuple[int, int]:
    """Return the time of the next start or end of a step, and the step's unit; (NOT_YET, -1) if nothing can happen."""
    stream = run.stream
    out = run.out
    state = run.state
    best = NOT_YET
    best_unit = -1
    for u in range(stream.first.shape[0] - 1):
        t = NOT_YET
        if state.ending[u]:
            t = when_ends(run, u)
        elif not state.moving[u] and state.position[u] < stream.first[u + 1]:
            s = stream.order[state.position[u]]
            # The end of a step is NOT_YET until the step ends, so the start of every step that waits is NOT_YET too.
            t = max(state.free[u], out.delivered[s])
            if serial and s > 0:
                t = max(t, out.end[s - 1])
            for q in range(stream.giver.shape[1]):
                g = stream.giver[s, q]
                if g >= 0:
                    t = max(t, out.end[g])
        if t < best:
            best = t
            best_unit = u
    return best, best_unit


@part
def when_ends(run: Run, u: int) -> int:
    """Return the time when unit `u` can release its step.

    The work of the step must be done, and every queue must have room for its tokens. If the number of unfinished steps
    is limited (Units.outstanding), an earlier step must have ended.
    """
    stream = run.stream
    out = run.out
    state = run.state
    t = state.work_end[u]
    s = stream.order[state.position[u]]
    before = state.position[u] - run.units.outstanding
    if run.units.outstanding > 0 and before >= stream.first[u]:
        t = max(t, out.end[stream.order[before]])
    for q in range(stream.room.shape[1]):
        r = stream.room[s, q]
        if r == NEVER:
            return NOT_YET
        if r >= 0:
            t = max(t, out.begin[r] + run.units.room)
    return t


@part
def next_delivery(run: Run) -> int:
    """Return the time of the next delivery of an instruction (NOT_YET: the time is not known yet)."""
    sent = run.fetched[SENT]
    if sent < run.fetched[FETCHED] and run.state.backlog[run.stream.unit[sent]] < run.fetch.depth:
        return max(run.fetched[DELIVERS], run.out.arrival[sent])
    return NOT_YET


@part
def next_grant(run: Run, now: int, before: int) -> tuple[int, int]:
    """Return the time and the client of the next granted burst; the client is -1 if `before` is earlier."""
    state = run.state
    port = run.port
    in_flight = run.channel.in_flight
    best = before
    client = -1
    for u in range(state.moving.shape[0]):
        if state.moving[u]:
            t = state.request[u]
            if in_flight > 0 and not state.writing[u]:
                t = max(t, port[COMMAND_FREE], now)
                # `bursts` is a ring buffer with the end of each granted read. Its next entry is the oldest of the last
                # `in_flight` reads; this read must end before another read can be granted.
                if port[GRANTED] >= in_flight:
                    t = max(t, run.bursts[port[GRANTED] % in_flight])
                if run.channel.rests:
                    t = after_last_beats(run, t)
            if t < best or (t == best and client >= 0 and state.priority[u] < state.priority[client]):
                best = t
                client = u
    return best, client


@part
def after_last_beats(run: Run, t: int) -> int:
    """Return the first cycle, `t` or later, that is not the last beat of a read."""
    at = 0
    while at < run.bursts.shape[0]:
        at += 1
        if run.bursts[at - 1] == t + 1:
            t += 1
            at = 0
    return t


@part
def first_beat(run: Run, writes: bool) -> int:
    return run.channel.write_latency if writes and run.channel.in_flight > 0 else run.channel.latency


@part
def take_bus(run: Run, writes: bool, size: int, now: int) -> int:
    """Reserve the data bus for a burst of `size` beats; return the cycle of its first beat."""
    port = run.port
    bus = WRITE_BUS if writes else READ_BUS
    at = max(port[bus], now + first_beat(run, writes))
    if run.channel.streams and not writes:
        if port[STREAMED] > now:  # granted before the first beat of the previous read (Channel.streams)
            at = port[bus]
        port[STREAMED] = at
    port[bus] = at + size
    if run.channel.in_flight > 0 and not writes:
        port[COMMAND_FREE] = now + 1
        run.bursts[port[GRANTED] % run.channel.in_flight] = at + size
        port[GRANTED] += 1
    return at


@part
def grant_fetch(run: Run, now: int) -> None:
    fetch = run.fetch
    fetched = run.fetched
    beat = run.channel.beat_bytes
    count = run.stream.unit.shape[0]
    beats_each = -(-fetch.insn_bytes // beat)
    batch = fetch.batch if fetch.batch > 0 else max(1, run.channel.burst // beats_each)
    first = fetched[FETCHED]
    commands = min(batch, count - fetched[FETCHED])
    packed = fetch.buffer > 0  # otherwise each command begins in a new beat
    at = take_bus(run, False, -(-commands * fetch.insn_bytes // beat) if packed else commands * beats_each, now)
    for k in range(1, commands + 1):
        done = k if fetch.unpack < 0 else commands
        end = at + (-(-done * fetch.insn_bytes // beat) if packed else done * beats_each)
        run.out.arrival[first + k - 1] = end + max(0, fetch.unpack)
        run.out.granted[first + k - 1] = now
    fetched[FETCHED] += commands
    client = run.state.moving.shape[0] - 1
    run.state.moving[client] = fetched[FETCHED] < count and fetched[FETCHED] - fetched[SENT] + batch <= fetch.buffer
    run.state.request[client] = now + 1


@part
def deliver(run: Run, now: int) -> None:
    """Deliver an instruction to its unit's queue. Request the next batch if the buffer is empty or has room."""
    state = run.state
    fetched = run.fetched
    count = run.stream.unit.shape[0]
    sent = fetched[SENT]
    run.out.delivered[sent] = now + run.fetch.delay
    fetched[DELIVERS] = now + 1
    state.backlog[run.stream.unit[sent]] += 1
    fetched[SENT] = sent + 1
    client = state.moving.shape[0] - 1
    waiting = fetched[FETCHED] - fetched[SENT]
    asks = waiting == 0 or waiting + run.fetch.batch <= run.fetch.buffer
    if asks and not state.moving[client] and fetched[FETCHED] < count:
        state.moving[client] = True
        state.request[client] = now + run.fetch.turn


@part
def grant_step(run: Run, u: int, now: int) -> bool:
    """Grant the DRAM port to unit `u` for one burst. Return whether this is the last burst of a row (see Costs)."""
    state = run.state
    s = run.stream.order[run.state.position[u]]
    size = min(state.to_edge[u], state.beats_left[u])
    beats = size
    if state.writing[u] and run.channel.pause > 0:
        beats += (size - 1) // run.channel.pause
    at = take_bus(run, state.writing[u], beats, now)
    # `uncontended` is the cycle of the first beat if the unit were the only client of the port.
    uncontended = max(state.request[u] + first_beat(run, state.writing[u]), state.data_end[u])
    run.out.contention[s] += max(0, at - uncontended)
    if state.filling[u]:  # zeros are written in cycles without a beat, such as the cycles before this burst
        fill(run, u, s, at - state.filled[u], beats)
        state.filled[u] = at + beats
    answered = state.writing[u] and run.channel.answer >= 0
    state.data_end[u] = at + beats + (run.channel.answer if answered else 0)
    state.beats_left[u] -= size
    state.to_edge[u] = run.channel.burst
    last = state.beats_left[u] == 0
    if answered:
        state.request[u] = state.data_end[u]
    elif run.channel.in_flight > 0:
        state.request[u] = now + run.channel.turn
    else:  # within a row, request the next burst at the first beat of this burst; request the next row after this row
        state.request[u] = at + size if last else at
    if last:
        state.rows_left[u] -= 1
        state.row_address[u] += run.costs.stride[s]
    return last


@part
def fill(run: Run, u: int, s: int, free: int, beats: int) -> None:
    """Write tiles of zeros in the next `free` cycles, which have no beat. The `beats` cycles after them have beats.

    A pause (Costs.fill_pause) continues in both kinds of cycles.
    """
    state = run.state
    last = run.costs.fill_last[s]
    first = min(free, max(0, state.fill_left[u] - last))
    state.fill_left[u] -= first
    if state.fill_left[u] > last:
        return
    pause = min(free - first, state.pause_left[u])
    state.pause_left[u] -= pause
    state.fill_left[u] -= min(free - first - pause, state.fill_left[u])
    state.pause_left[u] -= min(beats, state.pause_left[u])


@part
def start(run: Run, u: int, now: int) -> None:
    """Start the next step of unit `u` at time `now`; its command leaves the unit's queue."""
    stream = run.stream
    out = run.out
    state = run.state
    costs = run.costs
    sent = run.fetched[SENT]
    s = stream.order[state.position[u]]
    if sent < stream.unit.shape[0] and stream.unit[sent] == u and state.backlog[u] == run.fetch.depth:
        run.fetched[DELIVERS] = max(run.fetched[DELIVERS], now)  # the delivery has waited for room in this queue
    state.backlog[u] -= 1
    out.begin[s] = now
    out.wait[s] = now - state.free[u]
    if out.wait[s] > 0:
        # The cause of the wait is the event that came last. Among simultaneous events, the delivery has priority, then
        # the token of the first queue.
        out.cause[s] = CAUSE_COMMAND
        latest = out.delivered[s]
        for q in range(stream.giver.shape[1]):
            g = stream.giver[s, q]
            if g >= 0 and out.end[g] > latest:
                latest = out.end[g]
                out.cause[s] = CAUSE_TOKEN + q
    state.filled[u] = max(now + costs.fill_lead[s], state.arrived[u])
    state.request[u] = state.data_end[u] = now + costs.lead[s]
    state.fill_left[u] = costs.fill[s]
    state.pause_left[u] = costs.fill_pause[s]
    state.filling[u] = costs.fill[s] > 0
    state.rows_left[u] = costs.rows[s] if costs.row_bytes[s] > 0 and run.channel.burst > 0 else 0
    state.row_address[u] = costs.address[s]
    state.moving[u] = True
    state.writing[u] = costs.writes[s] == 1
    state.priority[u] = costs.priority[s]


@part
def next_row(run: Run, u: int, now: int) -> None:
    """Begin the next row of the transfer by unit `u`. After the last row, begin the work of the step instead."""
    state = run.state
    costs = run.costs
    beat = run.channel.beat_bytes
    s = run.stream.order[state.position[u]]
    if state.rows_left[u] > 0:
        # A row that starts inside a beat needs the whole beat, and bursts end at multiples of the longest burst.
        state.beats_left[u] = -(-(state.row_address[u] % beat + costs.row_bytes[s]) // beat)
        state.to_edge[u] = run.channel.burst - state.row_address[u] // beat % run.channel.burst
        return
    state.moving[u] = False
    state.ending[u] = True
    if state.filling[u]:
        state.data_end[u] = max(state.data_end[u], state.filled[u] + state.fill_left[u] + state.pause_left[u])
    # A step that runs ahead releases its unit one cycle after its last grant. The wait for its data is added in `end`
    # (Costs.settle).
    state.work_end[u] = now + 1 if costs.ahead[s] > 0 else state.data_end[u] + costs.busy[s]


@part
def end(run: Run, u: int, now: int) -> None:
    """Release unit `u` from its step. The step ends at the same time, or later if it has a tail (Costs.tail)."""
    out = run.out
    state = run.state
    costs = run.costs
    s = run.stream.order[state.position[u]]
    out.end[s] = out.released[s] = now
    out.worked[s] = state.work_end[u]
    if costs.tail[s] > 0:  # steps of a unit overlap; they end in order, one per cycle
        out.end[s] = max(now + costs.tail[s], state.data_end[u] + costs.settle[s], state.last_end[u] + 1)
    state.last_end[u] = out.end[s]
    state.arrived[u] = max(state.arrived[u], state.data_end[u])
    state.free[u] = now
    state.position[u] += 1
    state.ending[u] = False
