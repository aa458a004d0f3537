"""The path from the DMA reader's beats to rows in the memories.

Sources: BeatMerger.scala, VectorScalarMultiplier.scala, PixelRepeater.scala, ZeroWriter.scala, and the writes of
Scratchpad.scala and AccumulatorMem.scala. A row passes through the merger and a scale unit (int8 or int32). An int8 row
also passes through the pixel repeater. A separate writer generates rows of zeros.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.bus import READER, TRANSACTIONS
from tilewright.targets.gemmini.timing.layout import RING, at, row_offset
from tilewright.targets.gemmini.timing.load import LOADS
from tilewright.targets.gemmini.timing.operands import is_acc
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready
from tilewright.targets.gemmini.timing.records import PLAIN, POINTER, RULE, WIRE, registers, saved, table
from tilewright.targets.gemmini.timing.state import ACC_BANKS, SHARED

#: The phases of a row between the reader and the memories: before a scale unit, in a scale unit, in the pixel repeater.
ENTERING = 1
IN_UNIT = 2
REPEATED = 4


class Merger:
    """The current request: the fields `slot` to `row` of its transaction, and the bytes that were read and sent."""

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
    """The input registers of the scale unit for int8 rows and of the scale unit for int32 rows (`wide`).

    `enter_unit` depends on the order of the fields valid, row and repeats.
    """

    next = POINTER  # the next index into INCOMING for int8 rows
    next_wide = POINTER  # the next index for int32 rows, from OF_WIDE_UNIT on
    valid = PLAIN
    row = saved(RULE.incoming_row, when="valid")
    repeats = saved(when="valid")
    wide_valid = PLAIN
    wide_row = saved(RULE.wide_row, when="wide_valid")
    wide_repeats = saved(when="wide_valid")
    lane_last = saved(RULE.scaled)  # the position of the element that the lanes scaled last
    turn = saved(RULE.scaled)  # the position of the next row's first element, in the round-robin order of a lane
    unscaled = PLAIN  # the number of rows that have unscaled elements


class Repeater:
    """The pixel repeater for rows from memory, and the pixel repeater for rows of zeros."""

    valid = PLAIN
    item = saved(RULE.incoming_row, when="valid")
    row = WIRE  # snapshot.serialise_loads saves this field
    last = saved(when="valid")  # whether the row is the last row of a request
    pixels = saved(when="valid")  # the number of repetitions after the current one
    zeros_valid = PLAIN
    zeros_slot = PLAIN
    zeros_address = saved(RULE.local, when="zeros_valid")
    zeros_last = PLAIN
    zeros_pixels = PLAIN


class IncomingRow:
    """A row between the reader and the memories."""

    slot = PLAIN
    row = saved(RULE.row_of_load, of="slot", phases=ENTERING | IN_UNIT)
    last = saved(phases=ENTERING)  # whether the row ends a request
    bytes = PLAIN  # the number of bytes of the row's request
    repeat = saved(phases=IN_UNIT)  # the index of the repetition
    final = saved(phases=IN_UNIT)  # whether this is the last repetition
    elements = saved(phases=IN_UNIT)  # a bit mask of the elements that a lane must still scale
    due = saved(RULE.due, phases=IN_UNIT)  # the cycle in which scaling can begin, or in which the row can leave
    place = saved(RULE.scaled, phases=IN_UNIT)


MERGER = registers(Merger, 7)
SCALER = registers(Scaler, 8)
REPEATER = registers(Repeater, 9)
INCOMING = table(IncomingRow, "incoming")
#: The rows of the int32 scale unit and of the queue before it have their own ring in INCOMING, because they may wait
#: while thousands of int8 rows pass. The ring has WIDE_ROWS rows and begins at index OF_WIDE_UNIT.
WIDE_ROWS = 3
OF_WIDE_UNIT = RING - WIDE_ROWS
#: log2 of the number of lanes of the scale unit (mvin_scale_args). A row ends this number of cycles after its last
#: element starts: one cycle for an arbiter's register, four cycles of latency, and one cycle for the mask of completed
#: elements.
LG_LANES = 2
SCALE_CYCLES = 6
#: Bits of units that offer the last row of a request: a scaled row for the scratchpad, a scaled row for the
#: accumulator, an int32 row. Only one unit per cycle may write a last row, because the load tracker takes one report
#: per cycle.
OF_SPAD = 1
OF_SCALED = 2
OF_WIDE = 4


def write_acc(m: Array, row: int, adds: int, t: int) -> bool:
    """Offer a write to the accumulator. Return whether the accumulator accepts the write."""
    # An addition reads the row first, so it must wait while an earlier write of the row is in progress
    # (AccumulatorMem.scala: io.write.ready).
    bank = row >> m[SHARED.lg_acc_bank]
    b = at(ACC_BANKS.rows, bank)
    m[SHARED.acc_writes] |= 1 << bank
    m[SHARED.acc_adds] |= adds << bank
    m[SHARED.active] = 1
    if adds and in_flight(m, row, t):
        return False
    m[b + (t & 3)] = write_mark(row, t)
    return True


@part
def write_mark(row: int, t: int) -> int:
    """Return the number that records a write of `row` in cycle `t`. The bank stores it in column `t & 3` of its row."""
    # The number contains the cycle, so `in_flight` can ignore old numbers, and no code needs to clear them.
    return t << 24 | row


@part
def in_flight(m: Array, row: int, t: int) -> bool:
    # The accumulator has a latency of two cycles, during which reads of the row and additions to the row must wait
    # (AccumulatorMem.scala: pipelined_writes).
    b = at(ACC_BANKS.rows, row >> m[SHARED.lg_acc_bank])
    return m[b + (t - 1 & 3)] == write_mark(row, t - 1) or m[b + (t - 2 & 3)] == write_mark(row, t - 2)


@part
def before_half(m: Array, row: int, pixels: int) -> bool:
    """Return whether a repetition of a pixel lies before the pixel's half of the scratchpad, and so is not written."""
    half = (m[SHARED.spad] + 1) >> 1
    return row < (half if row >= half else 0) + pixels


def step_writes(m: Array, t: int) -> None:
    # Each bank accepts one write per cycle. By priority (Scratchpad.scala), the writes are: results of the array, which
    # step_results has written before; scaled rows; int32 rows; zeros.
    lasts = 0
    claimed = 0
    to_acc = False
    acc_claimed = m[SHARED.acc_writes]
    if m[REPEATER.valid] and before_half(m, m[REPEATER.row], m[REPEATER.pixels]):
        end_repetition(m)
    elif m[REPEATER.valid]:
        load = row_offset(m[at(INCOMING.slot, m[REPEATER.item])])
        last = m[REPEATER.last] and m[REPEATER.pixels] == 0
        to_acc = m[load + LOADS.in_acc] != 0
        if to_acc:
            row = m[REPEATER.row] & m[SHARED.acc]
            bit = 1 << (row >> m[SHARED.lg_acc_bank])
            fired = not acc_claimed & bit and write_acc(m, row, m[load + LOADS.adds], t)
            acc_claimed |= bit
            lasts = OF_SCALED if last else 0
        else:
            claimed = 1 << (m[REPEATER.row] - m[REPEATER.pixels] >> m[SHARED.lg_spad_bank])
            fired = not m[SHARED.spad_writes] & claimed
            lasts = OF_SPAD if last else 0
            if fired:
                m[SHARED.spad_writes] |= claimed
        if fired:
            if last:
                m[load + LOADS.left] -= m[at(INCOMING.bytes, m[REPEATER.item])]
            end_repetition(m)
    if m[SCALER.wide_valid]:
        lasts, acc_claimed = write_wide(m, lasts, to_acc, acc_claimed, t)
    if m[REPEATER.zeros_valid]:
        write_zeros(m, lasts, claimed, acc_claimed, t)
    if m[SHARED.zeros_valid] and not m[REPEATER.zeros_valid]:
        next_zeros(m)


def write_wide(m: Array, lasts: int, to_acc: bool, acc_claimed: int, t: int) -> tuple[int, int]:
    """Write an int32 row, unless there is a scaled row for the accumulator.

    `lasts` has the bits of the units that offer the last row of a request, and `acc_claimed` has the bits of the
    accumulator banks that are written in this cycle. Returns the new values of `lasts` and `acc_claimed`.
    """
    incoming = row_offset(OF_WIDE_UNIT + m[SCALER.wide_row])
    load = row_offset(m[incoming + INCOMING.slot])
    row = m[incoming + INCOMING.row] + m[SCALER.wide_repeats] & m[SHARED.acc]
    bit = 1 << (row >> m[SHARED.lg_acc_bank])
    last = m[incoming + INCOMING.last] and m[SCALER.wide_repeats] == 0
    if not to_acc:
        if not acc_claimed & bit and lasts != OF_SPAD and write_acc(m, row, m[load + LOADS.adds], t):
            if last:
                m[load + LOADS.left] -= m[incoming + INCOMING.bytes]
            m[SCALER.wide_repeats] -= 1
            m[SHARED.progress] += 1
            m[SCALER.wide_valid] = m[SCALER.wide_repeats] >= 0
        acc_claimed |= bit
    return lasts | OF_WIDE if last else lasts, acc_claimed


@part
def end_repetition(m: Array) -> None:
    m[SHARED.active] = 1
    m[SHARED.progress] += 1
    m[REPEATER.pixels] -= 1
    if m[REPEATER.pixels] < 0:
        m[REPEATER.valid] = 0


def write_zeros(m: Array, lasts: int, claimed: int, acc_claimed: int, t: int) -> None:
    """Write a row of zeros, unless another unit offers the last row of a request: that unit reports first."""
    acc = is_acc(m[REPEATER.zeros_address])
    row = m[REPEATER.zeros_address] & m[SHARED.rows]
    if acc:
        row &= m[SHARED.acc]
        free = not acc_claimed >> (row >> m[SHARED.lg_acc_bank]) & 1
        fired = lasts == 0 and free and write_acc(m, row, m[REPEATER.zeros_address] >> 30 & 1, t)
    elif before_half(m, row, m[REPEATER.zeros_pixels]):
        fired = True
    else:
        bit = 1 << (row - m[REPEATER.zeros_pixels] >> m[SHARED.lg_spad_bank])
        fired = lasts == 0 and not (m[SHARED.spad_writes] | claimed) & bit
        if fired:
            m[SHARED.spad_writes] |= bit
    if fired:
        m[SHARED.active] = 1
        if m[REPEATER.zeros_last] and m[REPEATER.zeros_pixels] == 0:
            m[at(LOADS.left, m[REPEATER.zeros_slot])] -= m[at(LOADS.columns, m[REPEATER.zeros_slot])] << (
                2 if acc else 0
            )
        m[REPEATER.zeros_pixels] -= 1
        m[SHARED.progress] += 1
        if m[REPEATER.zeros_pixels] < 0:
            m[REPEATER.zeros_valid] = 0


def next_zeros(m: Array) -> None:
    """Move the next block of columns from the zero writer to the pixel repeater for zeros."""
    load = row_offset(m[SHARED.zeros_slot])
    m[SHARED.active] = 1
    m[REPEATER.zeros_valid] = 1
    m[REPEATER.zeros_slot] = m[SHARED.zeros_slot]
    m[REPEATER.zeros_pixels] = m[load + LOADS.pixels] - 1
    m[REPEATER.zeros_address] = m[SHARED.zeros_address] + m[load + LOADS.block] * (
        m[SHARED.zeros_column] >> m[SHARED.lg_dim]
    )
    m[SHARED.zeros_column] += m[SHARED.dim]
    m[REPEATER.zeros_last] = m[SHARED.zeros_column] >= m[load + LOADS.columns]
    if m[REPEATER.zeros_last]:
        m[SHARED.zeros_valid] = 0


def step_scaling(m: Array, t: int) -> None:
    """Move int8 rows through their scale unit, which contains up to three rows, in order."""
    if count(m, Q.scaling):
        item = peek(m, Q.scaling, 0)
        row = row_offset(item)
        if m[row + INCOMING.elements] == 0 and m[row + INCOMING.due] <= t and not m[REPEATER.valid]:
            pop(m, Q.scaling, t)
            m[REPEATER.last] = m[row + INCOMING.final]
            m[REPEATER.item] = item
            m[REPEATER.valid] = 1
            m[REPEATER.pixels] = m[at(LOADS.pixels, m[row + INCOMING.slot])] - 1
            m[REPEATER.row] = m[row + INCOMING.row] + m[row + INCOMING.repeat] & m[SHARED.rows]
        if m[SCALER.unscaled]:
            scale_elements(m, t)
    if m[SCALER.valid] and ready(m, Q.scaling, t):
        item = new_row(m)
        source = row_offset(m[SCALER.row])
        row = row_offset(item)
        m[row + INCOMING.slot] = m[source + INCOMING.slot]
        m[row + INCOMING.row] = m[source + INCOMING.row]
        m[row + INCOMING.bytes] = m[source + INCOMING.bytes]
        m[row + INCOMING.repeat] = m[SCALER.repeats]
        m[row + INCOMING.final] = m[source + INCOMING.last] and m[SCALER.repeats] == 0
        m[row + INCOMING.place] = m[SCALER.turn]
        m[row + INCOMING.due] = t + 1
        m[row + INCOMING.elements] = 0
        # A scale of exactly 1.0 bypasses the lanes. With any other scale, four elements take one cycle, so a load takes
        # at least 4 cycles per row of 16 [R: gemmini_timing rule 5].
        if m[at(LOADS.scaled, m[source + INCOMING.slot])]:
            m[row + INCOMING.elements] = (1 << lane_elements(m)) - 1
            m[SCALER.unscaled] += 1
        m[SCALER.turn] = m[SCALER.turn] + lane_elements(m) if m[SCALER.turn] < 2 * lane_elements(m) else 0
        push(m, Q.scaling, item)
        m[SCALER.repeats] -= 1
        if m[SCALER.repeats] < 0:
            m[SCALER.valid] = 0


def step_entries(m: Array, t: int) -> None:
    """Move rows from the queues before the scale units into the units' input registers."""
    if count(m, Q.narrow) and not m[SCALER.valid]:
        item = pop(m, Q.narrow, t)
        enter_unit(m, SCALER.valid, item, row_offset(m[at(INCOMING.slot, item)]))
    if count(m, Q.wide) and not m[SCALER.wide_valid]:
        item = pop(m, Q.wide, t)
        enter_unit(m, SCALER.wide_valid, item, row_offset(m[at(INCOMING.slot, OF_WIDE_UNIT + item)]))


@part
def enter_unit(m: Array, unit: int, item: int, load: int) -> None:
    m[unit] = 1
    m[unit + 1] = item  # the row
    m[unit + 2] = m[load + LOADS.repeats]
    m[SHARED.active] = 1


@part
def lane_elements(m: Array) -> int:
    return max(m[SHARED.dim] >> LG_LANES, 1)


@part
def new_row(m: Array) -> int:
    """Return the index in INCOMING for a new int8 row. Rows leave in order, so INCOMING is used as a ring."""
    item = m[SCALER.next]
    m[SCALER.next] = item + 1 if item + 1 < OF_WIDE_UNIT else 0
    return item


@part
def new_wide_row(m: Array) -> int:
    """Return the index for a new int32 row, counted from OF_WIDE_UNIT."""
    item = m[SCALER.next_wide]
    m[SCALER.next_wide] = item + 1 if item + 1 < WIDE_ROWS else 0
    return item


def scale_elements(m: Array, t: int) -> None:
    # Each lane has a round-robin arbiter for the elements of three rows. An arbiter chooses the first remaining element
    # after its previous choice, in cyclic order. All lanes have the same remaining elements, so all choices are equal.
    places = 3 * lane_elements(m)
    best = 2 * places
    chosen = -1
    for i in range(count(m, Q.scaling)):
        row = row_offset(peek(m, Q.scaling, i))
        if m[row + INCOMING.elements] == 0 or m[row + INCOMING.due] > t:
            continue
        for element in range(lane_elements(m)):
            if m[row + INCOMING.elements] >> element & 1:
                place = m[row + INCOMING.place] + element
                if place <= m[SCALER.lane_last]:
                    place += places
                if place < best:
                    best = place
                    chosen = i
    if chosen >= 0:
        row = row_offset(peek(m, Q.scaling, chosen))
        m[SCALER.lane_last] = best if best < places else best - places
        m[SHARED.active] = 1
        m[row + INCOMING.elements] &= ~(1 << (m[SCALER.lane_last] - m[row + INCOMING.place]))
        if m[row + INCOMING.elements] == 0:
            m[row + INCOMING.due] = t + SCALE_CYCLES
            m[SCALER.unscaled] -= 1


def step_merger(m: Array, t: int) -> None:
    """Merge beats into rows (BeatMerger.scala). A row leaves when its last byte of the current request has arrived."""
    free = not m[MERGER.valid]
    if m[MERGER.valid]:
        # Requests are aligned, but rows need not be: skip the `shift` bytes before the row.
        useful = min(max(m[MERGER.read] - m[MERGER.shift], 0), m[MERGER.bytes])
        sent = m[MERGER.sent]
        all_read = m[MERGER.read] == m[MERGER.size]
        done = sent == m[MERGER.bytes]
        gone = False
        load = row_offset(m[MERGER.slot])
        row_bytes = m[SHARED.dim] << m[load + LOADS.wide]
        wide = m[load + LOADS.wide] != 0
        unit = SCALER.wide_valid if wide else SCALER.valid
        queue = Q.wide if wide else Q.narrow
        if all_read and done:
            gone = True
        elif (
            useful > sent
            and (useful - sent >= row_bytes or useful == m[MERGER.bytes])
            and (ready(m, queue, t) if m[SHARED.of_2025] else not m[unit])
        ):
            item = new_wide_row(m) if wide else new_row(m)
            row = row_offset(OF_WIDE_UNIT + item if wide else item)
            m[MERGER.sent] = min(sent + row_bytes - (m[MERGER.offset] if sent == 0 else 0), m[MERGER.bytes])
            m[row + INCOMING.slot] = m[MERGER.slot]
            m[row + INCOMING.last] = m[MERGER.sent] == m[MERGER.bytes]
            m[row + INCOMING.bytes] = m[MERGER.bytes]
            m[row + INCOMING.row] = m[MERGER.row] + m[load + LOADS.block] * (
                m[MERGER.offset] + sent >> m[SHARED.lg_dim] + m[load + LOADS.wide]
            )
            if m[SHARED.of_2025]:
                push(m, queue, item)
            else:
                enter_unit(m, unit, item, load)
            # If the current request has no more beats, the next request may begin in this cycle.
            gone = free = m[row + INCOMING.last] != 0 and all_read
        if count(m, Q.d_read) and not free and not all_read:
            gone = gone or (done and m[MERGER.size] - m[MERGER.read] <= 1 << m[SHARED.lg_bus])
            take_beat(m, t)
        if gone:
            m[MERGER.valid] = 0
            m[SHARED.active] = 1
    if free and count(m, Q.d_read):
        next_request(m, t)


@part
def next_request(m: Array, t: int) -> None:
    x = row_offset(peek(m, Q.d_read, 0) >> 1)
    m[MERGER.valid] = 1
    m[MERGER.read] = 0
    m[MERGER.sent] = 0
    for column in range(TRANSACTIONS.slot, TRANSACTIONS.row + 1):
        m[MERGER.slot - TRANSACTIONS.slot + column] = m[x + column]
    take_beat(m, t)


def take_beat(m: Array, t: int) -> None:
    """Accept a beat. The last beat of a request frees the transaction."""
    item = pop(m, Q.d_read, t)
    m[MERGER.read] += 1 << m[SHARED.lg_bus]
    if item & 1:
        m[at(TRANSACTIONS.taken, item >> 1)] = 0
        m[READER.requests] -= 1
        m[READER.freed_at] = t
