"""The load controller (LoadController.scala) and the DMA reader (DMA.scala: StreamReaderCore)."""

from __future__ import annotations

from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.bus import packet
from tilewright.targets.gemmini.timing.chip import Chip, count, is_acc, peek, pop, push, ready

ACTIVE = 0
LOADS, A_READ, READS = 0, 11, 17
PIPED = -2
CONFIG, MVIN2, MVIN3 = 0, 1, 14
FREED_AT, XACTS, T_VALID, T_ITEM, T_PAGE, T_HIT, X_VALID, X_ITEM, X_PAGE, X_HIT, X_OK = (
    0,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    12,
)
#: Registers of the controller: slots of the tracker in use, state, row and slot of the load in hand; of the writer of
#: zeros: the row in hand, and its next column.
USED, STATE, ROW, SLOT, Z_VALID, Z_SLOT, Z_ADDR, Z_COLUMN = range(8)
WAITING, WAITING_DMA, SENDING = range(3)
#: Columns of `Chip.loads`.
VALID, ENTRY, LEFT, VADDR, STRIDE, ADDR, COLUMNS, ROWS, REPEATS, BLOCK, SCALED, WIDE, IN_ACC, ADDS, PIXELS = range(15)
#: Columns of `Chip.states`.
S_STRIDE, S_SCALED, S_SHRUNK, S_BLOCK, S_PIXELS = range(5)
#: More registers of the reader: the row in hand and the bytes of it that are requested, the next transaction.
BUSY, R_SLOT, R_VADDR, R_ADDR, ASKED, NEXT = range(13, 19)
#: Columns of `Chip.xacts`: of a load, with bytes useful, before them, in all, before them in the row; the row.
TAKEN, X_SLOT, X_BYTES, X_SIZE, X_SHIFT, X_OFFSET, X_ADDR = range(7)
#: The float32 scale 1.0, which passes the scale unit at once.
ONE = 0x3F800000
LG_PAGE = 12


@part
def step_loads(m: Chip, t: int) -> None:
    """Run the load controller: a configuration takes a cycle, a load one cycle a row."""
    r = m.load
    if count(m, LOADS) == 0:
        return
    item = peek(m, LOADS, 0)
    funct, rs1, rs2 = m.prims[item >> 6, 0] & 127, m.prims[item >> 6, 1], m.prims[item >> 6, 2]
    if funct == CONFIG:
        state = m.states[rs1 >> 3 & 3]
        state[S_STRIDE], state[S_SHRUNK], state[S_BLOCK] = rs2, rs1 >> 2 & 1, rs1 >> 16 & 0xFFFF
        state[S_SCALED], state[S_PIXELS] = (rs1 >> 32 & 0xFFFFFFFF) != ONE, max(rs1 >> 8 & 0xFF, 1)
        pop(m, LOADS, t)
        return
    row = r[ROW]
    if r[STATE] == SENDING and row == 0:  # a load of one row
        r[STATE] = WAITING
        pop(m, LOADS, t)
        return
    if r[STATE] == WAITING:
        if r[USED] == m.size.slots:
            return
        r[SLOT] = 0
        while m.loads[r[SLOT], VALID]:
            r[SLOT] += 1
        r[USED] += 1
        track(m, r[SLOT], item & 63, 1 if funct == MVIN2 else 2 if funct == MVIN3 else 0, rs1, rs2)
        r[STATE], m.wire[ACTIVE] = WAITING_DMA, 1
    load = m.loads[r[SLOT]]
    if load[VADDR] == 0:
        if r[Z_VALID]:
            return
        r[Z_VALID], r[Z_SLOT], r[Z_COLUMN], r[Z_ADDR] = 1, r[SLOT], 0, load[ADDR] + row
        m.wire[ACTIVE] = 1
    elif ready(m, READS, t):
        push(m, READS, r[SLOT] << 32 | row)
    else:
        return
    last = row == load[ROWS] - 1
    r[ROW] = 0 if last else row + 1
    r[STATE] = SENDING
    if last and row:
        r[STATE] = WAITING
        pop(m, LOADS, t)


@part
def track(m: Chip, slot: int, entry: int, state: int, rs1: int, rs2: int) -> None:
    """Begin a load: keep what its rows have in common, and the bytes that must arrive."""
    st, load = m.states[state], m.loads[slot]
    columns, rows = rs2 >> 32 & 0xFFFF, rs2 >> 48 & 0xFFFF
    once = st[S_STRIDE] == 0 and rs1 != 0
    load[VALID], load[ENTRY], load[VADDR], load[STRIDE] = 1, entry, rs1, st[S_STRIDE]
    load[ADDR], load[COLUMNS], load[ROWS], load[REPEATS] = rs2 & 0xFFFFFFFF, columns, rows, 0
    if once:
        load[ROWS], load[REPEATS] = 1, rows - 1
    load[BLOCK], load[SCALED], load[PIXELS] = st[S_BLOCK], st[S_SCALED], st[S_PIXELS]
    load[IN_ACC], load[ADDS] = is_acc(rs2), rs2 >> 30 & 1
    load[WIDE] = 2 if load[IN_ACC] and not st[S_SHRUNK] else 0  # the logarithm of an element's bytes
    load[LEFT] = columns * load[ROWS] << load[WIDE]


@part
def step_reader(m: Chip, t: int) -> None:
    """Run the reader: a request passes its translation in two cycles; one that the bus refuses goes around again."""
    r = m.reader
    again = False
    item, page = r[X_ITEM], r[X_PAGE]
    if r[X_VALID]:
        m.wire[ACTIVE] = 1
        if r[X_OK] and ready(m, A_READ, t):
            push(m, A_READ, item)
        else:
            again = True
    r[X_VALID], r[X_ITEM], r[X_PAGE], r[X_HIT] = r[T_VALID], r[T_ITEM], r[T_PAGE], r[T_HIT]
    m.wire[ACTIVE] |= r[T_VALID]
    r[T_VALID] = 0
    if again:
        r[T_VALID], r[T_ITEM], r[T_PAGE] = 1, item, page
    elif r[BUSY] and r[XACTS] + (r[FREED_AT] == t) < m.size.reads:
        ask(m)
    if not r[BUSY] and count(m, READS):
        request = pop(m, READS, PIPED)
        load = m.loads[request >> 32]
        row = request & 0xFFFFFFFF
        r[BUSY], r[R_SLOT], r[ASKED] = 1, request >> 32, 0
        r[R_VADDR] = load[VADDR] + row * load[STRIDE]
        r[R_ADDR] = load[ADDR] + row & (m.size.acc if load[IN_ACC] else m.size.spad)


@part
def ask(m: Chip) -> None:
    """Make one request of the row in hand."""
    r = m.reader
    load = m.loads[r[R_SLOT]]
    left = (load[COLUMNS] << load[WIDE]) - r[ASKED]
    size, useful = packet(m, r[R_VADDR], left)
    i = r[NEXT]
    while m.xacts[i, TAKEN]:
        i = i + 1 if i + 1 < m.size.reads else 0
    r[NEXT] = i
    lg_row = m.size.lg_dim + load[WIDE]
    x = m.xacts[i]
    x[TAKEN], x[X_SLOT], x[X_BYTES], x[X_SIZE] = 1, r[R_SLOT], useful, size
    x[X_SHIFT], x[X_OFFSET] = r[R_VADDR] & (size - 1), r[ASKED] & ((1 << lg_row) - 1)
    x[X_ADDR] = r[R_ADDR] + load[BLOCK] * (r[ASKED] >> lg_row)
    r[XACTS] += 1
    r[T_VALID], r[T_ITEM], r[T_PAGE] = 1, i, r[R_VADDR] >> LG_PAGE
    r[R_VADDR] += useful
    r[ASKED] += useful
    if useful == left:
        r[BUSY] = 0
    m.wire[ACTIVE] = 1
