"""From the reader's beats to rows in the memories: BeatMerger.scala, VectorScalarMultiplier.scala, PixelRepeater.scala,
ZeroWriter.scala, and the writes of Scratchpad.scala and AccumulatorMem.scala."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.chip import at, count, is_acc, peek, pop, push, ready

#: Registers of the merger: the request in hand, with bytes read and sent; then the next place in MOVED.
M_VALID, M_SLOT, M_BYTES, M_SIZE, M_SHIFT, M_OFFSET, M_ADDR, M_READ, M_SENT, NEXT = range(c.MOVE, c.MOVE + 10)
#: Registers of the two scale units, of int8 and int32 rows: a row and its repetitions to come (stride 0). The first one
#: also has the element that a lane took last, the place of its next row, and its rows with elements to scale.
IN_VALID, IN_ROW, IN_REPEATS, WIDE_VALID, WIDE_ROW, WIDE_REPEATS, LANE_LAST, TURN = range(c.MOVE + 10, c.MOVE + 18)
UNSCALED = c.MOVE + 28
#: Registers of the repeaters of pixels, of moved rows and of zeros: a row, its address, whether it is the last one of a
#: request, and the repetitions to come.
R_VALID, R_ROW, R_ADDR, R_LAST, R_PIXELS, Z_VALID, Z_SLOT, Z_ADDR, Z_LAST, Z_PIXELS = range(c.MOVE + 18, c.MOVE + 28)
#: Columns of MOVED: the load, the address and whether it ends a request, with the bytes of this; for one of its
#: repetitions: its number, whether it is the last; elements to scale (bits), the cycle of the start or end of scaling.
SLOT, ADDR, LAST, BYTES, REPEAT, FINAL, ELEMENTS, DUE, PLACE = range(9)
#: Columns of LOADED.
LEFT, COLUMNS, REPEATS, BLOCK, SCALED, WIDE, IN_ACC, ADDS, PIXELS = 2, 6, 8, 9, 10, 11, 12, 13, 14
#: Columns of TRANSACTIONS, and registers of the reader.
TAKEN, X_SLOT, X_BYTES, X_SIZE, X_SHIFT, X_OFFSET, X_ADDR = range(7)
FREED_AT, XACTS = c.READER, c.READER + 2
#: The place in MOVED of the one row in the scale unit of int32. It may wait while thousands of int8 rows pass.
OF_WIDE_UNIT = c.RING - 1
#: Lanes of the scale unit, and cycles from the start of a row's last element to the end of the row.
LG_LANES, SCALE_CYCLES = 2, 6
#: Who offers the last row of a request: scaled for the scratchpad or the accumulator, int32. The tracker takes one.
OF_SPAD, OF_SCALED, OF_WIDE = 1, 2, 4


@called
def write_acc(m: Array, row: int, adds: int, t: int) -> bool:
    """Offer a write to the accumulator; return whether it is taken. It may not add to a row that is being written."""
    bank = row >> m[c.LG_ACC_BANK]
    b = at(c.ACC_BANK, bank)
    m[c.ACC_WRITES] |= 1 << bank
    m[c.ACC_ADDS] |= adds << bank
    m[c.ACTIVE] = 1
    if adds and in_flight(m, row, t):
        return False
    m[b + (t & 3)] = written(row, t)
    return True


@part
def written(row: int, t: int) -> int:
    """Return what a bank of the accumulator keeps in its place `t & 3`: a row that is written from cycle `t` on."""
    return t << 24 | row


@part
def in_flight(m: Array, row: int, t: int) -> bool:
    """Return whether a row of the accumulator is being written: for two cycles, it can be neither read nor added to."""
    b = at(c.ACC_BANK, row >> m[c.LG_ACC_BANK])
    return m[b + (t - 1 & 3)] == written(row, t - 1) or m[b + (t - 2 & 3)] == written(row, t - 2)


@part
def clamped(m: Array, row: int, pixels: int) -> bool:
    """Return whether a repetition of pixels would lie before its half of the scratchpad: it is not written."""
    half = (m[c.SPAD] + 1) >> 1
    return row < (half if row >= half else 0) + pixels


@part
def has_rows(m: Array) -> bool:
    """Return whether a row is to be written."""
    return m[R_VALID] + m[WIDE_VALID] + m[Z_VALID] + m[c.ZEROS_VALID] > 0


@called
def step_writes(m: Array, t: int) -> None:
    """Write moved rows. In each bank the array comes first, then scaled rows, int32 rows, zeros."""
    lasts, claimed, to_acc, acc_claimed = 0, 0, False, m[c.ACC_WRITES]
    if m[R_VALID] and clamped(m, m[R_ADDR], m[R_PIXELS]):
        repeated(m)
    elif m[R_VALID]:
        load = at(c.LOADED, m[at(c.MOVED, m[R_ROW]) + SLOT])
        last = m[R_LAST] and m[R_PIXELS] == 0
        to_acc = m[load + IN_ACC] != 0
        if to_acc:
            row = m[R_ADDR] & m[c.ACC]
            bit = 1 << (row >> m[c.LG_ACC_BANK])
            fired = not acc_claimed & bit and write_acc(m, row, m[load + ADDS], t)
            acc_claimed |= bit
            lasts = OF_SCALED if last else 0
        else:
            claimed = 1 << (m[R_ADDR] - m[R_PIXELS] >> m[c.LG_SPAD_BANK])
            fired = not m[c.SPAD_WRITES] & claimed
            lasts = OF_SPAD if last else 0
            if fired:
                m[c.SPAD_WRITES] |= claimed
        if fired:
            if last:
                m[load + LEFT] -= m[at(c.MOVED, m[R_ROW]) + BYTES]
            repeated(m)
    if m[WIDE_VALID]:
        own = at(c.MOVED, m[WIDE_ROW])
        load = at(c.LOADED, m[own + SLOT])
        row = m[own + ADDR] + m[WIDE_REPEATS] & m[c.ACC]
        bit = 1 << (row >> m[c.LG_ACC_BANK])
        last = m[own + LAST] and m[WIDE_REPEATS] == 0
        if not to_acc:
            if not acc_claimed & bit and lasts != OF_SPAD and write_acc(m, row, m[load + ADDS], t):
                if last:
                    m[load + LEFT] -= m[own + BYTES]
                m[WIDE_REPEATS] -= 1
                m[c.PROGRESS] += 1
                if m[WIDE_REPEATS] < 0:
                    m[WIDE_VALID] = 0
            acc_claimed |= bit
        if last:
            lasts |= OF_WIDE
    if m[Z_VALID]:
        write_zeros(m, lasts, claimed, acc_claimed, t)
    if m[c.ZEROS_VALID] and not m[Z_VALID]:
        next_zeros(m)


@part
def repeated(m: Array) -> None:
    """End a repetition of pixels."""
    m[c.ACTIVE] = 1
    m[c.PROGRESS] += 1
    m[R_PIXELS] -= 1
    if m[R_PIXELS] < 0:
        m[R_VALID] = 0


@called
def write_zeros(m: Array, lasts: int, claimed: int, acc_claimed: int, t: int) -> None:
    """Write a row of zeros, if nobody offers the last row of a request."""
    acc = is_acc(m[Z_ADDR])
    row = m[Z_ADDR] & m[c.ROWS]
    if acc:
        row &= m[c.ACC]
        free = not acc_claimed >> (row >> m[c.LG_ACC_BANK]) & 1
        fired = lasts == 0 and free and write_acc(m, row, m[Z_ADDR] >> 30 & 1, t)
    elif clamped(m, row, m[Z_PIXELS]):
        fired = True
    else:
        bit = 1 << (row - m[Z_PIXELS] >> m[c.LG_SPAD_BANK])
        fired = lasts == 0 and not (m[c.SPAD_WRITES] | claimed) & bit
        if fired:
            m[c.SPAD_WRITES] |= bit
    if fired:
        m[c.ACTIVE] = 1
        if m[Z_LAST] and m[Z_PIXELS] == 0:
            m[at(c.LOADED, m[Z_SLOT]) + LEFT] -= m[at(c.LOADED, m[Z_SLOT]) + COLUMNS] << (2 if acc else 0)
        m[Z_PIXELS] -= 1
        m[c.PROGRESS] += 1
        if m[Z_PIXELS] < 0:
            m[Z_VALID] = 0


@called
def next_zeros(m: Array) -> None:
    """Take the next block of a row from the writer of zeros."""
    load = at(c.LOADED, m[c.ZEROS_SLOT])
    m[c.ACTIVE] = 1
    m[Z_VALID], m[Z_SLOT], m[Z_PIXELS] = 1, m[c.ZEROS_SLOT], m[load + PIXELS] - 1
    m[Z_ADDR] = m[c.ZEROS_ADDR] + m[load + BLOCK] * (m[c.ZEROS_COLUMN] >> m[c.LG_DIM])
    m[c.ZEROS_COLUMN] += m[c.DIM]
    m[Z_LAST] = m[c.ZEROS_COLUMN] >= m[load + COLUMNS]
    if m[Z_LAST]:
        m[c.ZEROS_VALID] = 0


@part
def scales(m: Array) -> bool:
    """Return whether a row is in the scale unit."""
    return m[IN_VALID] + count(m, c.SCALING) > 0


@called
def step_scaling(m: Array, t: int) -> None:
    """Move int8 rows through their scale unit: three at a time, four lanes unless the scale is 1."""
    if count(m, c.SCALING):
        item = peek(m, c.SCALING, 0)
        row = at(c.MOVED, item)
        if m[row + ELEMENTS] == 0 and m[row + DUE] <= t and not m[R_VALID]:
            pop(m, c.SCALING, t)
            m[R_VALID], m[R_ROW], m[R_LAST] = 1, item, m[row + FINAL]
            m[R_PIXELS] = m[at(c.LOADED, m[row + SLOT]) + PIXELS] - 1
            m[R_ADDR] = m[row + ADDR] + m[row + REPEAT] & m[c.ROWS]
        if m[UNSCALED]:
            lane(m, t)
    if m[IN_VALID] and ready(m, c.SCALING, t):
        item, own = new_row(m), at(c.MOVED, m[IN_ROW])
        row = at(c.MOVED, item)
        m[row + SLOT], m[row + ADDR], m[row + BYTES] = m[own + SLOT], m[own + ADDR], m[own + BYTES]
        m[row + REPEAT], m[row + FINAL] = m[IN_REPEATS], m[own + LAST] and m[IN_REPEATS] == 0
        m[row + DUE], m[row + PLACE] = t + 1, m[TURN]
        m[row + ELEMENTS] = 0
        if m[at(c.LOADED, m[own + SLOT]) + SCALED]:
            m[row + ELEMENTS] = (1 << elements(m)) - 1
            m[UNSCALED] += 1
        m[TURN] = m[TURN] + elements(m) if m[TURN] < 2 * elements(m) else 0
        push(m, c.SCALING, item)
        m[IN_REPEATS] -= 1
        if m[IN_REPEATS] < 0:
            m[IN_VALID] = 0


@part
def elements(m: Array) -> int:
    """Return the elements of a row that one lane scales."""
    return max(m[c.DIM] >> LG_LANES, 1)


@part
def new_row(m: Array) -> int:
    """Return a new place in MOVED; rows for the scale unit of int8 leave it in order."""
    item = m[NEXT]
    m[NEXT] = item + 1 if item + 1 < OF_WIDE_UNIT else 0
    return item


@called
def lane(m: Array, t: int) -> None:
    """Let each lane take an element: round robin over the elements of three rows; all lanes do the same."""
    places = 3 * elements(m)
    best, found = 2 * places, -1
    for i in range(count(m, c.SCALING)):
        row = at(c.MOVED, peek(m, c.SCALING, i))
        if m[row + ELEMENTS] == 0 or m[row + DUE] > t:
            continue
        for element in range(elements(m)):
            if m[row + ELEMENTS] >> element & 1:
                place = m[row + PLACE] + element
                if place <= m[LANE_LAST]:
                    place += places
                if place < best:
                    best, found = place, i
    if found >= 0:
        row = at(c.MOVED, peek(m, c.SCALING, found))
        m[LANE_LAST], m[c.ACTIVE] = best if best < places else best - places, 1
        m[row + ELEMENTS] &= ~(1 << (m[LANE_LAST] - m[row + PLACE]))
        if m[row + ELEMENTS] == 0:
            m[row + DUE] = t + SCALE_CYCLES
            m[UNSCALED] -= 1


@part
def merges(m: Array) -> bool:
    """Return whether beats are to be merged."""
    return m[M_VALID] + count(m, c.D_READ) > 0


@called
def step_merger(m: Array, t: int) -> None:
    """Merge beats to rows; a row leaves when all its bytes in this request are there."""
    free = not m[M_VALID]
    if m[M_VALID]:
        useful, sent = min(max(m[M_READ] - m[M_SHIFT], 0), m[M_BYTES]), m[M_SENT]
        all_read, done, gone = m[M_READ] == m[M_SIZE], sent == m[M_BYTES], False
        load = at(c.LOADED, m[M_SLOT])
        row_bytes = m[c.DIM] << m[load + WIDE]
        unit = WIDE_VALID if m[load + WIDE] else IN_VALID
        if all_read and done:
            gone = True
        elif useful > sent and (useful - sent >= row_bytes or useful == m[M_BYTES]) and not m[unit]:
            item = OF_WIDE_UNIT if m[load + WIDE] else new_row(m)
            row = at(c.MOVED, item)
            m[M_SENT] = min(sent + row_bytes - (m[M_OFFSET] if sent == 0 else 0), m[M_BYTES])
            m[row + SLOT], m[row + LAST], m[row + BYTES] = m[M_SLOT], m[M_SENT] == m[M_BYTES], m[M_BYTES]
            m[row + ADDR] = m[M_ADDR] + m[load + BLOCK] * (m[M_OFFSET] + sent >> m[c.LG_DIM] + m[load + WIDE])
            m[unit], m[unit + 1], m[unit + 2], m[c.ACTIVE] = 1, item, m[load + REPEATS], 1
            gone = free = m[row + LAST] != 0 and all_read
        if count(m, c.D_READ) and not free and not all_read:
            gone = gone or (done and m[M_SIZE] - m[M_READ] <= 1 << m[c.LG_BUS])
            beat(m, t)
        if gone:
            m[M_VALID], m[c.ACTIVE] = 0, 1
    if free and count(m, c.D_READ):
        x = at(c.TRANSACTIONS, peek(m, c.D_READ, 0) >> 1)
        m[M_VALID], m[M_READ], m[M_SENT] = 1, 0, 0
        for column in range(X_SLOT, X_ADDR + 1):
            m[M_SLOT - X_SLOT + column] = m[x + column]
        beat(m, t)


@called
def beat(m: Array, t: int) -> None:
    """Take a beat; the last one of a request frees its transaction."""
    item = pop(m, c.D_READ, t)
    m[M_READ] += 1 << m[c.LG_BUS]
    if item & 1:
        m[at(c.TRANSACTIONS, item >> 1) + TAKEN] = 0
        m[XACTS] -= 1
        m[FREED_AT] = t
