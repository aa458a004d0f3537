"""From the reader's beats to rows in the memories: BeatMerger.scala, VectorScalarMultiplier.scala, PixelRepeater.scala,
ZeroWriter.scala, and the writes of Scratchpad.scala and AccumulatorMem.scala."""

from __future__ import annotations

from .jit import callee
from .queues import is_acc, peek, pop, push, ready
from .state import *


@callee
def acc_ready(m: Chip, bank: int, row: int, adds: int) -> bool:
    """Return whether an accumulator bank takes a write: it may not add to a row whose last write is under way."""
    b = m.acc_bank[bank]
    return not (adds and (b[2] == row or b[3] == row))


@callee
def write_acc(m: Chip, bank: int, row: int, adds: int) -> bool:
    """Offer a write to an accumulator bank; return whether it is taken."""
    m.s[ACC_WRITES] |= 1 << bank
    if adds:
        m.s[ACC_ADDS] |= 1 << bank
    if not acc_ready(m, bank, row, adds):
        return False
    m.acc_bank[bank, 4] = row
    m.s[ACTIVE] = 1
    return True


@callee
def step_writes(m: Chip, t: int) -> None:
    """Write moved rows. In each bank the array comes first, then scaled rows, rows for the accumulator, zeros."""
    s, p = m.s, m.p
    last = 0  # which sources offer the last row of a request: 1 scaled for the scratchpad, 2 scaled, 4 accumulator
    scaled_to_acc = 0
    taken = 0  # banks of the scratchpad that a source has claimed
    acc_taken = s[ACC_WRITES]
    if s[MR_VALID]:
        slot = m.rows[s[MR_ITEM], V_SLOT]
        half = (p[SPAD_MASK] + 1) >> 1
        floor = 0 if s[MR_ADDR] < half else half
        if s[MR_ADDR] < floor + s[MR_PIXELS]:
            repeated(m)
        else:
            fired = False
            if m.loads[slot, L_ACC]:
                scaled_to_acc = 1
                row = s[MR_ADDR] & p[ACC_MASK]
                bank = row >> p[ACC_SHIFT]
                if not acc_taken >> bank & 1:
                    fired = write_acc(m, bank, row, m.loads[slot, L_ADD])
                acc_taken |= 1 << bank
            else:
                bank = (s[MR_ADDR] - s[MR_PIXELS]) >> p[SPAD_SHIFT]
                fired = not s[SPAD_WRITES] >> bank & 1
                taken = 1 << bank
            if s[MR_LAST] and s[MR_PIXELS] == 0:
                last = 2 if scaled_to_acc else 3
            if fired:
                s[SPAD_WRITES] |= taken
                if last:
                    m.loads[slot, L_LEFT] -= m.rows[s[MR_ITEM], V_BYTES]
                repeated(m)
    if s[AI_VALID]:
        item = s[AI_ITEM]
        slot = m.rows[item, V_SLOT]
        row = (m.rows[item, V_ADDR] + s[AI_REPEATS]) & p[ACC_MASK]
        bank = row >> p[ACC_SHIFT]
        final = m.rows[item, V_LAST] and s[AI_REPEATS] == 0
        if final:
            last |= 4
        if not scaled_to_acc:
            if not acc_taken >> bank & 1 and not last & 1 and write_acc(m, bank, row, m.loads[slot, L_ADD]):
                if final:
                    m.loads[slot, L_LEFT] -= m.rows[item, V_BYTES]
                s[AI_REPEATS] -= 1
                if s[AI_REPEATS] < 0:
                    s[AI_VALID] = 0
            acc_taken |= 1 << bank
    write_zeros(m, last, taken, acc_taken)


@callee
def repeated(m: Chip) -> None:
    """End a repetition of pixels."""
    s = m.s
    s[ACTIVE] = 1
    s[MR_PIXELS] -= 1
    if s[MR_PIXELS] < 0:
        s[MR_VALID] = 0


@callee
def write_zeros(m: Chip, last: int, taken: int, acc_taken: int) -> None:
    """Write a row of zeros, and take the next one from the writer of zeros."""
    s, p = m.s, m.p
    if s[ZR_VALID]:
        slot = s[ZR_SLOT]
        acc = is_acc(s[ZR_ADDR])
        row = s[ZR_ADDR] & p[ROW_MASK]
        half = (p[SPAD_MASK] + 1) >> 1
        floor = 0 if row < half else half
        fired = False
        if not acc and row < floor + s[ZR_PIXELS]:
            fired = True
        elif acc:
            row = row & p[ACC_MASK]
            bank = row >> p[ACC_SHIFT]
            if not last and not acc_taken >> bank & 1:
                fired = write_acc(m, bank, row, s[ZR_ADDR] >> 30 & 1)
        else:
            bank = (row - s[ZR_PIXELS]) >> p[SPAD_SHIFT]
            if not last and not (s[SPAD_WRITES] | taken) >> bank & 1:
                fired = True
                s[SPAD_WRITES] |= 1 << bank
        if fired:
            s[ACTIVE] = 1
            if s[ZR_LAST] and s[ZR_PIXELS] == 0:
                m.loads[slot, L_LEFT] -= m.loads[slot, L_COLS] * (4 if acc else 1)
            s[ZR_PIXELS] -= 1
            if s[ZR_PIXELS] < 0:
                s[ZR_VALID] = 0
    if s[ZW_VALID] and not s[ZR_VALID]:
        slot = s[ZW_SLOT]
        s[ACTIVE] = 1
        s[ZR_VALID], s[ZR_SLOT], s[ZR_PIXELS] = 1, slot, m.loads[slot, L_PIXELS] - 1
        s[ZR_ADDR] = s[ZW_ADDR] + m.loads[slot, L_BLOCK] * (s[ZW_COLUMN] // p[DIM])
        s[ZW_COLUMN] += p[DIM]
        s[ZR_LAST] = s[ZW_COLUMN] >= m.loads[slot, L_COLS]
        if s[ZR_LAST]:
            s[ZW_VALID] = 0


@callee
def step_scaling(m: Chip, t: int) -> None:
    """Move rows through the scale units: three at a time of the scratchpad's, four lanes unless the scale is 1."""
    s = m.s
    if m.n[SPAD_REGS]:
        item = peek(m, SPAD_REGS, 0)
        row = m.rows[item]
        if row[V_LEFT] == 0 and row[V_DONE] <= t and not s[MR_VALID]:
            pop(m, SPAD_REGS, t)
            s[MR_VALID], s[MR_ITEM], s[MR_LAST] = 1, item, row[V_FINAL]
            s[MR_PIXELS] = m.loads[row[V_SLOT], L_PIXELS] - 1
            s[MR_ADDR] = (row[V_ADDR] + row[V_ROW]) & m.p[ROW_MASK]
        lane(m, t)
    if s[VI_VALID] and ready(m, SPAD_REGS, t):
        item = copy(m, s[VI_ITEM])
        row = m.rows[item]
        row[V_ROW], row[V_FINAL] = s[VI_REPEATS], row[V_LAST] and s[VI_REPEATS] == 0
        row[V_LEFT] = (1 << max(m.p[DIM] // 4, 1)) - 1 if m.loads[row[V_SLOT], L_SCALED] else 0
        row[V_DONE], row[V_TURN] = t + 1, s[TURN]
        s[TURN] = s[TURN] + 1 if s[TURN] < 2 else 0
        push(m, SPAD_REGS, item)
        s[VI_REPEATS] -= 1
        if s[VI_REPEATS] < 0:
            s[VI_VALID] = 0


#: Cycles from the start of a row's last element to the row's end.
SCALE_CYCLES = 6


@callee
def lane(m: Chip, t: int) -> None:
    """Let each lane take an element: round robin over the elements of three rows; all lanes do the same."""
    s = m.s
    elements = max(m.p[DIM] // 4, 1)
    places = 3 * elements
    best, found = 2 * places, -1
    for i in range(m.n[SPAD_REGS]):
        row = m.rows[peek(m, SPAD_REGS, i)]
        if row[V_LEFT] == 0 or row[V_DONE] > t:
            continue
        first = row[V_TURN] * elements
        for element in range(elements):
            if row[V_LEFT] >> element & 1:
                place = first + element
                if place <= s[LANE_LAST]:
                    place += places
                if place < best:
                    best, found = place, i
    if found >= 0:
        row = m.rows[peek(m, SPAD_REGS, found)]
        s[LANE_LAST], s[ACTIVE] = best if best < places else best - places, 1
        row[V_LEFT] &= ~(1 << (s[LANE_LAST] - row[V_TURN] * elements))
        if row[V_LEFT] == 0:
            row[V_DONE] = t + SCALE_CYCLES


@callee
def copy(m: Chip, item: int) -> int:
    """Copy a row into a new one."""
    new = m.s[MV_ITEM]
    m.s[MV_ITEM] = (new + 1) & (RING - 1)
    for column in range(m.rows.shape[1]):
        m.rows[new, column] = m.rows[item, column]
    return int(new)


@callee
def step_merger(m: Chip, t: int) -> None:
    """Merge beats to rows; a row leaves when all its bytes in this request are there."""
    s, p = m.s, m.p
    free = not s[BM_VALID]
    if s[BM_VALID]:
        after = max(s[BM_READ] - s[BM_SHIFT], 0)
        useful, sent = min(after, s[BM_BYTES]), s[BM_SENT]
        done = sent == s[BM_BYTES]
        load = m.loads[s[BM_SLOT]]
        row_bytes = p[DIM] * (4 if load[L_WIDE] else 1)
        unit = AI_VALID if load[L_WIDE] else VI_VALID
        gone = False
        if s[BM_READ] == s[BM_SIZE] and done:
            gone = True
        elif useful > sent and (useful - sent >= row_bytes or useful == s[BM_BYTES]) and not s[unit]:
            offset = s[BM_OFFSET] if sent == 0 else 0
            after = min(sent + row_bytes - offset, s[BM_BYTES])
            item = m.s[MV_ITEM]
            m.s[MV_ITEM] = (item + 1) & (RING - 1)
            row = m.rows[item]
            row[V_SLOT], row[V_LAST], row[V_BYTES] = s[BM_SLOT], after == s[BM_BYTES], s[BM_BYTES]
            row[V_ADDR] = s[BM_ADDR] + load[L_BLOCK] * ((s[BM_OFFSET] + sent) // row_bytes)
            s[unit], s[unit + 1], s[unit + 2], s[ACTIVE] = 1, item, load[L_REPEATS], 1
            s[BM_SENT] = after
            if row[V_LAST] and s[BM_READ] == s[BM_SIZE]:
                gone = free = True
        if m.n[D_READ] and not free and s[BM_READ] != s[BM_SIZE]:
            if done and s[BM_SIZE] - s[BM_READ] <= p[BUS]:
                gone = True
            beat(m, t)
        if gone:
            s[BM_VALID], s[ACTIVE] = 0, 1
    if free and m.n[D_READ]:
        x = m.xacts[peek(m, D_READ, 0) >> 1]
        s[BM_VALID], s[BM_READ], s[BM_SENT] = 1, 0, 0
        s[BM_SLOT], s[BM_BYTES], s[BM_SHIFT], s[BM_SIZE] = x[T_SLOT], x[T_BYTES], x[T_SHIFT], x[T_SIZE]
        s[BM_OFFSET], s[BM_ADDR] = x[T_OFFSET], x[T_ADDR]
        beat(m, t)


@callee
def beat(m: Chip, t: int) -> None:
    """Take a beat; the last one of a request frees its transaction."""
    item = pop(m, D_READ, t)
    m.s[BM_READ] += m.p[BUS]
    if item & 1:
        m.xacts[item >> 1, T_USED] = 0
        m.s[R_XACTS] -= 1
        m.s[R_FREED] = t
