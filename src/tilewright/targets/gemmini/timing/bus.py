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

#: The kinds of requests, in the two lowest bits of a queue item. A write of several beats ends with a LAST_PUT.
GET, PUT, LAST_PUT = range(3)
#: The kinds of related numbers in a snapshot: pages of the DMA's reader, pages of the DMA's writer, rows of the
#: scratchpad, rows of the accumulator. For each kind, a snapshot compares only which numbers are equal.
READ_PAGES, WRITTEN_PAGES, SPAD_ROWS, ACC_ROWS = range(4)
#: The last cycle in which a transaction ended.
FREED = saved(RULE.wire, reset=-1)


class Reader:
    """The DMA's reader. T: the request register before translation. X: the request register after translation."""

    freed_at = FREED
    page = saved(RULE.page, among=READ_PAGES, reset=-1)  # the last translated page
    requests = PLAIN  # the number of transactions in flight
    t_valid = PLAIN
    t_item = saved(RULE.transaction, when="t_valid")
    t_page = saved(RULE.page, when="t_valid", among=READ_PAGES)
    t_hit = WIRE  # whether its page is the last translated page
    x_valid = PLAIN
    x_item = saved(RULE.transaction, when="x_valid")
    x_page = saved(RULE.page, when="x_valid", among=READ_PAGES)
    x_hit = saved(when="x_valid")
    x_ok = WIRE  # whether the request may leave X
    busy = PLAIN  # whether there is a current row
    slot = saved(when="busy")  # the load that this row belongs to
    address = saved(RULE.of_load, when="busy", of="slot")
    row = saved(RULE.row_of_load, when="busy", of="slot")
    asked = saved(when="busy")  # the number of requested bytes of the row
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
    t_page = saved(RULE.page, among=WRITTEN_PAGES)  # a waiting request uses this page although T is empty
    t_hit = WIRE
    x_valid = PLAIN
    x_item = PLAIN
    x_page = saved(RULE.page, when=("x_valid", "x_asked"), among=WRITTEN_PAGES)
    x_hit = PLAIN
    x_asked = PLAIN  # whether the request was sent to the shared TLB
    x_ok = WIRE
    beats = PLAIN  # the beats of the current request that are not sent yet
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

    tlb_last = PLAIN  # the last client of the TLB
    last = PLAIN  # the client of the last request that entered the memory's buffer
    held = PLAIN  # whether a Put occupies the bus
    beat = PLAIN  # the number of sent beats of the first answer


class Transaction:
    """A read request: its load, useful bytes, size, skipped bytes before the useful bytes (shift), on-chip target."""

    taken = PLAIN
    slot = saved(when="taken")
    bytes = saved(when="taken")
    size = saved(when="taken")
    shift = saved(when="taken")
    offset = saved(when="taken")  # the position in the row
    row = saved(RULE.row_of_load, when="taken", of="slot")


class Answer:
    """A future answer of the memory. `item`: twice the transaction of a read, or 1 for the end of a write."""

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
    # Each client stores the page of its last request. A request for another page goes to the shared TLB, which serves
    # one client per cycle; the other client must retry. The TLB always hits, because the measured runs used no virtual
    # memory. The shared TLB has a round-robin arbiter: if both clients send a request, the client that was not served
    # last wins.
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
    """Move requests towards the memory, and beats back to the clients, by one step each."""
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
    """Return a place in the ring of answers, which has one place for each transaction."""
    size = m[SHARED.max_reads] + m[SHARED.max_writes]
    return place - size if place >= size else place


def arbitrate(m: Array, t: int) -> None:
    """Move one client's request into the memory's buffer. If both clients have requests, the previous loser wins."""
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
    """Return the size and the useful bytes of the next request, for `left` bytes from `vaddr` on."""
    # Requests are aligned to their size. Among the sizes with the most useful bytes, the hardware selects the smallest
    # size (DMA.scala: read_packet). So 16 bytes across a 16-byte line become one request of 32 bytes [R: gemmini_timing
    # rule 7].
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
