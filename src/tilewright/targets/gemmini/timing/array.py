"""The array with its input registers, tags and results (MeshWithDelays.scala, TagQueue.scala, Mesh.scala)."""

from __future__ import annotations

from tilewright.array import Array

from .jit import callee
from .moves import write_acc
from .queues import is_acc, peek, pop, push, ready
from .state import *

FLUSHES = 2
#: The last of the four stages between a bank of the scratchpad and its readers.
LAST_STAGE = 8
#: Matrix products that the array holds at once: identities count modulo this.
PRODUCTS = 5


@callee
def tag_at(m: Chip, i: int) -> int:
    """Return the position of the tag behind `i` others."""
    return int((m.head[TAGS] + i) & (RING - 1))


@callee
def step_results(m: Chip, t: int) -> None:
    """Write the row that leaves the array in cycle `t`. The last one completes the command of its tag."""
    s = m.s
    if s[M_OUT_N] == 0 or m.out[s[M_OUT], 0] != t:
        return
    out = m.out[s[M_OUT]]
    s[M_OUT] = (s[M_OUT] + 1) & (RING - 1)
    s[M_OUT_N] -= 1
    s[ACTIVE] = 1
    tagged = m.n[TAGS] and m.tags[m.head[TAGS], G_ID] == out[1]
    total = m.p[DIM]
    counted = m.n[TOTALS] and peek(m, TOTALS, 0) & 7 == out[1]
    if counted:
        total = peek(m, TOTALS, 0) >> 3
    if tagged and m.tags[m.head[TAGS], G_ROB] >= 0:
        tag = m.tags[m.head[TAGS]]
        row = total - 1 - s[OUT_ROW] if s[X_OS] else s[OUT_ROW]
        if row < tag[G_ROWS]:
            offset = total - 1 - s[OUT_ROW] * s[X_C_STRIDE] if s[X_OS] else s[OUT_ROW] * s[X_C_STRIDE]
            write_result(m, tag[G_ADDR], offset)
        s[OUT_ROW] = s[OUT_ROW] + 1 if s[OUT_ROW] + 1 < total else 0
        if out[2]:
            s[EX_DONE] = tag[G_ROB]
    if out[2]:
        if tagged:
            pop(m, TAGS, t)
        if counted:
            pop(m, TOTALS, t)


@callee
def write_result(m: Chip, word: int, offset: int) -> None:
    """Write a row of results. Nothing else in the bank may be written in this cycle."""
    row = word + offset & m.p[ROW_MASK]
    if is_acc(word):
        row = row & m.p[ACC_MASK]
        write_acc(m, row >> m.p[ACC_SHIFT], row, word >> 30 & 1)
    else:
        m.s[SPAD_WRITES] |= 1 << ((row & m.p[SPAD_MASK]) >> m.p[SPAD_SHIFT])


@callee
def in_progress(m: Chip, t: int) -> bool:
    """Return whether a tag has a result to come; a tag that leaves in this cycle counts."""
    gone = 1 if m.popped[TAGS] == t else 0
    for i in range(-gone, m.n[TAGS]):
        if m.tags[tag_at(m, i), G_ROB] >= 0:
            return True
    return False


@callee
def being_written(m: Chip, word: int, t: int) -> bool:
    """Return whether the result of a tag begins at the row of an operand: the only hazard that the controller sees."""
    gone = 1 if m.popped[TAGS] == t else 0
    mask = 1 << 31 | m.p[ROW_MASK]
    for i in range(-gone, m.n[TAGS]):
        tag = m.tags[tag_at(m, i)]
        if tag[G_ROB] >= 0 and (tag[G_ADDR] ^ word) & mask == 0:
            return True
    return False


@callee
def step_array(m: Chip, t: int) -> None:
    """Move rows into the array: from the registers of A, B and D, and into these from the scratchpad's pipes."""
    s = m.s
    full = s[M_VALID] and (s[M_FLUSH] or (s[M_A] and s[M_B] and s[M_D]))
    last = full and s[M_FIRED] == s[M_TOTAL] - 1
    may_ask = (not s[M_VALID] or last) and ready(m, TAGS, t) and ready(m, TOTALS, t)
    if full:
        out = m.out[(s[M_OUT] + s[M_OUT_N]) & (RING - 1)]
        out[0], out[1], out[2] = t + m.p[MESH], s[M_ID], last
        s[M_OUT_N] += 1
        s[M_FIRED] = 0 if last else s[M_FIRED] + 1
        s[ACTIVE] = 1
    empty = full or may_ask
    asked = False
    a_fired = b_fired = d_fired = False
    s[FLUSH_FIRED] = 0
    if m.n[CONTROL]:
        control = peek(m, CONTROL, 0)
        fires = control & 7
        a_fired = feed(m, control, 0, empty or not s[M_A])
        b_fired = feed(m, control, 1, empty or not s[M_B])
        d_fired = feed(m, control, 2, empty or not s[M_D])
        done = (
            (not fires & 1 or a_fired or not (empty or not s[M_A]))
            and (not fires & 2 or b_fired or not (empty or not s[M_B]))
            and (not fires & 4 or d_fired or not (empty or not s[M_D]))
            and (not control & 8 or may_ask)
        )
        if done:
            pop(m, CONTROL, t)
            fired = a_fired | b_fired << 1 | d_fired << 2
            for k in range(3):
                bank = control >> (8 + 8 * k) & 0xFF
                if fired >> k & 1 and bank:
                    m.bank[bank - 1, 2] &= ~LAST_STAGE
            if fires and may_ask:
                ask_array(m, m.ops[control >> 32])
                asked = True
    elif s[X_STATE] == FLUSHES and may_ask:
        s[M_VALID], s[M_TOTAL], s[M_FLUSH] = 1, m.p[DIM], 1
        s[M_ID] = (s[M_ID] + 1) % PRODUCTS
        asked = True
        s[ACTIVE] = 1
    s[FLUSH_FIRED] = asked
    s[MAY_ASK] = may_ask
    if full:
        s[M_A] = s[M_B] = s[M_D] = 0
    s[M_A] |= a_fired
    s[M_B] |= b_fired
    s[M_D] |= d_fired
    if last and not asked:
        s[M_VALID] = s[M_FLUSH] > 1
        s[M_FLUSH] -= 1


@callee
def feed(m: Chip, control: int, k: int, room: bool) -> bool:
    """Return whether operand `k` of the oldest control signals enters its register: its row has been read, or is zero."""
    if not control >> k & 1 or not room:
        return False
    bank = control >> (8 + 8 * k) & 0xFF
    return bank == 0 or (m.bank[bank - 1, 2] & LAST_STAGE) > 0


@callee
def ask_array(m: Chip, op: Array) -> None:
    """Begin the rows of an operation, and note where its results go and when: two products later (OS: three)."""
    s = m.s
    s[M_VALID], s[M_TOTAL], s[M_FLUSH] = 1, op[O_TOTAL], 0
    tag = m.tags[tag_at(m, m.n[TAGS])]
    tag[G_ID] = (s[M_ID] + (3 if op[O_OS] else 2)) % PRODUCTS
    tag[G_ROB], tag[G_ADDR], tag[G_ROWS] = op[O_ROB], op[O_ADDR], op[O_ROWS]
    push(m, TAGS, 0)
    s[M_ID] = (s[M_ID] + 1) % PRODUCTS
    push(m, TOTALS, op[O_TOTAL] << 3 | s[M_ID])
