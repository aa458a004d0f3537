"""The store controller (StoreController.scala) and the way of its rows to the writer (Scratchpad.scala)."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import ST
from tilewright.targets.gemmini.timing.layout import RING, at, row_offset
from tilewright.targets.gemmini.timing.load import first_free
from tilewright.targets.gemmini.timing.moves import in_flight
from tilewright.targets.gemmini.timing.operands import (
    ABSENT,
    IN_ACC,
    IN_SPAD,
    blocks_of,
    columns_of,
    is_acc,
    is_garbage,
    rows_of,
)
from tilewright.targets.gemmini.timing.program import CONFIG, Program, configured
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready
from tilewright.targets.gemmini.timing.records import COMMAND, PLAIN, POINTER, RULE, registers, saved, table
from tilewright.targets.gemmini.timing.state import CHIP, MOVING, TO_ARRAY, TO_WRITER


class Storer:
    """The controller of stores. P: the pixel of a pooling in hand, W: its window."""

    state = PLAIN
    slot = PLAIN
    next = POINTER  # in the table of rows
    row = PLAIN
    block = PLAIN
    p_row = PLAIN
    p_column = PLAIN
    w_row = PLAIN
    w_column = PLAIN


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


STORER = registers(Storer, 10)
STORES = table(ActiveStore, "stores")
STORED = table(StoredRow, "stored")


def step_stores(m: Array, p: Program, t: int) -> None:
    """Run the store controller: a configuration takes a cycle, a store one cycle a row, or an element of a window."""
    item = peek(m, Q.stores, 0)
    prim = item >> 6
    rs1 = p.prims[prim, 1]
    rs2 = p.prims[prim, 2]
    config = configured(p, prim, 1)
    first = (
        m[STORER.row] + m[STORER.block] + m[STORER.p_row] + m[STORER.p_column] + m[STORER.w_row] + m[STORER.w_column]
        == 0
    )
    single = first and m[STORER.state] == MOVING.sending  # a store of one row
    if single or p.prims[prim, 0] & 127 == CONFIG:
        m[STORER.state] = MOVING.waiting
        pop(m, Q.stores, t)
        return
    pooling = config >> 4 & 3 != 0
    rows = rows_of(rs2)
    blocks = blocks_of(m, rs2)
    stride = store_stride(p, prim)
    if m[STORER.state] == MOVING.waiting:
        if m[CHIP.stores_used] == m[CHIP.slots]:
            return
        m[STORER.slot] = first_free(m, STORES.valid)
        slot = row_offset(m[STORER.slot])
        m[slot + STORES.valid] = 1
        m[slot + STORES.entry] = item & 63
        m[slot + STORES.left] = rows * blocks
        if pooling:
            window = config >> 6 & 3
            m[slot + STORES.left] = (config >> 32 & 0xFF) * (config >> 40 & 0xFF) * window * window
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
    m[w + STORED.slot] = m[STORER.slot]
    m[w + STORED.command] = prim
    last = windowed(m, w, rs1, rs2, config, stride) if pooling else plain(m, w, rs1, rs2, stride)
    push(m, Q.dispatch, new)
    m[STORER.state] = MOVING.sending
    if last and not first:
        m[STORER.state] = MOVING.waiting
        pop(m, Q.stores, t)


@part
def store_stride(p: Program, prim: int) -> int:
    """Return the bytes from row to row of a store in DRAM."""
    return configured(p, prim, 2) & 0xFFFFFFFF


def place(m: Array, w: int, rs2: int, row: int, last_block: bool) -> None:
    """Set where a row lies, and its bytes for the writer."""
    acc = is_acc(rs2)
    m[w + STORED.kind] = IN_ACC if acc else IN_SPAD
    m[w + STORED.row] = rs2 + row & (m[CHIP.acc] if acc else m[CHIP.spad])
    m[w + STORED.bytes] = (columns_of(rs2) - 1 & m[CHIP.dim] - 1) + 1 if last_block else m[CHIP.dim]
    if acc and rs2 >> 29 & 1:
        m[w + STORED.bytes] *= 4


def plain(m: Array, w: int, rs1: int, rs2: int, stride: int) -> bool:
    """Make the request of one row of a block; return whether it is the last one."""
    row = m[STORER.row]
    block = m[STORER.block]
    ends = block == blocks_of(m, rs2) - 1
    last = row == rows_of(rs2) - 1
    place(m, w, rs2, block * m[CHIP.dim] + row, ends)
    if is_garbage(m, rs2):
        m[w + STORED.kind] = ABSENT
    m[w + STORED.block] = block
    m[w + STORED.ends] = ends
    m[w + STORED.address] = rs1 + row * stride
    m[STORER.block] = 0 if ends else block + 1
    if ends:
        m[STORER.row] = 0 if last else row + 1
    return ends and last


def windowed(m: Array, w: int, rs1: int, rs2: int, config: int, stride: int) -> bool:
    """Make the request of one element of a pooling window; return whether it is the last one."""
    size = config >> 6 & 3
    o_columns = config >> 56 & 0xFF
    y = m[STORER.p_row] * (config >> 4 & 3) + m[STORER.w_row] - (config >> 8 & 3)
    x = m[STORER.p_column] * (config >> 4 & 3) + m[STORER.w_column] - (config >> 10 & 3)
    place(m, w, rs2, y * o_columns + x, True)
    if y < 0 or x < 0 or y >= config >> 48 & 0xFF or x >= o_columns:
        m[w + STORED.kind] = ABSENT
    m[w + STORED.block] = 0
    m[w + STORED.ends] = m[STORER.w_row] == size - 1 and m[STORER.w_column] == size - 1
    m[w + STORED.address] = rs1 + (m[STORER.p_row] * (config >> 24 & 0xFF) + m[STORER.p_column]) * stride
    return (
        counted(m, STORER.w_column, size)
        and counted(m, STORER.w_row, size)
        and counted(m, STORER.p_column, config >> 40 & 0xFF)
        and counted(m, STORER.p_row, config >> 32 & 0xFF)
    )


@part
def counted(m: Array, place: int, end: int) -> bool:
    """Advance a counter, which begins again at its end; return whether it did."""
    m[place] = m[place] + 1 if m[place] + 1 != end else 0
    return m[place] == 0


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
        m[CHIP.acc_fetched] = 0
        m[CHIP.active] = 1
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
        m[TO_WRITER.fetched] = 1 << bank
        m[TO_WRITER.under_way] = 1
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
