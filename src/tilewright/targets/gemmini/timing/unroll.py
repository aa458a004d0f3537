"""The front end of the machine: from the host to the reservation station, with the two loop unrollers.

Commands pass through four queues of two entries: RAW, then that of the convolution unroller, that of the matrix
unroller, and OUT, from which the reservation station takes them. An unroller consumes the commands of its loops. While
it has a loop, its primitive commands leave it, and other commands wait in its queue. Source: Controller.scala,
LoopMatmul.scala and LoopConv.scala (ucb-bar/gemmini at 8c3f992).

A cycle is: look at `offered`, decide whether the command is taken, then call `step` once.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.loops.registers import MATMUL, STARTS, UNROLLER
from tilewright.targets.gemmini.timing.layout import at, row_offset
from tilewright.targets.gemmini.timing.queues import Q, count, peek, push, take
from tilewright.targets.gemmini.timing.unroll_conv import offered_by_conv, step_conv
from tilewright.targets.gemmini.timing.unroll_matmul import offered_by_matmul, step_matmul
from tilewright.targets.gemmini.timing.unroll_state import FRONT, SLOT, STREAM, FrontPlan, advance_slots, idle_streams

#: What a command does in the front end, the values of `FrontPlan.action`.
PASS, CONFIGURE_MATMUL, RUN_MATMUL, CONFIGURE_CONV, RUN_CONV, WAIT = 0, 1, 2, 3, 4, 5
#: Loops that an unroller holds, and entries of a queue.
SLOTS, DEPTH = 2, 2
#: The result of `offered` if there is no command.
NONE = -(1 << 62)


def plan(expansion: Expansion, config: Config) -> FrontPlan:
    """Return what the front end needs to know of an expanded program on this machine."""
    functs = expansion.commands[:, 0].astype(np.int64)
    action = np.zeros(len(functs), np.int64)
    for funct, unroller in UNROLLER.items():
        first = CONFIGURE_MATMUL if unroller == MATMUL else CONFIGURE_CONV
        action[functs == funct] = first + (funct in STARTS)
    action[functs == Funct.FENCE] = WAIT
    item = np.where(expansion.entry >= 0, expansion.entry, -1 - np.arange(len(functs)))
    return FrontPlan(
        item=item,
        action=action,
        run=expansion.run,
        at=expansion.at,
        idle=expansion.idle,
        starts=expansion.starts,
        tail=expansion.tail,
        residual=expansion.residual.astype(np.int64),
        room=np.array([config.rs_load, config.rs_execute, config.rs_store], np.int64),
    )


@part
def offered(m: Array) -> int:
    """Return the command that the reservation station may take in this cycle, or NONE.

    It is the number of a primitive command, or -1 - the number of a command that never enters the station.
    """
    return peek(m, Q.out, 0) if count(m, Q.out) else NONE


@part
def front_is_busy(m: Array) -> bool:
    """Return whether a command is in the front end, without those that the host still holds."""
    queued = count(m, Q.raw) + count(m, Q.to_conv) + count(m, Q.to_matmul) + count(m, Q.out)
    return bool(queued or _has_loop(m, 0) or _has_loop(m, 1))


@part
def _has_loop(m: Array, u: int) -> bool:
    return bool(m[at(SLOT.configured, 2 * u + 0)] or m[at(SLOT.configured, 2 * u + 1)])


@part
def finished(m: Array, unroller: int, queue: int) -> None:
    """Note that a command of an unroller (1, 2; 0: of the host) is done. Call it before the `step` of that cycle."""
    if unroller:
        m[FRONT.ended + 3 * (unroller - 1) + queue] += 1
        m[FRONT.done] = 1


@part
def step(m: Array, plan: FrontPlan, accepted: Array, cycle: int, taken: bool, idle: bool) -> bool:
    """Advance by a cycle, and return whether something has changed; else later cycles with the same inputs do nothing.

    `taken`: the command of `offered` leaves. `idle`: the rest of the machine is idle, so that a fence of the host ends
    if the front end is idle too. The number of the cycle in which the machine accepts a command is written to
    `accepted` [n].
    """
    if m[FRONT.still] and not (taken or idle or m[FRONT.done]):
        return False
    moved = _step(m, plan, accepted, cycle, taken, idle)
    m[FRONT.still] = 0 if moved else 1
    return moved


@part
def _step(m: Array, plan: FrontPlan, accepted: Array, cycle: int, taken: bool, idle: bool) -> bool:
    """Do what `step` says."""
    moved = taken
    raw, conv, matmul, out = count(m, Q.raw), count(m, Q.to_conv), count(m, Q.to_matmul), count(m, Q.out)
    quiet = idle and not front_is_busy(m)
    if taken:
        take(m, Q.out)
    if _has_loop(m, 0) or matmul:
        moved |= _step_matmul(m, plan, out < DEPTH)
    if _has_loop(m, 1) or conv:
        moved |= _step_conv(m, plan, matmul < DEPTH)
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
    if m[FRONT.done]:
        m[FRONT.done] = 0
        moved = True
        for u in range(2):
            for x in range(3):
                m[FRONT.unfinished + 3 * u + x] -= m[FRONT.ended + 3 * u + x]
                m[FRONT.ended + 3 * u + x] = 0
    return moved


@part
def _step_matmul(m: Array, plan: FrontPlan, room: bool) -> bool:
    """Advance the matrix unroller and its queue by a cycle; `room`: the next queue has an empty place."""
    moved = False
    head = m[FRONT.head + 0]
    configured = m[at(SLOT.configured, 2 * 0 + 0)] + m[at(SLOT.configured, 2 * 0 + 1)]
    target = 1 - head if m[at(SLOT.configured, 2 * 0 + head)] else head
    if configured:
        residual = m[FRONT.residual] != 0
        idle = idle_streams(m, 0)
        sent = offered_by_matmul(m, plan, idle, residual) if room else NONE
        if sent >= 0:
            push(m, Q.out, m[at(STREAM.next, 5 * 0 + sent)])
        moved = step_matmul(m, sent)
        moved |= advance_slots(m, plan, 0, idle, residual)
    if count(m, Q.to_matmul) == 0:
        return moved
    offer = peek(m, Q.to_matmul, 0)
    action = PASS if offer >= 0 else plan.action[-1 - offer]
    if action == PASS or action >= CONFIGURE_CONV:
        if configured or not room:
            return moved
        push(m, Q.out, offer)
    elif configured == SLOTS:
        return moved
    elif action == RUN_MATMUL:
        loop = plan.run[-1 - offer]
        _start(m, 0, target, loop)
        m[FRONT.residual] = plan.residual[loop]
    take(m, Q.to_matmul)
    return True


@part
def _step_conv(m: Array, plan: FrontPlan, room: bool) -> bool:
    """Advance the convolution unroller and its queue by a cycle; `room`: the next queue has an empty place."""
    moved = False
    head = m[FRONT.head + 1]
    configured = m[at(SLOT.configured, 2 * 1 + 0)] + m[at(SLOT.configured, 2 * 1 + 1)]
    target = 1 - head if m[at(SLOT.configured, 2 * 1 + head)] else head
    if configured:
        idle = idle_streams(m, 1)
        sent = offered_by_conv(m, plan) if room else NONE
        if sent >= 0:
            push(m, Q.to_matmul, m[at(STREAM.late, 5 * 1 + sent)])
        moved = step_conv(m, plan, idle, sent)
        moved |= advance_slots(m, plan, 1, idle, False)
    if count(m, Q.to_conv) == 0:
        return moved
    offer = peek(m, Q.to_conv, 0)
    action = PASS if offer >= 0 else plan.action[-1 - offer]
    if action < CONFIGURE_CONV:
        if configured or not room:
            return moved
        push(m, Q.to_matmul, offer)
    elif configured == SLOTS:
        return moved
    elif action == RUN_CONV:
        _start(m, 1, target, plan.run[-1 - offer])
    take(m, Q.to_conv)
    return True


@part
def _start(m: Array, u: int, slot_number: int, loop: int) -> None:
    slot = row_offset(2 * u + slot_number)
    m[FRONT.settled + u] = -1
    m[slot + SLOT.configured] = 1
    m[slot + SLOT.loop] = loop
    m[slot + SLOT.started] = m[slot + SLOT.finished] = 0
