"""The loop of the time pass: one iteration an event, all arbitration in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled

if TYPE_CHECKING:
    from tilewright.sim.timeline import Channel, Costs, Fetch, Units


@compiled
def simulate(
    first: Array,
    steps: Array,
    unit: Array,
    giver: Array,
    room: Array,
    costs: Costs,
    channel: Channel,
    fetch: Fetch,
    shared: Units,
    serial: bool,
) -> tuple[Array, Array, Array, Array, Array, int]:
    """Start, end, wait, cause and contention of each step, and how many steps ended. Arguments as in timeline()."""
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
    free = np.zeros(units, np.int64)  # when the unit's last step let it go
    last_end = np.zeros(units, np.int64)
    work_end = np.zeros(units, np.int64)
    backlog = np.zeros(units, np.int64)  # commands in the unit's queue
    # A unit inside a step moves data, then is ending: its work is done, its tokens may still need room. The client
    # behind the units is fetch.
    ending = np.zeros(units, np.bool_)
    moving = np.zeros(units + 1, np.bool_)
    writing = np.zeros(units + 1, np.bool_)
    request = np.zeros(units + 1, np.int64)
    priority = np.full(units + 1, -1, np.int64)
    rows_left = np.zeros(units, np.int64)
    row_address = np.zeros(units, np.int64)
    beats_left = np.zeros(units, np.int64)  # of this row
    to_edge = np.zeros(units, np.int64)  # beats to where a burst must end
    data_end = np.zeros(units, np.int64)
    arrived = np.zeros(units, np.int64)  # when the data of all steps that have let the unit go are there
    fill_left = np.zeros((units, 3), np.int64)
    filling = np.zeros(units, np.bool_)
    filled = np.zeros(units, np.int64)  # the time up to which fill_left is known
    # The port.
    bus = np.zeros(2, np.int64)  # when each data bus is free: read, write
    commands = channel.in_flight > 0
    ring = max(1, channel.in_flight)
    burst_end = np.zeros(ring, np.int64)  # of the last reads granted
    granted = 0
    oldest = 0  # the first of them that may not have ended
    command_free = 0
    last_first_beat = -1
    # Fetch.
    fetched = 0  # instructions whose batch has been granted
    sent = 0
    fetch_time = 0
    arrival = np.zeros(count, np.int64)
    insn_beats = -(-fetch.insn_bytes // channel.beat_bytes)
    batch = fetch.batch if fetch.batch > 0 else max(1, channel.burst // insn_beats)
    if fetch.depth == 0:
        delivered[:] = 0
        fetched = sent = count
    elif count > 0:
        moving[units] = True
        request[units] = fetch.turn - 1
    done = 0
    now = 0
    while done < count:
        # The earliest of all possible events; of equal ones a step's start or end, delivery, then a grant.
        best_time = never
        best = -1
        for u in range(units):
            t = never
            if ending[u]:
                s = steps[position[u]]
                t = work_end[u]
                before = position[u] - shared.outstanding
                if shared.outstanding > 0 and before >= first[u]:
                    t = max(t, end[steps[before]])
                for q in range(queues):
                    r = room[s, q]
                    if r == -2:
                        t = never
                    elif r >= 0:
                        t = max(t, begin[r] + shared.room)
            elif not moving[u] and position[u] < first[u + 1]:
                s = steps[position[u]]
                t = max(free[u], delivered[s])
                if serial and s > 0:
                    t = max(t, end[s - 1])
                for q in range(queues):
                    g = giver[s, q]
                    if g >= 0:
                        t = max(t, end[g])
            if t < best_time:
                best_time = t
                best = u
        delivery = False
        if sent < fetched and backlog[unit[sent]] < fetch.depth:
            t = max(fetch_time, arrival[sent])
            if t < best_time:
                best_time = t
                delivery = True
        client = -1
        for u in range(units + 1):
            if moving[u]:
                t = request[u]
                if commands and not writing[u]:
                    t = max(t, command_free, now)  # bursts that have ended by now are forgotten
                    if granted >= ring:
                        t = max(t, burst_end[granted % ring])
                    for k in range(oldest, granted):
                        if not channel.steady and burst_end[k % ring] - 1 == t:
                            t += 1
                if t < best_time or (t == best_time and client >= 0 and priority[u] < priority[client]):
                    best_time = t
                    client = u
        if best_time == never:
            break
        now = best_time
        while oldest < granted and burst_end[oldest % ring] <= now:
            oldest += 1

        if client >= 0:  # a grant
            u = client
            writes = writing[u]
            data = 1 if writes else 0
            if u == units:
                many = min(batch, count - fetched)
                packed = fetch.whole or fetch.buffer > 0
                size = -(-many * fetch.insn_bytes // channel.beat_bytes) if packed else many * insn_beats
            else:
                s = steps[position[u]]
                many = min(to_edge[u], beats_left[u])
                size = many
                if writes and costs.bubble[s] > 0:
                    size += (many - 1) // costs.bubble[s]
            latency = channel.write_latency if commands and writes else channel.latency
            at = bus[data]
            if not commands or writes or channel.steady or last_first_beat <= now:
                at = max(at, now + latency)
            bus[data] = at + size
            if channel.shared:
                bus[1 - data] = bus[data]
            if commands and not writes:
                command_free = now + 1
                last_first_beat = at
                burst_end[granted % ring] = at + size
                granted += 1
            if u == units:
                for k in range(many):
                    beats = size if fetch.whole else (k + 1) * insn_beats
                    if fetch.buffer > 0:
                        beats = -(-(k + 1) * fetch.insn_bytes // channel.beat_bytes)
                    arrival[fetched + k] = at + beats + fetch.lag
                fetched += many
                moving[u] = fetched < count and fetched - sent + batch <= fetch.buffer
                request[u] = now + channel.spacing
                continue
            contention[s] += max(0, at - max(request[u] + latency, data_end[u]))
            if filling[u]:
                gap = at - filled[u]
                for k in range(3):
                    spent = min(gap, fill_left[u, k])
                    fill_left[u, k] -= spent
                    gap -= spent
                if fill_left[u, 0] == 0:
                    fill_left[u, 1] -= min(size, fill_left[u, 1])
                filled[u] = at + size
            data_end[u] = at + size
            beats_left[u] -= many
            to_edge[u] = channel.burst
            same_row = beats_left[u] > 0
            if commands:
                waits = writes and not channel.steady
                request[u] = data_end[u] + channel.write_response if waits else now + channel.spacing
            else:
                request[u] = at if same_row or channel.pipelined else data_end[u]
            if same_row:
                continue
            rows_left[u] -= 1
            row_address[u] += costs.stride[s]
        elif delivery:
            delivered[sent] = now + 1
            backlog[unit[sent]] += 1
            fetch_time = now + 1
            sent += 1
            if not moving[units] and fetched < count and (sent == fetched or fetched - sent + batch <= fetch.buffer):
                moving[units] = True
                request[units] = now + fetch.turn
            continue
        else:
            u = best
            s = steps[position[u]]
            if ending[u] == fetch.held:  # its command leaves the queue
                if sent < count and unit[sent] == u and backlog[u] == fetch.depth:
                    fetch_time = max(fetch_time, now)  # fetch waited for this place
                backlog[u] -= 1
            if ending[u]:
                end[s] = now
                if costs.tail[s] > 0:
                    end[s] = max(now + costs.tail[s], data_end[u] + costs.settle[s], last_end[u] + 1)
                last_end[u] = end[s]
                arrived[u] = max(arrived[u], data_end[u])
                free[u] = now
                position[u] += 1
                ending[u] = False
                done += 1
                continue
            begin[s] = now
            wait[s] = now - free[u]
            if wait[s] > 0:
                cause[s] = 1
                latest = delivered[s]
                for q in range(queues):
                    g = giver[s, q]
                    if g >= 0 and end[g] > latest:
                        latest = end[g]
                        cause[s] = 2 + q
            filled[u] = max(now + costs.fill_lead[s], arrived[u])
            request[u] = data_end[u] = now + costs.lead[s]
            filling[u] = False
            for k in range(3):
                fill_left[u, k] = costs.fill[s, k]
                filling[u] |= fill_left[u, k] > 0
            rows_left[u] = costs.rows[s] if costs.row_bytes[s] > 0 and channel.burst > 0 else 0
            moving[u] = True
            writing[u] = costs.writes[s] == 1
            priority[u] = costs.priority[s]
            row_address[u] = costs.address[s]

        if rows_left[u] == 0:
            moving[u] = False
            ending[u] = True
            if filling[u]:
                data_end[u] = max(data_end[u], filled[u] + fill_left[u, 0] + fill_left[u, 1] + fill_left[u, 2])
            work_end[u] = now + channel.spacing if costs.ahead[s] > 0 else data_end[u] + costs.busy[s]
            continue
        # A row begins.
        offset = row_address[u] % channel.beat_bytes
        beats_left[u] = -(-(offset + costs.row_bytes[s]) // channel.beat_bytes)
        to_edge[u] = channel.burst - row_address[u] // channel.beat_bytes % channel.burst
    return begin, end, wait, cause, contention, done
