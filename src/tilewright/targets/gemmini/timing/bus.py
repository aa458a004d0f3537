"""Translation, the crossbar with its buffers, and the memory behind it.

TLBuffers hold two elements each way (rocket-chip's defaults). The memory answers in order, one beat a cycle.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.chip import at, count, peek, pop, push, ready

#: The first registers of reader and writer: the cycle in which a transaction ended last, the page translated last,
#: transactions; a request before translation and whether its page is that one; behind it, with whether the shared TLB
#: was asked, and whether it may pass.
FREED_AT, PAGE, XACTS, T_VALID, T_ITEM, T_PAGE, T_HIT, X_VALID, X_ITEM, X_PAGE, X_HIT, X_ASKED, X_OK = range(13)
#: Registers: the client (1: writer) that the TLB served last, and the crossbar; whether a Put holds it; beats of the
#: first answer that have left.
TLB_LAST, LAST, HELD, BEAT = range(c.BUS, c.BUS + 4)
#: What a request is.
GET, PUT, LAST_PUT = range(3)
SIZE = 3  # a column of transactions


@called
def translate(m: Array) -> None:
    """Decide which requests pass their translation in this cycle (FrontendTLB.scala).

    Each client keeps the page of its last request. Others ask the shared TLB, which takes one client a cycle; the
    other one must try again.
    """
    r, w = c.READER, c.WRITER
    read, write = m[r + X_VALID] and not m[r + X_HIT], m[w + X_ASKED] and not m[w + X_HIT]
    if read and write:
        read, write = m[TLB_LAST] == 0, m[TLB_LAST] != 0
    m[r + T_HIT], m[w + T_HIT] = m[r + T_PAGE] == m[r + PAGE], m[w + T_PAGE] == m[w + PAGE]
    m[r + X_OK], m[w + X_OK] = m[r + X_HIT] or read, m[w + X_HIT] or write
    if read:
        m[r + PAGE], m[TLB_LAST] = m[r + X_PAGE], 1
    if write:
        m[w + PAGE], m[TLB_LAST] = m[w + X_PAGE], 0


@part
def bus_works(m: Array, t: int) -> bool:
    """Return whether `step_bus` is needed in this cycle."""
    if m[c.ANSWERS] and m[at(c.MEMORY, m[c.FIRST_ANSWER])] <= t:
        return True
    requests = count(m, c.A_READ) + count(m, c.A_WRITE) + count(m, c.A_OUT)
    return requests + count(m, c.D_IN) + count(m, c.D_WRITE) > 0


@part
def translates(m: Array) -> bool:
    """Return whether a request waits for its translation."""
    reader, writer = c.READER, c.WRITER
    return m[reader + T_VALID] + m[reader + X_VALID] + m[writer + T_VALID] + m[writer + X_VALID] > 0


@called
def step_bus(m: Array, t: int) -> None:
    """Move requests to the memory and beats back, one step each."""
    if count(m, c.D_WRITE):
        pop(m, c.D_WRITE, t)
        m[c.WRITER + XACTS] -= 1
        m[c.WRITER + FREED_AT] = t
    if count(m, c.A_OUT):
        item = pop(m, c.A_OUT, t)
        if item & 3 != PUT:
            answer = at(c.MEMORY, around(m, m[c.FIRST_ANSWER] + m[c.ANSWERS]))
            m[answer + 0], m[answer + 1] = t + m[c.LATENCY], item >> 2 & 0xFF if item & 3 == GET else 1
            m[answer + 2] = item >> 10 << 1 | (item & 3 != GET)
            m[c.ANSWERS] += 1
    if count(m, c.A_READ) + count(m, c.A_WRITE) and ready(m, c.A_OUT, t):
        arbitrate(m, t)
    if count(m, c.D_IN):
        beat = peek(m, c.D_IN, 0)
        queue = c.D_WRITE if beat & 1 else c.D_READ
        if ready(m, queue, t):
            pop(m, c.D_IN, t)
            push(m, queue, beat >> 1)
    if m[c.ANSWERS] and m[at(c.MEMORY, m[c.FIRST_ANSWER]) + 0] <= t and ready(m, c.D_IN, t):
        answer = at(c.MEMORY, m[c.FIRST_ANSWER])
        m[BEAT] += 1
        m[c.PROGRESS] += 1
        last = m[BEAT] == m[answer + 1]
        push(m, c.D_IN, m[answer + 2] >> 1 << 2 | last << 1 | m[answer + 2] & 1)
        if last:
            m[BEAT] = 0
            m[c.ANSWERS] -= 1
            m[c.FIRST_ANSWER] = around(m, m[c.FIRST_ANSWER] + 1)


@part
def around(m: Array, place: int) -> int:
    """Return a place in the ring of answers."""
    size = m[c.MAX_READS] + m[c.MAX_WRITES]
    return place - size if place >= size else place


@called
def arbitrate(m: Array, t: int) -> None:
    """Let one client's request into the memory's buffer: of the one that did not win last; a Put keeps the bus."""
    write = count(m, c.A_WRITE) > 0 and (count(m, c.A_READ) == 0 or m[HELD] != 0 or m[LAST] == 0)
    if write:
        item = pop(m, c.A_WRITE, t)
        m[LAST], m[HELD] = 1, item == PUT
    elif not m[HELD]:
        item = pop(m, c.A_READ, t)
        m[LAST] = 0
        item = item << 10 | m[at(c.TRANSACTIONS, item) + SIZE] >> m[c.LG_BUS] << 2
    else:
        return
    push(m, c.A_OUT, item)
    m[c.PROGRESS] += 1


@called
def packet(m: Array, vaddr: int, left: int) -> tuple[int, int]:
    """Return the size of the next request, and its useful bytes: the smallest size with the most (DMA.scala)."""
    size = 1 << m[c.LG_BUS]
    best, most = size, min(size - (vaddr & (size - 1)), left)
    while size < m[c.DMA_BYTES]:
        size *= 2
        useful = min(size - (vaddr & (size - 1)), left)
        if useful > most:
            best, most = size, useful
    return best, most
