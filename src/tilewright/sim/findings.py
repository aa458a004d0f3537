"""Findings of a check. Each names the steps, the memory, the range, and the token or write that is missing."""

from __future__ import annotations

from collections.abc import Iterable
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
    leak, or the path of the token that a race lacks.
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

    def __str__(self) -> str:
        return f"{self.kind} in {self.launch}: {self.message}" if self.launch else f"{self.kind}: {self.message}"

    def inside(self, launch: str) -> Finding:
        """Return the same finding, with the launch's name added."""
        return replace(self, launch=launch)

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


#: Kinds of findings from causes to consequences: steps after a deadlock do not run, a token too many or too few lets
#: units overtake each other, an access out of range or an uninitialised read may be a wrong address or such a race.
CAUSES = (STREAM, DEADLOCK, LEAK, OUT_OF_RANGE, RACE, UNINITIALISED)


@dataclass(frozen=True)
class Group:
    """Findings that probably have one cause, the first one of the program in front."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def others(self) -> str:
        """Text that counts the other findings and names their first steps; "" if there are none."""
        more = self.findings[1:]
        places = [f"#{finding.steps[-1]}" for finding in more if finding.steps][:LISTED]
        at = f", at {' '.join(places)}{' ...' if len(more) > len(places) else ''}" if places else ""
        return f"{len(more)} more of this cause{at}" if more else ""

    def to_json(self) -> dict[str, Any]:
        return {"count": len(self.findings), "first": self.first.to_json()}


#: Steps that a group lists beside its first finding.
LISTED = 5


def grouped(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """Return findings in groups of one cause, the root first: by kind from causes to consequences, then by step.

    Races have one cause if they lack a token on the same path. Other findings have one if they are of the same kind,
    memory and queue. Each launch has groups of its own.
    """
    found: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        memory = "" if finding.kind == RACE and finding.queue else finding.space
        found.setdefault((finding.kind, finding.launch, memory, finding.queue), []).append(finding)
    launches = {name: place for place, name in enumerate(dict.fromkeys(key[1] for key in found))}

    def order(finding: Finding) -> tuple[int, int, int]:
        rank = CAUSES.index(finding.kind) if finding.kind in CAUSES else len(CAUSES)
        return launches[finding.launch], rank, max(finding.steps, default=-1)

    groups = [Group(tuple(sorted(group, key=order))) for group in found.values()]
    return tuple(sorted(groups, key=lambda group: order(group.first)))
