"""The state of the two loop unrollers, and what both do alike: which loop each of their five streams works on.

Source: LoopMatmul.scala and LoopConv.scala (ucb-bar/gemmini at 8c3f992). All functions are parts of compiled loops.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX, LD, ST
from tilewright.targets.gemmini.loops.words import EXECUTE, STORE
from tilewright.targets.gemmini.timing.records import PLAIN, RULE, WIRE, at, registers, row_offset, saved, table

#: Sets of streams, as bits.
EXECUTE_BIT, LOAD_BITS, ALL_BITS = 2, 28, 31
#: The numbers of the unrollers.
OF_MATMUL, OF_CONV = 0, 1
#: No stream, or no command.
NOTHING = -1


class FrontEnd:
    """What the front end keeps beside loops and queues. Some numbers are for the two unrollers."""

    next_host = saved(RULE.host)  # the next command of the host
    residual = PLAIN  # whether residual addition is on in LOOP_WS
    still = PLAIN  # whether the last cycle changed nothing
    done = WIRE  # whether a command was done in this cycle
    head = saved(size=2)  # the slot of the older loop
    settled = saved(size=2, reset=-1)  # the idle streams for which advance_slots has nothing to do; -1: not known
    unfinished = saved(size=6)  # loads, execute commands, stores that were sent and are not done
    ended = saved(RULE.wire, size=6)  # those that are done in this cycle


class LoopSlot:
    """A loop that an unroller works on, in one of its two slots."""

    configured = PLAIN
    loop = saved(RULE.loop, when="configured")
    started = PLAIN  # streams, as bits
    finished = PLAIN


class LoopStream:
    """A stream of an unroller."""

    active = PLAIN
    next = saved(RULE.command, when="active")  # its next command and its end, in the expanded commands
    end = saved(RULE.taken, when="active")
    slot = PLAIN
    idle = PLAIN  # steps without a command that come next
    early = saved(RULE.staged, reset=NOTHING)  # the two stages of its pipeline (LOOP_CONV_WS only; NOTHING: empty)
    late = saved(RULE.staged, reset=NOTHING)


FRONT = registers(FrontEnd, 14)
SLOT, STREAM = table(LoopSlot, "loop_slots"), table(LoopStream, "loop_streams")


class FrontPlan(NamedTuple):
    """What the front end reads: an Expansion (loops/expansion.py) as arrays for compiled loops, and sizes.

    `item` [n] is what enters the queues for a command: the number of a primitive command, or -1 - the command's number.
    """

    item: Array  # int64 [n]
    action: Array  # int64 [n]: see unroll.py
    run: Array  # int64 [n]: the loop that a command starts
    at: Array  # int64 [m, 3]
    idle: Array  # int64 [m]
    starts: Array  # int64 [L, 6]
    tail: Array  # int64 [L]
    residual: Array  # int64 [L]
    room: Array  # int64 [3]: entries of the reservation station for loads, execute commands and stores


@part
def stream(u: int, x: int) -> int:
    """Return the place of stream x of unroller u."""
    return row_offset(5 * u + x)


@part
def queue_of(x: int) -> int:
    """Return the queue of the reservation station that takes the commands of a stream."""
    return ST if x == STORE else EX if x == EXECUTE else LD


@part
def idle_streams(m: Array, u: int) -> int:
    """Return the streams of unroller `u` that do nothing, as bits."""
    idle = 0
    for x in range(5):
        own = stream(u, x)
        if m[own + STREAM.active] == 0 and m[own + STREAM.early] < 0 and m[own + STREAM.late] < 0:
            idle |= 1 << x
    return idle


@part
def elsewhere(m: Array, u: int, idle: int, x: int, slot: int) -> bool:
    """Return whether stream `x` has no more commands for the loop in `slot`."""
    return bool(m[stream(u, x) + STREAM.slot] != slot or (idle >> x) & 1)


@part
def pause(m: Array, plan: FrontPlan, own: int, loop: int) -> int:
    """Return the steps without a command before the next command of a stream, or after its last one."""
    return plan.idle[m[own + STREAM.next]] if m[own + STREAM.next] < m[own + STREAM.end] else plan.tail[loop]


def advance_slots(m: Array, plan: FrontPlan, u: int, idle: int, residual: bool) -> bool:
    """Note finished streams, give new loops to the streams of `idle`, and free the older slot when its loop is done.

    `idle` are the streams that were idle at the start of the cycle. `residual`: stores need not wait for the execute
    stream to start. Returns whether something has changed.
    """
    if idle == m[FRONT.settled + u]:
        return False
    head = m[FRONT.head + u]
    first = row_offset(2 * u + head)
    started = m[at(SLOT.started, 2 * u)], m[at(SLOT.started, 2 * u + 1)]
    moved = done = m[first + SLOT.finished] == ALL_BITS
    for x in range(5):
        if not (idle >> x) & 1:
            continue
        own = stream(u, x)
        finished = at(SLOT.finished, 2 * u + m[own + STREAM.slot])
        if ((started[m[own + STREAM.slot]] & ~m[finished]) >> x) & 1:
            m[finished] |= 1 << x
            moved = True
        which = 1 - head if (started[head] >> x) & 1 else head
        slot, before = row_offset(2 * u + which), started[which]
        waits = x == EXECUTE and before & LOAD_BITS != LOAD_BITS
        waits = waits or (x == STORE and not residual and before & EXECUTE_BIT == 0)
        if m[slot + SLOT.configured] == 0 or (before >> x) & 1 or waits:
            continue
        moved = True
        m[slot + SLOT.started] |= 1 << x
        loop = m[slot + SLOT.loop]
        m[own + STREAM.active], m[own + STREAM.slot] = 1, which
        m[own + STREAM.next], m[own + STREAM.end] = plan.starts[loop, x], plan.starts[loop, x + 1]
        m[own + STREAM.idle] = pause(m, plan, own, loop) if x == EXECUTE else 0
    if done:
        m[first + SLOT.configured] = m[first + SLOT.started] = m[first + SLOT.finished] = 0
        m[FRONT.head + u] = 1 - head
    m[FRONT.settled + u] = -1 if moved else idle
    return bool(moved)
