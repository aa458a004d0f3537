"""The load controller (LoadController.scala) and the DMA reader (DMA.scala: StreamReaderCore)."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.bus import packet
from tilewright.targets.gemmini.timing.chip import Program, at, count, is_acc, peek, pop, push, ready, take

CONFIG, MVIN2, MVIN3 = 0, 1, 14
#: Registers of the controller: state, row and slot of the load in hand. Of the reader, those of bus.py and then the row
#: in hand and the bytes of it that are requested, and the next transaction.
STATE, ROW, SLOT = range(c.LOAD, c.LOAD + 3)
FREED_AT, _, XACTS, T_VALID, T_ITEM, T_PAGE, T_HIT, X_VALID, X_ITEM, X_PAGE, X_HIT, _, X_OK = range(
    c.READER, c.READER + 13
)
BUSY, R_SLOT, R_VADDR, R_ADDR, ASKED, NEXT = range(c.READER + 13, c.READER + 19)
WAITING, WAITING_DMA, SENDING = range(3)
#: Columns of LOADED.
VALID, ENTRY, LEFT, VADDR, STRIDE, ADDR, COLUMNS, ROWS, REPEATS, BLOCK, SCALED, WIDE, IN_ACC, ADDS, PIXELS = range(15)
#: Columns of STATES.
S_STRIDE, S_SCALED, S_SHRUNK, S_BLOCK, S_PIXELS = range(5)
#: Columns of XACTS: of a load, with bytes useful, in all, before them, before them in the row; the row.
TAKEN, X_SLOT, X_BYTES, X_SIZE, X_SHIFT, X_OFFSET, X_ADDR = range(7)
#: The float32 scale 1.0, which passes the scale unit at once.
ONE = 0x3F800000
LG_PAGE = 12


@called
def step_loads(m: Array, p: Program, t: int) -> None:
    """Run the load controller: a configuration takes a cycle, a load one cycle a row."""
    item = peek(m, c.LOADS, 0)
    funct, rs1, rs2 = p.prims[item >> 6, 0] & 127, p.prims[item >> 6, 1], p.prims[item >> 6, 2]
    if funct == CONFIG:
        state = at(c.STATES, rs1 >> 3 & 3)
        m[state + S_STRIDE], m[state + S_SHRUNK], m[state + S_BLOCK] = rs2, rs1 >> 2 & 1, rs1 >> 16 & 0xFFFF
        m[state + S_SCALED], m[state + S_PIXELS] = (rs1 >> 32 & 0xFFFFFFFF) != ONE, max(rs1 >> 8 & 0xFF, 1)
        pop(m, c.LOADS, t)
        return
    row = m[ROW]
    if m[STATE] == SENDING and row == 0:  # a load of one row
        m[STATE] = WAITING
        pop(m, c.LOADS, t)
        return
    if m[STATE] == WAITING:
        if m[c.LOADS_USED] == m[c.SLOTS]:
            return
        m[SLOT] = 0
        while m[at(c.LOADED, m[SLOT]) + VALID]:
            m[SLOT] += 1
        m[c.LOADS_USED] += 1
        track(m, m[SLOT], item & 63, 1 if funct == MVIN2 else 2 if funct == MVIN3 else 0, rs1, rs2)
        m[c.ACTIVE] = 1
        if m[at(c.LOADED, m[SLOT]) + LEFT] == 0:  # nothing to load, which trips an assertion in the RTL
            pop(m, c.LOADS, t)
            return
        m[STATE] = WAITING_DMA
    load = at(c.LOADED, m[SLOT])
    if m[load + VADDR] == 0:
        if m[c.ZEROS_VALID]:
            return
        m[c.ZEROS_VALID], m[c.ZEROS_SLOT], m[c.ZEROS_COLUMN], m[c.ZEROS_ADDR] = 1, m[SLOT], 0, m[load + ADDR] + row
        m[c.ACTIVE] = 1
    elif ready(m, c.READS, t):
        push(m, c.READS, m[SLOT] << 32 | row)
    else:
        return
    last = row == m[load + ROWS] - 1
    m[ROW] = 0 if last else row + 1
    m[STATE] = SENDING
    if last and row:
        m[STATE] = WAITING
        pop(m, c.LOADS, t)


@called
def track(m: Array, slot: int, entry: int, state: int, rs1: int, rs2: int) -> None:
    """Begin a load: keep what its rows have in common, and the bytes that must arrive."""
    st, load = at(c.STATES, state), at(c.LOADED, slot)
    columns, rows = rs2 >> 32 & 0xFFFF, rs2 >> 48 & 0xFFFF
    once = m[st + S_STRIDE] == 0 and rs1 != 0 and rows > 0
    m[load + VALID], m[load + ENTRY], m[load + VADDR], m[load + STRIDE] = 1, entry, rs1, m[st + S_STRIDE]
    m[load + ADDR], m[load + COLUMNS], m[load + ROWS], m[load + REPEATS] = rs2 & 0xFFFFFFFF, columns, rows, 0
    if once:
        m[load + ROWS], m[load + REPEATS] = 1, rows - 1
    m[load + BLOCK], m[load + SCALED], m[load + PIXELS] = m[st + S_BLOCK], m[st + S_SCALED], m[st + S_PIXELS]
    m[load + IN_ACC], m[load + ADDS] = is_acc(rs2), rs2 >> 30 & 1
    m[load + WIDE] = 2 if m[load + IN_ACC] and not m[st + S_SHRUNK] else 0  # the logarithm of an element's bytes
    m[load + LEFT] = columns * m[load + ROWS] << m[load + WIDE]


@part
def reader_works(m: Array) -> bool:
    """Return whether `step_reader` is needed in this cycle."""
    return m[T_VALID] + m[X_VALID] + m[BUSY] + count(m, c.READS) > 0


@called
def step_reader(m: Array, t: int) -> None:
    """Run the reader: a request passes its translation in two cycles; one that the bus refuses goes around again."""
    again = False
    item, page = m[X_ITEM], m[X_PAGE]
    if m[X_VALID] | m[T_VALID]:
        m[c.ACTIVE] = 1
    if m[X_VALID]:
        again = not (m[X_OK] and ready(m, c.A_READ, t))
        if not again:
            push(m, c.A_READ, item)
    m[X_VALID], m[X_ITEM], m[X_PAGE], m[X_HIT] = m[T_VALID], m[T_ITEM], m[T_PAGE], m[T_HIT]
    m[T_VALID] = 0
    if again:
        m[T_VALID], m[T_ITEM], m[T_PAGE] = 1, item, page
    elif m[BUSY] and m[XACTS] + (m[FREED_AT] == t) < m[c.MAX_READS]:
        ask(m)
    if not m[BUSY] and count(m, c.READS):
        request = take(m, c.READS)
        load = at(c.LOADED, request >> 32)
        row = request & 0xFFFFFFFF
        m[BUSY], m[R_SLOT], m[ASKED] = 1, request >> 32, 0
        m[R_VADDR] = m[load + VADDR] + row * m[load + STRIDE]
        m[R_ADDR] = m[load + ADDR] + row & (m[c.ACC] if m[load + IN_ACC] else m[c.SPAD])


@called
def ask(m: Array) -> None:
    """Make one request of the row in hand."""
    load = at(c.LOADED, m[R_SLOT])
    left = (m[load + COLUMNS] << m[load + WIDE]) - m[ASKED]
    size, useful = packet(m, m[R_VADDR], left)
    i = m[NEXT]
    while m[at(c.TRANSACTIONS, i) + TAKEN]:
        i = i + 1 if i + 1 < m[c.MAX_READS] else 0
    m[NEXT] = i
    lg_row = m[c.LG_DIM] + m[load + WIDE]
    x = at(c.TRANSACTIONS, i)
    m[x + TAKEN], m[x + X_SLOT], m[x + X_BYTES], m[x + X_SIZE] = 1, m[R_SLOT], useful, size
    m[x + X_SHIFT], m[x + X_OFFSET] = m[R_VADDR] & (size - 1), m[ASKED] & ((1 << lg_row) - 1)
    m[x + X_ADDR] = m[R_ADDR] + m[load + BLOCK] * (m[ASKED] >> lg_row)
    m[XACTS] += 1
    m[T_VALID], m[T_ITEM], m[T_PAGE] = 1, i, m[R_VADDR] >> LG_PAGE
    m[R_VADDR] += useful
    m[ASKED] += useful
    if useful == left:
        m[BUSY] = 0
    m[c.ACTIVE] = 1
