"""The DMA writer (DMA.scala: StreamWriter), and the scale pipeline of the accumulator that feeds it."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.targets.gemmini.timing.bus import LAST_PUT, PUT, WRITER, packet
from tilewright.targets.gemmini.timing.layout import row_offset
from tilewright.targets.gemmini.timing.operands import IN_ACC, IN_SPAD
from tilewright.targets.gemmini.timing.queues import Q, count, peek, push, ready, take
from tilewright.targets.gemmini.timing.state import CHIP, LG_PAGE, TO_WRITER, moved
from tilewright.targets.gemmini.timing.store import STORED

IDLE, NEW_REQUEST, IN_REQUEST = range(3)
LAST_SCALE = 1 << 7  # the last stage of the scale pipeline


def step_writer(m: Array, t: int) -> None:
    """Run the writer: a request of some beats for each packet of the row in hand; then take the next row."""
    if (
        step_translation(m, t)
        and m[WRITER.state]
        and m[WRITER.requests] + (m[WRITER.freed_at] == t) < m[CHIP.max_writes]
    ):
        write_beat(m)
    go = False
    if count(m, Q.issue) and m[WRITER.state] == IDLE:
        w = row_offset(peek(m, Q.issue, 0))
        if m[w + STORED.kind] == IN_ACC:
            go = m[CHIP.pipe] & LAST_SCALE != 0
            if go:
                m[CHIP.pipe] &= ~LAST_SCALE
        elif m[w + STORED.kind] == IN_SPAD:
            bank = 1 << (m[w + STORED.row] >> m[CHIP.lg_spad_bank])
            go = m[TO_WRITER.last] & bank != 0
            m[TO_WRITER.last] &= ~bank
        else:
            go = True
        if go:
            take(m, Q.issue)
            m[WRITER.state] = NEW_REQUEST if m[w + STORED.ends] else IDLE
            m[WRITER.address] = m[w + STORED.address]
            m[WRITER.bytes] = m[w + STORED.block] * m[CHIP.dim] + m[w + STORED.bytes]
            m[WRITER.sent] = 0
            m[WRITER.command] = m[w + STORED.command]
    if m[CHIP.pipe]:
        after = moved(m[CHIP.pipe], LAST_SCALE)
        if after != m[CHIP.pipe]:
            m[CHIP.active] = 1
        m[CHIP.pipe] = after
    m[CHIP.full] = m[CHIP.pipe] & 1


def step_translation(m: Array, t: int) -> bool:
    """Move requests through translation in two stages; return whether the first one takes a new request."""
    free = m[WRITER.x_valid] == 0
    retry = False
    if m[WRITER.x_valid]:
        m[CHIP.active] = 1
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
        m[CHIP.active] = 1
        m[WRITER.x_item], m[WRITER.x_page], m[WRITER.t_valid] = m[WRITER.t_item], m[WRITER.t_page], 0
        if retry:
            m[WRITER.s_valid], m[WRITER.s_item], m[WRITER.s_page] = 1, m[WRITER.t_item], m[WRITER.t_page]
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
    """Send a beat."""
    if m[WRITER.state] == NEW_REQUEST:
        size, useful = packet(m, m[WRITER.address], m[WRITER.bytes] - m[WRITER.sent])
        m[WRITER.page_of], m[WRITER.beats] = (m[WRITER.address] & ~(size - 1)) >> LG_PAGE, size >> m[CHIP.lg_bus]
        m[WRITER.address] += useful
        m[WRITER.sent] += useful
        m[WRITER.requests] += 1
    m[WRITER.beats] -= 1
    m[WRITER.t_valid], m[WRITER.t_page], m[WRITER.t_item] = 1, m[WRITER.page_of], PUT if m[WRITER.beats] else LAST_PUT
    m[WRITER.state] = IN_REQUEST if m[WRITER.beats] else NEW_REQUEST if m[WRITER.sent] < m[WRITER.bytes] else IDLE
    m[CHIP.active] = 1
