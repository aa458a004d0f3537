"""Firmware from its sources: finds a compiler, builds, keeps what it has built.

Debian's gcc-riscv64-unknown-elf where there is one, as the published figures depend on the code that a compiler
makes; otherwise the clang inside the PyPI package ziglang.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tilewright.errors import UnsupportedError
from tilewright.files import replacing

SOURCES = Path(__file__).parents[1] / "firmware"
UNITS = ("crt0.S", "main.c", "model.c", "quantize.c", "runtime.c")
GCC = "riscv64-unknown-elf-gcc"

#: CFU-Playground's flags, and none that would let a second unit of the machine appear.
FLAGS = ("-std=gnu11", "-O3", "-mabi=ilp32", "-ffreestanding", "-fno-builtin", "-nostdlib", "-g")
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unused-parameter", "-Werror")


@dataclass(frozen=True)
class Compiler:
    """A C compiler for RV32IM: its command, what it calls itself, and the flags that others do not need."""

    name: str
    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]


def compilers() -> tuple[Compiler, ...]:
    """Those that are installed, the preferred one first."""
    return tuple(found for found in (_gcc(), _zig()) if found)


def find(name: str | None = None) -> Compiler:
    """A compiler, of this name if one is given. Raises UnsupportedError with the command that installs one."""
    for compiler in compilers():
        if name in (None, compiler.name):
            return compiler
    remedy = "install one: apt-get install gcc-riscv64-unknown-elf, or pip install 'tilewright[cfu]'"
    if name == "gcc":
        remedy = "apt-get install gcc-riscv64-unknown-elf"
    elif name == "zig":
        remedy = "pip install ziglang"
    raise UnsupportedError("firmware", f"no {name or 'RISC-V'} compiler was found", remedy)


@cache
def _gcc() -> Compiler | None:
    path = shutil.which(GCC)
    if path is None:
        return None
    return Compiler("gcc", (path,), f"{GCC} {_output((path, '-dumpfullversion'))}", ("-march=rv32im", "-lgcc"))


@cache
def _zig() -> Compiler | None:
    if find_spec("ziglang") is None:
        return None
    command = (sys.executable, "-m", "ziglang")
    flags = ("-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m", "-fno-sanitize=all")
    return Compiler("zig", (*command, "cc"), f"zig {_output((*command, 'version'))}", flags)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def build(
    header: str, macros: Mapping[str, int | str], made: Mapping[str, str], ram_bytes: int, compiler: Compiler
) -> bytes:
    """The ELF of a variant's header, with generated files `made` (name to text); from the cache where it was built."""
    sources = {str(path.relative_to(SOURCES)): path.read_text() for path in sorted(SOURCES.rglob("*.[chlS]*"))}
    made = {**made, "link.ld": sources.pop("link.ld").replace("MAIN_RAM_BYTES", str(ram_bytes))}
    arguments = [*FLAGS, *WARNINGS, f'-DVARIANT="variants/{header}.h"']
    arguments += [f"-D{name}={value}" for name, value in sorted(macros.items())]
    key = repr((sorted(sources.items()), sorted(made.items()), arguments, compiler.version, compiler.flags))
    kept = _cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.elf"
    if not kept.is_file():
        elf = _compile(arguments, made, compiler)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept) as file:
            file.write(elf)
    return kept.read_bytes()


def _compile(arguments: Sequence[str], made: Mapping[str, str], compiler: Compiler) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in made.items():
            (Path(folder) / name).write_text(text)
        output = Path(folder) / "firmware.elf"
        places = (f"-I{folder}", "-I.", f"-ffile-prefix-map={folder}=made", "-T", f"{folder}/link.ld")
        command = (*compiler.command, *arguments, *places, *UNITS, *compiler.flags, "-o", str(output))
        done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
        if done.returncode or not output.is_file():
            raise UnsupportedError("firmware", f"{compiler.version} refuses it:\n{done.stderr.strip()}")
        return output.read_bytes()


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tilewright" / "cfu"
