"""A launch as the machine takes it: code, data and the model behind them; checked, as it may come from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.launch_image import Contents
from tilewright.program.program import Launch

from .compiler import layout
from .compiler.layout import Kind

#: Main memory begins here (LiteX).
BASE = 0x4000_0000
MAX_SYMBOLS = 1 << 16
#: Symbols and areas as JSON values.
ROWS = tuple[tuple[str, int, int], ...]


class ArenaArea(NamedTuple):
    """Where a graph tensor lies in the arena, or of a bare program an operand."""

    name: str
    offset: int
    nbytes: int


class Symbol(NamedTuple):
    """A function, for listings and profiles."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, eq=False)
class FirmwareImage:
    """`words` uint32 from `base` on, `data` uint8 behind them; `blob` uint8 at `model`, then the arena."""

    entry: int
    model: int
    words: Array
    data: Array
    blob: Array
    header: Mapping[str, int]
    records: Sequence[Mapping[str, int]]
    symbols: tuple[Symbol, ...]
    inputs: tuple[ArenaArea, ...]
    outputs: tuple[ArenaArea, ...]

    @property
    def arena(self) -> int:
        """The address of the first activation."""
        return self.model + layout.aligned(len(self.blob))

    @property
    def end(self) -> int:
        """The address behind the arena."""
        return self.arena + self.header["arena_bytes"]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(Kind(record["kind"]).name.lower() for record in self.records)

    def function(self, pc: int) -> str:
        """Where an address lies, for people."""
        for symbol in self.symbols:
            if symbol.address <= pc < symbol.address + max(symbol.size, 1):
                return f"{symbol.name}+{pc - symbol.address:#x}"
        return f"{pc:#x}"

    @classmethod
    def of(cls, launch: Launch) -> FirmwareImage:
        """The image of a launch. Raises ProgramError for one that does not fit together."""
        contents = Contents(launch)
        words = contents.array("insns", np.uint32, (None,))
        data, blob = contents.array("data", np.uint8, (None,)), contents.array("blob", np.uint8, (None,))
        try:
            header, records = layout.unpack(blob)
            layout.check(header, records)
        except ProgramError as error:
            raise ProgramError(f"launch '{launch.name}': {error.where}", error.reason, error.remedy) from None
        except (ValueError, OverflowError) as error:
            contents.refuse(f"its model is damaged: {error}")
        code = range(BASE, BASE + 4 * len(words))
        entry, model = contents.number("entry"), contents.number("model")
        if entry not in code or entry % 4 or code.stop + len(data) > model or model % 4:
            contents.refuse(f"entry {entry:#x} or model {model:#x} lie outside")
        symbols = tuple(Symbol(*row) for row in contents.value(ROWS, "symbols"))
        if len(symbols) > MAX_SYMBOLS:
            contents.refuse("has too many symbols")
        inputs, outputs = (_areas(contents, name, header) for name in ("inputs", "outputs"))
        return cls(entry, model, words, data, blob, header, records, symbols, inputs, outputs)


def _areas(contents: Contents, name: str, header: Mapping[str, int]) -> tuple[ArenaArea, ...]:
    areas = tuple(ArenaArea(*row) for row in contents.value(ROWS, name))
    for area in areas:
        if area.offset < 0 or area.nbytes < 1 or area.offset + area.nbytes > header["arena_bytes"]:
            contents.refuse(f"'{area.name}' lies outside the arena")
    return areas
