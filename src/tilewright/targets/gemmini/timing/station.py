"""The reservation station (ReservationStation.scala): entries, dependencies, issue and completion.

Each queue has its own entries, and issues its commands in order. A command waits for older commands of the two other
queues that use the same rows, if either command writes these rows. The entries of these older commands are in a bit
mask. The mask does not change when an entry becomes free, because `ready_entry` checks only entries in use. When a new
command takes the free entry, `forget` removes the entry from all masks.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX, LD, ST
from tilewright.targets.gemmini.timing.bus import READER, WRITER
from tilewright.targets.gemmini.timing.controller import COMMANDS
from tilewright.targets.gemmini.timing.layout import RING, WIDTH, at, row_offset
from tilewright.targets.gemmini.timing.load import LOADS
from tilewright.targets.gemmini.timing.operands import ABSENT, IN_ACC, blocks_of, is_acc, local, rows_of
from tilewright.targets.gemmini.timing.program import CONFIG, PRELOAD, Program, configured
from tilewright.targets.gemmini.timing.queues import Q, push, ready
from tilewright.targets.gemmini.timing.records import COMMAND, RULE, WIRE, columns, registers, saved, table
from tilewright.targets.gemmini.timing.state import SHARED
from tilewright.targets.gemmini.timing.store import STORES
from tilewright.targets.gemmini.timing.unroll import NONE, note_finished, offered
from tilewright.targets.gemmini.timing.unroll_streams import FrontPlan


class Station:
    """The registers of the station. A field of size 3 has numbers for the queues LD, EX and ST."""

    valid = saved(RULE.wire, size=3)  # a bit mask of the entries in use; snapshots renumber the entries
    unissued = saved(size=3)  # the number of entries that are not issued
    first = saved(RULE.pointer, size=3)  # the index in WAITING of the oldest unissued entry
    order = saved(RULE.taken)  # the number of accepted commands
    awaited = saved(RULE.wire, size=3)  # a bit mask of the entries for which any entry may wait


class OperandSpan:
    """The rows of an operand, from `start` to `end` (exclusive). With `wraps`, the range wraps around."""

    kind: int
    start: int
    end: int
    wraps: int


class Entry:
    """An entry of the station. `a` is the command's result, or the first source of a command without a result."""

    command = COMMAND
    writes = WIRE
    a = saved(RULE.wire, size=4)  # see OperandSpan
    b = saved(RULE.wire, size=4)
    waits = saved(RULE.wire, size=3)  # for each queue, a bit mask of the entries for which this entry waits


class UnissuedEntry:
    """The unissued entries of the three queues, in program order."""

    entry = saved(RULE.wire, size=3)


class EventColumns:
    """The columns of the array Program.times."""

    taken: int
    issued: int
    done: int


STATION = registers(Station, 13)
ENTRIES = table(Entry, "entries")
WAITING = table(UnissuedEntry, "waiting")
SPAN = columns(OperandSpan)
TIMES = columns(EventColumns)


@part
def step_station(m: Array, p: Program, plan: FrontPlan, t: int) -> bool:
    """Issue, complete and accept commands in cycle `t`. Return whether the front end's command is accepted."""
    # The hardware decides from registers, so an entry that becomes free in this cycle is available in the next cycle.
    before_ld = m[SHARED.number]
    before_ex = m[SHARED.number + 1]
    before_st = m[SHARED.number + 2]
    if m[STATION.unissued] | m[STATION.unissued + 1] | m[STATION.unissued + 2]:
        load = ready_entry(m, LD, Q.loads, t)
        execute = ready_entry(m, EX, Q.transposes, t)
        store = ready_entry(m, ST, Q.stores, t)
        if load >= 0:
            issue(m, p, LD, load, t)
        if execute >= 0:
            issue(m, p, EX, execute, t)
        if store >= 0:
            issue(m, p, ST, store, t)
    # The station takes one completion per cycle, by this priority [R: gemmini_timing rule 22]. The trackers report the
    # other completions again in the next cycle.
    if m[SHARED.ex_done] >= 0:
        complete(m, p, EX, m[SHARED.ex_done], t)
    elif m[SHARED.ld_done] >= 0:
        m[at(LOADS.valid, m[SHARED.ld_done])] = 0
        m[SHARED.loads_used] -= 1
        complete(m, p, LD, m[at(LOADS.entry, m[SHARED.ld_done])], t)
    elif m[SHARED.st_done] >= 0:
        m[at(STORES.valid, m[SHARED.st_done])] = 0
        m[SHARED.stores_used] -= 1
        complete(m, p, ST, m[at(STORES.entry, m[SHARED.st_done])], t)
    prim = offered(m)
    if prim == NONE:
        return False
    if prim < 0:  # a flush clears the translated pages
        m[READER.page] = m[WRITER.page] = -1
        return True
    q = p.queue[prim]
    before = before_ld if q == LD else before_ex if q == EX else before_st
    if before == plan.room[q]:
        return False
    allocate(m, p, q, prim, p.prims[prim, 0] & 127, t)
    return True


@part
def ready_entry(m: Array, q: int, to: int, t: int) -> int:
    """Return the oldest unissued entry of queue `q` if it can be issued to the controller's queue `to`, else -1."""
    if m[STATION.unissued + q] == 0 or not ready(m, to, t):
        return -1
    # In the RTL of 2025, a store waits until all earlier stores are done (ReservationStation.scala: deps_st).
    if q == ST and m[SHARED.of_2025] and m[SHARED.number + q] != m[STATION.unissued + q]:
        return -1
    entry = m[at(WAITING.entry, m[STATION.first + q]) + q]
    e = row_offset(64 * q + entry)
    waits = (
        m[e + ENTRIES.waits] & m[STATION.valid]
        | m[e + ENTRIES.waits + 1] & m[STATION.valid + 1]
        | m[e + ENTRIES.waits + 2] & m[STATION.valid + 2]
    )
    return entry if waits == 0 else -1


def issue(m: Array, p: Program, q: int, entry: int, t: int) -> None:
    """Issue a command to its controller. A configuration of loads or stores completes immediately."""
    prim = m[at(ENTRIES.command, 64 * q + entry)]
    p.times[prim, TIMES.issued] = t
    m[STATION.first + q] = (m[STATION.first + q] + 1) & (RING - 1)
    m[SHARED.progress] += 1
    m[STATION.unissued + q] -= 1
    if q != EX and p.prims[prim, 0] & 127 == CONFIG:
        complete(m, p, q, entry, t)
    if q == EX:
        item = m[SHARED.next_command]
        m[SHARED.next_command] = (item + 1) & (RING - 1)
        command = row_offset(item)
        m[command + COMMANDS.funct] = p.prims[prim, 0] & 127
        m[command + COMMANDS.rs1] = p.prims[prim, 1]
        m[command + COMMANDS.rs2] = p.prims[prim, 2]
        m[command + COMMANDS.entry] = entry
        push(m, Q.transposes, item)
    else:
        push(m, Q.loads if q == LD else Q.stores, prim << 6 | entry)


def forget(m: Array, q: int, entry: int) -> None:
    """Remove an entry of queue `q` from all wait masks, because a new command takes this entry."""
    m[STATION.awaited + q] &= ~(1 << entry)
    for of in range(3):
        left = 0 if of == q else m[STATION.valid + of]
        e = at(ENTRIES.waits, 64 * of) + q
        while left:
            m[e] &= ~(1 << entry)
            left >>= 1
            e += WIDTH


def complete(m: Array, p: Program, q: int, entry: int, t: int) -> None:
    m[SHARED.active] = 1
    m[STATION.valid + q] &= ~(1 << entry)
    m[SHARED.number + q] -= 1
    m[SHARED.progress] += 1
    prim = m[at(ENTRIES.command, 64 * q + entry)]
    p.times[prim, TIMES.done] = t
    note_finished(m, p.unroller[prim], q)


def allocate(m: Array, p: Program, q: int, prim: int, funct: int, t: int) -> None:
    entry = 0
    while m[STATION.valid + q] >> entry & 1:
        entry += 1
    if m[STATION.awaited + q] >> entry & 1:
        forget(m, q, entry)
    e = row_offset(64 * q + entry)
    m[e + ENTRIES.command] = prim
    p.order[m[STATION.order]] = prim
    m[STATION.order] += 1
    p.times[prim, TIMES.taken] = t
    if q == EX and funct != CONFIG:
        m[SHARED.lone] = funct == PRELOAD
    set_operands(m, p, e)
    depend(m, q, e)
    m[at(WAITING.entry, (m[STATION.first + q] + m[STATION.unissued + q]) & (RING - 1)) + q] = entry
    m[STATION.unissued + q] += 1
    m[STATION.valid + q] |= 1 << entry
    m[SHARED.number + q] += 1


def set_operands(m: Array, p: Program, e: int) -> None:
    # The function `tracked` in hazards/touch.py computes the same ranges for complete programs.
    prim = m[e + ENTRIES.command]
    funct = p.prims[prim, 0] & 127
    rs1 = p.prims[prim, 1]
    rs2 = p.prims[prim, 2]
    fit = 2 * m[SHARED.dim] - 1
    config = configured(p, prim, 1)
    m[e + ENTRIES.writes] = funct == PRELOAD
    m[e + ENTRIES.a] = ABSENT
    m[e + ENTRIES.b] = ABSENT
    if funct == CONFIG:
        return
    # A range contains all rows from an operand's first row to its last row, including gaps between blocks or strides.
    if p.queue[prim] == LD:
        pixels = 0 if is_acc(rs2) else max((config >> 8 & 0xFF) - 1, 0)
        set_span(m, e + ENTRIES.a, rs2, (blocks_of(m, rs2) - 1) * (config >> 16 & 0xFFFF) + rows_of(rs2), pixels)
    elif p.queue[prim] == ST:
        set_span(m, e + ENTRIES.a, rs2, (blocks_of(m, rs2) - 1) * m[SHARED.dim] + rows_of(rs2), 0)
        if config >> 4 & 3:  # with pooling: all rows up to the end of the accumulator bank
            end = (((rs2 & m[SHARED.acc]) >> m[SHARED.lg_acc_bank]) + 1) << m[SHARED.lg_acc_bank]
            m[e + ENTRIES.a + SPAN.wraps] = end > m[SHARED.acc]
            # In the hardware, the end is a row of the accumulator (next_bank_addr), even for stores from the
            # scratchpad.
            m[e + ENTRIES.a + SPAN.end] = end & m[SHARED.acc] if is_acc(rs2) else 0
    elif funct == PRELOAD:
        set_span(m, e + ENTRIES.a, rs2, (rs2 >> 48 & fit) * (configured(p, prim, 2) >> 48 & 0xFFFF), 0)
        set_span(m, e + ENTRIES.b, rs1, rs1 >> 48 & fit, 0)
    else:
        # Every config_ex sets the strides (`config`); the transposition comes from the last full config_ex (`whole`).
        transposed = p.whole[prim] >= 0 and p.prims[p.whole[prim], 1] >> 8 & 1 != 0
        set_span(m, e + ENTRIES.a, rs1, (rs1 >> (32 if transposed else 48) & fit) * (config >> 16 & 0xFFFF), 0)
        set_span(m, e + ENTRIES.b, rs2, rs2 >> 48 & fit, 0)


@part
def set_span(m: Array, place: int, word: int, rows: int, before: int) -> None:
    """Set a range of rows. The range wraps around at the end of the memory."""
    # Repeated pixels begin `before` rows earlier in the same half of the scratchpad. The hardware moves the range's
    # start but keeps its length (total_mvin_rows), so the last rows of such a load are not tracked.
    kind, start = local(m, word)
    half = (m[SHARED.spad] + 1) >> 1
    mask = m[SHARED.acc] if kind == IN_ACC else m[SHARED.spad]
    start = max(start - before, half if start > half else 0)
    m[place] = kind
    m[place + SPAN.start] = start
    m[place + SPAN.end] = start + rows & mask
    m[place + SPAN.wraps] = start + rows > mask


@part
def overlap(m: Array, x: int, y: int) -> bool:
    """Return whether two operands share rows according to the hardware's comparison."""
    if m[x] == ABSENT or m[x] != m[y]:
        return False
    if m[y + SPAN.start] <= m[x + SPAN.start] and (m[x + SPAN.start] < m[y + SPAN.end] or m[y + SPAN.wraps] != 0):
        return True
    return m[x + SPAN.start] <= m[y + SPAN.start] and (m[y + SPAN.start] < m[x + SPAN.end] or m[x + SPAN.wraps] != 0)


def depend(m: Array, q: int, e: int) -> None:
    """Set the bit masks of the entries for which a new entry waits."""
    for old_q in range(3):
        left = m[STATION.valid + old_q]
        waits = 0
        if old_q == q or (m[e + ENTRIES.a] == ABSENT and m[e + ENTRIES.b] == ABSENT):
            left = 0
        old = row_offset(64 * old_q)
        bit = 1
        while left:
            if left & 1 and conflict(m, q, e, old_q, old):
                waits |= bit
            left >>= 1
            old += WIDTH
            bit <<= 1
        m[e + ENTRIES.waits + old_q] = waits
        m[STATION.awaited + old_q] |= waits


def conflict(m: Array, q: int, e: int, old_q: int, old: int) -> bool:
    """Return whether a new command of queue `q` waits for an older command of queue `old_q`."""
    # A reader waits for writers, and a writer waits for readers and writers (ReservationStation.scala: deps_ld,
    # deps_ex, deps_st). Loads and preloads write `a`; stores and computes read `a`.
    if q == LD:
        return overlap(m, e + ENTRIES.a, old + ENTRIES.a) or (
            old_q == EX and overlap(m, e + ENTRIES.a, old + ENTRIES.b)
        )
    if q == EX and old_q == LD:
        return overlap(m, e + ENTRIES.a, old + ENTRIES.a) or overlap(m, e + ENTRIES.b, old + ENTRIES.a)
    writes = m[e + ENTRIES.writes] if q == EX else old_q == LD or m[old + ENTRIES.writes] != 0
    return bool(writes) and overlap(m, e + ENTRIES.a, old + ENTRIES.a)
