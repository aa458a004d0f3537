"""Read ELF files of bare-metal RV32 programs: segments, entry, symbols, and source lines from DWARF.

Files are untrusted, so their sizes are bounded.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tilewright.errors import ProgramError
from tilewright.files import regular

PF_X = 1
SHF_EXECINSTR = 4
MAX_BYTES = 1 << 28
MAX_SEGMENTS = 64
MAX_SYMBOLS = 1 << 20
MAX_LINES = 1 << 22


class Segment(NamedTuple):
    """A part of a program, and its load address. If `size` is larger than the data, zeros follow the data."""

    address: int
    data: bytes
    size: int


class Symbol(NamedTuple):
    """The address of a symbol, and the size of its object in bytes."""

    address: int
    size: int


@dataclass(frozen=True)
class Executable:
    """A program from an ELF file. `code` has its address ranges, and `functions` has the symbols in code."""

    name: str
    entry: int
    segments: tuple[Segment, ...]
    code: tuple[range, ...]
    symbols: Mapping[str, Symbol]
    functions: Mapping[str, Symbol]
    file: bytes


def load(source: str | Path | bytes) -> Executable:
    """Read an ELF file, or its bytes. Raises ProgramError if it is not a complete 32-bit RISC-V executable."""
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
    except Exception as error:  # pyelftools raises many kinds of exceptions for damaged files
        raise ProgramError(name, f"is not an ELF file, or a damaged one: {error}".rstrip(": ")) from None


def _read(name: str, data: bytes, elf: Any) -> Executable:
    header = elf.header
    if (elf.elfclass, elf.little_endian, header["e_machine"], header["e_type"]) != (32, True, "EM_RISCV", "ET_EXEC"):
        kind = f"{elf.elfclass}-bit {header['e_machine']} {header['e_type']}"
        raise ProgramError(name, f"is {kind}, not a 32-bit RISC-V executable", "link with -march=rv32im -mabi=ilp32")
    if elf.num_segments() > MAX_SEGMENTS:
        raise ProgramError(name, f"has {elf.num_segments()} segments, more than {MAX_SEGMENTS}")
    segments = []
    code = []
    for segment in elf.iter_segments():
        first = segment["p_offset"]
        size = segment["p_filesz"]
        address = segment["p_paddr"]
        if segment["p_type"] != "PT_LOAD" or not segment["p_memsz"]:
            continue
        if first + size > len(data) or size > segment["p_memsz"]:
            raise ProgramError(name, f"is truncated: a segment of {size} bytes is not in the file")
        segments.append(Segment(address, data[first : first + size], segment["p_memsz"]))
        if segment["p_flags"] & PF_X:
            code.append(range(address, address + size))
    # An executable segment may also contain data. Sections, if there are any, distinguish code and data.
    sections = [section for section in elf.iter_sections() if section["sh_flags"] & SHF_EXECINSTR]
    code = [range(section["sh_addr"], section["sh_addr"] + section["sh_size"]) for section in sections] or code
    if not any(code):
        raise ProgramError(name, "has no executable segment", "link it as an executable")
    table = elf.get_section_by_name(".symtab")
    rows = list(_symbols(name, table, code)) if isinstance(table, SymbolTableSection) else []
    symbols = {symbol: place for symbol, place, _ in rows}
    functions = {symbol: symbols[symbol] for symbol, _, is_function in rows if is_function}
    return Executable(name, header["e_entry"], tuple(segments), tuple(filter(None, code)), symbols, functions, data)


def _symbols(name: str, table: SymbolTableSection, code: Sequence[range]) -> Iterator[tuple[str, Symbol, bool]]:
    # Labels of assembly code have no type. Such a label counts as a function if it is in code and not local (`.L`,
    # `$`).
    if table.num_symbols() > MAX_SYMBOLS:
        raise ProgramError(name, f"has {table.num_symbols()} symbols, more than {MAX_SYMBOLS}")
    for symbol in table.iter_symbols():
        if symbol.name and symbol["st_shndx"] != "SHN_UNDEF":
            place = Symbol(symbol["st_value"], symbol["st_size"])
            kind = symbol["st_info"]["type"]
            label = kind == "STT_NOTYPE" and not symbol.name.startswith(("$", ".L"))
            yield symbol.name, place, kind == "STT_FUNC" or (label and any(place.address in part for part in code))


class SourceLine(NamedTuple):
    """A line of a source file. `file` is empty if the line is not known."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "?"


class Source:
    """The functions and source lines of a program, by address."""

    def __init__(self, image: Executable) -> None:
        self.image = image
        rows = ((symbol.address, symbol.address + symbol.size, name) for name, symbol in image.functions.items())
        self._functions = sorted(rows)

    def function(self, address: int) -> str:
        """Return the name of the function at `address`, or "?". A function without a size ends at the next function."""
        index = bisect_right(self._functions, address, key=itemgetter(0)) - 1
        if index < 0:
            return "?"
        start, end, name = self._functions[index]
        return name if address < end or start == end else "?"

    def place(self, address: int) -> SourceLine:
        index = bisect_right(self._lines, address, key=itemgetter(0)) - 1
        return self._lines[index][2] if index >= 0 else SourceLine("", 0)

    def where(self, address: int) -> str:
        place = self.place(address)
        function = self.function(address)
        return f"{address:#x} in {function}" + (f" ({place})" if place.file else "")

    @cached_property
    def _lines(self) -> list[tuple[int, int, SourceLine]]:
        rows: list[tuple[int, int, SourceLine]] = []
        try:
            elf = ELFFile(io.BytesIO(self.image.file))
            if elf.has_dwarf_info():
                dwarf = elf.get_dwarf_info()
                for unit in dwarf.iter_CUs():
                    program = dwarf.line_program_for_CU(unit)
                    if program is not None and not _add(rows, program):
                        break
        except Exception:  # treat damaged line tables like a stripped program
            rows = []
        return sorted(rows, key=itemgetter(0, 1))


def _add(rows: list[tuple[int, int, SourceLine]], program: Any) -> bool:
    """Append the rows (address, rank, line) of a DWARF line program. Return False if there are too many rows."""
    entries = (entry.name for entry in program["file_entry"])
    names = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in entries]
    first = 0 if program["version"] >= 5 else 1
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        index = state.file - first
        in_file = not state.end_sequence and 0 <= index < len(names)
        place = SourceLine(names[index], state.line) if in_file else SourceLine("", 0)
        # Rows are sorted by address, then by rank, and the last row of each address is used. The last row of a sequence
        # has an end address but no file. Its rank is -1, so a sequence that begins at this address has priority.
        rows.append((state.address, len(rows) if in_file else -1, place))
        if len(rows) >= MAX_LINES:
            return False
    return True
