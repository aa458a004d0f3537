"""Tables of energies, and estimates of the energy of counted events. docs/energy.md describes the file format.

Between two published sizes of an event, the energy is interpolated as a power of the size: a straight line in a diagram
with logarithmic axes. Outside the range of the published sizes, the line through the two nearest sizes is extended. If
only one size is published, the energy is proportional to the size. Published figures follow such laws: the energy of an
adder grows linearly with its width, the energy of a multiplier with the square of its width, and the energy of SRAM
wires with the square root of the capacity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from tilewright import fields
from tilewright.errors import ConfigError
from tilewright.fields import FieldError, Range, naming, record
from tilewright.sim.events import KINDS, Events, Work

DEFAULT = "horowitz"
#: Events of an SRAM: an access of `bits` bits, in a memory of `bytes` bytes. If a table has no sram_write, a write
#: costs as much as a read.
SRAM = "sram"
SRAM_WRITE = "sram_write"
DRAM = ("dram_read", "dram_write")
#: Events without a size: the activation of a DRAM row, and a clock cycle of the whole machine.
PLAIN = ("dram_activate", "cycle")
EVENTS = (*KINDS, SRAM, SRAM_WRITE, *DRAM, *PLAIN)
_Size: TypeAlias = Annotated[int, Range(1, 1 << 40)]
_Energy: TypeAlias = Annotated[float, Range(0, 1e30)]


class Dram(NamedTuple):
    """The section [dram] of a file."""

    row_bytes: _Size
    banks: _Size


_TABLE: dict[str, Any] = dict.fromkeys(("name", "technology", "source"), str) | {"dram": Dram, "entry": list}
_ENTRY: dict[str, Any] = {"event": Literal[EVENTS], "as": Literal[EVENTS], "bits": _Size, "bytes": _Size}
_ENTRY |= {"picojoules": _Energy, "range": tuple[_Energy, _Energy], "technology": str, "source": str}
#: The folder of this package's tables. A table's name is the file name without suffix.
FOLDER = Path(__file__).parent / "tables"


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


_TABLE["base"] = Literal[tuple(names())]


@dataclass(frozen=True)
class Cost:
    """An energy in picojoules, with the range that its source states."""

    picojoules: float
    low: float
    high: float

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.picojoules * factor, self.low * factor, self.high * factor)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.picojoules + other.picojoules, self.low + other.low, self.high + other.high)


ZERO = Cost(0.0, 0.0, 0.0)


class Entry(NamedTuple):
    """A published energy. `bits` is the width of the event, and `bytes` is the capacity of the SRAM (0: undefined)."""

    event: str
    bits: int
    bytes: int
    cost: Cost
    technology: str
    source: str


@dataclass(frozen=True, eq=False)
class Table:
    """A table of energies. `alias` maps an event without entries to the event whose entries it uses."""

    name: str
    technology: str
    source: str
    row_bytes: int
    banks: int  # each bank of DRAM has one open row
    entries: Mapping[str, tuple[Entry, ...]]
    alias: Mapping[str, str]

    def of(self, event: str, bits: float) -> Cost | None:
        """Return the energy of an event with `bits` bits, or None if the table does not contain the event."""
        listed = self.listed(event)
        if not listed:
            return None
        return listed[0].cost if event in PLAIN else _law([(entry.bits, entry.cost) for entry in listed], bits)

    def access(self, capacity: int, bits: int, write: bool) -> Cost | None:
        """Return the energy of an access of `bits` bits to an SRAM of `capacity` bytes, or None if no entry exists."""
        listed = (self.listed(SRAM_WRITE) if write else ()) or self.listed(SRAM)
        if not listed:
            return None
        # The energy of the nearest width is scaled to the width of the access.
        width = min({entry.bits for entry in listed}, key=lambda width: (abs(math.log(width / bits)), width))
        points = [(entry.bytes, entry.cost * (1 / width)) for entry in listed if entry.bits == width]
        return _law(points, capacity, steepest=0.5) * bits

    def listed(self, event: str) -> tuple[Entry, ...]:
        """Return the entries of an event, or of its alias; () if the table has none."""
        return self.entries.get(self.alias.get(event, event), ())


def _law(points: Sequence[tuple[float, Cost]], size: float, steepest: float = 1.0) -> Cost:
    """Interpolate (size, cost) points. If there is only one, the cost grows as `size` to the power `steepest`."""
    points = sorted(points)
    for listed, cost in points:
        if listed == size:
            return cost
    if len(points) == 1:
        return points[0][1] * (size / points[0][0]) ** steepest
    upper = next((index for index, (listed, _) in enumerate(points) if listed > size), len(points) - 1)
    a, low = points[max(upper, 1) - 1]
    b, high = points[max(upper, 1)]
    share = math.log(size / a) / math.log(b / a)  # below 0 or above 1 outside of the points
    return Cost(*(_between(getattr(low, key), getattr(high, key), share) for key in ("picojoules", "low", "high")))


def _between(x: float, y: float, share: float) -> float:
    if x and y:  # geometrically; a zero has no logarithm
        return float(x ** (1 - share) * y**share)
    return max(0.0, x + (y - x) * share)


def read(source: str | Path) -> Table:
    """Return the table of this name or in this TOML file. Raises ConfigError if it is missing or malformed."""
    name = DEFAULT if source == "default" else str(source)
    if name in names():
        return _read(FOLDER / f"{name}.toml", name)
    if not name.endswith(".toml"):
        raise ConfigError("energy", f"there is no table '{name}'", f"choose {', '.join(names())}, or give a .toml file")
    return _read.__wrapped__(Path(name), name)  # not cached, because the user may edit the file


@lru_cache
def _read(path: Path, where: str) -> Table:
    with naming(where, ConfigError, "write a table as docs/energy.md describes"):
        return _table(record(_TABLE, fields.read(path, ConfigError), "", {"base": None, "dram": None}))


def _table(data: Mapping[str, Any]) -> Table:
    base = None if data["base"] is None else _read(FOLDER / f"{data['base']}.toml", data["base"])
    if not (dram := data["dram"] or (base and Dram(base.row_bytes, base.banks))):
        raise FieldError("", "has no section [dram]", "add one with row_bytes and banks")
    entries: dict[str, tuple[Entry, ...]] = {}
    alias: dict[str, str] = {}
    for number, item in enumerate(data["entry"], 1):
        where = f"entry {number}"
        values = record(_ENTRY, item, where, dict.fromkeys(_ENTRY.keys() - {"event"}))
        event: str = values["event"]
        if values["as"] is not None:
            alias[event] = values["as"]
            continue
        entry = _entry(where, values, data["technology"], data["source"])
        if any((entry.bits, entry.bytes) == (earlier.bits, earlier.bytes) for earlier in entries.get(event, ())):
            raise FieldError(where, f"is a second energy of {event} of this size", "remove one of the two")
        entries[event] = (*entries.get(event, ()), entry)
    # A file's entries of an event replace all entries of this event in the base table.
    defined = entries.keys() | alias.keys()
    if base:
        entries = {event: listed for event, listed in base.entries.items() if event not in defined} | entries
        alias = {event: stands_for for event, stands_for in base.alias.items() if event not in defined} | alias
    for event, stands_for in alias.items():
        if event in entries or stands_for not in entries:
            raise FieldError(
                "entry", f"'{event}' cannot stand for '{stands_for}'", "refer to an event that has energies"
            )
    return Table(data["name"], data["technology"], data["source"], dram.row_bytes, dram.banks, entries, alias)


def _entry(where: str, values: Mapping[str, Any], technology: str, source: str) -> Entry:
    """Return an entry. Raises FieldError for a size that the event does not have, or for contradicting numbers."""
    event = values["event"]
    # A row activation and a cycle have no width. Only an SRAM has a capacity.
    sizes = (*(("bits",) if event not in PLAIN else ()), *(("bytes",) if event in (SRAM, SRAM_WRITE) else ()))
    for key in ("bits", "bytes", "picojoules"):
        if values[key] is None and key in (*sizes, "picojoules"):
            raise FieldError(where, f"lacks '{key}'", f"give {key}")
        if values[key] is not None and key not in (*sizes, "picojoules"):
            raise FieldError(where, f"{event} has no {key}", f"remove {key}")
    value = values["picojoules"]
    low, high = values["range"] or (value, value)
    if not low <= value <= high:
        raise FieldError(where, f"picojoules {value:g} is not in the range {low:g} to {high:g}", "correct one of them")
    cost = Cost(value, low, high)
    texts = values["technology"] or technology, values["source"] or source
    return Entry(event, values["bits"] or 0, values["bytes"] or 0, cost, *texts)


@dataclass(frozen=True, eq=False)
class Energy:
    """An estimated energy. `by` has the costs by cause, in descending order.

    Causes are macs, operations, sram NAME, dram_read, dram_write, dram_activate and cycles. `missing` maps each omitted
    event to the reason.
    """

    table: Table
    events: Events
    by: Mapping[str, Cost]
    missing: Mapping[str, str]

    @property
    def total(self) -> Cost:
        return sum(self.by.values(), ZERO)

    @property
    def picojoules(self) -> float:
        return self.total.picojoules

    def to_json(self) -> dict[str, Any]:
        """Return the object `energy` of `run --json`; its keys are stable."""
        total = self.total
        return {
            "estimate": True,
            "picojoules": total.picojoules,
            "low": total.low,
            "high": total.high,
            "by": {cause: cost.picojoules for cause, cost in self.by.items()},
            "table": self.table.name,
            "technology": self.table.technology,
            "source": self.table.source,
            "missing": dict(self.missing),
            "events": self.events.to_json(self.table.row_bytes, self.table.banks),
        }

    def __repr__(self) -> str:
        return f"<Energy {self.picojoules:,.0f} pJ, estimated with the table {self.table.name}>"


def estimate(events: Events, table: Table) -> Energy:
    """Return the estimated energy of events. Events that the table does not contain are listed as missing."""
    by: dict[str, Cost] = {}
    missing = dict(events.missing)

    def add(cause: str, count: float, cost: Cost | None, event: str) -> None:
        if count and cost is None:
            missing[event] = f"table {table.name} has no energy for it"
        elif count and cost is not None:
            by[cause] = by.get(cause, ZERO) + cost * count

    def works(cause: str, items: Iterable[Work]) -> None:
        for work in items:
            for part in work.parts:
                add(cause, work.count, table.of(part.kind, part.bits), part.kind)

    works("macs", events.macs)
    works("operations", events.operations)
    for access in events.accesses:
        for write, count in ((False, access.reads), (True, access.writes)):
            add(f"sram {access.memory}", count, table.access(access.capacity, access.bits, write), "sram")
    for event, transferred in zip(DRAM, (events.read_bytes, events.write_bytes), strict=True):
        add(event, 8 * transferred, _per_bit(table, event), event)
    opened = events.activations(table.row_bytes, table.banks)
    add("dram_activate", opened, table.of("dram_activate", 0), "dram_activate")
    # The energy of a cycle is optional, so it never counts as missing.
    if cycle := table.of("cycle", 0):
        add("cycles", events.cycles, cycle, "cycle")
    ranked = sorted(by.items(), key=lambda item: -item[1].picojoules)
    return Energy(table, events, {cause: cost for cause, cost in ranked if cost.high}, missing)


def _per_bit(table: Table, event: str) -> Cost | None:
    listed = table.listed(event)
    if not listed:
        return None
    smallest = min(listed, key=lambda entry: entry.bits)
    return smallest.cost * (1 / smallest.bits)
