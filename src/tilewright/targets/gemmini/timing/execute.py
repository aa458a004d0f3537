"""The execute controller (ExecuteController.scala), and the unroller of transposed preloads before it."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.array import being_written, in_progress
from tilewright.targets.gemmini.timing.chip import Chip, count, is_garbage, local, moved, peek, pop, push, ready

ACTIVE, EX_DONE, SPAD_WRITES, EX_READS = 0, 1, 4, 7
TRANSPOSES, EXECUTES, CONTROL = 1, 2, 18
RING, ABSENT = 512, 0
CONFIG, COMPUTE_FLIP, COMPUTE_STAY, PRELOAD = 0, 4, 5, 6
FUNCT, RS1, RS2, ENTRY = range(4)  # columns of `Chip.commands`
OP_TOTAL, OP_ENTRY, OP_ADDR, OP_ROWS, OP_OS = range(5)  # of `Chip.ops`
#: Registers: entries of the station that are complete but not reported; what configurations set; the next place in
#: `Chip.commands`; what the controller does, and how many rows go through the array.
PENDING, PENDING_1, OS, ITEM, STATE, MODE, A_TURNED, B_TURNED, A_STRIDE, C_STRIDE, TOTAL = range(11)
#: For each of A, B and D: the first row (-1: none), rows and whether they have columns; the row to read and whether
#: any was read. Then the offset of A's row, the transposing unroller, and the place in `Chip.ops`.
BASE, ROWS, FILLED, AT, BEGUN, OFFSET, UN_STATE, UN_TURNED, OP = 11, 14, 17, 20, 23, 26, 27, 28, 29
IDLE, COMPUTES, FLUSHES, FLUSHING = range(4)
ONLY_PRELOAD, BOTH, ONLY_COMPUTE = range(3)
#: Registers of the array, and columns of banks: a row in flight (EX_ROW: for the array), a row that waits for its pipe,
#: the stages of the pipes to the array and the writer.
MAY_ASK, ASKED = 11, 12
IN_FLIGHT, WAITS, EX_PIPE, DMA_PIPE, EX_ROW = 0, 1, 2, 3, 1
LAST_STAGE = 1 << 3


@part
def step_transposes(m: Chip, t: int) -> None:
    """Pass commands on. A transposed preload (WS) becomes preload, compute, preload (TransposePreloadUnroller.scala).

    The compute in the middle should have no operands, but in the RTL it keeps those of the compute behind it.
    """
    r = m.execute
    if count(m, TRANSPOSES) == 0 or not ready(m, EXECUTES, t):
        return
    item = peek(m, TRANSPOSES, 0)
    command = m.commands[item]
    if r[UN_STATE] == 0:
        turned = command[FUNCT] == PRELOAD and r[UN_TURNED] != 0
        if turned and count(m, TRANSPOSES) < 2:
            return
        if not turned or m.commands[peek(m, TRANSPOSES, 1), FUNCT] != COMPUTE_FLIP:
            if command[FUNCT] == CONFIG and not command[RS1] >> 7 & 1:
                r[UN_TURNED] = (m.size.only_ws or command[RS1] >> 2 & 1 != 0) and command[RS1] >> 9 & 1 != 0
            push(m, EXECUTES, pop(m, TRANSPOSES, t))
            return
    new = r[ITEM]
    r[ITEM] = (new + 1) & (RING - 1)
    source = m.commands[peek(m, TRANSPOSES, 1)] if r[UN_STATE] == 1 else command
    made = m.commands[new]
    made[FUNCT], made[RS1], made[RS2], made[ENTRY] = source[FUNCT], source[RS1], source[RS2], source[ENTRY]
    if r[UN_STATE] == 0:
        made[RS2], made[ENTRY] = made[RS2] | 0xFFFFFFFF, -1
    elif r[UN_STATE] == 1:
        made[FUNCT], made[ENTRY] = COMPUTE_STAY, -1
    else:
        made[RS1] |= 0xFFFFFFFF
        pop(m, TRANSPOSES, t)
    r[UN_STATE] = r[UN_STATE] + 1 if r[UN_STATE] < 2 else 0
    push(m, EXECUTES, new)


@part
def step_execute(m: Chip, t: int) -> None:
    """Run the controller: begin an operation, read a row of each operand, end it."""
    r = m.execute
    m.wire[EX_READS] = 0
    pending = r[PENDING] >= 0 or r[PENDING_1] >= 0
    if pending and m.wire[EX_DONE] < 0:
        which = PENDING if r[PENDING] >= 0 else PENDING_1
        m.wire[EX_DONE], r[which] = r[which], -1
    if r[STATE] == IDLE:
        if count(m, EXECUTES):
            begin(m, t, pending)
        elif r[OS] and in_progress(m, t):
            r[STATE], m.wire[ACTIVE] = FLUSHES, 1
    elif r[STATE] == FLUSHES:
        if m.array[ASKED]:
            r[STATE], m.wire[ACTIVE] = FLUSHING, 1
    elif r[STATE] == FLUSHING and m.array[MAY_ASK]:
        r[STATE], m.wire[ACTIVE] = IDLE, 1
        return
    if r[STATE] == COMPUTES and ready(m, CONTROL, t):
        read(m, t)


@part
def begin(m: Chip, t: int, pending: bool) -> None:
    """Begin what the first three commands allow."""
    r, n = m.execute, count(m, EXECUTES)
    first, second = m.commands[peek(m, EXECUTES, 0)], m.commands[peek(m, EXECUTES, 1)]
    third = m.commands[peek(m, EXECUTES, 2)]
    config, preload = first[FUNCT] == CONFIG, first[FUNCT] == PRELOAD
    if preload:
        if n > 1 and not hazard(m, first, second, t):
            start(m, ONLY_PRELOAD)
            return
    elif not config:
        both = n > 2 and second[FUNCT] == PRELOAD and not hazard(m, second, third, t)
        start(m, BOTH if both else ONLY_COMPUTE)
        return
    busy = in_progress(m, t)
    if config and not busy and not pending:
        if first[ENTRY] >= 0:
            m.wire[EX_DONE] = first[ENTRY]
        configure_array(m, first[RS1], first[RS2])
        pop(m, EXECUTES, t)
    elif busy and (r[OS] or config):
        r[STATE], m.wire[ACTIVE] = FLUSHES, 1


@part
def hazard(m: Chip, preload: Array, compute: Array, t: int) -> bool:
    """Return whether a preload or its compute reads from where a result begins that the array still holds."""
    found = being_written(m, preload[RS1], t) or being_written(m, compute[RS1], t)
    return found or being_written(m, compute[RS2], t)


@part
def configure_array(m: Chip, rs1: int, rs2: int) -> None:
    """Take the fields of config_ex."""
    r = m.execute
    if not rs1 >> 7 & 1:
        r[A_TURNED], r[B_TURNED] = rs1 >> 8 & 1, rs1 >> 9 & 1
        r[OS] = not m.size.only_ws and not rs1 >> 2 & 1
    r[A_STRIDE], r[C_STRIDE] = rs1 >> 16 & 0xFFFF, rs2 >> 48 & 0xFFFF


@part
def start(m: Chip, mode: int) -> None:
    """Set the operands of an operation: which are read, from where, and how many rows go through the array.

    What goes through the transposer enters together with the preload, one operation earlier than the rest.
    """
    r = m.execute
    r[STATE], r[MODE], m.wire[ACTIVE] = COMPUTES, mode, 1
    a_turns, b_turns = r[A_TURNED] != r[OS], r[OS] != 0 and r[B_TURNED] != 0
    d_turns = r[OS] == 0 and r[B_TURNED] != 0
    later = 1 if mode == ONLY_PRELOAD else 2
    a = m.commands[peek(m, EXECUTES, later if mode == ONLY_PRELOAD or a_turns else 0)]
    b = m.commands[peek(m, EXECUTES, later if mode == ONLY_PRELOAD or b_turns else 0)]
    preload = m.commands[peek(m, EXECUTES, 0 if mode == ONLY_PRELOAD else 1)]
    operand(m, 0, a[RS1], r[A_TURNED] != 0, mode == BOTH or a_turns == (mode == ONLY_PRELOAD))
    operand(m, 1, b[RS2], b_turns, mode == BOTH or b_turns == (mode == ONLY_PRELOAD))
    operand(m, 2, preload[RS1], d_turns, mode != ONLY_COMPUTE)
    r[TOTAL] = m.size.dim
    if r[OS] == 0 and r[BASE + 2] < 0 and not (a_turns or b_turns or d_turns):
        r[TOTAL] = max(r[ROWS] if r[BASE] >= 0 else 1, r[ROWS + 1] if r[BASE + 1] >= 0 else 1, 4)
    r[OP] = (r[OP] + 1) & (RING - 1)
    op, c = m.ops[r[OP]], preload[RS2]
    nowhere = mode == ONLY_COMPUTE or is_garbage(m, c)
    op[OP_TOTAL], op[OP_ENTRY], op[OP_ADDR] = r[TOTAL], -1 if nowhere else preload[ENTRY], c & 0xFFFFFFFF
    op[OP_ROWS], op[OP_OS] = c >> 48 & 2 * m.size.dim - 1, r[OS]


@part
def operand(m: Chip, k: int, word: int, turned: bool, takes: bool) -> None:
    """Set one operand; its rows and columns are exchanged if it is transposed."""
    r, fit = m.execute, 2 * m.size.dim - 1
    kind, row = local(m, word)
    rows, columns = word >> 48 & fit, word >> 32 & fit
    r[BASE + k] = row if kind != ABSENT and takes else -1
    r[ROWS + k] = columns if turned else rows
    r[FILLED + k] = rows > 0 if turned else columns > 0


@part
def bank_of(m: Chip, k: int, row: int) -> int:
    """Return the bank of a row of operand `k`, or a negative number of its own if there is no operand."""
    r = m.execute
    return (r[BASE + k] + row & m.size.spad) >> m.size.lg_spad_bank if r[BASE + k] >= 0 else -1 - k


@part
def must_wait(m: Chip, k: int, other: int, same_bank: bool, next_other: int) -> bool:
    """Return whether operand `k` waits for another: it is one row ahead, or comes later in the same bank."""
    r = m.execute
    ahead = r[BEGUN + k] != 0 and r[AT + k] == next_other
    return ahead or (same_bank and other < k and r[BEGUN + k] == r[BEGUN + other] and r[AT + k] == r[AT + other])


@part
def read(m: Chip, t: int) -> None:
    """Read the next row of each operand whose turn it is, and send control signals to the array."""
    r, last = m.execute, m.execute[TOTAL] - 1
    a, b, d = r[AT], r[AT + 1], r[AT + 2]
    bank_a, bank_b, bank_d = bank_of(m, 0, r[OFFSET]), bank_of(m, 1, b), bank_of(m, 2, m.size.dim - 1 - d)
    after_a, after_b, after_d = 0 if a == last else a + 1, 0 if b == last else b + 1, 0 if d == last else d + 1
    ab, ad, bd = bank_a == bank_b, bank_a == bank_d, bank_b == bank_d
    a_goes = not (must_wait(m, 0, 1, ab, after_b) or must_wait(m, 0, 2, ad, after_d))
    b_goes = not (must_wait(m, 1, 0, ab, after_a) or must_wait(m, 1, 2, bd, after_d))
    d_goes = not (must_wait(m, 2, 0, ad, after_a) or must_wait(m, 2, 1, bd, after_b))
    fresh = r[BEGUN] + r[BEGUN + 1] + r[BEGUN + 2] == 0
    control = fresh << 3 | r[OP] << 32
    control |= fetch(m, 0, bank_a, a, a_goes) | fetch(m, 1, bank_b, b, b_goes)
    control |= fetch(m, 2, bank_d, m.size.dim - 1 - d, d_goes)
    push(m, CONTROL, control)
    ends = not fresh
    for k in range(3):
        at = r[AT + k]
        goes = control >> k & 1
        ends = ends and ((at == last and goes != 0) or at == 0)
        if goes:
            r[AT + k], r[BEGUN + k] = 0 if at == last else at + 1, 1
    if control & 1:
        r[OFFSET] = 0 if a == last else r[OFFSET] + r[A_STRIDE]
    if ends:
        r[BEGUN] = r[BEGUN + 1] = r[BEGUN + 2] = 0
        finish(m, t)


@part
def fetch(m: Chip, k: int, bank: int, row: int, goes: bool) -> int:
    """Ask a bank for a row of operand `k`; return the control signals for it: the operand goes on, its bank.

    Rows beyond the operand's are zeros, which need no reading. A bank cannot be read while it is written, or while the
    row before waits for its pipe.
    """
    if not goes:
        return 0
    signals = 1 << k
    if bank >= 0 and row < m.execute[ROWS + k]:
        m.wire[EX_READS] |= 1 << bank
        if m.wire[SPAD_WRITES] >> bank & 1 or m.bank[bank, WAITS]:
            return 0
        m.bank[bank, IN_FLIGHT] = EX_ROW
        if m.execute[FILLED + k]:
            signals |= (bank + 1) << (8 + 8 * k)
    return signals


@part
def finish(m: Chip, t: int) -> None:
    """End an operation: its commands leave, and those without a result are complete."""
    r = m.execute
    r[STATE] = IDLE
    first = m.commands[pop(m, EXECUTES, t)]
    if r[MODE] == ONLY_PRELOAD:
        r[PENDING] = first[ENTRY] if is_garbage(m, first[RS2]) else -1
    else:
        r[PENDING] = first[ENTRY]
        if r[MODE] == BOTH:
            second = m.commands[pop(m, EXECUTES, t)]
            r[PENDING_1] = second[ENTRY] if is_garbage(m, second[RS2]) else -1


@part
def step_banks(m: Chip) -> None:
    """Move rows that were read through the pipe of their reader; one waits in its bank if the pipe is stalled."""
    for bank in range(m.bank.shape[0]):
        b = m.bank[bank]
        row = b[IN_FLIGHT] | b[WAITS]
        if not row | b[EX_PIPE] | b[DMA_PIPE]:
            continue
        b[IN_FLIGHT] = b[WAITS] = 0
        for pipe in range(EX_PIPE, DMA_PIPE + 1):
            after = moved(b[pipe], LAST_STAGE)
            if row == pipe - 1:
                b[WAITS] = row if after & 1 else 0
                after |= 1
            if after != b[pipe]:
                m.wire[ACTIVE] = 1
            b[pipe] = after
