"""The merge of the streams of LOOP_WS (LoopMatmul.scala, WeightedArbiter.scala of ucb-bar/gemmini at 8c3f992).

Where a condition looks wrong, it is one of the generated RTL: an execute command compares the progress of B with that
of A, and counters of a stream that has ended are 0.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.loops.words import EXECUTE, LOAD_A, LOAD_B, LOAD_D, STORE
from tilewright.targets.gemmini.timing.layout import at, row_offset
from tilewright.targets.gemmini.timing.unroll_state import FRONT, NOTHING, OF_MATMUL, STREAM, FrontPlan, elsewhere


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
