"""The store controller (StoreController.scala), and the queues between it and the writer (Scratchpad.scala)."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import NORM, ST
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
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready, take
from tilewright.targets.gemmini.timing.queues import item as item_of
from tilewright.targets.gemmini.timing.records import COMMAND, PLAIN, POINTER, RULE, registers, saved, table
from tilewright.targets.gemmini.timing.state import MOVE_STATE, SHARED, TO_ARRAY, TO_WRITER

#: The norm commands, in the order of the hardware (NormCmd.scala). RESET writes the row.
RESET, SUM, MEAN, VARIANCE, INV_STDDEV, MAX, SUM_EXP, INV_SUM_EXP = range(8)
#: The type of config_norm.
CONFIG_NORM = 3
#: The cycles of the normaliser's units: the lanes' latency, a division, a root with its reciprocal, and the division of
#: a softmax, alone and with the product behind it.
LANE_CYCLES = 4
DIVIDER_CYCLES = 18
ROOT_CYCLES = 36
SHARE_DIVIDER_CYCLES = 16
SHARE_CYCLES = 17


class Storer:
    """The store controller. `p_..` is the current result pixel of a pooled store, `w_..` the position in its window."""

    state = PLAIN
    slot = PLAIN
    next = POINTER  # the next index into OUTGOING
    row = PLAIN
    block = PLAIN
    p_row = PLAIN
    p_column = PLAIN
    w_row = PLAIN
    w_column = PLAIN
    statistics = PLAIN  # the set of statistics that config_norm has selected


class NormUnit:
    """The cycles from which the parts of the normaliser are free."""

    statistics = saved(RULE.due, size=2)  # a set of statistics accepts a row
    input = saved(RULE.due)  # any set accepts a row
    lanes = saved(RULE.due)
    divider = saved(RULE.due)
    share_divider = saved(RULE.due)  # the divider of softmax


class ActiveStore:
    """A store in the tracker of stores."""

    valid = PLAIN
    entry = saved(RULE.entry, when="valid", among=ST)
    left = saved(when="valid")


class OutgoingRow:
    """A row on its way to the writer: the source memory and row, the number of bytes, and the command."""

    kind = PLAIN  # ABSENT: no row is read, and the writer gets zeros
    row = saved(RULE.outgoing_row, when="kind", of="kind")
    bytes = PLAIN
    block = PLAIN
    ends = PLAIN  # whether the row ends a request of the writer
    slot = PLAIN
    norm = PLAIN  # the norm command, and 8 * the set of statistics
    command = COMMAND
    address = saved(RULE.of_store, of="command")  # the DRAM address of this request


STORER = registers(Storer, 10)
NORM_UNIT = registers(NormUnit, 15)
STORES = table(ActiveStore, "stores")
OUTGOING = table(OutgoingRow, "outgoing")


def step_stores(m: Array, p: Program, t: int) -> None:
    """Run the store controller: a configuration takes one cycle, a store one cycle per row or window pixel."""
    # A command leaves its queue in the cycle of its last row. A command with a single row leaves one cycle later: its
    # last row is row 0, which the controller treats as the start of a command.
    item = peek(m, Q.stores, 0)
    prim = item >> 6
    rs1 = p.prims[prim, 1]
    rs2 = p.prims[prim, 2]
    config = configured(p, prim, 1)
    first = (
        m[STORER.row] + m[STORER.block] + m[STORER.p_row] + m[STORER.p_column] + m[STORER.w_row] + m[STORER.w_column]
        == 0
    )
    single = first and m[STORER.state] == MOVE_STATE.sending  # a store of one row
    if single or p.prims[prim, 0] & 127 == CONFIG:
        m[STORER.state] = MOVE_STATE.waiting
        if m[SHARED.normalises] and not single and rs1 & 3 == CONFIG_NORM:
            m[STORER.statistics] = rs1 >> 8 & 1
        pop(m, Q.stores, t)
        return
    pooling = config >> 4 & 3 != 0
    rows = rows_of(rs2)
    blocks = blocks_of(m, rs2)
    stride = store_stride(p, prim)
    if m[STORER.state] == MOVE_STATE.waiting:
        if m[SHARED.stores_used] == m[SHARED.slots]:
            return
        m[STORER.slot] = first_free(m, STORES.valid)
        slot = row_offset(m[STORER.slot])
        m[slot + STORES.valid] = 1
        m[slot + STORES.entry] = item & 63
        # The tracker counts rows that were read on chip (with pooling: window pixels). So a store completes before its
        # bytes are in DRAM [R: gemmini_timing rule 8].
        m[slot + STORES.left] = rows * blocks
        if pooling:
            window = config >> 6 & 3
            m[slot + STORES.left] = (config >> 32 & 0xFF) * (config >> 40 & 0xFF) * window * window
        m[SHARED.stores_used] += 1
        m[SHARED.active] = 1
        if m[slot + STORES.left] == 0:  # a store of no rows, which fails an assertion in the RTL
            pop(m, Q.stores, t)
            return
        m[STORER.state] = MOVE_STATE.waiting_dma
    if not ready(m, Q.dispatch, t):
        return
    new = m[STORER.next]
    m[STORER.next] = (new + 1) & (RING - 1)
    w = row_offset(new)
    m[w + OUTGOING.slot] = m[STORER.slot]
    m[w + OUTGOING.command] = prim
    last = pooled_pixel(m, w, rs1, rs2, config, stride) if pooling else plain_row(m, w, rs1, rs2, stride)
    push(m, Q.dispatch, new)
    m[STORER.state] = MOVE_STATE.sending
    if last and not first:
        m[STORER.state] = MOVE_STATE.waiting
        pop(m, Q.stores, t)


@part
def store_stride(p: Program, prim: int) -> int:
    return configured(p, prim, 2) & 0xFFFFFFFF


def set_row(m: Array, w: int, rs2: int, row: int, last_block: bool) -> None:
    acc = is_acc(rs2)
    m[w + OUTGOING.kind] = IN_ACC if acc else IN_SPAD
    m[w + OUTGOING.row] = rs2 + row & (m[SHARED.acc] if acc else m[SHARED.spad])
    m[w + OUTGOING.bytes] = (columns_of(rs2) - 1 & m[SHARED.dim] - 1) + 1 if last_block else m[SHARED.dim]
    if acc and rs2 >> 29 & 1:
        m[w + OUTGOING.bytes] *= 4
    # Only the last block of a row has a command that ends a sum; the command before it is that of the other blocks.
    norm = rs2 >> NORM & 7 if acc and m[SHARED.normalises] else 0
    if not last_block and (norm in (MEAN, INV_STDDEV, INV_SUM_EXP)):
        norm -= 1
    m[w + OUTGOING.norm] = norm | m[STORER.statistics] << 3


def plain_row(m: Array, w: int, rs1: int, rs2: int, stride: int) -> bool:
    """Request one row of a block. Return whether this is the last row of the store."""
    # The order is all blocks of a row, then the next row, so that the writer can send a whole row in one request.
    row = m[STORER.row]
    block = m[STORER.block]
    ends = block == blocks_of(m, rs2) - 1
    last = row == rows_of(rs2) - 1
    set_row(m, w, rs2, block * m[SHARED.dim] + row, ends)
    if is_garbage(m, rs2):
        m[w + OUTGOING.kind] = ABSENT
    m[w + OUTGOING.block] = block
    m[w + OUTGOING.ends] = ends
    m[w + OUTGOING.address] = rs1 + row * stride
    m[STORER.block] = 0 if ends else block + 1
    if ends:
        m[STORER.row] = 0 if last else row + 1
    return ends and last


def pooled_pixel(m: Array, w: int, rs1: int, rs2: int, config: int, stride: int) -> bool:
    """Request one pixel of a pooling window. Return whether this is the last pixel of the store."""
    # The writer computes the maximum of the window. For a pixel outside of the image, the writer uses zeros.
    size = config >> 6 & 3
    o_columns = config >> 56 & 0xFF
    y = m[STORER.p_row] * (config >> 4 & 3) + m[STORER.w_row] - (config >> 8 & 3)
    x = m[STORER.p_column] * (config >> 4 & 3) + m[STORER.w_column] - (config >> 10 & 3)
    set_row(m, w, rs2, y * o_columns + x, True)
    if y < 0 or x < 0 or y >= config >> 48 & 0xFF or x >= o_columns:
        m[w + OUTGOING.kind] = ABSENT
    m[w + OUTGOING.block] = 0
    m[w + OUTGOING.ends] = m[STORER.w_row] == size - 1 and m[STORER.w_column] == size - 1
    m[w + OUTGOING.address] = rs1 + (m[STORER.p_row] * (config >> 24 & 0xFF) + m[STORER.p_column]) * stride
    # Four nested loops, the innermost loop first: each counter advances when the counter before it wraps around.
    return (
        count_up(m, STORER.w_column, size)
        and count_up(m, STORER.w_row, size)
        and count_up(m, STORER.p_column, config >> 40 & 0xFF)
        and count_up(m, STORER.p_row, config >> 32 & 0xFF)
    )


@part
def count_up(m: Array, place: int, end: int) -> bool:
    """Advance a counter, which wraps around at `end`. Return whether the counter wrapped around."""
    m[place] = m[place] + 1 if m[place] + 1 != end else 0
    return m[place] == 0


def step_dispatch(m: Array, t: int) -> None:
    """Move rows of stores towards the writer, through the queues dispatch, norm, scale and issue."""
    # A row is read when it moves from `dispatch` to `norm`. An accumulator row then passes through the normaliser's
    # stage (the measured builds have no normaliser, so the row stays unchanged) and the scale unit. Other rows skip
    # both units, but never overtake.
    if count(m, Q.scale) and ready(m, Q.issue, t):
        if m[at(OUTGOING.kind, peek(m, Q.scale, 0))] != IN_ACC:
            push(m, Q.issue, pop(m, Q.scale, t))
        elif count(m, Q.passed) and not m[SHARED.full]:
            if m[SHARED.normalises]:
                take_normalised(m)
            else:
                pop(m, Q.passed, t)
            m[SHARED.pipe] |= 1
            push(m, Q.issue, pop(m, Q.scale, t))
    if count(m, Q.norm) and ready(m, Q.scale, t):
        item = peek(m, Q.norm, 0)
        if m[at(OUTGOING.kind, item)] != IN_ACC:
            push(m, Q.scale, pop(m, Q.norm, t))
        else:
            bank = 1 << (m[at(OUTGOING.row, item)] >> m[SHARED.lg_acc_bank])
            if (m[SHARED.acc_fetched] | m[SHARED.acc_held]) & bank and (
                normalise(m, m[at(OUTGOING.norm, item)], t) if m[SHARED.normalises] else ready(m, Q.passed, t)
            ):
                m[SHARED.acc_fetched] &= ~bank
                m[SHARED.acc_held] &= ~bank
                # Rows that only update statistics end here.
                if m[at(OUTGOING.norm, item)] & 7 == RESET:
                    push(m, Q.passed, m[at(OUTGOING.norm, item)] >> 3)
                    push(m, Q.scale, item)
                pop(m, Q.norm, t)
    if m[SHARED.acc_fetched]:
        m[SHARED.acc_held] |= m[SHARED.acc_fetched]
        m[SHARED.acc_fetched] = 0
        m[SHARED.active] = 1
    if count(m, Q.dispatch) and ready(m, Q.norm, t):
        dispatch(m, t)


def take_normalised(m: Array) -> None:
    """Remove a row from the normaliser: of two rows, the one with the first set of statistics."""
    if take(m, Q.passed) == 1 and count(m, Q.passed) and peek(m, Q.passed, 0) == 0:
        m[item_of(m, Q.passed, 0)] = 1


def normalise(m: Array, norm: int, t: int) -> bool:
    """Offer a row to the normaliser. Return whether it accepts the row (Normalizer.scala)."""
    # Each set of statistics has one row. The model assumes that no sum is 0: the divider would end early.
    statistics = norm >> 3
    command = norm & 7
    m[SHARED.active] = 1
    waits = t < m[NORM_UNIT.input] or t < m[NORM_UNIT.statistics + statistics]
    for i in range(count(m, Q.passed)):
        waits = waits or peek(m, Q.passed, i) == statistics
    if waits or command == RESET:
        return not waits
    if command == MAX:
        m[NORM_UNIT.input] = m[NORM_UNIT.statistics + statistics] = t + 2
        m[NORM_UNIT.lanes] = t + LANE_CYCLES + 2
        return True
    lanes = max(t + 1, m[NORM_UNIT.lanes])
    if command in (MEAN, INV_STDDEV):
        divided = max(lanes + LANE_CYCLES + 1, m[NORM_UNIT.divider])
        m[NORM_UNIT.input] = divided + 1
        m[NORM_UNIT.divider] = divided + DIVIDER_CYCLES
        m[NORM_UNIT.statistics + statistics] = divided + DIVIDER_CYCLES + (ROOT_CYCLES if command == INV_STDDEV else 0)
    elif command == INV_SUM_EXP:
        m[NORM_UNIT.input] = lanes + 1
        divided = max(lanes + LANE_CYCLES + 1, m[NORM_UNIT.share_divider])
        m[NORM_UNIT.share_divider] = divided + SHARE_DIVIDER_CYCLES
        m[NORM_UNIT.statistics + statistics] = divided + SHARE_CYCLES
    else:
        m[NORM_UNIT.statistics + statistics] = lanes
    return True


def dispatch(m: Array, t: int) -> None:
    # A scratchpad bank has one port, which serves writes first, then the array, then the writer (Scratchpad.scala:
    # bank_ios). A row that waits for the pipe blocks its bank. In the accumulator, a write blocks reads of its row, and
    # an addition blocks reads of its bank, because it uses both ports of the bank (AccumulatorMem.scala).
    w = row_offset(peek(m, Q.dispatch, 0))
    row = m[w + OUTGOING.row]
    if m[w + OUTGOING.kind] == IN_SPAD:
        bank = row >> m[SHARED.lg_spad_bank]
        held = m[TO_ARRAY.held] | m[TO_WRITER.held]
        if (m[SHARED.ex_reads] | m[SHARED.spad_writes] | held) >> bank & 1:
            return
        m[TO_WRITER.fetched] = 1 << bank
        m[TO_WRITER.under_way] = 1
    elif m[w + OUTGOING.kind] == IN_ACC:
        bank = row >> m[SHARED.lg_acc_bank]
        if in_flight(m, row, t):
            m[SHARED.active] = 1
            return
        if (m[SHARED.acc_held] | m[SHARED.acc_adds]) >> bank & 1:
            return
        m[SHARED.acc_fetched] |= 1 << bank
    m[at(STORES.left, m[w + OUTGOING.slot])] -= 1
    push(m, Q.norm, pop(m, Q.dispatch, t))
    m[SHARED.progress] += 1
