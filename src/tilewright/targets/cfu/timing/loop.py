"""The CPU's loop: each iteration computes the values and cycles of one instruction. Numba compiles the loop.

The clock `t` is the cycle in which the current instruction executes. For each register, `ready` has the first cycle in
which the register can be read. Only instructions with a late result change `ready`: loads, shifts, products, quotients
and CFU instructions. The functions in isa/ compute the values. Devices, CSRs and traps leave the loop for
runtime/core.py. The loop sends commands to the CFU (the model or the user's) by calling an address of machine code.

An iteration takes about 10 ns, so the loop counts as little as possible. Executions of instructions are derived from
the jumps (`entered`), and the number of retired instructions is updated only at jumps.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.sim.native import call_c, call_loop
from tilewright.targets.cfu.config import LINE_BYTES, RAM_BASE
from tilewright.targets.cfu.isa import rv32
from tilewright.targets.cfu.isa.rv32 import IMM, LOW, RD, RS1, RS2
from tilewright.targets.cfu.isa.state import Reg

from . import state
from .costs import Costs
from .state import DATA, INSTRUCTIONS, Cause, Cpu, Machine, fill, post


class Port(NamedTuple):
    """Addresses of a CFU's machine code. `model` is the address of the compiled model; 0 for other CFUs.

    A CFU that is not the model has the function `command(unit, function, a, b, start, cycle, answers)`. It executes a
    command, writes the answer and its cycle to the two words at `answers`, and returns a fault or 0. Cycle 0 of the CPU
    is cycle `start` of the CFU. After a fault, `fail(fault, function, cycle, pc)` decides whether the program must
    stop; if `fail` is 0, the program always stops.
    """

    model: int = 0
    command: int = 0
    unit: int = 0
    start: int = 0
    answers: int = 0
    fail: int = 0


def command(port: Port, m: Machine, function: int, a: int, b: int, cycle: int) -> bool:
    """Send a command to the CFU, which writes Reg.ANSWER and Reg.READY. Return False if the program must stop."""
    if port.model:
        call_loop(port.model, m.cfu, m.buffers, m.ram.byte, function, a, b, cycle)
        return True
    fault = call_c(port.command, port.unit, function, a, b, port.start, cycle, port.answers)
    return fault == 0 or (port.fail != 0 and call_c(port.fail, fault, function, cycle, m.cfu[Reg.PC]) == 0)


#: log2 of the instructions in a line of the instruction cache.
LINE = (LINE_BYTES // 4).bit_length() - 1
#: The target of an instruction that does not jump. An odd number cannot be the target of a jump.
NEXT = -1


@compiled
def loop(m: Machine, c: Costs, port: Port) -> None:
    """Run the program until an instruction must leave the loop; m.cpu holds the reason and the position."""
    run(m, c, port, False)


@compiled
def watching_loop(m: Machine, c: Costs, port: Port) -> None:
    """Run the program like `loop`. A load or store of watched memory leaves the loop as well."""
    run(m, c, port, True)


@part
def run(m: Machine, c: Costs, port: Port, watching: bool) -> None:
    cpu = m.cpu
    fetched = -1  # the cache line of the current instruction
    t = cpu[Cpu.CYCLE]
    i = cpu[Cpu.POSITION]
    first = cpu[Cpu.FIRST]
    retired = cpu[Cpu.RETIRED]
    cpu[Cpu.ADDRESS] = 0
    while True:
        if i >> LINE != fetched:
            if i >= m.code.shape[0]:
                reason = outside_code(m, i << 2)
                break
            fetched = i >> LINE
            t = fetch(m, c, i, t)
        insn = m.code[i]
        op = insn & 255
        imm = insn >> IMM
        t = wait_for_operands(m, i, t)
        a = m.regs[insn >> RS1 & 255]
        b = m.regs[insn >> RS2 & 255]
        target = NEXT

        if op < rv32.LOAD:
            t = compute(m, c, i, a, b + imm, t)
        elif op < rv32.BRANCH:
            at = ((a + imm) & LOW) - RAM_BASE
            reason = refused(m, op, at, watching)
            if reason != state.STAYS:
                cpu[Cpu.ADDRESS] = at + RAM_BASE
                break
            t = load(m, c, i, at, t) if op < rv32.STORE else store(m, c, i, at, b, t)
        elif op < rv32.SYSTEM:
            target = jump(m, insn, i, a, b)
            t = control(m, c, i, target != NEXT, t)
        elif op == rv32.CUSTOM0:
            t = custom(m, port, i, a, b, t)
            if t == state.FAILED:
                reason = state.TO_CFU
                break
        else:
            reason = state.TO_SYSTEM
            break

        t += 1
        if target == NEXT:
            i += 1
            continue
        if target & 3 or target < 0 or target >= 4 * m.code.shape[0]:
            reason = outside_code(m, target)
            break
        retired += i + 1 - first
        i = first = enter(m, i + 1, target >> 2)
        if retired >= cpu[Cpu.LIMIT]:
            reason = state.TO_LIMIT
            break
    leave(cpu, t, i, first, retired, reason)


@part
def outside_code(m: Machine, offset: int) -> int:
    """Record a jump to `offset` from the code's base, where there is no code. Return the reason to leave the loop."""
    m.cpu[Cpu.ADDRESS] = m.base + offset
    return state.TO_TARGET


@part
def enter(m: Machine, end: int, start: int) -> int:
    """Record a jump: a sequence of instructions ends before `end`, and the next begins at `start`. Return `start`.

    The running sum of `entered` is the number of executions of each instruction.
    """
    m.entered[end] -= 1
    m.entered[start] += 1
    return start


@part
def leave(cpu: Array, t: int, i: int, first: int, retired: int, reason: int) -> None:
    cpu[Cpu.CYCLE] = t
    cpu[Cpu.POSITION] = i
    cpu[Cpu.FIRST] = first
    cpu[Cpu.RETIRED] = retired
    cpu[Cpu.REASON] = reason


@part
def wait_for_operands(m: Machine, i: int, t: int) -> int:
    """Return the cycle in which both operands of an instruction can be read. The later operand causes the wait."""
    rs1 = m.code[i] >> RS1 & 255
    rs2 = m.code[i] >> RS2 & 255
    if m.ready[rs1] > t or m.ready[rs2] > t:
        later = rs1 if m.ready[rs1] >= m.ready[rs2] else rs2
        t += wait(m, i, m.late[later], m.ready[later] - t)
    return t


@part
def fetch(m: Machine, c: Costs, i: int, t: int) -> int:
    """Fetch the line of instruction number i. Return the cycle in which the instruction can be executed."""
    line = (i + ((m.base - RAM_BASE) >> 2)) >> LINE
    place = line & m.itags.shape[0] - 1
    if m.itags[place] == line:
        return t
    m.itags[place] = line
    return t + wait(m, i, Cause.FETCH, fill(m.bus, m.cpu, c, INSTRUCTIONS, line << (LINE + 2), t) - t)


@part
def compute(m: Machine, c: Costs, i: int, a: int, b: int, t: int) -> int:
    function = m.code[i] & 31
    rd = m.code[i] >> RD & 255
    m.regs[rd] = rv32.arithmetic(function, a, b)
    if function >= rv32.DIV:
        # A division stalls its own stage and all later stages. A load or product in a later stage is delayed, too.
        last = m.cpu[Cpu.LAST]
        if m.ready[last] > t + 1:
            m.ready[last] += c.divide
        t += wait(m, i, Cause.DIVIDE, c.divide)
        m.ready[rd] = t + 1 + c.divide_use
    elif function >= rv32.MUL:
        m.cpu[Cpu.LAST] = rd
        m.ready[rd] = t + 1 + c.multiply_use
    elif function == rv32.SLL or function == rv32.SRL or function == rv32.SRA:
        m.ready[rd] = t + 1 + c.shift_use
    else:
        return t
    m.late[rd] = Cause.RESULT_USE
    return t


@part
def load(m: Machine, c: Costs, i: int, at: int, t: int) -> int:
    op = m.code[i] & 255
    rd = m.code[i] >> RD & 255
    cpu = m.cpu
    line = at // LINE_BYTES
    m.regs[rd] = rv32.load(op & 31, m.ram, at)
    place = line & m.dtags.shape[0] - 1
    if m.dtags[place] != line:
        m.dtags[place] = line
        t += wait(m, i, Cause.LOAD_MISS, fill(m.bus, cpu, c, DATA, at, t) - t)
    elif t - cpu[Cpu.STORED_AT] <= 2 and stored(cpu, op, at, t):  # the cache must read the word again
        t += wait(m, i, Cause.REDO, c.redo)
    cpu[Cpu.LAST] = rd
    m.ready[rd] = t + 1 + c.load_use
    m.late[rd] = Cause.LOAD_USE
    cpu[Cpu.BARRIER] = t + c.drain
    return t


@part
def store(m: Machine, c: Costs, i: int, at: int, value: int, t: int) -> int:
    op = m.code[i] & 255
    cpu = m.cpu
    rv32.store(op & 31, m.ram, at, value)
    # The data cache is write-through without write-allocate, so its tags do not change.
    end = post(m.bus, cpu, c, at, t)
    if end > t:
        t += wait(m, i, Cause.STORE, end - t)
    cpu[Cpu.BEFORE], cpu[Cpu.BEFORE_AT] = cpu[Cpu.STORED], cpu[Cpu.STORED_AT]
    cpu[Cpu.STORED] = at >> 2 << 4 | bytes_of(op, at)
    cpu[Cpu.STORED_AT] = t
    cpu[Cpu.BARRIER] = t + c.drain
    return t


@part
def jump(m: Machine, insn: int, i: int, a: int, b: int) -> int:
    """Execute a branch or jump. Return the target as a byte offset in the code, or NEXT if the branch is not taken."""
    op = insn & 255
    imm = insn >> IMM
    if op < rv32.JUMP:
        return 4 * i + imm if rv32.taken(op & 31, a, b) else NEXT
    m.regs[insn >> RD & 255] = m.base + 4 * i + 4
    return ((a + imm) & (LOW - 1)) - m.base if op == rv32.JALR else 4 * i + imm


@part
def control(m: Machine, c: Costs, i: int, taken: bool, t: int) -> int:
    op = m.code[i] & 255
    imm = m.code[i] >> IMM
    m.cpu[Cpu.BARRIER] = t + c.drain
    if op >= rv32.JUMP:
        return t + wait(m, i, Cause.BRANCH, c.jump_register if op == rv32.JALR else c.jump)
    if taken or imm < 0:
        return t + wait(m, i, Cause.BRANCH, branch_cycles(c, taken, imm, m.code[i + 1], m.ready, t))
    return t


@part
def custom(m: Machine, port: Port, i: int, a: int, b: int, t: int) -> int:
    insn = m.code[i]
    cpu = m.cpu
    rd = insn >> RD & 255
    last = cpu[Cpu.LAST]
    t += command_waits(m, i, t)
    m.cfu[Reg.PC] = m.base + 4 * i
    m.cfu[Reg.REGION] = cpu[Cpu.REGION]
    if not command(port, m, insn >> IMM, a, b, t):
        return state.FAILED
    done = m.cfu[Reg.READY]
    m.regs[rd] = m.cfu[Reg.ANSWER]
    cpu[Cpu.CFU_FREE] = done + 1
    if done > t + 1:
        # The pipeline waits, because the answer is not ready in the cycle after the command.
        more = wait(m, i, Cause.CFU, done - t - 1)
        if m.ready[last] > t + 1:  # a load or product in a later stage is delayed, too
            m.ready[last] += more
        t = done - 1
    m.ready[rd] = done + 1
    m.late[rd] = Cause.CFU_USE
    return t


def wait(m: Machine, i: int, cause: int, cycles: int) -> int:
    """Record that instruction number i loses `cycles` to `cause`. Return `cycles`."""
    m.lost[i, cause] += cycles
    m.times[i, cause] += 1
    return cycles


@part
def refused(m: Machine, op: int, at: int, watching: bool) -> int:
    """Return the reason for which a load or store at offset `at` of RAM must leave the loop; STAYS if it can stay."""
    if watching and watched(m.watched, op, at + RAM_BASE):
        return state.TO_WATCH
    if at < 0 or at >= m.ram.byte.shape[0]:
        return state.TO_DEVICE
    width = op & 3
    if (width == rv32.WORD and at & 3) or (width == rv32.HALF and at & 1):
        return state.TO_MISALIGNED
    if op >= rv32.STORE and 0 <= at + RAM_BASE - m.base < 4 * m.code.shape[0]:
        return state.TO_CODE
    return state.STAYS


def watched(ranges: Array, op: int, address: int) -> bool:
    end = address + (1 << (op & 3))
    kind = state.WRITES if op >= rv32.STORE else state.READS
    for row in range(ranges.shape[0]):
        if ranges[row, 0] < end and address < ranges[row, 1] and ranges[row, 2] & kind:
            return True
    return False


def stored(cpu: Array, op: int, at: int, t: int) -> bool:
    """Return whether a load reads a byte that one of the last two stores wrote one or two cycles ago."""
    touched = bytes_of(op, at)
    first, second = cpu[Cpu.STORED], cpu[Cpu.BEFORE]
    return (first >> 4 == at >> 2 and first & touched != 0) or (
        t - cpu[Cpu.BEFORE_AT] <= 2 and second >> 4 == at >> 2 and second & touched != 0
    )


def bytes_of(op: int, at: int) -> int:
    """Return a 4-bit mask of the bytes that a load or store at `at` accesses in a 32-bit word."""
    width = op & 3
    return (15 if width == rv32.WORD else 1 if width == rv32.BYTE else 3) << (at & 3)


def branch_cycles(c: Costs, taken: bool, imm: int, wrong: int, ready: Array, t: int) -> int:
    """Return the extra cycles of a branch that is taken or goes backward.

    VexRiscv predicts backward branches as taken and forward branches as not taken. `wrong` is the instruction after the
    branch in memory, which is already in decode.
    """
    if taken and imm < 0:
        return c.taken
    # If `wrong` waits for a register, the branch target comes a cycle later.
    if taken and max(ready[wrong >> RS1 & 255], ready[wrong >> RS2 & 255]) > t + 1:
        return c.mispredicted + 1
    return c.mispredicted


def command_waits(m: Machine, i: int, t: int) -> int:
    """Return the number of cycles until the CFU accepts a command.

    A command cannot be undone, so all earlier loads, stores and jumps must have completed (BARRIER).
    """
    drained = max(m.cpu[Cpu.BARRIER], t)
    free = m.cpu[Cpu.CFU_FREE]
    if drained > t:
        wait(m, i, Cause.DRAIN, drained - t)
    if free > drained:
        wait(m, i, Cause.CFU, free - drained)
    return max(drained, free) - t
