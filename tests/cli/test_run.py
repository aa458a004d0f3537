"""`run` and `exec`: what they print, write and end with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.digits import MODEL, SAMPLES, Capture, Use
from tilewright.cli import main

RUN = ["run", MODEL, "-t", "fake"]


def test_report_names_the_timing_model_the_samples_and_what_was_compared(use: Use, capsys: Capture) -> None:
    assert main([*RUN, "-i", SAMPLES]) == 0
    out = capsys.readouterr().out
    for text in (
        "digits on fake, rounding tflm",
        f"100 samples from {SAMPLES}",
        "guess: nothing at all",
        "450 cycles per sample = 4.50 us at 100 MHz, for 100 % of the MACs (host steps not counted)",
        "99 of 100 right (99.0%)",
        "all outputs are equal",
        "no exponential on the array",
        "compute 80%",
    ):
        assert text in out
    assert out.isascii()
    assert "\x1b" not in out


def test_run_without_samples_says_so(use: Use, capsys: Capture) -> None:
    assert main(RUN) == 0
    assert "1 sample of random codes (seed 0); give real ones with -i" in capsys.readouterr().out


def test_json_is_one_object_alone(use: Use, capsys: Capture) -> None:
    assert main([*RUN, "-i", SAMPLES, "--json", "--set", "clock=50"]) == 0
    printed, noise = capsys.readouterr()
    assert not noise
    found = json.loads(printed)
    assert {"model", "target", "config", "rounding", "timing", "samples", "cycles", "macs", "utilization"} <= set(found)
    assert {"seconds", "matches_reference", "hazards", "layers"} <= set(found)
    assert found["config"] == {"clock": 50}
    assert found["samples"] == len(found["predictions"]) == 100
    assert found["correct"] == 99
    assert found["layers"][-1]["where"] == "host"


def test_outputs_have_no_batch_axis(use: Use, tmp_path: Path) -> None:
    assert main([*RUN, "-i", SAMPLES, "-o", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as written:
        assert written.files == ["outputs"]
        assert written["outputs"].shape == (100, 10)
        assert written["outputs"].dtype == np.int8
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


@pytest.mark.parametrize(("fault", "said"), [("mismatch", "MISMATCH"), ("race", "hazards       9")])
def test_a_finding_is_status_1(use: Use, capsys: Capture, fault: str, said: str) -> None:
    use(fault)
    assert main(RUN) == 1
    assert said in capsys.readouterr().out


def test_no_check_does_not_claim_that_there_are_no_hazards(use: Use, capsys: Capture) -> None:
    use("race")
    assert main([*RUN, "--no-check"]) == 0
    assert "not checked" in capsys.readouterr().out


@pytest.mark.parametrize(("fault", "status"), [("deadlock", 2), ("memory", 2), ("interrupt", 130)])
def test_what_stops_a_run_is_one_line(use: Use, capsys: Capture, fault: str, status: int) -> None:
    use(fault)
    assert main(RUN) == status
    printed, said = capsys.readouterr()
    assert not printed
    assert said.startswith("tilewright: ")
    assert said.count("\n") == 1


def test_a_defect_is_no_finding(use: Use, capsys: Capture) -> None:
    use("defect")
    assert main(RUN) == 70
    assert "AssertionError: impossible" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["pftrace", "json"])
def test_reports_are_written(use: Use, tmp_path: Path, suffix: str) -> None:
    page, trace = tmp_path / "page.html", tmp_path / f"trace.{suffix}"
    assert main([*RUN, "--html", str(page), "--trace", str(trace), "--no-what-if"]) == 0
    assert "Where the cycles go" in page.read_text()
    assert trace.stat().st_size > 1000


def test_a_compiled_program_runs_as_the_model_does(use: Use, tmp_path: Path, capsys: Capture) -> None:
    program = str(tmp_path / "digits.twp")
    assert main(["compile", MODEL, "-t", "fake", "-o", program]) == 0
    assert capsys.readouterr().out == f"{program}: 9 launches on fake, 1 steps on the host\n"
    assert main(["exec", program, "-i", SAMPLES, "--json"]) == 0
    executed = json.loads(capsys.readouterr().out)
    assert main([*RUN, "-i", SAMPLES, "--json"]) == 0
    direct = json.loads(capsys.readouterr().out)
    assert {**executed, "seconds": 0, "layers": 0} == {**direct, "seconds": 0, "layers": 0}


def test_assembled_text_runs_without_a_network(use: Use, tmp_path: Path, capsys: Capture) -> None:
    text, program = tmp_path / "a.txt", str(tmp_path / "a.twp")
    text.write_text('# target fake\n# config {"clock": 10}\nstep a\nstep b\n')
    assert main(["asm", str(text), "-o", program]) == 0
    assert main(["exec", program, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cycles"], found["matches_reference"], found["config"]) == (100, None, {"clock": 10})
    assert main(["exec", program, "-i", SAMPLES]) == 2
    assert main(["disasm", program]) == 0
    assert capsys.readouterr().out == text.read_text()
