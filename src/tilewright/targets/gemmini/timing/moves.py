"""From the reader's beats to rows in the memories: BeatMerger.scala, VectorScalarMultiplier.scala, PixelRepeater.scala,
ZeroWriter.scala, and the writes of Scratchpad.scala and AccumulatorMem.scala."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.bus import READER, TRANSACTIONS
from tilewright.targets.gemmini.timing.layout import RING, at, row_offset
from tilewright.targets.gemmini.timing.load import LOADS
from tilewright.targets.gemmini.timing.operands import is_acc
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready
from tilewright.targets.gemmini.timing.records import PLAIN, POINTER, RULE, WIRE, registers, saved, table
from tilewright.targets.gemmini.timing.state import ACC_BANKS, CHIP

#: The phases of a row between the reader and the memories: before a scale unit, in it, and repeated.
ENTERING = 1
IN_UNIT = 2
REPEATED = 4


class Merger:
    """The request in hand, as in its transaction, with the bytes read and sent."""

    valid = PLAIN
    slot = PLAIN
    bytes = PLAIN
    size = PLAIN
    shift = PLAIN
    offset = PLAIN
    row = saved(RULE.row_of_load, when="valid", of="slot")
    read = PLAIN
    sent = PLAIN


class Scaler:
    """The two scale units, of int8 and int32 rows: a row and its repetitions to come (stride 0)."""

    next = POINTER  # in the table of rows
    valid = PLAIN
    row = saved(RULE.moved_row, when="valid")
    repeats = saved(when="valid")
    wide_valid = PLAIN
    wide_row = saved(when="wide_valid")
    wide_repeats = saved(when="wide_valid")
    lane_last = saved(RULE.scaled)  # the element that a lane took last
    turn = saved(RULE.scaled)  # the place of the next row
    unscaled = PLAIN  # rows with elements to scale


class Repeater:
    """The repeaters of pixels, of moved rows and of zeros: a row, and the repetitions to come."""

    valid = PLAIN
    item = saved(RULE.moved_row, when="valid")
    row = WIRE  # saved with the item
    last = saved(when="valid")  # whether the row is the last one of a request
    pixels = saved(when="valid")
    zeros_valid = PLAIN
    zeros_slot = PLAIN
    zeros_address = saved(RULE.local, when="zeros_valid")
    zeros_last = PLAIN
    zeros_pixels = PLAIN


class MovedRow:
    """A row between the reader and the memories."""

    slot = PLAIN
    row = saved(RULE.row_of_load, of="slot", phases=ENTERING | IN_UNIT)
    last = saved(phases=ENTERING)  # whether it ends a request
    bytes = PLAIN  # of this request
    repeat = saved(phases=IN_UNIT)  # the number of the repetition
    final = saved(phases=IN_UNIT)  # whether it is the last one
    elements = saved(phases=IN_UNIT)  # those to scale, as bits
    due = saved(RULE.due, phases=IN_UNIT)  # the cycle in which scaling begins or ends
    place = saved(RULE.scaled, phases=IN_UNIT)


MERGER = registers(Merger, 7)
SCALER = registers(Scaler, 8)
REPEATER = registers(Repeater, 9)
MOVED = table(MovedRow, "moved")
#: The place in MOVED of the one row in the scale unit of int32. It may wait while thousands of int8 rows pass.
OF_WIDE_UNIT = RING - 1
#: Lanes of the scale unit, and cycles from the start of a row's last element to the end of the row.
LG_LANES = 2
SCALE_CYCLES = 6
#: Who offers the last row of a request: scaled for the scratchpad or the accumulator, int32. The tracker takes one.
OF_SPAD = 1
OF_SCALED = 2
OF_WIDE = 4


def write_acc(m: Array, row: int, adds: int, t: int) -> bool:
    """Offer a write to the accumulator; return whether it is taken. It may not add to a row that is being written."""
    bank = row >> m[CHIP.lg_acc_bank]
    b = at(ACC_BANKS.rows, bank)
    m[CHIP.acc_writes] |= 1 << bank
    m[CHIP.acc_adds] |= adds << bank
    m[CHIP.active] = 1
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
    b = at(ACC_BANKS.rows, row >> m[CHIP.lg_acc_bank])
    return m[b + (t - 1 & 3)] == written(row, t - 1) or m[b + (t - 2 & 3)] == written(row, t - 2)


@part
def clamped(m: Array, row: int, pixels: int) -> bool:
    """Return whether a repetition of pixels would lie before its half of the scratchpad: it is not written."""
    half = (m[CHIP.spad] + 1) >> 1
    return row < (half if row >= half else 0) + pixels


def step_writes(m: Array, t: int) -> None:
    """Write moved rows. In each bank the array comes first, then scaled rows, int32 rows, zeros."""
    lasts = 0
    claimed = 0
    to_acc = False
    acc_claimed = m[CHIP.acc_writes]
    if m[REPEATER.valid] and clamped(m, m[REPEATER.row], m[REPEATER.pixels]):
        repeated(m)
    elif m[REPEATER.valid]:
        load = row_offset(m[at(MOVED.slot, m[REPEATER.item])])
        last = m[REPEATER.last] and m[REPEATER.pixels] == 0
        to_acc = m[load + LOADS.in_acc] != 0
        if to_acc:
            row = m[REPEATER.row] & m[CHIP.acc]
            bit = 1 << (row >> m[CHIP.lg_acc_bank])
            fired = not acc_claimed & bit and write_acc(m, row, m[load + LOADS.adds], t)
            acc_claimed |= bit
            lasts = OF_SCALED if last else 0
        else:
            claimed = 1 << (m[REPEATER.row] - m[REPEATER.pixels] >> m[CHIP.lg_spad_bank])
            fired = not m[CHIP.spad_writes] & claimed
            lasts = OF_SPAD if last else 0
            if fired:
                m[CHIP.spad_writes] |= claimed
        if fired:
            if last:
                m[load + LOADS.left] -= m[at(MOVED.bytes, m[REPEATER.item])]
            repeated(m)
    if m[SCALER.wide_valid]:
        lasts, acc_claimed = write_wide(m, lasts, to_acc, acc_claimed, t)
    if m[REPEATER.zeros_valid]:
        write_zeros(m, lasts, claimed, acc_claimed, t)
    if m[CHIP.zeros_valid] and not m[REPEATER.zeros_valid]:
        next_zeros(m)


def write_wide(m: Array, lasts: int, to_acc: bool, acc_claimed: int, t: int) -> tuple[int, int]:
    """Write an int32 row, unless a scaled row is for the accumulator; return who offers last rows, claimed banks."""
    own = row_offset(m[SCALER.wide_row])
    load = row_offset(m[own + MOVED.slot])
    row = m[own + MOVED.row] + m[SCALER.wide_repeats] & m[CHIP.acc]
    bit = 1 << (row >> m[CHIP.lg_acc_bank])
    last = m[own + MOVED.last] and m[SCALER.wide_repeats] == 0
    if not to_acc:
        if not acc_claimed & bit and lasts != OF_SPAD and write_acc(m, row, m[load + LOADS.adds], t):
            if last:
                m[load + LOADS.left] -= m[own + MOVED.bytes]
            m[SCALER.wide_repeats] -= 1
            m[CHIP.progress] += 1
            m[SCALER.wide_valid] = m[SCALER.wide_repeats] >= 0
        acc_claimed |= bit
    return lasts | OF_WIDE if last else lasts, acc_claimed


@part
def repeated(m: Array) -> None:
    """End a repetition of pixels."""
    m[CHIP.active] = 1
    m[CHIP.progress] += 1
    m[REPEATER.pixels] -= 1
    if m[REPEATER.pixels] < 0:
        m[REPEATER.valid] = 0


def write_zeros(m: Array, lasts: int, claimed: int, acc_claimed: int, t: int) -> None:
    """Write a row of zeros, if nobody offers the last row of a request."""
    acc = is_acc(m[REPEATER.zeros_address])
    row = m[REPEATER.zeros_address] & m[CHIP.rows]
    if acc:
        row &= m[CHIP.acc]
        free = not acc_claimed >> (row >> m[CHIP.lg_acc_bank]) & 1
        fired = lasts == 0 and free and write_acc(m, row, m[REPEATER.zeros_address] >> 30 & 1, t)
    elif clamped(m, row, m[REPEATER.zeros_pixels]):
        fired = True
    else:
        bit = 1 << (row - m[REPEATER.zeros_pixels] >> m[CHIP.lg_spad_bank])
        fired = lasts == 0 and not (m[CHIP.spad_writes] | claimed) & bit
        if fired:
            m[CHIP.spad_writes] |= bit
    if fired:
        m[CHIP.active] = 1
        if m[REPEATER.zeros_last] and m[REPEATER.zeros_pixels] == 0:
            m[at(LOADS.left, m[REPEATER.zeros_slot])] -= m[at(LOADS.columns, m[REPEATER.zeros_slot])] << (
                2 if acc else 0
            )
        m[REPEATER.zeros_pixels] -= 1
        m[CHIP.progress] += 1
        if m[REPEATER.zeros_pixels] < 0:
            m[REPEATER.zeros_valid] = 0


def next_zeros(m: Array) -> None:
    """Take the next block of a row from the writer of zeros."""
    load = row_offset(m[CHIP.zeros_slot])
    m[CHIP.active] = 1
    m[REPEATER.zeros_valid] = 1
    m[REPEATER.zeros_slot] = m[CHIP.zeros_slot]
    m[REPEATER.zeros_pixels] = m[load + LOADS.pixels] - 1
    m[REPEATER.zeros_address] = m[CHIP.zeros_address] + m[load + LOADS.block] * (m[CHIP.zeros_column] >> m[CHIP.lg_dim])
    m[CHIP.zeros_column] += m[CHIP.dim]
    m[REPEATER.zeros_last] = m[CHIP.zeros_column] >= m[load + LOADS.columns]
    if m[REPEATER.zeros_last]:
        m[CHIP.zeros_valid] = 0


def step_scaling(m: Array, t: int) -> None:
    """Move int8 rows through their scale unit: three at a time, four lanes unless the scale is 1."""
    if count(m, Q.scaling):
        item = peek(m, Q.scaling, 0)
        row = row_offset(item)
        if m[row + MOVED.elements] == 0 and m[row + MOVED.due] <= t and not m[REPEATER.valid]:
            pop(m, Q.scaling, t)
            m[REPEATER.last] = m[row + MOVED.final]
            m[REPEATER.item] = item
            m[REPEATER.valid] = 1
            m[REPEATER.pixels] = m[at(LOADS.pixels, m[row + MOVED.slot])] - 1
            m[REPEATER.row] = m[row + MOVED.row] + m[row + MOVED.repeat] & m[CHIP.rows]
        if m[SCALER.unscaled]:
            lane(m, t)
    if m[SCALER.valid] and ready(m, Q.scaling, t):
        item = new_row(m)
        own = row_offset(m[SCALER.row])
        row = row_offset(item)
        m[row + MOVED.slot] = m[own + MOVED.slot]
        m[row + MOVED.row] = m[own + MOVED.row]
        m[row + MOVED.bytes] = m[own + MOVED.bytes]
        m[row + MOVED.repeat], m[row + MOVED.final] = m[SCALER.repeats], m[own + MOVED.last] and m[SCALER.repeats] == 0
        m[row + MOVED.place] = m[SCALER.turn]
        m[row + MOVED.due] = t + 1
        m[row + MOVED.elements] = 0
        if m[at(LOADS.scaled, m[own + MOVED.slot])]:
            m[row + MOVED.elements] = (1 << elements(m)) - 1
            m[SCALER.unscaled] += 1
        m[SCALER.turn] = m[SCALER.turn] + elements(m) if m[SCALER.turn] < 2 * elements(m) else 0
        push(m, Q.scaling, item)
        m[SCALER.repeats] -= 1
        if m[SCALER.repeats] < 0:
            m[SCALER.valid] = 0


@part
def elements(m: Array) -> int:
    """Return the elements of a row that one lane scales."""
    return max(m[CHIP.dim] >> LG_LANES, 1)


@part
def new_row(m: Array) -> int:
    """Return a new place in MOVED; rows for the scale unit of int8 leave it in order."""
    item = m[SCALER.next]
    m[SCALER.next] = item + 1 if item + 1 < OF_WIDE_UNIT else 0
    return item


def lane(m: Array, t: int) -> None:
    """Let each lane take an element: round robin over the elements of three rows; all lanes do the same."""
    places = 3 * elements(m)
    best = 2 * places
    found = -1
    for i in range(count(m, Q.scaling)):
        row = row_offset(peek(m, Q.scaling, i))
        if m[row + MOVED.elements] == 0 or m[row + MOVED.due] > t:
            continue
        for element in range(elements(m)):
            if m[row + MOVED.elements] >> element & 1:
                place = m[row + MOVED.place] + element
                if place <= m[SCALER.lane_last]:
                    place += places
                if place < best:
                    best = place
                    found = i
    if found >= 0:
        row = row_offset(peek(m, Q.scaling, found))
        m[SCALER.lane_last] = best if best < places else best - places
        m[CHIP.active] = 1
        m[row + MOVED.elements] &= ~(1 << (m[SCALER.lane_last] - m[row + MOVED.place]))
        if m[row + MOVED.elements] == 0:
            m[row + MOVED.due] = t + SCALE_CYCLES
            m[SCALER.unscaled] -= 1


def step_merger(m: Array, t: int) -> None:
    """Merge beats to rows; a row leaves when all its bytes in this request are there."""
    free = not m[MERGER.valid]
    if m[MERGER.valid]:
        useful = min(max(m[MERGER.read] - m[MERGER.shift], 0), m[MERGER.bytes])
        sent = m[MERGER.sent]
        all_read = m[MERGER.read] == m[MERGER.size]
        done = sent == m[MERGER.bytes]
        gone = False
        load = row_offset(m[MERGER.slot])
        row_bytes = m[CHIP.dim] << m[load + LOADS.wide]
        unit = SCALER.wide_valid if m[load + LOADS.wide] else SCALER.valid
        if all_read and done:
            gone = True
        elif useful > sent and (useful - sent >= row_bytes or useful == m[MERGER.bytes]) and not m[unit]:
            item = OF_WIDE_UNIT if m[load + LOADS.wide] else new_row(m)
            row = row_offset(item)
            m[MERGER.sent] = min(sent + row_bytes - (m[MERGER.offset] if sent == 0 else 0), m[MERGER.bytes])
            m[row + MOVED.slot] = m[MERGER.slot]
            m[row + MOVED.last] = m[MERGER.sent] == m[MERGER.bytes]
            m[row + MOVED.bytes] = m[MERGER.bytes]
            m[row + MOVED.row] = m[MERGER.row] + m[load + LOADS.block] * (
                m[MERGER.offset] + sent >> m[CHIP.lg_dim] + m[load + LOADS.wide]
            )
            m[unit], m[unit + 1], m[unit + 2], m[CHIP.active] = 1, item, m[load + LOADS.repeats], 1
            gone = free = m[row + MOVED.last] != 0 and all_read
        if count(m, Q.d_read) and not free and not all_read:
            gone = gone or (done and m[MERGER.size] - m[MERGER.read] <= 1 << m[CHIP.lg_bus])
            beat(m, t)
        if gone:
            m[MERGER.valid] = 0
            m[CHIP.active] = 1
    if free and count(m, Q.d_read):
        next_request(m, t)


@part
def next_request(m: Array, t: int) -> None:
    """Take the request of the next beat in hand, and the beat."""
    x = row_offset(peek(m, Q.d_read, 0) >> 1)
    m[MERGER.valid] = 1
    m[MERGER.read] = 0
    m[MERGER.sent] = 0
    for column in range(TRANSACTIONS.slot, TRANSACTIONS.row + 1):
        m[MERGER.slot - TRANSACTIONS.slot + column] = m[x + column]
    beat(m, t)


def beat(m: Array, t: int) -> None:
    """Take a beat; the last one of a request frees its transaction."""
    item = pop(m, Q.d_read, t)
    m[MERGER.read] += 1 << m[CHIP.lg_bus]
    if item & 1:
        m[at(TRANSACTIONS.taken, item >> 1)] = 0
        m[READER.requests] -= 1
        m[READER.freed_at] = t
