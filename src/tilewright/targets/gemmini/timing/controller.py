"""The execute controller (ExecuteController.scala), and the unroller of transposed preloads before it.

The controller combines the compute of one preload-compute pair with the preload of the next pair, so that the array
loads new weights while the last rows of A pass through. The controller therefore reads up to three commands of its
queue.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.isa.work import EX
from tilewright.targets.gemmini.timing.array import ALL, EX_STATE, OPERATIONS, being_written, owes_result
from tilewright.targets.gemmini.timing.layout import RING, at, row_offset
from tilewright.targets.gemmini.timing.operands import ABSENT, IN_ACC, is_garbage, local
from tilewright.targets.gemmini.timing.program import COMPUTE_FLIP, COMPUTE_STAY, CONFIG, PRELOAD
from tilewright.targets.gemmini.timing.queues import Q, count, peek, pop, push, ready
from tilewright.targets.gemmini.timing.records import PLAIN, POINTER, RULE, columns, registers, saved, table
from tilewright.targets.gemmini.timing.state import SHARED, TO_ARRAY, TO_WRITER, Pipe

#: The modes of an operation (perform_single_preload, perform_mul_pre, perform_single_mul).
ONLY_PRELOAD, BOTH, ONLY_COMPUTE = range(3)


class Execution:
    """The registers of the controller. A field of size 3 has numbers for A, B and D."""

    mode = PLAIN
    total = PLAIN  # the number of rows that pass through the array in this operation
    a_transposed = PLAIN  # config_ex sets this field and the next two fields
    b_transposed = PLAIN
    a_stride = PLAIN
    base = saved(RULE.spad_row, size=3)  # the first row, or -1
    rows = saved(size=3)
    filled = saved(size=3)  # whether the operand has columns
    at = saved(size=3)  # the next row to read
    begun = PLAIN  # a bit mask: the operation has read a row of these operands
    offset = PLAIN  # the next row of A, relative to A's first row: at * a_stride
    un_state = PLAIN  # the state of the unroller of transposed preloads
    un_transposed = PLAIN
    op = POINTER  # the index of the newest operation


class IssuedCommand:
    """A command in the controller's queue."""

    funct = PLAIN
    rs1 = saved(RULE.local_command, of="funct")
    rs2 = saved(RULE.local_command, of="funct")
    entry = saved(RULE.entry, among=EX)


PIPE = columns(Pipe)
EXECUTION = registers(Execution, 12)
COMMANDS = table(IssuedCommand, "commands")


def step_transposes(m: Array, t: int) -> None:
    """Move a command to the execute queue. Replace a transposed preload (WS) by preload, compute and preload."""
    # See TransposePreloadUnroller.scala. The first preload moves the weights into the transposer and has no result. The
    # second preload has the result and no weights. The inserted compute should have no operands, but it keeps the
    # operands of the next compute: upstream clears fields of the instruction (first_compute_cmd.cmd.inst.rs1) instead
    # of the registers.
    if not ready(m, Q.executes, t):
        return
    item = peek(m, Q.transposes, 0)
    command = row_offset(item)
    if m[EXECUTION.un_state] == 0:
        transposed = m[command + COMMANDS.funct] == PRELOAD and m[EXECUTION.un_transposed] != 0
        if transposed and count(m, Q.transposes) < 2:
            return
        if not transposed or m[at(COMMANDS.funct, peek(m, Q.transposes, 1))] != COMPUTE_FLIP:
            if m[command + COMMANDS.funct] == CONFIG and not m[command + COMMANDS.rs1] >> 7 & 1:
                rs1 = m[command + COMMANDS.rs1]
                weight_stationary = m[SHARED.only_ws] != 0 or rs1 >> 2 & 1 != 0
                m[EXECUTION.un_transposed] = weight_stationary and rs1 >> 9 & 1 != 0
            push(m, Q.executes, pop(m, Q.transposes, t))
            return
    new = m[SHARED.next_command]
    m[SHARED.next_command] = (new + 1) & (RING - 1)
    source = row_offset(peek(m, Q.transposes, 1)) if m[EXECUTION.un_state] == 1 else command
    inserted = row_offset(new)
    for column in range(COMMANDS.funct, COMMANDS.entry + 1):
        m[inserted + column] = m[source + column]
    if m[EXECUTION.un_state] == 0:
        m[inserted + COMMANDS.rs2] = m[inserted + COMMANDS.rs2] | 0xFFFFFFFF
        m[inserted + COMMANDS.entry] = -1
    elif m[EXECUTION.un_state] == 1:
        m[inserted + COMMANDS.funct] = COMPUTE_STAY
        m[inserted + COMMANDS.entry] = -1
    else:
        m[inserted + COMMANDS.rs1] |= 0xFFFFFFFF
        pop(m, Q.transposes, t)
    m[EXECUTION.un_state] = m[EXECUTION.un_state] + 1 if m[EXECUTION.un_state] < 2 else 0
    push(m, Q.executes, new)


@part
def step_execute(m: Array, t: int) -> None:
    """Run the controller for one cycle: begin an operation, or read a row of each operand and end the operation."""
    # The station takes one completion per cycle. The array reports first; commands without a result wait in `pending`.
    pending = m[SHARED.pending] >= 0 or m[SHARED.pending + 1] >= 0
    if pending and m[SHARED.ex_done] < 0:
        which = SHARED.pending if m[SHARED.pending] >= 0 else SHARED.pending + 1
        m[SHARED.ex_done] = m[which]
        m[which] = -1
    if m[SHARED.ex_state] == EX_STATE.idle:
        if count(m, Q.executes):
            begin(m, t, pending)
        elif m[SHARED.os] and owes_result(m, t):
            m[SHARED.ex_state] = EX_STATE.flushes
            m[SHARED.active] = 1
    elif m[SHARED.ex_state] == EX_STATE.flushes:
        if m[SHARED.asked]:
            m[SHARED.ex_state] = EX_STATE.flushing
            m[SHARED.active] = 1
    elif m[SHARED.ex_state] == EX_STATE.flushing and m[SHARED.may_ask]:
        m[SHARED.ex_state] = EX_STATE.idle
        m[SHARED.active] = 1
        return
    if m[SHARED.ex_state] == EX_STATE.computes and ready(m, Q.control, t):
        read(m, t)


def begin(m: Array, t: int, pending: bool) -> None:
    """Begin the operation that the first three commands allow. `pending`: a completion is not yet reported."""
    n = count(m, Q.executes)
    # Behind the end of the queue, `peek` returns old commands, so check `n` before using the second and third command.
    first = row_offset(peek(m, Q.executes, 0))
    second = row_offset(peek(m, Q.executes, 1))
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
    # A configuration waits until the array is empty [R: gemmini_timing rule 20]. Rows leave the array only if other
    # rows enter, so the controller flushes the array. If the next operation must wait, the controller also flushes
    # output-stationary results.
    busy = owes_result(m, t)
    if config and not busy and not pending:
        if m[first + COMMANDS.entry] >= 0:
            m[SHARED.ex_done] = m[first + COMMANDS.entry]
        configure_array(m, m[first + COMMANDS.rs1], m[first + COMMANDS.rs2])
        pop(m, Q.executes, t)
    elif busy and (m[SHARED.os] or config):
        m[SHARED.ex_state] = EX_STATE.flushes
        m[SHARED.active] = 1


def hazard(m: Array, preload: int, compute: int, t: int) -> bool:
    """Return whether an operand of a preload, or of its compute, begins at a result that is still in the array."""
    reads_result = being_written(m, m[preload + COMMANDS.rs1], t) or being_written(m, m[compute + COMMANDS.rs1], t)
    return reads_result or being_written(m, m[compute + COMMANDS.rs2], t)


def configure_array(m: Array, rs1: int, rs2: int) -> None:
    if not rs1 >> 7 & 1:
        m[EXECUTION.a_transposed] = rs1 >> 8 & 1
        m[EXECUTION.b_transposed] = rs1 >> 9 & 1
        m[SHARED.os] = not m[SHARED.only_ws] and not rs1 >> 2 & 1
    m[EXECUTION.a_stride] = rs1 >> 16 & 0xFFFF
    m[SHARED.c_stride] = rs2 >> 48 & 0xFFFF


def start(m: Array, mode: int) -> None:
    """Begin an operation: set its operands and the number of rows that enter the array."""
    # An operand that passes through the transposer must arrive one operation early. So the controller reads this
    # operand with the preload, although the operand belongs to the next compute. All other operands are read with their
    # own compute.
    m[SHARED.ex_state] = EX_STATE.computes
    m[EXECUTION.mode] = mode
    m[SHARED.active] = 1
    # Whether A, B or D passes through the transposer. The output-stationary array takes A by columns, so the transposer
    # is needed if A is *not* transposed (MeshWithDelays.scala: a_is_from_transposer).
    a_turns = m[EXECUTION.a_transposed] != m[SHARED.os]
    b_turns = m[SHARED.os] != 0 and m[EXECUTION.b_transposed] != 0
    d_turns = m[SHARED.os] == 0 and m[EXECUTION.b_transposed] != 0
    later = 1 if mode == ONLY_PRELOAD else 2
    a = row_offset(peek(m, Q.executes, later if mode == ONLY_PRELOAD or a_turns else 0))
    b = row_offset(peek(m, Q.executes, later if mode == ONLY_PRELOAD or b_turns else 0))
    preload = row_offset(peek(m, Q.executes, 0 if mode == ONLY_PRELOAD else 1))
    operand(
        m, 0, m[a + COMMANDS.rs1], m[EXECUTION.a_transposed] != 0, mode == BOTH or a_turns == (mode == ONLY_PRELOAD)
    )
    operand(m, 1, m[b + COMMANDS.rs2], b_turns, mode == BOTH or b_turns == (mode == ONLY_PRELOAD))
    operand(m, 2, m[preload + COMMANDS.rs1], d_turns, mode != ONLY_COMPUTE)
    # DIM rows pass through the array if the operation loads weights or transposes an operand. Otherwise, the number of
    # rows is that of the compute's longer operand, but at least four. With fewer rows, a second write of an accumulator
    # row could begin before the first write is done (upstream's comment at total_rows; gemmini_timing rule 15).
    m[EXECUTION.total] = m[SHARED.dim]
    if m[SHARED.os] == 0 and m[EXECUTION.base + 2] < 0 and not (a_turns or b_turns or d_turns):
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
    m[op + OPERATIONS.rows] = result >> 48 & 2 * m[SHARED.dim] - 1
    m[op + OPERATIONS.os] = m[SHARED.os]


def operand(m: Array, k: int, word: int, transposed: bool, takes: bool) -> None:
    """Set operand `k` of an operation. With `takes`, the operation reads the operand."""
    fit = 2 * m[SHARED.dim] - 1
    kind, row = local(m, word)
    rows, columns = word >> 48 & fit, word >> 32 & fit
    m[EXECUTION.base + k] = row if kind != ABSENT and takes else -1
    m[EXECUTION.rows + k] = columns if transposed else rows
    m[EXECUTION.filled + k] = rows > 0 if transposed else columns > 0
    # The RTL waits forever for an accumulator row, although the RTL is built with ex_read_from_acc [R:
    # docs/gemmini.md].
    if takes and kind == IN_ACC:
        m[SHARED.ex_state] = EX_STATE.stalled


@part
def bank_of(m: Array, k: int, row: int) -> int:
    """Return the bank of a row of operand `k`. Absent operands get different negative numbers."""
    return (
        (m[EXECUTION.base + k] + row & m[SHARED.spad]) >> m[SHARED.lg_spad_bank]
        if m[EXECUTION.base + k] >= 0
        else -1 - k
    )


@part
def must_wait(m: Array, k: int, rival: int, same_bank: bool, rival_next: int) -> bool:
    """Return whether operand `k` must wait for operand `rival` (ExecuteController.scala: must_wait_for)."""
    # Operand `k` waits in two cases: it is one row ahead of `rival`, or both operands are at the same row number in the
    # same bank and `rival` comes first in the order A, B, D. `rival_next` is the row number after the rival's row.
    begun = m[EXECUTION.begun] >> k & 1
    rival_begun = m[EXECUTION.begun] >> rival & 1
    ahead = begun != 0 and m[EXECUTION.at + k] == rival_next
    return ahead or (
        same_bank and rival < k and begun == rival_begun and m[EXECUTION.at + k] == m[EXECUTION.at + rival]
    )


@part
def read(m: Array, t: int) -> None:
    """Read the next row of each operand (unless the operand must wait), and send control signals to the array."""
    last = m[EXECUTION.total] - 1
    a = m[EXECUTION.at]
    b = m[EXECUTION.at + 1]
    d = m[EXECUTION.at + 2]
    begun = m[EXECUTION.begun]
    bank_a = bank_of(m, 0, m[EXECUTION.offset])
    bank_b = bank_of(m, 1, b)
    bank_d = bank_of(m, 2, m[SHARED.dim] - 1 - d)
    ab = bank_a == bank_b
    ad = bank_a == bank_d
    bd = bank_b == bank_d
    # Fast path: all three operands are at the same row number in different banks, so no operand waits.
    together = a == b and b == d and begun in (0, ALL) and not (ab or ad or bd) and last > 0
    a_goes = b_goes = d_goes = True
    if not together:
        after_a = 0 if a == last else a + 1
        after_b = 0 if b == last else b + 1
        after_d = 0 if d == last else d + 1
        a_goes = not (must_wait(m, 0, 1, ab, after_b) or must_wait(m, 0, 2, ad, after_d))
        b_goes = not (must_wait(m, 1, 0, ab, after_a) or must_wait(m, 1, 2, bd, after_d))
        d_goes = not (must_wait(m, 2, 0, ad, after_a) or must_wait(m, 2, 1, bd, after_b))
    # Control signals. Bits 0, 1 and 2: A, B and D advance. Bit 3: the operation begins. From bits 8, 16 and 24 on: the
    # bank of A, of B and of D, plus 1 (0: no bank). From bit 32 on: the operation.
    control = (begun == 0) << 3 | m[EXECUTION.op] << 32
    control |= fetch(m, 0, bank_a, a, a_goes) | fetch(m, 1, bank_b, b, b_goes)
    control |= fetch(m, 2, bank_d, m[SHARED.dim] - 1 - d, d_goes)
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
    """Move each operand that was read to its next row. Return whether the operation ends."""
    # The operation ends when each operand either leaves its last row in this cycle or is already back at row 0.
    # Operands also start at row 0, so `begun` must show that an earlier cycle has read a row (about_to_fire_all_rows).
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
    """Read a row of operand `k` from a bank. Return the operand's control signals, or 0 if the operand must wait."""
    # Rows beyond the operand are zeros, and are not read. A bank has one port, so a write blocks a read. A previous row
    # that waits for the pipe also blocks a read (Scratchpad.scala: q_will_be_empty).
    if not goes:
        return 0
    signals = 1 << k
    if bank >= 0 and row < m[EXECUTION.rows + k]:
        m[SHARED.ex_reads] |= 1 << bank
        if (m[SHARED.spad_writes] | m[TO_ARRAY.held] | m[TO_WRITER.held]) >> bank & 1:
            return 0
        m[TO_ARRAY.fetched] |= 1 << bank
        m[TO_ARRAY.under_way] = 1
        if m[EXECUTION.filled + k]:
            signals |= (bank + 1) << (8 + 8 * k)
    return signals


def finish(m: Array, t: int) -> None:
    """End an operation and remove its commands. Computes, and preloads without a result, are now complete."""
    # A preload with a result completes later: when the array writes the last row of the result.
    m[SHARED.progress] += 1
    m[SHARED.ex_state] = EX_STATE.idle
    first = row_offset(pop(m, Q.executes, t))
    if m[EXECUTION.mode] == ONLY_PRELOAD:
        m[SHARED.pending] = m[first + COMMANDS.entry] if is_garbage(m, m[first + COMMANDS.rs2]) else -1
    else:
        m[SHARED.pending] = m[first + COMMANDS.entry]
        if m[EXECUTION.mode] == BOTH:
            second = row_offset(pop(m, Q.executes, t))
            m[SHARED.pending + 1] = m[second + COMMANDS.entry] if is_garbage(m, m[second + COMMANDS.rs2]) else -1


@part
def step_banks(m: Array, reader: int) -> None:
    """Move rows from the scratchpad's banks through their pipes to a reader (TO_ARRAY or TO_WRITER)."""
    # Each word has one bit per bank, so all banks move at once. If the pipe is full, the next row waits in the bank.
    first = m[reader + PIPE.first]
    second = m[reader + PIPE.second]
    third = m[reader + PIPE.third]
    last = m[reader + PIPE.last]
    entering = m[reader + PIPE.fetched] | m[reader + PIPE.held]
    if m[SHARED.of_2025]:
        # The stages are the places of a queue (Scratchpad.scala: dma_read_pipe, ex_read_pipe). If the head has left,
        # all rows move up. A new row takes the first free place, so it reaches the reader after one cycle.
        stays = first & last
        in_second = second & last | first & ~last
        in_third = third & last | second & ~last
        in_last = last | third
        after = (
            stays | entering & in_second,
            in_second | entering & in_third,
            in_third | entering & in_last,
            in_last | entering,
        )
    else:
        # A row stays in its stage only while all later stages of its bank contain rows (Pipeline.scala).
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
        m[SHARED.active] = 1
    m[reader + PIPE.under_way] = (after[0] | after[1] | after[2] | after[3]) != 0
