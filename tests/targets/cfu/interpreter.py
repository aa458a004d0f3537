"""The instructions' descriptions run as they are, uncompiled: what the compiled loop and CFU are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import RAM_BASE
from tilewright.targets.cfu.isa import gemm, rv32
from tilewright.targets.cfu.isa.custom import CUSTOM
from tilewright.targets.cfu.isa.gemm import wrapped
from tilewright.targets.cfu.isa.rv32 import BRANCH, IMM, JALR, JUMP, LOAD, NOWHERE, RD, RS1, RS2, STORE, SYSTEM
from tilewright.targets.cfu.isa.state import Reg


def interpret(words: Sequence[int], data: bytes, address: int) -> tuple[list[int], bytes]:
    """Registers and data after a program without custom-0 and system instructions; `data` lies at `address`."""
    code = rv32.decode(np.array(words, np.uint32), RAM_BASE).tolist()
    at = address - RAM_BASE
    ram = np.zeros(at + len(data), np.uint8)
    ram[at:] = np.frombuffer(data, np.uint8)
    memory = rv32.Memory(ram, ram.view(np.uint16), ram.view(np.int32))
    regs, pc = [0] * (NOWHERE + 1), 0
    while pc < 4 * len(code):
        insn = code[pc >> 2]
        op, rd, imm = insn & 255, insn >> RD & 255, insn >> IMM
        a, b, following = regs[insn >> RS1 & 255], regs[insn >> RS2 & 255], pc + 4
        offset = (a + imm) % (1 << 32) - RAM_BASE
        if op < LOAD:
            regs[rd] = wrapped(rv32.arithmetic(op & 31, a, b + imm))
        elif op < STORE:
            regs[rd] = int(rv32.load(op & 31, memory, offset))
        elif op < BRANCH:
            rv32.store(op & 31, memory, offset, b)
        elif op < JUMP:
            following = pc + imm if rv32.taken(op & 31, a, b) else following
        else:
            assert op < SYSTEM
            regs[rd], following = RAM_BASE + following, offset & ~1 if op == JALR else pc + imm
        pc = following
    return [value % (1 << 32) for value in regs[:NOWHERE]], ram[at:].tobytes()


def command(regs: Array, buffers: Array, ram: Array, funct7: int, a: int, b: int, cycle: int) -> tuple[int, int]:
    """One instruction of the table: its answer, and when that is there."""
    regs[Reg.FUNCT7], regs[Reg.READY] = funct7, cycle + 1
    gemm.settle(regs, buffers, cycle)
    CUSTOM[funct7].meaning(regs, buffers, ram, a, b, cycle)
    return int(regs[Reg.ANSWER]), int(regs[Reg.READY])
