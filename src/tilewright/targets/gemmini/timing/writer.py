"""The DMA writer (DMA.scala: StreamWriter), and the scale pipeline of the accumulator that feeds it."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.targets.gemmini.timing.bus import LAST_PUT, PUT, WRITER, packet
from tilewright.targets.gemmini.timing.layout import row_offset
from tilewright.targets.gemmini.timing.operands import IN_ACC, IN_SPAD
from tilewright.targets.gemmini.timing.queues import Q, count, peek, push, ready, take
from tilewright.targets.gemmini.timing.state import LG_PAGE, SHARED, TO_WRITER, advance
from tilewright.targets.gemmini.timing.store import OUTGOING

IDLE, NEW_REQUEST, IN_REQUEST = range(3)
LAST_SCALE = 1 << 7  # the last of the eight stages of the scale pipeline


def step_writer(m: Array, t: int) -> None:
    """Run the writer: send the requests of the current row beat by beat, then take the next row."""
    # A beat leaves only if a transaction is free. The condition applies even to the later beats of a write, which
    # already has a transaction (DMA.scala: untranslated_a.valid needs !xactBusy.andR). So if only one write may be in
    # flight, a write of several beats never ends. A transaction that ends in this cycle is free from the next cycle on.
    if (
        step_translation(m, t)
        and m[WRITER.state]
        and m[WRITER.requests] + (m[WRITER.freed_at] == t) < m[SHARED.max_writes]
    ):
        write_beat(m)
    go = False
    if count(m, Q.issue) and m[WRITER.state] == IDLE:
        w = row_offset(peek(m, Q.issue, 0))
        # An accumulator row must have reached the end of the scale pipeline. A scratchpad row must have reached the end
        # of its bank's pipe. An absent row (a window pixel outside of the image) is not read.
        if m[w + OUTGOING.kind] == IN_ACC:
            go = m[SHARED.pipe] & LAST_SCALE != 0
            if go:
                m[SHARED.pipe] &= ~LAST_SCALE
        elif m[w + OUTGOING.kind] == IN_SPAD:
            bank = 1 << (m[w + OUTGOING.row] >> m[SHARED.lg_spad_bank])
            go = m[TO_WRITER.last] & bank != 0
            m[TO_WRITER.last] &= ~bank
        else:
            go = True
        if go:
            take(m, Q.issue)
            # A row that does not end a request, such as a window pixel before the last, stays in the writer.
            m[WRITER.state] = NEW_REQUEST if m[w + OUTGOING.ends] else IDLE
            m[WRITER.address] = m[w + OUTGOING.address]
            m[WRITER.bytes] = m[w + OUTGOING.block] * m[SHARED.dim] + m[w + OUTGOING.bytes]
            m[WRITER.sent] = 0
            m[WRITER.command] = m[w + OUTGOING.command]
    if m[SHARED.pipe]:
        after = advance(m[SHARED.pipe], LAST_SCALE)
        if after != m[SHARED.pipe]:
            m[SHARED.active] = 1
        m[SHARED.pipe] = after
    m[SHARED.full] = m[SHARED.pipe] & 1


def step_translation(m: Array, t: int) -> bool:
    """Move requests through the two stages of translation. Return whether the first stage accepts a new request."""
    # A request without a translation goes back to the first stage. The request of the first stage then moves to a
    # shadow register, and from there back to the first stage (DMA.scala: retry_a, shadow_retry_a).
    free = m[WRITER.x_valid] == 0
    retry = False
    if m[WRITER.x_valid]:
        m[SHARED.active] = 1
        if not m[WRITER.x_ok]:
            free = retry = True
        elif ready(m, Q.a_write, t):
            push(m, Q.a_write, m[WRITER.x_item])
            free = True
    item = m[WRITER.x_item]
    page = m[WRITER.x_page]
    displaced = m[WRITER.s_valid] != 0
    moves = free and m[WRITER.t_valid] != 0
    room = free or m[WRITER.t_valid] == 0
    m[WRITER.x_hit] = m[WRITER.t_hit]
    m[WRITER.x_asked] = moves
    if free:
        m[WRITER.x_valid] = moves and not retry
    if moves:
        m[SHARED.active] = 1
        m[WRITER.x_item] = m[WRITER.t_item]
        m[WRITER.x_page] = m[WRITER.t_page]
        m[WRITER.t_valid] = 0
        if retry:
            m[WRITER.s_valid] = 1
            m[WRITER.s_item] = m[WRITER.t_item]
            m[WRITER.s_page] = m[WRITER.t_page]
    if retry:
        m[WRITER.t_valid] = 1
        m[WRITER.t_item] = item
        m[WRITER.t_page] = page
    elif displaced and room:
        m[WRITER.t_valid] = 1
        m[WRITER.t_item] = m[WRITER.s_item]
        m[WRITER.t_page] = m[WRITER.s_page]
        m[WRITER.s_valid] = 0
    return room and not retry and not displaced


def write_beat(m: Array) -> None:
    """Send a beat of the current row. The first beat of a request reserves a transaction."""
    if m[WRITER.state] == NEW_REQUEST:
        size, useful = packet(m, m[WRITER.address], m[WRITER.bytes] - m[WRITER.sent])
        m[WRITER.page_of] = (m[WRITER.address] & ~(size - 1)) >> LG_PAGE
        m[WRITER.beats] = size >> m[SHARED.lg_bus]
        m[WRITER.address] += useful
        m[WRITER.sent] += useful
        m[WRITER.requests] += 1
    m[WRITER.beats] -= 1
    m[WRITER.t_valid] = 1
    m[WRITER.t_page] = m[WRITER.page_of]
    m[WRITER.t_item] = PUT if m[WRITER.beats] else LAST_PUT
    m[WRITER.state] = IN_REQUEST if m[WRITER.beats] else NEW_REQUEST if m[WRITER.sent] < m[WRITER.bytes] else IDLE
    m[SHARED.active] = 1
