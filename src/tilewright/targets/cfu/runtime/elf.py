"""ELF files of bare-metal RV32 programs: segments, entry, symbols. The file is untrusted; sizes are bounded."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tilewright.errors import ProgramError
from tilewright.files import regular

PF_X, SHF_EXECINSTR = 1, 4
MAX_BYTES, MAX_SEGMENTS, MAX_SYMBOLS = 1 << 28, 64, 1 << 20
#: What pyelftools raises on files that are no ELF files, besides its own errors.
DAMAGED = (
    *(ELFError, DWARFError, AssertionError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(EOFError, OSError, RecursionError, MemoryError),
)


class Segment(NamedTuple):
    """Bytes at an address; `size` may be larger, the rest is zero."""

    address: int
    data: bytes
    size: int


class Symbol(NamedTuple):
    """Where something lies, in bytes."""

    address: int
    size: int


@dataclass(frozen=True)
class Executable:
    """A program as it is loaded. `code` are ranges of addresses; `functions` the symbols there; `file` the ELF file."""

    name: str
    entry: int
    segments: tuple[Segment, ...]
    code: tuple[range, ...]
    symbols: Mapping[str, Symbol]
    functions: Mapping[str, Symbol]
    file: bytes


def load(source: str | Path | bytes) -> Executable:
    """Read an ELF file, or its bytes. Raises ProgramError for what is not a whole 32-bit RISC-V executable."""
    name = "program" if isinstance(source, bytes) else str(source)
    if isinstance(source, bytes):
        data = source
    else:
        path = regular(source, ProgramError)
        if path.stat().st_size > MAX_BYTES:
            raise ProgramError(name, f"is larger than {MAX_BYTES >> 20} MiB")
        data = path.read_bytes()
    try:
        return _read(name, data, ELFFile(io.BytesIO(data)))
    except ProgramError:
        raise
    except DAMAGED as error:
        raise ProgramError(name, f"is no ELF file, or a damaged one: {error}".rstrip(": ")) from None


def _read(name: str, data: bytes, elf: Any) -> Executable:
    header = elf.header
    if (elf.elfclass, elf.little_endian, header["e_machine"], header["e_type"]) != (32, True, "EM_RISCV", "ET_EXEC"):
        kind = f"{elf.elfclass}-bit {header['e_machine']} {header['e_type']}"
        raise ProgramError(name, f"is {kind}, not a 32-bit RISC-V executable", "link with -march=rv32im -mabi=ilp32")
    if elf.num_segments() > MAX_SEGMENTS:
        raise ProgramError(name, f"has {elf.num_segments()} segments, more than {MAX_SEGMENTS}")
    segments, code = [], []
    for segment in elf.iter_segments():
        first, size, address = segment["p_offset"], segment["p_filesz"], segment["p_paddr"]
        if segment["p_type"] != "PT_LOAD" or not segment["p_memsz"]:
            continue
        if first + size > len(data) or size > segment["p_memsz"]:
            raise ProgramError(name, f"a segment of {size} bytes is not in the file", "it is truncated")
        segments.append(Segment(address, data[first : first + size], segment["p_memsz"]))
        if segment["p_flags"] & PF_X:
            code.append(range(address, address + size))
    # A linker puts data into executable segments too; sections tell them apart.
    sections = [section for section in elf.iter_sections() if section["sh_flags"] & SHF_EXECINSTR]
    code = [range(section["sh_addr"], section["sh_addr"] + section["sh_size"]) for section in sections] or code
    if not any(code):
        raise ProgramError(name, "has no code")
    symbols: dict[str, Symbol] = {}
    functions: dict[str, Symbol] = {}
    table = elf.get_section_by_name(".symtab")
    if isinstance(table, SymbolTableSection):
        if table.num_symbols() > MAX_SYMBOLS:
            raise ProgramError(name, f"has {table.num_symbols()} symbols, more than {MAX_SYMBOLS}")
        for symbol in table.iter_symbols():
            if symbol.name and symbol["st_shndx"] != "SHN_UNDEF":
                symbols[symbol.name] = Symbol(symbol["st_value"], symbol["st_size"])
                if _is_function(symbol, code):
                    functions[symbol.name] = symbols[symbol.name]
    return Executable(name, header["e_entry"], tuple(segments), tuple(filter(None, code)), symbols, functions, data)


def _is_function(symbol: Any, code: list[range]) -> bool:
    """Also a plain label of assembly, but no local one."""
    kind = symbol["st_info"]["type"]
    label = kind == "STT_NOTYPE" and not symbol.name.startswith(("$", ".L"))
    return kind == "STT_FUNC" or (label and any(symbol["st_value"] in part for part in code))
