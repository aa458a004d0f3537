"""The merge of the streams of a loop (LoopMatmul.scala, WeightedArbiter.scala, LoopConv.scala, Pipeline.scala).

Where a condition of LOOP_WS looks wrong, it is one of the generated RTL (ucb-bar/gemmini at 8c3f992): an execute
command compares the progress of B with that of A, and counters of a stream that has ended are 0. A command of
LOOP_CONV_WS passes through two stages of a pipeline before it competes with those of the other streams.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.loops.words import EXECUTE, LOAD_A, LOAD_B, LOAD_D, STORE
from tilewright.targets.gemmini.timing.records import at, row_offset
from tilewright.targets.gemmini.timing.unroll_state import (
    FRONT,
    LOAD_BITS,
    NOTHING,
    OF_CONV,
    OF_MATMUL,
    SLOT,
    STREAM,
    FrontPlan,
    elsewhere,
)


@part
def offered_by_matmul(m: Array, plan: FrontPlan, idle: int, residual: bool) -> int:
    """Return the stream whose next command leaves if there is room for it, or NOTHING. `idle` as in idle_streams."""
    room = plan.room
    if m[FRONT.unfinished + 3 * OF_MATMUL + 2] < room[2] and _store_is_due(m, plan, idle, residual):
        return STORE
    if m[FRONT.unfinished + 3 * OF_MATMUL + 1] < room[1] and _execute_is_due(m, plan, idle):
        return EXECUTE
    if m[FRONT.unfinished + 3 * OF_MATMUL + 0] >= room[0]:
        return NOTHING
    if _has_next(m, row_offset(5 * OF_MATMUL + LOAD_D)):
        return LOAD_D
    chosen = _a_or_b(m, plan, idle, residual)
    return chosen if _has_next(m, row_offset(5 * OF_MATMUL + chosen)) else NOTHING


@part
def _has_next(m: Array, own: int) -> bool:
    return bool(m[own + STREAM.active] != 0 and m[own + STREAM.next] < m[own + STREAM.end])


@part
def _counter(m: Array, own: int, plan: FrontPlan, column: int) -> int:
    """Return a counter of a stream: of its next command, or 0 after the last one."""
    return (
        plan.at[m[own + STREAM.next], column]
        if m[own + STREAM.active] != 0 and m[own + STREAM.next] < m[own + STREAM.end]
        else 0
    )


@part
def _store_is_due(m: Array, plan: FrontPlan, idle: int, residual: bool) -> bool:
    own = row_offset(5 * OF_MATMUL + STORE)
    if not _has_next(m, own):
        return False
    last_k, columns, i = (
        plan.at[m[own + STREAM.next], 0],
        plan.at[m[own + STREAM.next], 1],
        plan.at[m[own + STREAM.next], 2],
    )
    if residual:
        if elsewhere(m, OF_MATMUL, idle, LOAD_A, m[own + STREAM.slot]) and elsewhere(
            m, OF_MATMUL, idle, LOAD_B, m[own + STREAM.slot]
        ):
            return True
        row, column = (
            _counter(m, row_offset(5 * OF_MATMUL + LOAD_B), plan, 0),
            _counter(m, row_offset(5 * OF_MATMUL + LOAD_B), plan, 1),
        )
        return bool(row > i or (row == i and column >= columns))
    execute = row_offset(5 * OF_MATMUL + EXECUTE)
    if elsewhere(m, OF_MATMUL, idle, EXECUTE, m[own + STREAM.slot]):
        return True
    k, j, row = _counter(m, execute, plan, 0), _counter(m, execute, plan, 1), _counter(m, execute, plan, 2)
    return bool(k == last_k and (j >= columns or (j == columns - 1 and row > i)))


@part
def _execute_is_due(m: Array, plan: FrontPlan, idle: int) -> bool:
    own = row_offset(5 * OF_MATMUL + EXECUTE)
    if not _has_next(m, own) or not elsewhere(m, OF_MATMUL, idle, LOAD_D, m[own + STREAM.slot]):
        return False
    k, j, i = plan.at[m[own + STREAM.next], 0], plan.at[m[own + STREAM.next], 1], plan.at[m[own + STREAM.next], 2]
    a_k, a_i = (
        _counter(m, row_offset(5 * OF_MATMUL + LOAD_A), plan, 0),
        _counter(m, row_offset(5 * OF_MATMUL + LOAD_A), plan, 1),
    )
    if not (elsewhere(m, OF_MATMUL, idle, LOAD_A, m[own + STREAM.slot]) or a_k > k or (a_k == k and a_i > i)):
        return False
    b_k, b_j = (
        _counter(m, row_offset(5 * OF_MATMUL + LOAD_B), plan, 0),
        _counter(m, row_offset(5 * OF_MATMUL + LOAD_B), plan, 1),
    )
    return elsewhere(m, OF_MATMUL, idle, LOAD_B, m[own + STREAM.slot]) or bool(b_k > k or (a_k == k and b_j > j))


@part
def _a_or_b(m: Array, plan: FrontPlan, idle: int, residual: bool) -> int:
    """Return the load stream that the arbiter of A and B connects."""
    a_idle, b_idle = (idle >> LOAD_A) & 1 == 1, (idle >> LOAD_B) & 1 == 1
    same = m[at(STREAM.slot, 5 * OF_MATMUL + LOAD_A)] == m[at(STREAM.slot, 5 * OF_MATMUL + LOAD_B)]
    if residual and same:
        return LOAD_B if a_idle else LOAD_A
    if not same:
        if m[at(STREAM.slot, 5 * OF_MATMUL + LOAD_A)] == m[FRONT.head + OF_MATMUL] and not residual:
            return LOAD_A
        if m[at(STREAM.slot, 5 * OF_MATMUL + LOAD_B)] == m[FRONT.head + OF_MATMUL] or (residual and a_idle):
            return LOAD_B
    if a_idle:
        return LOAD_B
    if b_idle:
        return LOAD_A
    a_k = _counter(m, row_offset(5 * OF_MATMUL + LOAD_A), plan, 0)
    b_k, b_j = (
        _counter(m, row_offset(5 * OF_MATMUL + LOAD_B), plan, 0),
        _counter(m, row_offset(5 * OF_MATMUL + LOAD_B), plan, 1),
    )
    return LOAD_B if a_k > b_k or (b_k == 0 and b_j == 0) else LOAD_A


@part
def step_matmul(m: Array, sent: int) -> bool:
    """Move all streams after a cycle in which stream `sent` (or NOTHING) sent a command; return whether any moved."""
    moved = sent >= 0
    if moved:
        own = row_offset(5 * OF_MATMUL + sent)
        m[own + STREAM.next] += 1
        m[FRONT.unfinished + 3 * OF_MATMUL + _queue(sent)] += 1
        if m[own + STREAM.next] == m[own + STREAM.end]:
            m[own + STREAM.active] = 0
    if (
        m[FRONT.settled + OF_MATMUL] < 0
    ):  # a stream that has just started may have no command: of an absent operand, for instance
        for x in range(5):
            if (
                m[at(STREAM.active, 5 * OF_MATMUL + x)] != 0
                and m[at(STREAM.next, 5 * OF_MATMUL + x)] == m[at(STREAM.end, 5 * OF_MATMUL + x)]
            ):
                m[at(STREAM.active, 5 * OF_MATMUL + x)] = 0
                moved = True
    return moved


@part
def _queue(x: int) -> int:
    """Return the queue of the reservation station that takes the commands of a stream."""
    return 2 if x == STORE else 1 if x == EXECUTE else 0


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
