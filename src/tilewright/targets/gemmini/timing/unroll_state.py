"""The state of the two loop unrollers, and what both do alike: which loop each of their five streams works on.

Source: LoopMatmul.scala and LoopConv.scala (ucb-bar/gemmini at 8c3f992). All functions are parts of compiled loops.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.loops.stream import EXECUTE, STORE
from tilewright.targets.gemmini.timing.state import columns

#: Sets of streams, as bits.
EXECUTE_BIT, LOAD_BITS, ALL_BITS = 2, 28, 31
#: No stream, or no command.
NOTHING = -1


class Slot:
    """A loop that an unroller works on."""

    configured: int
    loop: int
    started: int  # streams, as bits
    finished: int


class Working:
    """A stream of an unroller."""

    active: int
    next: int  # its next command and its end, in the expanded commands
    end: int
    slot: int
    idle: int  # steps without a command that come next
    early: int  # the two stages of its pipeline (LOOP_CONV_WS only; NOTHING: empty)
    late: int


class Host:
    """What the front end keeps beside loops and queues."""

    next: int  # command of the host
    residual: int  # whether residual addition is on in LOOP_WS
    still: int  # whether the last cycle changed nothing
    done: int  # whether a command was done in this cycle


SLOT, STREAM, HOST = columns(Slot), columns(Working), columns(Host)


class Plan(NamedTuple):
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


class Front(NamedTuple):
    """The state of the front end. The first axis is the unroller in all fields but `queue` and `misc`."""

    queue: Array  # int64 [4, 3]: the length of each queue and its items; see unroll.py
    slot: Array  # int64 [2, 2, 4]
    stream: Array  # int64 [2, 5, 7]
    head: Array  # int64 [2]: the slot of the older loop
    unfinished: Array  # int64 [2, 3]: loads, execute commands, stores that were sent and are not done
    done: Array  # int64 [2, 3]: those that are done in this cycle
    settled: Array  # int64 [2]: the idle streams for which advance_slots has nothing to do; -1: not known
    misc: Array  # int64 [4]: see unroll.py


@part
def idle_streams(front: Front, u: int) -> int:
    """Return the streams of unroller `u` that do nothing, as bits."""
    found = 0
    for x in range(5):
        own = front.stream[u, x]
        if own[STREAM.active] == 0 and own[STREAM.early] < 0 and own[STREAM.late] < 0:
            found |= 1 << x
    return found


@part
def elsewhere(front: Front, u: int, idle: int, x: int, slot: int) -> bool:
    """Return whether stream `x` has no more commands for the loop in `slot`."""
    return bool(front.stream[u, x, STREAM.slot] != slot or (idle >> x) & 1)


@part
def advance_slots(front: Front, plan: Plan, u: int, idle: int, residual: bool) -> bool:
    """Note finished streams, give new loops to the streams of `idle`, and free the older slot when its loop is done.

    `idle` are the streams that were idle at the start of the cycle. `residual`: stores need not wait for the execute
    stream to start. Returns whether something has changed.
    """
    if idle == front.settled[u]:
        return False
    moved = _advance_slots(
        front.slot[u], front.stream[u], front.head, plan.starts, plan.idle, plan.tail, u, idle, residual
    )
    front.settled[u] = -1 if moved else idle
    return moved


@called
def _advance_slots(
    slots: Array,
    streams: Array,
    heads: Array,
    starts: Array,
    steps: Array,
    tails: Array,
    u: int,
    idle: int,
    residual: bool,
) -> bool:
    """Do what advance_slots says."""
    head = heads[u]
    started = slots[0, SLOT.started], slots[1, SLOT.started]
    moved = done = slots[head, SLOT.finished] == ALL_BITS
    for x in range(5):
        if not (idle >> x) & 1:
            continue
        own = streams[x]
        if ((started[own[STREAM.slot]] & ~slots[own[STREAM.slot], SLOT.finished]) >> x) & 1:
            slots[own[STREAM.slot], SLOT.finished] |= 1 << x
            moved = True
        which = 1 - head if (started[head] >> x) & 1 else head
        before = started[which]
        if slots[which, SLOT.configured] == 0 or (before >> x) & 1:
            continue
        if (x == EXECUTE and before & LOAD_BITS != LOAD_BITS) or (
            x == STORE and not residual and before & EXECUTE_BIT == 0
        ):
            continue
        moved = True
        slots[which, SLOT.started] |= 1 << x
        loop = slots[which, SLOT.loop]
        own[STREAM.active], own[STREAM.slot] = 1, which
        own[STREAM.next], own[STREAM.end] = starts[loop, x], starts[loop, x + 1]
        own[STREAM.idle] = 0
        if x == EXECUTE:
            own[STREAM.idle] = steps[own[STREAM.next]] if own[STREAM.next] < own[STREAM.end] else tails[loop]
    if done:
        slots[head, SLOT.configured] = slots[head, SLOT.started] = slots[head, SLOT.finished] = 0
        heads[u] = 1 - head
    return bool(moved)
