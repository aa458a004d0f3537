"""The live state of the machine as a list of numbers, and back: the same list whenever the machine behaves the same.

Cycles count from the cycle of the snapshot, commands and loops from the first ones that the host still holds, places in
rings from the ring's first place. Rows of tables that nothing refers to are left out. DRAM addresses count from the
address of their command. Of pages of DRAM and rows of the memories, which are kept apart, only equality matters.

What is saved of a record follows from its declaration (records.py); here is what each rule means, and which rows of the
tables are live. All functions save the state or set it, as those of tape.py.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import LD, ST
from tilewright.targets.gemmini.timing.array import ARRAY, DOES, OPERATIONS, PRODUCTS, RESULTS, TAGS
from tilewright.targets.gemmini.timing.bus import ANSWERS, GET, READER, TRANSACTIONS, around
from tilewright.targets.gemmini.timing.controller import COMMANDS, EXECUTION
from tilewright.targets.gemmini.timing.layout import OUT_RING, RING, at, row_offset
from tilewright.targets.gemmini.timing.load import LOADS, track
from tilewright.targets.gemmini.timing.moves import (
    ENTERING,
    IN_UNIT,
    MOVED,
    OF_WIDE_UNIT,
    REPEATED,
    REPEATER,
    SCALER,
    written,
)
from tilewright.targets.gemmini.timing.operands import IN_ACC
from tilewright.targets.gemmini.timing.program import CONFIG, Program
from tilewright.targets.gemmini.timing.queues import QUEUE, Q, count, item, peek
from tilewright.targets.gemmini.timing.records import ALWAYS, COLUMN, NOWHERE, RULE, pointers, register_rules, rules
from tilewright.targets.gemmini.timing.state import ACC_BANKS, CHIP
from tilewright.targets.gemmini.timing.station import ENTRIES, STATION, WAITING, set_operands
from tilewright.targets.gemmini.timing.store import STORED, STORER, STORES
from tilewright.targets.gemmini.timing.tape import (
    BY_NUMBER,
    TAPE,
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
from tilewright.targets.gemmini.timing.unroll_streams import SLOT, STREAM, FrontPlan

#: Stands for an empty stage of an unroller.
EMPTY = 1 << 62


#: All registers: those that are 0 in a snapshot, and the rules of those that are saved as they are, and of others.
POINTERS = pointers()
_RULES = register_rules()
_PLAIN = (_RULES[:, COLUMN.rule] == RULE.plain) & (_RULES[:, COLUMN.when] == NOWHERE)
PLAINS = _RULES[_PLAIN]
REGISTERS = _RULES[~_PLAIN]
#: The rules of tables.
ENTRY_RULES = rules(ENTRIES)
LOAD_RULES = rules(LOADS)
STORE_RULES = rules(STORES)
MOVED_RULES = rules(MOVED)
STORED_RULES = rules(STORED)
TRANSACTION_RULES = rules(TRANSACTIONS)
ANSWER_RULES = rules(ANSWERS)
COMMAND_RULES = rules(COMMANDS)
OPERATION_RULES = rules(OPERATIONS)
TAG_RULES = rules(TAGS)
RESULT_RULES = rules(RESULTS)
SLOT_RULES = rules(SLOT)
STREAM_RULES = rules(STREAM)


def visit(m: Array, p: Program, plan: FrontPlan, tape: Array) -> None:
    """Save the machine's state, or set it; see the registers of the tape."""
    tape[TAPE.low_host] = tape[TAPE.first_host]
    tape[TAPE.low_prim] = tape[TAPE.first_prim]
    tape[TAPE.low_loop] = tape[TAPE.first_loop]
    if tape[TAPE.sets]:
        for pointer in POINTERS:
            m[pointer] = 0
    visit_row(m, p, tape, PLAINS, 0, ALWAYS)
    visit_front(m, p, plan, tape)
    visit_station(m, p, tape)
    for slot in range(m[CHIP.slots]):
        visit_row(m, p, tape, LOAD_RULES, slot, ALWAYS)
        if tape[TAPE.sets] and m[at(LOADS.valid, slot)]:
            track(m, p, row_offset(slot), m[at(ENTRIES.command, m[at(LOADS.entry, slot)])])
    visit_row(m, p, tape, REGISTERS, 0, ALWAYS)
    visit_execute(m, p, tape)
    visit_loads(m, p, tape)
    visit_stores(m, p, tape)
    visit_bus(m, p, tape)


def visit_row(m: Array, p: Program, tape: Array, rules: Array, number: int, phase: int) -> None:
    """Save or set a row of a table, which is in this phase, by the rules of its fields. Registers are in row 0."""
    shift = row_offset(number)
    for x in range(rules.shape[0]):
        when = rules[x, COLUMN.when] + shift
        live = rules[x, COLUMN.when] == NOWHERE or m[when] != 0 or m[rules[x, COLUMN.other] + shift] != 0
        if live and rules[x, COLUMN.phases] & phase:
            place = rules[x, COLUMN.place] + shift
            of = rules[x, COLUMN.of] + shift
            visit_field(m, p, tape, place, rules[x, COLUMN.rule], of, rules[x, COLUMN.among])


def visit_field(m: Array, p: Program, tape: Array, place: int, rule: int, of: int, among: int) -> None:
    """Save or set a field by its rule; `of`: the place of the field that the rule refers to."""
    if rule == RULE.plain or (rule == RULE.scaled and m[CHIP.scales]):
        word(m, place, tape, 0)
    elif rule == RULE.command:
        prim(m, place, tape)
    elif rule == RULE.taken:
        word(m, place, tape, tape[TAPE.first_prim])
    elif rule == RULE.entry:
        entry(m, place, among, tape)
    elif rule == RULE.page:
        related(m, place, tape, among)
    elif rule == RULE.due:
        due(m, place, tape)
    elif rule == RULE.host:
        word(m, place, tape, tape[TAPE.first_host])
    elif rule == RULE.loop:
        word(m, place, tape, tape[TAPE.first_loop])
    elif rule == RULE.staged:
        staged(m, place, tape)
    elif rule == RULE.since:
        word(m, place, tape, tape[TAPE.now])
    elif rule == RULE.of_load:
        word(m, place, tape, m[at(LOADS.address, m[of])])
    elif rule == RULE.of_store:
        word(m, place, tape, p.prims[m[of], 1])
    elif rule == RULE.local_command and m[of] == CONFIG:
        word(m, place, tape, 0)
    else:
        visit_place(m, tape, place, rule, of)


def visit_place(m: Array, tape: Array, place: int, rule: int, of: int) -> None:
    """Save or set a field that names a row, or a place in a ring, by its rule."""
    if rule == RULE.transaction:
        cyclic(m, place, tape, m[READER.next], m[CHIP.max_reads])
    elif rule == RULE.moved_row:
        cyclic(m, place, tape, m[SCALER.next], OF_WIDE_UNIT)
    elif rule == RULE.product:
        cyclic(m, place, tape, m[ARRAY.newest], PRODUCTS)
    elif rule in (RULE.local, RULE.local_command) or (rule == RULE.local_result and m[of] >= 0):
        operand(m, place, tape)
    elif rule == RULE.row_of_load:
        row(m, place, tape, m[at(LOADS.in_acc, m[of])] != 0)
    elif rule == RULE.stored_row:
        row(m, place, tape, m[of] == IN_ACC)
    elif rule == RULE.spad_row and m[CHIP.ex_state] == DOES.computes:
        base(m, place, tape)


def visit_front(m: Array, p: Program, plan: FrontPlan, tape: Array) -> None:
    """Save or set the front end. Its slots and queues refer to loops that may be far from done."""
    for q in (Q.raw, Q.to_conv, Q.to_matmul, Q.out):
        for i in range(length(m, q, tape)):
            queued(m, item(m, q, i), plan, tape)
    for slot in range(4):
        visit_row(m, p, tape, SLOT_RULES, slot, ALWAYS)
        if m[at(SLOT.configured, slot)]:
            low_loop(plan, tape, m[at(SLOT.loop, slot)])
    for stream in range(10):
        visit_row(m, p, tape, STREAM_RULES, stream, ALWAYS)


@part
def low_loop(plan: FrontPlan, tape: Array, loop: int) -> None:
    """Note that the state refers to a loop."""
    tape[TAPE.low_loop] = min(tape[TAPE.low_loop], loop)
    tape[TAPE.low_prim] = min(tape[TAPE.low_prim], plan.loops.starts[loop, 0])


def queued(own: Array, place: int, plan: FrontPlan, tape: Array) -> None:
    """Save or set an item of the front end: a primitive command, or -1 - a command of the host (the lowest bit)."""
    here = next_word(tape)
    if tape[TAPE.sets]:
        value = tape[here]
        own[place] = (value >> 1) - tape[TAPE.first_host] if value & 1 else (value >> 1) + tape[TAPE.first_prim]
    else:
        value = own[place]
        tape[here] = (value + tape[TAPE.first_host]) << 1 | 1 if value < 0 else (value - tape[TAPE.first_prim]) << 1
    if own[place] < 0:
        host = -1 - own[place]
        tape[TAPE.low_host] = min(tape[TAPE.low_host], host)
        if plan.loops.run[host] >= 0:
            low_loop(plan, tape, plan.loops.run[host])
    else:
        tape[TAPE.low_prim] = min(tape[TAPE.low_prim], own[place])


def staged(own: Array, place: int, tape: Array) -> None:
    """Save or set a stage of an unroller's pipeline: a primitive command, or -1."""
    here = next_word(tape)
    if tape[TAPE.sets]:
        own[place] = tape[here] + tape[TAPE.first_prim] if tape[here] != EMPTY else -1
    else:
        tape[here] = own[place] - tape[TAPE.first_prim] if own[place] >= 0 else EMPTY
    if own[place] >= 0:
        tape[TAPE.low_prim] = min(tape[TAPE.low_prim], own[place])


def visit_station(m: Array, p: Program, tape: Array) -> None:
    """Save or set the entries of the reservation station, and the order of those not issued."""
    number_entries(m, tape)
    for q in range(3):
        for i in range(m[CHIP.number + q]):
            number = 64 * q + tape[BY_NUMBER + 64 * q + i]
            visit_row(m, p, tape, ENTRY_RULES, number, ALWAYS)
            if tape[TAPE.sets]:
                set_operands(m, p, row_offset(number))
            for other in range(3):
                waits(m, at(ENTRIES.waits, number) + other, other, tape)
        for i in range(m[STATION.unissued + q]):
            entry(m, at(WAITING.entry, (m[STATION.first + q] + i) & (RING - 1)) + q, q, tape)


def visit_execute(m: Array, p: Program, tape: Array) -> None:
    """Save or set the commands of the execute controller, the operations in the array, and their results."""
    for q in (Q.transposes, Q.executes):
        queue(m, q, tape, m[CHIP.next_command], RING)
        for i in range(count(m, q)):
            visit_row(m, p, tape, COMMAND_RULES, peek(m, q, i), ALWAYS)
    queue(m, Q.control, tape, m[EXECUTION.op] << 32, RING << 32)
    used = 1 if m[CHIP.ex_state] == DOES.computes else 0
    if count(m, Q.control):
        used = ((m[EXECUTION.op] - (peek(m, Q.control, 0) >> 32)) & (RING - 1)) + 1
    for i in range(used):
        visit_row(m, p, tape, OPERATION_RULES, (m[EXECUTION.op] - i) & (RING - 1), ALWAYS)
    queue(m, Q.tags, tape, 0, 0)
    for i in range(count(m, Q.tags)):
        visit_row(m, p, tape, TAG_RULES, (m[Q.tags + QUEUE.head] + i) & (RING - 1), ALWAYS)
    newest = m[ARRAY.newest]
    for i in range(length(m, Q.totals, tape)):
        total = item(m, Q.totals, i)
        identity = (m[total] & 7) - newest
        word(m, total, tape, 0 if tape[TAPE.sets] else (m[total] & 7) - identity % PRODUCTS)
    for i in range(m[CHIP.rows_out]):
        visit_row(m, p, tape, RESULT_RULES, (m[CHIP.first_out] + i) & (OUT_RING - 1), ALWAYS)


def visit_loads(m: Array, p: Program, tape: Array) -> None:
    """Save or set the loads in hand, from the controller to the rows in the accumulator that are being written."""
    entered(m, Q.loads, LD, tape)
    queue(m, Q.reads, tape, 0, 0)
    queue(m, Q.scaling, tape, m[SCALER.next], OF_WIDE_UNIT)
    for i in range(count(m, Q.scaling)):
        visit_row(m, p, tape, MOVED_RULES, peek(m, Q.scaling, i), IN_UNIT)
    if m[SCALER.valid]:
        visit_row(m, p, tape, MOVED_RULES, m[SCALER.row], ENTERING)
    if m[SCALER.wide_valid]:
        visit_row(m, p, tape, MOVED_RULES, m[SCALER.wide_row], ENTERING)
    if m[REPEATER.valid]:
        visit_row(m, p, tape, MOVED_RULES, m[REPEATER.item], REPEATED)
        visit_place(m, tape, REPEATER.row, RULE.row_of_load, at(MOVED.slot, m[REPEATER.item]))
    for bank in range((m[CHIP.acc] + 1) >> m[CHIP.lg_acc_bank]):
        for t in range(tape[TAPE.now] - 2, tape[TAPE.now]):
            fresh(m, at(ACC_BANKS.rows, bank) + (t & 3), t, tape)


def fresh(m: Array, place: int, t: int, tape: Array) -> None:
    """Save or set the row of a bank that was written from cycle `t` on, if there is one."""
    here = next_word(tape)
    if not tape[TAPE.sets]:
        tape[here] = m[place] == written(m[place] & 0xFFFFFF, t)
    if tape[here]:
        m[place] &= 0xFFFFFF
        row(m, place, tape, True)
        m[place] = written(m[place], t)
    else:
        m[place] = -1


def visit_stores(m: Array, p: Program, tape: Array) -> None:
    """Save or set the stores in hand, from the controller to the writer."""
    entered(m, Q.stores, ST, tape)
    queue(m, Q.passed, tape, 0, 0)
    for slot in range(m[CHIP.slots]):
        visit_row(m, p, tape, STORE_RULES, slot, ALWAYS)
    for q in (Q.dispatch, Q.norm, Q.scale, Q.issue):
        queue(m, q, tape, m[STORER.next], RING)
        for i in range(count(m, q)):
            visit_row(m, p, tape, STORED_RULES, peek(m, q, i), ALWAYS)


def visit_bus(m: Array, p: Program, tape: Array) -> None:
    """Save or set read transactions, requests and answers. Transactions count from the one made last."""
    newest = m[READER.next]
    size = m[CHIP.max_reads]
    for i in range(size):
        visit_row(m, p, tape, TRANSACTION_RULES, (newest + i) % size, ALWAYS)
    queue(m, Q.a_read, tape, newest, size)
    queue(m, Q.a_write, tape, 0, 0)
    queue(m, Q.d_read, tape, newest << 1, size << 1)
    queue(m, Q.d_write, tape, 0, 0)
    tagged(m, Q.a_out, tape, 3, GET, newest << 10, size << 10)
    tagged(m, Q.d_in, tape, 1, 0, newest << 2, size << 2)
    for i in range(m[CHIP.answers]):
        number = around(m, m[CHIP.first_answer] + i)
        visit_row(m, p, tape, ANSWER_RULES, number, ALWAYS)
        answered = at(ANSWERS.item, number)
        if tape[TAPE.sets] or m[answered] & 1:
            word(m, answered, tape, 0)
        else:
            cyclic(m, answered, tape, newest << 1, size << 1)


def tagged(m: Array, q: int, tape: Array, mask: int, read: int, base: int, size: int) -> None:
    """Save or set a queue whose items have a transaction in the upper bits if `mask` of them gives `read`."""
    for i in range(length(m, q, tape)):
        place = item(m, q, i)
        if not tape[TAPE.sets] and m[place] & mask == read:
            cyclic(m, place, tape, base, size)
        else:
            word(m, place, tape, 0)
