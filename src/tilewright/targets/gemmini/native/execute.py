"""Compile a host in C, run it, and report what the machine did."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
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
from tilewright.targets.gemmini.native.report import shown, table
from tilewright.targets.users import Execution


def execute(source: Path, config: Config, flags: Sequence[str], timing: TimingModel) -> Execution:
    """Run a C file that uses the headers of Gemmini. It fails if its status is not 0, or if there is a hazard.

    `flags` are further arguments of the compiler. Raises InputError if the file does not compile or its program cannot
    be started.
    """
    own = library(config).flags()
    with scratch() as folder:
        made, report = Path(folder, source.stem), Path(folder, "report.json")
        saved = Path(os.environ.get("TILEWRIGHT_GEMMINI_SAVE") or Path(folder, "program.twp"))
        compiled(str(source), made, source, [*own["cflags"], *flags], own["libs"])
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
        **{"timing": timing.name, "evidence": timing.evidence, "exit_code": done.returncode, "output": text},
        **machine,
        "findings": findings,
    }
    lines = [*([text.rstrip("\n"), ""] if text.strip() else []), _status(done.returncode)]
    if machine:
        lines += [*shown(machine), *table(machine["lines"])]
    told = tuple(Finding(one["kind"], f"{one['message']} ({one['places']})", tuple(one["steps"])) for one in findings)
    passed = done.returncode == 0 and not findings
    return Execution("\n".join(lines), data, passed, {}, program=commands, findings=told)


def _status(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"exit status {code}"
