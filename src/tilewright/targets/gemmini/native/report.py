"""The report of a host in C as text: findings by their place in the source, counts, and the time of each line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Groups of findings, and source lines, that are printed: of the lines, those that were longest at work.
SHOWN, LINES = 8, 12


def shown(report: dict[str, Any]) -> list[str]:
    """Return a report as lines: for each kind of finding and place, the first one; then the counts."""
    found = report["findings"]
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found:
        groups.setdefault((one["kind"], one["places"]), []).append(one["message"])
    lines = [
        f"{kind} at {places}: {messages[0]}{f' (and {len(messages) - 1} more there)' if len(messages) > 1 else ''}"
        for (kind, places), messages in groups.items()
    ]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"... and findings at {len(lines) - SHOWN} more places"]
    counts = f"{report['cycles']:,} cycles, {report['commands']:,} commands, {report['macs']:,} multiply-accumulates"
    return [*lines, f"{counts}, {len(found) or 'no'} hazard{'s' * (len(found) != 1)}"]


def table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the source lines that were longest at work, in the order of the program."""
    longest = sorted(lines, key=lambda line: line["first"] - line["last"])[:LINES]
    if not longest:
        return []
    rows = [(f"{line['first']:,}", f"{line['last']:,}", f"{line['commands']:,}", line["place"]) for line in lines]
    kept = [row for row, line in zip(rows, lines, strict=True) if line in longest]
    cells = [("first cycle", "last cycle", "commands", "source line"), *kept]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lined = ([*(cell.rjust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]] for row in cells)
    return ["", *map("  ".join, lined)]
