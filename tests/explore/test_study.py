"""Studies on disk: a kill loses no finished trial, and a resumed study gives the same front as one that ran through."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.conftest import ROOT
from tilewright.cli import cli, main
from tilewright.errors import InputError
from tilewright.explore import Space, Study, explore, study_of
from tilewright.explore.study import DEFINITION, JOURNAL
from tilewright.explore.trial import BASE, EXCLUDED, MEASURED, PRUNED, REFUSED, Trial
from tilewright.model import inputs
from tilewright.report.result import RunResult
from tilewright.run import run

DIGITS = str(ROOT / "examples" / "digits" / "digits.tflite")
#: Eight machines: one value of one key is illegal, and one rule leaves out two.
KEYS = {"LOG_INP_BUFF_SIZE": [13, 15], "LOG_ACC_BUFF_SIZE": [12, 17], "alu": ["upstream", "fused"]}

pytestmark = pytest.mark.usefixtures("brief_search")


def made(keys: dict[str, Any] = KEYS, *rules: str, objectives: tuple[str, ...] = ("cycles", "on_chip_kib")) -> Study:
    return study_of([DIGITS], "vta", Space.from_json({"keys": keys, "where": list(rules)}), objectives)


def test_each_figure_is_that_of_a_run() -> None:
    study = made()
    explore(study, grid=True, prune=False)
    assert len(study.measured) == 6 and study.count(REFUSED) == 2
    graph = tw.load(DIGITS)
    for trial in study.front():
        program = tw.compile(graph, "vta", study.config(trial))
        result = program.run(inputs.random(graph).values)
        assert result.matches_reference
        assert not result.findings
        assert result.cycles == trial.values["cycles"] == sum(map(sum, trial.layers["digits"].values()))
        causes = {layer.name: dict(layer.causes) for layer in result.layers if layer.causes}
        told = {name: trial.by_cause("digits", name) for name in trial.layers["digits"]}
        assert {name: {c: n for c, n in own.items() if n} for name, own in told.items()} == causes
        moved = sum(layer.dram_read_bytes + layer.dram_write_bytes for layer in result.layers)
        assert (moved, result.utilization) == trial.objectives(("dram_bytes", "utilization"))
        assert trial.values["on_chip_kib"] == result.machine["on_chip_kib"]


def test_what_is_refused_excluded_and_left_out_is_counted_with_its_reason() -> None:
    study = made(
        {"LOG_INP_BUFF_SIZE": [3, 15], "LOG_ACC_BUFF_SIZE": [15, 17], "alu": ["upstream"]}, "on_chip_kib < 450"
    )
    explore(study, grid=True)
    by_point = {point: trial for point, trial in study.trials.items() if point != BASE}
    assert sorted(trial.status for trial in by_point.values()) == [EXCLUDED, MEASURED, REFUSED, REFUSED]
    assert sum(study.refusals().values()) == 2
    assert next(t for t in by_point.values() if t.status == EXCLUDED).reason == "on_chip_kib < 450"


def test_a_machine_without_gateware_has_no_area() -> None:
    keys = {"semantics": ["hls", "fsim"]}
    for study in (made(keys, objectives=("cycles", "area", "energy")), made(keys, "lut < 99999")):
        explore(study, grid=True, prune=False)
        assert (len(study.measured), study.count(REFUSED)) == (1, 1)
        assert study.measured[0].values["semantics"] == "hls"
        assert study.estimates == ["energy"]  # the cells of this machine were measured
        assert study.to_json()["estimates"] == study.estimates
    small = made({"LOG_ACC_BUFF_SIZE": ["15"]}, objectives=("cycles", "area"))
    explore(small, grid=True)
    assert small.estimates == ["area", "energy", "ff", "lut"]


def test_a_bound_leaves_out_only_machines_that_are_not_on_the_front() -> None:
    keys = {"LOG_BLOCK": [3, 4], "LOG_BATCH": [0, 1], "LOG_BUS_WIDTH": [6, 9]}
    whole, pruned = (made(keys, objectives=("cycles", "macs_per_cycle")) for _ in range(2))
    explore(whole, grid=True, prune=False)
    explore(pruned, grid=True, prune=True)
    assert [trial.digest for trial in whole.front()] == [trial.digest for trial in pruned.front()]
    by_cycles = [made(keys, objectives=("cycles",)) for _ in range(2)]
    for study, prune in zip(by_cycles, (True, False), strict=True):
        explore(study, grid=True, prune=prune)
    assert by_cycles[0].front()[0].values["cycles"] == by_cycles[1].front()[0].values["cycles"]
    for trial in by_cycles[0].trials.values():
        if trial.status == PRUNED:
            best = by_cycles[0].front()[0].objectives(("cycles",))
            assert by_cycles[1].trials[trial.point].objectives(("cycles",)) >= best


def test_processes_find_what_this_process_finds() -> None:
    one, two = made(), made()
    explore(one, grid=True)
    explore(two, grid=True, workers=2)
    shown = [{(t.point, t.status, t.values.get("cycles")) for t in study.trials.values()} for study in (one, two)]
    assert {point for point, *_ in shown[0]} == {point for point, *_ in shown[1]}
    assert [t.digest for t in one.front()] == [t.digest for t in two.front()]


def test_machines_on_which_the_host_runs_more_are_refused() -> None:
    keys = {"alu": ["upstream", "float"]}
    study = study_of(
        [DIGITS], "vta", Space.from_json({"keys": keys, "config": "pynq", "set": {"stages": 3}}), ("cycles",)
    )
    explore(study, grid=True)
    assert study.base
    for trial in study.measured:
        assert set(trial.host["digits"]) <= set(study.base.host["digits"])


def test_a_kept_study_opens_again(tmp_path: Path) -> None:
    study = made()
    study.keep(tmp_path)
    explore(study, grid=True)
    assert study.journal
    study.journal.close()
    again = Study.open(tmp_path)
    assert again.to_json() == study.to_json()
    with pytest.raises(InputError, match="in use"):
        Study.open(tmp_path)
    assert again.journal
    again.journal.close()
    other = made({"stages": [3, 4]})
    with pytest.raises(InputError, match="another study"):
        other.keep(tmp_path)


@pytest.mark.parametrize("cut", [1, 20])
def test_a_torn_line_is_cut_off(tmp_path: Path, cut: int) -> None:
    study = made({"LOG_INP_BUFF_SIZE": [14, 15]})
    study.keep(tmp_path)
    explore(study, grid=True)
    assert study.journal
    study.journal.close()
    journal = tmp_path / JOURNAL
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-cut])
    again = Study.open(tmp_path)
    assert len(again.trials) == len(study.trials) - 1
    explore(again, grid=True)
    assert again.journal
    again.journal.close()
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    assert [line["point"] for line in lines] == [trial.point for trial in study.trials.values()]
    assert again.to_json() == study.to_json()


@pytest.mark.parametrize(("name", "content"), [(JOURNAL, b'{"point": 0}\n'), (JOURNAL, b"\xff\n"), (DEFINITION, b"{}")])
def test_a_damaged_study_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    study = made()
    study.keep(tmp_path)
    assert study.journal
    study.journal.close()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        Study.open(tmp_path)


@pytest.mark.slow
def test_killed_studies_lose_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    keys = "LOG_INP_BUFF_SIZE=13..15", "LOG_ACC_BUFF_SIZE=12..15", "LOG_BUS_WIDTH=6..8"
    command = [sys.executable, "-m", "tilewright", "explore", DIGITS, "-t", "vta", "--grid", "--no-prune", "-o"]
    command += [str(tmp_path), *(part for key in keys for part in ("--vary", key)), "--json", "--workers", "2"]
    kept: list[str] = []
    for _ in range(20):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
            try:
                out = running.communicate(timeout=rng.uniform(1, 12))[0]
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGKILL)
                out = ""
        time.sleep(0.2)
        lines = (tmp_path / JOURNAL).read_text(encoding="utf-8").splitlines() if (tmp_path / JOURNAL).exists() else []
        assert lines[: len(kept)] == kept, f"seed {seed}"
        kept = [line for line in lines if line.endswith("}")]
        if out:
            break
    else:
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    points = [json.loads(line)["point"] for line in (tmp_path / JOURNAL).read_text(encoding="utf-8").splitlines()]
    assert len(points) == len(set(points)) == 1 + 36, f"seed {seed}"
    assert json.loads(out)["trials"] == 36


def test_the_commands(tmp_path: Path) -> None:
    vary = ["--vary", "LOG_INP_BUFF_SIZE=14..15", "--vary", "alu=upstream, fused"]
    csv, parquet, study = tmp_path / "a.csv", tmp_path / "a.parquet", tmp_path / "study"
    asked = ["explore", DIGITS, "-t", "vta", *vary, "--json", "--csv", str(csv), "-o", str(study)]
    found = json.loads(CliRunner().invoke(cli, [*asked, "--parquet", str(parquet)], catch_exceptions=False).output)
    assert {"trials", "refused", "pruned", "seconds", "front"} <= found.keys()
    assert found["trials"] + found["pruned"] == 4
    best = found["front"][0]
    assert len(csv.read_text(encoding="utf-8").splitlines()) == 5
    pq = pytest.importorskip("pyarrow.parquet")
    assert pq.read_table(parquet).num_rows == 4
    run = ["run", DIGITS, "-t", "vta", "-c", found["files"][0], "--json"]
    assert json.loads(CliRunner().invoke(cli, run, catch_exceptions=False).output)["cycles"] == best["cycles"]
    swept = CliRunner().invoke(cli, ["sweep", DIGITS, "-t", "vta", *vary], catch_exceptions=False).output
    assert f"{best['cycles']:,}" in swept
    assert "4 of 4 machines measured" in swept


def test_the_front_is_checked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["explore", DIGITS, "-t", "vta", "--vary", "alu=upstream, fused", "--check"]
    asked += ["--objective", "cycles", "--objective", "area,cycles"]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"cycles", "area"} <= found["front"][0].keys()
    assert (found["checked"], found["differences"]) == (2, []) == (len(found["front"]), [])
    monkeypatch.setattr("tilewright.explore.measure.run", lambda *given, **options: changed(run(*given, **options)))
    assert main([*asked, "--json"]) == 1
    wrong = json.loads(capsys.readouterr().out)["differences"]
    assert len(wrong) == 4 and sum("differ from the reference" in text for text in wrong) == 2
    assert sum("in the study" in text for text in wrong) == 2


def changed(result: RunResult) -> RunResult:
    """Return a result with one more cycle, and with other outputs than the reference."""
    layers = (replace(result.layers[0], cycles=result.layers[0].cycles + 1), *result.layers[1:])
    return replace(result, layers=layers, matches_reference=False)


@pytest.mark.slow
@pytest.mark.gxx
def test_the_winner_and_its_gateware_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way of docs/explore.md: a front, each machine run again, the fastest co-simulated."""
    vary = ["--vary", "LOG_BLOCK=2..3", "--vary", "LOG_ACC_BUFF_SIZE=13..14", "--vary", "alu=upstream, fused"]
    fixed = "LOG_INP_BUFF_SIZE=12", "LOG_WGT_BUFF_SIZE=14", "LOG_UOP_BUFF_SIZE=12", "LOG_PAR_BUFF_SIZE=10"
    asked = [
        *vary,
        *(part for text in fixed for part in ("--set", text)),
        "--objective",
        "cycles,area,energy,dram_bytes",
    ]
    assert main(["explore", DIGITS, "-t", "vta", *asked, "-o", str(tmp_path / "study"), "--check", "--json"]) == 0
    found, program = json.loads(capsys.readouterr().out), str(tmp_path / "best.twp")
    assert found["differences"] == [] and found["checked"] == len(found["front"]) > 1
    assert main(["compile", DIGITS, "-t", "vta", "-c", found["files"][0], "-o", program]) == 0
    capsys.readouterr()
    assert main(["cosim", program, "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)["launches"]
    assert sum(case["cycles"] for case in cases) == sum(case["rtl_cycles"] for case in cases)
    assert sum(case["cycles"] for case in cases) == found["front"][0]["cycles"]
    assert not any(case["mismatched_bytes"] or case["differences"] for case in cases)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([DIGITS, "-t", "vta", "--vary", "LOG_INP_BUFSIZE=1..3"], "did you mean LOG_INP_BUFF_SIZE"),
        ([DIGITS, "-t", "vta"], "keys that vary"),
        ([DIGITS, "-t", "vta", "--space", "none"], "no space 'none'"),
        ([DIGITS, "-t", "vta", "--vary", "stages=3..4", "--set", "stages=3"], "varies in this study"),
        ([DIGITS, "-t", "vta", "--vary", "stages=3..4", "--objective", "joy"], "there is no 'joy'"),
        ([DIGITS, "-t", "vta", "--vary", "stages=3..4", "--where", "joy <"], "not an expression"),
        ([DIGITS, "-t", "vta", "--vary", "stages=3..4", "--where", "joy < 2"], "there is no joy"),
        ([DIGITS, "-t", "vta", "--vary", "queue_depth=1..4000"], "--trials"),
        (["-t", "vta", "--vary", "stages=3..4"], "no model"),
        ([DIGITS, "--vary", "stages=3..4"], "--target"),
        (["--resume", "nowhere"], "has no study"),
        ([DIGITS, "--resume", "nowhere"], "--resume alone"),
    ],
)
def test_bad_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_trials_are_json() -> None:
    trial = Trial(
        3, {"a": "1"}, MEASURED, "d", "", {"cycles": 3}, ["GEMM", "wait"], {"m": {"x": [1, 2]}}, {"m": ("y",)}, 0.5
    )
    assert trial.by_cause("m", "x") == {"GEMM": 1, "wait": 2}
    assert Trial.from_json(json.loads(json.dumps(trial.to_json()))) == trial
