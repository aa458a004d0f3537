"""The execute controller (ExecuteController.scala), and the unroller of transposed preloads before it."""

from __future__ import annotations

from tilewright.array import Array

from .array import LAST_STAGE, being_written, in_progress
from .jit import callee
from .queues import is_garbage, local, moved, peek, pop, push, ready
from .state import *
from .station import COMPUTE_FLIP, COMPUTE_STAY, CONFIG, PRELOAD

IDLE, COMPUTES, FLUSHES, FLUSHING = range(4)
#: What the controller does: a preload, a compute with the next preload, a compute.
ONLY_PRELOAD, BOTH, ONLY_COMPUTE = range(3)


@callee
def step_preloads(m: Chip, t: int) -> None:
    """Pass commands on. A transposed preload (WS) becomes preload, compute, preload (TransposePreloadUnroller.scala)."""
    s = m.s
    if m.n[PRELOADS] == 0 or not ready(m, EXECUTES, t):
        return
    item = peek(m, PRELOADS, 0)
    command = m.commands[item]
    preload = command[C_FUNCT] == PRELOAD
    if s[UN_STATE] == 0 and not (preload and s[UN_TRANSPOSE]):
        if command[C_FUNCT] == CONFIG and command[C_RS1] & 3 == 0 and not command[C_RS1] >> 7 & 1:
            s[UN_TRANSPOSE] = (m.p[ONLY_WS] or command[C_RS1] >> 2 & 1) and command[C_RS1] >> 9 & 1
        push(m, EXECUTES, pop(m, PRELOADS, t))
        return
    if s[UN_STATE] == 0:
        if m.n[PRELOADS] < 2:
            return
        if m.commands[peek(m, PRELOADS, 1), C_FUNCT] != COMPUTE_FLIP:
            push(m, EXECUTES, pop(m, PRELOADS, t))
            return
        new = copied(m, item)
        m.commands[new, C_RS2] |= 0xFFFFFFFF
        m.commands[new, C_ROB] = -1
        s[UN_STATE] = 1
    elif s[UN_STATE] == 1:
        new = copied(m, peek(m, PRELOADS, 1))
        m.commands[new, C_FUNCT], m.commands[new, C_ROB] = COMPUTE_STAY, -1
        s[UN_STATE] = 2
    else:
        new = copied(m, item)
        m.commands[new, C_RS1] |= 0xFFFFFFFF
        s[UN_STATE] = 0
        pop(m, PRELOADS, t)
    push(m, EXECUTES, new)


@callee
def copied(m: Chip, item: int) -> int:
    """Copy a command into a new place."""
    new = m.s[X_ITEM]
    m.s[X_ITEM] = (new + 1) & (RING - 1)
    for column in range(m.commands.shape[1]):
        m.commands[new, column] = m.commands[item, column]
    return int(new)


@callee
def step_execute(m: Chip, t: int) -> None:
    """Run the controller: begin an operation, read a row of each operand, end it."""
    s = m.s
    s[EX_READS] = 0
    if s[EX_DONE] < 0:
        if s[PENDING] >= 0:
            s[EX_DONE], s[PENDING] = s[PENDING], -1
            pending = True
        elif s[PENDING_1] >= 0:
            s[EX_DONE], s[PENDING_1] = s[PENDING_1], -1
            pending = True
        else:
            pending = False
    else:
        pending = s[PENDING] >= 0 or s[PENDING_1] >= 0
    if s[X_STATE] == FLUSHES:
        if s[FLUSH_FIRED]:
            s[X_STATE], s[ACTIVE] = FLUSHING, 1
    elif s[X_STATE] == FLUSHING:
        if s[MAY_ASK]:
            s[X_STATE], s[ACTIVE] = IDLE, 1
    elif s[X_STATE] == IDLE:
        if not m.n[EXECUTES]:
            if s[X_OS] and in_progress(m, t):
                s[X_STATE], s[ACTIVE] = FLUSHES, 1
            return
        begin(m, t, pending)
        if s[X_STATE] == COMPUTES:
            read(m, t)
    else:
        read(m, t)


@callee
def begin(m: Chip, t: int, pending: bool) -> None:
    """Begin what the first three commands allow."""
    s = m.s
    n = m.n[EXECUTES]
    first = m.commands[peek(m, EXECUTES, 0)]
    funct = first[C_FUNCT]
    busy = in_progress(m, t)
    second = m.commands[peek(m, EXECUTES, 1)]
    preload, compute = funct == PRELOAD, funct == COMPUTE_FLIP or funct == COMPUTE_STAY
    if funct == CONFIG and not busy and not pending:
        configure_array(m, first[C_RS1], first[C_RS2])
        if first[C_ROB] >= 0:
            s[EX_DONE] = first[C_ROB]
        pop(m, EXECUTES, t)
    elif preload and n > 1 and not hazard(m, first, second, t):
        start(m, ONLY_PRELOAD)
    elif (
        compute
        and n > 2
        and second[C_FUNCT] == PRELOAD
        and not hazard(m, second, m.commands[peek(m, EXECUTES, 2)], t)
    ):
        start(m, BOTH)
    elif compute:
        start(m, ONLY_COMPUTE)
    elif busy and (s[X_OS] or funct == CONFIG):
        s[X_STATE], s[ACTIVE] = FLUSHES, 1


@callee
def hazard(m: Chip, preload: Array, compute: Array, t: int) -> bool:
    """Return whether a preload or its compute reads from where a result begins that the array still holds."""
    return (
        being_written(m, preload[C_RS1], t)
        or being_written(m, compute[C_RS1], t)
        or being_written(m, compute[C_RS2], t)
    )


@callee
def configure_array(m: Chip, rs1: int, rs2: int) -> None:
    """Take the fields of config_ex."""
    s = m.s
    if not rs1 >> 7 & 1:
        s[X_AT], s[X_BT] = rs1 >> 8 & 1, rs1 >> 9 & 1
        if not m.p[ONLY_WS]:
            s[X_OS] = not rs1 >> 2 & 1
    s[X_A_STRIDE], s[X_C_STRIDE] = rs1 >> 16 & 0xFFFF, rs2 >> 48 & 0xFFFF


@callee
def start(m: Chip, mode: int) -> None:
    """Set the operands of an operation: which are read, from where, and how many rows go through the array."""
    s = m.s
    s[X_STATE], s[X_MODE], s[ACTIVE] = COMPUTES, mode, 1
    turn_a = s[X_AT] != s[X_OS]  # A goes through the transposer
    turn_b = s[X_OS] and s[X_BT]
    turn_d = not s[X_OS] and s[X_BT]
    place = 0 if mode == ONLY_PRELOAD else 1
    early = 1 if mode == ONLY_PRELOAD else 2  # where an operand is read for the transposer, with the preload
    a = m.commands[peek(m, EXECUTES, early if mode == ONLY_PRELOAD or turn_a else 0)]
    b = m.commands[peek(m, EXECUTES, early if mode == ONLY_PRELOAD or turn_b else 0)]
    pre = m.commands[peek(m, EXECUTES, place)]
    takes_a = mode == BOTH or (turn_a if mode == ONLY_PRELOAD else not turn_a)
    takes_b = mode == BOTH or (turn_b if mode == ONLY_PRELOAD else not turn_b)
    takes_d = mode != ONLY_COMPUTE
    operand(m, X_A, a[C_RS1], s[X_AT], takes_a)
    operand(m, X_B, b[C_RS2], turn_b, takes_b)
    operand(m, X_D, pre[C_RS1], turn_d, takes_d)
    s[X_TOTAL] = m.p[DIM]
    if not s[X_OS] and s[X_D] < 0 and not (turn_a or turn_b or turn_d):
        s[X_TOTAL] = max(s[X_A_ROWS] if s[X_A] >= 0 else 1, s[X_B_ROWS] if s[X_B] >= 0 else 1, 4)
    new = s[OP_ITEM] = (s[OP_ITEM] + 1) & (RING - 1)
    op = m.ops[new]
    c = pre[C_RS2]
    nowhere = is_garbage(m, c) or mode == ONLY_COMPUTE
    op[O_TOTAL], op[O_ROB], op[O_ADDR] = s[X_TOTAL], -1 if nowhere else pre[C_ROB], c & 0xFFFFFFFF
    op[O_ROWS], op[O_OS] = c >> 48 & (2 * m.p[DIM] - 1), s[X_OS]


@callee
def operand(m: Chip, k: int, word: int, turned: int, takes: int) -> None:
    """Set one operand: its first row (-1 if none), the rows that are read, and whether these carry data."""
    s, mask = m.s, 2 * m.p[DIM] - 1
    kind, row = local(m, word)
    rows, columns = word >> 48 & mask, word >> 32 & mask
    if turned:
        rows, columns = columns, rows
    s[k] = row if kind != ABSENT and takes else -1
    s[k + 3] = rows
    s[k + 6] = columns > 0


@callee
def wraps(m: Chip, counter: int) -> int:
    """Return a counter of rows plus one."""
    return int(counter + 1 if counter + 1 < m.s[X_TOTAL] else 0)


@callee
def read(m: Chip, t: int) -> None:
    """Read the next row of each operand whose turn it is, and send control signals to the array."""
    s, p = m.s, m.p
    if not ready(m, CONTROL, t):
        return
    dim, mask = p[DIM], p[SPAD_MASK]
    a, b, d = s[CA], s[CB], s[CD]
    bank_a = (s[X_A] + s[A_OFFSET] & mask) >> p[SPAD_SHIFT] if s[X_A] >= 0 else -1
    bank_b = (s[X_B] + b & mask) >> p[SPAD_SHIFT] if s[X_B] >= 0 else -2
    bank_d = (s[X_D] + dim - 1 - d & mask) >> p[SPAD_SHIFT] if s[X_D] >= 0 else -3
    with_ab, with_ad, with_bd = (s[SA] == s[SB] and a == b), (s[SA] == s[SD] and a == d), (s[SB] == s[SD] and b == d)
    a_go = not (s[SA] and (a == wraps(m, b) or a == wraps(m, d)))
    b_go = not (s[SB] and (b == wraps(m, a) or b == wraps(m, d)) or (bank_a == bank_b and with_ab))
    d_go = not (
        s[SD] and (d == wraps(m, a) or d == wraps(m, b)) or (bank_a == bank_d and with_ad) or (bank_b == bank_d and with_bd)
    )
    reads_a = a_go and bank_a >= 0 and a < s[X_A_ROWS]
    reads_b = b_go and bank_b >= 0 and b < s[X_B_ROWS]
    reads_d = d_go and bank_d >= 0 and dim - 1 - d < s[X_D_ROWS]
    a_go = a_go and not (reads_a and not free(m, bank_a))
    b_go = b_go and not (reads_b and not free(m, bank_b))
    d_go = d_go and not (reads_d and not free(m, bank_d))
    if reads_a:
        fetch(m, bank_a)
    if reads_b:
        fetch(m, bank_b)
    if reads_d:
        fetch(m, bank_d)
    control = (not (s[SA] or s[SB] or s[SD])) << 3 | a_go | b_go << 1 | d_go << 2 | s[OP_ITEM] << 32
    if reads_a and s[X_A_POPS]:
        control |= (bank_a + 1) << 8
    if reads_b and s[X_B_POPS]:
        control |= (bank_b + 1) << 16
    if reads_d and s[X_D_POPS]:
        control |= (bank_d + 1) << 24
    push(m, CONTROL, control)
    last = s[X_TOTAL] - 1
    ends = (
        ((a == last and a_go) or a == 0)
        and ((b == last and b_go) or b == 0)
        and ((d == last and d_go) or d == 0)
        and (s[SA] or s[SB] or s[SD])
    )
    if a_go:
        s[CA], s[A_OFFSET], s[SA] = wraps(m, a), 0 if a == last else s[A_OFFSET] + s[X_A_STRIDE], 1
    if b_go:
        s[CB], s[SB] = wraps(m, b), 1
    if d_go:
        s[CD], s[SD] = wraps(m, d), 1
    if ends:
        s[SA] = s[SB] = s[SD] = 0
        finish(m, t)


@callee
def free(m: Chip, bank: int) -> bool:
    """Return whether a bank can be read: nothing is written, and the last row read has found room."""
    return not (m.s[SPAD_WRITES] >> bank & 1 or m.bank[bank, 1])


@callee
def fetch(m: Chip, bank: int) -> None:
    """Ask a bank for a row."""
    m.s[EX_READS] |= 1 << bank
    if free(m, bank):
        m.bank[bank, 0] = EX_ROW


@callee
def finish(m: Chip, t: int) -> None:
    """End an operation: the commands leave, and those without a result are complete."""
    s = m.s
    s[X_STATE] = IDLE
    first = m.commands[pop(m, EXECUTES, t)]
    if s[X_MODE] == ONLY_PRELOAD:
        s[PENDING] = first[C_ROB] if is_garbage(m, first[C_RS2]) else -1
    else:
        s[PENDING] = first[C_ROB]
        if s[X_MODE] == BOTH:
            second = m.commands[pop(m, EXECUTES, t)]
            s[PENDING_1] = second[C_ROB] if is_garbage(m, second[C_RS2]) else -1


@callee
def step_banks(m: Chip) -> None:
    """Move rows that were read through the pipe of their reader; one waits in the bank if the pipe is stalled."""
    for bank in range(m.bank.shape[0]):
        b = m.bank[bank]
        row = b[0] | b[1]
        if not (row | b[2] | b[3]):
            continue
        b[0] = 0
        for pipe in range(2, 4):
            after = moved(b[pipe], LAST_STAGE)
            if after != b[pipe]:
                m.s[ACTIVE] = 1
            if row == pipe - 1:
                if after & 1:
                    b[1] = row
                else:
                    after |= 1
                    b[1] = 0
                    m.s[ACTIVE] = 1
            b[pipe] = after
