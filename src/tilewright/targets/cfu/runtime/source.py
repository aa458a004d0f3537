"""Where an address is in the program's source: function by symbol, file and line by DWARF. All of it untrusted."""

from __future__ import annotations

import io
from bisect import bisect_right
from functools import cached_property
from typing import Any, NamedTuple

from elftools.elf.elffile import ELFFile

from .elf import DAMAGED, Executable

MAX_LINES = 1 << 22


class SourceLine(NamedTuple):
    """A line of a source file; no file where nothing is known."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "?"


class Source:
    """Looks addresses up; made once for a program."""

    def __init__(self, image: Executable) -> None:
        self.image = image
        named = sorted((symbol.address, symbol.address + symbol.size, name) for name, symbol in image.functions.items())
        self._functions = named
        self._starts = [start for start, _, _ in named]

    def function(self, address: int) -> str:
        """The function that holds `address`, or "?"; one without a size reaches to the next."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return "?"
        start, end, name = self._functions[index]
        return name if address < end or start == end else "?"

    def place(self, address: int) -> SourceLine:
        """The source line of `address`."""
        rows, starts = self._lines
        index = bisect_right(starts, address) - 1
        return rows[index] if index >= 0 else SourceLine("", 0)

    def where(self, address: int) -> str:
        """For people: 0x40000010 in main (main.c:7)."""
        place, function = self.place(address), self.function(address)
        return f"{address:#x} in {function}" + (f" ({place})" if place.file else "")

    @cached_property
    def _lines(self) -> tuple[list[SourceLine], list[int]]:
        found: list[tuple[int, int, SourceLine]] = []
        try:
            elf = ELFFile(io.BytesIO(self.image.file))
            if elf.has_dwarf_info():
                dwarf = elf.get_dwarf_info()
                for unit in dwarf.iter_CUs():
                    program = dwarf.line_program_for_CU(unit)
                    if program is not None and not _add(found, program):
                        break
        except DAMAGED:  # a program without lines, as if it had been stripped
            found = []
        found.sort(key=lambda row: row[:2])
        return [place for _, _, place in found], [address for address, _, _ in found]


def _add(found: list[tuple[int, int, SourceLine]], program: Any) -> bool:
    """The rows of one line program, ends of sequences as places without a file; False when there are too many."""
    names = [_text(entry.name) for entry in program["file_entry"]]
    first = 0 if program["version"] >= 5 else 1
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        index = state.file - first
        known = not state.end_sequence and 0 <= index < len(names)
        place = SourceLine(names[index], state.line) if known else SourceLine("", 0)
        # Where a sequence ends and another begins, the beginning counts; of one address the last row.
        found.append((state.address, len(found) if known else -1, place))
        if len(found) >= MAX_LINES:
            return False
    return True


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
