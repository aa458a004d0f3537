"""The reservation station (ReservationStation.scala): entries, dependencies, issue and completion."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.bus import PAGE
from tilewright.targets.gemmini.timing.chip import Program, at, is_acc, local, push, ready
from tilewright.targets.gemmini.timing.unroll import NONE, finished, offered
from tilewright.targets.gemmini.timing.unroll_state import Front, Plan

LD, EX, ST = 0, 1, 2  # as in loops/expansion.py
#: Registers. The first three have an entry per queue: entries in use (bits), entries that are not issued, and the place
#: of the first of these. Then the commands taken so far, and what configurations set; two of these for each of the
#: three load states. Then the entries of each queue (bits) for which an entry may wait.
VALID, UNISSUED, FIRST, ORDER = c.STATION, c.STATION + 3, c.STATION + 6, c.STATION + 9
A_STRIDE, C_STRIDE, TURNED, POOLING, BLOCK, PIXELS = *range(c.STATION + 10, c.STATION + 15), c.STATION + 17
AWAITED = c.STATION + 20
#: Columns of ENTRIES: two operands as [kind, start, end, wraps], and the entries of each other queue that it waits for,
#: as long as they are in use. Commands of one queue are issued in their order.
PRIM, WRITES, A, B, WAITS = 0, 1, 2, 6, 10
START, END, WRAPS = 1, 2, 3
TAKEN, ISSUED, DONE = 0, 1, 2
#: Load states that the hardware has.
LOAD_STATES = 3
CONFIG, MVIN2, PRELOAD, MVIN3 = 0, 1, 6, 14
#: Columns of trackers.
SLOT_VALID, ENTRY = 0, 1


@part
def step_station(m: Array, p: Program, front: Front, plan: Plan, t: int) -> bool:
    """Issue, complete and take commands in cycle `t`; return whether the command of the front end is taken."""
    before_ld, before_ex, before_st = m[c.NUMBER], m[c.NUMBER + 1], m[c.NUMBER + 2]
    if m[UNISSUED] | m[UNISSUED + 1] | m[UNISSUED + 2]:
        load, execute, store = issuing(m, LD, c.LOADS, t), issuing(m, EX, c.TRANSPOSES, t), issuing(m, ST, c.STORES, t)
        if load >= 0:
            issue(m, p, front, LD, load, t)
        if execute >= 0:
            issue(m, p, front, EX, execute, t)
        if store >= 0:
            issue(m, p, front, ST, store, t)
    if m[c.EX_DONE] >= 0:
        complete(m, p, front, EX, m[c.EX_DONE], t)
    elif m[c.LD_DONE] >= 0:
        m[at(c.LOADED, m[c.LD_DONE]) + SLOT_VALID] = 0
        m[c.LOADS_USED] -= 1
        complete(m, p, front, LD, m[at(c.LOADED, m[c.LD_DONE]) + ENTRY], t)
    elif m[c.ST_DONE] >= 0:
        m[at(c.STORE_SLOTS, m[c.ST_DONE]) + SLOT_VALID] = 0
        m[c.STORES_USED] -= 1
        complete(m, p, front, ST, m[at(c.STORE_SLOTS, m[c.ST_DONE]) + ENTRY], t)
    prim = offered(front)
    if prim == NONE:
        return False
    if prim < 0:  # a flush forgets the pages
        m[c.READER + PAGE] = m[c.WRITER + PAGE] = -1
        return True
    q = p.queue[prim]
    before = before_ld if q == LD else before_ex if q == EX else before_st
    if before == plan.room[q]:
        return False
    allocate(m, p, q, prim, p.prims[prim, 0] & 127, t)
    return True


@part
def issuing(m: Array, q: int, to: int, t: int) -> int:
    """Return the entry of queue `q` that is issued, -1 if none: the oldest one, if it waits for nothing."""
    if m[UNISSUED + q] == 0 or not ready(m, to, t):
        return -1
    entry = m[at(c.WAITING, m[FIRST + q]) + q]
    e = at(c.ENTRIES, 64 * q + entry)
    waits = m[e + WAITS] & m[VALID] | m[e + WAITS + 1] & m[VALID + 1] | m[e + WAITS + 2] & m[VALID + 2]
    return entry if waits == 0 else -1


@called
def issue(m: Array, p: Program, front: Front, q: int, entry: int, t: int) -> None:
    """Hand a command to its controller. Load and store configurations are complete at once."""
    prim = m[at(c.ENTRIES, 64 * q + entry) + PRIM]
    p.times[prim, ISSUED] = t
    m[FIRST + q] = (m[FIRST + q] + 1) & (c.RING - 1)
    m[c.PROGRESS] += 1
    m[UNISSUED + q] -= 1
    if q != EX and p.prims[prim, 0] & 127 == CONFIG:
        complete(m, p, front, q, entry, t)
    if q == EX:
        item = m[c.NEXT_COMMAND]
        m[c.NEXT_COMMAND] = (item + 1) & (c.RING - 1)
        command = at(c.COMMANDS, item)
        m[command], m[command + 1], m[command + 2] = p.prims[prim, 0] & 127, p.prims[prim, 1], p.prims[prim, 2]
        m[command + 3] = entry
        push(m, c.TRANSPOSES, item)
    else:
        push(m, c.LOADS if q == LD else c.STORES, prim << 6 | entry)
        m[c.LOADING if q == LD else c.STORING] = 1


@called
def forget(m: Array, q: int, entry: int) -> None:
    """Let no entry of another queue wait for an entry of queue `q` any longer, because a new command takes it."""
    m[AWAITED + q] &= ~(1 << entry)
    for of in range(3):
        left = 0 if of == q else m[VALID + of]
        e = at(c.ENTRIES, 64 * of) + WAITS + q
        while left:
            m[e] &= ~(1 << entry)
            left >>= 1
            e += c.WIDTH


@called
def complete(m: Array, p: Program, front: Front, q: int, entry: int, t: int) -> None:
    """Free the entry of a completed command."""
    m[c.ACTIVE] = 1
    m[VALID + q] &= ~(1 << entry)
    m[c.NUMBER + q] -= 1
    m[c.PROGRESS] += 1
    prim = m[at(c.ENTRIES, 64 * q + entry) + PRIM]
    p.times[prim, DONE] = t
    finished(front, p.unroller[prim], q)


@called
def allocate(m: Array, p: Program, q: int, prim: int, funct: int, t: int) -> None:
    """Take a command into the first free entry of queue `q`."""
    entry = 0
    while m[VALID + q] >> entry & 1:
        entry += 1
    if m[AWAITED + q] >> entry & 1:
        forget(m, q, entry)
    e = at(c.ENTRIES, 64 * q + entry)
    m[e + PRIM], m[e + WRITES], m[e + A], m[e + B] = prim, 0, c.ABSENT, c.ABSENT
    p.order[m[ORDER]] = prim
    m[ORDER] += 1
    p.times[prim, TAKEN] = t
    rs1, rs2 = p.prims[prim, 1], p.prims[prim, 2]
    fit = 2 * m[c.DIM] - 1
    if funct == CONFIG:
        configure(m, q, rs1, rs2)
    elif q == LD:
        load_range(m, e, rs2, 1 if funct == MVIN2 else 2 if funct == MVIN3 else 0)
    elif q == ST:
        store_range(m, e, rs2)
    elif funct == PRELOAD:
        m[e + WRITES] = m[c.LONE] = 1
        operand(m, e + A, rs2, (rs2 >> 48 & fit) * m[C_STRIDE])
        operand(m, e + B, rs1, rs1 >> 48 & fit)
    else:
        m[c.LONE] = 0
        operand(m, e + A, rs1, (rs1 >> (32 if m[TURNED] else 48) & fit) * m[A_STRIDE])
        operand(m, e + B, rs2, rs2 >> 48 & fit)
    depend(m, q, e)
    m[at(c.WAITING, (m[FIRST + q] + m[UNISSUED + q]) & (c.RING - 1)) + q] = entry
    m[UNISSUED + q] += 1
    m[VALID + q] |= 1 << entry
    m[c.NUMBER + q] += 1


@called
def configure(m: Array, q: int, rs1: int, rs2: int) -> None:
    """Keep what later ranges depend on."""
    if q == EX:
        m[A_STRIDE], m[C_STRIDE] = rs1 >> 16 & 0xFFFF, rs2 >> 48 & 0xFFFF
        if not rs1 >> 7 & 1:
            m[TURNED] = rs1 >> 8 & 1
    elif q == LD and (rs1 >> 3 & 3) < LOAD_STATES:  # there is no fourth load state to set
        m[BLOCK + (rs1 >> 3 & 3)], m[PIXELS + (rs1 >> 3 & 3)] = rs1 >> 16 & 0xFFFF, max(rs1 >> 8 & 0xFF, 1) - 1
    elif q == ST and rs1 & 3 == 2:
        m[POOLING] = rs1 >> 4 & 3


@called
def operand(m: Array, place: int, word: int, rows: int) -> None:
    """Set an operand's range of rows."""
    kind, start = local(m, word)
    span(m, place, kind, start, rows)


@part
def span(m: Array, place: int, kind: int, start: int, rows: int) -> None:
    """Set a range of `rows` rows from `start`; its end wraps around at the end of the memory."""
    mask = m[c.ACC] if kind == c.IN_ACC else m[c.SPAD]
    m[place], m[place + START] = kind, start
    m[place + END], m[place + WRAPS] = start + rows & mask, start + rows > mask


@called
def load_range(m: Array, e: int, rs2: int, state: int) -> None:
    """Set the rows that a load writes. Repeated pixels begin earlier, but within the same half of the scratchpad."""
    blocks = ((rs2 >> 32 & 0xFFFF) + m[c.DIM] - 1) >> m[c.LG_DIM]
    kind, start = local(m, rs2)
    if not is_acc(rs2):
        half = (m[c.SPAD] + 1) >> 1
        start = max(start - m[PIXELS + state], half if start > half else 0)
    span(m, e + A, kind, start, (blocks - 1) * m[BLOCK + state] + (rs2 >> 48 & 0xFFFF))


@called
def store_range(m: Array, e: int, rs2: int) -> None:
    """Set the rows that a store reads; with pooling, all up to the end of the accumulator's bank."""
    blocks = ((rs2 >> 32 & 0xFFFF) + m[c.DIM] - 1) >> m[c.LG_DIM]
    operand(m, e + A, rs2, (blocks - 1) * m[c.DIM] + (rs2 >> 48 & 0xFFFF))
    if m[POOLING]:
        end = (((rs2 & m[c.ACC]) >> m[c.LG_ACC_BANK]) + 1) << m[c.LG_ACC_BANK]
        m[e + A + WRAPS] = end > m[c.ACC]
        m[e + A + END] = end & m[c.ACC] if is_acc(rs2) else 0  # the hardware makes the end a row of the accumulator


@part
def overlap(m: Array, x: int, y: int) -> bool:
    """Return whether two operands share rows, as the hardware sees it."""
    if m[x] == c.ABSENT or m[x] != m[y]:
        return False
    if m[y + START] <= m[x + START] and (m[x + START] < m[y + END] or m[y + WRAPS] != 0):
        return True
    return m[x + START] <= m[y + START] and (m[y + START] < m[x + END] or m[x + WRAPS] != 0)


@called
def depend(m: Array, q: int, e: int) -> None:
    """Set the entries of other queues that a new one waits for."""
    for other in range(3):
        left, waits = m[VALID + other], 0
        if other == q or (m[e + A] == c.ABSENT and m[e + B] == c.ABSENT):
            left = 0
        old, bit = at(c.ENTRIES, 64 * other), 1
        while left:
            if left & 1 and conflict(m, q, e, other, old):
                waits |= bit
            left >>= 1
            old += c.WIDTH
            bit <<= 1
        m[e + WAITS + other] = waits
        m[AWAITED + other] |= waits


@called
def conflict(m: Array, q: int, e: int, other: int, old: int) -> bool:
    """Return whether a command of queue `q` waits for an older one of another queue."""
    if q == LD:
        return overlap(m, e + A, old + A) or (other == EX and overlap(m, e + A, old + B))
    if q == EX and other == LD:
        return overlap(m, e + A, old + A) or overlap(m, e + B, old + A)
    writes = m[e + WRITES] if q == EX else other == LD or m[old + WRITES] != 0
    return bool(writes) and overlap(m, e + A, old + A)
