"""Cycles of each kind of instruction, as measured on VexRiscv_FullCfu's RTL: what one round of a loop takes.

A round is the lines given, `addi` and the backward branch (3 cycles); all lines are in the first-level caches. The
numbers were measured on that RTL under Verilator (docs/cfu.md).
"""

from __future__ import annotations

import pytest

from tests.targets.cfu.asm import (
    A0,
    A1,
    A2,
    A3,
    A4,
    DATA,
    NOP,
    S1,
    T0,
    T1,
    T2,
    add,
    addi,
    alu,
    branch,
    csrr,
    csrw,
    custom,
    div,
    halt,
    image,
    imm,
    jal,
    jalr,
    li,
    load,
    lw,
    mul,
    store,
    sw,
)
from tests.targets.cfu.running import run
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.runtime.core import Run

CFU = custom(8, T1, A1, A2)
OWN = 3

CASES: dict[str, tuple[list[int], int]] = {
    "alu": ([addi(A1, A1, 1)] * 4, 4),
    "load": ([lw(A1, A0), NOP, NOP, NOP], 4),
    "load, used next": ([lw(A1, A0), add(A2, A1, A1)], 4),
    "load, used next but one": ([lw(A1, A0), NOP, add(A2, A1, A1)], 4),
    "load, used third": ([lw(A1, A0), NOP, NOP, add(A2, A1, A1)], 4),
    "load, overwritten, used": ([lw(A1, A0), addi(A1, 0, 5), add(A2, A1, A1)], 4),
    "load to x0": ([lw(0, A0), add(A2, 0, 0)], 2),
    "load, its address next": ([lw(A1, A0), sw(A1, A0, 64), NOP, NOP, NOP], 7),
    "shift, used next": ([imm("slli", A1, A2, 3), add(A4, A1, A1)], 3),
    "shift, used next but one": ([imm("slli", A1, A2, 3), NOP, add(A4, A1, A1)], 3),
    "shift by a register, used next": ([alu("sra", A1, A2, A3), add(A4, A1, A1)], 3),
    "comparison, used next": ([alu("slt", A1, A2, A3), add(A4, A1, A1)], 2),
    "product": ([mul(A4, A2, A3), mul(A1, A2, A3)], 2),
    "product, used next": ([mul(A1, A2, A3), add(A4, A1, A1)], 4),
    "product, used next but one": ([mul(A1, A2, A3), NOP, add(A4, A1, A1)], 4),
    "quotient": ([div(A1, A2, A3), NOP, NOP], 36),
    "quotient, used next": ([div(A1, A2, A3), add(A4, A1, A1)], 36),
    "quotient, used next but one": ([div(A1, A2, A3), NOP, add(A4, A1, A1)], 36),
    "two quotients": ([div(A1, A2, A3), div(A4, A2, A3)], 68),
    "load, then quotient, then its use": ([lw(A1, A0), div(A4, A2, A3), add(A1, A1, A1)], 37),
    "forward branch, not taken": ([branch("beq", A1, 0, 4), NOP], 2),
    "forward branch, taken": ([branch("beq", 0, 0, 8), NOP, NOP], 4),
    "forward branch, taken, where a use waits": ([lw(A1, A0), branch("beq", 0, 0, 8), add(A1, A1, A1), NOP], 6),
    "backward branch, not taken": ([jal(0, 8), NOP, branch("bne", 0, 0, -4)], 5),
    "jal": ([jal(0, 8), NOP, NOP], 3),
    "call and return": ([jal(1, 8), jal(0, 8), jalr(0, 1), NOP], 8),
    "store": ([sw(A1, A0)], 1),
    "two stores": ([sw(A1, A0), sw(A1, A0, 4)], 2),
    "four stores": ([sw(A1, A0, 4 * i) for i in range(4)], 6),
    "eight stores": ([sw(A1, A0, 4 * i) for i in range(8)], 14),
    "four stores, one between": ([sw(A1, A0), NOP] * 4, 8),
    "store, load of it": ([sw(A1, A0), lw(A2, A0), NOP, NOP, NOP], 10),
    "store, load of it next but one": ([sw(A1, A0), NOP, lw(A2, A0), NOP, NOP, NOP], 11),
    "store, load of it third": ([sw(A1, A0), NOP, NOP, lw(A2, A0), NOP, NOP, NOP], 7),
    "two stores, load of the first": ([sw(A1, A0), sw(A1, A0, 4), lw(A2, A0), NOP, NOP, NOP], 11),
    "store, load of another byte": ([store("sb", A1, A0), load("lb", A2, A0, 1), NOP, NOP, NOP], 5),
    "store, load of one of its bytes": ([store("sh", A1, A0, 2), load("lb", A2, A0, 3), NOP, NOP, NOP], 10),
    "custom": ([NOP, CFU, NOP, NOP], 4),
    "custom, used next": ([NOP, NOP, CFU, add(T2, T1, T1), NOP, NOP], 7),
    "two customs": ([NOP, NOP, CFU, CFU, NOP, NOP], 7),
    "custom behind a jump": ([NOP, NOP, jal(0, 4), CFU, NOP], 7),
    "custom behind the loop's branch": ([CFU, NOP, NOP], 4),
    "custom behind a branch not taken": ([NOP, NOP, branch("beq", A1, 0, 8), CFU, NOP, NOP], 8),
    "custom behind a branch taken": ([NOP, NOP, branch("beq", 0, 0, 4), CFU, NOP], 7),
    "custom behind a load": ([NOP, NOP, lw(T2, A0), CFU, NOP, NOP], 8),
    "custom behind a load, one between": ([NOP, NOP, lw(T2, A0), NOP, CFU, NOP, NOP], 8),
    "custom behind a load, two between": ([NOP, NOP, lw(T2, A0), NOP, NOP, CFU, NOP, NOP], 8),
    "custom behind a store": ([NOP, NOP, sw(A1, A0), CFU, NOP, NOP], 8),
    "custom behind a product": ([NOP, NOP, mul(T2, A1, A2), CFU, NOP, NOP], 6),
    "custom behind a CSR": ([NOP, NOP, csrr(T2, 0xB00), CFU, NOP, NOP], 10),
    "CSR behind the loop's branch": ([csrr(A1, 0xB00), NOP, NOP, NOP], 5),
    "CSR": ([NOP, NOP, NOP, csrr(A1, 0xB00)], 6),
    "CSR, used next": ([csrr(A1, 0xB00), add(A2, A1, A1)], 4),
    "CSR behind a load": ([lw(A1, A0), csrr(A1, 0xB00), NOP], 5),
    "CSR written": ([csrw(0x340, A1), NOP, NOP, NOP], 5),
    "FENCE": ([0x0000000F, NOP], 2),
    "data cache flush": ([0x0000500F, NOP], 132),
    "FENCE.I": ([0x0000100F, NOP], 153),
}


def rounds(lines: list[int], setup: list[int], count: int) -> Run:
    start = [*li(A0, DATA), *li(S1, count), addi(A1, 0, 3), addi(A2, 0, 7), addi(A3, 0, 9), *setup]
    start += [lw(T0, A0), lw(T0, A0, 32), lw(T0, A0, 64), lw(T0, A0, 96)]
    start += [NOP] * (-len(start) % 8)
    body = [*lines, addi(S1, S1, -1)]
    back = branch("bne", S1, 0, -4 * len(body))
    found = run(image([*start, *body, back, *[NOP] * 6, *halt(0)]), Config())
    assert found.exit_code == 0, found.trap
    return found


def round_cycles(lines: list[int], setup: list[int] | None = None) -> float:
    """Cycles a round, from the fifth on: what 4 rounds fewer take less, so that start and end do not matter."""
    return (rounds(lines, setup or [], 12).cycles - rounds(lines, setup or [], 8).cycles) / 4


@pytest.mark.parametrize("name", CASES)
def test_a_round_takes_what_the_rtl_takes(name: str) -> None:
    lines, cycles = CASES[name]
    assert round_cycles(lines) == cycles + OWN


STREAM = [*li(T0 + 13, DATA + 4096), *li(T0 + 14, DATA + 4096)]  # s2, s3
S2, S3 = T0 + 13, T0 + 14


@pytest.mark.parametrize(
    ("lines", "cycles"),
    [
        ([lw(T1, S2), addi(S2, S2, 32)], 57),  # two L2 misses a line, the DRAM row open
        ([lw(T1, S2), add(T2, T1, T1), addi(S2, S2, 32)], 60),
        ([sw(A1, A0), lw(T1, S2), addi(S2, S2, 32)], 59),
        ([lw(T1, S2), sw(T1, A0), addi(S2, S2, 32)], 60),
        ([lw(T1, S2), CFU, addi(S2, S2, 32)], 60),
        ([lw(T1, S2), lw(T2, A0), NOP, NOP], 45 + 2),
    ],
)
def test_a_miss_takes_what_the_rtl_takes(lines: list[int], cycles: int) -> None:
    conflict = [*li(S2, DATA + 4096)]
    assert round_cycles(lines, conflict) == cycles


@pytest.mark.parametrize(
    ("lines", "read", "written"),
    [
        ([lw(T1, S2), addi(S2, S2, 32)], 32, 0),  # a line of the first-level cache, two of the L2 cache
        ([sw(A1, S2), addi(S2, S2, 16)], 16, 0),  # stays in the L2 cache, which reads the rest of the line
        ([sw(A1, S2), add(S2, S2, A4)], 16, 16),  # 8 KiB further: the same place in the L2 cache
    ],
)
def test_dram_bytes_are_what_the_second_level_cache_moves(lines: list[int], read: int, written: int) -> None:
    more, less = (rounds(lines, [*li(S2, DATA + 4096), *li(A4, 8192)], count).regions for count in (12, 8))
    assert [sum(r.read for r in more) - sum(r.read for r in less)] == [4 * read]
    assert [sum(r.written for r in more) - sum(r.written for r in less)] == [4 * written]
