"""The array with its input registers, tags and results (MeshWithDelays.scala, TagQueue.scala, Mesh.scala)."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.chip import at, count, is_acc, peek, pop, push, ready, take
from tilewright.targets.gemmini.timing.moves import write_acc

#: Registers: the operation in hand, its rows, whether it is a flush, rows that went in; the identity of the newest;
#: which of A, B and D hold a row (bits); rows of the result that came out.
VALID, TOTAL, FLUSH, FIRED, NEWEST, HAS, OUT_ROW = range(c.ARRAY, c.ARRAY + 7)
ALL = 7  # A, B and D
#: Columns of TAGGED, OPS and OUT.
ID, ENTRY, ADDR, TAG_ROWS = range(4)
OP_TOTAL, OP_ENTRY, OP_ADDR, OP_ROWS, OP_OS = range(5)
CYCLE, OUT_ID, LAST = range(3)
#: Identities count modulo the products that the array holds at once. The result of an operation leaves with the
#: second one after it; in output-stationary products with the third.
PRODUCTS = 5
ARRIVED = c.TO_ARRAY + c.LAST_STAGE
FLUSHES = 2  # a state of the execute controller


@part
def has_result(m: Array, t: int) -> bool:
    """Return whether a row leaves the array in cycle `t`."""
    return m[c.ROWS_OUT] != 0 and m[at(c.OUT, m[c.FIRST_OUT]) + CYCLE] == t


@part
def step_results(m: Array, t: int) -> None:
    """Write the row that leaves the array in cycle `t`. The last one completes the command of its tag."""
    out = at(c.OUT, m[c.FIRST_OUT])
    m[c.FIRST_OUT] = (m[c.FIRST_OUT] + 1) & (c.OUT_RING - 1)
    m[c.ROWS_OUT] -= 1
    m[c.ACTIVE] = 1
    tag = at(c.TAGGED, m[c.QUEUES + c.TAGS * c.PER_QUEUE + c.HEAD])
    tagged = count(m, c.TAGS) > 0 and m[tag + ID] == m[out + OUT_ID]
    total = peek(m, c.TOTALS, 0)
    counted = count(m, c.TOTALS) > 0 and total & 7 == m[out + OUT_ID]
    total = total >> 3 if counted else m[c.DIM]
    if tagged and m[tag + ENTRY] >= 0:
        row, offset = m[OUT_ROW], m[OUT_ROW] * m[c.C_STRIDE]
        if m[c.OS]:
            row, offset = total - 1 - row, total - 1 - offset
        if row < m[tag + TAG_ROWS]:
            write_result(m, m[tag + ADDR], offset, t)
        m[OUT_ROW] = m[OUT_ROW] + 1 if m[OUT_ROW] + 1 < total else 0
        if m[out + LAST]:
            m[c.EX_DONE] = m[tag + ENTRY]
    if m[out + LAST] and tagged:
        pop(m, c.TAGS, t)
    if m[out + LAST] and counted:
        pop(m, c.TOTALS, t)


@part
def write_result(m: Array, word: int, offset: int, t: int) -> None:
    """Write a row of results."""
    row = word + offset
    if is_acc(word):
        write_acc(m, row & m[c.ACC], word >> 30 & 1, t)
    else:
        m[c.SPAD_WRITES] |= 1 << ((row & m[c.SPAD]) >> m[c.LG_SPAD_BANK])


@part
def tags(m: Array, t: int) -> tuple[int, int]:
    """Return the position of the first tag, and how many there are; one that leaves in this cycle counts."""
    q = c.QUEUES + c.TAGS * c.PER_QUEUE
    left = m[q + c.LEFT] >> 2 == t
    return (m[q + c.HEAD] - left) & (c.RING - 1), m[q + c.COUNT] + left


@called
def in_progress(m: Array, t: int) -> bool:
    """Return whether a tag has a result to come."""
    first, n = tags(m, t)
    found = False
    for i in range(n):
        found = found or m[at(c.TAGGED, (first + i) & (c.RING - 1)) + ENTRY] >= 0
    return found


@called
def being_written(m: Array, word: int, t: int) -> bool:
    """Return whether the result of a tag begins at the row of an operand: the only hazard that the controller sees."""
    first, n = tags(m, t)
    for i in range(n):
        tag = at(c.TAGGED, (first + i) & (c.RING - 1))
        if m[tag + ENTRY] >= 0 and (m[tag + ADDR] ^ word) & (1 << 31 | m[c.ROWS]) == 0:
            return True
    return False


@part
def array_works(m: Array) -> bool:
    """Return whether `step_array` is needed in this cycle."""
    return m[VALID] != 0 or count(m, c.CONTROL) > 0 or m[c.EX_STATE] >= FLUSHES


@part
def step_array(m: Array, t: int) -> None:
    """Move rows into the array: from the registers of A, B and D, and into these from the scratchpad's pipes."""
    full = m[VALID] != 0 and (m[FLUSH] != 0 or m[HAS] == ALL)
    last = full and m[FIRED] == m[TOTAL] - 1
    may_ask = (m[VALID] == 0 or last) and ready(m, c.TAGS, t) and ready(m, c.TOTALS, t)
    if full:
        out = at(c.OUT, (m[c.FIRST_OUT] + m[c.ROWS_OUT]) & (c.OUT_RING - 1))
        m[out + CYCLE], m[out + OUT_ID], m[out + LAST] = t + 2 * m[c.DIM], m[NEWEST], last
        m[c.ROWS_OUT] += 1
        m[FIRED] = 0 if last else m[FIRED] + 1
        m[HAS] = 0
        m[c.ACTIVE] = 1
    asked = False
    if count(m, c.CONTROL):
        asked = feed(m, full or may_ask, may_ask)
    elif m[c.EX_STATE] == FLUSHES and may_ask:
        m[VALID], m[TOTAL], m[FLUSH] = 1, m[c.DIM], 1
        m[NEWEST] = later(m[NEWEST], 1)
        m[c.ACTIVE] = 1
        asked = True
    if last and not asked:
        m[VALID] = 0
    m[c.MAY_ASK], m[c.ASKED] = may_ask, asked


@part
def feed(m: Array, open_: bool, may_ask: bool) -> bool:
    """Obey the oldest control signals: put rows into the registers, and begin an operation; return whether one began.

    `open_`: the registers take new rows in any case.
    """
    control = peek(m, c.CONTROL, 0)
    wanted = control & (ALL if open_ else ALL & ~m[HAS])
    stuck, banks = control >> 3 & 1 != 0 and not may_ask, 0
    for k in range(3):
        bank = control >> (8 + 8 * k) & 0xFF
        if wanted >> k & 1 and bank:
            banks |= 1 << (bank - 1)
            if not m[ARRIVED] >> (bank - 1) & 1:
                wanted &= ~(1 << k)
                stuck = True
    m[HAS] |= wanted
    if stuck:
        return False
    m[ARRIVED] &= ~banks
    take(m, c.CONTROL)
    if not (control & 7 and may_ask):
        return False
    op = at(c.OPS, control >> 32)
    m[VALID], m[TOTAL], m[FLUSH] = 1, m[op + OP_TOTAL], 0
    q = c.QUEUES + c.TAGS * c.PER_QUEUE
    tag = at(c.TAGGED, (m[q + c.HEAD] + m[q + c.COUNT]) & (c.RING - 1))
    m[tag + ID] = later(m[NEWEST], 3 if m[op + OP_OS] else 2)
    m[tag + ENTRY], m[tag + ADDR], m[tag + TAG_ROWS] = m[op + OP_ENTRY], m[op + OP_ADDR], m[op + OP_ROWS]
    push(m, c.TAGS, 0)
    m[NEWEST] = later(m[NEWEST], 1)
    push(m, c.TOTALS, m[op + OP_TOTAL] << 3 | m[NEWEST])
    return True


@part
def later(identity: int, by: int) -> int:
    """Return the identity of a later product."""
    return identity + by - PRODUCTS if identity + by >= PRODUCTS else identity + by
