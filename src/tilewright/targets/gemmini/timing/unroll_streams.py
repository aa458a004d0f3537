"""The merge of the streams of a loop (LoopMatmul.scala, WeightedArbiter.scala, LoopConv.scala, Pipeline.scala).

Some conditions of LOOP_WS look wrong, but are those of the generated RTL (ucb-bar/gemmini at 8c3f992). For example, an
execute command checks the progress of B with a counter of A, and the counters of an ended stream are 0. A command of
LOOP_CONV_WS passes through two pipeline stages before it competes with commands of other streams.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX, LD, ST
from tilewright.targets.gemmini.loops import LoopCommands
from tilewright.targets.gemmini.loops.words import EXECUTE, LOAD_A, LOAD_B, LOAD_D, STORE
from tilewright.targets.gemmini.timing.layout import at, row_offset
from tilewright.targets.gemmini.timing.records import PLAIN, RULE, WIRE, registers, saved, table

#: Bit masks of streams.
EXECUTE_BIT = 2
LOAD_BITS = 28
ALL_BITS = 31
#: The index of each unroller.
OF_MATMUL = 0
OF_CONV = 1
#: No stream, or no command.
NOTHING = -1


class FrontEnd:
    """The registers of the front end, except loops and queues. A field of size 2 has one number per unroller."""

    next_host = saved(RULE.host)  # the next command of the host
    residual = PLAIN  # whether the current LOOP_WS is a residual addition
    still = PLAIN  # 1: the previous cycle changed nothing
    done = WIRE  # whether a command has completed in this cycle
    head = saved(size=2)  # the slot of the older loop
    settled = saved(size=2, reset=-1)  # the mask of idle streams if advance_slots would change nothing, else -1
    unfinished = saved(size=6)  # the number of loads, execute commands and stores in progress, by unroller
    ended = saved(RULE.wire, size=6)  # the commands among `unfinished` that have completed in this cycle


class LoopSlot:
    """A loop in one of the two slots of an unroller."""

    configured = PLAIN
    loop = saved(RULE.loop, when="configured")
    started = PLAIN  # a bit mask of the streams that have started on this loop
    finished = PLAIN


class LoopStream:
    """A stream of an unroller."""

    active = PLAIN
    next = saved(RULE.command, when="active")  # the primitive command that the stream sends next, and the stream's end
    end = saved(RULE.taken, when="active")
    slot = PLAIN
    idle = PLAIN  # the cycles for skipped steps that remain before the next command
    early = saved(RULE.staged, reset=NOTHING)  # the two pipeline stages of a LOOP_CONV_WS stream; NOTHING: empty
    late = saved(RULE.staged, reset=NOTHING)


FRONT = registers(FrontEnd, 14)
SLOT = table(LoopSlot, "loop_slots")
STREAM = table(LoopStream, "loop_streams")


class FrontPlan(NamedTuple):
    """The program in the form that the front end reads.

    `item` has the queue item for each command: the index x of a primitive command, or -1 - y for another command y.
    """

    item: Array  # int64 [n]
    action: Array  # int64 [n]: see unroll.py
    loops: LoopCommands
    room: Array  # int64 [3]: the number of station entries for loads, execute commands and stores


@part
def stream(u: int, x: int) -> int:
    """Return the row offset of stream `x` of unroller `u`."""
    return row_offset(5 * u + x)


@part
def queue_of(x: int) -> int:
    """Return the queue of the reservation station for the commands of stream `x`."""
    return ST if x == STORE else EX if x == EXECUTE else LD


@part
def idle_streams(m: Array, u: int) -> int:
    idle = 0
    for x in range(5):
        row = stream(u, x)
        if m[row + STREAM.active] == 0 and m[row + STREAM.early] < 0 and m[row + STREAM.late] < 0:
            idle |= 1 << x
    return idle


@part
def is_elsewhere(m: Array, u: int, idle: int, x: int, slot: int) -> bool:
    """Return whether stream `x` has no more commands for the loop in `slot`."""
    return bool(m[stream(u, x) + STREAM.slot] != slot or (idle >> x) & 1)


@part
def pause(m: Array, plan: FrontPlan, row: int, loop: int) -> int:
    """Return the number of cycles that a stream spends on skipped steps before its next command or at its end."""
    due = m[row + STREAM.next]
    return plan.loops.idle[due] if due < m[row + STREAM.end] else plan.loops.tail[loop]


def advance_slots(m: Array, plan: FrontPlan, u: int, idle: int, residual: bool) -> bool:
    """Record ended streams, start idle streams on new loops, and free the older slot when its loop is done.

    `idle` is the mask of streams that were idle at the start of the cycle. In a residual addition (`residual`), stores
    need not wait until the execute stream has started. Returns whether anything changed.
    """
    head = m[FRONT.head + u]
    first = row_offset(2 * u + head)
    # Use the values at the start of the cycle: a stream that starts now must not start another stream.
    started = m[at(SLOT.started, 2 * u)], m[at(SLOT.started, 2 * u + 1)]
    moved = done = m[first + SLOT.finished] == ALL_BITS
    for x in range(5):
        if not (idle >> x) & 1:
            continue
        row = stream(u, x)
        finished = at(SLOT.finished, 2 * u + m[row + STREAM.slot])
        if ((started[m[row + STREAM.slot]] & ~m[finished]) >> x) & 1:
            m[finished] |= 1 << x
            moved = True
        # A stream that has started on the older loop continues with the newer loop. Within a loop, the execute stream
        # starts after all load streams have started, and the store stream starts after the execute stream.
        which = 1 - head if (started[head] >> x) & 1 else head
        slot = row_offset(2 * u + which)
        before = started[which]
        waits = x == EXECUTE and before & LOAD_BITS != LOAD_BITS
        waits = waits or (x == STORE and not residual and before & EXECUTE_BIT == 0)
        if m[slot + SLOT.configured] == 0 or (before >> x) & 1 or waits:
            continue
        moved = True
        m[slot + SLOT.started] |= 1 << x
        loop = m[slot + SLOT.loop]
        m[row + STREAM.active] = 1
        m[row + STREAM.slot] = which
        m[row + STREAM.next] = plan.loops.starts[loop, x]
        m[row + STREAM.end] = plan.loops.starts[loop, x + 1]
        m[row + STREAM.idle] = pause(m, plan, row, loop) if x == EXECUTE else 0
    if done:
        m[first + SLOT.configured] = m[first + SLOT.started] = m[first + SLOT.finished] = 0
        m[FRONT.head + u] = 1 - head
    m[FRONT.settled + u] = -1 if moved else idle
    return bool(moved)


@part
def has_room(m: Array, plan: FrontPlan, u: int, queue: int) -> bool:
    """Return whether an unroller may send one more command to a queue of the station."""
    return bool(m[FRONT.unfinished + 3 * u + queue] < plan.room[queue])


@part
def offered_by_matmul(m: Array, plan: FrontPlan, idle: int, residual: bool) -> int:
    """Return the stream that offers its next command, or NOTHING. `idle` is the result of `idle_streams`."""
    # The priority is C, execute, D, then A or B (LoopMatmul.scala: arb). For each kind of command, an unroller has at
    # most as many unfinished commands as the station has entries, so one kind cannot block another kind.
    if has_room(m, plan, OF_MATMUL, ST) and _store_is_due(m, plan, idle, residual):
        return STORE
    if has_room(m, plan, OF_MATMUL, EX) and _execute_is_due(m, plan, idle):
        return EXECUTE
    if not has_room(m, plan, OF_MATMUL, LD):
        return NOTHING
    if _has_next(m, LOAD_D):
        return LOAD_D
    chosen = _a_or_b(m, plan, idle, residual)
    return chosen if _has_next(m, chosen) else NOTHING


@part
def _has_next(m: Array, x: int) -> bool:
    row = stream(OF_MATMUL, x)
    return bool(m[row + STREAM.active] != 0 and m[row + STREAM.next] < m[row + STREAM.end])


@part
def _counter(m: Array, plan: FrontPlan, x: int, column: int) -> int:
    """Return a loop counter of a stream's next command. After the last command, the counter is 0, as in the RTL."""
    return plan.loops.at[m[stream(OF_MATMUL, x) + STREAM.next], column] if _has_next(m, x) else 0


@part
def _store_is_due(m: Array, plan: FrontPlan, idle: int, residual: bool) -> bool:
    if not _has_next(m, STORE):
        return False
    slot = m[stream(OF_MATMUL, STORE) + STREAM.slot]
    due = m[stream(OF_MATMUL, STORE) + STREAM.next]
    last_k = plan.loops.at[due, 0]
    columns = plan.loops.at[due, 1]
    i = plan.loops.at[due, 2]
    # A store may start after the last product of its blocks. In a residual addition, a store may start after the loads
    # of B's blocks.
    if residual:
        if is_elsewhere(m, OF_MATMUL, idle, LOAD_A, slot) and is_elsewhere(m, OF_MATMUL, idle, LOAD_B, slot):
            return True
        row, column = _counter(m, plan, LOAD_B, 0), _counter(m, plan, LOAD_B, 1)
        return row > i or (row == i and column >= columns)
    if is_elsewhere(m, OF_MATMUL, idle, EXECUTE, slot):
        return True
    k = _counter(m, plan, EXECUTE, 0)
    j = _counter(m, plan, EXECUTE, 1)
    row = _counter(m, plan, EXECUTE, 2)
    return k == last_k and (j >= columns or (j == columns - 1 and row > i))


@part
def _execute_is_due(m: Array, plan: FrontPlan, idle: int) -> bool:
    slot = m[stream(OF_MATMUL, EXECUTE) + STREAM.slot]
    if not _has_next(m, EXECUTE) or not is_elsewhere(m, OF_MATMUL, idle, LOAD_D, slot):
        return False
    due = m[stream(OF_MATMUL, EXECUTE) + STREAM.next]
    k = plan.loops.at[due, 0]
    j = plan.loops.at[due, 1]
    i = plan.loops.at[due, 2]
    a_k = _counter(m, plan, LOAD_A, 0)
    a_i = _counter(m, plan, LOAD_A, 1)
    if not (is_elsewhere(m, OF_MATMUL, idle, LOAD_A, slot) or a_k > k or (a_k == k and a_i > i)):
        return False
    b_k = _counter(m, plan, LOAD_B, 0)
    b_j = _counter(m, plan, LOAD_B, 1)
    # As in the RTL, the check of B's progress compares k with the counter of A.
    return is_elsewhere(m, OF_MATMUL, idle, LOAD_B, slot) or b_k > k or (a_k == k and b_j > j)


@part
def _a_or_b(m: Array, plan: FrontPlan, idle: int, residual: bool) -> int:
    """Return the load stream that the arbiter of A and B selects (WeightedArbiter.scala: forceA, forceB)."""
    # The stream of the older loop has priority. Within a loop, B's first block comes first; then A is selected until A
    # is ahead of B.
    a_idle, b_idle = (idle >> LOAD_A) & 1 == 1, (idle >> LOAD_B) & 1 == 1
    slot_a, slot_b = m[stream(OF_MATMUL, LOAD_A) + STREAM.slot], m[stream(OF_MATMUL, LOAD_B) + STREAM.slot]
    if residual and slot_a == slot_b:
        return LOAD_B if a_idle else LOAD_A
    if slot_a != slot_b:
        if slot_a == m[FRONT.head + OF_MATMUL] and not residual:
            return LOAD_A
        if slot_b == m[FRONT.head + OF_MATMUL] or (residual and a_idle):
            return LOAD_B
    if a_idle or b_idle:
        return LOAD_B if a_idle else LOAD_A
    a_k = _counter(m, plan, LOAD_A, 0)
    b_k = _counter(m, plan, LOAD_B, 0)
    b_j = _counter(m, plan, LOAD_B, 1)
    return LOAD_B if a_k > b_k or (b_k == 0 and b_j == 0) else LOAD_A


@part
def step_matmul(m: Array, sent: int) -> bool:
    """Advance all streams, after stream `sent` (or NOTHING) has sent a command. Return whether any stream advanced."""
    moved = sent >= 0
    if moved:
        row = stream(OF_MATMUL, sent)
        m[row + STREAM.next] += 1
        if m[row + STREAM.next] == m[row + STREAM.end]:
            m[row + STREAM.active] = 0
    # The stream of an absent operand ends as soon as it starts.
    if m[FRONT.settled + OF_MATMUL] < 0:
        for x in range(5):
            row = stream(OF_MATMUL, x)
            if m[row + STREAM.active] != 0 and m[row + STREAM.next] == m[row + STREAM.end]:
                m[row + STREAM.active] = 0
                moved = True
    return moved


@part
def offered_by_conv(m: Array, plan: FrontPlan) -> int:
    """Return the stream that offers the oldest command in its pipeline, or NOTHING."""
    # Streams are numbered by priority (LoopConv.scala: arb).
    for x in range(5):
        if m[stream(OF_CONV, x) + STREAM.late] >= 0 and has_room(m, plan, OF_CONV, queue_of(x)):
            return x
    return NOTHING


@part
def step_conv(m: Array, plan: FrontPlan, idle: int, sent: int) -> bool:
    """Advance all streams, after stream `sent` (or NOTHING) has sent a command. Return whether any stream advanced."""
    moved = sent >= 0
    slot = m[stream(OF_CONV, EXECUTE) + STREAM.slot]
    # Execute commands wait for all loads of their loop. Stores wait for all execute commands of their loop. If the
    # execute stream's loop still has loads, the loads of the next loop wait.
    ahead = True
    for x in range(LOAD_D, LOAD_A + 1):
        ahead = ahead and is_elsewhere(m, OF_CONV, idle, x, slot)
    started = m[at(SLOT.started, 2 * OF_CONV + slot)]
    finished = m[at(SLOT.finished, 2 * OF_CONV + slot)]
    waiting = (started >> EXECUTE) & 1 == 1 and (finished >> EXECUTE) & 1 == 0 and finished & LOAD_BITS != LOAD_BITS
    executed = is_elsewhere(m, OF_CONV, idle, EXECUTE, m[stream(OF_CONV, STORE) + STREAM.slot])
    for x in range(5):
        row = stream(OF_CONV, x)
        if x == STORE:
            free = executed
        elif x == EXECUTE:
            free = ahead
        else:
            free = not (waiting and m[row + STREAM.slot] != slot)
        if m[row + STREAM.active] != 0 or m[row + STREAM.early] >= 0 or m[row + STREAM.late] >= 0:
            loop = m[at(SLOT.loop, 2 * OF_CONV + m[row + STREAM.slot])]
            moved |= _step_stream(m, row, plan, loop, x == EXECUTE, free, x == sent)
    return moved


@part
def _step_stream(m: Array, row: int, plan: FrontPlan, loop: int, execute: bool, free: bool, sent: bool) -> bool:
    """Advance the stream at row offset `row`, and return whether the stream changed.

    With `free`, the stream may move a command into its pipeline. With `sent`, the command in the last stage has left.
    """
    early = m[row + STREAM.early]
    stalled = m[row + STREAM.late] >= 0 and not sent
    moved = not stalled and early >= 0
    if not stalled:
        m[row + STREAM.late] = early
        m[row + STREAM.early] = -1
    if m[row + STREAM.active] == 0:
        return moved
    if m[row + STREAM.idle] > 0:
        moved = True
        m[row + STREAM.idle] -= 1
    elif m[row + STREAM.next] < m[row + STREAM.end] and free and not (stalled and early >= 0):
        moved = True
        m[row + STREAM.early] = m[row + STREAM.next]
        m[row + STREAM.next] += 1
        if execute:
            m[row + STREAM.idle] = pause(m, plan, row, loop)
    if m[row + STREAM.next] == m[row + STREAM.end] and m[row + STREAM.idle] == 0:
        m[row + STREAM.active] = 0
        return True
    return moved
