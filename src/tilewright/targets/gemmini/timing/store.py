"""The store controller (StoreController.scala) and the way of its rows to the writer (Scratchpad.scala)."""

from __future__ import annotations

from tilewright.array import Array

from .array import LAST_STAGE
from .jit import callee
from .queues import is_acc, is_garbage, moved, peek, pop, push, ready
from .state import *
from .station import CONFIG

WAITING, WAITING_DMA, SENDING, POOLING = range(4)
#: Stages of the accumulator's scale pipeline, of whole rows.
STAGES = 8


@callee
def step_stores(m: Chip, t: int) -> None:
    """Run the store controller: a configuration takes a cycle, a store one cycle a row, or a row of a window."""
    s = m.s
    if m.n[STORES] == 0:
        return
    item = peek(m, STORES, 0)
    prim = item >> 6
    funct, rs1, rs2 = m.prims[prim, 0] & 127, m.prims[prim, 1], m.prims[prim, 2]
    if funct == CONFIG and rs1 & 3 == 2:
        configure_store(m, rs1, rs2)
        pop(m, STORES, t)
        return
    only = s[ST_ROW] + s[ST_BLOCK] + s[ST_PROW] + s[ST_PCOL] + s[ST_WROW] + s[ST_WCOL] == 0
    if only and s[ST_STATE] >= SENDING:  # a store of one row
        s[ST_STATE] = WAITING
        pop(m, STORES, t)
        return
    pooling = s[ST_POOL_STRIDE] != 0
    columns, rows = rs2 >> 32 & 0xFFFF, rs2 >> 48 & 0xFFFF
    blocks = (columns + m.p[DIM] - 1) // m.p[DIM]
    if s[ST_STATE] == WAITING:
        if s[ST_ALL]:
            return
        slot = 0
        while m.store_slots[slot, 0]:
            slot += 1
        total = s[ST_POROWS] * s[ST_POCOLS] * s[ST_POOL_SIZE] * s[ST_POOL_SIZE] if pooling else rows * blocks
        m.store_slots[slot, 0], m.store_slots[slot, 1], m.store_slots[slot, 2] = 1, total, item & 63
        s[ST_SLOT], s[ST_STATE], s[ACTIVE] = slot, WAITING_DMA, 1
    if not ready(m, DISPATCH, t):
        return
    new = s[ST_ITEM]
    s[ST_ITEM] = (new + 1) & (RING - 1)
    w = m.stores[new]
    w[W_SLOT] = s[ST_SLOT]
    last = pooled(m, w, rs1, rs2) if pooling else plain(m, w, rs1, rs2, rows, blocks)
    push(m, DISPATCH, new)
    if last and not only:
        s[ST_STATE] = WAITING
        pop(m, STORES, t)
    else:
        s[ST_STATE] = POOLING if pooling else SENDING


@callee
def configure_store(m: Chip, rs1: int, rs2: int) -> None:
    """Take the fields of config_st."""
    s = m.s
    s[ST_STRIDE], s[ST_POOL_SIZE], s[ST_POOL_STRIDE] = rs2 & 0xFFFFFFFF, rs1 >> 6 & 3, rs1 >> 4 & 3
    if s[ST_POOL_STRIDE]:
        s[ST_UPAD], s[ST_LPAD], s[ST_OUT_DIM] = rs1 >> 8 & 3, rs1 >> 10 & 3, rs1 >> 24 & 0xFF
        s[ST_POROWS], s[ST_POCOLS] = rs1 >> 32 & 0xFF, rs1 >> 40 & 0xFF
        s[ST_OROWS], s[ST_OCOLS] = rs1 >> 48 & 0xFF, rs1 >> 56 & 0xFF


@callee
def place(m: Chip, w: Array, word: int, row: int) -> None:
    """Set where a row lies: in the scratchpad or the accumulator, or nowhere."""
    acc = is_acc(word)
    w[W_KIND] = ACC if acc else SPAD
    w[W_ADDR] = (word + row) & (m.p[ACC_MASK] if acc else m.p[SPAD_MASK])


@callee
def plain(m: Chip, w: Array, rs1: int, rs2: int, rows: int, blocks: int) -> bool:
    """Make the request of one row of a block; return whether it is the last one."""
    s, dim = m.s, m.p[DIM]
    row, block = s[ST_ROW], s[ST_BLOCK]
    place(m, w, rs2, block * dim + row)
    if is_garbage(m, rs2):
        w[W_KIND] = NOTHING
    last_block = block == blocks - 1
    w[W_LEN] = ((rs2 >> 32 & 0xFFFF) - 1) % dim + 1 if last_block else dim
    if w[W_KIND] == ACC and rs2 >> 29 & 1:
        w[W_LEN] *= 4
    w[W_BLOCK], w[W_STORE], w[W_VADDR] = block, last_block, rs1 + row * s[ST_STRIDE]
    s[ST_BLOCK] = 0 if last_block else block + 1
    if last_block:
        s[ST_ROW] = 0 if row == rows - 1 else row + 1
    return bool(last_block and row == rows - 1)


@callee
def pooled(m: Chip, w: Array, rs1: int, rs2: int) -> bool:
    """Make the request of one element of a window; return whether it is the last one."""
    s = m.s
    size, y = s[ST_POOL_SIZE], s[ST_PROW] * s[ST_POOL_STRIDE] + s[ST_WROW] - s[ST_UPAD]
    x = s[ST_PCOL] * s[ST_POOL_STRIDE] + s[ST_WCOL] - s[ST_LPAD]
    place(m, w, rs2, y * s[ST_OCOLS] + x)
    if y < 0 or x < 0 or y >= s[ST_OROWS] or x >= s[ST_OCOLS]:
        w[W_KIND] = NOTHING
    w[W_LEN] = ((rs2 >> 32 & 0xFFFF) - 1) % m.p[DIM] + 1
    if w[W_KIND] == ACC and rs2 >> 29 & 1:
        w[W_LEN] *= 4
    w[W_BLOCK], w[W_STORE] = 0, s[ST_WROW] == size - 1 and s[ST_WCOL] == size - 1
    w[W_VADDR] = rs1 + (s[ST_PROW] * s[ST_OUT_DIM] + s[ST_PCOL]) * s[ST_STRIDE]
    s[ST_WCOL] += 1
    if s[ST_WCOL] == size:
        s[ST_WCOL] = 0
        s[ST_WROW] += 1
        if s[ST_WROW] == size:
            s[ST_WROW] = 0
            s[ST_PCOL] += 1
            if s[ST_PCOL] == s[ST_POCOLS]:
                s[ST_PCOL] = 0
                s[ST_PROW] += 1
                if s[ST_PROW] == s[ST_POROWS]:
                    s[ST_PROW] = 0
                    return True
    return False


@callee
def step_dispatch(m: Chip, t: int) -> None:
    """Move the rows of stores towards the writer: dispatch, norm, scale and issue queues."""
    s = m.s
    scale = m.n[SCALE] != 0
    if scale:
        item = peek(m, SCALE, 0)
        if m.stores[item, W_KIND] == ACC:
            if m.n[PASS] and ready(m, WRITE_ISSUE, t) and not s[PIPE_FULL]:
                pop(m, PASS, t)
                s[PIPE] |= 1
                push(m, WRITE_ISSUE, pop(m, SCALE, t))
        elif ready(m, WRITE_ISSUE, t):
            push(m, WRITE_ISSUE, pop(m, SCALE, t))
    if m.n[NORM] and ready(m, SCALE, t):
        item = peek(m, NORM, 0)
        if m.stores[item, W_KIND] == ACC:
            b = m.acc_bank[m.stores[item, W_ADDR] >> m.p[ACC_SHIFT]]
            if (b[0] or b[1]) and ready(m, PASS, t):
                b[0] = b[1] = 0
                push(m, PASS, 0)
                push(m, SCALE, pop(m, NORM, t))
        else:
            push(m, SCALE, pop(m, NORM, t))
    for bank in range(m.acc_bank.shape[0]):
        if m.acc_bank[bank, 0]:
            m.acc_bank[bank, 0], m.acc_bank[bank, 1], s[ACTIVE] = 0, 1, 1
    if m.n[DISPATCH] and ready(m, NORM, t):
        dispatch(m, t)


@callee
def dispatch(m: Chip, t: int) -> None:
    """Read a row for the writer: the array's reads come first, and writes of single-ported banks."""
    w = m.stores[peek(m, DISPATCH, 0)]
    if w[W_KIND] == SPAD:
        bank = w[W_ADDR] >> m.p[SPAD_SHIFT]
        if (m.s[EX_READS] | m.s[SPAD_WRITES]) >> bank & 1 or m.bank[bank, 1]:
            return
        m.bank[bank, 0] = DMA_ROW
    elif w[W_KIND] == ACC:
        bank = w[W_ADDR] >> m.p[ACC_SHIFT]
        row = w[W_ADDR]
        b = m.acc_bank[bank]
        if b[1] or m.s[ACC_ADDS] >> bank & 1 or b[2] == row or b[3] == row:
            return
        b[0] = 1
    m.store_slots[w[W_SLOT], 1] -= 1
    push(m, NORM, pop(m, DISPATCH, t))


@callee
def step_writer(m: Chip, t: int) -> None:
    """Run the writer (DMA.scala: StreamWriter): a request of some beats for each packet of the row in hand."""
    s = m.s
    taken = step_write_translation(m, t)
    in_use = s[W_XACTS] + (s[W_FREED] == t)
    if taken and s[WR_STATE] and in_use < m.p[WRITES]:
        write_beat(m)
    # the pipeline of scaled rows moves if its last row leaves, or into a gap
    head = m.n[WRITE_ISSUE]
    free = s[WR_STATE] == 0
    w = m.stores[peek(m, WRITE_ISSUE, 0)]
    go = False
    last = 1 << (STAGES - 1)
    leaves = free and head and w[W_KIND] == ACC and s[PIPE] & last
    if leaves:
        s[PIPE] &= ~last
    if s[PIPE] or leaves:
        after = moved(s[PIPE], last)
        if after != s[PIPE] or leaves:
            s[ACTIVE] = 1
        s[PIPE] = after
    s[PIPE_FULL] = s[PIPE] & 1
    if head and free:
        if w[W_KIND] == ACC:
            go = leaves != 0
        elif w[W_KIND] == SPAD:
            bank = m.bank[w[W_ADDR] >> m.p[SPAD_SHIFT]]
            go = bank[3] & LAST_STAGE != 0
            bank[3] &= ~LAST_STAGE
        else:
            go = True
    if go:
        pop(m, WRITE_ISSUE, t)
        s[WR_STATE] = 1 if w[W_STORE] else 0
        s[WR_VADDR], s[WR_LEN], s[WR_SENT] = w[W_VADDR], w[W_BLOCK] * m.p[DIM] + w[W_LEN], 0


@callee
def step_write_translation(m: Chip, t: int) -> bool:
    """Move the writer's requests through translation; return whether it takes a new one."""
    s = m.s
    retry = 0
    free = not s[WX_VALID]
    if s[WX_VALID]:
        s[ACTIVE] = 1
        if not s[WX_OK]:
            retry = free = 1
        elif ready(m, A_WRITE, t):
            push(m, A_WRITE, s[WX_ITEM])
            free = 1
    item, page = s[WX_ITEM], s[WX_PAGE]
    moves = free and s[WT_VALID]
    s[WX_ASKED], s[WX_HIT] = moves, s[WT_HIT]
    room = free or not s[WT_VALID]
    shadow = s[SH_VALID]
    if free:
        s[WX_VALID] = moves and not retry
        if moves:
            s[ACTIVE] = 1
            s[WX_ITEM], s[WX_PAGE], s[WT_VALID] = s[WT_ITEM], s[WT_PAGE], 0
            if retry:
                s[SH_VALID], s[SH_ITEM], s[SH_PAGE] = 1, s[WT_ITEM], s[WT_PAGE]
    if retry:
        s[WT_VALID], s[WT_ITEM], s[WT_PAGE] = 1, item, page
        return False
    if shadow and room:
        s[WT_VALID], s[WT_ITEM], s[WT_PAGE], s[SH_VALID] = 1, s[SH_ITEM], s[SH_PAGE], 0
        return False
    return bool(room and not shadow)


@callee
def write_beat(m: Chip) -> None:
    """Send a beat: of the sizes, the smallest with the most bytes of the row."""
    s, p = m.s, m.p
    if s[WR_STATE] == 1:
        left = s[WR_LEN] - s[WR_SENT]
        size = p[BUS]
        best, most = size, min(size - (s[WR_VADDR] & (size - 1)), left)
        while size < p[MAX_BYTES]:
            size *= 2
            useful = min(size - (s[WR_VADDR] & (size - 1)), left)
            if useful > most:
                best, most = size, useful
        s[WR_ADDR] = s[WR_VADDR] & ~(best - 1)
        s[WR_BYTES], s[WR_LEFT] = most, best // p[BUS]
        s[WR_VADDR] += most
        s[WR_SENT] += most
        s[W_XACTS] += 1
    s[WR_LEFT] -= 1
    s[WT_VALID], s[WT_PAGE], s[WT_ITEM] = 1, s[WR_ADDR] >> 12, 2 if s[WR_LEFT] == 0 else 1
    s[WR_STATE] = 2 if s[WR_LEFT] else 1 if s[WR_SENT] < s[WR_LEN] else 0
    s[ACTIVE] = 1
