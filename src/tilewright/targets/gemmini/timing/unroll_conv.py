"""The merge of the streams of LOOP_CONV_WS (LoopConv.scala, Pipeline.scala of ucb-bar/gemmini at 8c3f992).

A command passes through two stages of a pipeline before it competes with those of the other streams.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.loops.words import EXECUTE, LOAD_A, LOAD_D, STORE
from tilewright.targets.gemmini.timing.layout import at, row_offset
from tilewright.targets.gemmini.timing.unroll_state import (
    FRONT,
    LOAD_BITS,
    NOTHING,
    OF_CONV,
    SLOT,
    STREAM,
    FrontPlan,
    elsewhere,
)


@part
def offered_by_conv(m: Array, plan: FrontPlan) -> int:
    """Return the stream whose oldest command leaves if there is room for it, or NOTHING."""
    for x in range(5):
        if m[at(STREAM.late, 5 * OF_CONV + x)] >= 0 and not _full(m, plan, x):
            return x
    return NOTHING


@part
def _full(m: Array, plan: FrontPlan, x: int) -> bool:
    queue = 2 if x == STORE else 1 if x == EXECUTE else 0
    return bool(m[FRONT.unfinished + 3 * OF_CONV + queue] >= plan.room[queue])


@part
def step_conv(m: Array, plan: FrontPlan, idle: int, sent: int) -> bool:
    """Move all streams after a cycle in which stream `sent` (or NOTHING) sent a command; return whether any moved."""
    moved = sent >= 0
    slot = m[at(STREAM.slot, 5 * OF_CONV + EXECUTE)]
    loads = idle & LOAD_BITS
    ahead = True  # no load of the execute stream's loop is to come
    for x in range(LOAD_D, LOAD_A + 1):
        ahead = ahead and elsewhere(m, OF_CONV, loads, x, slot)
    started, finished = m[at(SLOT.started, 2 * OF_CONV + slot)], m[at(SLOT.finished, 2 * OF_CONV + slot)]
    waiting = (started >> EXECUTE) & 1 == 1 and (finished >> EXECUTE) & 1 == 0 and finished & LOAD_BITS != LOAD_BITS
    executed = elsewhere(m, OF_CONV, idle, EXECUTE, m[at(STREAM.slot, 5 * OF_CONV + STORE)])
    for x in range(5):
        own = row_offset(5 * OF_CONV + x)
        if x == STORE:
            free = executed
        elif x == EXECUTE:
            free = ahead
        else:
            free = not (waiting and m[own + STREAM.slot] != slot)
        if m[own + STREAM.active] != 0 or m[own + STREAM.early] >= 0 or m[own + STREAM.late] >= 0:
            moved |= _step_stream(
                m, own, plan, m[at(SLOT.loop, 2 * OF_CONV + m[own + STREAM.slot])], x == EXECUTE, free, x == sent
            )
    if sent >= 0:
        m[FRONT.unfinished + 3 * OF_CONV + (2 if sent == STORE else 1 if sent == EXECUTE else 0)] += 1
    return moved


@part
def _step_stream(m: Array, own: int, plan: FrontPlan, loop: int, execute: bool, free: bool, sent: bool) -> bool:
    """Move one stream on, and return whether it has changed.

    `free`: it may put a command into its pipeline; `sent`: the last stage's command left.
    """
    early, late = m[own + STREAM.early], m[own + STREAM.late]
    stalled = late >= 0 and not sent
    if sent:
        m[own + STREAM.late] = -1
    moved = not stalled and early >= 0
    if not stalled:
        m[own + STREAM.late], m[own + STREAM.early] = early, -1
    if m[own + STREAM.active] == 0:
        return moved
    if m[own + STREAM.idle] > 0:
        moved = True
        m[own + STREAM.idle] -= 1
    elif m[own + STREAM.next] < m[own + STREAM.end] and free and not (stalled and early >= 0):
        moved = True
        m[own + STREAM.early] = m[own + STREAM.next]
        m[own + STREAM.next] += 1
        if execute:
            m[own + STREAM.idle] = (
                plan.idle[m[own + STREAM.next]] if m[own + STREAM.next] < m[own + STREAM.end] else plan.tail[loop]
            )
    if m[own + STREAM.next] == m[own + STREAM.end] and m[own + STREAM.idle] == 0:
        m[own + STREAM.active] = 0
        return True
    return moved
