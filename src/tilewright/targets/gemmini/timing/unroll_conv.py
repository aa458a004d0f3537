"""The merge of the streams of LOOP_CONV_WS (LoopConv.scala, Pipeline.scala of ucb-bar/gemmini at 8c3f992).

A command passes through two stages of a pipeline before it competes with those of the other streams.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.loops.stream import EXECUTE, LOAD_A, LOAD_D, STORE
from tilewright.targets.gemmini.timing.unroll_state import LOAD_BITS, NOTHING, SLOT, STREAM, Front, Plan, elsewhere

U = 1  # the number of this unroller


@part
def offered_by_conv(front: Front, plan: Plan) -> int:
    """Return the stream whose oldest command leaves if there is room for it, or NOTHING."""
    for x in range(5):
        if front.stream[U, x, STREAM.late] >= 0 and not _full(front, plan, x):
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
    slot = streams[EXECUTE, STREAM.slot]
    loads = idle & LOAD_BITS
    ahead = True  # no load of the execute stream's loop is to come
    for x in range(LOAD_D, LOAD_A + 1):
        ahead = ahead and elsewhere(front, U, loads, x, slot)
    started, finished = front.slot[U, slot, SLOT.started], front.slot[U, slot, SLOT.finished]
    waiting = (started >> EXECUTE) & 1 == 1 and (finished >> EXECUTE) & 1 == 0 and finished & LOAD_BITS != LOAD_BITS
    executed = elsewhere(front, U, idle, EXECUTE, streams[STORE, STREAM.slot])
    for x in range(5):
        own = streams[x]
        if x == STORE:
            free = executed
        elif x == EXECUTE:
            free = ahead
        else:
            free = not (waiting and own[STREAM.slot] != slot)
        if own[STREAM.active] != 0 or own[STREAM.early] >= 0 or own[STREAM.late] >= 0:
            moved |= _step_stream(own, plan, front.slot[U, own[STREAM.slot], SLOT.loop], x == EXECUTE, free, x == sent)
    if sent >= 0:
        front.unfinished[U, 2 if sent == STORE else 1 if sent == EXECUTE else 0] += 1
    return moved


@part
def _step_stream(own: Array, plan: Plan, loop: int, execute: bool, free: bool, sent: bool) -> bool:
    """Move one stream on, and return whether it has changed.

    `free`: it may put a command into its pipeline; `sent`: the last stage's command left.
    """
    early, late = own[STREAM.early], own[STREAM.late]
    stalled = late >= 0 and not sent
    if sent:
        own[STREAM.late] = -1
    moved = not stalled and early >= 0
    if not stalled:
        own[STREAM.late], own[STREAM.early] = early, -1
    if own[STREAM.active] == 0:
        return moved
    if own[STREAM.idle] > 0:
        moved = True
        own[STREAM.idle] -= 1
    elif own[STREAM.next] < own[STREAM.end] and free and not (stalled and early >= 0):
        moved = True
        own[STREAM.early] = own[STREAM.next]
        own[STREAM.next] += 1
        if execute:
            own[STREAM.idle] = plan.idle[own[STREAM.next]] if own[STREAM.next] < own[STREAM.end] else plan.tail[loop]
    if own[STREAM.next] == own[STREAM.end] and own[STREAM.idle] == 0:
        own[STREAM.active] = 0
        return True
    return moved
