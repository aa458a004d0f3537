"""Compile a host in C, run it, and report what the machine did."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tilewright.errors import InputError
from tilewright.native.build import program
from tilewright.program.file import load
from tilewright.program.program import Program
from tilewright.report.result import RunResult
from tilewright.sim.findings import Finding
from tilewright.targets.base import Execution
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.native.hostlib import library
from tilewright.targets.gemmini.native.serve import shown

#: Source lines that the report lists: those that were longest at work.
LINES = 12


def execute(source: Path, config: Config, flags: Sequence[str]) -> Execution:
    """Run a C file that uses the headers of Gemmini. It fails if its status is not 0, or if there is a hazard.

    `flags` are further arguments of the compiler. Raises InputError if the file does not compile or its program cannot
    be started.
    """
    from tilewright.targets.gemmini import RTL

    own = library(config).flags()
    with TemporaryDirectory(prefix="tilewright-") as folder:
        made, report = Path(folder, source.stem), Path(folder, "report.json")
        saved = Path(os.environ.get("TILEWRIGHT_GEMMINI_SAVE") or Path(folder, "program.twp"))
        program(str(source), made, source, [*own["cflags"], *flags], own["libs"])
        files = {"TILEWRIGHT_GEMMINI_REPORT": str(report), "TILEWRIGHT_GEMMINI_SAVE": str(saved)}
        try:
            done = subprocess.run([str(made)], stdout=subprocess.PIPE, env=os.environ | files, check=False)
        except OSError as error:
            raise InputError(str(source), f"its program does not start: {error}", "check the compiler ($CC)") from None
        machine = json.loads(report.read_bytes()) if report.exists() else {}
        commands = load(saved) if saved.exists() else None
    text = done.stdout.decode(errors="replace")
    findings: list[dict[str, Any]] = machine.get("findings", [])
    data = {
        **{"file": str(source), "target": "gemmini", "config": config.to_dict()},
        **{"timing": RTL.name, "evidence": RTL.evidence, "exit_code": done.returncode, "output": text},
        **machine,
        "findings": findings,
    }
    lines = [*([text.rstrip("\n"), ""] if text.strip() else []), _status(done.returncode)]
    if machine:
        lines += [*shown(machine), *_table(machine["lines"])]

    def result() -> RunResult:
        return _result(commands, findings, source.name)

    passed = done.returncode == 0 and not findings
    return Execution("\n".join(lines), data, passed, {}, result if commands else None)


def _status(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"exit status {code}"


def _table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the source lines that were longest at work, in the order of the program."""
    longest = sorted(lines, key=lambda line: line["first"] - line["last"])[:LINES]
    if not longest:
        return []
    rows = [(f"{line['first']:,}", f"{line['last']:,}", f"{line['commands']:,}", line["place"]) for line in lines]
    kept = [row for row, line in zip(rows, lines, strict=True) if line in longest]
    table = [("first cycle", "last cycle", "commands", "source line"), *kept]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    cells = ([*(cell.rjust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]] for row in table)
    return ["", *map("  ".join, cells)]


def _result(commands: Program | None, findings: Sequence[Mapping[str, Any]], name: str) -> RunResult:
    """Return the run of the commands, for pages and timelines; its findings have their places in the source."""
    from tilewright.run import run_bare

    assert commands is not None
    made = run_bare(commands, check=False)
    told = tuple(Finding(one["kind"], f"{one['message']} ({one['places']})", tuple(one["steps"])) for one in findings)
    return replace(made, model=name, findings=told, checked=True)
