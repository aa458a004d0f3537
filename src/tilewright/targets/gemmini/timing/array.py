"""The array with its input registers, tags and results (MeshWithDelays.scala, TagQueue.scala, Mesh.scala).

Data never influences time, so the model of the array is a delay line: a row leaves 2 * DIM cycles after it enters. The
identities of operations show which rows belong to a result.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX
from tilewright.targets.gemmini.timing.layout import OUT_RING, RING, at, row_offset
from tilewright.targets.gemmini.timing.moves import write_acc
from tilewright.targets.gemmini.timing.operands import is_acc
from tilewright.targets.gemmini.timing.queues import QUEUE, Q, count, peek, pop, push, ready, take
from tilewright.targets.gemmini.timing.records import PLAIN, POINTER, RULE, columns, registers, saved, table
from tilewright.targets.gemmini.timing.state import SHARED, TO_ARRAY

ALL = 7  # A, B and D
#: Operations are numbered modulo PRODUCTS, the largest number of operations in the array (MeshWithDelays.scala:
#: max_simultaneous_matmuls). A later operation pushes a result out: the result of operation n leaves with the rows of
#: operation n + 2 if it is weight-stationary, or n + 3 if it is output-stationary (matmul_id_of_output).
PRODUCTS = 5


class ExecuteState:
    """The states of the execute controller. A `stalled` controller waits forever for rows of the accumulator."""

    idle: int
    computes: int
    flushes: int
    flushing: int
    stalled: int


EX_STATE = columns(ExecuteState)


class ArrayUnit:
    """The current operation."""

    valid = PLAIN
    total = PLAIN  # the number of rows of the operation
    flush = PLAIN  # whether the operation is a flush
    fired = PLAIN  # the number of rows that have entered the array
    newest = POINTER  # the identity of the newest operation
    has = PLAIN  # a bit mask of the input registers (A, B, D) that contain a row
    out_row = PLAIN  # the number of result rows that have left the array


class Operation:
    """An operation that the controller requests from the array."""

    total = PLAIN
    entry = saved(RULE.entry, among=EX)  # of the preload that says where the result goes; -1: no result
    local = saved(RULE.local_result, of="entry")
    rows = PLAIN
    os = PLAIN


class Tag:
    """The tag of an operation: the identity of the rows that push its result out, and the destination of the result."""

    identity = saved(RULE.product)
    entry = saved(RULE.entry, among=EX)
    local = saved(RULE.local_result, of="entry")
    rows = PLAIN


class ResultRow:
    """A row that leaves the array in cycle `cycle`, and the identity of the operation that pushes it out."""

    cycle = saved(RULE.since)
    identity = saved(RULE.product)
    last = PLAIN


ARRAY = registers(ArrayUnit, 11)
OPERATIONS = table(Operation, "operations")
TAGS = table(Tag, "tags")
RESULTS = table(ResultRow, "results")


@part
def step_results(m: Array, t: int) -> None:
    """Write the row that leaves the array in cycle `t`. The last row of a result completes the tag's command."""
    out = row_offset(m[SHARED.first_out])
    m[SHARED.first_out] = (m[SHARED.first_out] + 1) & (OUT_RING - 1)
    m[SHARED.rows_out] -= 1
    m[SHARED.active] = 1
    # A row belongs to the oldest tag if the identities are equal. Other rows, such as the rows of a flush, are
    # discarded. Identities repeat after PRODUCTS operations, so a row can match a wrong tag (hazards: misrouted).
    tag = row_offset(m[Q.tags + QUEUE.head])
    tagged = count(m, Q.tags) > 0 and m[tag + TAGS.identity] == m[out + RESULTS.identity]
    total = peek(m, Q.totals, 0)
    counted = count(m, Q.totals) > 0 and total & 7 == m[out + RESULTS.identity]
    total = total >> 3 if counted else m[SHARED.dim]
    if tagged and m[tag + TAGS.entry] >= 0:
        row = m[ARRAY.out_row]
        offset = m[ARRAY.out_row] * m[SHARED.c_stride]
        # Output-stationary results leave the array from the last row to the first. The hardware subtracts the strided
        # offset from the last row, which is correct only for a stride of 1.
        if m[SHARED.os]:
            row = total - 1 - row
            offset = total - 1 - offset
        word = m[tag + TAGS.local]
        if row < m[tag + TAGS.rows] and is_acc(word):
            write_acc(m, word + offset & m[SHARED.acc], word >> 30 & 1, t)
        elif row < m[tag + TAGS.rows]:
            m[SHARED.spad_writes] |= 1 << ((word + offset & m[SHARED.spad]) >> m[SHARED.lg_spad_bank])
        m[ARRAY.out_row] = m[ARRAY.out_row] + 1 if m[ARRAY.out_row] + 1 < total else 0
        if m[out + RESULTS.last]:
            m[SHARED.ex_done] = m[tag + TAGS.entry]
    if m[out + RESULTS.last] and tagged:
        pop(m, Q.tags, t)
    if m[out + RESULTS.last] and counted:
        pop(m, Q.totals, t)


@part
def live_tags(m: Array, t: int) -> tuple[int, int]:
    """Return the index of the first tag, and the number of tags, including a tag that leaves in this cycle."""
    left = m[Q.tags + QUEUE.left] >> 2 == t
    return (m[Q.tags + QUEUE.head] - left) & (RING - 1), count(m, Q.tags) + left


def owes_result(m: Array, t: int) -> bool:
    first, n = live_tags(m, t)
    owed = False
    for i in range(n):
        owed = owed or m[at(TAGS.entry, (first + i) & (RING - 1))] >= 0
    return owed


def being_written(m: Array, word: int, t: int) -> bool:
    """Return whether the result of any tag begins at the first row of an operand."""
    # The controller compares only the first rows of operands (ExecuteController.scala: is_same_address).
    # hazards/order.py reports the hazards that this comparison does not detect.
    first, n = live_tags(m, t)
    for i in range(n):
        tag = row_offset((first + i) & (RING - 1))
        if m[tag + TAGS.entry] >= 0 and (m[tag + TAGS.local] ^ word) & (1 << 31 | m[SHARED.rows]) == 0:
            return True
    return False


@part
def step_array(m: Array, t: int) -> None:
    """Move a row from the input registers into the array, and rows from the scratchpad's pipes into the registers."""
    # A row enters when the input registers of A, B and D are all full. A flush needs no input registers.
    full = m[ARRAY.valid] != 0 and (m[ARRAY.flush] != 0 or m[ARRAY.has] == ALL)
    last = full and m[ARRAY.fired] == m[ARRAY.total] - 1
    may_ask = (m[ARRAY.valid] == 0 or last) and ready(m, Q.tags, t) and ready(m, Q.totals, t)
    if full:
        out = row_offset((m[SHARED.first_out] + m[SHARED.rows_out]) & (OUT_RING - 1))
        m[out + RESULTS.cycle] = t + 2 * m[SHARED.dim]
        m[out + RESULTS.identity] = m[ARRAY.newest]
        m[out + RESULTS.last] = last
        m[SHARED.rows_out] += 1
        m[ARRAY.fired] = 0 if last else m[ARRAY.fired] + 1
        m[ARRAY.has] = 0
        m[SHARED.active] = 1
    asked = False
    if count(m, Q.control):
        asked = feed(m, full or may_ask, may_ask)
    elif m[SHARED.ex_state] == EX_STATE.flushes and may_ask:
        m[ARRAY.valid] = 1
        m[ARRAY.total] = m[SHARED.dim]
        m[ARRAY.flush] = 1
        m[ARRAY.newest] = later_identity(m[ARRAY.newest], 1)
        m[SHARED.active] = 1
        asked = True
    if last and not asked:
        m[ARRAY.valid] = 0
    m[SHARED.may_ask] = may_ask
    m[SHARED.asked] = asked


@part
def feed(m: Array, open_: bool, may_ask: bool) -> bool:
    """Execute the oldest control signals: fill the input registers, and begin an operation if requested.

    With `open_`, the rows in the registers leave in this cycle, so even full registers accept new rows. The signals
    wait until all required rows have arrived from their banks, and until the array can begin the requested operation.
    Returns whether an operation began.
    """
    control = peek(m, Q.control, 0)
    wanted = control & (ALL if open_ else ALL & ~m[ARRAY.has])
    stuck = control >> 3 & 1 != 0 and not may_ask
    banks = 0
    for k in range(3):
        bank = control >> (8 + 8 * k) & 0xFF
        if wanted >> k & 1 and bank:
            banks |= 1 << (bank - 1)
            if not m[TO_ARRAY.last] >> (bank - 1) & 1:
                wanted &= ~(1 << k)
                stuck = True
    m[ARRAY.has] |= wanted
    if stuck:
        return False
    m[TO_ARRAY.last] &= ~banks
    take(m, Q.control)
    if not (control & 7 and may_ask):
        return False
    op = row_offset(control >> 32)
    m[ARRAY.valid] = 1
    m[ARRAY.total] = m[op + OPERATIONS.total]
    m[ARRAY.flush] = 0
    tag = row_offset((m[Q.tags + QUEUE.head] + count(m, Q.tags)) & (RING - 1))
    m[tag + TAGS.identity] = later_identity(m[ARRAY.newest], 3 if m[op + OPERATIONS.os] else 2)
    m[tag + TAGS.entry] = m[op + OPERATIONS.entry]
    m[tag + TAGS.local] = m[op + OPERATIONS.local]
    m[tag + TAGS.rows] = m[op + OPERATIONS.rows]
    push(m, Q.tags, 0)
    m[ARRAY.newest] = later_identity(m[ARRAY.newest], 1)
    push(m, Q.totals, m[op + OPERATIONS.total] << 3 | m[ARRAY.newest])
    return True


@part
def later_identity(identity: int, by: int) -> int:
    return identity + by - PRODUCTS if identity + by >= PRODUCTS else identity + by
