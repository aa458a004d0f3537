"""The live state of the machine as a list of numbers, and back: the same list whenever the machine behaves the same.

Cycles count from the cycle of the snapshot, commands and loops from the first ones that the host still holds, places in
rings from the ring's first place. Rows of tables that nothing refers to are left out. DRAM addresses count from the
address of their command. Of pages of DRAM and rows of the memories, which are kept apart, only equality matters.

All functions save the state or set it, as those of tape.py.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import array, bus, execute, load, moves, station, store, unroll_state, writer
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.bus import around
from tilewright.targets.gemmini.timing.chip import Program, at, count, peek
from tilewright.targets.gemmini.timing.entries import entered, entry, visit_station
from tilewright.targets.gemmini.timing.moves import written
from tilewright.targets.gemmini.timing.tape import (
    FIRST_HOST,
    FIRST_LOOP,
    FIRST_PRIM,
    LOW_HOST,
    LOW_LOOP,
    LOW_PRIM,
    NOW,
    READER,
    SCALES,
    SETS,
    WRITER,
    base,
    cyclic,
    due,
    length,
    next_word,
    operand,
    place_in,
    prim,
    queue,
    related,
    row,
    row_of,
    word,
    words,
)
from tilewright.targets.gemmini.timing.unroll_state import Front, Plan

#: Stands for an empty stage of an unroller.
EMPTY = 1 << 62
#: Registers of the machine that are saved as they are.
_RANGES = (
    (c.NUMBER, c.ZEROS_ADDR),
    (c.ZEROS_COLUMN, c.PENDING),
    (c.OS, c.NEXT_COMMAND),
    (c.ROWS_OUT, c.FIRST_ANSWER),
    (c.ANSWERS, c.PROGRESS),
    (station.UNISSUED, station.FIRST),
    (station.A_STRIDE, station.AWAITED),
    (load.STATE, load.SLOT + 1),
    (c.READER + bus.XACTS, c.READER + bus.T_VALID + 1),
    (c.READER + bus.X_VALID, c.READER + bus.X_VALID + 1),
    (load.BUSY, load.BUSY + 1),
    (moves.M_VALID, moves.M_ADDR),
    (moves.M_READ, moves.NEXT),
    (moves.IN_VALID, moves.IN_VALID + 1),
    (moves.WIDE_VALID, moves.WIDE_VALID + 1),
    (moves.R_VALID, moves.R_VALID + 1),
    (moves.Z_VALID, moves.Z_ADDR),
    (moves.Z_LAST, moves.UNSCALED + 1),
    (store.STATE, store.NEXT),
    (store.ROW, store.L_PAD + 1),
    (c.WRITER + bus.XACTS, c.WRITER + bus.T_ITEM + 1),
    (c.WRITER + bus.X_VALID, c.WRITER + bus.X_ITEM + 1),
    (c.WRITER + bus.X_HIT, c.WRITER + bus.X_ASKED + 1),
    (writer.BEATS, writer.BEATS + 1),
    (writer.S_VALID, writer.S_ITEM + 1),
    (bus.TLB_LAST, bus.BEAT + 1),
    (execute.MODE, execute.BASE),
    (execute.ROWS, execute.OP),
    (array.VALID, array.NEWEST),
    (array.HAS, array.OUT_ROW + 1),
    (c.TO_ARRAY, c.TO_ARRAY + c.UNDER_WAY + 1),
    (c.TO_WRITER, c.TO_WRITER + c.UNDER_WAY + 1),
    *((c.STATES + c.WIDTH * state, c.STATES + c.WIDTH * state + load.S_PIXELS + 1) for state in range(3)),
)
#: Registers that point into rings.
_POINTERS = (
    *(c.NEXT_COMMAND, c.FIRST_OUT, c.FIRST_ANSWER, station.FIRST, station.FIRST + 1, station.FIRST + 2),
    *(load.NEXT, moves.NEXT, store.NEXT, execute.OP, array.NEWEST),
)


@called
def visit(m: Array, p: Program, front: Front, plan: Plan, tape: Array) -> None:
    """Save the machine's state, or set it; see the registers of the tape."""
    tape[LOW_HOST], tape[LOW_PRIM], tape[LOW_LOOP] = tape[FIRST_HOST], tape[FIRST_PRIM], tape[FIRST_LOOP]
    if tape[SETS]:
        for pointer in _POINTERS:
            m[pointer] = 0
    for first, last in _RANGES:
        words(m, first, last, tape)
    word(m, station.ORDER, tape, tape[FIRST_PRIM])
    visit_front(front, plan, tape)
    visit_station(m, tape)
    visit_execute(m, tape)
    visit_loads(m, p, tape)
    visit_stores(m, p, tape)
    visit_bus(m, tape)
    visit_pages(m, tape)


@called
def visit_front(front: Front, plan: Plan, tape: Array) -> None:
    """Save or set the front end. Its slots and queues refer to loops that may be far from done."""
    for q in range(front.queue.shape[0]):
        own = front.queue[q]
        word(own, 0, tape, 0)
        for i in range(1, own[0] + 1):
            item(own, i, plan, tape)
    for u in range(2):
        for s in range(2):
            slot = front.slot[u, s]
            word(slot, unroll_state.CONFIGURED, tape, 0)
            word(slot, unroll_state.STARTED, tape, 0)
            word(slot, unroll_state.FINISHED, tape, 0)
            if slot[unroll_state.CONFIGURED]:
                word(slot, unroll_state.LOOP, tape, tape[FIRST_LOOP])
                low_loop(plan, tape, slot[unroll_state.LOOP])
        for x in range(5):
            own = front.stream[u, x]
            word(own, unroll_state.ACTIVE, tape, 0)
            word(own, unroll_state.SLOT, tape, 0)
            word(own, unroll_state.IDLE, tape, 0)
            if own[unroll_state.ACTIVE]:
                prim(own, unroll_state.NEXT, tape)
                word(own, unroll_state.END, tape, tape[FIRST_PRIM])
            staged(own, unroll_state.EARLY, tape)
            staged(own, unroll_state.LATE, tape)
        for x in range(3):
            word(front.unfinished[u], x, tape, 0)
    for u in range(2):
        word(front.head, u, tape, 0)
        word(front.settled, u, tape, 0)
    word(front.misc, 0, tape, tape[FIRST_HOST])
    word(front.misc, 1, tape, 0)
    word(front.misc, 2, tape, 0)


@part
def low_loop(plan: Plan, tape: Array, loop: int) -> None:
    """Note that the state refers to a loop."""
    tape[LOW_LOOP] = min(tape[LOW_LOOP], loop)
    tape[LOW_PRIM] = min(tape[LOW_PRIM], plan.starts[loop, 0])


@called
def item(own: Array, place: int, plan: Plan, tape: Array) -> None:
    """Save or set an item of the front end: a primitive command, or -1 - a command of the host (the lowest bit)."""
    at = next_word(tape)
    if tape[SETS]:
        found = tape[at]
        own[place] = (found >> 1) - tape[FIRST_HOST] if found & 1 else (found >> 1) + tape[FIRST_PRIM]
    else:
        here = own[place]
        tape[at] = (here + tape[FIRST_HOST]) << 1 | 1 if here < 0 else (here - tape[FIRST_PRIM]) << 1
    if own[place] < 0:
        host = -1 - own[place]
        tape[LOW_HOST] = min(tape[LOW_HOST], host)
        if plan.run[host] >= 0:
            low_loop(plan, tape, plan.run[host])
    else:
        tape[LOW_PRIM] = min(tape[LOW_PRIM], own[place])


@called
def staged(own: Array, place: int, tape: Array) -> None:
    """Save or set a stage of an unroller's pipeline: a primitive command, or -1."""
    at = next_word(tape)
    if tape[SETS]:
        own[place] = tape[at] + tape[FIRST_PRIM] if tape[at] != EMPTY else -1
    else:
        tape[at] = own[place] - tape[FIRST_PRIM] if own[place] >= 0 else EMPTY
    if own[place] >= 0:
        tape[LOW_PRIM] = min(tape[LOW_PRIM], own[place])


@called
def visit_execute(m: Array, tape: Array) -> None:
    """Save or set the commands of the execute controller, the operations in the array, and their results."""
    for q in (c.TRANSPOSES, c.EXECUTES):
        queue(m, q, tape, m[c.NEXT_COMMAND], c.RING)
        for i in range(count(m, q)):
            command = at(c.COMMANDS, peek(m, q, i))
            word(m, command, tape, 0)
            entry(m, command + execute.ENTRY, station.EX, tape)
            if m[command] == execute.CONFIG:
                words(m, command + execute.RS1, command + execute.ENTRY, tape)
            else:
                operand(m, command + execute.RS1, tape)
                operand(m, command + execute.RS2, tape)
    queue(m, c.CONTROL, tape, m[execute.OP] << 32, c.RING << 32)
    used = 1 if m[c.EX_STATE] == execute.COMPUTES else 0
    if count(m, c.CONTROL):
        used = ((m[execute.OP] - (peek(m, c.CONTROL, 0) >> 32)) & (c.RING - 1)) + 1
    for i in range(used):
        op = at(c.OPS, (m[execute.OP] - i) & (c.RING - 1))
        result(m, op, tape)
        word(m, op + execute.OP_TOTAL, tape, 0)
        word(m, op + execute.OP_OS, tape, 0)
    if m[c.EX_STATE] == execute.COMPUTES:
        for k in range(3):
            base(m, execute.BASE + k, tape)
    newest, products = m[array.NEWEST], array.PRODUCTS
    queue(m, c.TAGS, tape, 0, 0)
    for i in range(count(m, c.TAGS)):
        tag = at(c.TAGGED, (m[c.QUEUES + c.TAGS * c.PER_QUEUE + c.HEAD] + i) & (c.RING - 1))
        cyclic(m, tag + array.ID, tape, newest, products)
        result(m, tag, tape)
    for i in range(length(m, c.TOTALS, tape)):
        total = place_in(m, c.TOTALS, i)
        identity = (m[total] & 7) - newest
        word(m, total, tape, 0 if tape[SETS] else (m[total] & 7) - identity % products)
    for i in range(m[c.ROWS_OUT]):
        out = at(c.OUT, (m[c.FIRST_OUT] + i) & (c.OUT_RING - 1))
        word(m, out + array.CYCLE, tape, tape[NOW])
        cyclic(m, out + array.OUT_ID, tape, newest, products)
        word(m, out + array.LAST, tape, 0)


@called
def result(m: Array, own: int, tape: Array) -> None:
    """Save or set where the result of an operation goes. OPS and TAGGED have it in the same columns."""
    entry(m, own + array.ENTRY, station.EX, tape)
    if m[own + array.ENTRY] >= 0:
        operand(m, own + array.ADDR, tape)
    word(m, own + array.TAG_ROWS, tape, 0)


@called
def visit_loads(m: Array, p: Program, tape: Array) -> None:
    """Save or set the loads in hand, from the controller to the rows in the accumulator that are being written."""
    t = tape[NOW]
    entered(m, c.LOADS, station.LD, tape)
    queue(m, c.READS, tape, 0, 0)
    for slot in range(m[c.SLOTS]):
        own = at(c.LOADED, slot)
        word(m, own + load.VALID, tape, 0)
        if m[own + load.VALID]:
            entry(m, own + load.ENTRY, station.LD, tape)
            word(m, own + load.LEFT, tape, 0)
            word(m, own + load.STRIDE, tape, 0)
            words(m, own + load.COLUMNS, own + load.PIXELS + 1, tape)
            command = m[at(c.ENTRIES, m[own + load.ENTRY]) + station.PRIM]
            m[own + load.VADDR], m[own + load.ADDR] = p.prims[command, 1], p.prims[command, 2] & 0xFFFFFFFF
    if m[load.BUSY]:
        word(m, load.R_SLOT, tape, 0)
        word(m, load.R_VADDR, tape, m[at(c.LOADED, m[load.R_SLOT]) + load.VADDR])
        row_of(m, load.R_ADDR, load.R_SLOT, tape)
        word(m, load.ASKED, tape, 0)
    if m[moves.M_VALID]:
        row_of(m, moves.M_ADDR, moves.M_SLOT, tape)
    if m[moves.Z_VALID]:
        operand(m, moves.Z_ADDR, tape)
    if m[c.ZEROS_VALID]:
        operand(m, c.ZEROS_ADDR, tape)
    queue(m, c.SCALING, tape, m[moves.NEXT], moves.OF_WIDE_UNIT)
    for i in range(count(m, c.SCALING)):
        own = at(c.MOVED, peek(m, c.SCALING, i))
        word(m, own + moves.SLOT, tape, 0)
        row_of(m, own + moves.ADDR, own + moves.SLOT, tape)
        words(m, own + moves.BYTES, own + moves.ELEMENTS + 1, tape)
        due(m, own + moves.DUE, tape)
        if tape[SCALES]:
            word(m, own + moves.PLACE, tape, 0)
    if tape[SCALES]:
        words(m, moves.LANE_LAST, moves.TURN + 1, tape)
    if m[moves.IN_VALID]:
        cyclic(m, moves.IN_ROW, tape, m[moves.NEXT], moves.OF_WIDE_UNIT)
        word(m, moves.IN_REPEATS, tape, 0)
        entering(m, at(c.MOVED, m[moves.IN_ROW]), tape)
    if m[moves.WIDE_VALID]:
        word(m, moves.WIDE_ROW, tape, 0)
        word(m, moves.WIDE_REPEATS, tape, 0)
        entering(m, at(c.MOVED, m[moves.WIDE_ROW]), tape)
    if m[moves.R_VALID]:
        cyclic(m, moves.R_ROW, tape, m[moves.NEXT], moves.OF_WIDE_UNIT)
        own = at(c.MOVED, m[moves.R_ROW])
        word(m, own + moves.SLOT, tape, 0)
        word(m, own + moves.BYTES, tape, 0)
        row_of(m, moves.R_ADDR, own + moves.SLOT, tape)
        words(m, moves.R_LAST, moves.R_PIXELS + 1, tape)
    for bank in range((m[c.ACC] + 1) >> m[c.LG_ACC_BANK]):
        own = at(c.ACC_BANK, bank)
        for ago in range(1, 3):
            fresh(m, own + (t - ago & 3), t - ago, tape)


@called
def entering(m: Array, own: int, tape: Array) -> None:
    """Save or set a row before the scale units."""
    word(m, own + moves.SLOT, tape, 0)
    row_of(m, own + moves.ADDR, own + moves.SLOT, tape)
    words(m, own + moves.LAST, own + moves.BYTES + 1, tape)


@called
def fresh(m: Array, place: int, t: int, tape: Array) -> None:
    """Save or set the row of a bank that was written from cycle `t` on, if there is one."""
    at = next_word(tape)
    if not tape[SETS]:
        tape[at] = m[place] == written(m[place] & 0xFFFFFF, t)
    if tape[at]:
        m[place] &= 0xFFFFFF
        row(m, place, tape, True)
        m[place] = written(m[place], t)
    else:
        m[place] = -1


@called
def visit_stores(m: Array, p: Program, tape: Array) -> None:
    """Save or set the stores in hand, from the controller to the writer."""
    entered(m, c.STORES, station.ST, tape)
    queue(m, c.PASSED, tape, 0, 0)
    for slot in range(m[c.SLOTS]):
        own = at(c.STORE_SLOTS, slot)
        word(m, own + store.VALID, tape, 0)
        if m[own + store.VALID]:
            entry(m, own + store.ENTRY, station.ST, tape)
            word(m, own + store.LEFT, tape, 0)
    for q in (c.DISPATCH, c.NORM, c.SCALE, c.ISSUE):
        queue(m, q, tape, m[store.NEXT], c.RING)
        for i in range(count(m, q)):
            own = at(c.STORED, peek(m, q, i))
            word(m, own + store.KIND, tape, 0)
            if m[own + store.KIND] != store.NOTHING:
                row(m, own + store.ADDR, tape, m[own + store.KIND] == store.ACC)
            words(m, own + store.BYTES, own + store.VADDR, tape)
            word(m, own + store.OF_SLOT, tape, 0)
            prim(m, own + store.OF_PRIM, tape)
            word(m, own + store.VADDR, tape, p.prims[m[own + store.OF_PRIM], 1])
    if m[c.WRITER_STATE]:
        prim(m, writer.W_PRIM, tape)
        word(m, writer.W_VADDR, tape, p.prims[m[writer.W_PRIM], 1])
        words(m, writer.W_BYTES, writer.SENT + 1, tape)


@called
def visit_bus(m: Array, tape: Array) -> None:
    """Save or set read transactions, requests and answers. Transactions count from the one made last."""
    newest, size, r = m[load.NEXT], m[c.MAX_READS], c.READER
    for i in range(size):
        x = at(c.TRANSACTIONS, (newest + i) % size)
        word(m, x + load.TAKEN, tape, 0)
        if m[x + load.TAKEN]:
            words(m, x + load.X_SLOT, x + load.X_ADDR, tape)
            row_of(m, x + load.X_ADDR, x + load.X_SLOT, tape)
    if m[r + bus.T_VALID]:
        cyclic(m, r + bus.T_ITEM, tape, newest, size)
    if m[r + bus.X_VALID]:
        cyclic(m, r + bus.X_ITEM, tape, newest, size)
        word(m, r + bus.X_HIT, tape, 0)
    queue(m, c.A_READ, tape, newest, size)
    queue(m, c.A_WRITE, tape, 0, 0)
    queue(m, c.D_READ, tape, newest << 1, size << 1)
    queue(m, c.D_WRITE, tape, 0, 0)
    tagged(m, c.A_OUT, tape, 3, bus.GET, newest << 10, size << 10)
    tagged(m, c.D_IN, tape, 1, 0, newest << 2, size << 2)
    for i in range(m[c.ANSWERS]):
        answer = at(c.MEMORY, around(m, m[c.FIRST_ANSWER] + i))
        due(m, answer, tape)
        word(m, answer + 1, tape, 0)
        if tape[SETS] or m[answer + 2] & 1:
            word(m, answer + 2, tape, 0)
        else:
            cyclic(m, answer + 2, tape, newest << 1, size << 1)


@called
def tagged(m: Array, q: int, tape: Array, mask: int, read: int, base: int, size: int) -> None:
    """Save or set a queue whose items have a transaction in the upper bits if `mask` of them gives `read`."""
    for i in range(length(m, q, tape)):
        own = place_in(m, q, i)
        if not tape[SETS] and m[own] & mask == read:
            cyclic(m, own, tape, base, size)
        else:
            word(m, own, tape, 0)


@called
def visit_pages(m: Array, tape: Array) -> None:
    """Save or set the pages that clients of the memory translated, or are about to translate."""
    r, w = c.READER, c.WRITER
    related(m, r + bus.PAGE, tape, READER)
    if m[r + bus.T_VALID]:
        related(m, r + bus.T_PAGE, tape, READER)
    if m[r + bus.X_VALID]:
        related(m, r + bus.X_PAGE, tape, READER)
    related(m, w + bus.PAGE, tape, WRITER)
    related(m, w + bus.T_PAGE, tape, WRITER)  # a request that waits uses this page, though none is behind it
    if m[w + bus.X_VALID] + m[w + bus.X_ASKED]:
        related(m, w + bus.X_PAGE, tape, WRITER)
    if m[writer.S_VALID]:
        related(m, writer.S_PAGE, tape, WRITER)
    if m[writer.BEATS]:
        related(m, writer.PAGE_OF, tape, WRITER)
