"""`--json` prints one object, whatever the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tilewright.cli import main

DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")


def spoken(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_command_speaks_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, text, again = (str(tmp_path / name) for name in ("d.twp", "d.txt", "e.twp"))
    compiled = spoken(capsys, "compile", DIGITS, "-t", "vta", "-o", program)
    assert [step["where"] for step in compiled["steps"]].count("host") == 3
    listing = spoken(capsys, "disasm", program)
    Path(text).write_text(listing["text"])
    assert len(spoken(capsys, "asm", text, "-o", again)["steps"]) == 7
    assert spoken(capsys, "check", again)["hazards"] == 0
    assert "byte planes" in spoken(capsys, "explain", DIGITS, "-t", "vta")["text"]
    assert spoken(capsys, "exec", program)["matches_reference"] is True
    assert spoken(capsys, "targets")
    assert "#define VTA_BATCH" in spoken(capsys, "header", "vta")["text"]
    assert spoken(capsys, "new-target", "npu", "-o", str(tmp_path))["target"] == "npu"


def test_a_hazard_that_stops_a_run_is_in_the_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, program = tmp_path / "d.txt", str(tmp_path / "d.twp")
    source.write_text("load inp y_size=0 pop:compute\nfinish\n")
    assert main(["asm", str(source), "-t", "vta", "-o", program]) == 0
    assert main(["exec", program, "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["findings"][0]["kind"] == "deadlock"
    assert captured.err.count("\n") == 1
