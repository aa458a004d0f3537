"""The array with its input registers, tags and results (MeshWithDelays.scala, TagQueue.scala, Mesh.scala)."""

from __future__ import annotations

from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.chip import Chip, count, is_acc, peek, pop, push, ready
from tilewright.targets.gemmini.timing.moves import write_acc

ACTIVE, EX_DONE, SPAD_WRITES = 0, 1, 4
TAGS, TOTALS, CONTROL = 9, 10, 18
COUNT, HEAD, LEFT_AT = 0, 1, 3
RING, PIPED = 512, -2
#: Registers: the operation in hand, its rows, whether it is a flush, rows that went in; the identity of the newest;
#: whether A, B and D hold a row; rows in the array; rows of the result that came out; whether a new operation can
#: begin in this cycle, and whether one did.
VALID, TOTAL, FLUSH, FIRED, NEWEST, HAS, FIRST, ROWS, OUT_ROW, MAY_ASK, ASKED = 0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12
#: Columns of `Chip.tags`, `Chip.ops` and `Chip.out`.
ID, ENTRY, ADDR, TAG_ROWS = range(4)
OP_TOTAL, OP_ENTRY, OP_ADDR, OP_ROWS, OP_OS = range(5)
CYCLE, OUT_ID, LAST = range(3)
#: Identities count modulo the products that the array holds at once. The result of an operation leaves with the
#: second one after it; in output-stationary products with the third.
PRODUCTS = 5
#: The last of the four stages between a bank of the scratchpad and the array, a column of banks.
LAST_STAGE, EX_PIPE = 1 << 3, 2
OS, STATE, FLUSHES, C_STRIDE = 2, 4, 2, 9  # registers of the execute controller, and a state


@part
def step_results(m: Chip, t: int) -> None:
    """Write the row that leaves the array in cycle `t`. The last one completes the command of its tag."""
    r = m.array
    if r[ROWS] == 0 or m.out[r[FIRST], CYCLE] != t:
        return
    out = m.out[r[FIRST]]
    r[FIRST] = (r[FIRST] + 1) & (RING - 1)
    r[ROWS] -= 1
    m.wire[ACTIVE] = 1
    tag = m.tags[m.queue[TAGS, HEAD]]
    tagged = count(m, TAGS) > 0 and tag[ID] == out[OUT_ID]
    total = peek(m, TOTALS, 0)
    counted = count(m, TOTALS) > 0 and total & 7 == out[OUT_ID]
    total = total >> 3 if counted else m.size.dim
    if tagged and tag[ENTRY] >= 0:
        row, offset = r[OUT_ROW], r[OUT_ROW] * m.execute[C_STRIDE]
        if m.execute[OS]:
            row, offset = total - 1 - row, total - 1 - offset
        if row < tag[TAG_ROWS]:
            write_result(m, tag[ADDR], offset)
        r[OUT_ROW] = r[OUT_ROW] + 1 if r[OUT_ROW] + 1 < total else 0
        if out[LAST]:
            m.wire[EX_DONE] = tag[ENTRY]
    if out[LAST] and tagged:
        pop(m, TAGS, t)
    if out[LAST] and counted:
        pop(m, TOTALS, t)


@part
def write_result(m: Chip, word: int, offset: int) -> None:
    """Write a row of results."""
    row = word + offset
    if is_acc(word):
        write_acc(m, row & m.size.acc, word >> 30 & 1)
    else:
        m.wire[SPAD_WRITES] |= 1 << ((row & m.size.spad) >> m.size.lg_spad_bank)


@part
def tags(m: Chip, t: int) -> tuple[int, int]:
    """Return the position of the first tag, and how many there are; one that leaves in this cycle counts."""
    q = m.queue[TAGS]
    left = 1 if q[LEFT_AT] == t else 0
    return (q[HEAD] - left) & (RING - 1), q[COUNT] + left


@part
def in_progress(m: Chip, t: int) -> bool:
    """Return whether a tag has a result to come."""
    first, n = tags(m, t)
    found = False
    for i in range(n):
        found = found or m.tags[(first + i) & (RING - 1), ENTRY] >= 0
    return found


@part
def being_written(m: Chip, word: int, t: int) -> bool:
    """Return whether the result of a tag begins at the row of an operand: the only hazard that the controller sees."""
    first, n = tags(m, t)
    for i in range(n):
        tag = m.tags[(first + i) & (RING - 1)]
        if tag[ENTRY] >= 0 and (tag[ADDR] ^ word) & (1 << 31 | m.size.rows) == 0:
            return True
    return False


@part
def step_array(m: Chip, t: int) -> None:
    """Move rows into the array: from the registers of A, B and D, and into these from the scratchpad's pipes."""
    r = m.array
    full = r[VALID] != 0 and (r[FLUSH] != 0 or r[HAS] + r[HAS + 1] + r[HAS + 2] == 3)
    last = full and r[FIRED] == r[TOTAL] - 1
    may_ask = (r[VALID] == 0 or last) and ready(m, TAGS, t) and ready(m, TOTALS, t)
    if full:
        out = m.out[(r[FIRST] + r[ROWS]) & (RING - 1)]
        out[CYCLE], out[OUT_ID], out[LAST] = t + 2 * m.size.dim, r[NEWEST], last
        r[ROWS] += 1
        r[FIRED] = 0 if last else r[FIRED] + 1
        r[HAS] = r[HAS + 1] = r[HAS + 2] = 0
        m.wire[ACTIVE] = 1
    asked = False
    if count(m, CONTROL):
        asked = feed(m, full or may_ask, may_ask)
    elif m.execute[STATE] == FLUSHES and may_ask:
        r[VALID], r[TOTAL], r[FLUSH] = 1, m.size.dim, 1
        r[NEWEST] = later(r[NEWEST], 1)
        m.wire[ACTIVE] = 1
        asked = True
    if last and not asked:
        r[VALID] = 0
    r[MAY_ASK], r[ASKED] = may_ask, asked


@part
def feed(m: Chip, open_: bool, may_ask: bool) -> bool:
    """Obey the oldest control signals: put rows into the registers, and begin an operation; return whether one began.

    `open_`: the registers take new rows in any case.
    """
    r, control = m.array, peek(m, CONTROL, 0)
    fired, stuck = 0, control >> 3 & 1 != 0 and not may_ask
    for k in range(3):
        if control >> k & 1 and (open_ or r[HAS + k] == 0):
            bank = control >> (8 + 8 * k) & 0xFF
            if bank == 0 or m.bank[bank - 1, EX_PIPE] & LAST_STAGE:
                fired |= 1 << k
            else:
                stuck = True
    for k in range(3):
        if fired >> k & 1:
            r[HAS + k] = 1
            bank = control >> (8 + 8 * k) & 0xFF
            if bank and not stuck:
                m.bank[bank - 1, EX_PIPE] &= ~LAST_STAGE
    if stuck:
        return False
    pop(m, CONTROL, PIPED)
    if not (control & 7 and may_ask):
        return False
    op = m.ops[control >> 32]
    r[VALID], r[TOTAL], r[FLUSH] = 1, op[OP_TOTAL], 0
    q = m.queue[TAGS]
    tag = m.tags[(q[HEAD] + q[COUNT]) & (RING - 1)]
    tag[ID] = later(r[NEWEST], 3 if op[OP_OS] else 2)
    tag[ENTRY], tag[ADDR], tag[TAG_ROWS] = op[OP_ENTRY], op[OP_ADDR], op[OP_ROWS]
    push(m, TAGS, 0)
    r[NEWEST] = later(r[NEWEST], 1)
    push(m, TOTALS, op[OP_TOTAL] << 3 | r[NEWEST])
    return True


@part
def later(identity: int, by: int) -> int:
    """Return the identity of a later product."""
    return identity + by - PRODUCTS if identity + by >= PRODUCTS else identity + by
