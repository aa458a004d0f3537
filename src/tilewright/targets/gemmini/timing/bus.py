"""Translation, the crossbar with its buffers, and the memory behind it.

TLBuffers hold two elements each way (rocket-chip's defaults). The memory answers in order, one beat a cycle.
"""

from __future__ import annotations

from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.chip import Chip, count, peek, pop, push, ready

ACTIVE = 0
A_READ, A_WRITE, A_OUT, D_IN, D_READ, D_WRITE = 11, 12, 13, 14, 15, 16
#: The first registers of reader and writer: the cycle in which a transaction ended last, the page translated last,
#: transactions; a request before translation and whether its page is that one; behind it, with whether the shared TLB
#: was asked, and whether it may pass.
FREED_AT, PAGE, XACTS, T_VALID, T_ITEM, T_PAGE, T_HIT, X_VALID, X_ITEM, X_PAGE, X_HIT, X_ASKED, X_OK = range(13)
#: Registers of the bus: the client (1: writer) that the TLB served last, and the crossbar; whether a Put holds it;
#: answers to come, and beats of the first that have left.
TLB_LAST, LAST, HELD, FIRST, ANSWERS, BEAT = range(6)
#: What a request is.
GET, PUT, LAST_PUT = range(3)
SIZE = 3  # a column of transactions


@part
def translate(m: Chip) -> None:
    """Decide which requests pass their translation in this cycle (FrontendTLB.scala).

    Each client keeps the page of its last request. Others ask the shared TLB, which takes one client a cycle; the
    other one must try again.
    """
    r, w, bus = m.reader, m.writer, m.bus
    read, write = r[X_VALID] and not r[X_HIT], w[X_ASKED] and not w[X_HIT]
    if read and write:
        read, write = bus[TLB_LAST] == 0, bus[TLB_LAST] != 0
    r[T_HIT], w[T_HIT] = r[T_PAGE] == r[PAGE], w[T_PAGE] == w[PAGE]
    r[X_OK], w[X_OK] = r[X_HIT] or read, w[X_HIT] or write
    if read:
        r[PAGE], bus[TLB_LAST] = r[X_PAGE], 1
    if write:
        w[PAGE], bus[TLB_LAST] = w[X_PAGE], 0


@part
def step_bus(m: Chip, t: int) -> None:
    """Move requests to the memory and beats back, one step each."""
    bus = m.bus
    if count(m, D_WRITE):
        pop(m, D_WRITE, t)
        m.writer[XACTS] -= 1
        m.writer[FREED_AT] = t
    if count(m, A_OUT):
        item = pop(m, A_OUT, t)
        if item & 3 != PUT:
            answer = m.memory[around(m, bus[FIRST] + bus[ANSWERS])]
            answer[0], answer[1] = t + m.size.latency, item >> 2 & 0xFF if item & 3 == GET else 1
            answer[2] = item >> 10 << 1 | (item & 3 != GET)
            bus[ANSWERS] += 1
    if count(m, A_READ) + count(m, A_WRITE) and ready(m, A_OUT, t):
        arbitrate(m, t)
    if count(m, D_IN):
        beat = peek(m, D_IN, 0)
        queue = D_WRITE if beat & 1 else D_READ
        if ready(m, queue, t):
            pop(m, D_IN, t)
            push(m, queue, beat >> 1)
    if bus[ANSWERS] and m.memory[bus[FIRST], 0] <= t and ready(m, D_IN, t):
        answer = m.memory[bus[FIRST]]
        bus[BEAT] += 1
        last = bus[BEAT] == answer[1]
        push(m, D_IN, answer[2] >> 1 << 2 | last << 1 | answer[2] & 1)
        if last:
            bus[BEAT] = 0
            bus[ANSWERS] -= 1
            bus[FIRST] = around(m, bus[FIRST] + 1)


@part
def around(m: Chip, place: int) -> int:
    """Return a place in the ring of answers."""
    return place - m.memory.shape[0] if place >= m.memory.shape[0] else place


@part
def arbitrate(m: Chip, t: int) -> None:
    """Let one client's request into the memory's buffer: of the one that did not win last; a Put keeps the bus."""
    bus = m.bus
    write = count(m, A_WRITE) > 0 and (count(m, A_READ) == 0 or bus[HELD] != 0 or bus[LAST] == 0)
    if write:
        item = pop(m, A_WRITE, t)
        bus[LAST], bus[HELD] = 1, item == PUT
    elif not bus[HELD]:
        item = pop(m, A_READ, t)
        bus[LAST] = 0
        item = item << 10 | m.xacts[item, SIZE] >> m.size.lg_bus << 2
    else:
        return
    push(m, A_OUT, item)


@part
def packet(m: Chip, vaddr: int, left: int) -> tuple[int, int]:
    """Return the size of the next request, and its useful bytes: the smallest size with the most (DMA.scala)."""
    size = 1 << m.size.lg_bus
    best, most = size, min(size - (vaddr & (size - 1)), left)
    while size < m.size.dma_bytes:
        size *= 2
        useful = min(size - (vaddr & (size - 1)), left)
        if useful > most:
            best, most = size, useful
    return best, most
