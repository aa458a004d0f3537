"""Queues of registers, and local addresses.

The units run from the last consumer to the first producer. So an element that enters a queue is not seen before the
next cycle, and the free places of a piped queue include the one that was left in this cycle.
"""

from __future__ import annotations

from .jit import callee
from .state import (
    ABSENT,
    ACC_MASK,
    ACTIVE,
    FIRST_PIPED,
    GARBAGE,
    IN_ACC,
    IN_SPAD,
    RING,
    ROW_MASK,
    SPAD_MASK,
    Chip,
)


@callee
def ready(m: Chip, queue: int, t: int) -> bool:
    """Return whether a queue takes an element in cycle `t`."""
    if queue >= FIRST_PIPED:
        return bool(m.n[queue] < m.cap[queue])
    return bool(m.n[queue] + (m.pops[queue] if m.popped[queue] == t else 0) < m.cap[queue])


@callee
def push(m: Chip, queue: int, value: int) -> None:
    """Put an element into a queue that is ready."""
    m.ring[queue, (m.head[queue] + m.n[queue]) & (RING - 1)] = value
    m.n[queue] += 1
    m.s[ACTIVE] = 1


@callee
def peek(m: Chip, queue: int, place: int) -> int:
    """Return the element at a place behind the head."""
    return int(m.ring[queue, (m.head[queue] + place) & (RING - 1)])


@callee
def pop(m: Chip, queue: int, t: int) -> int:
    """Take the head of a queue."""
    head = m.head[queue]
    m.head[queue] = (head + 1) & (RING - 1)
    m.n[queue] -= 1
    m.pops[queue] = m.pops[queue] + 1 if m.popped[queue] == t else 1
    m.popped[queue] = t
    m.s[ACTIVE] = 1
    return int(m.ring[queue, head])


@callee
def is_garbage(m: Chip, word: int) -> bool:
    """Return whether an operand's word has the address that stands for none (LocalAddr.scala)."""
    return bool((word & m.p[GARBAGE]) == m.p[GARBAGE])


@callee
def is_acc(word: int) -> bool:
    """Return whether a word has an address of the accumulator."""
    return bool(word >> 31 & 1)


@callee
def local(m: Chip, word: int) -> tuple[int, int]:
    """Return the kind and the row of an operand's word: ABSENT, IN_SPAD or IN_ACC."""
    if is_garbage(m, word):
        return ABSENT, 0
    if is_acc(word):
        return IN_ACC, int(word & m.p[ACC_MASK])
    return IN_SPAD, int(word & m.p[ROW_MASK] & m.p[SPAD_MASK])


@callee
def moved(stages: int, last: int) -> int:
    """Move a pipeline on (Pipeline.scala), a bit per stage: rows behind a gap move, and all if `last` is empty."""
    stalled = 0
    if stages & last:
        stalled = stop = last
        while stages & stop >> 1:
            stop >>= 1
            stalled |= stop
    return (stages & ~stalled) << 1 | stalled
