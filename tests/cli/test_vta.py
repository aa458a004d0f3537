"""The command line on a real machine: the example network, from its file to its reports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.cli.digits import DIGITS, MODEL, SAMPLES
from tilewright.cli import main

RUN = ["run", MODEL, "-t", "vta"]


def test_digits_run_exactly_and_every_report_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, trace, page = tmp_path / "o.npz", tmp_path / "t.pftrace", tmp_path / "r.html"
    written = ["-o", str(out), "--trace", str(trace), "--html", str(page), "--no-what-if"]
    assert main([*RUN, "-i", SAMPLES, "--json", *written]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["matches_reference"], found["hazards"], found["correct"]) == (True, 0, 99)
    assert found["cycles"] == sum(layer["cycles"] for layer in found["layers"])
    assert {layer["where"] for layer in found["layers"]} == {"vta", "host"}
    with np.load(out) as arrays:
        assert arrays["outputs"].argmax(1).tolist() == found["predictions"]
    parsed = Trace.FromString(trace.read_bytes())
    events = [packet.track_event for packet in parsed.packet if packet.HasField("track_event")]
    begun = sorted(flow for event in events for flow in event.flow_ids)
    assert begun == sorted(flow for event in events for flow in event.terminating_flow_ids)
    assert begun == list(range(1, len(begun) + 1))
    assert max(packet.timestamp for packet in parsed.packet) == 10 * found["cycles"]  # ns at 100 MHz
    assert found["timing_evidence"][:20] in page.read_text()


def test_every_timing_model_runs_and_says_what_it_rests_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cycles = {}
    for name, evidence in (
        ("tilewright", "compiled RTL"),
        ("hls", "declared"),
        ("ideal", "a lower bound, no machine"),
    ):
        page, trace = tmp_path / "r.html", tmp_path / "t.json"
        reports = ["--html", str(page), "--trace", str(trace), "--no-what-if"]
        assert main([*RUN, "-i", SAMPLES, "--timing", name, "--json", *reports]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["timing"], found["hazards"], found["matches_reference"]) == (name, 0, True)
        assert all(evidence in text for text in (found["timing_evidence"], page.read_text(), trace.read_text()))
        assert main([*RUN, "-i", SAMPLES, "--timing", name]) == 0
        assert evidence in " ".join(capsys.readouterr().out.split())
        cycles[name] = found["cycles"]
        assert found["serial_cycles"] >= found["cycles"] > 0
    assert cycles["ideal"] < min(cycles["hls"], cycles["tilewright"])


@pytest.mark.parametrize("digit", [1, 7])
def test_an_image_is_read(digit: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "-i", str(DIGITS / "images" / f"{digit}.png"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"] == [digit]


def test_a_configuration_becomes_a_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vta.h"
    assert main(["header", "vta", "-c", "ultra96", "--set", "LOG_BATCH=1", "-o", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: ")
    text = path.read_text()
    assert '"2x16_i8w8a32_15_15_18_17"' in text
    assert main(["header", "vta", "-c", "ultra96", "--set", "LOG_BATCH=1"]) == 0
    assert capsys.readouterr().out == text
    assert main(["header", "vta", "--set", "LOG_BATCH=99"]) == 2
    assert "LOG_BATCH" in capsys.readouterr().err


def test_a_saved_program_has_no_hazards_and_the_same_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = str(tmp_path / "digits.twp")
    assert main(["compile", MODEL, "-t", "vta", "-c", "ultra96", "-o", program]) == 0
    assert main(["check", program]) == 0
    capsys.readouterr()
    assert main(["exec", program, "--json"]) == 0
    executed = json.loads(capsys.readouterr().out)
    assert main([*RUN, "-c", "ultra96", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cycles"] == executed["cycles"]


THREE = """\
.segment x address=0x1000 size=0x100 kind=const
.base inp=0x1000 uop=0x1000
.insn
load inp y_size=1 x_size=1 x_stride=1 pop:compute push:compute
load uop y_size=1 x_size=1 push:load
finish pop:load
"""


def test_a_pop_before_its_push_is_no_deadlock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Load waits for what compute pushes later in the stream: the program runs, but has no time in serial order."""
    text, program = tmp_path / "three.txt", str(tmp_path / "three.twp")
    text.write_text(THREE)
    assert main(["asm", str(text), "-t", "vta", "-o", program]) == 0
    assert main(["check", program]) == 0
    capsys.readouterr()
    assert main(["exec", program, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["hazards"], found["serial_cycles"], found["layers"][0]["serial_cycles"]) == (0, None, None)
    assert found["cycles"] > 0
    assert main(["exec", program]) == 0
    assert "in asm an instruction needs a token, or room for one, from a later instruction" in capsys.readouterr().out
    text.write_text(THREE.replace("push:load", ""))
    assert main(["asm", str(text), "-t", "vta", "-o", program]) == 0
    assert main(["exec", program]) == 1
    assert "no instruction of compute pushes it" in capsys.readouterr().err
