"""From the reader's beats to rows in the memories: BeatMerger.scala, VectorScalarMultiplier.scala, PixelRepeater.scala,
ZeroWriter.scala, and the writes of Scratchpad.scala and AccumulatorMem.scala."""

from __future__ import annotations

from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.chip import Chip, count, is_acc, peek, pop, push, ready

ACTIVE, SPAD_WRITES, ACC_WRITES, ACC_ADDS = 0, 4, 5, 6
SCALING, D_READ = 8, 15
RING = 512
#: Registers of the merger: the request in hand, with bytes read and sent; then the next place in `Chip.rows`.
M_VALID, M_SLOT, M_BYTES, M_SIZE, M_SHIFT, M_OFFSET, M_ADDR, M_READ, M_SENT, NEXT = range(10)
#: Registers of the two scale units, of int8 and int32 rows: a row and its repetitions to come (stride 0). The first one
#: also has the element that a lane took last, and the place of its next row.
IN_VALID, IN_ROW, IN_REPEATS, WIDE_VALID, WIDE_ROW, WIDE_REPEATS, LANE_LAST, TURN = range(10, 18)
#: Registers of the repeaters of pixels, of moved rows and of zeros: a row, its address, whether it is the last one of a
#: request, and the repetitions to come.
R_VALID, R_ROW, R_ADDR, R_LAST, R_PIXELS, Z_VALID, Z_SLOT, Z_ADDR, Z_LAST, Z_PIXELS = range(18, 28)
#: Columns of `Chip.rows`: the load, the address and whether it ends a request, with the bytes of this; for one of its
#: repetitions: its number, whether it is the last; elements to scale (bits), the cycle of the start or end of scaling.
SLOT, ADDR, LAST, BYTES, REPEAT, FINAL, ELEMENTS, DUE, PLACE = range(9)
#: Columns of loads, and registers of the load controller.
LEFT, COLUMNS, REPEATS, BLOCK, SCALED, WIDE, IN_ACC, ADDS, PIXELS = 2, 6, 8, 9, 10, 11, 12, 13, 14
W_VALID, W_SLOT, W_ADDR, W_COLUMN = 4, 5, 6, 7
#: Columns of transactions, and registers of the reader.
TAKEN, X_SLOT, X_BYTES, X_SIZE, X_SHIFT, X_OFFSET, X_ADDR = range(7)
FREED_AT, XACTS = 0, 2
#: Lanes of the scale unit, and cycles from the start of a row's last element to the end of the row.
LG_LANES, SCALE_CYCLES = 2, 6
#: Who offers the last row of a request: scaled for the scratchpad or the accumulator, int32. The tracker takes one.
OF_SPAD, OF_SCALED, OF_WIDE = 1, 2, 4


@part
def write_acc(m: Chip, row: int, adds: int) -> bool:
    """Offer a write to the accumulator; return whether it is taken. It may not add to a row that is being written."""
    bank = row >> m.size.lg_acc_bank
    b = m.acc_bank[bank]
    m.wire[ACC_WRITES] |= 1 << bank
    m.wire[ACC_ADDS] |= adds << bank
    if adds and (b[2] == row or b[3] == row):
        return False
    b[4] = row
    m.wire[ACTIVE] = 1
    return True


@part
def clamped(m: Chip, row: int, pixels: int) -> bool:
    """Return whether a repetition of pixels would lie before its half of the scratchpad: it is not written."""
    half = (m.size.spad + 1) >> 1
    return row < (half if row >= half else 0) + pixels


@part
def step_writes(m: Chip) -> None:
    """Write moved rows. In each bank the array comes first, then scaled rows, int32 rows, zeros."""
    r, w = m.move, m.wire
    lasts, claimed, to_acc, acc_claimed = 0, 0, False, w[ACC_WRITES]
    if r[R_VALID] and clamped(m, r[R_ADDR], r[R_PIXELS]):
        repeated(m)
    elif r[R_VALID]:
        load = m.loads[m.rows[r[R_ROW], SLOT]]
        last = r[R_LAST] and r[R_PIXELS] == 0
        to_acc = load[IN_ACC] != 0
        if to_acc:
            row = r[R_ADDR] & m.size.acc
            bit = 1 << (row >> m.size.lg_acc_bank)
            fired = not acc_claimed & bit and write_acc(m, row, load[ADDS])
            acc_claimed |= bit
            lasts = OF_SCALED if last else 0
        else:
            claimed = 1 << (r[R_ADDR] - r[R_PIXELS] >> m.size.lg_spad_bank)
            fired = not w[SPAD_WRITES] & claimed
            lasts = OF_SPAD if last else 0
            if fired:
                w[SPAD_WRITES] |= claimed
        if fired:
            if last:
                load[LEFT] -= m.rows[r[R_ROW], BYTES]
            repeated(m)
    if r[WIDE_VALID]:
        own = m.rows[r[WIDE_ROW]]
        load = m.loads[own[SLOT]]
        row = own[ADDR] + r[WIDE_REPEATS] & m.size.acc
        bit = 1 << (row >> m.size.lg_acc_bank)
        last = own[LAST] and r[WIDE_REPEATS] == 0
        if not to_acc:
            if not acc_claimed & bit and lasts != OF_SPAD and write_acc(m, row, load[ADDS]):
                if last:
                    load[LEFT] -= own[BYTES]
                r[WIDE_REPEATS] -= 1
                if r[WIDE_REPEATS] < 0:
                    r[WIDE_VALID] = 0
            acc_claimed |= bit
        if last:
            lasts |= OF_WIDE
    if r[Z_VALID]:
        write_zeros(m, lasts, claimed, acc_claimed)
    if m.load[W_VALID] and not r[Z_VALID]:
        next_zeros(m)


@part
def repeated(m: Chip) -> None:
    """End a repetition of pixels."""
    r = m.move
    m.wire[ACTIVE] = 1
    r[R_PIXELS] -= 1
    if r[R_PIXELS] < 0:
        r[R_VALID] = 0


@part
def write_zeros(m: Chip, lasts: int, claimed: int, acc_claimed: int) -> None:
    """Write a row of zeros, if nobody offers the last row of a request."""
    r, w = m.move, m.wire
    acc = is_acc(r[Z_ADDR])
    row = r[Z_ADDR] & m.size.rows
    if acc:
        row &= m.size.acc
        free = not acc_claimed >> (row >> m.size.lg_acc_bank) & 1
        fired = lasts == 0 and free and write_acc(m, row, r[Z_ADDR] >> 30 & 1)
    elif clamped(m, row, r[Z_PIXELS]):
        fired = True
    else:
        bit = 1 << (row - r[Z_PIXELS] >> m.size.lg_spad_bank)
        fired = lasts == 0 and not (w[SPAD_WRITES] | claimed) & bit
        if fired:
            w[SPAD_WRITES] |= bit
    if fired:
        w[ACTIVE] = 1
        if r[Z_LAST] and r[Z_PIXELS] == 0:
            m.loads[r[Z_SLOT], LEFT] -= m.loads[r[Z_SLOT], COLUMNS] << (2 if acc else 0)
        r[Z_PIXELS] -= 1
        if r[Z_PIXELS] < 0:
            r[Z_VALID] = 0


@part
def next_zeros(m: Chip) -> None:
    """Take the next block of a row from the writer of zeros."""
    r, own = m.move, m.load
    load = m.loads[own[W_SLOT]]
    m.wire[ACTIVE] = 1
    r[Z_VALID], r[Z_SLOT], r[Z_PIXELS] = 1, own[W_SLOT], load[PIXELS] - 1
    r[Z_ADDR] = own[W_ADDR] + load[BLOCK] * (own[W_COLUMN] >> m.size.lg_dim)
    own[W_COLUMN] += m.size.dim
    r[Z_LAST] = own[W_COLUMN] >= load[COLUMNS]
    if r[Z_LAST]:
        own[W_VALID] = 0


@part
def step_scaling(m: Chip, t: int) -> None:
    """Move int8 rows through their scale unit: three at a time, four lanes unless the scale is 1."""
    r = m.move
    if count(m, SCALING):
        item = peek(m, SCALING, 0)
        row = m.rows[item]
        if row[ELEMENTS] == 0 and row[DUE] <= t and not r[R_VALID]:
            pop(m, SCALING, t)
            r[R_VALID], r[R_ROW], r[R_LAST] = 1, item, row[FINAL]
            r[R_PIXELS] = m.loads[row[SLOT], PIXELS] - 1
            r[R_ADDR] = row[ADDR] + row[REPEAT] & m.size.rows
        lane(m, t)
    if r[IN_VALID] and ready(m, SCALING, t):
        item, own = new_row(m), m.rows[r[IN_ROW]]
        row = m.rows[item]
        row[SLOT], row[ADDR], row[BYTES], row[REPEAT] = own[SLOT], own[ADDR], own[BYTES], r[IN_REPEATS]
        row[FINAL], row[DUE], row[PLACE] = own[LAST] and r[IN_REPEATS] == 0, t + 1, r[TURN]
        row[ELEMENTS] = (1 << elements(m)) - 1 if m.loads[own[SLOT], SCALED] else 0
        r[TURN] = r[TURN] + elements(m) if r[TURN] < 2 * elements(m) else 0
        push(m, SCALING, item)
        r[IN_REPEATS] -= 1
        if r[IN_REPEATS] < 0:
            r[IN_VALID] = 0


@part
def elements(m: Chip) -> int:
    """Return the elements of a row that one lane scales."""
    return max(m.size.dim >> LG_LANES, 1)


@part
def new_row(m: Chip) -> int:
    """Return a new place in `Chip.rows`."""
    item = m.move[NEXT]
    m.move[NEXT] = (item + 1) & (RING - 1)
    return item


@part
def lane(m: Chip, t: int) -> None:
    """Let each lane take an element: round robin over the elements of three rows; all lanes do the same."""
    r, places = m.move, 3 * elements(m)
    best, found = 2 * places, -1
    for i in range(count(m, SCALING)):
        row = m.rows[peek(m, SCALING, i)]
        if row[ELEMENTS] == 0 or row[DUE] > t:
            continue
        for element in range(elements(m)):
            if row[ELEMENTS] >> element & 1:
                place = row[PLACE] + element
                if place <= r[LANE_LAST]:
                    place += places
                if place < best:
                    best, found = place, i
    if found >= 0:
        row = m.rows[peek(m, SCALING, found)]
        r[LANE_LAST], m.wire[ACTIVE] = best if best < places else best - places, 1
        row[ELEMENTS] &= ~(1 << (r[LANE_LAST] - row[PLACE]))
        if row[ELEMENTS] == 0:
            row[DUE] = t + SCALE_CYCLES


@part
def step_merger(m: Chip, t: int) -> None:
    """Merge beats to rows; a row leaves when all its bytes in this request are there."""
    r = m.move
    free = not r[M_VALID]
    if r[M_VALID]:
        useful, sent = min(max(r[M_READ] - r[M_SHIFT], 0), r[M_BYTES]), r[M_SENT]
        all_read, done, gone = r[M_READ] == r[M_SIZE], sent == r[M_BYTES], False
        load = m.loads[r[M_SLOT]]
        row_bytes = m.size.dim << load[WIDE]
        unit = WIDE_VALID if load[WIDE] else IN_VALID
        if all_read and done:
            gone = True
        elif useful > sent and (useful - sent >= row_bytes or useful == r[M_BYTES]) and not r[unit]:
            item = new_row(m)
            row = m.rows[item]
            r[M_SENT] = min(sent + row_bytes - (r[M_OFFSET] if sent == 0 else 0), r[M_BYTES])
            row[SLOT], row[LAST], row[BYTES] = r[M_SLOT], r[M_SENT] == r[M_BYTES], r[M_BYTES]
            row[ADDR] = r[M_ADDR] + load[BLOCK] * (r[M_OFFSET] + sent >> m.size.lg_dim + load[WIDE])
            r[unit], r[unit + 1], r[unit + 2], m.wire[ACTIVE] = 1, item, load[REPEATS], 1
            gone = free = row[LAST] != 0 and all_read
        if count(m, D_READ) and not free and not all_read:
            gone = gone or (done and r[M_SIZE] - r[M_READ] <= 1 << m.size.lg_bus)
            beat(m, t)
        if gone:
            r[M_VALID], m.wire[ACTIVE] = 0, 1
    if free and count(m, D_READ):
        x = m.xacts[peek(m, D_READ, 0) >> 1]
        r[M_VALID], r[M_READ], r[M_SENT] = 1, 0, 0
        for column in range(X_SLOT, X_ADDR + 1):
            r[M_SLOT - X_SLOT + column] = x[column]
        beat(m, t)


@part
def beat(m: Chip, t: int) -> None:
    """Take a beat; the last one of a request frees its transaction."""
    item = pop(m, D_READ, t)
    m.move[M_READ] += 1 << m.size.lg_bus
    if item & 1:
        m.xacts[item >> 1, TAKEN] = 0
        m.reader[XACTS] -= 1
        m.reader[FREED_AT] = t
