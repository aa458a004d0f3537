"""A whole network: its firmware on the simulated CPU, with the gateware behind it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import tilewright as tw
from tests import mlperf
from tests.conftest import ROOT
from tilewright.cli import main
from tilewright.hdl.model import Wave
from tilewright.model import inputs
from tilewright.program import file
from tilewright.targets.cfu import TARGET
from tilewright.targets.cfu.compiler import firmware

pytestmark = pytest.mark.skipif(not firmware.compilers(), reason="needs a RISC-V compiler")


def cosim(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, object]]]:
    status = main(["cosim", str(path), "--json"])
    return status, json.loads(capsys.readouterr().out)["launches"]


def test_a_network_takes_the_same_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tw.compile(ROOT / "examples" / "digits" / "digits.tflite", "cfu", config="counter8")
    file.save(program, tmp_path / "digits.twp")
    status, (case,) = cosim(tmp_path / "digits.twp", capsys)
    assert (status, case["differences"], case["mismatched_bytes"]) == (0, [], 0)
    assert case["cycles"] == case["rtl_cycles"]


@pytest.mark.slow
def test_resnet_8_takes_the_same_cycles(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tw.compile(mlperf.model_path(shared, "ic"), "cfu", rounding="tflm")
    file.save(program, tmp_path / "ic.twp")
    status, (case,) = cosim(tmp_path / "ic.twp", capsys)
    assert (status, case["differences"], case["mismatched_bytes"]) == (0, [], 0)
    assert case["cycles"] == case["rtl_cycles"]


@pytest.mark.slow
def test_a_waveform_shows_the_cfu(tmp_path: Path) -> None:
    program = tw.compile(ROOT / "examples" / "digits" / "digits.tflite", "cfu", config="addressed4")
    values = dict(inputs.random(program.graph).values) if program.graph else {}
    TARGET.on_gateware(program, program.launches[0], values)("cxxrtl", Wave(tmp_path / "a.vcd", 5_000, 5_400))
    text = (tmp_path / "a.vcd").read_text()
    assert re.search(r"\$var \w+ 10 \S+ cmd_payload_function_id", text)
    times = [int(time) for time in re.findall(r"^#(\d+)$", text, re.MULTILINE)]
    assert (times[0], times[-1]) == (10_000, 10_801)
