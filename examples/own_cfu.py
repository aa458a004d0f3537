"""Is a custom instruction worth it? A dot product of 1024 int8 by plain RV32IM, and by a CFU written in Python here.

The CFU is any object with `execute(funct7, funct3, a, b, cycle) -> (value, ready cycle)`: it sees both operands as
int32 and says in which cycle its answer is there. The CPU, its caches and DRAM around it are the real design's.
With a file: `python examples/own_cfu.py FILE.elf` runs your own program on it (only funct7 1 exists).
"""

from __future__ import annotations

import sys

import numpy as np

from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.runtime import elf
from tilewright.targets.cfu.runtime.core import run

PLAIN = (
    0x40001537,  # lui  a0, 0x40001      x
    0x40050593,  # addi a1, a0, 1024     y
    0x40000613,  # addi a2, zero, 1024
    0x00000693,  # addi a3, zero, 0
    0x00050283,  # lb   t0, 0(a0)
    0x00058303,  # lb   t1, 0(a1)
    0x00150513,  # addi a0, a0, 1
    0x00158593,  # addi a1, a1, 1
    0x026282B3,  # mul  t0, t0, t1
    0xFFF60613,  # addi a2, a2, -1
    0x005686B3,  # add  a3, a3, t0
    0xFE0612E3,  # bne  a2, zero, the first lb
    0xF0002FB7,  # lui  t6, 0xf0002      the device that ends the run
    0x00DFA023,  # sw   a3, 0(t6)
)
CUSTOM = (
    0x40001537,  # lui  a0, 0x40001
    0x40050593,  # addi a1, a0, 1024
    0x10000613,  # addi a2, zero, 256
    0x00052283,  # lw   t0, 0(a0)
    0x0005A303,  # lw   t1, 0(a1)
    0x00450513,  # addi a0, a0, 4
    0x00458593,  # addi a1, a1, 4
    0x0262868B,  # .insn r CUSTOM_0, 0, 1, a3, t0, t1
    0xFFF60613,  # addi a2, a2, -1
    0xFE0614E3,  # bne  a2, zero, the first lw
    0xF0002FB7,  # lui  t6, 0xf0002
    0x00DFA023,  # sw   a3, 0(t6)
)


class Dot:
    """funct7 1 adds the products of the four int8 in each operand to a sum, and returns it two cycles later."""

    def __init__(self) -> None:
        self.total = 0

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        if (funct7, funct3) != (1, 0):
            raise SystemExit(f"this CFU has no instruction {funct7}.{funct3}")
        first, second = (np.array([word], np.int32).view(np.int8).astype(int) for word in (a, b))
        self.total += int(first @ second)
        return self.total, cycle + 2


def program(words: tuple[int, ...]) -> elf.Executable:
    code = np.array(words, "<u4").tobytes()
    segment = elf.Segment(RAM_BASE, code, len(code))
    return elf.Executable("example", RAM_BASE, (segment,), (range(RAM_BASE, RAM_BASE + len(code)),), {}, {}, b"")


def main() -> None:
    if len(sys.argv) > 1:
        done = run(elf.load(sys.argv[1]), Config(), cfu=Dot())
        print(done.text, f"exit code {done.exit_code}, {done.cycles} cycles", done.trap or "", sep="\n")
        return
    data = np.random.default_rng(0).integers(-128, 128, (2, 1024)).astype(np.int8)
    x, y = data.astype(np.int64)
    cycles = []
    for name, words, cfu in (("plain RV32IM", PLAIN, None), ("custom dot product", CUSTOM, Dot())):
        done = run(program(words), Config(), writes={RAM_BASE + 0x1000: data.tobytes()}, cfu=cfu)
        assert done.exit_code == int(x @ y) & 0xFFFFFFFF
        cycles.append(done.cycles)
        print(f"{name:20} {done.cycles:7} cycles, {done.instret:5} instructions, sum {int(x @ y)}")
    print(f"faster by {cycles[0] / cycles[1]:.2f}")


if __name__ == "__main__":
    main()
