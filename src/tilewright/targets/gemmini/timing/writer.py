"""The DMA writer (DMA.scala: StreamWriter), and the scale pipeline of the accumulator that feeds it."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.bus import packet
from tilewright.targets.gemmini.timing.chip import at, count, moved, peek, push, ready, take

PUT, LAST_PUT = 1, 2
KIND, ADDR, BYTES, OF_BLOCK, ENDS, VADDR, OF_SLOT, OF_PRIM = range(8)  # columns of STORED
SPAD, ACC = 0, 1
#: Registers: those of bus.py; the beats of the request in hand that are left and the page of it; the address, bytes and
#: bytes sent of the row; a request that a retry displaced; the command of the row.
FREED_AT, _, XACTS, T_VALID, T_ITEM, T_PAGE, T_HIT, X_VALID, X_ITEM, X_PAGE, X_HIT, X_ASKED, X_OK = range(
    c.WRITER, c.WRITER + 13
)
BEATS, PAGE_OF, W_VADDR, W_BYTES, SENT, S_VALID, S_ITEM, S_PAGE, W_PRIM = range(c.WRITER + 13, c.WRITER + 22)
IDLE, NEW_REQUEST, IN_REQUEST = range(3)
LAST_SCALE = 1 << 7  # the last stage of the scale pipeline
ARRIVED = c.TO_WRITER + c.LAST_STAGE
LG_PAGE = 12


@part
def writer_works(m: Array) -> bool:
    """Return whether `step_writer` is needed in this cycle."""
    translating = m[T_VALID] + m[X_VALID] + m[X_ASKED] + m[S_VALID]
    return translating + m[c.WRITER_STATE] + m[c.PIPE] + m[c.FULL] + count(m, c.ISSUE) > 0


@called
def step_writer(m: Array, t: int) -> None:
    """Run the writer: a request of some beats for each packet of the row in hand; then take the next row."""
    if step_translation(m, t) and m[c.WRITER_STATE] and m[XACTS] + (m[FREED_AT] == t) < m[c.MAX_WRITES]:
        write_beat(m)
    go = False
    if count(m, c.ISSUE) and m[c.WRITER_STATE] == IDLE:
        w = at(c.STORED, peek(m, c.ISSUE, 0))
        if m[w + KIND] == ACC:
            go = m[c.PIPE] & LAST_SCALE != 0
            if go:
                m[c.PIPE] &= ~LAST_SCALE
        elif m[w + KIND] == SPAD:
            bank = 1 << (m[w + ADDR] >> m[c.LG_SPAD_BANK])
            go = m[ARRIVED] & bank != 0
            m[ARRIVED] &= ~bank
        else:
            go = True
        if go:
            take(m, c.ISSUE)
            m[c.WRITER_STATE] = NEW_REQUEST if m[w + ENDS] else IDLE
            m[W_VADDR], m[W_BYTES], m[SENT] = m[w + VADDR], m[w + OF_BLOCK] * m[c.DIM] + m[w + BYTES], 0
            m[W_PRIM] = m[w + OF_PRIM]
    if m[c.PIPE]:
        after = moved(m[c.PIPE], LAST_SCALE)
        if after != m[c.PIPE]:
            m[c.ACTIVE] = 1
        m[c.PIPE] = after
    m[c.FULL] = m[c.PIPE] & 1


@called
def step_translation(m: Array, t: int) -> bool:
    """Move requests through translation in two stages; return whether the first one takes a new request."""
    free, retry = m[X_VALID] == 0, False
    if m[X_VALID]:
        m[c.ACTIVE] = 1
        if not m[X_OK]:
            free = retry = True
        elif ready(m, c.A_WRITE, t):
            push(m, c.A_WRITE, m[X_ITEM])
            free = True
    item, page, displaced = m[X_ITEM], m[X_PAGE], m[S_VALID] != 0
    moves = free and m[T_VALID] != 0
    room = free or m[T_VALID] == 0
    m[X_ASKED], m[X_HIT] = moves, m[T_HIT]
    if free:
        m[X_VALID] = moves and not retry
    if moves:
        m[c.ACTIVE] = 1
        m[X_ITEM], m[X_PAGE], m[T_VALID] = m[T_ITEM], m[T_PAGE], 0
        if retry:
            m[S_VALID], m[S_ITEM], m[S_PAGE] = 1, m[T_ITEM], m[T_PAGE]
    if retry:
        m[T_VALID], m[T_ITEM], m[T_PAGE] = 1, item, page
    elif displaced and room:
        m[T_VALID], m[T_ITEM], m[T_PAGE], m[S_VALID] = 1, m[S_ITEM], m[S_PAGE], 0
    return room and not retry and not displaced


@called
def write_beat(m: Array) -> None:
    """Send a beat."""
    if m[c.WRITER_STATE] == NEW_REQUEST:
        size, useful = packet(m, m[W_VADDR], m[W_BYTES] - m[SENT])
        m[PAGE_OF], m[BEATS] = (m[W_VADDR] & ~(size - 1)) >> LG_PAGE, size >> m[c.LG_BUS]
        m[W_VADDR] += useful
        m[SENT] += useful
        m[XACTS] += 1
    m[BEATS] -= 1
    m[T_VALID], m[T_PAGE], m[T_ITEM] = 1, m[PAGE_OF], PUT if m[BEATS] else LAST_PUT
    m[c.WRITER_STATE] = IN_REQUEST if m[BEATS] else NEW_REQUEST if m[SENT] < m[W_BYTES] else IDLE
    m[c.ACTIVE] = 1
