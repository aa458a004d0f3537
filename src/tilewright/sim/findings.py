"""Findings of a check. A finding names the steps, the memory, the range, and the missing token or write.

Findings are grouped by their probable cause, so that one mistake is one entry of a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

#: Kinds of findings, in the order of a report.
DEADLOCK = "deadlock"
LEAK = "token_leak"
RACE = "race"
OUT_OF_RANGE = "out_of_range"
UNINITIALISED = "uninitialised"
STREAM = "stream"
PORTABILITY = "portability"
WRITE_DISTANCE = "write_distance"
#: Kinds of findings, from causes to consequences. Steps after a deadlock do not run. A leftover token lets one unit
#: overtake another, which is a race. Accesses out of range and races cause uninitialised reads.
CAUSES = (STREAM, DEADLOCK, LEAK, OUT_OF_RANGE, RACE, UNINITIALISED)
#: A group shows some of its findings. For all other findings, the group lists at most this number of steps.
LISTED = 5
#: The probable cause of a finding: the kind of mistake, and its place.
_Cause = tuple[str, str]


@dataclass(frozen=True)
class Finding:
    """A defect of a program. `steps` are its instructions; `low`..`high` - 1 are the elements in the memory `space`."""

    kind: str
    message: str
    steps: tuple[int, ...] = ()
    space: str = ""
    low: int = 0
    high: int = 0
    #: For a deadlock or leak, the token queue. For a race, the missing token's path between units ("load->compute").
    queue: str = ""
    launch: str = ""
    #: The affected parts of low..high (empty: the whole range).
    ranges: tuple[tuple[int, int], ...] = ()
    #: The name of a memory, such as the micro-ops, from which one of the steps reads uninitialised values. These values
    #: decide which elements the step touches, so the finding is a consequence of the uninitialised read.
    undefined_by: str = ""

    @property
    def decides(self) -> bool:
        """Whether this finding is the uninitialised read of the memory `undefined_by`."""
        return self.kind == UNINITIALISED and bool(self.undefined_by) and self.space == self.undefined_by

    def __str__(self) -> str:
        return f"{self.kind} in {self.launch}: {self.message}" if self.launch else f"{self.kind}: {self.message}"

    def inside(self, launch: str) -> Finding:
        return replace(self, launch=launch)

    def overlaps(self, other: Finding) -> bool:
        mine, theirs = (finding.ranges or ((finding.low, finding.high),) for finding in (self, other))
        return self.space == other.space and any(a < d and c < b for a, b in mine for c, d in theirs)

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


@dataclass(frozen=True)
class Group:
    """Findings that probably have one cause: the root first, the others sorted by kind and step."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def place(self) -> Finding:
        """The finding to look at first. A race shows the defect more directly than the tokens left over at the end."""
        race = next((finding for finding in self.findings if finding.kind == RACE), self.first)
        return race if self.first.kind == LEAK else self.first

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The first finding of each kind, beginning with the root."""
        first: dict[str, Finding] = {}
        for finding in self.findings:
            first.setdefault(finding.kind, finding)
        return tuple(first.values())

    @property
    def others(self) -> str:
        """The number of the findings that are not `shown`, and their first steps, as text; "" if all are shown."""
        more = [finding for finding in self.findings if finding not in self.shown]
        places = [f"#{finding.steps[-1]}" for finding in more if finding.steps][:LISTED]
        at = f", at {' '.join(places)}{' ...' if len(more) > len(places) else ''}" if places else ""
        return f"{len(more)} more of this cause{at}" if more else ""

    @property
    def lines(self) -> Iterator[str]:
        first, *consequences = self.shown
        yield str(first)
        yield from (f"  so {finding}" for finding in consequences)
        if self.others:
            yield f"  {self.others}"

    def to_json(self) -> dict[str, Any]:
        shown = [finding.to_json() for finding in self.shown]
        return {"count": len(self.findings), "first": shown[0], "shown": shown, "others": self.others}


def grouped(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """Return one group of findings for each cause.

    A group is sorted by the kind of finding (in the order of CAUSES), then by step, so that it begins with its root.
    Findings of different launches have different causes. `_Rules` finds the causes in one launch.
    """
    launches: dict[str, list[Finding]] = {}
    for finding in findings:
        launches.setdefault(finding.launch, []).append(finding)
    return tuple(group for members in launches.values() for group in _of_launch(members))


def _of_launch(findings: Sequence[Finding]) -> Iterator[Group]:
    by_cause: dict[_Cause, list[Finding]] = {}
    rules = _Rules(findings)
    for finding in sorted(findings, key=_order):
        by_cause.setdefault(rules.cause(finding), []).append(finding)
    groups = sorted(_joined(by_cause), key=lambda group: _order(group[0]))
    yield from (Group(tuple(sorted(group, key=_order))) for group in groups)


def _order(finding: Finding) -> tuple[int, int]:
    rank = CAUSES.index(finding.kind) if finding.kind in CAUSES else len(CAUSES)
    if finding.kind == STREAM and finding.queue:
        rank = CAUSES.index(RACE)  # the program may end before the step does, which is a kind of race
    return -1 if finding.decides else rank, max(finding.steps, default=-1)


class _Rules:
    """The rules for the causes of findings in one launch. Findings with the same cause form a group."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._leaks = {finding.queue for finding in findings if finding.kind == LEAK}
        self._races = [finding for finding in findings if finding.kind == RACE]

    def cause(self, finding: Finding) -> _Cause:
        # All findings about steps that read uninitialised micro-ops have one cause.
        if finding.undefined_by:
            return "micro-ops", finding.undefined_by
        # If a race affects the same elements, the race is the cause of the uninitialised read: the read may come before
        # the write that initialises them.
        if finding.kind == UNINITIALISED:
            for race in self._races:
                if finding.overlaps(race):
                    return self.cause(race)
        if finding.queue and finding.kind in (RACE, STREAM, LEAK):
            # Races with a missing token on the same path have one cause. The path may lead through several queues
            # (`hazards.token_path`). Leftover tokens in one of these queues are the probable cause, because the
            # consumer of the queue runs ahead by the number of these tokens.
            units = finding.queue.split("->")
            legs = ("->".join(pair) for pair in pairwise(units))
            return "tokens", next((leg for leg in legs if leg in self._leaks), finding.queue)
        return finding.kind, f"{finding.space} {finding.queue}"


def _joined(by_cause: Mapping[_Cause, list[Finding]]) -> list[list[Finding]]:
    groups: list[list[Finding]] = []
    common: list[set[int]] = []  # for each group, the steps that occur in all of its races
    for (what, _), group in by_cause.items():
        steps = set.intersection(*(set(finding.steps) for finding in group)) if what == "tokens" else set()
        near = next((place for place, others in enumerate(common) if others & steps), None)
        if near is None:
            groups.append(group)
            common.append(steps)
        else:
            groups[near] += group
            common[near] &= steps
    return groups
