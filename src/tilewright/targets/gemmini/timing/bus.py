"""Address translation, the crossbar with its buffers, and the memory.

TLBuffers hold two elements each way (rocket-chip's defaults). The memory responds in order with one beat per cycle,
like the memory model in the measurements of the RTL (docs/gemmini.md).
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.layout import at, row_offset
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready
from tilewright.targets.gemmini.timing.records import PLAIN, POINTER, RULE, WIRE, registers, saved, table
from tilewright.targets.gemmini.timing.state import SHARED

#: The kinds of requests, in the two lowest bits of a queue item. The last beat of a write is a LAST_PUT.
GET, PUT, LAST_PUT = range(3)
#: A snapshot has four kinds of pages and rows: pages that the DMA's reader uses, pages that the DMA's writer uses,
#: scratchpad rows and accumulator rows. Within a kind, only the equality of numbers matters.
READ_PAGES, WRITTEN_PAGES, SPAD_ROWS, ACC_ROWS = range(4)
#: The last cycle in which a transaction ended.
FREED = saved(RULE.wire, reset=-1)


class Reader:
    """The DMA's reader. T: the request register before translation. X: the request register after translation."""

    freed_at = FREED
    page = saved(RULE.page, among=READ_PAGES, reset=-1)  # the page that was translated last
    requests = PLAIN  # the number of transactions in flight
    t_valid = PLAIN
    t_item = saved(RULE.transaction, when="t_valid")
    t_page = saved(RULE.page, when="t_valid", among=READ_PAGES)
    t_hit = WIRE  # whether the page of the request in T was translated last
    x_valid = PLAIN
    x_item = saved(RULE.transaction, when="x_valid")
    x_page = saved(RULE.page, when="x_valid", among=READ_PAGES)
    x_hit = saved(when="x_valid")
    x_ok = WIRE  # whether the request may leave X
    busy = PLAIN  # whether the reader has a current row
    slot = saved(when="busy")  # the tracker slot of the load to which the row belongs
    address = saved(RULE.of_load, when="busy", of="slot")
    row = saved(RULE.row_of_load, when="busy", of="slot")
    asked = saved(when="busy")  # the number of bytes of the row that are already requested
    next = POINTER  # the transaction of the next request


class Writer:
    """The DMA's writer.

    T: the request register before translation. X: the request register after translation. S: the register for a request
    that a retry displaced.
    """

    freed_at = FREED
    page = saved(RULE.page, among=WRITTEN_PAGES, reset=-1)
    requests = PLAIN
    t_valid = PLAIN
    t_item = PLAIN
    t_page = saved(RULE.page, among=WRITTEN_PAGES)  # saved even if T is empty: a waiting request may use the page
    t_hit = WIRE
    x_valid = PLAIN
    x_item = PLAIN
    x_page = saved(RULE.page, when=("x_valid", "x_asked"), among=WRITTEN_PAGES)
    x_hit = PLAIN
    x_asked = PLAIN  # whether the request was sent to the shared TLB
    x_ok = WIRE
    beats = PLAIN  # the number of unsent beats of the current request
    page_of = saved(RULE.page, when="beats", among=WRITTEN_PAGES)
    command = saved(RULE.command, when="state")  # the command of the current row
    address = saved(RULE.of_store, when="state", of="command")
    bytes = saved(when="state")
    sent = saved(when="state")
    state = PLAIN
    s_valid = PLAIN
    s_item = PLAIN
    s_page = saved(RULE.page, when="s_valid", among=WRITTEN_PAGES)


class Crossbar:
    """The arbiters of the shared TLB and of the bus. A client is 0 (the reader) or 1 (the writer)."""

    tlb_last = PLAIN  # the client that has priority at the TLB
    last = PLAIN  # the client of the last request that entered the memory's buffer
    held = PLAIN  # whether a write of several beats occupies the bus
    beat = PLAIN  # the number of beats that the first response has sent


class Transaction:
    """A read request of `size` bytes: the first `shift` bytes are skipped, and the next `bytes` bytes are useful."""

    taken = PLAIN
    slot = saved(when="taken")
    bytes = saved(when="taken")
    size = saved(when="taken")
    shift = saved(when="taken")
    offset = saved(when="taken")  # the position of the first useful byte in the on-chip row
    row = saved(RULE.row_of_load, when="taken", of="slot")


class Answer:
    """A future response of the memory.

    For the read of transaction t, `item` is 2 * t. For the acknowledgement of a write, `item` is 1.
    """

    due = saved(RULE.due)
    beats = PLAIN
    item = WIRE  # see snapshot.serialise_bus


READER = registers(Reader, 3)
WRITER = registers(Writer, 4)
CROSSBAR = registers(Crossbar, 5)
TRANSACTIONS = table(Transaction, "transactions")
ANSWERS = table(Answer, "answers")


def translate(m: Array) -> None:
    """Decide which requests complete their translation in this cycle (FrontendTLB.scala)."""
    # Each client stores the page of its last request. A request for another page goes to the shared TLB, which always
    # hits, because the measured runs used no virtual memory. The TLB serves one client per cycle in round-robin order,
    # and the other client must retry.
    read, write = m[READER.x_valid] and not m[READER.x_hit], m[WRITER.x_asked] and not m[WRITER.x_hit]
    if read and write:
        read, write = m[CROSSBAR.tlb_last] == 0, m[CROSSBAR.tlb_last] != 0
    m[READER.t_hit], m[WRITER.t_hit] = m[READER.t_page] == m[READER.page], m[WRITER.t_page] == m[WRITER.page]
    m[READER.x_ok], m[WRITER.x_ok] = m[READER.x_hit] or read, m[WRITER.x_hit] or write
    if read:
        m[READER.page] = m[READER.x_page]
        m[CROSSBAR.tlb_last] = 1
    if write:
        m[WRITER.page] = m[WRITER.x_page]
        m[CROSSBAR.tlb_last] = 0


def step_bus(m: Array, t: int) -> None:
    """Move requests one step towards the memory, and beats one step back towards the clients."""
    if count(m, Q.d_write):
        pop(m, Q.d_write, t)
        m[WRITER.requests] -= 1
        m[WRITER.freed_at] = t
    if count(m, Q.a_out):
        item = pop(m, Q.a_out, t)
        # The memory acknowledges a write after the last beat.
        if item & 3 != PUT:
            answer = row_offset(wrapped_answer(m, m[SHARED.first_answer] + m[SHARED.answers]))
            m[answer + ANSWERS.due] = t + m[SHARED.latency]
            m[answer + ANSWERS.beats] = item >> 2 & 0xFF if item & 3 == GET else 1
            m[answer + ANSWERS.item] = item >> 10 << 1 | (item & 3 != GET)
            m[SHARED.answers] += 1
    if count(m, Q.a_read) + count(m, Q.a_write) and ready(m, Q.a_out, t):
        arbitrate(m, t)
    if count(m, Q.d_in):
        beat = peek(m, Q.d_in, 0)
        queue = Q.d_write if beat & 1 else Q.d_read
        if ready(m, queue, t):
            pop(m, Q.d_in, t)
            push(m, queue, beat >> 1)
    if m[SHARED.answers] and m[at(ANSWERS.due, m[SHARED.first_answer])] <= t and ready(m, Q.d_in, t):
        answer = row_offset(m[SHARED.first_answer])
        m[CROSSBAR.beat] += 1
        m[SHARED.progress] += 1
        last = m[CROSSBAR.beat] == m[answer + ANSWERS.beats]
        push(m, Q.d_in, m[answer + ANSWERS.item] >> 1 << 2 | last << 1 | m[answer + ANSWERS.item] & 1)
        if last:
            m[CROSSBAR.beat] = 0
            m[SHARED.answers] -= 1
            m[SHARED.first_answer] = wrapped_answer(m, m[SHARED.first_answer] + 1)


@part
def wrapped_answer(m: Array, place: int) -> int:
    """Wrap an index into the ring of responses, which has room for all transactions in flight."""
    size = m[SHARED.max_reads] + m[SHARED.max_writes]
    return place - size if place >= size else place


def arbitrate(m: Array, t: int) -> None:
    """Move one client's request into the memory's buffer. If both clients have requests, they take turns."""
    # A write occupies the bus until its last beat, because TileLink does not interleave the beats of messages.
    write = count(m, Q.a_write) > 0 and (count(m, Q.a_read) == 0 or m[CROSSBAR.held] != 0 or m[CROSSBAR.last] == 0)
    if write:
        item = pop(m, Q.a_write, t)
        m[CROSSBAR.last] = 1
        m[CROSSBAR.held] = item == PUT
    elif not m[CROSSBAR.held]:
        item = pop(m, Q.a_read, t)
        m[CROSSBAR.last] = 0
        item = item << 10 | m[at(TRANSACTIONS.size, item)] >> m[SHARED.lg_bus] << 2
    else:
        return
    push(m, Q.a_out, item)
    m[SHARED.progress] += 1


def packet(m: Array, vaddr: int, left: int) -> tuple[int, int]:
    """Return the size of the next request for `left` bytes at `vaddr`, and the number of useful bytes in it."""
    # A request is aligned to its size. The hardware selects the smallest size that gives the most useful bytes
    # (DMA.scala: read_packet). For example, 16 bytes that cross a 16-byte boundary become one request of 32 bytes
    # [R: gemmini_timing rule 7].
    size = 1 << m[SHARED.lg_bus]
    best = size
    most = min(size - (vaddr & (size - 1)), left)
    while size < m[SHARED.dma_bytes]:
        size *= 2
        useful = min(size - (vaddr & (size - 1)), left)
        if useful > most:
            best = size
            most = useful
    return best, most
