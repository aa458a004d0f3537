"""The store controller (StoreController.scala) and the way of its rows to the writer (Scratchpad.scala)."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.chip import Chip, count, is_acc, is_garbage, peek, pop, push, ready

ACTIVE, SPAD_WRITES, ACC_ADDS, EX_READS = 0, 4, 6, 7
STORES, DISPATCH, NORM, PASSED, SCALE, ISSUE = 3, 4, 5, 6, 7, 19
RING = 512
CONFIG, CONFIG_ST = 0, 2
#: Registers: slots of the tracker in use, state, slot of the store in hand, the next place in `Chip.stores`; the row
#: and block in hand, or the window's element; what a configuration set.
USED, STATE, SLOT, NEXT, ROW, BLOCK, P_ROW, P_COLUMN, W_ROW, W_COLUMN = range(10)
STRIDE, POOL_STRIDE, POOL_SIZE, OUT_DIM, P_ROWS, P_COLUMNS, O_ROWS, O_COLUMNS, U_PAD, L_PAD = range(10, 20)
WAITING, WAITING_DMA, SENDING = range(3)
#: Columns of `Chip.store_slots`, and of `Chip.stores`: where a row lies, its bytes, its block, whether it ends a
#: request of the writer, and the address of this.
VALID, ENTRY, LEFT = range(3)
KIND, ADDR, BYTES, OF_BLOCK, ENDS, VADDR, OF_SLOT = range(7)
SPAD, ACC, NOTHING = range(3)
#: Columns of banks: a row in flight (DMA_ROW: for the writer), one that waits for its pipe.
IN_FLIGHT, WAITS, DMA_ROW = 0, 1, 2
PIPE, FULL = 19, 20  # registers of the writer


@part
def step_stores(m: Chip, t: int) -> None:
    """Run the store controller: a configuration takes a cycle, a store one cycle a row, or an element of a window."""
    r = m.store
    if count(m, STORES) == 0:
        return
    item = peek(m, STORES, 0)
    funct, rs1, rs2 = m.prims[item >> 6, 0] & 127, m.prims[item >> 6, 1], m.prims[item >> 6, 2]
    if funct == CONFIG and rs1 & 3 == CONFIG_ST:
        configure_store(m, rs1, rs2)
        pop(m, STORES, t)
        return
    first = r[ROW] + r[BLOCK] + r[P_ROW] + r[P_COLUMN] + r[W_ROW] + r[W_COLUMN] == 0
    if first and r[STATE] == SENDING:  # a store of one row
        r[STATE] = WAITING
        pop(m, STORES, t)
        return
    pooling, rows = r[POOL_STRIDE] != 0, rs2 >> 48 & 0xFFFF
    blocks = ((rs2 >> 32 & 0xFFFF) + m.size.dim - 1) >> m.size.lg_dim
    if r[STATE] == WAITING:
        if r[USED] == m.size.slots:
            return
        r[SLOT] = 0
        while m.store_slots[r[SLOT], VALID]:
            r[SLOT] += 1
        slot = m.store_slots[r[SLOT]]
        slot[VALID], slot[ENTRY], slot[LEFT] = 1, item & 63, rows * blocks
        if pooling:
            slot[LEFT] = r[P_ROWS] * r[P_COLUMNS] * r[POOL_SIZE] * r[POOL_SIZE]
        r[USED] += 1
        r[STATE], m.wire[ACTIVE] = WAITING_DMA, 1
    if not ready(m, DISPATCH, t):
        return
    new = r[NEXT]
    r[NEXT] = (new + 1) & (RING - 1)
    w = m.stores[new]
    w[OF_SLOT] = r[SLOT]
    last = windowed(m, w, rs1, rs2) if pooling else plain(m, w, rs1, rs2, rows, blocks)
    push(m, DISPATCH, new)
    r[STATE] = SENDING
    if last and not first:
        r[STATE] = WAITING
        pop(m, STORES, t)


@part
def configure_store(m: Chip, rs1: int, rs2: int) -> None:
    """Take the fields of config_st."""
    r = m.store
    r[STRIDE], r[POOL_SIZE], r[POOL_STRIDE] = rs2 & 0xFFFFFFFF, rs1 >> 6 & 3, rs1 >> 4 & 3
    if r[POOL_STRIDE]:
        r[U_PAD], r[L_PAD], r[OUT_DIM] = rs1 >> 8 & 3, rs1 >> 10 & 3, rs1 >> 24 & 0xFF
        r[P_ROWS], r[P_COLUMNS], r[O_ROWS], r[O_COLUMNS] = (
            rs1 >> 32 & 0xFF,
            rs1 >> 40 & 0xFF,
            rs1 >> 48 & 0xFF,
            rs1 >> 56 & 0xFF,
        )


@part
def place(m: Chip, w: Array, rs2: int, row: int, last_block: bool) -> None:
    """Set where a row lies, and its bytes for the writer."""
    acc = is_acc(rs2)
    w[KIND] = ACC if acc else SPAD
    w[ADDR] = rs2 + row & (m.size.acc if acc else m.size.spad)
    w[BYTES] = ((rs2 >> 32 & 0xFFFF) - 1 & m.size.dim - 1) + 1 if last_block else m.size.dim
    if acc and rs2 >> 29 & 1:
        w[BYTES] *= 4


@part
def plain(m: Chip, w: Array, rs1: int, rs2: int, rows: int, blocks: int) -> bool:
    """Make the request of one row of a block; return whether it is the last one."""
    r = m.store
    row, block = r[ROW], r[BLOCK]
    ends = block == blocks - 1
    place(m, w, rs2, block * m.size.dim + row, ends)
    if is_garbage(m, rs2):
        w[KIND] = NOTHING
    w[OF_BLOCK], w[ENDS], w[VADDR] = block, ends, rs1 + row * r[STRIDE]
    r[BLOCK] = 0 if ends else block + 1
    if ends:
        r[ROW] = 0 if row == rows - 1 else row + 1
    return ends and row == rows - 1


@part
def windowed(m: Chip, w: Array, rs1: int, rs2: int) -> bool:
    """Make the request of one element of a pooling window; return whether it is the last one."""
    r = m.store
    y = r[P_ROW] * r[POOL_STRIDE] + r[W_ROW] - r[U_PAD]
    x = r[P_COLUMN] * r[POOL_STRIDE] + r[W_COLUMN] - r[L_PAD]
    place(m, w, rs2, y * r[O_COLUMNS] + x, True)
    if y < 0 or x < 0 or y >= r[O_ROWS] or x >= r[O_COLUMNS]:
        w[KIND] = NOTHING
    w[OF_BLOCK], w[ENDS] = 0, r[W_ROW] == r[POOL_SIZE] - 1 and r[W_COLUMN] == r[POOL_SIZE] - 1
    w[VADDR] = rs1 + (r[P_ROW] * r[OUT_DIM] + r[P_COLUMN]) * r[STRIDE]
    r[W_COLUMN] += 1
    if r[W_COLUMN] == r[POOL_SIZE]:
        r[W_COLUMN] = 0
        r[W_ROW] += 1
        if r[W_ROW] == r[POOL_SIZE]:
            r[W_ROW] = 0
            r[P_COLUMN] += 1
            if r[P_COLUMN] == r[P_COLUMNS]:
                r[P_COLUMN] = 0
                r[P_ROW] += 1
                if r[P_ROW] == r[P_ROWS]:
                    r[P_ROW] = 0
                    return True
    return False


@part
def step_dispatch(m: Chip, t: int) -> None:
    """Move the rows of stores towards the writer: read, through the absent normaliser, to the scale unit, to issue."""
    if count(m, SCALE) and ready(m, ISSUE, t):
        if m.stores[peek(m, SCALE, 0), KIND] != ACC:
            push(m, ISSUE, pop(m, SCALE, t))
        elif count(m, PASSED) and not m.writer[FULL]:
            pop(m, PASSED, t)
            m.writer[PIPE] |= 1
            push(m, ISSUE, pop(m, SCALE, t))
    if count(m, NORM) and ready(m, SCALE, t):
        item = peek(m, NORM, 0)
        if m.stores[item, KIND] != ACC:
            push(m, SCALE, pop(m, NORM, t))
        else:
            b = m.acc_bank[m.stores[item, ADDR] >> m.size.lg_acc_bank]
            if b[IN_FLIGHT] | b[WAITS] and ready(m, PASSED, t):
                b[IN_FLIGHT] = b[WAITS] = 0
                push(m, PASSED, 0)
                push(m, SCALE, pop(m, NORM, t))
    for bank in range(m.acc_bank.shape[0]):
        if m.acc_bank[bank, IN_FLIGHT]:
            m.acc_bank[bank, IN_FLIGHT], m.acc_bank[bank, WAITS], m.wire[ACTIVE] = 0, 1, 1
    if count(m, DISPATCH) and ready(m, NORM, t):
        dispatch(m, t)


@part
def dispatch(m: Chip, t: int) -> None:
    """Read a row for the writer: reads of the array come first, and writes of single-ported banks."""
    w = m.stores[peek(m, DISPATCH, 0)]
    row = w[ADDR]
    if w[KIND] == SPAD:
        bank = row >> m.size.lg_spad_bank
        if (m.wire[EX_READS] | m.wire[SPAD_WRITES]) >> bank & 1 or m.bank[bank, WAITS]:
            return
        m.bank[bank, IN_FLIGHT] = DMA_ROW
    elif w[KIND] == ACC:
        bank = row >> m.size.lg_acc_bank
        b = m.acc_bank[bank]
        if b[WAITS] or m.wire[ACC_ADDS] >> bank & 1 or b[2] == row or b[3] == row:
            return
        b[IN_FLIGHT] = 1
    m.store_slots[w[OF_SLOT], LEFT] -= 1
    push(m, NORM, pop(m, DISPATCH, t))
