"""The reservation station (ReservationStation.scala): entries, dependencies, issue and completion."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.bus import PAGE
from tilewright.targets.gemmini.timing.chip import Chip, is_acc, local, push, ready
from tilewright.targets.gemmini.timing.unroll import NONE, finished, offered
from tilewright.targets.gemmini.timing.unroll_state import Front, Plan

EX, LD, ST = 1, 0, 2
ABSENT, IN_SPAD, IN_ACC = 0, 1, 2
ACTIVE, EX_DONE, LD_DONE, ST_DONE = 0, 1, 2, 3
LOADS, TRANSPOSES, STORES = 0, 1, 3
RING = 512
#: Registers. The first four have an entry per queue: entries in use (as bits, and how many), entries that are not
#: issued, and the place of the first of these. Then the commands taken so far, whether a preload waits for its compute,
#: and what configurations set; two of these for each of the three load states.
VALID, NUMBER, UNISSUED, FIRST, ORDER, LONE = 0, 3, 6, 9, 12, 13
A_STRIDE, C_STRIDE, TURNED, POOLING, BLOCK, PIXELS = 14, 15, 16, 17, 18, 21
#: Columns of entries: two operands as [kind, start, end, wraps], and the entries of each queue that it waits for.
PRIM, WRITES, A, B, WAITS = 0, 1, 2, 6, 10
END, WRAPS = 2, 3
TAKEN, ISSUED, DONE = 0, 1, 2
#: Registers of the load and store controllers, columns of their trackers, a register of the execute controller.
USED, SLOT_VALID, ENTRY, ITEM = 0, 0, 1, 3
CONFIG, MVIN2, MVIN, MVOUT, PRELOAD, MVIN3 = 0, 1, 2, 3, 6, 14


@part
def queue_of(funct: int, rs1: int) -> int:
    """Return the queue of a primitive command."""
    if funct == CONFIG:
        return LD if rs1 & 3 == 1 else EX if rs1 & 3 == 0 else ST
    if funct in (MVIN, MVIN2, MVIN3):
        return LD
    return ST if funct == MVOUT else EX


@part
def step_station(m: Chip, front: Front, plan: Plan, t: int) -> bool:
    """Issue, complete and take commands in cycle `t`; return whether the command of the front end is taken."""
    r, w = m.station, m.wire
    before_ld, before_ex, before_st = r[NUMBER], r[NUMBER + 1], r[NUMBER + 2]
    if r[UNISSUED] | r[UNISSUED + 1] | r[UNISSUED + 2]:
        load, execute, store = issuing(m, LD, LOADS, t), issuing(m, EX, TRANSPOSES, t), issuing(m, ST, STORES, t)
        if load >= 0:
            issue(m, front, LD, load, t)
        if execute >= 0:
            issue(m, front, EX, execute, t)
        if store >= 0:
            issue(m, front, ST, store, t)
    if w[EX_DONE] >= 0:
        complete(m, front, EX, w[EX_DONE], t)
    elif w[LD_DONE] >= 0:
        m.loads[w[LD_DONE], SLOT_VALID] = 0
        m.load[USED] -= 1
        complete(m, front, LD, m.loads[w[LD_DONE], ENTRY], t)
    elif w[ST_DONE] >= 0:
        m.store_slots[w[ST_DONE], SLOT_VALID] = 0
        m.store[USED] -= 1
        complete(m, front, ST, m.store_slots[w[ST_DONE], ENTRY], t)
    prim = offered(front)
    if prim == NONE:
        return False
    if prim < 0:  # a flush forgets the pages
        m.reader[PAGE] = m.writer[PAGE] = -1
        return True
    funct = m.prims[prim, 0] & 127
    q = queue_of(funct, m.prims[prim, 1])
    before = before_ld if q == LD else before_ex if q == EX else before_st
    if before == plan.room[q]:
        return False
    allocate(m, q, prim, funct, t)
    return True


@part
def issuing(m: Chip, q: int, to: int, t: int) -> int:
    """Return the entry of queue `q` that is issued, -1 if none: the oldest one, if it waits for nothing."""
    if m.station[UNISSUED + q] == 0:
        return -1
    entry = m.waiting[q, m.station[FIRST + q]]
    e = m.entries[q, entry]
    return entry if e[WAITS] | e[WAITS + 1] | e[WAITS + 2] == 0 and ready(m, to, t) else -1


@part
def issue(m: Chip, front: Front, q: int, entry: int, t: int) -> None:
    """Hand a command to its controller. Load and store configurations are complete at once."""
    r = m.station
    prim = m.entries[q, entry, PRIM]
    m.times[prim, ISSUED] = t
    r[FIRST + q] = (r[FIRST + q] + 1) & (RING - 1)
    r[UNISSUED + q] -= 1
    if q != EX and m.prims[prim, 0] & 127 == CONFIG:
        complete(m, front, q, entry, t)
    else:
        forget(m, q, q, entry)
    if q == EX:
        item = m.execute[ITEM]
        m.execute[ITEM] = (item + 1) & (RING - 1)
        command = m.commands[item]
        command[0], command[1], command[2] = m.prims[prim, 0] & 127, m.prims[prim, 1], m.prims[prim, 2]
        command[3] = entry
        push(m, TRANSPOSES, item)
    else:
        push(m, LOADS if q == LD else STORES, prim << 6 | entry)


@part
def forget(m: Chip, of: int, q: int, entry: int) -> None:
    """Let the entries of queue `of` no longer wait for an entry of queue `q`."""
    left = m.station[VALID + of]
    e = 0
    while left:
        if left & 1:
            m.entries[of, e, WAITS + q] &= ~(1 << entry)
        left >>= 1
        e += 1


@part
def complete(m: Chip, front: Front, q: int, entry: int, t: int) -> None:
    """Free the entry of a completed command."""
    m.wire[ACTIVE] = 1
    m.station[VALID + q] &= ~(1 << entry)
    m.station[NUMBER + q] -= 1
    prim = m.entries[q, entry, PRIM]
    m.times[prim, DONE] = t
    finished(front, m.unroller[prim], q)
    for of in range(3):
        forget(m, of, q, entry)


@part
def allocate(m: Chip, q: int, prim: int, funct: int, t: int) -> None:
    """Take a command into the first free entry of queue `q`."""
    r = m.station
    entry = 0
    while r[VALID + q] >> entry & 1:
        entry += 1
    e = m.entries[q, entry]
    e[PRIM], e[WRITES], e[A], e[B] = prim, 0, ABSENT, ABSENT
    m.order[r[ORDER]] = prim
    r[ORDER] += 1
    m.times[prim, TAKEN] = t
    rs1, rs2 = m.prims[prim, 1], m.prims[prim, 2]
    fit = 2 * m.size.dim - 1
    if funct == CONFIG:
        configure(m, q, rs1, rs2)
    elif q == LD:
        load_range(m, e, rs2, 1 if funct == MVIN2 else 2 if funct == MVIN3 else 0)
    elif q == ST:
        store_range(m, e, rs2)
    elif funct == PRELOAD:
        e[WRITES] = r[LONE] = 1
        operand(m, e, A, rs2, (rs2 >> 48 & fit) * r[C_STRIDE])
        operand(m, e, B, rs1, rs1 >> 48 & fit)
    else:
        r[LONE] = 0
        operand(m, e, A, rs1, (rs1 >> (32 if r[TURNED] else 48) & fit) * r[A_STRIDE])
        operand(m, e, B, rs2, rs2 >> 48 & fit)
    depend(m, q, e)
    m.waiting[q, (r[FIRST + q] + r[UNISSUED + q]) & (RING - 1)] = entry
    r[UNISSUED + q] += 1
    r[VALID + q] |= 1 << entry
    r[NUMBER + q] += 1


@part
def configure(m: Chip, q: int, rs1: int, rs2: int) -> None:
    """Keep what later ranges depend on."""
    r = m.station
    if q == EX:
        r[A_STRIDE], r[C_STRIDE] = rs1 >> 16 & 0xFFFF, rs2 >> 48 & 0xFFFF
        if not rs1 >> 7 & 1:
            r[TURNED] = rs1 >> 8 & 1
    elif q == LD:
        r[BLOCK + (rs1 >> 3 & 3)], r[PIXELS + (rs1 >> 3 & 3)] = rs1 >> 16 & 0xFFFF, max(rs1 >> 8 & 0xFF, 1) - 1
    elif rs1 & 3 == 2:
        r[POOLING] = rs1 >> 4 & 3


@part
def operand(m: Chip, e: Array, place: int, word: int, rows: int) -> None:
    """Set an operand's range of rows."""
    kind, start = local(m, word)
    span(m, e, place, kind, start, rows)


@part
def span(m: Chip, e: Array, place: int, kind: int, start: int, rows: int) -> None:
    """Set a range of `rows` rows from `start`; its end wraps around at the end of the memory."""
    mask = m.size.acc if kind == IN_ACC else m.size.spad
    e[place], e[place + 1], e[place + END], e[place + WRAPS] = kind, start, start + rows & mask, start + rows > mask


@part
def load_range(m: Chip, e: Array, rs2: int, state: int) -> None:
    """Set the rows that a load writes. Repeated pixels begin earlier, but within the same half of the scratchpad."""
    blocks = ((rs2 >> 32 & 0xFFFF) + m.size.dim - 1) >> m.size.lg_dim
    kind, start = local(m, rs2)
    if not is_acc(rs2):
        half = (m.size.spad + 1) >> 1
        start = max(start - m.station[PIXELS + state], half if start > half else 0)
    span(m, e, A, kind, start, (blocks - 1) * m.station[BLOCK + state] + (rs2 >> 48 & 0xFFFF))


@part
def store_range(m: Chip, e: Array, rs2: int) -> None:
    """Set the rows that a store reads; with pooling, all up to the end of the accumulator's bank."""
    blocks = ((rs2 >> 32 & 0xFFFF) + m.size.dim - 1) >> m.size.lg_dim
    operand(m, e, A, rs2, (blocks - 1) * m.size.dim + (rs2 >> 48 & 0xFFFF))
    if m.station[POOLING]:
        end = (((rs2 & m.size.acc) >> m.size.lg_acc_bank) + 1) << m.size.lg_acc_bank
        e[A + WRAPS] = end > m.size.acc
        e[A + END] = end & m.size.acc if is_acc(rs2) else 0  # the hardware makes the end a row of the accumulator


@part
def overlap(one: Array, a: int, two: Array, b: int) -> bool:
    """Return whether two operands share rows, as the hardware sees it."""
    if one[a] == ABSENT or one[a] != two[b]:
        return False
    begins_in = two[b + 1] <= one[a + 1] and (one[a + 1] < two[b + END] or two[b + WRAPS] != 0)
    return bool(begins_in or (one[a + 1] <= two[b + 1] and (two[b + 1] < one[a + END] or one[a + WRAPS] != 0)))


@part
def depend(m: Chip, q: int, e: Array) -> None:
    """Set the entries that a new one waits for: those of its queue that are not issued, conflicts in other queues."""
    unissued = 0
    for i in range(m.station[UNISSUED + q]):
        unissued |= 1 << m.waiting[q, (m.station[FIRST + q] + i) & (RING - 1)]
    for other in range(3):
        e[WAITS + other] = unissued if other == q else 0
        left = m.station[VALID + other]
        if other == q or (e[A] == ABSENT and e[B] == ABSENT):
            left = 0
        i = 0
        while left:
            if left & 1 and conflict(q, e, other, m.entries[other, i]):
                e[WAITS + other] |= 1 << i
            left >>= 1
            i += 1


@part
def conflict(q: int, e: Array, other: int, old: Array) -> bool:
    """Return whether a command of queue `q` waits for an older one of another queue."""
    if q == LD:
        return overlap(e, A, old, A) or (other == EX and overlap(e, A, old, B))
    if q == EX and other == LD:
        return overlap(e, A, old, A) or overlap(e, B, old, A)
    writes = e[WRITES] if q == EX else other == LD or old[WRITES] != 0
    return bool(writes) and overlap(e, A, old, A)
