"""The estimated energy of counted events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.energy.table import DRAM, ZERO, Cost, Table
from tilewright.sim.events import Events, Work


@dataclass(frozen=True, eq=False)
class Energy:
    """An estimate: energies by cause, the largest first. `missing` names what is not in it, with the reason.

    Causes are macs, operations, sram NAME, dram_read, dram_write, dram_activate and cycles.
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
    """Return the estimated energy of events. An event for which the table has no energy is listed as missing."""
    by: dict[str, Cost] = {}
    missing = dict(events.missing)

    def add(cause: str, count: float, cost: Cost | None, event: str) -> None:
        if count and cost is None:
            missing[event] = f"table {table.name} has no energy for it"
        elif count and cost is not None:
            by[cause] = by.get(cause, ZERO) + cost * count

    def works(cause: str, each: Iterable[Work]) -> None:
        for work in each:
            for part in work.parts:
                add(cause, work.count, table.of(part.kind, part.bits), part.kind)

    works("macs", events.macs)
    works("operations", events.operations)
    for access in events.accesses:
        for write, count in ((False, access.reads), (True, access.writes)):
            add(f"sram {access.memory}", count, table.access(access.capacity, access.bits, write), "sram")
    for event, moved in zip(DRAM, (events.read_bytes, events.write_bytes), strict=True):
        add(event, 8 * moved, _per_bit(table, event), event)
    opened = events.activations(table.row_bytes, table.banks)
    add("dram_activate", opened, table.of("dram_activate", 0), "dram_activate")
    if cycle := table.of("cycle", 0):
        add("cycles", events.cycles, cycle, "cycle")
    ranked = sorted(by.items(), key=lambda item: -item[1].picojoules)
    return Energy(table, events, {cause: cost for cause, cost in ranked if cost.high}, missing)


def _per_bit(table: Table, event: str) -> Cost | None:
    """Return the energy of one bit of a DRAM transfer, from the smallest published access; None if there is none."""
    listed = table.entries.get(table.alias.get(event, event), ())
    if not listed:
        return None
    smallest = min(listed, key=lambda entry: entry.bits)
    return smallest.cost * (1 / smallest.bits)
