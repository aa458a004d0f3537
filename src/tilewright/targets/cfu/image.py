"""A launch as the machine takes it: code, data and the model behind them; checked, as it may come from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.program import Launch

from .compiler import layout
from .compiler.layout import Kind

#: Main memory begins here (LiteX).
BASE = 0x4000_0000
MAX_SYMBOLS = 1 << 16


@dataclass(frozen=True)
class Place:
    """A graph tensor in the arena, or of a bare program an area of it."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Symbol:
    """A function, for listings and profiles."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, eq=False)
class Image:
    """`words` uint32 from `base` on, `data` uint8 behind them; `blob` uint8 at `model`, then the arena."""

    entry: int
    model: int
    words: Array
    data: Array
    blob: Array
    header: Mapping[str, int]
    records: Sequence[Mapping[str, int]]
    symbols: tuple[Symbol, ...]
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]

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
    def of(cls, launch: Launch) -> Image:
        """The image of a launch. Raises ProgramError for one that does not fit together."""
        where = f"launch '{launch.name}'"
        try:
            return _image(launch.meta, launch.arrays)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProgramError(where, f"its parts do not fit together: {error}", "compile it again") from None
        except ProgramError as error:
            raise ProgramError(f"{where}: {error.where}", error.reason, error.remedy) from None


def _image(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> Image:
    words, data, blob = arrays["insns"], arrays["data"], arrays["blob"]
    for array, kind in ((words, "uint32"), (data, "uint8"), (blob, "uint8")):
        if array.ndim != 1 or array.dtype != kind:
            raise ValueError(f"an array is {array.dtype}{list(array.shape)}, not {kind}")
    header, records = layout.unpack(blob)
    image = Image(
        entry=int(meta["entry"]),
        model=int(meta["model"]),
        words=words,
        data=data,
        blob=blob,
        header=header,
        records=records,
        symbols=tuple(Symbol(str(n), int(a), int(s)) for n, a, s in meta["symbols"]),
        inputs=_places(meta["inputs"], header),
        outputs=_places(meta["outputs"], header),
    )
    code = range(BASE, BASE + 4 * len(words))
    if image.entry not in code or image.entry % 4 or BASE + 4 * len(words) + len(data) > image.model or image.model % 4:
        raise ValueError(f"entry {image.entry:#x} or model {image.model:#x} lie outside")
    if len(image.symbols) > MAX_SYMBOLS:
        raise ValueError("too many symbols")
    layout.check(header, records)
    return image


def _places(rows: Sequence[Sequence[Any]], header: Mapping[str, int]) -> tuple[Place, ...]:
    places = tuple(Place(str(name), int(offset), int(nbytes)) for name, offset, nbytes in rows)
    for place in places:
        if place.offset < 0 or place.nbytes < 1 or place.offset + place.nbytes > header["arena_bytes"]:
            raise ValueError(f"'{place.name}' lies outside the arena")
    return places
