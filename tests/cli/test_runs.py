"""`compare`: two saved runs, as text, JSON and a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tilewright.cli import main

MODEL = str(ROOT / "examples" / "digits" / "digits.tflite")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of saved runs of the digits: on vta, on vta with a fused ALU, on bm1684x."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    for name, options in (("a", ["-t", "vta"]), ("b", ["-t", "vta", "--set", "alu=fused"]), ("c", ["-t", "bm1684x"])):
        made[name] = str(folder / f"{name}.twr")
        assert main(["run", MODEL, *options, "--save", made[name], "--no-cache"]) == 0
    return made


def test_two_runs_are_compared_by_layer_and_cause(
    saved: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    page = tmp_path / "c.html"
    assert main(["compare", saved["a"], saved["b"], "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    before, after = (run["cycles"] for run in found["runs"])
    assert found["cycles"] == after - before == sum(found["causes"].values()) != 0
    assert sum(layer["cycles"] for layer in found["layers"]) == found["cycles"]
    assert found["settings"] == {"alu": [None, "fused"]}
    shown = page.read_text()
    assert f"{before:,}" in shown and f"{after:,}" in shown and "default → fused" in shown
    for layer in found["layers"]:
        assert f"<td>{layer['name']}</td>" in shown and f"{layer['cycles']:+,}" in shown


def test_runs_on_different_machines_are_compared(saved: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["compare", saved["a"], saved["c"]]) == 0
    assert capsys.readouterr().out.startswith("digits on vta -> digits on bm1684x\n")
    assert main(["compare", saved["a"], MODEL]) == 2
    assert "digits.tflite" in (said := capsys.readouterr().err) and "run --save" in said
