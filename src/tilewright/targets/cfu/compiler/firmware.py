"""Build the ELF file of a firmware variant from its C sources and generated headers.

The published figures depend on the compiler's code, so Debian's gcc-riscv64-unknown-elf is preferred. The fallback is
the clang in the PyPI package ziglang. Built files are cached.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError, UnwritableError
from tilewright.files import scratch, user_folder, write_folder
from tilewright.install import hint
from tilewright.program.header import Group, header
from tilewright.targets.cfu.config import CHOICES, RAM_BASE, Config
from tilewright.targets.cfu.isa.custom import CUSTOM
from tilewright.targets.cfu.isa.state import FIELDS
from tilewright.targets.cfu.runtime import elf, system
from tilewright.tools import compiling, run

from . import layout
from .layout import Kind
from .variants import Variant

SOURCES = Path(__file__).parents[1] / "firmware"
UNITS = ("crt0.S", "main.c", "model.c", "quantize.c", "runtime.c")
GCC = "riscv64-unknown-elf-gcc"

#: CFU-Playground's flags. No other flags are given, because the published figures depend on the generated code.
FLAGS = ("-std=gnu11", "-O3", "-mabi=ilp32", "-ffreestanding", "-fno-builtin", "-nostdlib", "-g")
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unused-parameter", "-Werror")
#: The largest power of two that fits into the 10-bit counters of start_GEMM.
LARGEST = 512
#: The parameters of `conv_software` in C, as fields of a record.
_SHAPE = (
    *("in_h", "in_w", "in_c", "out_h", "out_w", "out_c", "kernel_h", "kernel_w", "stride_h", "stride_w"),
    *("pad_h", "pad_w", "input_offset", "output_offset", "low", "high"),
)


@dataclass(frozen=True)
class Compiler:
    """A C compiler for RV32IM: its command, its version, and its specific flags."""

    name: str
    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]


def compilers() -> tuple[Compiler, ...]:
    return tuple(compiler for compiler in (_gcc(), _zig()) if compiler)


def find() -> Compiler:
    """Return the preferred compiler. Raises UnsupportedError, with an installation command, if there is no compiler."""
    for compiler in compilers():
        return compiler
    remedy = f"install one: apt-get install gcc-riscv64-unknown-elf, or {hint('cfu')}"
    raise UnsupportedError("firmware", "no RISC-V compiler was found", remedy)


@cache
def _gcc() -> Compiler | None:
    path = shutil.which(GCC)
    if path is None:
        return None
    version_output = subprocess.run((path, "-dumpfullversion"), capture_output=True, text=True, check=True)
    return Compiler("gcc", (path,), f"{GCC} {version_output.stdout.strip()}", ("-march=rv32im", "-lgcc"))


@cache
def _zig() -> Compiler | None:
    if find_spec("ziglang") is None:
        return None
    command = (sys.executable, "-P", "-m", "ziglang", "cc")
    flags = ("-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m", "-fno-sanitize=all")
    return Compiler("zig", command, f"zig {version('ziglang')}", flags)


def elf_of(
    header: str, macros: Mapping[str, int | str], generated: Mapping[str, str], ram_bytes: int, compiler: Compiler
) -> bytes:
    """Return the ELF file of the firmware variant with this header, these macros and these generated files.

    `generated` has the text of each file, by name. The ELF file is compiled once, and cached in the user's cache folder
    by the hash of all its inputs. Raises UnsupportedError if the compiler fails.
    """
    sources = {str(path.relative_to(SOURCES)): path.read_text() for path in sorted(SOURCES.rglob("*.[chlS]*"))}
    del sources["link.ld"]
    generated = {**generated, "link.ld": linker_script(ram_bytes)}
    arguments = [*FLAGS, *WARNINGS, f'-DVARIANT="variants/{header}.h"']
    arguments += [f"-D{name}={value}" for name, value in sorted(macros.items())]
    # Everything that the output depends on, so that an upgrade of the sources or the compiler changes the key.
    key = repr((sorted(sources.items()), sorted(generated.items()), arguments, compiler.version, compiler.flags))
    cached = user_folder() / "cfu" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.elf"
    with suppress(OSError):
        return cached.read_bytes()
    elf = _compile(arguments, generated, compiler)
    with suppress(UnwritableError):  # without the cache, the next call compiles again
        write_folder(cached.parent, {cached.name: elf})
    return elf


def _compile(arguments: Sequence[str], generated: Mapping[str, str], compiler: Compiler) -> bytes:
    with scratch() as folder:
        for name, text in generated.items():
            (folder / name).write_text(text)
        output = folder / "firmware.elf"
        places = (f"-I{folder}", "-I.", f"-ffile-prefix-map={folder}=made", "-T", f"{folder}/link.ld")
        command = (*compiler.command, *arguments, *places, *UNITS, *compiler.flags, "-o", str(output))
        done = run(command, SOURCES, compiling(folder))
        if done.returncode or not output.is_file():
            raise UnsupportedError("firmware", f"{compiler.version} does not compile it:\n{done.stderr.strip()}")
        return output.read_bytes()


def linker_script(ram_bytes: int) -> str:
    return (SOURCES / "link.ld").read_text().replace("MAIN_RAM_BYTES", str(ram_bytes))


def firmware(
    variant: Variant, records: Sequence[Mapping[str, int]], config: Config, compiler: Compiler
) -> elf.Executable:
    generated = {"layout.h": layout.c_header(), "cfu_machine.h": machine_header(config)}
    if variant.header == "software":  # this variant is compiled for each model
        generated["layers.h"] = layers_header(records)
    has = {"DMA": int("dma" in config.extension_names), "STREAM": int(config.streams)}
    macros = {**tiles(config), "TUNED": 0, **variant.macros, **has}
    return elf.load(elf_of(variant.header, macros, generated, config.ram_bytes, compiler))


def tiles(config: Config) -> dict[str, int]:
    """Return the C macros for the largest tiles (m, n and k) that fit the buffers and start_GEMM's 10-bit counters.

    A tile occupies k * m / `array` rows of buffer A, k * n / `array` rows of buffer B, and m * n / `array` rows of
    buffer C.
    """
    values = config.array * config.buffer_rows  # the number of values in a buffer, which is a power of two
    # A tile of m x n sums reads m + n operands for each k. This is the minimum if the tile is square.
    side = 1 << (values.bit_length() - 1) // 2
    m = min(side, config.buffer_rows, LARGEST)
    n = min(max(side, config.array), LARGEST)
    return {"TILE_M": m, "TILE_N": n, "TILE_K": min(values // max(m, n), LARGEST)}


def flat(program: elf.Executable) -> tuple[Array, Array]:
    """Return a program's memory from RAM_BASE on: the code (words, uint32), and the data after the code (uint8)."""
    memory = bytearray(max(segment.address + len(segment.data) for segment in program.segments) - RAM_BASE)
    for segment in program.segments:
        memory[segment.address - RAM_BASE : segment.address - RAM_BASE + len(segment.data)] = segment.data
    code = program.symbols["text_end"].address - RAM_BASE
    return np.frombuffer(bytes(memory[:code]), "<u4").astype(np.uint32), np.frombuffer(bytes(memory[code:]), np.uint8)


def layers_header(records: Sequence[Mapping[str, int]]) -> str:
    """Return the text of `layers.h`: the macro call L(index, shape) for each convolution without groups or dilation."""
    lines = [
        f"  L({index}, {', '.join(str(record[name]) for name in _SHAPE)})"
        for index, record in enumerate(records)
        if record["kind"] == Kind.CONV
        and record["filter_c"] == record["in_c"]
        and (record["dilation_h"], record["dilation_w"]) == (1, 1)
    ]
    return "// Made from the model.\n#define CONV_LAYERS(L) \\\n" + " \\\n".join([*lines, "  /* end */\n"])


def machine_header(config: Config) -> str:
    """Return the text of `cfu_machine.h`: sizes, addresses, and the funct7 of each custom-0 instruction."""
    sizes = {f"CFU_{key.upper()}": value for key, value in config.to_dict().items() if isinstance(value, int)}
    chosen = {
        f"CFU_{key.upper()}_{name.upper()}": int(getattr(config, key) == name)
        for key, names in CHOICES.items()
        for name in names
    }
    devices_at = {"RAM": RAM_BASE, "UART": system.UART, "HALT": system.HALT, "REGION": system.REGION}
    places = {f"CFU_{name}": f"0x{address:08x}" for name, address in devices_at.items()}
    groups = [
        Group("sizes", sizes),
        Group("how the array is driven: 1 marks the chosen way", chosen),
        Group("addresses; a store to HALT ends the run with a status, to REGION begins a region", places),
        Group("funct7 of custom-0", {f"CFU_{instruction.name.upper()}": code for code, instruction in CUSTOM.items()}),
        Group("layer registers of put", {f"CFU_FIELD_{name}": number for name, number in FIELDS.items()}),
    ]
    return header("CFU_MACHINE_H", "The CFU system.", groups)
