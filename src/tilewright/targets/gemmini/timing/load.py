"""The load controller (LoadController.scala), the writer of zeros, and the DMA reader (DMA.scala: StreamReaderCore)."""

from __future__ import annotations

from .jit import callee
from .queues import is_acc, local, peek, pop, push, ready
from .state import *
from .station import CONFIG, MVIN2, MVIN3

WAITING, WAITING_DMA, SENDING = range(3)
#: The float32 scale 1.0, which passes the scale unit at once.
ONE = 0x3F800000


@callee
def free_slot(m: Chip) -> int:
    """Return a free slot of the tracker of loads."""
    slot = 0
    while m.loads[slot, L_VALID]:
        slot += 1
    return slot


@callee
def step_loads(m: Chip, t: int) -> None:
    """Run the load controller: a configuration takes a cycle, a load one cycle a row."""
    s = m.s
    if m.n[LOADS] == 0:
        return
    item = peek(m, LOADS, 0)
    prim = item >> 6
    funct, rs1, rs2 = m.prims[prim, 0] & 127, m.prims[prim, 1], m.prims[prim, 2]
    if funct == CONFIG:
        state = m.states[rs1 >> 3 & 3]
        state[S_STRIDE], state[S_SHRUNK], state[S_BLOCK] = rs2, rs1 >> 2 & 1, rs1 >> 16 & 0xFFFF
        state[S_SCALED], state[S_PIXELS] = (rs1 >> 32 & 0xFFFFFFFF) != ONE, max(rs1 >> 8 & 0xFF, 1)
        pop(m, LOADS, t)
        return
    row = s[LD_ROW]
    if s[LD_STATE] == SENDING and row == 0:  # a load of one row
        s[LD_STATE] = WAITING
        pop(m, LOADS, t)
        return
    if s[LD_STATE] == WAITING:
        if s[LD_ALL]:
            return
        s[LD_SLOT] = free_slot(m)
        track(m, s[LD_SLOT], item & 63, 1 if funct == MVIN2 else 2 if funct == MVIN3 else 0, rs1, rs2)
        s[LD_STATE], s[ACTIVE] = WAITING_DMA, 1
    slot = s[LD_SLOT]
    load = m.loads[slot]
    if load[L_VADDR] == 0:
        if s[ZW_VALID]:
            return
        s[ZW_VALID], s[ZW_SLOT], s[ZW_COLUMN], s[ZW_ADDR] = 1, slot, 0, load[L_ADDR] + row
        s[ACTIVE] = 1
    elif ready(m, READ_ISSUE, t):
        push(m, READ_ISSUE, slot << 32 | row)
    else:
        return
    rows = load[L_ROWS]
    s[LD_ROW] = 0 if row == rows - 1 else row + 1
    if row == rows - 1 and row:
        s[LD_STATE] = WAITING
        pop(m, LOADS, t)
    else:
        s[LD_STATE] = SENDING


@callee
def track(m: Chip, slot: int, entry: int, state: int, rs1: int, rs2: int) -> None:
    """Begin a load: keep what its rows have in common, and the bytes that must arrive."""
    st, load = m.states[state], m.loads[slot]
    columns, rows = rs2 >> 32 & 0xFFFF, rs2 >> 48 & 0xFFFF
    once = st[S_STRIDE] == 0 and rs1 != 0
    load[L_VALID], load[L_ROB], load[L_VADDR], load[L_STRIDE] = 1, entry, rs1, st[S_STRIDE]
    load[L_ADDR], load[L_COLS], load[L_ROWS] = rs2 & 0xFFFFFFFF, columns, 1 if once else rows
    load[L_REPEATS] = rows - 1 if once else 0
    load[L_BLOCK], load[L_SCALED], load[L_PIXELS] = st[S_BLOCK], st[S_SCALED], st[S_PIXELS]
    load[L_ACC], load[L_ADD] = is_acc(rs2), rs2 >> 30 & 1
    load[L_WIDE] = load[L_ACC] and not st[S_SHRUNK]
    load[L_LEFT] = columns * load[L_ROWS] * (4 if load[L_WIDE] else 1)


@callee
def step_reader(m: Chip, t: int) -> None:
    """Run the reader: a request passes its translation in two cycles; one that the bus refuses goes around again."""
    s = m.s
    again = False
    item, page = s[RX_ITEM], s[RX_PAGE]
    if s[RX_VALID]:
        s[ACTIVE] = 1
        if s[RX_OK] and ready(m, A_READ, t):
            push(m, A_READ, item)
        else:
            again = True
    s[RX_VALID], s[RX_ITEM], s[RX_PAGE] = s[RT_VALID], s[RT_ITEM], s[RT_PAGE]
    s[RX_HIT] = s[RT_HIT]
    s[ACTIVE] |= s[RT_VALID]
    s[RT_VALID] = 0
    if again:
        s[RT_VALID], s[RT_ITEM], s[RT_PAGE] = 1, item, page
    elif s[RC_BUSY] and s[R_XACTS] + (s[R_FREED] == t) < m.p[READS]:
        ask(m)
    if not s[RC_BUSY] and m.n[READ_ISSUE]:
        request = pop(m, READ_ISSUE, t)
        s[RC_BUSY], s[RC_SLOT], s[RC_ASKED] = 1, request >> 32, 0
        load = m.loads[s[RC_SLOT]]
        row = request & 0xFFFFFFFF
        s[RC_VADDR] = load[L_VADDR] + row * load[L_STRIDE]
        s[RC_ADDR] = (load[L_ADDR] + row) & (m.p[ACC_MASK] if load[L_ACC] else m.p[SPAD_MASK])


@callee
def ask(m: Chip) -> None:
    """Make one request of the row in hand: of the sizes, the smallest with the most useful bytes."""
    s, p = m.s, m.p
    load = m.loads[s[RC_SLOT]]
    wide = 4 if load[L_WIDE] else 1
    left = load[L_COLS] * wide - s[RC_ASKED]
    size = p[BUS]
    best, most = size, min(size - (s[RC_VADDR] & (size - 1)), left)
    while size < p[MAX_BYTES]:
        size *= 2
        useful = min(size - (s[RC_VADDR] & (size - 1)), left)
        if useful > most:
            best, most = size, useful
    i = s[RC_NEXT]
    while m.xacts[i, T_USED]:
        i = i + 1 if i + 1 < p[READS] else 0
    s[RC_NEXT] = i
    row_bytes = p[DIM] * wide
    x = m.xacts[i]
    x[T_USED], x[T_SLOT], x[T_BYTES], x[T_SIZE] = 1, s[RC_SLOT], most, best
    x[T_SHIFT], x[T_OFFSET] = s[RC_VADDR] & (best - 1), s[RC_ASKED] % row_bytes
    x[T_ADDR] = s[RC_ADDR] + load[L_BLOCK] * (s[RC_ASKED] // row_bytes)
    s[R_XACTS] += 1
    s[RT_VALID], s[RT_ITEM], s[RT_PAGE] = 1, i, s[RC_VADDR] >> 12
    s[RC_VADDR] += most
    s[RC_ASKED] += most
    if most >= left:
        s[RC_BUSY] = 0
    s[ACTIVE] = 1
