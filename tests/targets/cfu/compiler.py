"""C programs for tests, by whichever compiler there is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

START = r"""
__asm__(".section .text.start\n.globl _start\n.type _start, @function\n_start:\n  la sp, _stack_top\n  call main\n"
        "  li t0, 0xF0002000\n  sw a0, 0(t0)\n1: j 1b\n.size _start, .-_start\n.text\n");
"""
SCRIPT = """\
ENTRY(_start)
SECTIONS {
  . = 0x40000000;
  .text : { *(.text.start) *(.text*) }
  .rodata : { *(.rodata*) *(.srodata*) }
  .data : { *(.data*) *(.sdata*) }
  .bss : { *(.bss*) *(.sbss*) *(COMMON) }
  _stack_top = 0x40100000;
}
"""
FLAGS = ["-O2", "-g", "-ffreestanding", "-fno-builtin", "-nostdlib"]


def compiled(folder: Path, source: str, *flags: str) -> Path:
    """An ELF file of `source`, a C program with a main; for tests that are marked `riscv`."""
    (folder / "test.c").write_text(START + f'#line 1 "test.c"\n{source}')
    (folder / "link.ld").write_text(SCRIPT)
    if gcc := shutil.which("riscv64-unknown-elf-gcc"):
        command = [gcc, "-march=rv32im", "-mabi=ilp32", "-Wl,--no-warn-rwx-segments"]
    else:
        target = ["-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m-c"]
        command = [sys.executable, "-m", "ziglang", "cc", *target, "-fno-sanitize=all"]
    call = [*command, *FLAGS, *flags, "-T", "link.ld", "test.c", "-o", "test.elf"]
    subprocess.run(call, cwd=folder, check=True, capture_output=True)
    return folder / "test.elf"
