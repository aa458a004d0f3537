"""The merge of the streams of LOOP_WS (LoopMatmul.scala, WeightedArbiter.scala of ucb-bar/gemmini at 8c3f992).

Where a condition looks wrong, it is one of the generated RTL: an execute command compares the progress of B with that
of A, and counters of a stream that has ended are 0.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.loops.stream import EXECUTE, LOAD_A, LOAD_B, LOAD_D, STORE
from tilewright.targets.gemmini.timing.unroll_state import NOTHING, STREAM, Front, Plan, elsewhere

U = 0  # the number of this unroller


@part
def offered_by_matmul(front: Front, plan: Plan, idle: int, residual: bool) -> int:
    """Return the stream whose next command leaves if there is room for it, or NOTHING. `idle` as in idle_streams."""
    streams, unfinished, room = front.stream[U], front.unfinished[U], plan.room
    if unfinished[2] < room[2] and _store_is_due(front, plan, idle, residual):
        return STORE
    if unfinished[1] < room[1] and _execute_is_due(front, plan, idle):
        return EXECUTE
    if unfinished[0] >= room[0]:
        return NOTHING
    if _has_next(streams[LOAD_D]):
        return LOAD_D
    chosen = _a_or_b(front, plan, idle, residual)
    return chosen if _has_next(streams[chosen]) else NOTHING


@part
def _has_next(own: Array) -> bool:
    return bool(own[STREAM.active] != 0 and own[STREAM.next] < own[STREAM.end])


@part
def _counter(own: Array, plan: Plan, column: int) -> int:
    """Return a counter of a stream: of its next command, or 0 after the last one."""
    return plan.at[own[STREAM.next], column] if own[STREAM.active] != 0 and own[STREAM.next] < own[STREAM.end] else 0


@part
def _store_is_due(front: Front, plan: Plan, idle: int, residual: bool) -> bool:
    streams = front.stream[U]
    own = streams[STORE]
    if not _has_next(own):
        return False
    last_k, columns, i = plan.at[own[STREAM.next], 0], plan.at[own[STREAM.next], 1], plan.at[own[STREAM.next], 2]
    if residual:
        if elsewhere(front, U, idle, LOAD_A, own[STREAM.slot]) and elsewhere(front, U, idle, LOAD_B, own[STREAM.slot]):
            return True
        row, column = _counter(streams[LOAD_B], plan, 0), _counter(streams[LOAD_B], plan, 1)
        return bool(row > i or (row == i and column >= columns))
    execute = streams[EXECUTE]
    if elsewhere(front, U, idle, EXECUTE, own[STREAM.slot]):
        return True
    k, j, row = _counter(execute, plan, 0), _counter(execute, plan, 1), _counter(execute, plan, 2)
    return bool(k == last_k and (j >= columns or (j == columns - 1 and row > i)))


@part
def _execute_is_due(front: Front, plan: Plan, idle: int) -> bool:
    streams = front.stream[U]
    own = streams[EXECUTE]
    if not _has_next(own) or not elsewhere(front, U, idle, LOAD_D, own[STREAM.slot]):
        return False
    k, j, i = plan.at[own[STREAM.next], 0], plan.at[own[STREAM.next], 1], plan.at[own[STREAM.next], 2]
    a_k, a_i = _counter(streams[LOAD_A], plan, 0), _counter(streams[LOAD_A], plan, 1)
    if not (elsewhere(front, U, idle, LOAD_A, own[STREAM.slot]) or a_k > k or (a_k == k and a_i > i)):
        return False
    b_k, b_j = _counter(streams[LOAD_B], plan, 0), _counter(streams[LOAD_B], plan, 1)
    return elsewhere(front, U, idle, LOAD_B, own[STREAM.slot]) or bool(b_k > k or (a_k == k and b_j > j))


@part
def _a_or_b(front: Front, plan: Plan, idle: int, residual: bool) -> int:
    """Return the load stream that the arbiter of A and B connects."""
    streams = front.stream[U]
    a_idle, b_idle = (idle >> LOAD_A) & 1 == 1, (idle >> LOAD_B) & 1 == 1
    same = streams[LOAD_A, STREAM.slot] == streams[LOAD_B, STREAM.slot]
    if residual and same:
        return LOAD_B if a_idle else LOAD_A
    if not same:
        if streams[LOAD_A, STREAM.slot] == front.head[U] and not residual:
            return LOAD_A
        if streams[LOAD_B, STREAM.slot] == front.head[U] or (residual and a_idle):
            return LOAD_B
    if a_idle:
        return LOAD_B
    if b_idle:
        return LOAD_A
    a_k = _counter(streams[LOAD_A], plan, 0)
    b_k, b_j = _counter(streams[LOAD_B], plan, 0), _counter(streams[LOAD_B], plan, 1)
    return LOAD_B if a_k > b_k or (b_k == 0 and b_j == 0) else LOAD_A


@part
def step_matmul(front: Front, sent: int) -> bool:
    """Move all streams after a cycle in which stream `sent` (or NOTHING) sent a command; return whether any moved."""
    streams, moved = front.stream[U], sent >= 0
    if moved:
        own = streams[sent]
        own[STREAM.next] += 1
        front.unfinished[U, _queue(sent)] += 1
        if own[STREAM.next] == own[STREAM.end]:
            own[STREAM.active] = 0
    if front.settled[U] < 0:  # a stream that has just started may have no command: of an absent operand, for instance
        for x in range(5):
            if streams[x, STREAM.active] != 0 and streams[x, STREAM.next] == streams[x, STREAM.end]:
                streams[x, STREAM.active] = 0
                moved = True
    return moved


@part
def _queue(x: int) -> int:
    """Return the queue of the reservation station that takes the commands of a stream."""
    return 2 if x == STORE else 1 if x == EXECUTE else 0
