"""What a check found, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.report.text import console
from tilewright.sim.findings import Finding


def to_json(target: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """The stable object that `check --json` prints."""
    return {"target": target, "hazards": len(findings), "findings": [finding.to_json() for finding in findings]}


def show(findings: Sequence[Finding]) -> None:
    """One line a finding, and how many there are."""
    to = console()
    for finding in findings:
        to.print(str(finding), soft_wrap=True)
    to.print(f"hazards {len(findings)}", style="red" if findings else "green")
