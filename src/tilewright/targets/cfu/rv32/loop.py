"""The loop: one iteration an instruction, values and cycles together. Compiled by Numba, with what it calls.

The clock `t` is the cycle in which the current instruction is executed. A register's `ready` is the first cycle in
which it can be read; only results that come late (loads, products, quotients, the CFU's) set it. What leaves the loop
(devices, CSRs, traps) is the business of rv32/core.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.targets.cfu.config import LINE_BYTES, RAM_BASE
from tilewright.targets.cfu.timing import Costs

from .bus import DATA, INSTRUCTIONS, fill, store
from .decode import IMM, RD, RS1, RS2
from .ops import Op
from .state import Cause, Cpu, Leave, Machine

# Members of enumerations as plain numbers: compiled, the others cost a call each.
(
    ADDI, LW, ADD, LB, SW, LI, MUL, SLLI, LBU, SB, BNE, BEQ, BLT, BGE, BLTU, BGEU, JAL, JALR, CUSTOM0, SRLI,
    SRAI, ANDI, ORI, XORI, SLTI, SLTIU, SUB, SLL, SRL, SRA, AND, OR, XOR, SLT, SLTU, MULH, MULHSU, MULHU, DIV,
    DIVU, REM, REMU, LH, LHU, SH, CSRRW, CSRRS, CSRRC, CSRRWI, CSRRSI, CSRRCI, FENCE, FENCE_I, FLUSH, ECALL,
    EBREAK, MRET, WFI, ILLEGAL,
) = map(int, Op)  # fmt: skip
(
    CYCLE, POSITION, FIRST, RETIRED, LIMIT, REASON, ADDRESS, VALUE, BUS_FREE, CFU_FREE, STORED, STORED_AT,
    BEFORE, BEFORE_AT, BARRIER, TURN, OWNER, REGION, READ, WRITTEN,
) = map(int, Cpu)  # fmt: skip
(
    TO_LIMIT, TO_SYSTEM, TO_DEVICE, TO_MISALIGNED, TO_TARGET, TO_CODE,
) = map(int, Leave)  # fmt: skip
(
    BY_LOAD_USE, BY_RESULT_USE, BY_CFU_USE, BY_DIVIDE, BY_BRANCH, BY_FETCH, BY_LOAD_MISS, BY_STORE, BY_REDO,
    BY_DRAIN, BY_CFU, BY_DEVICE, BY_SYSTEM,
) = map(int, Cause)  # fmt: skip

#: Instructions in a line of the instruction cache, log2.
LINE = (LINE_BYTES // 4).bit_length() - 1
LOW = 0xFFFFFFFF
#: No jump; targets are even.
STAY = -1


def make_loop(build: int) -> Callable[..., None]:
    """The loop, uncompiled; `build` stands for the sources of all that it calls."""

    def loop(m: Machine, c: Costs, execute: Any) -> None:
        """Run until something is not the loop's business; what, and where, is in m.cpu."""
        _ = build  # a variable of the closure, so part of the key under which Numba keeps the compiled loop
        cpu, code, regs, ready, late, ram, word, half = m.cpu, m.code, m.regs, m.ready, m.late, m.ram, m.word, m.half
        dtags, itags, cfu, buffers, entered, base = m.dtags, m.itags, m.cfu, m.buffers, m.entered, m.base
        dmask, imask, size, count = dtags.shape[0] - 1, itags.shape[0] - 1, ram.shape[0], code.shape[0]
        lost, times = m.lost, m.times
        fetched = -1  # the line that the current instruction is in
        code_first = base - RAM_BASE
        code_bytes = 4 * count
        t, i, first, retired = cpu[CYCLE], cpu[POSITION], cpu[FIRST], cpu[RETIRED]
        barrier = cpu[BARRIER]
        stored, stored_at, before, before_at = cpu[STORED], cpu[STORED_AT], cpu[BEFORE], cpu[BEFORE_AT]
        last = 0  # the register of the last load or product
        reason, address, value = TO_SYSTEM, 0, 0
        while True:
            if i >> LINE != fetched:
                if i >= count:
                    reason, address = TO_TARGET, base + 4 * i
                    break
                fetched = i >> LINE
                line = fetched + (code_first >> (LINE + 2))
                if itags[line & imask] != line:
                    itags[line & imask] = line
                    end = fill(
                        m.l2tags,
                        m.l2dirty,
                        m.rows,
                        cpu,
                        m.l2_shift,
                        m.row_shift,
                        c,
                        INSTRUCTIONS,
                        line << (LINE + 2),
                        t,
                    )
                    lost[i, BY_FETCH] += end - t
                    times[i, BY_FETCH] += 1
                    t = end
            insn = code[i]
            op, rd, one, two = insn & 255, insn >> RD & 255, insn >> RS1 & 255, insn >> RS2 & 255
            if ready[one] > t or ready[two] > t:
                by = one if ready[one] >= ready[two] else two
                lost[i, late[by]] += ready[by] - t
                times[i, late[by]] += 1
                t = ready[by]
            a, b, imm = regs[one], regs[two], insn >> IMM
            target = STAY

            if op == ADDI:
                regs[rd] = a + imm
            elif op == ADD:
                regs[rd] = a + b
            elif op == LW or op == LB or op == LBU or op == LH or op == LHU:
                at = ((a + imm) & LOW) - RAM_BASE
                if at < 0 or at >= size:
                    reason, address = TO_DEVICE, at + RAM_BASE
                    break
                if op == LW:
                    if at & 3:
                        reason, address = TO_MISALIGNED, at + RAM_BASE
                        break
                    regs[rd] = word[at >> 2]
                elif op == LBU:
                    regs[rd] = ram[at]
                elif op == LB:
                    regs[rd] = np.int8(ram[at])
                else:
                    if at & 1:
                        reason, address = TO_MISALIGNED, at + RAM_BASE
                        break
                    regs[rd] = half[at >> 1] if op == LHU else np.int16(half[at >> 1])
                line = at // LINE_BYTES
                if dtags[line & dmask] != line:
                    dtags[line & dmask] = line
                    end = fill(m.l2tags, m.l2dirty, m.rows, cpu, m.l2_shift, m.row_shift, c, DATA, at, t)
                    lost[i, BY_LOAD_MISS] += end - t
                    times[i, BY_LOAD_MISS] += 1
                    t = end
                elif t - stored_at <= 2:
                    bytes_read = (15 if op == LW else 1 if op == LB or op == LBU else 3) << (at & 3)
                    if (stored >> 4 == at >> 2 and stored & bytes_read) or (
                        t - before_at <= 2 and before >> 4 == at >> 2 and before & bytes_read
                    ):
                        lost[i, BY_REDO] += c.redo
                        times[i, BY_REDO] += 1
                        t += c.redo
                barrier = t + c.drain
                last = rd
                ready[rd] = t + 1 + c.load_use
                late[rd] = BY_LOAD_USE
            elif op == SW or op == SB or op == SH:
                at = ((a + imm) & LOW) - RAM_BASE
                if at < 0 or at >= size:
                    reason, address, value = TO_DEVICE, at + RAM_BASE, b
                    break
                if (op == SW and at & 3) or (op == SH and at & 1):
                    reason, address = TO_MISALIGNED, at + RAM_BASE
                    break
                if 0 <= at - code_first < code_bytes:
                    reason, address, value = TO_CODE, at + RAM_BASE, b
                    break
                if op == SW:
                    word[at >> 2] = b
                elif op == SB:
                    ram[at] = b
                else:
                    half[at >> 1] = b
                end = store(m.l2tags, m.l2dirty, m.rows, m.written, cpu, m.l2_shift, m.row_shift, c, at, t)
                if end > t:
                    lost[i, BY_STORE] += end - t
                    times[i, BY_STORE] += 1
                    t = end
                before, before_at = stored, stored_at
                stored_at = t
                stored = at >> 2 << 4 | (15 if op == SW else 1 if op == SB else 3) << (at & 3)
                barrier = t + c.drain
            elif BNE <= op <= BGEU:
                if op == BNE:
                    taken = a != b
                elif op == BEQ:
                    taken = a == b
                elif op == BLT:
                    taken = a < b
                elif op == BGE:
                    taken = a >= b
                elif op == BLTU:
                    taken = (a & LOW) < (b & LOW)
                else:
                    taken = (a & LOW) >= (b & LOW)
                if taken:
                    target = 4 * i + imm
                barrier = t + c.drain
                if taken or imm < 0:
                    spent = c.taken
                    if not taken or imm >= 0:
                        spent = c.mispredicted
                        wrong = code[i + 1]  # already being decoded; where it waits for a register, it is in the way
                        if taken and max(ready[wrong >> RS1 & 255], ready[wrong >> RS2 & 255]) > t + 1:
                            spent += 1
                    lost[i, BY_BRANCH] += spent
                    times[i, BY_BRANCH] += 1
                    t += spent
            elif op == LI:
                regs[rd] = imm
            elif op == MUL:
                regs[rd] = np.int64(a) * np.int64(b)
                last = rd
                ready[rd] = t + 1 + c.multiply_use
                late[rd] = BY_RESULT_USE
            elif op == SLLI or op == SRLI or op == SRAI or op == SLL or op == SRL or op == SRA:
                amount = b & 31 if op == SLL or op == SRL or op == SRA else imm
                if op == SLLI or op == SLL:
                    regs[rd] = np.int64(a) << amount
                elif op == SRLI or op == SRL:
                    regs[rd] = (a & LOW) >> amount
                else:
                    regs[rd] = a >> amount
                ready[rd] = t + 1 + c.shift_use
                late[rd] = BY_RESULT_USE
            elif op == ANDI:
                regs[rd] = a & imm
            elif op == CUSTOM0:
                if barrier > t:  # a command cannot be taken back, so what is before it must be sure to have happened
                    lost[i, BY_DRAIN] += barrier - t
                    times[i, BY_DRAIN] += 1
                    t = barrier
                if cpu[CFU_FREE] > t:
                    lost[i, BY_CFU] += cpu[CFU_FREE] - t
                    times[i, BY_CFU] += 1
                    t = cpu[CFU_FREE]
                cfu[0], cfu[1] = base + 4 * i, cpu[REGION]
                result, done = execute(cfu, buffers, ram, imm >> 3, imm & 7, np.int64(a), np.int64(b), t)
                regs[rd] = result
                cpu[CFU_FREE] = done + 1
                if done > t + 1:
                    lost[i, BY_CFU] += done - t - 1
                    times[i, BY_CFU] += 1
                    if ready[last] > t + 1:  # the stages behind stand still meanwhile
                        ready[last] += done - t - 1
                    t = done - 1
                ready[rd] = done + 1
                late[rd] = BY_CFU_USE
            elif op == JAL:
                regs[rd] = base + 4 * i + 4
                target = 4 * i + imm
                barrier = t + c.drain
                lost[i, BY_BRANCH] += c.jump
                times[i, BY_BRANCH] += 1
                t += c.jump
            elif op == JALR:
                regs[rd] = base + 4 * i + 4
                target = ((a + imm) & (LOW - 1)) - base
                barrier = t + c.drain
                lost[i, BY_BRANCH] += c.jump_register
                times[i, BY_BRANCH] += 1
                t += c.jump_register
            elif op == ORI:
                regs[rd] = a | imm
            elif op == XORI:
                regs[rd] = a ^ imm
            elif op == SLTI:
                regs[rd] = a < imm
            elif op == SLTIU:
                regs[rd] = (a & LOW) < (imm & LOW)
            elif op == SUB:
                regs[rd] = a - b
            elif op == AND:
                regs[rd] = a & b
            elif op == OR:
                regs[rd] = a | b
            elif op == XOR:
                regs[rd] = a ^ b
            elif op == SLT:
                regs[rd] = a < b
            elif op == SLTU:
                regs[rd] = (a & LOW) < (b & LOW)
            elif op == MULH or op == MULHSU or op == MULHU:
                if op == MULH:
                    regs[rd] = np.int64(a) * np.int64(b) >> 32
                elif op == MULHSU:
                    regs[rd] = np.int64(a) * (b & LOW) >> 32
                else:
                    regs[rd] = np.uint64(a & LOW) * np.uint64(b & LOW) >> np.uint64(32)
                last = rd
                ready[rd] = t + 1 + c.multiply_use
                late[rd] = BY_RESULT_USE
            elif DIV <= op <= REMU:
                signed = op == DIV or op == REM
                x, y = (np.int64(a), np.int64(b)) if signed else (a & LOW, b & LOW)
                if y == 0:
                    quotient, rest = -1, x
                else:
                    quotient = abs(x) // abs(y)
                    if (x < 0) != (y < 0):
                        quotient = -quotient
                    rest = x - quotient * y
                regs[rd] = quotient if op == DIV or op == DIVU else rest
                lost[i, BY_DIVIDE] += c.divide
                times[i, BY_DIVIDE] += 1
                if ready[last] > t + 1:
                    ready[last] += c.divide
                t += c.divide
                ready[rd] = t + 1 + c.divide_use
                late[rd] = BY_RESULT_USE
            else:
                reason = TO_SYSTEM
                break

            t += 1
            i += 1
            if target != STAY:
                if target & 3 or target < 0 or target >= code_bytes:
                    i -= 1
                    reason, address = TO_TARGET, target + base
                    break
                entered[i] -= 1
                retired += i - first
                i = first = target >> 2
                entered[i] += 1
                if retired >= cpu[LIMIT]:
                    reason = TO_LIMIT
                    break

        cpu[CYCLE], cpu[POSITION], cpu[FIRST], cpu[RETIRED] = t, i, first, retired
        cpu[BARRIER] = barrier
        cpu[STORED], cpu[STORED_AT], cpu[BEFORE], cpu[BEFORE_AT] = stored, stored_at, before, before_at
        cpu[REASON], cpu[ADDRESS], cpu[VALUE] = reason, address, value

    return loop
