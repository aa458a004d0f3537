"""The front end of the machine: from the host to the reservation station, with the two loop unrollers.

Commands pass through four queues of two entries: RAW, the queue of the convolution unroller, the queue of the matrix
unroller, and OUT, from which the reservation station takes commands. An unroller removes the commands that configure
its loops. While an unroller executes a loop, it sends the loop's primitive commands, and other commands wait in its
queue. Sources: Controller.scala, LoopMatmul.scala and LoopConv.scala (ucb-bar/gemmini at 8c3f992).

In each cycle, the caller reads `offered`, decides whether the station takes the command, and calls `step` once. An
unroller is faster than the station, so most cycles change nothing in the front end. After such a cycle, FRONT.still is
1, and `step` returns immediately until an input changes.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.loops.words import MATMUL, STARTS, UNROLLER
from tilewright.targets.gemmini.timing.layout import at, row_offset
from tilewright.targets.gemmini.timing.queues import Q, count, peek, push, take
from tilewright.targets.gemmini.timing.unroll_streams import (
    FRONT,
    OF_CONV,
    OF_MATMUL,
    SLOT,
    STREAM,
    FrontPlan,
    advance_slots,
    idle_streams,
    offered_by_conv,
    offered_by_matmul,
    queue_of,
    step_conv,
    step_matmul,
    stream,
)

#: The values of `FrontPlan.action`, the effect of a command in the front end. CONFIGURE_* + 1 starts a loop.
PASS = 0
CONFIGURE_MATMUL = 1
CONFIGURE_CONV = 3
WAIT = 5
#: The number of loops that fit into an unroller, and the number of entries of a queue.
SLOTS = 2
DEPTH = 2
#: The result of `offered` if there is no command.
NONE = -(1 << 62)


def plan(expansion: Expansion, config: Config) -> FrontPlan:
    functs = expansion.commands[:, 0].astype(np.int64)
    action = np.zeros(len(functs), np.int64)
    for funct, unroller in UNROLLER.items():
        first = CONFIGURE_MATMUL if unroller == MATMUL else CONFIGURE_CONV
        action[functs == funct] = first + (funct in STARTS)
    action[functs == Funct.FENCE] = WAIT
    item = np.where(expansion.entry >= 0, expansion.entry, -1 - np.arange(len(functs)))
    room = np.array([config.rs_load, config.rs_execute, config.rs_store])
    return FrontPlan(item, action, expansion.loops, room)


@part
def offered(m: Array) -> int:
    """Return the item that the reservation station may take in this cycle (see FrontPlan), or NONE."""
    return peek(m, Q.out, 0) if count(m, Q.out) else NONE


@part
def front_is_busy(m: Array) -> bool:
    """Return whether the front end contains a command or a loop. Commands that the host has not sent do not count."""
    queued = count(m, Q.raw) + count(m, Q.to_conv) + count(m, Q.to_matmul) + count(m, Q.out)
    return bool(queued or loops_of(m, OF_MATMUL) or loops_of(m, OF_CONV))


@part
def note_finished(m: Array, unroller: int, queue: int) -> None:
    """Record that a command of an unroller (1 or 2; 0 is the host) completes in this cycle. Call this before `step`."""
    if unroller:
        m[FRONT.ended + 3 * (unroller - 1) + queue] += 1
        m[FRONT.done] = 1


@part
def step(m: Array, plan: FrontPlan, accepted: Array, cycle: int, taken: bool, idle: bool) -> bool:
    """Advance by one cycle, and return whether anything changed.

    With `taken`, the station takes the command of `offered`. With `idle`, the rest of the machine is idle: a fence of
    the host ends when the front end is also idle. The cycle in which a command is accepted is written to `accepted`,
    [n].
    """
    if m[FRONT.still] and not (taken or idle or m[FRONT.done]):
        return False
    # Use the lengths at the start of the cycle, because the `ready` of a hardware queue of two entries is a register.
    moved = taken
    raw = count(m, Q.raw)
    conv = count(m, Q.to_conv)
    matmul = count(m, Q.to_matmul)
    out = count(m, Q.out)
    quiet = idle and not front_is_busy(m)
    if taken:
        take(m, Q.out)
    if loops_of(m, OF_MATMUL) or matmul:
        moved |= _step_unroller(m, plan, OF_MATMUL, out < DEPTH)
    if loops_of(m, OF_CONV) or conv:
        moved |= _step_unroller(m, plan, OF_CONV, matmul < DEPTH)
    if raw and conv < DEPTH:
        push(m, Q.to_conv, take(m, Q.raw))
        moved = True
    command = m[FRONT.next_host]
    if command < len(plan.item) and (quiet if plan.action[command] == WAIT else raw < DEPTH):
        if plan.action[command] != WAIT:
            push(m, Q.raw, plan.item[command])
        accepted[command] = cycle
        m[FRONT.next_host] += 1
        moved = True
    # Completions reach the unrollers' counters at the end of the cycle.
    if m[FRONT.done]:
        m[FRONT.done] = 0
        moved = True
        for u in range(2):
            for x in range(3):
                m[FRONT.unfinished + 3 * u + x] -= m[FRONT.ended + 3 * u + x]
                m[FRONT.ended + 3 * u + x] = 0
    m[FRONT.still] = not moved
    return moved


@part
def loops_of(m: Array, u: int) -> int:
    return m[at(SLOT.configured, 2 * u)] + m[at(SLOT.configured, 2 * u + 1)]


@part
def _step_unroller(m: Array, plan: FrontPlan, u: int, room: bool) -> bool:
    """Advance an unroller and its queue by one cycle. With `room`, the next queue has a free entry."""
    configured = loops_of(m, u)
    head = m[FRONT.head + u]
    moved = False
    # A new loop uses slot `head` if this slot is free, else the second slot.
    target = 1 - head if m[at(SLOT.configured, 2 * u + head)] else head
    if configured:
        idle = idle_streams(m, u)
        sent = NONE
        residual = u == OF_MATMUL and m[FRONT.residual] != 0
        if room:
            sent = offered_by_conv(m, plan) if u == OF_CONV else offered_by_matmul(m, plan, idle, residual)
        if sent >= 0:
            m[FRONT.unfinished + 3 * u + queue_of(sent)] += 1
            oldest = STREAM.late if u == OF_CONV else STREAM.next
            push(m, Q.to_matmul if u == OF_CONV else Q.out, m[stream(u, sent) + oldest])
        moved = step_conv(m, plan, idle, sent) if u == OF_CONV else step_matmul(m, sent)
        if idle != m[FRONT.settled + u]:
            moved |= advance_slots(m, plan, u, idle, residual)
    return _take_command(m, plan, u, room, configured, target) or moved


@part
def _take_command(m: Array, plan: FrontPlan, u: int, room: bool, configured: int, target: int) -> bool:
    """Take a command from an unroller's queue, unless the command must wait. Return whether a command was taken.

    `configured` is the number of loops at the start of the cycle, and `target` is the slot for a new loop.
    """
    # A command for this unroller waits while both slots are in use. Any other command waits until the unroller has no
    # loop, which keeps program order, and until the next queue has `room`.
    queue, first = (Q.to_conv, CONFIGURE_CONV) if u == OF_CONV else (Q.to_matmul, CONFIGURE_MATMUL)
    if count(m, queue) == 0:
        return False
    offer = peek(m, queue, 0)
    action = PASS if offer >= 0 else plan.action[-1 - offer]
    if action < first or action > first + 1:
        if configured or not room:
            return False
        push(m, Q.to_matmul if u == OF_CONV else Q.out, offer)
    elif configured == SLOTS:
        return False
    elif action == first + 1:
        slot = row_offset(2 * u + target)
        loop = plan.loops.run[-1 - offer]
        m[FRONT.settled + u] = -1
        m[slot + SLOT.configured] = 1
        m[slot + SLOT.loop] = loop
        m[slot + SLOT.started] = m[slot + SLOT.finished] = 0
        if u == OF_MATMUL:
            m[FRONT.residual] = plan.loops.residual[loop]
    take(m, queue)
    return True
