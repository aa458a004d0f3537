"""The DMA writer (DMA.scala: StreamWriter), and the scale pipeline of the accumulator that feeds it."""

from __future__ import annotations

from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.bus import packet
from tilewright.targets.gemmini.timing.chip import Chip, count, moved, peek, pop, push, ready

ACTIVE = 0
A_WRITE, ISSUE = 12, 19
PIPED = -2
PUT, LAST_PUT = 1, 2
KIND, ADDR, BYTES, OF_BLOCK, ENDS, VADDR = 0, 1, 2, 3, 4, 5  # columns of `Chip.stores`
SPAD, ACC = 0, 1
FREED_AT, XACTS, T_VALID, T_ITEM, T_PAGE, T_HIT = 0, 2, 3, 4, 5, 6
X_VALID, X_ITEM, X_PAGE, X_HIT, X_ASKED, X_OK = 7, 8, 9, 10, 11, 12
#: More registers: the beats of the request in hand that are left and the page of it; the address, bytes and bytes sent
#: of the row; the stages of the scale pipeline (bits), and whether the first one is stalled; a request that a retry
#: displaced; what the writer does.
BEATS, PAGE_OF, W_VADDR, W_BYTES, SENT, PIPE, FULL, S_VALID, S_ITEM, S_PAGE, STATE = (
    14,
    15,
    16,
    17,
    18,
    19,
    20,
    21,
    22,
    23,
    24,
)
IDLE, NEW_REQUEST, IN_REQUEST = range(3)
#: The last stages of the scale pipeline, and of a pipe behind a bank of the scratchpad.
LAST_SCALE, LAST_STAGE = 1 << 7, 1 << 3
DMA_PIPE = 3  # a column of banks
LG_PAGE = 12


@part
def step_writer(m: Chip, t: int) -> None:
    """Run the writer: a request of some beats for each packet of the row in hand; then take the next row."""
    r = m.writer
    if step_translation(m, t) and r[STATE] and r[XACTS] + (r[FREED_AT] == t) < m.size.writes:
        write_beat(m)
    go = False
    if count(m, ISSUE) and r[STATE] == IDLE:
        w = m.stores[peek(m, ISSUE, 0)]
        if w[KIND] == ACC:
            go = r[PIPE] & LAST_SCALE != 0
            if go:
                r[PIPE] &= ~LAST_SCALE
        elif w[KIND] == SPAD:
            b = m.bank[w[ADDR] >> m.size.lg_spad_bank]
            go = b[DMA_PIPE] & LAST_STAGE != 0
            if go:
                b[DMA_PIPE] &= ~LAST_STAGE
        else:
            go = True
        if go:
            pop(m, ISSUE, PIPED)
            r[STATE] = NEW_REQUEST if w[ENDS] else IDLE
            r[W_VADDR], r[W_BYTES], r[SENT] = w[VADDR], w[OF_BLOCK] * m.size.dim + w[BYTES], 0
    if r[PIPE]:
        after = moved(r[PIPE], LAST_SCALE)
        if after != r[PIPE]:
            m.wire[ACTIVE] = 1
        r[PIPE] = after
    r[FULL] = r[PIPE] & 1


@part
def step_translation(m: Chip, t: int) -> bool:
    """Move requests through translation in two stages; return whether the first one takes a new request."""
    r = m.writer
    free, retry = r[X_VALID] == 0, False
    if r[X_VALID]:
        m.wire[ACTIVE] = 1
        if not r[X_OK]:
            free = retry = True
        elif ready(m, A_WRITE, t):
            push(m, A_WRITE, r[X_ITEM])
            free = True
    item, page, displaced = r[X_ITEM], r[X_PAGE], r[S_VALID] != 0
    moves = free and r[T_VALID] != 0
    room = free or r[T_VALID] == 0
    r[X_ASKED], r[X_HIT] = moves, r[T_HIT]
    if free:
        r[X_VALID] = moves and not retry
    if moves:
        m.wire[ACTIVE] = 1
        r[X_ITEM], r[X_PAGE], r[T_VALID] = r[T_ITEM], r[T_PAGE], 0
        if retry:
            r[S_VALID], r[S_ITEM], r[S_PAGE] = 1, r[T_ITEM], r[T_PAGE]
    if retry:
        r[T_VALID], r[T_ITEM], r[T_PAGE] = 1, item, page
    elif displaced and room:
        r[T_VALID], r[T_ITEM], r[T_PAGE], r[S_VALID] = 1, r[S_ITEM], r[S_PAGE], 0
    return room and not retry and not displaced


@part
def write_beat(m: Chip) -> None:
    """Send a beat."""
    r = m.writer
    if r[STATE] == NEW_REQUEST:
        size, useful = packet(m, r[W_VADDR], r[W_BYTES] - r[SENT])
        r[PAGE_OF], r[BEATS] = (r[W_VADDR] & ~(size - 1)) >> LG_PAGE, size >> m.size.lg_bus
        r[W_VADDR] += useful
        r[SENT] += useful
        r[XACTS] += 1
    r[BEATS] -= 1
    r[T_VALID], r[T_PAGE], r[T_ITEM] = 1, r[PAGE_OF], PUT if r[BEATS] else LAST_PUT
    r[STATE] = IN_REQUEST if r[BEATS] else NEW_REQUEST if r[SENT] < r[W_BYTES] else IDLE
    m.wire[ACTIVE] = 1
