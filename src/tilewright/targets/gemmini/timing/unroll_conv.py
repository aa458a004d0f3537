"""The merge of the streams of LOOP_CONV_WS (LoopConv.scala, Pipeline.scala of ucb-bar/gemmini at 8c3f992).

A command passes through two stages of a pipeline before it competes with those of the other streams.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.unroll_state import Front, Plan, elsewhere

STORE, EXECUTE, LOAD_D, LOAD_B, LOAD_A = 0, 1, 2, 3, 4
CONFIGURED, LOOP, STARTED, FINISHED = 0, 1, 2, 3
ACTIVE, NEXT, END, SLOT, IDLE, EARLY, LATE = 0, 1, 2, 3, 4, 5, 6
LOAD_BITS = 28
U = 1  # the number of this unroller
NOTHING = -1


@part
def offered_by_conv(front: Front, plan: Plan) -> int:
    """Return the stream whose oldest command leaves if there is room for it, or NOTHING."""
    for x in range(5):
        if front.stream[U, x, LATE] >= 0 and not _full(front, plan, x):
            return x
    return NOTHING


@part
def _full(front: Front, plan: Plan, x: int) -> bool:
    queue = 2 if x == STORE else 1 if x == EXECUTE else 0
    return bool(front.unfinished[U, queue] >= plan.room[queue])


@part
def step_conv(front: Front, plan: Plan, idle: int, sent: int) -> bool:
    """Move all streams after a cycle in which stream `sent` (or NOTHING) sent a command; return whether any moved."""
    streams, moved = front.stream[U], sent >= 0
    slot = streams[EXECUTE, SLOT]
    loads = idle & LOAD_BITS
    ahead = True  # no load of the execute stream's loop is to come
    for x in range(LOAD_D, LOAD_A + 1):
        ahead = ahead and elsewhere(front, U, loads, x, slot)
    started, finished = front.slot[U, slot, STARTED], front.slot[U, slot, FINISHED]
    waiting = (started >> EXECUTE) & 1 == 1 and (finished >> EXECUTE) & 1 == 0 and finished & LOAD_BITS != LOAD_BITS
    executed = elsewhere(front, U, idle, EXECUTE, streams[STORE, SLOT])
    for x in range(5):
        own = streams[x]
        if x == STORE:
            free = executed
        elif x == EXECUTE:
            free = ahead
        else:
            free = not (waiting and own[SLOT] != slot)
        if own[ACTIVE] != 0 or own[EARLY] >= 0 or own[LATE] >= 0:
            moved |= _step_stream(own, plan, front.slot[U, own[SLOT], LOOP], x == EXECUTE, free, x == sent)
    if sent >= 0:
        front.unfinished[U, 2 if sent == STORE else 1 if sent == EXECUTE else 0] += 1
    return moved


@part
def _step_stream(own: Array, plan: Plan, loop: int, execute: bool, free: bool, sent: bool) -> bool:
    """Move one stream on, and return whether it has changed.

    `free`: it may put a command into its pipeline; `sent`: the last stage's command left.
    """
    early, late = own[EARLY], own[LATE]
    stalled = late >= 0 and not sent
    if sent:
        own[LATE] = -1
    moved = not stalled and early >= 0
    if not stalled:
        own[LATE], own[EARLY] = early, -1
    if own[ACTIVE] == 0:
        return moved
    if own[IDLE] > 0:
        moved = True
        own[IDLE] -= 1
    elif own[NEXT] < own[END] and free and not (stalled and early >= 0):
        moved = True
        own[EARLY] = own[NEXT]
        own[NEXT] += 1
        if execute:
            own[IDLE] = plan.idle[own[NEXT]] if own[NEXT] < own[END] else plan.tail[loop]
    if own[NEXT] == own[END] and own[IDLE] == 0:
        own[ACTIVE] = 0
        return True
    return moved
