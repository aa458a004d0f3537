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
from tilewright.targets.gemmini.timing.unroll_conv import offered_by_conv, step_conv
from tilewright.targets.gemmini.timing.unroll_matmul import offered_by_matmul, step_matmul
from tilewright.targets.gemmini.timing.unroll_state import HOST, SLOT, STREAM, Front, Plan, advance_slots, idle_streams

#: The queues, in the order in which a command passes them: rows of `Front.queue`.
RAW, CONV_QUEUE, MATMUL_QUEUE, OUT = 0, 1, 2, 3
#: What a command does in the front end, the values of `Plan.action`.
PASS, CONFIGURE_MATMUL, RUN_MATMUL, CONFIGURE_CONV, RUN_CONV, WAIT = 0, 1, 2, 3, 4, 5
#: Loops that an unroller holds, and entries of a queue.
SLOTS, DEPTH = 2, 2
#: The result of `offered` if there is no command.
NONE = -(1 << 62)


def plan(expansion: Expansion, config: Config) -> Plan:
    """Return what the front end needs to know of an expanded program on this machine."""
    functs = expansion.commands[:, 0].astype(np.int64)
    action = np.zeros(len(functs), np.int64)
    for funct, unroller in UNROLLER.items():
        first = CONFIGURE_MATMUL if unroller == MATMUL else CONFIGURE_CONV
        action[functs == funct] = first + (funct in STARTS)
    action[functs == Funct.FENCE] = WAIT
    item = np.where(expansion.entry >= 0, expansion.entry, -1 - np.arange(len(functs)))
    return Plan(
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


def front() -> Front:
    """Return the front end after reset, before its first cycle (number 0)."""
    streams = np.zeros((2, 5, 7), np.int64)
    streams[:, :, 5:] = -1
    return Front(
        queue=np.zeros((4, 3), np.int64),
        slot=np.zeros((2, 2, 4), np.int64),
        stream=streams,
        head=np.zeros(2, np.int64),
        unfinished=np.zeros((2, 3), np.int64),
        done=np.zeros((2, 3), np.int64),
        settled=np.full(2, -1),
        misc=np.zeros(4, np.int64),
    )


@part
def offered(front: Front) -> int:
    """Return the command that the reservation station may take in this cycle, or NONE.

    It is the number of a primitive command, or -1 - the number of a command that never enters the station.
    """
    return front.queue[OUT, 1] if front.queue[OUT, 0] else NONE


@part
def front_is_busy(front: Front) -> bool:
    """Return whether a command is in the front end, without those that the host still holds."""
    queued = front.queue[0, 0] + front.queue[1, 0] + front.queue[2, 0] + front.queue[3, 0]
    return bool(queued or _has_loop(front, 0) or _has_loop(front, 1))


@part
def _has_loop(front: Front, u: int) -> bool:
    return bool(front.slot[u, 0, SLOT.configured] or front.slot[u, 1, SLOT.configured])


@part
def finished(front: Front, unroller: int, queue: int) -> None:
    """Note that a command of an unroller (1, 2; 0: of the host) is done. Call it before the `step` of that cycle."""
    if unroller:
        front.done[unroller - 1, queue] += 1
        front.misc[HOST.done] = 1


@part
def step(front: Front, plan: Plan, accepted: Array, cycle: int, taken: bool, idle: bool) -> bool:
    """Advance by a cycle, and return whether something has changed; else later cycles with the same inputs do nothing.

    `taken`: the command of `offered` leaves. `idle`: the rest of the machine is idle, so that a fence of the host ends
    if the front end is idle too. The number of the cycle in which the machine accepts a command is written to
    `accepted` [n].
    """
    if front.misc[HOST.still] and not (taken or idle or front.misc[HOST.done]):
        return False
    moved = _step(front, plan, accepted, cycle, taken, idle)
    front.misc[HOST.still] = 0 if moved else 1
    return moved


@part
def _step(front: Front, plan: Plan, accepted: Array, cycle: int, taken: bool, idle: bool) -> bool:
    """Do what `step` says."""
    queue, moved = front.queue, taken
    raw, conv, matmul, out = queue[0, 0], queue[1, 0], queue[2, 0], queue[3, 0]
    quiet = idle and not front_is_busy(front)
    if taken:
        _pop(queue[OUT])
    if _has_loop(front, 0) or matmul:
        moved |= _step_matmul(front, plan, out < DEPTH)
    if _has_loop(front, 1) or conv:
        moved |= _step_conv(front, plan, matmul < DEPTH)
    if raw and conv < DEPTH:
        _push(queue[CONV_QUEUE], queue[RAW, 1])
        _pop(queue[RAW])
        moved = True
    command = front.misc[HOST.next]
    if command < len(plan.item) and (quiet if plan.action[command] == WAIT else raw < DEPTH):
        if plan.action[command] != WAIT:
            _push(queue[RAW], plan.item[command])
        accepted[command] = cycle
        front.misc[HOST.next] += 1
        moved = True
    if front.misc[HOST.done]:
        front.misc[HOST.done] = 0
        moved = True
        for u in range(2):
            for x in range(3):
                front.unfinished[u, x] -= front.done[u, x]
                front.done[u, x] = 0
    return moved


@part
def _step_matmul(front: Front, plan: Plan, room: bool) -> bool:
    """Advance the matrix unroller and its queue by a cycle; `room`: the next queue has an empty place."""
    queue, out, moved = front.queue[MATMUL_QUEUE], front.queue[OUT], False
    head = front.head[0]
    configured = front.slot[0, 0, SLOT.configured] + front.slot[0, 1, SLOT.configured]
    target = 1 - head if front.slot[0, head, SLOT.configured] else head
    if configured:
        residual = front.misc[HOST.residual] != 0
        idle = idle_streams(front, 0)
        sent = offered_by_matmul(front, plan, idle, residual) if room else NONE
        if sent >= 0:
            _push(out, front.stream[0, sent, STREAM.next])
        moved = step_matmul(front, sent)
        moved |= advance_slots(front, plan, 0, idle, residual)
    if queue[0] == 0:
        return moved
    action = PASS if queue[1] >= 0 else plan.action[-1 - queue[1]]
    if action == PASS or action >= CONFIGURE_CONV:
        if configured or not room:
            return moved
        _push(out, queue[1])
    elif configured == SLOTS:
        return moved
    elif action == RUN_MATMUL:
        loop = plan.run[-1 - queue[1]]
        _start(front, 0, target, loop)
        front.misc[HOST.residual] = plan.residual[loop]
    _pop(queue)
    return True


@part
def _step_conv(front: Front, plan: Plan, room: bool) -> bool:
    """Advance the convolution unroller and its queue by a cycle; `room`: the next queue has an empty place."""
    queue, out, moved = front.queue[CONV_QUEUE], front.queue[MATMUL_QUEUE], False
    head = front.head[1]
    configured = front.slot[1, 0, SLOT.configured] + front.slot[1, 1, SLOT.configured]
    target = 1 - head if front.slot[1, head, SLOT.configured] else head
    if configured:
        idle = idle_streams(front, 1)
        sent = offered_by_conv(front, plan) if room else NONE
        if sent >= 0:
            _push(out, front.stream[1, sent, STREAM.late])
        moved = step_conv(front, plan, idle, sent)
        moved |= advance_slots(front, plan, 1, idle, False)
    if queue[0] == 0:
        return moved
    action = PASS if queue[1] >= 0 else plan.action[-1 - queue[1]]
    if action < CONFIGURE_CONV:
        if configured or not room:
            return moved
        _push(out, queue[1])
    elif configured == SLOTS:
        return moved
    elif action == RUN_CONV:
        _start(front, 1, target, plan.run[-1 - queue[1]])
    _pop(queue)
    return True


@part
def _start(front: Front, u: int, slot_number: int, loop: int) -> None:
    slot = front.slot[u, slot_number]
    front.settled[u] = -1
    slot[SLOT.configured], slot[SLOT.loop], slot[SLOT.started], slot[SLOT.finished] = 1, loop, 0, 0


@part
def _push(queue: Array, item: int) -> None:
    queue[1 + queue[0]] = item
    queue[0] += 1


@part
def _pop(queue: Array) -> None:
    queue[1] = queue[2]
    queue[0] -= 1
