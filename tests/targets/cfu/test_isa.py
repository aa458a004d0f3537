"""Registers and memory after random programs, compared with unicorn's; what is no instruction; traps."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.targets.cfu import asm
from tests.targets.cfu.asm import A0, A1, DATA, addi, image, li, lw, sw
from tests.targets.cfu.interpreter import interpret
from tests.targets.cfu.running import run
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.isa.rv32 import ILLEGAL, decode
from tilewright.targets.cfu.runtime.core import Run
from tilewright.targets.cfu.runtime.system import UART

BYTES = 4096
EDGES = (0, 1, 2, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80000001, 0xAAAAAAAA)


def random_program(rng: np.random.Generator, length: int) -> list[int]:
    """Instructions that stay in their own code and data: x8 holds the data's middle, branches go forward."""
    words: list[int] = []
    for number in range(1, 32):
        value = int(rng.choice(EDGES)) if rng.random() < 0.5 else int(rng.integers(1 << 32))
        words += li(number, value)
    words += li(8, DATA + BYTES // 2)
    end = len(words) + length

    def register() -> int:
        return int(rng.integers(32))

    def target() -> int:
        return int(rng.choice([r for r in range(32) if r != 8]))

    while len(words) < end:
        kind = rng.integers(6)
        if kind == 0:
            words.append(asm.alu(str(rng.choice(list(asm.ALU))), target(), register(), register()))
        elif kind == 1:
            name = str(rng.choice([*asm.IMMEDIATE, *asm.SHIFTS]))
            words.append(asm.imm(name, target(), register(), int(rng.integers(-2048, 2048))))
        elif kind == 2:
            name = str(rng.choice(list(asm.LOADS)))
            words.append(asm.load(name, target(), 8, int(rng.integers(-512, 511)) * 4 // _size(name) * _size(name)))
        elif kind == 3:
            name = str(rng.choice(list(asm.STORES)))
            words.append(asm.store(name, register(), 8, int(rng.integers(-512, 511)) * 4 // _size(name) * _size(name)))
        elif kind == 4:
            skip = 4 * int(rng.integers(1, 1 + min(6, end - len(words))))
            words.append(asm.branch(str(rng.choice(list(asm.BRANCHES))), register(), register(), skip))
        else:
            word = int(rng.integers(1 << 20)) << 12 | target() << 7
            words.append(word | (0x37 if rng.random() < 0.5 else 0x17))
    return words


def _size(name: str) -> int:
    return {"b": 1, "h": 2, "w": 4}[name[1]]


def on_unicorn(words: list[int], data: bytes) -> tuple[list[int], bytes]:
    unicorn = pytest.importorskip("unicorn", reason="unicorn is not installed: pip install unicorn")
    from unicorn import riscv_const

    machine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
    machine.mem_map(RAM_BASE, 1 << 20)
    code = struct.pack(f"<{len(words)}I", *words)
    machine.mem_write(RAM_BASE, code)
    machine.mem_write(DATA, data)
    machine.emu_start(RAM_BASE, RAM_BASE + len(code))
    registers = [machine.reg_read(riscv_const.UC_RISCV_REG_X0 + i) for i in range(32)]
    return registers, bytes(machine.mem_read(DATA, len(data)))


def stopped(words: list[int], data: bytes = b"") -> Run:
    """Run with an EBREAK behind, which keeps all registers."""
    return run(image([*words, 0x00100073], data), Config(), reads={"data": (DATA, len(data))})


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_do_what_unicorn_does(seed: int) -> None:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    words, data = random_program(rng, 400), rng.bytes(BYTES)
    found = stopped(words, data)
    assert found.trap is not None and found.trap.kind == "breakpoint", found.trap
    registers, memory = on_unicorn(words, data)
    assert [int(value) & 0xFFFFFFFF for value in found.machine.regs[:32]] == registers
    assert found.reads["data"] == memory


@pytest.mark.parametrize("seed", range(100, 110))
def test_the_compiled_loop_does_what_the_descriptions_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    words, data = random_program(rng, 400), rng.bytes(BYTES)
    found = stopped(words, data)
    registers = [int(value) & 0xFFFFFFFF for value in found.machine.regs[:32]]
    assert (registers, found.reads["data"]) == interpret(words, data, DATA)


def test_every_operation_with_values_at_the_edges() -> None:
    for name in asm.ALU:
        words: list[int] = []
        count = 0
        for i, first in enumerate(EDGES):
            for second in EDGES:
                words += [*li(5, first), *li(6, second), asm.alu(name, 7, 5, 6), *li(8, DATA)]
                words += [sw(7, 8, 4 * (count % len(EDGES)) + 40 * i)]
                count += 1
        data = bytes(4 * count)
        assert stopped(words, data).reads["data"] == on_unicorn(words, data)[1], name


def test_random_words_are_instructions_or_not() -> None:
    """By the manual's opcode and funct fields, each taken apart once more here."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 32, 20000, dtype=np.uint64).astype(np.uint32)
    words[:10000] = words[:10000] & 0xFFFFFF80 | rng.choice([3, 19, 35, 51, 99, 103, 111, 11, 55, 23], 10000)
    found = decode(words, RAM_BASE) & 255
    for word, op in zip(words.tolist(), found.tolist(), strict=True):
        opcode, funct3, funct7 = word & 127, word >> 12 & 7, word >> 25
        legal = {
            0x03: funct3 in (0, 1, 2, 4, 5),
            0x13: funct3 not in (1, 5) or funct7 == 0 or (funct3 == 5 and funct7 == 32),
            0x23: funct3 < 3,
            0x33: funct7 in (0, 1) or (funct7 == 32 and funct3 in (0, 5)),
            0x63: funct3 not in (2, 3),
            0x67: funct3 == 0,
            0x6F: True, 0x0B: True, 0x37: True, 0x17: True,
            0x0F: funct3 in (0, 1, 5),
            0x73: funct3 not in (0, 4) or word in (0x73, 0x100073, 0x30200073, 0x10500073),
        }.get(opcode, False)  # fmt: skip
        assert (op != ILLEGAL) == legal, hex(word)


@pytest.mark.parametrize(
    ("words", "kind", "where", "value"),
    [
        ([0xFFFFFFFF], "illegal instruction", 0, None),
        ([0x00000073], "environment call", 0, None),
        ([*li(A0, DATA + 2), lw(A1, A0)], "misaligned access", 2, DATA + 2),
        ([*li(A0, DATA + 1), asm.store("sh", A1, A0)], "misaligned access", 2, DATA + 1),
        ([*li(A0, 0x1000), lw(A1, A0)], "load access fault", 2, 0x1000),
        ([*li(A0, 0x1000), sw(A1, A0)], "store access fault", 2, 0x1000),
        ([*li(A0, 0xF000_1802), lw(A1, A0)], "misaligned access", 2, 0xF000_1802),
        ([*li(A0, 0x4100_0000), asm.jalr(0, A0)], "instruction access fault", 2, 0x4100_0000),
        ([asm.jal(0, -64)], "instruction access fault", 0, RAM_BASE - 64),
        ([asm.branch("beq", 0, 0, 6)], "instruction address misaligned", 0, RAM_BASE + 6),
        ([asm.csrr(A0, 0x7FF)], "illegal instruction", 0, None),
        ([asm.csrw(0xF14, A0)], "illegal instruction", 0, None),
    ],
)
def test_traps_end_the_run_and_name_the_place(words: list[int], kind: str, where: int, value: int | None) -> None:
    trap = run(image(words), Config()).trap
    assert trap is not None
    assert (trap.kind, trap.pc) == (kind, RAM_BASE + 4 * where)
    assert value is None or trap.value == value


def test_an_endless_loop_ends_at_the_limit() -> None:
    found = run(image([addi(A0, A0, 1), asm.jal(0, -4)]), Config(), max_instructions=10_000)
    assert found.trap is not None and "limit" in found.trap.kind and found.instret == 10_000


@pytest.mark.parametrize("straight", [1, 3, 40])
def test_a_limit_is_exact(straight: int) -> None:
    """The loop adds 1 to a register `straight` times, then jumps back: instruction n is known."""
    words = [addi(A0, A0, 1)] * straight + [asm.jal(0, -4 * straight)]
    before = 0
    for limit in [*range(1, 4 * straight + 9), 1000, 1001]:
        found = run(image(words), Config(), max_instructions=limit)
        assert found.trap is not None and found.trap.kind == f"limit of {limit} instructions"
        assert found.instret == limit
        rounds, rest = divmod(limit, straight + 1)
        assert int(found.machine.regs[A0]) == rounds * straight + rest
        assert found.trap.pc == RAM_BASE + 4 * rest
        assert found.cycles >= before
        before = found.cycles


def test_counters_count() -> None:
    words = [asm.NOP] * 5 + [asm.csrr(A0, 0xB00), asm.csrr(A1, 0xB02)] + [asm.csrw(0xB02, 0), asm.csrr(12, 0xB02)]
    found = stopped([*words, asm.csrr(13, 0xB82)])
    regs = found.machine.regs
    # The first line: 2 L2 misses, a row opened (1 + 15 each, 5), 8 words, request and restart; then two of drain.
    assert regs[A0] == 1 + 2 * 16 + 5 + 16 + 3 + 5 + 2
    assert (regs[A1], regs[12], regs[13], found.instret) == (6, 1, 0, 10)


def test_the_uart_collects_text_and_unknown_registers_read_as_zero() -> None:
    words = li(A0, UART)
    for letter in b"ok\n":
        words += [addi(A1, 0, letter), asm.store("sb", A1, A0)]
    found = run(image([*words, lw(A0, A0, 64), *asm.halt()]), Config())
    assert (found.text, found.exit_code) == ("ok\n", 0)


def test_code_may_change_itself() -> None:
    words = [*li(A0, RAM_BASE + 4 * 6), *li(A1, addi(A0, 0, 42)), sw(A1, A0), asm.NOP, addi(A0, 0, 1), *asm.halt()]
    assert run(image(words), Config()).exit_code == 42


def test_writes_and_reads() -> None:
    words = [*li(A0, DATA), lw(A1, A0), addi(A1, A1, 1), sw(A1, A0, 4), *asm.halt(0)]
    found = run(image(words), Config(), writes={DATA: struct.pack("<I", 41)}, reads={"sum": (DATA + 4, 4)})
    assert found.reads == {"sum": struct.pack("<I", 42)}
