"""Read tables of energies, and interpolate between their entries. docs/energy.md describes the format of the files.

Between the published sizes of an event, energy is a power of the size: a straight line in a diagram with logarithmic
axes. Beyond the smallest and largest size, the nearest pair's power continues. An event with a single size costs energy
in proportion to the size. Published figures follow such laws: adders grow linearly with their width, multipliers with
its square, and the wires of an SRAM with the square root of its capacity.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.errors import ConfigError, one_of
from tilewright.sim.events import KINDS

#: The tables of this package, by file name without suffix.
FOLDER = Path(__file__).parent / "tables"
DEFAULT = "horowitz"
#: Accesses to an SRAM of `bytes` bytes, `bits` at a time. Without sram_write, a write costs as much as a read.
SRAM, SRAM_WRITE = "sram", "sram_write"
DRAM = ("dram_read", "dram_write")
#: Events without a size: an activation of a DRAM row, and a clock cycle of the whole machine.
PLAIN = ("dram_activate", "cycle")
EVENTS = (*KINDS, SRAM, SRAM_WRITE, *DRAM, *PLAIN)
_TEXTS, _OTHERS = ("name", "technology", "source"), ("base", "dram", "entry")
_KEYS = {"event", "bits", "bytes", "picojoules", "range", "as", "technology", "source"}


@dataclass(frozen=True)
class Cost:
    """An energy in picojoules, and the least and greatest value if the source gives a range."""

    picojoules: float
    low: float
    high: float

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.picojoules * factor, self.low * factor, self.high * factor)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.picojoules + other.picojoules, self.low + other.low, self.high + other.high)


ZERO = Cost(0.0, 0.0, 0.0)


class Entry(NamedTuple):
    """One published energy. `bits` is the width (0: the event has none), `bytes` the capacity of an SRAM, else 0."""

    event: str
    bits: int
    bytes: int
    cost: Cost
    technology: str
    source: str


@dataclass(frozen=True, eq=False)
class Table:
    """A table of energies. `alias` names the event whose energy an event has. The DRAM has `banks` open rows."""

    name: str
    technology: str
    source: str
    row_bytes: int
    banks: int
    entries: Mapping[str, tuple[Entry, ...]]
    alias: Mapping[str, str]

    def of(self, event: str, bits: float) -> Cost | None:
        """Return the energy of an event with `bits` bits, or None if the table has none for it."""
        listed = self._listed(event)
        if not listed:
            return None
        return listed[0].cost if event in PLAIN else _law([(entry.bits, entry.cost) for entry in listed], bits)

    def access(self, capacity: int, bits: int, write: bool) -> Cost | None:
        """Return the energy of an access of `bits` bits to an SRAM of `capacity` bytes; None if the table has none.

        Entries for the nearest width count; energy is in proportion to the width.
        """
        listed = (self._listed(SRAM_WRITE) if write else ()) or self._listed(SRAM)
        if not listed:
            return None
        width = min({entry.bits for entry in listed}, key=lambda own: (abs(math.log(own / bits)), own))
        points = [(entry.bytes, entry.cost * (1 / width)) for entry in listed if entry.bits == width]
        return _law(points, capacity, steepest=0.5) * bits

    def _listed(self, event: str) -> tuple[Entry, ...]:
        return self.entries.get(self.alias.get(event, event), ())


def _law(points: Sequence[tuple[float, Cost]], size: float, steepest: float = 1.0) -> Cost:
    """Return the cost at a size, from costs at other sizes. With a single point, the power is `steepest`."""
    points = sorted(points)
    for known, cost in points:
        if known == size:
            return cost
    if len(points) == 1:
        return points[0][1] * (size / points[0][0]) ** steepest
    upper = next((index for index, (known, _) in enumerate(points) if known > size), len(points) - 1)
    (a, low), (b, high) = points[max(upper, 1) - 1], points[max(upper, 1)]
    share = math.log(size / a) / math.log(b / a)
    return Cost(*(_between(getattr(low, key), getattr(high, key), share) for key in ("picojoules", "low", "high")))


def _between(x: float, y: float, share: float) -> float:
    """Return `x` for a share of 0 and `y` for 1, with equal ratios between; equal differences if one of them is 0."""
    if x and y:
        return float(x ** (1 - share) * y**share)
    return max(0.0, x + (y - x) * share)


def names() -> list[str]:
    """Return the names of the tables that this package has."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(source: str | Path) -> Table:
    """Return the table with this name ("default": the default table), or the one in a TOML file.

    Raises ConfigError if there is no such table, or if the file is malformed.
    """
    name = DEFAULT if source == "default" else str(source)
    if name in names():
        return _read(FOLDER / f"{name}.toml", name)
    if not name.endswith(".toml"):
        raise ConfigError("energy", f"there is no table '{name}'", f"choose {', '.join(names())}, or give a .toml file")
    return _read.__wrapped__(Path(name), name)  # the file may change


@lru_cache
def _read(path: Path, where: str) -> Table:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(where, f"cannot be read: {error}", "give a table as docs/energy.md describes") from None
    _refuse_unknown(where, data, {*_TEXTS, *_OTHERS})
    name, technology, source = (_text(where, data, key) for key in _TEXTS)
    listed, base = data.get("entry"), _base(where, data.get("base"))
    if not isinstance(listed, list) or not listed:
        raise ConfigError(where, "has no entries", "add [[entry]] sections, as docs/energy.md describes")
    row_bytes, banks = _dram(where, data.get("dram"), base)
    entries: dict[str, tuple[Entry, ...]] = {}
    alias: dict[str, str] = {}
    for number, item in enumerate(listed, 1):
        here = f"{where}: entry {number}"
        event = _event(here, item)
        if "as" in item:
            alias[event] = _event(here, {"event": item["as"]})
            continue
        entry = _entry(here, item, technology, source)
        if any((entry.bits, entry.bytes) == (known.bits, known.bytes) for known in entries.get(event, ())):
            raise ConfigError(here, f"is a second energy of {event} of this size", "remove one of the two")
        entries[event] = (*entries.get(event, ()), entry)
    own = entries.keys() | alias.keys()
    if base:
        entries = {event: each for event, each in base.entries.items() if event not in own} | entries
        alias = {event: other for event, other in base.alias.items() if event not in own} | alias
    for event, other in alias.items():
        if event in entries or other not in entries:
            raise ConfigError(where, f"'{event}' cannot stand for '{other}'", "refer to an event that has energies")
    return Table(name, technology, source, row_bytes, banks, entries, alias)


def _base(where: str, name: Any) -> Table | None:
    """Return the table of this package that another one completes, if it names one."""
    if name is None:
        return None
    if name not in names():
        raise ConfigError(where, f"there is no table {name!r} to start from", one_of(name, names()))
    return _read(FOLDER / f"{name}.toml", name)


def _dram(where: str, found: Any, base: Table | None) -> tuple[int, int]:
    """Return the bytes of a DRAM row and the number of banks: from the section `dram`, or else from the base."""
    if found is None and base:
        return base.row_bytes, base.banks
    if not isinstance(found, dict):
        raise ConfigError(where, "has no section [dram]", "add one with row_bytes and banks")
    _refuse_unknown(f"{where}: dram", found, {"row_bytes", "banks"})
    return _whole(f"{where}: dram", found, "row_bytes"), _whole(f"{where}: dram", found, "banks")


def _entry(where: str, item: Mapping[str, Any], technology: str, source: str) -> Entry:
    event = item["event"]
    needs_bytes, plain = event in (SRAM, SRAM_WRITE), event in PLAIN
    bits = 0 if plain else _whole(where, item, "bits")
    capacity = _whole(where, item, "bytes") if needs_bytes else 0
    if extra := ({"bits"} if plain else set()) & item.keys() | (set() if needs_bytes else {"bytes"}) & item.keys():
        raise ConfigError(where, f"{event} has no {min(extra)}", f"remove {min(extra)}")
    value = _energy(where, "picojoules", item.get("picojoules"))
    limits = item.get("range", [value, value])
    if not isinstance(limits, list) or len(limits) != 2:
        raise ConfigError(where, "range is not a list of two numbers", "give the least and the greatest energy")
    low, high = (_energy(where, "range", limit) for limit in limits)
    if not low <= value <= high:
        raise ConfigError(where, f"picojoules {value:g} is not in the range {low:g} to {high:g}", "correct one of them")
    texts = {"technology": technology, "source": source} | {key: item[key] for key in _TEXTS[1:] if key in item}
    return Entry(event, bits, capacity, Cost(value, low, high), *(_text(where, texts, key) for key in _TEXTS[1:]))


def _event(where: str, item: Any) -> str:
    """Return the event of an entry. Raises ConfigError if the entry is not a table, or has an unknown key or event."""
    if not isinstance(item, dict):
        raise ConfigError(where, "is not a table", "write it as an [[entry]] section")
    _refuse_unknown(where, item, _KEYS)
    event = item.get("event")
    if event not in EVENTS:
        raise ConfigError(where, f"unknown event {event!r}", one_of(event, EVENTS))
    return str(event)


def _refuse_unknown(where: str, found: Mapping[str, Any], known: set[str]) -> None:
    if unknown := found.keys() - known:
        raise ConfigError(where, f"unknown key '{min(unknown)}'", one_of(min(unknown), sorted(known)))


def _text(where: str, found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(where, f"{key} is {value!r}, not text", f"give {key}")
    return value


def _whole(where: str, found: Mapping[str, Any], key: str) -> int:
    value = found.get(key)
    if type(value) is not int or value < 1:
        raise ConfigError(where, f"{key} is {value!r}, not a positive whole number", f"give {key}")
    return value


def _energy(where: str, key: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ConfigError(where, f"{key} is {value!r}, not a number of at least 0", "give an energy in picojoules")
    return float(value)
