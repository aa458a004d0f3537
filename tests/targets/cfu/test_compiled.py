"""Compiled programs: what they compute is what they compute on unicorn; where their cycles go adds up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.targets.cfu.compiler import compiled
from tests.targets.cfu.running import run
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.runtime import elf
from tilewright.targets.cfu.runtime.core import Setup
from tilewright.targets.cfu.runtime.elf import Source
from tilewright.targets.cfu.runtime.execute import CATEGORIES, execute, profile
from tilewright.targets.cfu.runtime.system import HALT

pytestmark = pytest.mark.riscv

PROGRAM = r"""typedef unsigned u32; typedef long long i64;
static u32 state = 1; static volatile int count = 200; u32 sorted[200]; int fixed[64]; unsigned char text[256];
static u32 next(void) { state ^= state << 13; state ^= state >> 17; state ^= state << 5; return state; }
__attribute__((noinline)) static void sort(u32 *a, int n) {
  for (int i = 1; i < n; i++) for (int j = i; j && a[j - 1] > a[j]; j--) { u32 t = a[j]; a[j] = a[j-1]; a[j-1] = t; }
}
__attribute__((noinline)) static int high(int a, int b) {
  i64 p = (i64)a * b; return (int)((p + (p >= 0 ? 1 << 30 : 1 - (1 << 30))) / (1ll << 31));
}
int main(void) {
  for (int i = 0; i < 200; i++) sorted[i] = next();
  sort(sorted + (count & 1), count);
  for (int i = 0; i < 64; i++) fixed[i] = high((int)next(), (int)next()) + (int)(next() % 1000) - (int)next() / 7;
  for (int i = 0; i < 256; i++) text[(i * 7) & 255] = (unsigned char)(next() >> (i & 15));
  u32 sum = 0;
  for (int i = 0; i < 200; i++) sum = sum * 31 + sorted[i];
  for (int i = 0; i < 64; i++) sum = sum * 31 + (u32)fixed[i];
  for (int i = 0; i < 256; i++) sum = sum * 31 + text[i];
  return (int)sum;
}
__attribute__((used)) long long __divdi3(long long a, long long b) {
  unsigned long long x = a < 0 ? -a : a, y = b < 0 ? -b : b, q = 0, r = 0;
  for (int i = 63; i >= 0; i--) { r = r << 1 | (x >> i & 1); if (r >= y) { r -= y; q |= 1ull << i; } }
  return (a < 0) != (b < 0) ? -q : q;
}
"""
NAMES = ("sorted", "fixed", "text")


def on_unicorn(image: elf.Executable, names: Sequence[str]) -> tuple[int, list[bytes]]:
    """The exit code, and the memory of some symbols."""
    unicorn = pytest.importorskip("unicorn", reason="unicorn is not installed: pip install unicorn")
    machine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
    machine.mem_map(RAM_BASE, 1 << 20)
    machine.mem_map(HALT & ~0xFFF, 0x1000)
    for segment in image.segments:
        machine.mem_write(segment.address, segment.data)
    written: list[int] = []

    def halt(unit: object, access: int, address: int, size: int, value: int, data: object) -> None:
        if address == HALT:
            written.append(value & 0xFFFFFFFF)
            machine.emu_stop()

    machine.hook_add(unicorn.UC_HOOK_MEM_WRITE, halt)
    machine.emu_start(image.entry, 0)
    return written[0], [bytes(machine.mem_read(*image.symbols[name])) for name in names]


@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_a_compiled_program_does_what_it_does_on_unicorn(tmp_path: Path, level: str) -> None:
    image = elf.load(compiled(tmp_path, PROGRAM, level))
    found = run(image, Config(), reads={name: image.symbols[name] for name in NAMES})
    code, memory = on_unicorn(image, NAMES)
    assert (found.exit_code, [found.reads[name] for name in NAMES]) == (code, memory), found.trap


def test_every_cycle_is_in_a_function_a_line_and_a_category(tmp_path: Path) -> None:
    image = elf.load(compiled(tmp_path, PROGRAM))
    found = run(image, Config())
    table = profile(found, Source(image))
    assert table.cycles == found.cycles == sum(table.categories.values())
    assert table.instructions == found.instret == sum(table.mix.values())
    assert sum(table.causes.values()) == found.cycles - found.instret
    for rows in (table.functions, table.lines):
        assert sum(row.cycles for row in rows) == found.cycles
        assert all(sum(row.categories.values()) == row.cycles for row in rows)
        assert all(set(row.categories) <= set(CATEGORIES) for row in rows)
    assert table.functions[0].name == "sort"
    assert table.lines[0].name == "test.c:5"
    assert {"sort", "high", "main", "_start"} <= {row.name for row in table.functions}


ASM = r"""
#define cfu(f7, a, b) ({ int r; __asm__ volatile(".insn r 0x0B, 0, %1, %0, %2, %3" \
                                                 : "=r"(r) : "i"(f7), "r"(a), "r"(b)); r; })
#line 2 "test.c"
"""
MISUSE = r"""int main(void) {
  for (int i = 0; i < 3; i++) cfu(0, i, i);
  cfu(2, 64 << 20 | 64 << 10 | 64, 128);
  int sum = 0;
  for (int i = 0; i < 100; i++)
    sum += cfu(4, 0, 0);
  while (cfu(3, 0, 0))
    ;
  return sum & 0;
}
"""


def test_a_misuse_names_function_and_line(tmp_path: Path) -> None:
    done = execute(compiled(tmp_path, ASM + MISUSE), Setup(Config()))
    assert not done.passed and done.data["exit_code"] == 0
    found = {(f["kind"], f["function"], Path(f["file"]).name, f["line"]) for f in done.data["findings"]}
    assert found == {("half_row", "main", "test.c", 4), ("read_busy", "main", "test.c", 7)}
    (reads,) = [f for f in done.data["findings"] if f["kind"] == "read_busy"]
    assert reads["times"] == 100 and reads["cycle"] > 0
    assert done.data["profile"]["categories"]["waiting for the array"] > 400
    assert "main (test.c:7) reads C while the array works" in done.text


def test_a_trap_names_function_line_and_instruction(tmp_path: Path) -> None:
    source = "int main(void) {\n  volatile int *p = (int *)0x10;\n  return *p;\n}\n"
    done = execute(compiled(tmp_path, source), Setup(Config()))
    trap = done.data["trap"]
    assert not done.passed and done.data["exit_code"] is None
    assert (trap["kind"], trap["function"], trap["line"]) == ("load access fault", "main", 3)
    assert trap["instruction"].startswith("lw a0, ") and "address 0x10" in trap["message"]


def test_speedscope_holds_all_cycles(tmp_path: Path) -> None:
    done = execute(compiled(tmp_path, PROGRAM), Setup(Config()))
    (shown,) = done.speedscope["profiles"]
    frames = done.speedscope["shared"]["frames"]
    assert sum(shown["weights"]) == shown["endValue"] == done.data["cycles"]
    assert all(0 <= frame < len(frames) for stack in shown["samples"] for frame in stack)
    assert {"sort", "test.c:5"} <= {frame["name"] for frame in frames}
