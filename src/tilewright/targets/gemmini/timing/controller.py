"""The execute controller (ExecuteController.scala), and the unroller of transposed preloads before it."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX
from tilewright.targets.gemmini.timing.array import ALL, DOES, OPERATIONS, being_written, in_progress
from tilewright.targets.gemmini.timing.layout import RING, at, row_offset
from tilewright.targets.gemmini.timing.operands import ABSENT, IN_ACC, is_garbage, local
from tilewright.targets.gemmini.timing.program import COMPUTE_FLIP, COMPUTE_STAY, CONFIG, PRELOAD
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready
from tilewright.targets.gemmini.timing.records import PLAIN, POINTER, RULE, columns, registers, saved, table
from tilewright.targets.gemmini.timing.state import CHIP, TO_ARRAY, TO_WRITER, Pipe

ONLY_PRELOAD, BOTH, ONLY_COMPUTE = range(3)


class Execution:
    """What the controller does. Three numbers are for A, B and D."""

    mode = PLAIN
    total = PLAIN  # rows that go through the array
    a_turned = PLAIN  # this and the next two: set by configurations
    b_turned = PLAIN
    a_stride = PLAIN
    base = saved(RULE.spad_row, size=3)  # the first row (-1: none)
    rows = saved(size=3)
    filled = saved(size=3)  # whether they have columns
    at = saved(size=3)  # the row to read
    begun = PLAIN  # the operands of which any row was read, as bits
    offset = PLAIN  # of A's row
    un_state = PLAIN  # of the unroller of transposed preloads
    un_turned = PLAIN
    op = POINTER  # in the table of operations


class IssuedCommand:
    """A command for the controller."""

    funct = PLAIN
    rs1 = saved(RULE.local_command, of="funct")
    rs2 = saved(RULE.local_command, of="funct")
    entry = saved(RULE.entry, among=EX)


PIPE = columns(Pipe)
EXECUTION = registers(Execution, 12)
COMMANDS = table(IssuedCommand, "commands")


def step_transposes(m: Array, t: int) -> None:
    """Pass commands on. A transposed preload (WS) becomes preload, compute, preload (TransposePreloadUnroller.scala).

    The compute in the middle should have no operands, but in the RTL it keeps those of the compute behind it.
    """
    if not ready(m, Q.executes, t):
        return
    item = peek(m, Q.transposes, 0)
    command = row_offset(item)
    if m[EXECUTION.un_state] == 0:
        turned = m[command + COMMANDS.funct] == PRELOAD and m[EXECUTION.un_turned] != 0
        if turned and count(m, Q.transposes) < 2:
            return
        if not turned or m[at(COMMANDS.funct, peek(m, Q.transposes, 1))] != COMPUTE_FLIP:
            if m[command + COMMANDS.funct] == CONFIG and not m[command + COMMANDS.rs1] >> 7 & 1:
                m[EXECUTION.un_turned] = (m[CHIP.only_ws] or m[command + COMMANDS.rs1] >> 2 & 1 != 0) and m[
                    command + COMMANDS.rs1
                ] >> 9 & 1 != 0
            push(m, Q.executes, pop(m, Q.transposes, t))
            return
    new = m[CHIP.next_command]
    m[CHIP.next_command] = (new + 1) & (RING - 1)
    source = row_offset(peek(m, Q.transposes, 1)) if m[EXECUTION.un_state] == 1 else command
    made = row_offset(new)
    for column in range(COMMANDS.funct, COMMANDS.entry + 1):
        m[made + column] = m[source + column]
    if m[EXECUTION.un_state] == 0:
        m[made + COMMANDS.rs2] = m[made + COMMANDS.rs2] | 0xFFFFFFFF
        m[made + COMMANDS.entry] = -1
    elif m[EXECUTION.un_state] == 1:
        m[made + COMMANDS.funct] = COMPUTE_STAY
        m[made + COMMANDS.entry] = -1
    else:
        m[made + COMMANDS.rs1] |= 0xFFFFFFFF
        pop(m, Q.transposes, t)
    m[EXECUTION.un_state] = m[EXECUTION.un_state] + 1 if m[EXECUTION.un_state] < 2 else 0
    push(m, Q.executes, new)


@part
def step_execute(m: Array, t: int) -> None:
    """Run the controller: begin an operation, read a row of each operand, end it."""
    pending = m[CHIP.pending] >= 0 or m[CHIP.pending + 1] >= 0
    if pending and m[CHIP.ex_done] < 0:
        which = CHIP.pending if m[CHIP.pending] >= 0 else CHIP.pending + 1
        m[CHIP.ex_done] = m[which]
        m[which] = -1
    if m[CHIP.ex_state] == DOES.idle:
        if count(m, Q.executes):
            begin(m, t, pending)
        elif m[CHIP.os] and in_progress(m, t):
            m[CHIP.ex_state] = DOES.flushes
            m[CHIP.active] = 1
    elif m[CHIP.ex_state] == DOES.flushes:
        if m[CHIP.asked]:
            m[CHIP.ex_state] = DOES.flushing
            m[CHIP.active] = 1
    elif m[CHIP.ex_state] == DOES.flushing and m[CHIP.may_ask]:
        m[CHIP.ex_state] = DOES.idle
        m[CHIP.active] = 1
        return
    if m[CHIP.ex_state] == DOES.computes and ready(m, Q.control, t):
        read(m, t)


def begin(m: Array, t: int, pending: bool) -> None:
    """Begin what the first three commands allow."""
    n = count(m, Q.executes)
    first, second = row_offset(peek(m, Q.executes, 0)), row_offset(peek(m, Q.executes, 1))
    third = row_offset(peek(m, Q.executes, 2))
    config = m[first + COMMANDS.funct] == CONFIG
    preload = m[first + COMMANDS.funct] == PRELOAD
    if preload:
        if n > 1 and not hazard(m, first, second, t):
            start(m, ONLY_PRELOAD)
            return
    elif not config:
        both = n > 2 and m[second + COMMANDS.funct] == PRELOAD and not hazard(m, second, third, t)
        start(m, BOTH if both else ONLY_COMPUTE)
        return
    busy = in_progress(m, t)
    if config and not busy and not pending:
        if m[first + COMMANDS.entry] >= 0:
            m[CHIP.ex_done] = m[first + COMMANDS.entry]
        configure_array(m, m[first + COMMANDS.rs1], m[first + COMMANDS.rs2])
        pop(m, Q.executes, t)
    elif busy and (m[CHIP.os] or config):
        m[CHIP.ex_state] = DOES.flushes
        m[CHIP.active] = 1


def hazard(m: Array, preload: int, compute: int, t: int) -> bool:
    """Return whether a preload or its compute reads from where a result begins that the array still holds."""
    found = being_written(m, m[preload + COMMANDS.rs1], t) or being_written(m, m[compute + COMMANDS.rs1], t)
    return found or being_written(m, m[compute + COMMANDS.rs2], t)


def configure_array(m: Array, rs1: int, rs2: int) -> None:
    """Take the fields of config_ex."""
    if not rs1 >> 7 & 1:
        m[EXECUTION.a_turned] = rs1 >> 8 & 1
        m[EXECUTION.b_turned] = rs1 >> 9 & 1
        m[CHIP.os] = not m[CHIP.only_ws] and not rs1 >> 2 & 1
    m[EXECUTION.a_stride] = rs1 >> 16 & 0xFFFF
    m[CHIP.c_stride] = rs2 >> 48 & 0xFFFF


def start(m: Array, mode: int) -> None:
    """Set the operands of an operation: which are read, from where, and how many rows go through the array.

    What goes through the transposer enters together with the preload, one operation earlier than the rest.
    """
    m[CHIP.ex_state] = DOES.computes
    m[EXECUTION.mode] = mode
    m[CHIP.active] = 1
    a_turns, b_turns = m[EXECUTION.a_turned] != m[CHIP.os], m[CHIP.os] != 0 and m[EXECUTION.b_turned] != 0
    d_turns = m[CHIP.os] == 0 and m[EXECUTION.b_turned] != 0
    later = 1 if mode == ONLY_PRELOAD else 2
    a = row_offset(peek(m, Q.executes, later if mode == ONLY_PRELOAD or a_turns else 0))
    b = row_offset(peek(m, Q.executes, later if mode == ONLY_PRELOAD or b_turns else 0))
    preload = row_offset(peek(m, Q.executes, 0 if mode == ONLY_PRELOAD else 1))
    operand(m, 0, m[a + COMMANDS.rs1], m[EXECUTION.a_turned] != 0, mode == BOTH or a_turns == (mode == ONLY_PRELOAD))
    operand(m, 1, m[b + COMMANDS.rs2], b_turns, mode == BOTH or b_turns == (mode == ONLY_PRELOAD))
    operand(m, 2, m[preload + COMMANDS.rs1], d_turns, mode != ONLY_COMPUTE)
    m[EXECUTION.total] = m[CHIP.dim]
    if m[CHIP.os] == 0 and m[EXECUTION.base + 2] < 0 and not (a_turns or b_turns or d_turns):
        m[EXECUTION.total] = max(
            m[EXECUTION.rows] if m[EXECUTION.base] >= 0 else 1,
            m[EXECUTION.rows + 1] if m[EXECUTION.base + 1] >= 0 else 1,
            4,
        )
    m[EXECUTION.op] = (m[EXECUTION.op] + 1) & (RING - 1)
    op = row_offset(m[EXECUTION.op])
    result = m[preload + COMMANDS.rs2]
    nowhere = mode == ONLY_COMPUTE or is_garbage(m, result)
    m[op + OPERATIONS.total] = m[EXECUTION.total]
    m[op + OPERATIONS.local] = result & 0xFFFFFFFF
    m[op + OPERATIONS.entry] = -1 if nowhere else m[preload + COMMANDS.entry]
    m[op + OPERATIONS.rows], m[op + OPERATIONS.os] = result >> 48 & 2 * m[CHIP.dim] - 1, m[CHIP.os]


def operand(m: Array, k: int, word: int, turned: bool, takes: bool) -> None:
    """Set one operand; its rows and columns are exchanged if it is transposed."""
    fit = 2 * m[CHIP.dim] - 1
    kind, row = local(m, word)
    rows, columns = word >> 48 & fit, word >> 32 & fit
    m[EXECUTION.base + k] = row if kind != ABSENT and takes else -1
    m[EXECUTION.rows + k] = columns if turned else rows
    m[EXECUTION.filled + k] = rows > 0 if turned else columns > 0
    if takes and kind == IN_ACC:
        m[CHIP.ex_state] = DOES.stalled


@part
def bank_of(m: Array, k: int, row: int) -> int:
    """Return the bank of a row of operand `k`, or a negative number of its own if there is no operand."""
    return (
        (m[EXECUTION.base + k] + row & m[CHIP.spad]) >> m[CHIP.lg_spad_bank] if m[EXECUTION.base + k] >= 0 else -1 - k
    )


@part
def must_wait(m: Array, k: int, other: int, same_bank: bool, next_other: int) -> bool:
    """Return whether operand `k` waits for another: it is one row ahead, or comes later in the same bank."""
    begun = m[EXECUTION.begun] >> k & 1
    begun_other = m[EXECUTION.begun] >> other & 1
    ahead = begun != 0 and m[EXECUTION.at + k] == next_other
    return ahead or (
        same_bank and other < k and begun == begun_other and m[EXECUTION.at + k] == m[EXECUTION.at + other]
    )


@part
def read(m: Array, t: int) -> None:
    """Read the next row of each operand whose turn it is, and send control signals to the array."""
    last = m[EXECUTION.total] - 1
    a = m[EXECUTION.at]
    b = m[EXECUTION.at + 1]
    d = m[EXECUTION.at + 2]
    begun = m[EXECUTION.begun]
    bank_a = bank_of(m, 0, m[EXECUTION.offset])
    bank_b = bank_of(m, 1, b)
    bank_d = bank_of(m, 2, m[CHIP.dim] - 1 - d)
    ab = bank_a == bank_b
    ad = bank_a == bank_d
    bd = bank_b == bank_d
    together = a == b and b == d and begun in (0, ALL) and not (ab or ad or bd) and last > 0
    a_goes = b_goes = d_goes = True
    if not together:
        after_a = 0 if a == last else a + 1
        after_b = 0 if b == last else b + 1
        after_d = 0 if d == last else d + 1
        a_goes = not (must_wait(m, 0, 1, ab, after_b) or must_wait(m, 0, 2, ad, after_d))
        b_goes = not (must_wait(m, 1, 0, ab, after_a) or must_wait(m, 1, 2, bd, after_d))
        d_goes = not (must_wait(m, 2, 0, ad, after_a) or must_wait(m, 2, 1, bd, after_b))
    control = (begun == 0) << 3 | m[EXECUTION.op] << 32
    control |= fetch(m, 0, bank_a, a, a_goes) | fetch(m, 1, bank_b, b, b_goes)
    control |= fetch(m, 2, bank_d, m[CHIP.dim] - 1 - d, d_goes)
    push(m, Q.control, control)
    if control & 1:
        m[EXECUTION.offset] = 0 if a == last else m[EXECUTION.offset] + m[EXECUTION.a_stride]
    ends = next_rows(m, control)
    m[EXECUTION.begun] |= control & ALL
    if ends:
        m[EXECUTION.begun] = 0
        finish(m, t)


@part
def next_rows(m: Array, control: int) -> bool:
    """Go on to the next row of each operand that was read; return whether the operation ends."""
    last = m[EXECUTION.total] - 1
    ends = m[EXECUTION.begun] != 0
    for k in range(3):
        at = m[EXECUTION.at + k]
        goes = control >> k & 1
        ends = ends and ((at == last and goes != 0) or at == 0)
        if goes:
            m[EXECUTION.at + k] = 0 if at == last else at + 1
    return ends


@part
def fetch(m: Array, k: int, bank: int, row: int, goes: bool) -> int:
    """Ask a bank for a row of operand `k`; return the control signals for it: the operand goes on, its bank.

    Rows beyond the operand's are zeros, which need no reading. A bank cannot be read while it is written, or while the
    row before waits for its pipe.
    """
    if not goes:
        return 0
    signals = 1 << k
    if bank >= 0 and row < m[EXECUTION.rows + k]:
        m[CHIP.ex_reads] |= 1 << bank
        if (m[CHIP.spad_writes] | m[TO_ARRAY.held] | m[TO_WRITER.held]) >> bank & 1:
            return 0
        m[TO_ARRAY.fetched] |= 1 << bank
        m[TO_ARRAY.under_way] = 1
        if m[EXECUTION.filled + k]:
            signals |= (bank + 1) << (8 + 8 * k)
    return signals


def finish(m: Array, t: int) -> None:
    """End an operation: its commands leave, and those without a result are complete."""
    m[CHIP.progress] += 1
    m[CHIP.ex_state] = DOES.idle
    first = row_offset(pop(m, Q.executes, t))
    if m[EXECUTION.mode] == ONLY_PRELOAD:
        m[CHIP.pending] = m[first + COMMANDS.entry] if is_garbage(m, m[first + COMMANDS.rs2]) else -1
    else:
        m[CHIP.pending] = m[first + COMMANDS.entry]
        if m[EXECUTION.mode] == BOTH:
            second = row_offset(pop(m, Q.executes, t))
            m[CHIP.pending + 1] = m[second + COMMANDS.entry] if is_garbage(m, m[second + COMMANDS.rs2]) else -1


@part
def step_banks(m: Array, reader: int) -> None:
    """Move rows that were read through the pipes to a reader; one is held in its bank if the pipe is stalled.

    A row stays in its stage only while all later stages hold rows (Pipeline.scala).
    """
    first, second = m[reader + PIPE.first], m[reader + PIPE.second]
    third = m[reader + PIPE.third]
    last = m[reader + PIPE.last]
    entering = m[reader + PIPE.fetched] | m[reader + PIPE.held]
    stays_third = third & last
    stays_second = second & stays_third
    stays = first & stays_second
    after = (
        entering | stays,
        stays_second | first & ~stays,
        stays_third | second & ~stays_second,
        last | third,
    )
    m[reader + PIPE.first], m[reader + PIPE.second], m[reader + PIPE.third], m[reader + PIPE.last] = after
    m[reader + PIPE.fetched] = 0
    m[reader + PIPE.held] = entering & stays
    if after != (first, second, third, last):
        m[CHIP.active] = 1
    m[reader + PIPE.under_way] = (after[0] | after[1] | after[2] | after[3]) != 0
