"""Translation, the crossbar with its buffers, and the memory behind it.

TLBuffers hold two elements each way (rocket-chip's defaults). The memory answers in order, one beat a cycle.
"""

from __future__ import annotations

from .jit import callee
from .queues import peek, pop, push, ready
from .state import *

GET, PUT, LAST_PUT = range(3)


@callee
def translate(m: Chip) -> None:
    """Decide which requests pass their translation in this cycle (FrontendTLB.scala).

    Each client keeps the page of its last request. Others ask the shared TLB, which takes one client a cycle; the
    other one must try again.
    """
    s = m.s
    reader = s[RX_VALID] and not s[RX_HIT]
    writer = s[WX_ASKED] and not s[WX_HIT]
    if reader and writer:
        if s[TLB_LAST] == 0:
            writer = 0
        else:
            reader = 0
    s[RT_HIT], s[WT_HIT] = s[RT_PAGE] == s[R_PAGE], s[WT_PAGE] == s[W_PAGE]
    s[RX_OK], s[WX_OK] = s[RX_HIT] or reader, s[WX_HIT] or writer
    if reader:
        s[R_PAGE], s[TLB_LAST] = s[RX_PAGE], 1
    if writer:
        s[W_PAGE], s[TLB_LAST] = s[WX_PAGE], 0


@callee
def step_bus(m: Chip, t: int) -> None:
    """Move requests to the memory and beats back, one step each."""
    s = m.s
    if m.n[D_WRITE]:
        pop(m, D_WRITE, t)
        s[W_XACTS] -= 1
        s[W_FREED] = t
    if m.n[A_OUT]:
        item = pop(m, A_OUT, t)
        if item & 3 != PUT:
            place = s[MEM_HEAD] + s[MEM_N]
            place -= m.memory.shape[0] if place >= m.memory.shape[0] else 0
            answer = m.memory[place]
            answer[0], answer[1] = t + m.p[LATENCY], item >> 2 & 0xFF if item & 3 == GET else 1
            answer[2] = item >> 10 << 1 | (item & 3 != GET)
            s[MEM_N] += 1
    arbitrate(m, t)
    if m.n[D_IN]:
        beat = peek(m, D_IN, 0)
        queue = D_WRITE if beat & 1 else D_READ
        if ready(m, queue, t):
            pop(m, D_IN, t)
            push(m, queue, beat >> 1)
    if s[MEM_N] and m.memory[s[MEM_HEAD], 0] <= t and ready(m, D_IN, t):
        answer = m.memory[s[MEM_HEAD]]
        s[MEM_BEAT] += 1
        last = s[MEM_BEAT] == answer[1]
        push(m, D_IN, (answer[2] >> 1) << 2 | last << 1 | (answer[2] & 1))
        if last:
            s[MEM_BEAT] = 0
            s[MEM_N] -= 1
            s[MEM_HEAD] = s[MEM_HEAD] + 1 if s[MEM_HEAD] + 1 < m.memory.shape[0] else 0


@callee
def arbitrate(m: Chip, t: int) -> None:
    """Let one client's request into the memory's buffer: the one that did not win last; a Put keeps the bus."""
    s = m.s
    if (m.n[A_READ] == 0 and m.n[A_WRITE] == 0) or not ready(m, A_OUT, t):
        return
    if s[XBAR_LEFT]:
        queue = A_WRITE
        if m.n[A_WRITE] == 0:
            return
    elif m.n[A_READ] and m.n[A_WRITE]:
        queue = A_READ if s[XBAR_LAST] else A_WRITE
    else:
        queue = A_READ if m.n[A_READ] else A_WRITE
    item = pop(m, queue, t)
    if queue == A_WRITE:
        s[XBAR_LAST], s[XBAR_LEFT] = 1, item & 3 == PUT
    else:
        s[XBAR_LAST] = 0
        item = item << 10 | (m.xacts[item, T_SIZE] // m.p[BUS]) << 2 | GET
    push(m, A_OUT, item)
