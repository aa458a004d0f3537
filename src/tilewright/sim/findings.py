"""Findings of a check. Each names the steps, the memory, the range, and the token or write that is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

#: Kinds of findings, in the order of a report.
DEADLOCK, LEAK, RACE = "deadlock", "token_leak", "race"
OUT_OF_RANGE, UNINITIALISED, STREAM = "out_of_range", "uninitialised", "stream"
PORTABILITY, WRITE_DISTANCE = "portability", "write_distance"


@dataclass(frozen=True)
class Finding:
    """A defect of a program. `steps` are instruction indices; `low`..`high` (exclusive) are elements of memory `space`.

    `ranges` are the affected parts of low..high; empty means all of it. `queue` names the token queue of a deadlock or
    leak, or the path of the token that a race lacks. `blind` names the memory of uninitialised micro-ops that decide
    which elements one of the steps touches; the finding `decides` if it is about their read itself.
    """

    kind: str
    message: str
    steps: tuple[int, ...] = ()
    space: str = ""
    low: int = 0
    high: int = 0
    queue: str = ""
    launch: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    blind: str = ""

    @property
    def decides(self) -> bool:
        return self.kind == UNINITIALISED and bool(self.blind) and self.space == self.blind

    def __str__(self) -> str:
        return f"{self.kind} in {self.launch}: {self.message}" if self.launch else f"{self.kind}: {self.message}"

    def inside(self, launch: str) -> Finding:
        """Return the same finding, with the launch's name added."""
        return replace(self, launch=launch)

    def overlaps(self, other: Finding) -> bool:
        """Return whether two findings affect an element of the same memory."""
        mine, others = (each.ranges or ((each.low, each.high),) for each in (self, other))
        return self.space == other.space and any(a < d and c < b for a, b in mine for c, d in others)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "launch": self.launch,
            "message": self.message,
            "steps": list(self.steps),
            "memory": self.space,
            "ranges": [list(pair) for pair in self.ranges or ((self.low, self.high),)] if self.space else [],
            "queue": self.queue,
        }
