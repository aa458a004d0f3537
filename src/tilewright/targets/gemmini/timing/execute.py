"""The execute controller (ExecuteController.scala), and the unroller of transposed preloads before it."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.array import being_written, in_progress
from tilewright.targets.gemmini.timing.chip import at, count, is_garbage, local, peek, pop, push, ready

CONFIG, COMPUTE_FLIP, COMPUTE_STAY, PRELOAD = 0, 4, 5, 6
FUNCT, RS1, RS2, ENTRY = range(4)  # columns of COMMANDS
OP_TOTAL, OP_ENTRY, OP_ADDR, OP_ROWS, OP_OS = range(5)  # of OPS
#: Registers: what the controller does, and how many rows go through the array; what configurations set. For each of A,
#: B and D: the first row (-1: none), rows, whether they have columns, the row to read. Then the operands of which any
#: row was read (bits), the offset of A's row, the transposing unroller, and the place in OPS.
MODE, TOTAL, A_TURNED, B_TURNED, A_STRIDE, BASE = range(c.EXECUTE, c.EXECUTE + 6)
ROWS, FILLED, AT, BEGUN, OFFSET = BASE + 3, BASE + 6, BASE + 9, BASE + 12, BASE + 13
UN_STATE, UN_TURNED, OP = range(BASE + 14, BASE + 17)
ALL = 7  # A, B and D
#: STALLED: for ever, because the hardware waits for rows of the accumulator that do not come.
IDLE, COMPUTES, FLUSHES, FLUSHING, STALLED = range(5)
ONLY_PRELOAD, BOTH, ONLY_COMPUTE = range(3)


@called
def step_transposes(m: Array, t: int) -> None:
    """Pass commands on. A transposed preload (WS) becomes preload, compute, preload (TransposePreloadUnroller.scala).

    The compute in the middle should have no operands, but in the RTL it keeps those of the compute behind it.
    """
    if not ready(m, c.EXECUTES, t):
        return
    item = peek(m, c.TRANSPOSES, 0)
    command = at(c.COMMANDS, item)
    if m[UN_STATE] == 0:
        turned = m[command + FUNCT] == PRELOAD and m[UN_TURNED] != 0
        if turned and count(m, c.TRANSPOSES) < 2:
            return
        if not turned or m[at(c.COMMANDS, peek(m, c.TRANSPOSES, 1)) + FUNCT] != COMPUTE_FLIP:
            if m[command + FUNCT] == CONFIG and not m[command + RS1] >> 7 & 1:
                m[UN_TURNED] = (m[c.ONLY_WS] or m[command + RS1] >> 2 & 1 != 0) and m[command + RS1] >> 9 & 1 != 0
            push(m, c.EXECUTES, pop(m, c.TRANSPOSES, t))
            return
    new = m[c.NEXT_COMMAND]
    m[c.NEXT_COMMAND] = (new + 1) & (c.RING - 1)
    source = at(c.COMMANDS, peek(m, c.TRANSPOSES, 1)) if m[UN_STATE] == 1 else command
    made = at(c.COMMANDS, new)
    for column in range(ENTRY + 1):
        m[made + column] = m[source + column]
    if m[UN_STATE] == 0:
        m[made + RS2], m[made + ENTRY] = m[made + RS2] | 0xFFFFFFFF, -1
    elif m[UN_STATE] == 1:
        m[made + FUNCT], m[made + ENTRY] = COMPUTE_STAY, -1
    else:
        m[made + RS1] |= 0xFFFFFFFF
        pop(m, c.TRANSPOSES, t)
    m[UN_STATE] = m[UN_STATE] + 1 if m[UN_STATE] < 2 else 0
    push(m, c.EXECUTES, new)


@part
def controller_works(m: Array) -> bool:
    """Return whether `step_execute` is needed in this cycle."""
    if count(m, c.EXECUTES) + m[c.EX_STATE] > 0 or m[c.PENDING] >= 0 or m[c.PENDING + 1] >= 0:
        return True
    return m[c.OS] != 0 and count(m, c.TAGS) > 0


@part
def step_execute(m: Array, t: int) -> None:
    """Run the controller: begin an operation, read a row of each operand, end it."""
    pending = m[c.PENDING] >= 0 or m[c.PENDING + 1] >= 0
    if pending and m[c.EX_DONE] < 0:
        which = c.PENDING if m[c.PENDING] >= 0 else c.PENDING + 1
        m[c.EX_DONE], m[which] = m[which], -1
    if m[c.EX_STATE] == IDLE:
        if count(m, c.EXECUTES):
            begin(m, t, pending)
        elif m[c.OS] and in_progress(m, t):
            m[c.EX_STATE], m[c.ACTIVE] = FLUSHES, 1
    elif m[c.EX_STATE] == FLUSHES:
        if m[c.ASKED]:
            m[c.EX_STATE], m[c.ACTIVE] = FLUSHING, 1
    elif m[c.EX_STATE] == FLUSHING and m[c.MAY_ASK]:
        m[c.EX_STATE], m[c.ACTIVE] = IDLE, 1
        return
    if m[c.EX_STATE] == COMPUTES and ready(m, c.CONTROL, t):
        read(m, t)


@called
def begin(m: Array, t: int, pending: bool) -> None:
    """Begin what the first three commands allow."""
    n = count(m, c.EXECUTES)
    first, second = at(c.COMMANDS, peek(m, c.EXECUTES, 0)), at(c.COMMANDS, peek(m, c.EXECUTES, 1))
    third = at(c.COMMANDS, peek(m, c.EXECUTES, 2))
    config, preload = m[first + FUNCT] == CONFIG, m[first + FUNCT] == PRELOAD
    if preload:
        if n > 1 and not hazard(m, first, second, t):
            start(m, ONLY_PRELOAD)
            return
    elif not config:
        both = n > 2 and m[second + FUNCT] == PRELOAD and not hazard(m, second, third, t)
        start(m, BOTH if both else ONLY_COMPUTE)
        return
    busy = in_progress(m, t)
    if config and not busy and not pending:
        if m[first + ENTRY] >= 0:
            m[c.EX_DONE] = m[first + ENTRY]
        configure_array(m, m[first + RS1], m[first + RS2])
        pop(m, c.EXECUTES, t)
    elif busy and (m[c.OS] or config):
        m[c.EX_STATE], m[c.ACTIVE] = FLUSHES, 1


@called
def hazard(m: Array, preload: int, compute: int, t: int) -> bool:
    """Return whether a preload or its compute reads from where a result begins that the array still holds."""
    found = being_written(m, m[preload + RS1], t) or being_written(m, m[compute + RS1], t)
    return found or being_written(m, m[compute + RS2], t)


@called
def configure_array(m: Array, rs1: int, rs2: int) -> None:
    """Take the fields of config_ex."""
    if not rs1 >> 7 & 1:
        m[A_TURNED], m[B_TURNED] = rs1 >> 8 & 1, rs1 >> 9 & 1
        m[c.OS] = not m[c.ONLY_WS] and not rs1 >> 2 & 1
    m[A_STRIDE], m[c.C_STRIDE] = rs1 >> 16 & 0xFFFF, rs2 >> 48 & 0xFFFF


@called
def start(m: Array, mode: int) -> None:
    """Set the operands of an operation: which are read, from where, and how many rows go through the array.

    What goes through the transposer enters together with the preload, one operation earlier than the rest.
    """
    m[c.EX_STATE], m[MODE], m[c.ACTIVE] = COMPUTES, mode, 1
    a_turns, b_turns = m[A_TURNED] != m[c.OS], m[c.OS] != 0 and m[B_TURNED] != 0
    d_turns = m[c.OS] == 0 and m[B_TURNED] != 0
    later = 1 if mode == ONLY_PRELOAD else 2
    a = at(c.COMMANDS, peek(m, c.EXECUTES, later if mode == ONLY_PRELOAD or a_turns else 0))
    b = at(c.COMMANDS, peek(m, c.EXECUTES, later if mode == ONLY_PRELOAD or b_turns else 0))
    preload = at(c.COMMANDS, peek(m, c.EXECUTES, 0 if mode == ONLY_PRELOAD else 1))
    operand(m, 0, m[a + RS1], m[A_TURNED] != 0, mode == BOTH or a_turns == (mode == ONLY_PRELOAD))
    operand(m, 1, m[b + RS2], b_turns, mode == BOTH or b_turns == (mode == ONLY_PRELOAD))
    operand(m, 2, m[preload + RS1], d_turns, mode != ONLY_COMPUTE)
    m[TOTAL] = m[c.DIM]
    if m[c.OS] == 0 and m[BASE + 2] < 0 and not (a_turns or b_turns or d_turns):
        m[TOTAL] = max(m[ROWS] if m[BASE] >= 0 else 1, m[ROWS + 1] if m[BASE + 1] >= 0 else 1, 4)
    m[OP] = (m[OP] + 1) & (c.RING - 1)
    op, result = at(c.OPS, m[OP]), m[preload + RS2]
    nowhere = mode == ONLY_COMPUTE or is_garbage(m, result)
    m[op + OP_TOTAL], m[op + OP_ADDR] = m[TOTAL], result & 0xFFFFFFFF
    m[op + OP_ENTRY] = -1 if nowhere else m[preload + ENTRY]
    m[op + OP_ROWS], m[op + OP_OS] = result >> 48 & 2 * m[c.DIM] - 1, m[c.OS]


@called
def operand(m: Array, k: int, word: int, turned: bool, takes: bool) -> None:
    """Set one operand; its rows and columns are exchanged if it is transposed."""
    fit = 2 * m[c.DIM] - 1
    kind, row = local(m, word)
    rows, columns = word >> 48 & fit, word >> 32 & fit
    m[BASE + k] = row if kind != c.ABSENT and takes else -1
    m[ROWS + k] = columns if turned else rows
    m[FILLED + k] = rows > 0 if turned else columns > 0
    if takes and kind == c.IN_ACC:
        m[c.EX_STATE] = STALLED


@part
def bank_of(m: Array, k: int, row: int) -> int:
    """Return the bank of a row of operand `k`, or a negative number of its own if there is no operand."""
    return (m[BASE + k] + row & m[c.SPAD]) >> m[c.LG_SPAD_BANK] if m[BASE + k] >= 0 else -1 - k


@part
def must_wait(m: Array, k: int, other: int, same_bank: bool, next_other: int) -> bool:
    """Return whether operand `k` waits for another: it is one row ahead, or comes later in the same bank."""
    begun, begun_other = m[BEGUN] >> k & 1, m[BEGUN] >> other & 1
    ahead = begun != 0 and m[AT + k] == next_other
    return ahead or (same_bank and other < k and begun == begun_other and m[AT + k] == m[AT + other])


@part
def read(m: Array, t: int) -> None:
    """Read the next row of each operand whose turn it is, and send control signals to the array."""
    last = m[TOTAL] - 1
    a, b, d, begun = m[AT], m[AT + 1], m[AT + 2], m[BEGUN]
    bank_a, bank_b, bank_d = bank_of(m, 0, m[OFFSET]), bank_of(m, 1, b), bank_of(m, 2, m[c.DIM] - 1 - d)
    ab, ad, bd = bank_a == bank_b, bank_a == bank_d, bank_b == bank_d
    together = a == b and b == d and begun in (0, ALL) and not (ab or ad or bd) and last > 0
    a_goes = b_goes = d_goes = True
    if not together:
        after_a, after_b, after_d = 0 if a == last else a + 1, 0 if b == last else b + 1, 0 if d == last else d + 1
        a_goes = not (must_wait(m, 0, 1, ab, after_b) or must_wait(m, 0, 2, ad, after_d))
        b_goes = not (must_wait(m, 1, 0, ab, after_a) or must_wait(m, 1, 2, bd, after_d))
        d_goes = not (must_wait(m, 2, 0, ad, after_a) or must_wait(m, 2, 1, bd, after_b))
    control = (begun == 0) << 3 | m[OP] << 32
    control |= fetch(m, 0, bank_a, a, a_goes) | fetch(m, 1, bank_b, b, b_goes)
    control |= fetch(m, 2, bank_d, m[c.DIM] - 1 - d, d_goes)
    push(m, c.CONTROL, control)
    if control & 1:
        m[OFFSET] = 0 if a == last else m[OFFSET] + m[A_STRIDE]
    m[BEGUN] |= control & ALL
    if together and control & ALL == ALL:
        m[AT] = m[AT + 1] = m[AT + 2] = 0 if a == last else a + 1
        ends = a == last
    else:
        ends = begun != 0
        for k in range(3):
            at, goes = m[AT + k], control >> k & 1
            ends = ends and ((at == last and goes != 0) or at == 0)
            if goes:
                m[AT + k] = 0 if at == last else at + 1
    if ends:
        m[BEGUN] = 0
        finish(m, t)


@part
def fetch(m: Array, k: int, bank: int, row: int, goes: bool) -> int:
    """Ask a bank for a row of operand `k`; return the control signals for it: the operand goes on, its bank.

    Rows beyond the operand's are zeros, which need no reading. A bank cannot be read while it is written, or while the
    row before waits for its pipe.
    """
    if not goes:
        return 0
    signals = 1 << k
    if bank >= 0 and row < m[ROWS + k]:
        m[c.EX_READS] |= 1 << bank
        if (m[c.SPAD_WRITES] | m[c.TO_ARRAY + c.HELD] | m[c.TO_WRITER + c.HELD]) >> bank & 1:
            return 0
        m[c.TO_ARRAY + c.FETCHED] |= 1 << bank
        m[c.TO_ARRAY + c.UNDER_WAY] = 1
        if m[FILLED + k]:
            signals |= (bank + 1) << (8 + 8 * k)
    return signals


@called
def finish(m: Array, t: int) -> None:
    """End an operation: its commands leave, and those without a result are complete."""
    m[c.PROGRESS] += 1
    m[c.EX_STATE] = IDLE
    first = at(c.COMMANDS, pop(m, c.EXECUTES, t))
    if m[MODE] == ONLY_PRELOAD:
        m[c.PENDING] = m[first + ENTRY] if is_garbage(m, m[first + RS2]) else -1
    else:
        m[c.PENDING] = m[first + ENTRY]
        if m[MODE] == BOTH:
            second = at(c.COMMANDS, pop(m, c.EXECUTES, t))
            m[c.PENDING + 1] = m[second + ENTRY] if is_garbage(m, m[second + RS2]) else -1


@part
def step_banks(m: Array, reader: int) -> None:
    """Move rows that were read through the pipes to a reader; one is held in its bank if the pipe is stalled.

    A row stays in its stage only while all later stages hold rows (Pipeline.scala).
    """
    s = reader + c.STAGES
    first, second, third, last = m[s], m[s + 1], m[s + 2], m[s + 3]
    entering = m[reader + c.FETCHED] | m[reader + c.HELD]
    stays_third = third & last
    stays_second = second & stays_third
    stays = first & stays_second
    m[s], m[s + 1] = entering | stays, stays_second | first & ~stays
    m[s + 2], m[s + 3] = stays_third | second & ~stays_second, last | third
    m[reader + c.FETCHED], m[reader + c.HELD] = 0, entering & stays
    if (m[s] ^ first) | (m[s + 1] ^ second) | (m[s + 2] ^ third) | (m[s + 3] ^ last):
        m[c.ACTIVE] = 1
    m[reader + c.UNDER_WAY] = (m[s] | m[s + 1] | m[s + 2] | m[s + 3]) != 0
