"""The CPU loop: one iteration per instruction computes values and cycles. Numba compiles it with all that it calls.

The clock `t` is the cycle in which the current instruction executes. `ready` is the first cycle in which a register can
be read; only late results (of loads, shifts, products, quotients and the CFU) set it. isa/ computes the values.
Devices, CSRs and traps leave the loop for runtime/core.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import LINE_BYTES, RAM_BASE
from tilewright.targets.cfu.isa import rv32
from tilewright.targets.cfu.isa.rv32 import IMM, LOW, RD, RS1, RS2
from tilewright.targets.cfu.isa.state import Reg
from tilewright.targets.cfu.jit import callee, native, version

from . import state
from .costs import Costs
from .state import DATA, INSTRUCTIONS, Cause, Cpu, Machine, fill, post

_numba: Any = numba  # numba has no type annotations
#: log2 of the instructions in a line of the instruction cache.
LINE = (LINE_BYTES // 4).bit_length() - 1
#: The target if there is no jump: real targets are even.
NEXT = -1


def make_loop(build: int, watching: bool = False) -> Callable[..., None]:
    """Return the CPU's loop, uncompiled. `build` is `jit.version()`, which the disk cache depends on.

    With `watching`, a load or store of watched memory leaves the loop; Numba leaves the check out of other loops.
    """

    def loop(m: Machine, c: Costs, execute: Any) -> None:
        """Run the program until an instruction must leave the loop; m.cpu holds the reason and the position."""
        _ = build  # a closure variable, and so part of the key in Numba's cache
        cpu, code, regs, ready, late, base = m.cpu, m.code, m.regs, m.ready, m.late, m.base
        lost, times, entered = m.lost, m.times, m.entered
        itags, imask, dtags, dmask = m.itags, m.itags.shape[0] - 1, m.dtags, m.dtags.shape[0] - 1
        count, size = code.shape[0], m.ram.byte.shape[0]
        fetched = -1  # the cache line of the current instruction
        t, i, first, retired = cpu[Cpu.CYCLE], cpu[Cpu.POSITION], cpu[Cpu.FIRST], cpu[Cpu.RETIRED]
        last = cpu[Cpu.LAST]
        reason, address = state.TO_SYSTEM, 0
        while True:
            if i >> LINE != fetched:
                if i >= count:
                    reason, address = state.TO_TARGET, base + 4 * i
                    break
                fetched = i >> LINE
                line = fetched + ((base - RAM_BASE) >> (LINE + 2))
                if itags[line & imask] != line:
                    itags[line & imask] = line
                    end = fill(m.bus, cpu, c, INSTRUCTIONS, line << (LINE + 2), t)
                    t += wait(lost, times, i, Cause.FETCH, end - t)
            insn = code[i]
            op, rd, one, two = insn & 255, insn >> RD & 255, insn >> RS1 & 255, insn >> RS2 & 255
            if ready[one] > t or ready[two] > t:
                by = one if ready[one] >= ready[two] else two
                t += wait(lost, times, i, late[by], ready[by] - t)
            a, b, imm = regs[one], regs[two], insn >> IMM
            target = NEXT

            if op < rv32.LOAD:
                function = op & 31
                regs[rd] = rv32.arithmetic(function, a, b + imm)
                if function >= rv32.MUL:
                    if function >= rv32.DIV:
                        if ready[last] > t + 1:
                            ready[last] += c.divide
                        t += wait(lost, times, i, Cause.DIVIDE, c.divide)
                        ready[rd] = t + 1 + c.divide_use
                    else:
                        last = rd
                        ready[rd] = t + 1 + c.multiply_use
                    late[rd] = Cause.RESULT_USE
                elif function == rv32.SLL or function == rv32.SRL or function == rv32.SRA:
                    ready[rd] = t + 1 + c.shift_use
                    late[rd] = Cause.RESULT_USE
            elif op < rv32.BRANCH:
                at = ((a + imm) & LOW) - RAM_BASE
                if watching and watched(m.watched, op, at + RAM_BASE):
                    reason, address = state.TO_WATCH, at + RAM_BASE
                    break
                reason = refused(op, at, size, at - (base - RAM_BASE), 4 * count)
                if reason != state.STAYS:
                    address = at + RAM_BASE
                    break
                if op < rv32.STORE:
                    regs[rd] = rv32.load(op & 31, m.ram, at)
                    line = at // LINE_BYTES
                    if dtags[line & dmask] != line:
                        dtags[line & dmask] = line
                        t += wait(lost, times, i, Cause.LOAD_MISS, fill(m.bus, cpu, c, DATA, at, t) - t)
                    elif t - cpu[Cpu.STORED_AT] <= 2 and stored(cpu, op, at, t):
                        t += wait(lost, times, i, Cause.REDO, c.redo)
                    last = rd
                    ready[rd] = t + 1 + c.load_use
                    late[rd] = Cause.LOAD_USE
                else:
                    rv32.store(op & 31, m.ram, at, b)
                    end = post(m.bus, cpu, c, at, t)
                    if end > t:
                        t += wait(lost, times, i, Cause.STORE, end - t)
                    cpu[Cpu.BEFORE], cpu[Cpu.BEFORE_AT] = cpu[Cpu.STORED], cpu[Cpu.STORED_AT]
                    cpu[Cpu.STORED], cpu[Cpu.STORED_AT] = at >> 2 << 4 | bytes_of(op, at), t
                cpu[Cpu.BARRIER] = t + c.drain
            elif op < rv32.JUMP:
                taken = rv32.taken(op & 31, a, b)
                if taken:
                    target = 4 * i + imm
                cpu[Cpu.BARRIER] = t + c.drain
                if taken or imm < 0:
                    t += wait(lost, times, i, Cause.BRANCH, branch_cycles(c, taken, imm, code[i + 1], ready, t))
            elif op < rv32.OTHER:
                regs[rd] = base + 4 * i + 4
                target = ((a + imm) & (LOW - 1)) - base if op == rv32.JALR else 4 * i + imm
                cpu[Cpu.BARRIER] = t + c.drain
                t += wait(lost, times, i, Cause.BRANCH, c.jump_register if op == rv32.JALR else c.jump)
            elif op == rv32.CUSTOM0:
                t += command_waits(cpu, lost, times, i, t)
                m.cfu[Reg.PC], m.cfu[Reg.REGION] = base + 4 * i, cpu[Cpu.REGION]
                result, done = execute(m.cfu, m.buffers, m.ram.byte, imm >> 3, imm & 7, np.int64(a), np.int64(b), t)
                regs[rd] = result
                cpu[Cpu.CFU_FREE] = done + 1
                if done > t + 1:
                    more = wait(lost, times, i, Cause.CFU, done - t - 1)
                    if ready[last] > t + 1:  # the pipeline stages after execution stall meanwhile
                        ready[last] += more
                    t = done - 1
                ready[rd] = done + 1
                late[rd] = Cause.CFU_USE
            else:
                reason = state.TO_SYSTEM
                break

            t += 1
            i += 1
            if target != NEXT:
                if target & 3 or target < 0 or target >= 4 * count:
                    i -= 1
                    reason, address = state.TO_TARGET, target + base
                    break
                entered[i] -= 1
                retired += i - first
                i = first = target >> 2
                entered[i] += 1
                if retired >= cpu[Cpu.LIMIT]:
                    reason = state.TO_LIMIT
                    break

        cpu[Cpu.CYCLE], cpu[Cpu.POSITION], cpu[Cpu.FIRST], cpu[Cpu.RETIRED] = t, i, first, retired
        cpu[Cpu.REASON], cpu[Cpu.ADDRESS], cpu[Cpu.LAST] = reason, address, last

    if watching:
        loop.__qualname__ = "watching_loop"  # Numba names machine code after the function
    return loop


@callee
def wait(lost: Array, times: Array, i: int, cause: int, cycles: int) -> int:
    """Count `cycles` that instruction number i loses to `cause`, and return `cycles`."""
    lost[i, cause] += cycles
    times[i, cause] += 1
    return cycles


@callee
def refused(op: int, at: int, size: int, in_code: int, code_bytes: int) -> int:
    """Return why a load or store leaves the loop, or STAYS. `at` is its offset in RAM, `in_code` its offset in code."""
    if at < 0 or at >= size:
        return state.TO_DEVICE
    width = op & 3
    if (width == rv32.WORD and at & 3) or (width == rv32.HALF and at & 1):
        return state.TO_MISALIGNED
    if op >= rv32.STORE and 0 <= in_code < code_bytes:
        return state.TO_CODE
    return state.STAYS


@callee
def watched(ranges: Array, op: int, address: int) -> bool:
    """Return whether a load or store at `address` touches one of the watched `ranges` (see Machine)."""
    end, kind = address + (1 << (op & 3)), state.WRITES if op >= rv32.STORE else state.READS
    for row in range(ranges.shape[0]):
        if ranges[row, 0] < end and address < ranges[row, 1] and ranges[row, 2] & kind:
            return True
    return False


@callee
def stored(cpu: Array, op: int, at: int, t: int) -> bool:
    """Return whether a load reads a byte that one of the last two stores wrote one or two cycles ago."""
    touched = bytes_of(op, at)
    first, second = cpu[Cpu.STORED], cpu[Cpu.BEFORE]
    return (first >> 4 == at >> 2 and first & touched != 0) or (
        t - cpu[Cpu.BEFORE_AT] <= 2 and second >> 4 == at >> 2 and second & touched != 0
    )


@callee
def bytes_of(op: int, at: int) -> int:
    """Return a 4-bit mask of the bytes that a load or store at `at` accesses in a 32-bit word."""
    width = op & 3
    return (15 if width == rv32.WORD else 1 if width == rv32.BYTE else 3) << (at & 3)


@callee
def branch_cycles(c: Costs, taken: bool, imm: int, wrong: int, ready: Array, t: int) -> int:
    """Return the extra cycles of a branch that is taken or goes backward. `wrong` is the next instruction in memory."""
    if taken and imm < 0:
        return c.taken
    # The instruction after a branch is already in decode. If it waits for a register, it delays the branch target.
    if taken and max(ready[wrong >> RS1 & 255], ready[wrong >> RS2 & 255]) > t + 1:
        return c.mispredicted + 1
    return c.mispredicted


@callee
def command_waits(cpu: Array, lost: Array, times: Array, i: int, t: int) -> int:
    """Return the cycles until the CFU takes a command. Commands cannot be undone, so all earlier instructions must
    have completed."""
    drained, free = max(cpu[Cpu.BARRIER], t), cpu[Cpu.CFU_FREE]
    if drained > t:
        wait(lost, times, i, Cause.DRAIN, drained - t)
    if free > drained:
        wait(lost, times, i, Cause.CFU, free - drained)
    return max(drained, free) - t


def compiled(m: Machine, costs: Costs, seam: Any, watching: bool = False) -> Any:
    """Return the loop compiled for this machine and for CFUs of the signature `seam`. `watching`: see `make_loop`."""
    return _compiled(_numba.typeof(m), _numba.typeof(costs), seam, watching)


@cache
def _compiled(machine: Any, costs: Any, seam: Any, watching: bool) -> Any:
    types = _numba.types
    return native(make_loop(version(), watching), types.void(machine, costs, types.FunctionType(seam)))
