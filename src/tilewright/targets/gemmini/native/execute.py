"""Compile a host program in C, run it, and report the cycles and hazards of the machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import InputError
from tilewright.files import scratch
from tilewright.native.build import program as compiled
from tilewright.program.file import load
from tilewright.sim.findings import Finding
from tilewright.targets.base import TimingModel
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.native.hostlib import library
from tilewright.targets.users import Execution

#: The largest number of printed groups of findings, and of printed source lines (the lines with the most cycles).
SHOWN = 8
LINES = 12


def execute(source: Path, config: Config, flags: Sequence[str], timing: TimingModel) -> Execution:
    """Compile and run a C file that uses the headers of Gemmini. `flags` are further arguments of the compiler.

    The run fails if the exit status is not 0, or if there is a hazard. Raises InputError if the file does not compile,
    or if the compiled program cannot be started.
    """
    library_flags = library(config).flags()
    with scratch() as folder:
        binary = Path(folder, source.stem)
        report = Path(folder, "report.json")
        saved = Path(os.environ.get("TILEWRIGHT_GEMMINI_SAVE") or Path(folder, "program.twp"))
        compiled(str(source), binary, source, [*library_flags["cflags"], *flags], library_flags["libs"])
        files = {"TILEWRIGHT_GEMMINI_REPORT": str(report), "TILEWRIGHT_GEMMINI_SAVE": str(saved)}
        try:
            done = subprocess.run([str(binary)], stdout=subprocess.PIPE, env=os.environ | files, check=False)
        except OSError as error:
            raise InputError(str(source), f"its program cannot start: {error}", "check the compiler ($CC)") from None
        machine = json.loads(report.read_bytes()) if report.exists() else {}
        commands = load(saved) if saved.exists() else None
    text = done.stdout.decode(errors="replace")
    findings: list[dict[str, Any]] = machine.get("findings", [])
    data = {
        **{"file": str(source), "target": "gemmini", "config": config.to_dict()},
        **{"timing": timing.name, "evidence": timing.evidence, "exit_code": done.returncode, "output": text},
        **machine,
        "findings": findings,
    }
    lines = [*([text.rstrip("\n"), ""] if text.strip() else []), _status(done.returncode)]
    if machine:
        lines += [*shown(machine), *table(machine["lines"])]
    hazards = tuple(
        Finding(finding["kind"], f"{finding['message']} ({finding['places']})", tuple(finding["steps"]))
        for finding in findings
    )
    passed = done.returncode == 0 and not findings
    return Execution("\n".join(lines), data, passed, {}, program=commands, findings=hazards)


def _status(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"exit status {code}"


def shown(report: dict[str, Any]) -> list[str]:
    """Return a report as lines of text: the first finding of each kind and source line, then the counts."""
    findings = report["findings"]
    groups: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        groups.setdefault((finding["kind"], finding["places"]), []).append(finding["message"])
    lines = [
        f"{kind} at {places}: {messages[0]}{f' (and {len(messages) - 1} more there)' if len(messages) > 1 else ''}"
        for (kind, places), messages in groups.items()
    ]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"... and findings at {len(lines) - SHOWN} more places"]
    counts = f"{report['cycles']:,} cycles, {report['commands']:,} commands, {report['macs']:,} multiply-accumulates"
    return [*lines, f"{counts}, {len(findings) or 'no'} hazard{'s' * (len(findings) != 1)}"]


def table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    longest = sorted(lines, key=lambda line: line["first"] - line["last"])[:LINES]
    if not longest:
        return []
    rows = [(f"{line['first']:,}", f"{line['last']:,}", f"{line['commands']:,}", line["place"]) for line in lines]
    kept = [row for row, line in zip(rows, lines, strict=True) if line in longest]
    cells = [("first cycle", "last cycle", "commands", "source line"), *kept]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lined = ([*(cell.rjust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]] for row in cells)
    return ["", *map("  ".join, lined)]
