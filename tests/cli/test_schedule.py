"""Schedules on the command line: written, changed by hand, compiled, and shown beside what the search finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.digits import MODEL, Capture
from tilewright.cli import main


@pytest.fixture
def saved(tmp_path: Path, capsys: Capture) -> Path:
    """The schedule that `explain` writes."""
    path = tmp_path / "s.json"
    assert main(["explain", MODEL, "-t", "vta", "--save-schedule", str(path)]) == 0
    capsys.readouterr()
    return path


def cycles(capsys: Capture, *more: str) -> int:
    """The cycles of a run."""
    capsys.readouterr()
    assert main(["run", MODEL, "-t", "vta", "--json", "--no-what-if", *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["matches_reference"] and found["hazards"] == 0
    return int(found["cycles"])


def test_a_saved_schedule_gives_the_same_program(saved: Path, tmp_path: Path, capsys: Capture) -> None:
    files = [tmp_path / name for name in ("a.twp", "b.twp", "c.twp")]
    assert main(["explain", MODEL, "-t", "vta", "--json"]) == 0
    told = tmp_path / "explain.json"
    told.write_text(capsys.readouterr().out)
    assert json.loads(told.read_text())["schedule"] == json.loads(saved.read_text())
    for path, more in zip(files, ([], ["--schedule", str(saved)], ["--schedule", str(told)]), strict=True):
        assert main(["compile", MODEL, "-t", "vta", "-o", str(path), *more]) == 0
    assert files[0].read_bytes() == files[1].read_bytes() == files[2].read_bytes()
    assert cycles(capsys) == cycles(capsys, "--schedule", str(saved))


def test_a_changed_schedule_is_shown_beside_the_search(saved: Path, capsys: Capture) -> None:
    text = saved.read_text()
    assert text.count('"rows": 3,') == 2
    saved.write_text(text.replace('"rows": 3,', '"rows": 1,', 1))  # of depthwise_conv2d_1
    given = cycles(capsys, "--schedule", str(saved))
    assert main(["explain", MODEL, "-t", "vta", "--schedule", str(saved), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert (found["cycles"], found["searched"]) == (given, cycles(capsys))
    assert given > found["searched"] >= cycles(capsys, "--schedule", str(saved), "--search")
    slower = [row["layer"] for row in found["layers"] if row["cycles"] > row["searched"]]
    assert slower == ["depthwise_conv2d_1"]
    assert {row["plan"] for row in found["layers"]} == {"given"}
    assert main(["explain", MODEL, "-t", "vta", "--schedule", str(saved), "--search"]) == 0
    shown = capsys.readouterr().out
    (line,) = (line for line in shown.splitlines() if line.startswith("depthwise_conv2d_1  searched"))
    assert line.endswith("+0")


def test_what_ifs_keep_the_plans_of_a_schedule(saved: Path, capsys: Capture) -> None:
    saved.write_text(saved.read_text().replace('"rows": 3,', '"rows": 1,'))
    assert main(["run", MODEL, "-t", "vta", "--json", "--what-if", "--schedule", str(saved)]) == 0
    found = json.loads(capsys.readouterr().out)["whatifs"]
    assert any(change["program"] == "recompiled" for change in found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-t", "cfu", "--schedule", "s.json"], "--schedule: cfu takes no schedules of layers; choose -t vta"),
        (["-t", "zynq", "--save-schedule", "s.json"], "--save-schedule: zynq takes no schedules of layers"),
        (["-t", "vta", "--search"], "--search: starts from a schedule; add --schedule FILE.json"),
        (["-t", "vta", "--schedule", "missing.json"], "missing.json: is not a file"),
    ],
)
def test_what_cannot_be_is_refused(options: list[str], said: str, capsys: Capture) -> None:
    assert main(["explain", MODEL, *options]) == 2
    assert said in capsys.readouterr().err


def test_a_schedule_of_another_machine_is_refused(saved: Path, capsys: Capture) -> None:
    assert main(["run", MODEL, "-t", "vta", "--set", "LOG_ACC_BUFF_SIZE=16", "--schedule", str(saved)]) == 2
    error = capsys.readouterr().err
    assert "was made for a machine with LOG_ACC_BUFF_SIZE 17; this machine has 16" in error and error.count("\n") == 1
