"""Translation, the crossbar with its buffers, and the memory behind it.

TLBuffers hold two elements each way (rocket-chip's defaults). The memory answers in order, one beat a cycle, as the
responder did with which the RTL was measured (docs/gemmini.md).
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.layout import at, row_offset
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready
from tilewright.targets.gemmini.timing.records import PLAIN, POINTER, RULE, WIRE, registers, saved, table
from tilewright.targets.gemmini.timing.state import SHARED

#: The kinds of requests, in the two lowest bits of an item. A write of several beats ends with a LAST_PUT.
GET, PUT, LAST_PUT = range(3)
#: Kinds of pages and rows, of which a snapshot sees only whether they are the same: pages of the DMA's reader, pages of
#: its writer, rows of the scratchpad, rows of the accumulator.
READ_PAGES, WRITTEN_PAGES, SPAD_ROWS, ACC_ROWS = range(4)
#: The cycle in which a transaction ended last.
FREED = saved(RULE.wire, reset=-1)


class Reader:
    """The DMA's reader. T: the register of a request before its translation, X: after it."""

    freed_at = FREED
    page = saved(RULE.page, among=READ_PAGES, reset=-1)  # translated last
    requests = PLAIN  # transactions in flight
    t_valid = PLAIN
    t_item = saved(RULE.transaction, when="t_valid")
    t_page = saved(RULE.page, when="t_valid", among=READ_PAGES)
    t_hit = WIRE  # whether its page is the one translated last
    x_valid = PLAIN
    x_item = saved(RULE.transaction, when="x_valid")
    x_page = saved(RULE.page, when="x_valid", among=READ_PAGES)
    x_hit = saved(when="x_valid")
    x_ok = WIRE  # whether it may pass
    busy = PLAIN  # whether there is a current row
    slot = saved(when="busy")  # the load of this row
    address = saved(RULE.of_load, when="busy", of="slot")
    row = saved(RULE.row_of_load, when="busy", of="slot")
    asked = saved(when="busy")  # bytes of the row that are requested
    next = POINTER  # the next transaction


class Writer:
    """The DMA's writer.

    T: the register of a request before its translation, X: after it, S: one displaced by a retry.
    """

    freed_at = FREED
    page = saved(RULE.page, among=WRITTEN_PAGES, reset=-1)
    requests = PLAIN
    t_valid = PLAIN
    t_item = PLAIN
    t_page = saved(RULE.page, among=WRITTEN_PAGES)  # a request that waits asks with it, though T is empty
    t_hit = WIRE
    x_valid = PLAIN
    x_item = PLAIN
    x_page = saved(RULE.page, when=("x_valid", "x_asked"), among=WRITTEN_PAGES)
    x_hit = PLAIN
    x_asked = PLAIN  # whether the shared TLB was asked
    x_ok = WIRE
    beats = PLAIN  # of the current request, still to be sent
    page_of = saved(RULE.page, when="beats", among=WRITTEN_PAGES)
    command = saved(RULE.command, when="state")  # of the current row
    address = saved(RULE.of_store, when="state", of="command")
    bytes = saved(when="state")
    sent = saved(when="state")
    state = PLAIN
    s_valid = PLAIN
    s_item = PLAIN
    s_page = saved(RULE.page, when="s_valid", among=WRITTEN_PAGES)


class Crossbar:
    """The arbiters of the shared TLB and of the bus. A client is 0 (the reader) or 1 (the writer)."""

    tlb_last = PLAIN  # the client that the TLB served last
    last = PLAIN  # the client whose request entered the memory's buffer last
    held = PLAIN  # whether a Put holds the bus
    beat = PLAIN  # beats of the first answer that have left


class Transaction:
    """A read request: its load, useful bytes, size, the useless bytes before them (shift), and the target on chip."""

    taken = PLAIN
    slot = saved(when="taken")
    bytes = saved(when="taken")
    size = saved(when="taken")
    shift = saved(when="taken")
    offset = saved(when="taken")  # in the row
    row = saved(RULE.row_of_load, when="taken", of="slot")


class Answer:
    """An answer of the memory that is due. `item`: twice the transaction of a read, or 1 to acknowledge a write."""

    due = saved(RULE.due)
    beats = PLAIN
    item = WIRE  # see snapshot.serialise_bus


READER = registers(Reader, 3)
WRITER = registers(Writer, 4)
CROSSBAR = registers(Crossbar, 5)
TRANSACTIONS = table(Transaction, "transactions")
ANSWERS = table(Answer, "answers")


def translate(m: Array) -> None:
    """Decide which requests pass their translation in this cycle (FrontendTLB.scala)."""
    # Each client keeps the page of its last request. A request for another page asks the shared TLB, which takes one
    # client a cycle; the other client must try again. The TLB always hits: translation was bare in the measured runs.
    # The shared TLB has a round-robin arbiter: if both ask, the client that was not served last wins.
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
    """Move requests to the memory and beats back, one step each."""
    if count(m, Q.d_write):
        pop(m, Q.d_write, t)
        m[WRITER.requests] -= 1
        m[WRITER.freed_at] = t
    if count(m, Q.a_out):
        item = pop(m, Q.a_out, t)
        # The memory answers a write after its last beat.
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
    """Return a place in the ring of answers, which has a place for each transaction and not a power of two."""
    size = m[SHARED.max_reads] + m[SHARED.max_writes]
    return place - size if place >= size else place


def arbitrate(m: Array, t: int) -> None:
    """Let a client's request into the memory's buffer: of the one that did not win last."""
    # A write keeps the bus until its last beat, because TileLink does not interleave the beats of messages.
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
    """Return the size of the next request in bytes, and how many of them are wanted, of `left` from `vaddr` on."""
    # Requests are aligned to their size. The smallest size with the most wanted bytes is taken (DMA.scala:
    # read_packet), so 16 bytes across a 16-byte line become one request of 32 [R: gemmini_timing rule 7].
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
