"""Conversion between the machine's live state and a list of numbers.

If the lists of two states are equal, the machine behaves in the same way from both states. The numbers are therefore
relative. Cycles are relative to the cycle of the snapshot, commands and loops are relative to the host's next command
and loop, indices of a ring are relative to the ring's first index, and DRAM addresses are relative to the address of
their command. Unused table rows are left out. DRAM pages and memory rows are stored apart from the list: the machine
only compares them for equality.

The declaration of a record (records.py) determines the fields that are saved. This file implements each rule, and
selects the live rows of the tables. Each function either saves or restores the state, like the functions of archive.py.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import LD, ST
from tilewright.targets.gemmini.timing.archive import (
    BY_NUMBER,
    HEADER,
    base,
    cyclic,
    due,
    entered,
    entry,
    length,
    next_word,
    number_entries,
    operand,
    prim,
    queue,
    related,
    row,
    waits,
    word,
)
from tilewright.targets.gemmini.timing.array import ARRAY, EX_STATE, OPERATIONS, PRODUCTS, RESULTS, TAGS
from tilewright.targets.gemmini.timing.bus import ANSWERS, GET, READER, TRANSACTIONS, wrapped_answer
from tilewright.targets.gemmini.timing.controller import COMMANDS, EXECUTION
from tilewright.targets.gemmini.timing.layout import OUT_RING, RING, at, row_offset
from tilewright.targets.gemmini.timing.load import LOADS, track
from tilewright.targets.gemmini.timing.moves import (
    ENTERING,
    IN_UNIT,
    INCOMING,
    OF_WIDE_UNIT,
    REPEATED,
    REPEATER,
    SCALER,
    WIDE_ROWS,
    write_mark,
)
from tilewright.targets.gemmini.timing.operands import IN_ACC
from tilewright.targets.gemmini.timing.program import CONFIG, Program
from tilewright.targets.gemmini.timing.queues import QUEUE, Q, count, item, peek
from tilewright.targets.gemmini.timing.records import ALWAYS, COLUMN, NOWHERE, RULE, pointers, register_rules, rules
from tilewright.targets.gemmini.timing.state import ACC_BANKS, SHARED
from tilewright.targets.gemmini.timing.station import ENTRIES, STATION, WAITING, set_operands
from tilewright.targets.gemmini.timing.store import OUTGOING, STORER, STORES
from tilewright.targets.gemmini.timing.unroll_streams import SLOT, STREAM, FrontPlan

#: The word for an empty stage of an unroller's pipeline.
EMPTY = 1 << 62


#: Three groups of registers: pointers, which are 0 in a snapshot; registers that are saved unchanged; and all other
#: registers, whose rules may refer to unchanged registers.
POINTERS = pointers()
_RULES = register_rules()
_PLAIN = (_RULES[:, COLUMN.rule] == RULE.plain) & (_RULES[:, COLUMN.when] == NOWHERE)
PLAINS = _RULES[_PLAIN]
REGISTERS = _RULES[~_PLAIN]
#: The rules of each table's columns.
ENTRY_RULES = rules(ENTRIES)
LOAD_RULES = rules(LOADS)
STORE_RULES = rules(STORES)
INCOMING_RULES = rules(INCOMING)
OUTGOING_RULES = rules(OUTGOING)
TRANSACTION_RULES = rules(TRANSACTIONS)
ANSWER_RULES = rules(ANSWERS)
COMMAND_RULES = rules(COMMANDS)
OPERATION_RULES = rules(OPERATIONS)
TAG_RULES = rules(TAGS)
RESULT_RULES = rules(RESULTS)
SLOT_RULES = rules(SLOT)
STREAM_RULES = rules(STREAM)


def serialise(m: Array, p: Program, plan: FrontPlan, archive: Array) -> None:
    """Save the machine's state, or restore the state if HEADER.sets is 1."""
    archive[HEADER.low_host] = archive[HEADER.first_host]
    archive[HEADER.low_prim] = archive[HEADER.first_prim]
    archive[HEADER.low_loop] = archive[HEADER.first_loop]
    if archive[HEADER.sets]:
        for pointer in POINTERS:
            m[pointer] = 0
    serialise_row(m, p, archive, PLAINS, 0, ALWAYS)
    # A rule may refer only to numbers that are already restored, so the order matters: plain registers first, then the
    # station, whose commands contain the addresses of loads, then the state that refers to loads.
    serialise_front(m, p, plan, archive)
    serialise_station(m, p, archive)
    for slot in range(m[SHARED.slots]):
        serialise_row(m, p, archive, LOAD_RULES, slot, ALWAYS)
        if archive[HEADER.sets] and m[at(LOADS.valid, slot)]:
            track(m, p, row_offset(slot), m[at(ENTRIES.command, m[at(LOADS.entry, slot)])])
    serialise_row(m, p, archive, REGISTERS, 0, ALWAYS)
    serialise_execute(m, p, archive)
    serialise_loads(m, p, archive)
    serialise_stores(m, p, archive)
    serialise_bus(m, p, archive)


def serialise_row(m: Array, p: Program, archive: Array, rules: Array, number: int, phase: int) -> None:
    """Save or restore row `number` of a table by the rules of its columns. Registers are handled as row 0."""
    # A field is live in the phases of its rule, and only while one of the two fields `when` and `or_when` is not 0.
    shift = row_offset(number)
    for x in range(rules.shape[0]):
        when = rules[x, COLUMN.when] + shift
        live = rules[x, COLUMN.when] == NOWHERE or m[when] != 0 or m[rules[x, COLUMN.or_when] + shift] != 0
        if live and rules[x, COLUMN.phases] & phase:
            place = rules[x, COLUMN.place] + shift
            of = rules[x, COLUMN.of] + shift
            serialise_field(m, p, archive, place, rules[x, COLUMN.rule], of, rules[x, COLUMN.among])


def serialise_field(m: Array, p: Program, archive: Array, place: int, rule: int, of: int, among: int) -> None:
    """Save or restore a field by its rule. Some rules also read the field at index `of`."""
    if rule == RULE.plain or (rule == RULE.scaled and m[SHARED.scales]):
        word(m, place, archive, 0)
    elif rule == RULE.command:
        prim(m, place, archive)
    elif rule == RULE.taken:
        word(m, place, archive, archive[HEADER.first_prim])
    elif rule == RULE.entry:
        entry(m, place, among, archive)
    elif rule == RULE.page:
        related(m, place, archive, among)
    elif rule == RULE.due:
        due(m, place, archive)
    elif rule == RULE.host:
        word(m, place, archive, archive[HEADER.first_host])
    elif rule == RULE.loop:
        word(m, place, archive, archive[HEADER.first_loop])
    elif rule == RULE.staged:
        staged(m, place, archive)
    elif rule == RULE.since:
        word(m, place, archive, archive[HEADER.now])
    elif rule == RULE.of_load:
        word(m, place, archive, m[at(LOADS.address, m[of])])
    elif rule == RULE.of_store:
        word(m, place, archive, p.prims[m[of], 1])
    elif rule == RULE.local_command and m[of] == CONFIG:
        word(m, place, archive, 0)
    else:
        serialise_place(m, archive, place, rule, of)


def serialise_place(m: Array, archive: Array, place: int, rule: int, of: int) -> None:
    if rule == RULE.transaction:
        cyclic(m, place, archive, m[READER.next], m[SHARED.max_reads])
    elif rule == RULE.incoming_row:
        cyclic(m, place, archive, m[SCALER.next], OF_WIDE_UNIT)
    elif rule == RULE.wide_row:
        cyclic(m, place, archive, m[SCALER.next_wide], WIDE_ROWS)
    elif rule == RULE.product:
        cyclic(m, place, archive, m[ARRAY.newest], PRODUCTS)
    elif rule in (RULE.local, RULE.local_command) or (rule == RULE.local_result and m[of] >= 0):
        operand(m, place, archive)
    elif rule == RULE.row_of_load:
        row(m, place, archive, m[at(LOADS.in_acc, m[of])] != 0)
    elif rule == RULE.outgoing_row:
        row(m, place, archive, m[of] == IN_ACC)
    elif rule == RULE.spad_row and m[SHARED.ex_state] == EX_STATE.computes:
        base(m, place, archive)


def serialise_front(m: Array, p: Program, plan: FrontPlan, archive: Array) -> None:
    for q in (Q.raw, Q.to_conv, Q.to_matmul, Q.out):
        for i in range(length(m, q, archive)):
            queued(m, item(m, q, i), plan, archive)
    for slot in range(4):
        serialise_row(m, p, archive, SLOT_RULES, slot, ALWAYS)
        if m[at(SLOT.configured, slot)]:
            low_loop(plan, archive, m[at(SLOT.loop, slot)])
    for stream in range(10):
        serialise_row(m, p, archive, STREAM_RULES, stream, ALWAYS)


@part
def low_loop(plan: FrontPlan, archive: Array, loop: int) -> None:
    """Update the smallest loop, and the smallest primitive command, that the state contains."""
    archive[HEADER.low_loop] = min(archive[HEADER.low_loop], loop)
    archive[HEADER.low_prim] = min(archive[HEADER.low_prim], plan.loops.starts[loop, 0])


def queued(m: Array, place: int, plan: FrontPlan, archive: Array) -> None:
    """Save or restore an item of the front end: a primitive command x, or -1 - y for command y of the host."""
    # In the archive, the lowest bit marks a command of the host.
    here = next_word(archive)
    if archive[HEADER.sets]:
        value = archive[here]
        m[place] = (value >> 1) - archive[HEADER.first_host] if value & 1 else (value >> 1) + archive[HEADER.first_prim]
    else:
        value = m[place]
        archive[here] = (
            (value + archive[HEADER.first_host]) << 1 | 1 if value < 0 else (value - archive[HEADER.first_prim]) << 1
        )
    if m[place] < 0:
        host = -1 - m[place]
        archive[HEADER.low_host] = min(archive[HEADER.low_host], host)
        if plan.loops.run[host] >= 0:
            low_loop(plan, archive, plan.loops.run[host])
    else:
        archive[HEADER.low_prim] = min(archive[HEADER.low_prim], m[place])


def staged(m: Array, place: int, archive: Array) -> None:
    """Save or restore a stage of an unroller's pipeline: a primitive command, or -1 for an empty stage."""
    here = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = archive[here] + archive[HEADER.first_prim] if archive[here] != EMPTY else -1
    else:
        archive[here] = m[place] - archive[HEADER.first_prim] if m[place] >= 0 else EMPTY
    if m[place] >= 0:
        archive[HEADER.low_prim] = min(archive[HEADER.low_prim], m[place])


def serialise_station(m: Array, p: Program, archive: Array) -> None:
    number_entries(m, archive)
    for q in range(3):
        for i in range(m[SHARED.number + q]):
            number = 64 * q + archive[BY_NUMBER + 64 * q + i]
            serialise_row(m, p, archive, ENTRY_RULES, number, ALWAYS)
            if archive[HEADER.sets]:
                set_operands(m, p, row_offset(number))
            for waited in range(3):
                waits(m, at(ENTRIES.waits, number) + waited, waited, archive)
        for i in range(m[STATION.unissued + q]):
            entry(m, at(WAITING.entry, (m[STATION.first + q] + i) & (RING - 1)) + q, q, archive)


def serialise_execute(m: Array, p: Program, archive: Array) -> None:
    for q in (Q.transposes, Q.executes):
        queue(m, q, archive, m[SHARED.next_command], RING)
        for i in range(count(m, q)):
            serialise_row(m, p, archive, COMMAND_RULES, peek(m, q, i), ALWAYS)
    queue(m, Q.control, archive, m[EXECUTION.op] << 32, RING << 32)
    # An operation is live until the array has taken its last control signals. The first signals in the queue belong to
    # the oldest live operation.
    used = 1 if m[SHARED.ex_state] == EX_STATE.computes else 0
    if count(m, Q.control):
        used = ((m[EXECUTION.op] - (peek(m, Q.control, 0) >> 32)) & (RING - 1)) + 1
    for i in range(used):
        serialise_row(m, p, archive, OPERATION_RULES, (m[EXECUTION.op] - i) & (RING - 1), ALWAYS)
    queue(m, Q.tags, archive, 0, 0)
    for i in range(count(m, Q.tags)):
        serialise_row(m, p, archive, TAG_RULES, (m[Q.tags + QUEUE.head] + i) & (RING - 1), ALWAYS)
    # An item contains a number of rows and the identity of a product. The identity is saved relative to the newest
    # product, modulo PRODUCTS.
    newest = m[ARRAY.newest]
    for i in range(length(m, Q.totals, archive)):
        total = item(m, Q.totals, i)
        identity = (m[total] & 7) - newest
        word(m, total, archive, 0 if archive[HEADER.sets] else (m[total] & 7) - identity % PRODUCTS)
    for i in range(m[SHARED.rows_out]):
        serialise_row(m, p, archive, RESULT_RULES, (m[SHARED.first_out] + i) & (OUT_RING - 1), ALWAYS)


def serialise_loads(m: Array, p: Program, archive: Array) -> None:
    entered(m, Q.loads, LD, archive)
    queue(m, Q.reads, archive, 0, 0)
    queue(m, Q.scaling, archive, m[SCALER.next], OF_WIDE_UNIT)
    for i in range(count(m, Q.scaling)):
        serialise_row(m, p, archive, INCOMING_RULES, peek(m, Q.scaling, i), IN_UNIT)
    queue(m, Q.narrow, archive, m[SCALER.next], OF_WIDE_UNIT)
    for i in range(count(m, Q.narrow)):
        serialise_row(m, p, archive, INCOMING_RULES, peek(m, Q.narrow, i), ENTERING)
    queue(m, Q.wide, archive, m[SCALER.next_wide], WIDE_ROWS)
    for i in range(count(m, Q.wide)):
        serialise_row(m, p, archive, INCOMING_RULES, OF_WIDE_UNIT + peek(m, Q.wide, i), ENTERING)
    if m[SCALER.valid]:
        serialise_row(m, p, archive, INCOMING_RULES, m[SCALER.row], ENTERING)
    if m[SCALER.wide_valid]:
        serialise_row(m, p, archive, INCOMING_RULES, OF_WIDE_UNIT + m[SCALER.wide_row], ENTERING)
    if m[REPEATER.valid]:
        serialise_row(m, p, archive, INCOMING_RULES, m[REPEATER.item], REPEATED)
        serialise_place(m, archive, REPEATER.row, RULE.row_of_load, at(INCOMING.slot, m[REPEATER.item]))
    # Writes of the last two cycles still block their rows (moves.in_flight). Older writes are irrelevant.
    for bank in range((m[SHARED.acc] + 1) >> m[SHARED.lg_acc_bank]):
        for t in range(archive[HEADER.now] - 2, archive[HEADER.now]):
            fresh(m, at(ACC_BANKS.rows, bank) + (t & 3), t, archive)


def fresh(m: Array, place: int, t: int, archive: Array) -> None:
    """Save or restore the row, if there is one, that a bank began to write in cycle `t`."""
    here = next_word(archive)
    if not archive[HEADER.sets]:
        archive[here] = m[place] == write_mark(m[place] & 0xFFFFFF, t)
    if archive[here]:
        m[place] &= 0xFFFFFF
        row(m, place, archive, True)
        m[place] = write_mark(m[place], t)
    else:
        m[place] = -1


def serialise_stores(m: Array, p: Program, archive: Array) -> None:
    entered(m, Q.stores, ST, archive)
    queue(m, Q.passed, archive, 0, 0)
    for slot in range(m[SHARED.slots]):
        serialise_row(m, p, archive, STORE_RULES, slot, ALWAYS)
    for q in (Q.dispatch, Q.norm, Q.scale, Q.issue):
        queue(m, q, archive, m[STORER.next], RING)
        for i in range(count(m, q)):
            serialise_row(m, p, archive, OUTGOING_RULES, peek(m, q, i), ALWAYS)


def serialise_bus(m: Array, p: Program, archive: Array) -> None:
    """Save or restore transactions, requests and responses. Transactions are relative to the newest transaction."""
    newest = m[READER.next]
    size = m[SHARED.max_reads]
    for i in range(size):
        serialise_row(m, p, archive, TRANSACTION_RULES, (newest + i) % size, ALWAYS)
    queue(m, Q.a_read, archive, newest, size)
    queue(m, Q.a_write, archive, 0, 0)
    queue(m, Q.d_read, archive, newest << 1, size << 1)
    queue(m, Q.d_write, archive, 0, 0)
    tagged(m, Q.a_out, archive, 3, GET, newest << 10, size << 10)
    tagged(m, Q.d_in, archive, 1, 0, newest << 2, size << 2)
    for i in range(m[SHARED.answers]):
        number = wrapped_answer(m, m[SHARED.first_answer] + i)
        serialise_row(m, p, archive, ANSWER_RULES, number, ALWAYS)
        answered = at(ANSWERS.item, number)
        if archive[HEADER.sets] or m[answered] & 1:
            word(m, answered, archive, 0)
        else:
            cyclic(m, answered, archive, newest << 1, size << 1)


def tagged(m: Array, q: int, archive: Array, mask: int, read: int, base: int, size: int) -> None:
    """Save or restore a queue. Items with `item & mask == read` have a transaction number in the upper bits."""
    # A restored state needs no conversion: READER.next is a pointer, so it is 0, and transactions are relative to 0.
    for i in range(length(m, q, archive)):
        place = item(m, q, i)
        if not archive[HEADER.sets] and m[place] & mask == read:
            cyclic(m, place, archive, base, size)
        else:
            word(m, place, archive, 0)
