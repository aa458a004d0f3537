"""The critical path, which explains every cycle of a launch. It is computed from the end of the launch backwards.

Every cycle of a launch lies in exactly one stretch of the path, and a stretch has one step and one cause. From the end
of a step, the walk goes back to the start of the step, and continues with the event that let the step start: the end of
the previous step of its unit, a push of a token, or the delivery of its command. So a wait is charged to the work that
the step waited for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array, ascending
from tilewright.sim.figures import Definition
from tilewright.sim.jit import compiled, part

#: Causes of a wait before a step (0: the step did not wait).
CAUSE_COMMAND = 1  # for the delivery of its command
CAUSE_TOKEN = 2  # plus the index of a queue: for a token of this queue
#: Kinds of a stretch: the step's own work, its data on the DRAM port, the wait until data arrive, the wait for the port
#: while the port serves other clients, the delivery of a command, the wait for room in a token queue.
WORK, TRANSFER, LATENCY, CONTENTION, FETCH, QUEUE, COMMANDS = range(7)
#: Causes for the kinds after WORK, in the order of the kinds. TRANSFER and LATENCY have two each: of loads, of stores.
CAUSES = {
    "load bandwidth": Definition(
        "The DRAM port reads data that the next instruction needs.",
        "Load less, with larger tiles that are used more often, or widen the port.",
    ),
    "store bandwidth": Definition(
        "The DRAM port writes results that a later instruction, or the end of the launch, waits for.",
        "Store fewer bytes, such as codes instead of 32-bit sums, or widen the port.",
    ),
    "DRAM latency": Definition(
        "A request has been sent, and its first data have not arrived.",
        "Make fewer and longer transfers, or load earlier, into a second buffer.",
    ),
    "write response": Definition(
        "A store has sent its data or its request, and waits for the memory.",
        "Make fewer and longer stores, whose data lie side by side in DRAM.",
    ),
    "DRAM contention": Definition(
        "A transfer waits while the DRAM port serves another transfer.",
        "Move fewer bytes in total, spread loads and stores over time, or widen the port.",
    ),
    "instruction fetch": Definition(
        "The unit is idle because its next instruction has not been delivered.",
        "Use fewer instructions that do more work each, or deeper instruction queues.",
    ),
    "token queue full": Definition(
        "A finished instruction cannot push its token, because the queue has no room.",
        "Deepen the token queues, or pop their tokens earlier.",
    ),
    "command queue full": Definition(
        "A unit is idle because fetch, before its next instruction, waits for room in the queue of another unit.",
        "Deepen the command queues (`queue_depth`), or mix the instructions of the units more evenly.",
    ),
}
NAMES = tuple(CAUSES)
#: The index in NAMES of the cause of each kind after WORK (of loads, if stores have a cause of their own).
CAUSE_OF = np.array([0, 2, 4, 5, 6, 7])
#: The wait of the unit that does the work, from its last instruction to the end of the launch (sim.steps.Trace.stalls).
DRAIN = {
    "drain": Definition(
        "The computing unit has finished, and its last results are still being stored.",
        "Make the last tile smaller, or store earlier tiles sooner.",
    ),
}
#: Microseconds that uncompiled `_walk` takes per step.
STEP_US = 10


class StepTimes(NamedTuple):
    """The start, the end and the waits of n steps: int64 arrays [n], times in cycles.

    Unit u executes the steps `order[first[u]:first[u + 1]]` (`first` is [units + 1]). `giver[s, q]` is the step that
    pushed the token that step s pops from queue q (as in `sim.order.Order`). `room[s, q]` is the step whose pop made
    room for the token that step s pushes into queue q (`StepTable.makes_room`).
    """

    first: Array
    order: Array
    unit: Array
    giver: Array
    room: Array
    start: Array
    end: Array
    worked: Array  # the end of the step's work
    released: Array  # the time when the unit was free for the next step
    delivered: Array  # the time when the command was in the unit's queue
    wait: Array
    cause: Array
    beats: Array  # cycles in which the step's own data are on the port
    contention: Array


class Limits(NamedTuple):
    """The limits of a machine's queues, as the time pass (sim.timeline) uses them.

    A command queue has `depth` entries (0: commands are not fetched). `room` and `outstanding` are those of `Units`.
    """

    depth: int
    room: int
    outstanding: int


class Path(NamedTuple):
    """The m stretches of the critical path in order of time, as columns int64 [m].

    Each stretch belongs to one step (`step`), has a `kind` (WORK, TRANSFER, ...), and ends in cycle `end`. The first
    stretch begins in cycle 0, and each later stretch at the end of the previous stretch.
    """

    step: Array
    kind: Array
    end: Array

    def __repr__(self) -> str:
        return f"<Path of {len(self.step):,} stretches>"

    def charged(self, codes: Array, count: int, ends: Array) -> Array:
        """Return the cycles of each cause in each span of the launch, int64 [spans, count].

        `codes` [m] is the cause of each stretch, 0..count-1. Span i ends in cycle `ends[i]`, where span i + 1 begins.
        The ends are in ascending order, and the last end is the end of the launch.
        """
        # Cut the path at the ends of the stretches and of the spans. Each piece then lies in one stretch and one span.
        edges = ascending(np.concatenate([self.end, ends]))
        stretch = np.searchsorted(self.end, edges)
        span = np.searchsorted(ends, edges)
        cells = span * count + codes[stretch]
        cycles = np.bincount(cells, np.diff(edges, prepend=0), len(ends) * count)
        return cycles.astype(np.int64).reshape(len(ends), count)


def critical_path(timed: StepTimes, limits: Limits) -> Path:
    count = len(timed.start)
    stretches = np.zeros((3, 6 * count + 1), np.int64)
    last = int(np.argmax(timed.end)) if count else 0
    position = np.empty_like(timed.order)  # the index of each step in timed.order
    position[timed.order] = np.arange(count)
    size = int(_walk.of(STEP_US * count)(timed, position, limits, last, stretches)) if count else 0
    step, kind, cycles = stretches[:, :size][:, ::-1].copy()  # not a view, which would keep all of `stretches`
    return Path(step, kind, np.cumsum(cycles))


@compiled
def _walk(timed: StepTimes, position: Array, limits: Limits, last: int, stretches: Array) -> int:
    """Write the stretches of the path in reverse order, beginning with step `last`, and return their number.

    The rows of `stretches` [3, room] are the step, kind and cycles of each stretch.
    """
    count = 0
    s = last
    t = timed.end[last]
    while True:
        # The path has reached time t in step s. If s could not leave its unit when its work was done, the path
        # continues at the step for which s waited; otherwise the path continues at the start of s.
        if timed.released[s] > timed.worked[s]:
            popper = _made_room(timed, limits, s)
            if popper < 0:  # not a wait for room, so a wait for the end of an earlier step (Units.outstanding)
                early = timed.order[position[s] - limits.outstanding]
                count = _add(stretches, count, s, LATENCY, t - timed.end[early])
                s = early
                t = timed.end[early]
                continue
            count = _add(stretches, count, s, QUEUE, t - timed.start[popper])
            s = popper
        else:
            count = _add_work(timed, s, t, stretches, count)
        t = timed.start[s]
        # The path has reached the start of step s. Find the event that allowed s to start.
        k = s
        while k >= 0 and timed.wait[k] > 0 and timed.cause[k] == CAUSE_COMMAND:
            s = k
            k, t, count = _delivery(timed, position, limits, s, stretches, count)
        if k < 0 and t == 0:
            return count
        if k < 0:  # the path has reached the end of the unit's previous step
            s = timed.order[position[s] - 1]
            continue
        s = k
        if timed.wait[s] > 0:
            s = timed.giver[s, timed.cause[s] - CAUSE_TOKEN]
            t = timed.end[s]
        elif position[s] > timed.first[timed.unit[s]]:
            s = timed.order[position[s] - 1]
        else:
            return count


@part
def _add(stretches: Array, count: int, step: int, kind: int, cycles: int) -> int:
    stretches[0, count] = step
    stretches[1, count] = kind
    stretches[2, count] = cycles
    return count + 1


@part
def _made_room(timed: StepTimes, limits: Limits, s: int) -> int:
    """Return the step whose pop allowed step `s` to push its token and leave its unit; -1 if there is no such pop."""
    popper = -1
    for q in range(timed.room.shape[1]):
        r = timed.room[s, q]
        if r >= 0 and timed.start[r] + limits.room == timed.released[s]:
            popper = r
    return popper


@part
def _add_work(timed: StepTimes, s: int, t: int, stretches: Array, count: int) -> int:
    # A step that moves data has three stretches, some of which may have 0 cycles. If the step releases its unit before
    # its data arrive (Costs.ahead), there are fewer cycles than data: charge the data first, then the contention.
    left = t - timed.start[s]
    if timed.beats[s] == 0:
        return _add(stretches, count, s, WORK, left)
    moving = min(left, timed.beats[s])
    blocked = min(left - moving, timed.contention[s])
    count = _add(stretches, count, s, TRANSFER, moving)
    count = _add(stretches, count, s, CONTENTION, blocked)
    return _add(stretches, count, s, LATENCY, left - moving - blocked)


@part
def _delivery(
    timed: StepTimes, position: Array, limits: Limits, s: int, stretches: Array, count: int
) -> tuple[int, int, int]:
    """Write the stretches of the wait of step `s` for its command, back through the deliveries of earlier commands.

    A delivery waits for the previous delivery, or for room in its unit's queue. If there was no room while the unit of
    `s` was idle, charge these cycles to the queue, and continue at the unit's previous step. Otherwise, continue at the
    step whose start made room before that. Return this step (-1: the unit's previous step, or cycle 0), the time, and
    the number of stretches.
    """
    begin = timed.start[s] - timed.wait[s]
    t = timed.start[s]
    blocked = False
    i = s
    while i >= 0:
        freed = position[i] - limits.depth  # the start of this step makes room for command i if the queue is full
        k = timed.order[freed] if freed >= timed.first[timed.unit[i]] else -1
        earlier = timed.delivered[i - 1] if i > 0 else 0
        if k >= 0 and timed.start[k] + 1 == timed.delivered[i] and timed.start[k] >= earlier:
            room = timed.start[k]
            if room <= begin and not blocked:
                return k, room, _add(stretches, count, i, FETCH, t - room)
            blocked = True
            room = max(room, begin)
            count = _add(stretches, count, i, FETCH, t - room)
            t = max(earlier, begin)
            count = _add(stretches, count, i, COMMANDS, room - t)
        else:
            low = max(earlier, begin) if blocked else earlier
            count = _add(stretches, count, i, FETCH, t - low)
            t = low
        if blocked and t == begin:
            return -1, t, count
        i -= 1
    return -1, 0, count
