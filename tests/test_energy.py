"""Energies of runs on every target: their counts are those of the report, and every place that shows them agrees."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.report.runs import summed
from tilewright import targets
from tilewright.cli import main
from tilewright.energy import Energy
from tilewright.errors import TilewrightError
from tilewright.model import inputs
from tilewright.report import page, record
from tilewright.report.result import RunResult
from tilewright.report.summary import joules
from tilewright.targets.gateware import Occupies
from tilewright.targets.zynq.isa.layer import LAYOUT

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


@cache
def result(target: str, **overrides: str) -> RunResult:
    program = tw.compile(DIGITS, target, None, overrides)
    assert program.graph is not None
    return program.run(inputs.random(program.graph).values)


def energy(target: str, **overrides: str) -> Energy:
    found = result(target, **overrides).energy()
    assert found is not None
    return found


@pytest.mark.parametrize("target", targets.names())
def test_counts_are_those_of_the_report(target: str) -> None:
    ran, events = result(target), energy(target).events
    assert events.read_bytes == sum(layer.dram_read_bytes for layer in ran.layers)
    assert events.write_bytes == sum(layer.dram_write_bytes for layer in ran.layers)
    assert events.cycles == ran.cycles
    macs = [work.count for work in events.macs if "resets" not in work.name]
    assert sum(macs) == ran.executed_macs
    assert energy(target).picojoules > 0 and "leakage, clock and control" in events.missing


@pytest.mark.parametrize("target", ["vta", "bm1684x", "zynq", "gemmini"])
def test_bursts_move_all_bytes(target: str) -> None:
    """The descriptor of a layer of the zynq has no address."""
    events = energy(target).events
    descriptors = LAYOUT.nbytes * events.instructions if target == "zynq" else 0
    moved = sum(int(bursts.moved[:, 1].sum()) for bursts in events.bursts)
    assert moved + descriptors == events.read_bytes + events.write_bytes


def test_a_batch_has_the_events_of_one_sample() -> None:
    """Four samples in one launch share the weights' transfers, but not the products."""
    one, four = energy("bm1684x").events, energy("bm1684x", batch="4").events
    assert [work.count for work in four.macs] == [work.count for work in one.macs]
    assert four.read_bytes < one.read_bytes
    assert four.activations(8192, 8) <= one.activations(8192, 8)


def test_the_command_line_shows_an_estimate_only_if_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["run", str(DIGITS), "-t", "vta", "--no-what-if"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["energy"]
    expected = energy("vta").to_json()
    assert told == expected and told["estimate"] is True
    assert main(command) == 0
    assert "energy" not in capsys.readouterr().out
    assert main([*command, "--energy", "default"]) == 0
    out = capsys.readouterr().out
    assert f"about {joules(expected['picojoules'])}" in out and "an estimate by the table horowitz" in out
    assert main([*command, "--energy", str(tmp_path / "none.toml")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_page_shows_the_estimate(tmp_path: Path) -> None:
    made = record.of(summed(result("vta"), "1 sample", 100.0, table="ddr3"))
    text, told = page.page(made), made.run["summary"]["energy"]
    assert told["table"] == "ddr3" and "Energy (estimate)" in text and f"About {joules(told['picojoules'])}" in text
    for cause, part in told["by"].items():
        assert f"{cause.replace('_', ' ')}: {joules(part)}" in text
    path = tmp_path / "run.twr"
    record.save(made, path)
    assert page.page(record.load(path)) == text


@pytest.mark.parametrize(
    "change, message",
    [
        ({"energy": 3}, "summary.energy: is 3, not an object"),
        ({"energy": {}}, "summary.energy: lacks"),
        ({"by": {"macs": -1.0}}, "summary.energy.by.macs: is -1.0"),
        ({"by": {"macs": "x"}}, 'summary.energy.by.macs: is "x", not a number'),
        ({"picojoules": None}, "summary.energy.picojoules: is null, not a number"),
    ],
)
def test_a_damaged_estimate_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    made = record.of(summed(result("vta"), "1 sample", 100.0))
    summary = json.loads(json.dumps(made.run["summary"]))
    summary |= change if "energy" in change else {"energy": summary["energy"] | change}
    record.save(record.Record({**made.run, "summary": summary}, made.arrays), tmp_path / "run.twr")
    with pytest.raises(TilewrightError, match=message):
        record.load(tmp_path / "run.twr")


def test_targets_tells_the_area(capsys: pytest.CaptureFixture[str]) -> None:
    assert [name for name in targets.names() if isinstance(targets.get(name), Occupies)] == ["vta"]
    assert main(["targets", "vta", "-c", "pynq", "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)["targets"]
    assert about["areas"]["pynq"]["dsp"] == 264
    assert main(["targets", "vta", "--set", "semantics=fsim", "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)["targets"]
    assert list(about["areas"].values()) == [None]
    assert main(["targets", "bm1684x", "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)["targets"]
    assert about["areas"] == {}
