"""The store controller (StoreController.scala) and the way of its rows to the writer (Scratchpad.scala)."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.chip import Program, at, count, is_acc, is_garbage, peek, pop, push, ready
from tilewright.targets.gemmini.timing.moves import in_flight

CONFIG, CONFIG_ST = 0, 2
#: Registers: state, slot of the store in hand, the next place in STORED; the row and block in hand, or the window's
#: element; what a configuration set.
STATE, SLOT, NEXT, ROW, BLOCK, P_ROW, P_COLUMN, W_ROW, W_COLUMN = range(c.STORE, c.STORE + 9)
STRIDE, POOL_STRIDE, POOL_SIZE, OUT_DIM, P_ROWS, P_COLUMNS, O_ROWS, O_COLUMNS, U_PAD, L_PAD = range(
    c.STORE + 9, c.STORE + 19
)
WAITING, WAITING_DMA, SENDING = range(3)
#: Columns of STORE_SLOTS, and of STORED: where a row lies, its bytes, its block, whether it ends a
#: request of the writer, the address of this, its slot and its command.
VALID, ENTRY, LEFT = range(3)
KIND, ADDR, BYTES, OF_BLOCK, ENDS, VADDR, OF_SLOT, OF_PRIM = range(8)
SPAD, ACC, NOTHING = range(3)


@called
def step_stores(m: Array, p: Program, t: int) -> None:
    """Run the store controller: a configuration takes a cycle, a store one cycle a row, or an element of a window."""
    item = peek(m, c.STORES, 0)
    funct, rs1, rs2 = p.prims[item >> 6, 0] & 127, p.prims[item >> 6, 1], p.prims[item >> 6, 2]
    if funct == CONFIG and rs1 & 3 == CONFIG_ST:
        configure_store(m, rs1, rs2)
        pop(m, c.STORES, t)
        return
    first = m[ROW] + m[BLOCK] + m[P_ROW] + m[P_COLUMN] + m[W_ROW] + m[W_COLUMN] == 0
    if first and m[STATE] == SENDING:  # a store of one row
        m[STATE] = WAITING
        pop(m, c.STORES, t)
        return
    pooling, rows = m[POOL_STRIDE] != 0, rs2 >> 48 & 0xFFFF
    blocks = ((rs2 >> 32 & 0xFFFF) + m[c.DIM] - 1) >> m[c.LG_DIM]
    if m[STATE] == WAITING:
        if m[c.STORES_USED] == m[c.SLOTS]:
            return
        m[SLOT] = 0
        while m[at(c.STORE_SLOTS, m[SLOT]) + VALID]:
            m[SLOT] += 1
        slot = at(c.STORE_SLOTS, m[SLOT])
        m[slot + VALID], m[slot + ENTRY], m[slot + LEFT] = 1, item & 63, rows * blocks
        if pooling:
            m[slot + LEFT] = m[P_ROWS] * m[P_COLUMNS] * m[POOL_SIZE] * m[POOL_SIZE]
        m[c.STORES_USED] += 1
        m[c.ACTIVE] = 1
        if m[slot + LEFT] == 0:  # nothing to store, which trips an assertion in the RTL
            pop(m, c.STORES, t)
            return
        m[STATE] = WAITING_DMA
    if not ready(m, c.DISPATCH, t):
        return
    new = m[NEXT]
    m[NEXT] = (new + 1) & (c.RING - 1)
    w = at(c.STORED, new)
    m[w + OF_SLOT], m[w + OF_PRIM] = m[SLOT], item >> 6
    last = windowed(m, w, rs1, rs2) if pooling else plain(m, w, rs1, rs2, rows, blocks)
    push(m, c.DISPATCH, new)
    m[STATE] = SENDING
    if last and not first:
        m[STATE] = WAITING
        pop(m, c.STORES, t)


@called
def configure_store(m: Array, rs1: int, rs2: int) -> None:
    """Take the fields of config_st."""
    m[STRIDE], m[POOL_SIZE], m[POOL_STRIDE] = rs2 & 0xFFFFFFFF, rs1 >> 6 & 3, rs1 >> 4 & 3
    if m[POOL_STRIDE]:
        m[U_PAD], m[L_PAD], m[OUT_DIM] = rs1 >> 8 & 3, rs1 >> 10 & 3, rs1 >> 24 & 0xFF
        m[P_ROWS], m[P_COLUMNS], m[O_ROWS], m[O_COLUMNS] = (
            rs1 >> 32 & 0xFF,
            rs1 >> 40 & 0xFF,
            rs1 >> 48 & 0xFF,
            rs1 >> 56 & 0xFF,
        )


@called
def place(m: Array, w: int, rs2: int, row: int, last_block: bool) -> None:
    """Set where a row lies, and its bytes for the writer."""
    acc = is_acc(rs2)
    m[w + KIND] = ACC if acc else SPAD
    m[w + ADDR] = rs2 + row & (m[c.ACC] if acc else m[c.SPAD])
    m[w + BYTES] = ((rs2 >> 32 & 0xFFFF) - 1 & m[c.DIM] - 1) + 1 if last_block else m[c.DIM]
    if acc and rs2 >> 29 & 1:
        m[w + BYTES] *= 4


@called
def plain(m: Array, w: int, rs1: int, rs2: int, rows: int, blocks: int) -> bool:
    """Make the request of one row of a block; return whether it is the last one."""
    row, block = m[ROW], m[BLOCK]
    ends = block == blocks - 1
    place(m, w, rs2, block * m[c.DIM] + row, ends)
    if is_garbage(m, rs2):
        m[w + KIND] = NOTHING
    m[w + OF_BLOCK], m[w + ENDS], m[w + VADDR] = block, ends, rs1 + row * m[STRIDE]
    m[BLOCK] = 0 if ends else block + 1
    if ends:
        m[ROW] = 0 if row == rows - 1 else row + 1
    return ends and row == rows - 1


@called
def windowed(m: Array, w: int, rs1: int, rs2: int) -> bool:
    """Make the request of one element of a pooling window; return whether it is the last one."""
    y = m[P_ROW] * m[POOL_STRIDE] + m[W_ROW] - m[U_PAD]
    x = m[P_COLUMN] * m[POOL_STRIDE] + m[W_COLUMN] - m[L_PAD]
    place(m, w, rs2, y * m[O_COLUMNS] + x, True)
    if y < 0 or x < 0 or y >= m[O_ROWS] or x >= m[O_COLUMNS]:
        m[w + KIND] = NOTHING
    m[w + OF_BLOCK], m[w + ENDS] = 0, m[W_ROW] == m[POOL_SIZE] - 1 and m[W_COLUMN] == m[POOL_SIZE] - 1
    m[w + VADDR] = rs1 + (m[P_ROW] * m[OUT_DIM] + m[P_COLUMN]) * m[STRIDE]
    m[W_COLUMN] += 1
    if m[W_COLUMN] == m[POOL_SIZE]:
        m[W_COLUMN] = 0
        m[W_ROW] += 1
        if m[W_ROW] == m[POOL_SIZE]:
            m[W_ROW] = 0
            m[P_COLUMN] += 1
            if m[P_COLUMN] == m[P_COLUMNS]:
                m[P_COLUMN] = 0
                m[P_ROW] += 1
                if m[P_ROW] == m[P_ROWS]:
                    m[P_ROW] = 0
                    return True
    return False


@part
def dispatches(m: Array) -> bool:
    """Return whether `step_dispatch` is needed in this cycle."""
    return count(m, c.DISPATCH) + count(m, c.NORM) + count(m, c.SCALE) > 0


@called
def step_dispatch(m: Array, t: int) -> None:
    """Move the rows of stores towards the writer: read, through the absent normaliser, to the scale unit, to issue."""
    if count(m, c.SCALE) and ready(m, c.ISSUE, t):
        if m[at(c.STORED, peek(m, c.SCALE, 0)) + KIND] != ACC:
            push(m, c.ISSUE, pop(m, c.SCALE, t))
        elif count(m, c.PASSED) and not m[c.FULL]:
            pop(m, c.PASSED, t)
            m[c.PIPE] |= 1
            push(m, c.ISSUE, pop(m, c.SCALE, t))
    if count(m, c.NORM) and ready(m, c.SCALE, t):
        item = peek(m, c.NORM, 0)
        if m[at(c.STORED, item) + KIND] != ACC:
            push(m, c.SCALE, pop(m, c.NORM, t))
        else:
            bank = 1 << (m[at(c.STORED, item) + ADDR] >> m[c.LG_ACC_BANK])
            if (m[c.ACC_FETCHED] | m[c.ACC_HELD]) & bank and ready(m, c.PASSED, t):
                m[c.ACC_FETCHED] &= ~bank
                m[c.ACC_HELD] &= ~bank
                push(m, c.PASSED, 0)
                push(m, c.SCALE, pop(m, c.NORM, t))
    if m[c.ACC_FETCHED]:
        m[c.ACC_HELD] |= m[c.ACC_FETCHED]
        m[c.ACC_FETCHED], m[c.ACTIVE] = 0, 1
    if count(m, c.DISPATCH) and ready(m, c.NORM, t):
        dispatch(m, t)


@called
def dispatch(m: Array, t: int) -> None:
    """Read a row for the writer: reads of the array come first, and writes of single-ported banks."""
    w = at(c.STORED, peek(m, c.DISPATCH, 0))
    row = m[w + ADDR]
    if m[w + KIND] == SPAD:
        bank = row >> m[c.LG_SPAD_BANK]
        held = m[c.TO_ARRAY + c.HELD] | m[c.TO_WRITER + c.HELD]
        if (m[c.EX_READS] | m[c.SPAD_WRITES] | held) >> bank & 1:
            return
        m[c.TO_WRITER + c.FETCHED], m[c.TO_WRITER + c.UNDER_WAY] = 1 << bank, 1
    elif m[w + KIND] == ACC:
        bank = row >> m[c.LG_ACC_BANK]
        if in_flight(m, row, t):
            m[c.ACTIVE] = 1
            return
        if (m[c.ACC_HELD] | m[c.ACC_ADDS]) >> bank & 1:
            return
        m[c.ACC_FETCHED] |= 1 << bank
    m[at(c.STORE_SLOTS, m[w + OF_SLOT]) + LEFT] -= 1
    push(m, c.NORM, pop(m, c.DISPATCH, t))
    m[c.PROGRESS] += 1
