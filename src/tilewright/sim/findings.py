"""What a check reports: each finding names the steps, the memory, the range and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

#: Kinds, in the order of a report.
DEADLOCK, LEAK, RACE = "deadlock", "token_leak", "race"
OUT_OF_RANGE, UNINITIALISED, STREAM = "out_of_range", "uninitialised", "stream"


@dataclass(frozen=True)
class Finding:
    """One defect of a program. `steps` are instruction indices; `low`..`high` (exclusive) are elements of `space`."""

    kind: str
    message: str
    steps: tuple[int, ...] = ()
    space: str = ""
    low: int = 0
    high: int = 0
    queue: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
