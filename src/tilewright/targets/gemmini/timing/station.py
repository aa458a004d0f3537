"""The reservation station (ReservationStation.scala): entries, dependencies, issue and completion."""

from __future__ import annotations

from tilewright.array import Array

from .jit import callee
from .queues import is_acc, local, peek, pop, push, ready
from .state import (
    ABSENT,
    ACC_MASK,
    ACC_SHIFT,
    ACTIVE,
    C_FUNCT,
    C_ROB,
    C_RS1,
    C_RS2,
    DIM,
    E_A,
    E_A_END,
    E_A_START,
    E_A_WRAPS,
    E_A_WRITES,
    E_B,
    E_B_END,
    E_B_START,
    E_B_WRAPS,
    E_DEPS,
    E_PRIM,
    EX,
    EX_DONE,
    IN_ACC,
    L_ROB,
    L_VALID,
    LD,
    LD_DONE,
    LOADS,
    NEXT_ORDER,
    PRELOADS,
    R_PAGE,
    RING,
    RS_A_STRIDE,
    RS_A_TRANSPOSE,
    RS_BLOCK,
    RS_C_STRIDE,
    RS_LD,
    RS_PIXELS,
    RS_POOLING,
    SOLITARY,
    SPAD_MASK,
    ST,
    ST_DONE,
    STORES,
    UNISSUED_LD,
    W_PAGE,
    X_ITEM,
    Chip,
)

from .unroll import NONE, finished, offered
from .unroll_state import Front

TAKEN, ISSUED, DONE = range(3)
CONFIG, MVIN2, MVIN, MVOUT, COMPUTE_FLIP, COMPUTE_STAY, PRELOAD, FLUSH = range(8)
MVIN3 = 14


@callee
def kind_of(funct: int, rs1: int) -> int:
    """Return the queue of a primitive command: LD, EX or ST."""
    if funct == CONFIG:
        return LD if rs1 & 3 == 1 else EX if rs1 & 3 == 0 else ST
    if funct == MVIN or funct == MVIN2 or funct == MVIN3:
        return LD
    return ST if funct == MVOUT else EX


@callee
def step_station(m: Chip, front: Front, t: int) -> bool:
    """Issue, complete and take commands in cycle `t`; return whether the front end's command is taken."""
    s, entries = m.s, m.entries
    full = 0
    for q in range(3):
        if m.valid[q] == (1 << m.p[RS_LD + q]) - 1:
            full |= 1 << q
    issued = (-1, -1, -1)
    if s[UNISSUED_LD] + s[UNISSUED_LD + 1] + s[UNISSUED_LD + 2]:
        issued = issuing(m, LD, t), issuing(m, EX, t), issuing(m, ST, t)
        for q in range(3):
            if issued[q] >= 0:
                issue(m, front, q, issued[q], t)
    if s[EX_DONE] >= 0:
        complete(m, front, EX, s[EX_DONE], t)
    elif s[LD_DONE] >= 0:
        slot = s[LD_DONE]
        m.loads[slot, L_VALID] = 0
        complete(m, front, LD, m.loads[slot, L_ROB], t)
    elif s[ST_DONE] >= 0:
        m.store_slots[s[ST_DONE], 0] = 0
        complete(m, front, ST, m.store_slots[s[ST_DONE], 2], t)
    prim = offered(front)
    if prim == NONE:
        return False
    if prim < 0:  # a flush forgets the pages
        s[R_PAGE] = s[W_PAGE] = -1
        return True
    funct = m.prims[prim, 0] & 127
    q = kind_of(funct, m.prims[prim, 1])
    if full >> q & 1:
        return False
    allocate(m, q, prim, funct, t)
    return True


@callee
def issuing(m: Chip, q: int, t: int) -> int:
    """Return the entry of queue `q` that is issued, -1 if none."""
    if m.s[UNISSUED_LD + q] == 0:
        return -1
    entry = int(m.waiting[q, m.first[q]])
    e = m.entries[q, entry]
    if e[E_DEPS] | e[E_DEPS + 1] | e[E_DEPS + 2]:
        return -1
    return entry if ready(m, LOADS if q == LD else PRELOADS if q == EX else STORES, t) else -1


@callee
def issue(m: Chip, front: Front, q: int, entry: int, t: int) -> None:
    """Hand a command to its controller. Load and store configurations are complete at once."""
    prim = m.entries[q, entry, E_PRIM]
    m.times[prim, ISSUED] = t
    m.first[q] = (m.first[q] + 1) & (RING - 1)
    m.s[UNISSUED_LD + q] -= 1
    at_once = q != EX and m.prims[prim, 0] & 127 == CONFIG
    for other in range(3):
        if at_once or other == q:
            forget(m, other, q, entry)
    if at_once:
        m.valid[q] &= ~(1 << entry)
        m.times[prim, DONE] = t
        finished(front, m.unroller[prim], q)
    if q == EX:
        item = m.s[X_ITEM]
        m.s[X_ITEM] = (item + 1) & (RING - 1)
        command = m.commands[item]
        command[C_FUNCT], command[C_RS1], command[C_RS2] = m.prims[prim, 0] & 127, m.prims[prim, 1], m.prims[prim, 2]
        command[C_ROB] = entry
        push(m, PRELOADS, item)
    else:
        push(m, LOADS if q == LD else STORES, prim << 6 | entry)


@callee
def forget(m: Chip, of: int, q: int, entry: int) -> None:
    """Clear the dependencies of the entries in queue `of` on an entry of queue `q`."""
    left = m.valid[of]
    e = 0
    while left:
        if left & 1:
            m.entries[of, e, E_DEPS + q] &= ~(1 << entry)
        left >>= 1
        e += 1


@callee
def complete(m: Chip, front: Front, q: int, entry: int, t: int) -> None:
    """Free the entry of a completed command."""
    m.s[ACTIVE] = 1
    m.valid[q] &= ~(1 << entry)
    prim = m.entries[q, entry, E_PRIM]
    m.times[prim, DONE] = t
    finished(front, m.unroller[prim], q)
    for of in range(3):
        forget(m, of, q, entry)


@callee
def allocate(m: Chip, q: int, prim: int, funct: int, t: int) -> None:
    """Take a command into the first free entry of queue `q`."""
    s = m.s
    entry = 0
    while m.valid[q] >> entry & 1:
        entry += 1
    e = m.entries[q, entry]
    e[E_PRIM] = prim
    e[E_A] = e[E_B] = ABSENT
    e[E_A_WRITES] = 0
    m.order[s[NEXT_ORDER]] = prim
    s[NEXT_ORDER] += 1
    m.times[prim, TAKEN] = t
    rs1, rs2 = m.prims[prim, 1], m.prims[prim, 2]
    if funct == CONFIG:
        configure(m, q, rs1, rs2)
    elif q == LD:
        operand_of_load(m, e, rs2, 1 if funct == MVIN2 else 2 if funct == MVIN3 else 0)
    elif q == ST:
        operand_of_store(m, e, rs2)
    elif funct == PRELOAD:
        mask = 2 * m.p[DIM] - 1
        operand(m, e, E_A, rs2, (rs2 >> 48 & mask) * s[RS_C_STRIDE])
        e[E_A_WRITES] = 1
        operand(m, e, E_B, rs1, rs1 >> 48 & mask)
        s[SOLITARY] = 1
    else:
        mask = 2 * m.p[DIM] - 1
        rows = (rs1 >> (32 if s[RS_A_TRANSPOSE] else 48)) & mask
        operand(m, e, E_A, rs1, rows * s[RS_A_STRIDE])
        operand(m, e, E_B, rs2, rs2 >> 48 & mask)
        s[SOLITARY] = 0
    depend(m, q, e)
    m.waiting[q, (m.first[q] + s[UNISSUED_LD + q]) & (RING - 1)] = entry
    s[UNISSUED_LD + q] += 1
    m.valid[q] |= 1 << entry


@callee
def configure(m: Chip, q: int, rs1: int, rs2: int) -> None:
    """Keep the strides and switches that later ranges depend on."""
    s = m.s
    if q == EX:
        s[RS_A_STRIDE], s[RS_C_STRIDE] = rs1 >> 16 & 0xFFFF, rs2 >> 48 & 0xFFFF
        if not rs1 >> 7 & 1:
            s[RS_A_TRANSPOSE] = rs1 >> 8 & 1
    elif q == LD:
        state = rs1 >> 3 & 3
        s[RS_BLOCK + state] = rs1 >> 16 & 0xFFFF
        s[RS_PIXELS + state] = max(rs1 >> 8 & 0xFF, 1) - 1
    elif rs1 & 3 == 2:
        s[RS_POOLING] = rs1 >> 4 & 3


@callee
def operand(m: Chip, e: Array, place: int, word: int, rows: int) -> None:
    """Set an operand's range of rows."""
    kind, start = local(m, word)
    span(m, e, place, kind, start, rows)


@callee
def span(m: Chip, e: Array, place: int, kind: int, start: int, rows: int) -> None:
    """Set a range of `rows` rows from `start`; its end wraps around at the end of the memory."""
    mask = m.p[ACC_MASK] if kind == IN_ACC else m.p[SPAD_MASK]
    e[place], e[place + 1] = kind, start
    e[place + 2], e[place + 3] = (start + rows) & mask, (start + rows) > mask


@callee
def operand_of_load(m: Chip, e: Array, rs2: int, state: int) -> None:
    """Set the rows that a load writes. Repeated pixels begin earlier, but within the same half of the scratchpad."""
    columns, rows, dim = rs2 >> 32 & 0xFFFF, rs2 >> 48 & 0xFFFF, m.p[DIM]
    total = ((columns + dim - 1) // dim - 1) * m.s[RS_BLOCK + state] + rows
    kind, start = local(m, rs2)
    if not is_acc(rs2):
        half = (m.p[SPAD_MASK] + 1) // 2
        floor = half if start > half else 0
        start = max(start - m.s[RS_PIXELS + state], floor)
    span(m, e, E_A, kind, start, total)


@callee
def operand_of_store(m: Chip, e: Array, rs2: int) -> None:
    """Set the rows that a store reads; with pooling, all up to the end of the accumulator's bank."""
    dim = m.p[DIM]
    columns, rows = rs2 >> 32 & 0xFFFF, rs2 >> 48 & 0xFFFF
    operand(m, e, E_A, rs2, ((columns + dim - 1) // dim - 1) * dim + rows)
    if m.s[RS_POOLING]:
        end = ((rs2 & m.p[ACC_MASK]) >> m.p[ACC_SHIFT]) + 1 << m.p[ACC_SHIFT]
        e[E_A_WRAPS] = end > m.p[ACC_MASK]
        e[E_A_END] = end & m.p[ACC_MASK] if is_acc(rs2) else 0  # the end is an accumulator row in any case


@callee
def overlap(one: Array, a: int, two: Array, b: int) -> bool:
    """Return whether two operands share rows, as the hardware sees it."""
    if one[a] == ABSENT or one[a] != two[b]:
        return False
    return bool(
        (two[b + 1] <= one[a + 1] and (one[a + 1] < two[b + 2] or two[b + 3]))
        or (one[a + 1] <= two[b + 1] and (two[b + 1] < one[a + 2] or one[a + 3]))
    )


@callee
def depend(m: Chip, q: int, e: Array) -> None:
    """Set the entries that a new one waits for."""
    unissued = 0
    for i in range(m.s[UNISSUED_LD + q]):
        unissued |= 1 << m.waiting[q, (m.first[q] + i) & (RING - 1)]
    for other in range(3):
        deps = 0
        if other == q:
            deps = unissued
        elif e[E_A] != ABSENT or e[E_B] != ABSENT:
            left = m.valid[other]
            i = 0
            while left:
                if left & 1 and conflict(q, e, other, m.entries[other, i]):
                    deps |= 1 << i
                left >>= 1
                i += 1
        e[E_DEPS + other] = deps


@callee
def conflict(q: int, e: Array, other: int, old: Array) -> bool:
    """Return whether a command of queue `q` waits for an older one of another queue."""
    if q == LD:
        return overlap(e, E_A, old, E_A) or (other == EX and overlap(e, E_A, old, E_B))
    if q == EX:
        if other == LD:
            return overlap(e, E_A, old, E_A) or overlap(e, E_B, old, E_A)
        return bool(e[E_A_WRITES]) and overlap(e, E_A, old, E_A)
    return (other == LD or bool(old[E_A_WRITES])) and overlap(e, E_A, old, E_A)
