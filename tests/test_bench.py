"""The figures of bench/networks.py are there, fit together, and a second run quantises nothing."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import tilewright as tw
from tests.conftest import ROOT

SECONDS = {"compile_seconds", "cached_seconds", "simulate_seconds", "cpu_seconds", "time_only_seconds", "ort_seconds"}
SECONDS |= {"again_seconds", "again_cpu_seconds"}
BOUNDS = {"gemm_bound", "compute_bound", "dram_bound"}
KEYS = SECONDS | BOUNDS | {"model", "target", "config", "scheme", "timing", "cycles", "cycles_serial"}
KEYS |= {"geomean_ratio", "hazards", "matches_reference"}
#: Of the smallest network: (4 d d + 2 d 4d) weights a layer and position, two products of positions, 256 multipliers.
ENCODER = 4 * (12 * 128 * 128 * 64 + 2 * 64 * 64 * 128) // 256


@pytest.mark.slow
def test_a_network_is_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = runpy.run_path(str(ROOT / "bench" / "networks.py"))

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(bench["main"], ["encoder", "-t", "vta", "--cache", str(tmp_path), *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    found: dict[str, Any] = json.loads(run("--json"))
    assert set(found) == KEYS
    assert (found["model"], found["target"], found["scheme"], found["timing"]) == (
        "encoder",
        "vta",
        "pow2",
        "tilewright",
    )
    assert found["matches_reference"] is True
    assert found["hazards"] == 0
    assert ENCODER <= found["gemm_bound"] <= 1.25 * ENCODER  # products, and tiles set to 0 before them
    assert found["gemm_bound"] < found["compute_bound"]
    assert all(0 < found[bound] <= found["cycles"] for bound in BOUNDS)
    assert found["cycles"] < found["cycles_serial"]
    assert 1 <= found["geomean_ratio"] < 1.5
    assert all(found[name] > 0 for name in SECONDS)

    def rebuilt(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setitem(bench["NETWORKS"], "build", rebuilt)
    table = dict(line.split(maxsplit=1) for line in run("--set", "stages=4").splitlines())
    assert set(table) == KEYS
    assert "stages=4" in table["config"]
    assert int(table["compute_bound"]) < found["compute_bound"]  # two units


def test_the_cost_of_the_check_is_measured() -> None:
    """Every pass that bench/check_cost.py times is there, and takes time."""
    bench = runpy.run_path(str(ROOT / "bench" / "check_cost.py"))
    program = tw.compile(bench["DIGITS"], "vta")
    spent = bench["measure"](program, 1, 1)
    assert min(spent[name] for name in ("check", "time", "values", "ratio")) > 0
