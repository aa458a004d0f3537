"""The load controller (LoadController.scala) and the DMA reader (DMA.scala: StreamReaderCore)."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import LD, SCALE_ONE
from tilewright.targets.gemmini.timing.bus import READER, TRANSACTIONS, packet
from tilewright.targets.gemmini.timing.layout import at, row_offset
from tilewright.targets.gemmini.timing.operands import columns_of, is_acc, rows_of
from tilewright.targets.gemmini.timing.program import CONFIG, Program, configured
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready, take
from tilewright.targets.gemmini.timing.records import PLAIN, RULE, WIRE, registers, saved, table
from tilewright.targets.gemmini.timing.state import LG_PAGE, MOVE_STATE, SHARED


class Loader:
    """The load controller: its state, and the current load's row and tracker slot."""

    state = PLAIN
    row = PLAIN
    slot = PLAIN


class ActiveLoad:
    """A load in the tracker. The function `track` computes all fields that are declared as WIRE."""

    valid = PLAIN
    entry = saved(RULE.entry, when="valid", among=LD)
    left = saved(when="valid")  # the number of bytes that are not written yet
    address = WIRE  # the DRAM address
    stride = WIRE
    local = WIRE
    columns = WIRE
    rows = WIRE
    repeats = WIRE
    block = WIRE
    scaled = WIRE
    wide = WIRE  # log2 of the size of a DRAM element in bytes
    in_acc = WIRE
    adds = WIRE
    pixels = WIRE


LOADER = registers(Loader, 6)
LOADS = table(ActiveLoad, "loads")


def step_loads(m: Array, p: Program, t: int) -> None:
    """Run the load controller: a configuration takes one cycle, and a load takes one cycle per row."""
    item = peek(m, Q.loads, 0)
    row = m[LOADER.row]
    config = p.prims[item >> 6, 0] & 127 == CONFIG
    if config or (m[LOADER.state] == MOVE_STATE.sending and row == 0):  # a load of one row
        m[LOADER.state] = MOVE_STATE.waiting
        pop(m, Q.loads, t)
        return
    if m[LOADER.state] == MOVE_STATE.waiting:
        if m[SHARED.loads_used] == m[SHARED.slots]:
            return
        m[LOADER.slot] = first_free(m, LOADS.valid)
        m[SHARED.loads_used] += 1
        slot = row_offset(m[LOADER.slot])
        track(m, p, slot, item >> 6)
        m[slot + LOADS.valid] = 1
        m[slot + LOADS.entry] = item & 63
        m[slot + LOADS.left] = m[slot + LOADS.columns] * m[slot + LOADS.rows] << m[slot + LOADS.wide]
        m[SHARED.active] = 1
        if m[slot + LOADS.left] == 0:  # a load of no bytes, which fails an assertion in the RTL
            pop(m, Q.loads, t)
            return
        m[LOADER.state] = MOVE_STATE.waiting_dma
    load = row_offset(m[LOADER.slot])
    # A load from address 0 writes zeros. The zeros come from a separate writer, so they may overtake earlier loads.
    if m[load + LOADS.address] == 0:
        if m[SHARED.zeros_valid]:
            return
        m[SHARED.zeros_valid] = 1
        m[SHARED.zeros_slot] = m[LOADER.slot]
        m[SHARED.zeros_column] = 0
        m[SHARED.zeros_address] = m[load + LOADS.local] + row
        m[SHARED.active] = 1
    elif ready(m, Q.reads, t):
        push(m, Q.reads, m[LOADER.slot] << 32 | row)
    else:
        return
    last = row == m[load + LOADS.rows] - 1
    m[LOADER.row] = 0 if last else row + 1
    m[LOADER.state] = MOVE_STATE.sending
    if last and row:
        m[LOADER.state] = MOVE_STATE.waiting
        pop(m, Q.loads, t)


def track(m: Array, p: Program, load: int, prim: int) -> None:
    """Set the fields of a load that follow from its command and its configuration."""
    rs1 = p.prims[prim, 1]
    rs2 = p.prims[prim, 2]
    config = configured(p, prim, 1)
    m[load + LOADS.address] = rs1
    m[load + LOADS.local] = rs2 & 0xFFFFFFFF
    m[load + LOADS.stride] = configured(p, prim, 2)
    m[load + LOADS.columns] = columns_of(rs2)
    m[load + LOADS.rows] = rows_of(rs2)
    # With stride 0, the hardware reads one row and writes it to all rows, from the last row to the first (`repeats`).
    m[load + LOADS.repeats] = 0
    if m[load + LOADS.stride] == 0 and rs1 != 0 and rows_of(rs2) > 0:
        m[load + LOADS.rows] = 1
        m[load + LOADS.repeats] = rows_of(rs2) - 1
    m[load + LOADS.block] = config >> 16 & 0xFFFF
    m[load + LOADS.scaled] = config != 0 and config >> 32 & 0xFFFFFFFF != SCALE_ONE
    m[load + LOADS.pixels] = max(config >> 8 & 0xFF, 1) if config else 0
    m[load + LOADS.in_acc] = is_acc(rs2)
    m[load + LOADS.adds] = rs2 >> 30 & 1
    m[load + LOADS.wide] = lg_bytes(rs2, config)


@part
def first_free(m: Array, valid: int) -> int:
    slot = 0
    while m[at(valid, slot)]:
        slot += 1
    return slot


@part
def lg_bytes(rs2: int, config: int) -> int:
    """Return log2 of the size of a load's DRAM element: 4 bytes for the accumulator (unless `shrunk`), else 1 byte."""
    return 2 if is_acc(rs2) and not config >> 2 & 1 else 0


def step_reader(m: Array, t: int) -> None:
    """Run the reader. Translation takes two cycles, and is repeated if the bus refuses the request."""
    # A retry has priority over a new request for the first stage (DMA.scala: tlb_arb).
    again = False
    item = m[READER.x_item]
    page = m[READER.x_page]
    if m[READER.x_valid] | m[READER.t_valid]:
        m[SHARED.active] = 1
    if m[READER.x_valid]:
        again = not (m[READER.x_ok] and ready(m, Q.a_read, t))
        if not again:
            push(m, Q.a_read, item)
    m[READER.x_valid] = m[READER.t_valid]
    m[READER.x_item] = m[READER.t_item]
    m[READER.x_page] = m[READER.t_page]
    m[READER.x_hit] = m[READER.t_hit]
    m[READER.t_valid] = 0
    if again:
        m[READER.t_valid] = 1
        m[READER.t_item] = item
        m[READER.t_page] = page
    elif m[READER.busy] and m[READER.requests] + (m[READER.freed_at] == t) < m[SHARED.max_reads]:
        request_packet(m)
    if not m[READER.busy] and count(m, Q.reads):
        request = take(m, Q.reads)
        load = row_offset(request >> 32)
        row = request & 0xFFFFFFFF
        m[READER.busy] = 1
        m[READER.slot] = request >> 32
        m[READER.asked] = 0
        m[READER.address] = m[load + LOADS.address] + row * m[load + LOADS.stride]
        m[READER.row] = m[load + LOADS.local] + row & (m[SHARED.acc] if m[load + LOADS.in_acc] else m[SHARED.spad])


def request_packet(m: Array) -> None:
    """Issue one request of the current row, and reserve a transaction for the response (XactTracker.scala)."""
    load = row_offset(m[READER.slot])
    left = (m[load + LOADS.columns] << m[load + LOADS.wide]) - m[READER.asked]
    size, useful = packet(m, m[READER.address], left)
    # The hardware takes the lowest free transaction. The choice does not influence time. The model takes transactions
    # in turn, so that snapshots can number transactions relative to the newest transaction.
    i = m[READER.next]
    while m[at(TRANSACTIONS.taken, i)]:
        i = i + 1 if i + 1 < m[SHARED.max_reads] else 0
    m[READER.next] = i
    lg_row = m[SHARED.lg_dim] + m[load + LOADS.wide]
    x = row_offset(i)
    m[x + TRANSACTIONS.taken] = 1
    m[x + TRANSACTIONS.slot] = m[READER.slot]
    m[x + TRANSACTIONS.bytes] = useful
    m[x + TRANSACTIONS.size] = size
    m[x + TRANSACTIONS.shift] = m[READER.address] & (size - 1)
    m[x + TRANSACTIONS.offset] = m[READER.asked] & ((1 << lg_row) - 1)
    m[x + TRANSACTIONS.row] = m[READER.row] + m[load + LOADS.block] * (m[READER.asked] >> lg_row)
    m[READER.requests] += 1
    m[READER.t_page] = m[READER.address] >> LG_PAGE
    m[READER.t_item] = i
    m[READER.t_valid] = 1
    m[READER.address] += useful
    m[READER.asked] += useful
    if useful == left:
        m[READER.busy] = 0
    m[SHARED.active] = 1
