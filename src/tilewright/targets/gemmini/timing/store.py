"""The store controller (StoreController.scala) and the way of its rows to the writer (Scratchpad.scala)."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import ST
from tilewright.targets.gemmini.timing.chip import CHIP, MOVING, TO_ARRAY, TO_WRITER, Program
from tilewright.targets.gemmini.timing.moves import in_flight
from tilewright.targets.gemmini.timing.operands import (
    ABSENT,
    CONFIG,
    IN_ACC,
    IN_SPAD,
    blocks_of,
    columns_of,
    is_acc,
    is_garbage,
    rows_of,
)
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready
from tilewright.targets.gemmini.timing.records import (
    COMMAND,
    PLAIN,
    POINTER,
    RING,
    RULE,
    at,
    registers,
    row_offset,
    saved,
    table,
)

CONFIG_ST = 2


class Storer:
    """The controller of stores. P: the pixel of a pooling in hand, W: its window, O: the image."""

    state = PLAIN
    slot = PLAIN
    next = POINTER  # in the table of rows
    row = PLAIN
    block = PLAIN
    p_row = PLAIN
    p_column = PLAIN
    w_row = PLAIN
    w_column = PLAIN
    stride = PLAIN  # this and what follows: set by a configuration
    pool_stride = PLAIN
    pool_size = PLAIN
    out_dim = PLAIN
    p_rows = PLAIN
    p_columns = PLAIN
    o_rows = PLAIN
    o_columns = PLAIN
    u_pad = PLAIN
    l_pad = PLAIN


class ActiveStore:
    """A store in its tracker."""

    valid = PLAIN
    entry = saved(RULE.entry, when="valid", among=ST)
    left = saved(when="valid")


class StoredRow:
    """A row on its way to the writer: where it lies (ABSENT: nowhere), its bytes, and its command."""

    kind = PLAIN
    row = saved(RULE.stored_row, when="kind", of="kind")
    bytes = PLAIN
    block = PLAIN
    ends = PLAIN  # whether it ends a request of the writer
    slot = PLAIN
    command = COMMAND
    address = saved(RULE.of_store, of="command")  # of this request


STORER, STORES, STORED = registers(Storer, 10), table(ActiveStore, "stores"), table(StoredRow, "stored")


def step_stores(m: Array, p: Program, t: int) -> None:
    """Run the store controller: a configuration takes a cycle, a store one cycle a row, or an element of a window."""
    item = peek(m, Q.stores, 0)
    funct, rs1, rs2 = p.prims[item >> 6, 0] & 127, p.prims[item >> 6, 1], p.prims[item >> 6, 2]
    if funct == CONFIG and rs1 & 3 == CONFIG_ST:
        configure_store(m, rs1, rs2)
        pop(m, Q.stores, t)
        return
    first = (
        m[STORER.row] + m[STORER.block] + m[STORER.p_row] + m[STORER.p_column] + m[STORER.w_row] + m[STORER.w_column]
        == 0
    )
    if first and m[STORER.state] == MOVING.sending:  # a store of one row
        m[STORER.state] = MOVING.waiting
        pop(m, Q.stores, t)
        return
    pooling, rows = m[STORER.pool_stride] != 0, rows_of(rs2)
    blocks = blocks_of(m, rs2)
    if m[STORER.state] == MOVING.waiting:
        if m[CHIP.stores_used] == m[CHIP.slots]:
            return
        m[STORER.slot] = 0
        while m[at(STORES.valid, m[STORER.slot])]:
            m[STORER.slot] += 1
        slot = row_offset(m[STORER.slot])
        m[slot + STORES.valid], m[slot + STORES.entry], m[slot + STORES.left] = 1, item & 63, rows * blocks
        if pooling:
            m[slot + STORES.left] = m[STORER.p_rows] * m[STORER.p_columns] * m[STORER.pool_size] * m[STORER.pool_size]
        m[CHIP.stores_used] += 1
        m[CHIP.active] = 1
        if m[slot + STORES.left] == 0:  # nothing to store, which trips an assertion in the RTL
            pop(m, Q.stores, t)
            return
        m[STORER.state] = MOVING.waiting_dma
    if not ready(m, Q.dispatch, t):
        return
    new = m[STORER.next]
    m[STORER.next] = (new + 1) & (RING - 1)
    w = row_offset(new)
    m[w + STORED.slot], m[w + STORED.command] = m[STORER.slot], item >> 6
    last = windowed(m, w, rs1, rs2) if pooling else plain(m, w, rs1, rs2, rows, blocks)
    push(m, Q.dispatch, new)
    m[STORER.state] = MOVING.sending
    if last and not first:
        m[STORER.state] = MOVING.waiting
        pop(m, Q.stores, t)


def configure_store(m: Array, rs1: int, rs2: int) -> None:
    """Take the fields of config_st."""
    m[STORER.stride], m[STORER.pool_size], m[STORER.pool_stride] = rs2 & 0xFFFFFFFF, rs1 >> 6 & 3, rs1 >> 4 & 3
    if m[STORER.pool_stride]:
        m[STORER.u_pad], m[STORER.l_pad], m[STORER.out_dim] = rs1 >> 8 & 3, rs1 >> 10 & 3, rs1 >> 24 & 0xFF
        m[STORER.p_rows] = rs1 >> 32 & 0xFF
        m[STORER.p_columns] = rs1 >> 40 & 0xFF
        m[STORER.o_rows] = rs1 >> 48 & 0xFF
        m[STORER.o_columns] = rs1 >> 56 & 0xFF


def place(m: Array, w: int, rs2: int, row: int, last_block: bool) -> None:
    """Set where a row lies, and its bytes for the writer."""
    acc = is_acc(rs2)
    m[w + STORED.kind] = IN_ACC if acc else IN_SPAD
    m[w + STORED.row] = rs2 + row & (m[CHIP.acc] if acc else m[CHIP.spad])
    m[w + STORED.bytes] = (columns_of(rs2) - 1 & m[CHIP.dim] - 1) + 1 if last_block else m[CHIP.dim]
    if acc and rs2 >> 29 & 1:
        m[w + STORED.bytes] *= 4


def plain(m: Array, w: int, rs1: int, rs2: int, rows: int, blocks: int) -> bool:
    """Make the request of one row of a block; return whether it is the last one."""
    row, block = m[STORER.row], m[STORER.block]
    ends = block == blocks - 1
    place(m, w, rs2, block * m[CHIP.dim] + row, ends)
    if is_garbage(m, rs2):
        m[w + STORED.kind] = ABSENT
    m[w + STORED.block], m[w + STORED.ends], m[w + STORED.address] = block, ends, rs1 + row * m[STORER.stride]
    m[STORER.block] = 0 if ends else block + 1
    if ends:
        m[STORER.row] = 0 if row == rows - 1 else row + 1
    return ends and row == rows - 1


def windowed(m: Array, w: int, rs1: int, rs2: int) -> bool:
    """Make the request of one element of a pooling window; return whether it is the last one."""
    y = m[STORER.p_row] * m[STORER.pool_stride] + m[STORER.w_row] - m[STORER.u_pad]
    x = m[STORER.p_column] * m[STORER.pool_stride] + m[STORER.w_column] - m[STORER.l_pad]
    place(m, w, rs2, y * m[STORER.o_columns] + x, True)
    if y < 0 or x < 0 or y >= m[STORER.o_rows] or x >= m[STORER.o_columns]:
        m[w + STORED.kind] = ABSENT
    m[w + STORED.block] = 0
    m[w + STORED.ends] = m[STORER.w_row] == m[STORER.pool_size] - 1 and m[STORER.w_column] == m[STORER.pool_size] - 1
    m[w + STORED.address] = rs1 + (m[STORER.p_row] * m[STORER.out_dim] + m[STORER.p_column]) * m[STORER.stride]
    m[STORER.w_column] += 1
    if m[STORER.w_column] == m[STORER.pool_size]:
        m[STORER.w_column] = 0
        m[STORER.w_row] += 1
        if m[STORER.w_row] == m[STORER.pool_size]:
            m[STORER.w_row] = 0
            m[STORER.p_column] += 1
            if m[STORER.p_column] == m[STORER.p_columns]:
                m[STORER.p_column] = 0
                m[STORER.p_row] += 1
                if m[STORER.p_row] == m[STORER.p_rows]:
                    m[STORER.p_row] = 0
                    return True
    return False


@part
def dispatches(m: Array) -> bool:
    """Return whether `step_dispatch` is needed in this cycle."""
    return count(m, Q.dispatch) + count(m, Q.norm) + count(m, Q.scale) > 0


def step_dispatch(m: Array, t: int) -> None:
    """Move the rows of stores towards the writer: read, through the absent normaliser, to the scale unit, to issue."""
    if count(m, Q.scale) and ready(m, Q.issue, t):
        if m[at(STORED.kind, peek(m, Q.scale, 0))] != IN_ACC:
            push(m, Q.issue, pop(m, Q.scale, t))
        elif count(m, Q.passed) and not m[CHIP.full]:
            pop(m, Q.passed, t)
            m[CHIP.pipe] |= 1
            push(m, Q.issue, pop(m, Q.scale, t))
    if count(m, Q.norm) and ready(m, Q.scale, t):
        item = peek(m, Q.norm, 0)
        if m[at(STORED.kind, item)] != IN_ACC:
            push(m, Q.scale, pop(m, Q.norm, t))
        else:
            bank = 1 << (m[at(STORED.row, item)] >> m[CHIP.lg_acc_bank])
            if (m[CHIP.acc_fetched] | m[CHIP.acc_held]) & bank and ready(m, Q.passed, t):
                m[CHIP.acc_fetched] &= ~bank
                m[CHIP.acc_held] &= ~bank
                push(m, Q.passed, 0)
                push(m, Q.scale, pop(m, Q.norm, t))
    if m[CHIP.acc_fetched]:
        m[CHIP.acc_held] |= m[CHIP.acc_fetched]
        m[CHIP.acc_fetched], m[CHIP.active] = 0, 1
    if count(m, Q.dispatch) and ready(m, Q.norm, t):
        dispatch(m, t)


def dispatch(m: Array, t: int) -> None:
    """Read a row for the writer: reads of the array come first, and writes of single-ported banks."""
    w = row_offset(peek(m, Q.dispatch, 0))
    row = m[w + STORED.row]
    if m[w + STORED.kind] == IN_SPAD:
        bank = row >> m[CHIP.lg_spad_bank]
        held = m[TO_ARRAY.held] | m[TO_WRITER.held]
        if (m[CHIP.ex_reads] | m[CHIP.spad_writes] | held) >> bank & 1:
            return
        m[TO_WRITER.fetched], m[TO_WRITER.under_way] = 1 << bank, 1
    elif m[w + STORED.kind] == IN_ACC:
        bank = row >> m[CHIP.lg_acc_bank]
        if in_flight(m, row, t):
            m[CHIP.active] = 1
            return
        if (m[CHIP.acc_held] | m[CHIP.acc_adds]) >> bank & 1:
            return
        m[CHIP.acc_fetched] |= 1 << bank
    m[at(STORES.left, m[w + STORED.slot])] -= 1
    push(m, Q.norm, pop(m, Q.dispatch, t))
    m[CHIP.progress] += 1
