"""Cosimulation of whole programs, and that it names what differs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.targets.vta.streams import BASES, random_case, small
from tilewright.cli import cli, main
from tilewright.program.program import Launch
from tilewright.targets.vta.image import Image
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.rtl import cosim, run

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiled gateware needs g++")
DIGITS = Path(__file__).resolve().parents[4] / "examples" / "digits" / "digits.tflite"
KEYS = {
    "LOG_BLOCK": 2,
    "LOG_UOP_BUFF_SIZE": 10,
    "LOG_INP_BUFF_SIZE": 11,
    "LOG_WGT_BUFF_SIZE": 12,
    "LOG_ACC_BUFF_SIZE": 13,
    "LOG_ALU_UOP_BUFF_SIZE": 10,
    "LOG_PAR_BUFF_SIZE": 10,
}
CONFIG = small(0, 2)
#: A program without races that stores something.
STORES = 7


def image(seed: int) -> Image:
    case = random_case(np.random.default_rng(seed), CONFIG, 1)
    segment = {"name": "all", "address": 0, "size": case.dram.shape[1], "kind": "inout"}
    arrays = {"insns": encode(case.records, CONFIG), "dram.all": case.dram[0]}
    return Image.of(Launch("random", (), {"bases": BASES, "segments": [segment]}, arrays))


@pytest.mark.parametrize(
    ("changes", "count"), [({}, 7), pytest.param({"stages": 4, "alu": "fused"}, 2, marks=pytest.mark.slow)]
)
def test_a_network_at_a_small_block(tmp_path: Path, changes: dict[str, Any], count: int) -> None:
    program = tmp_path / "digits.twp"
    keys = KEYS | changes
    given = [argument for key, value in keys.items() for argument in ("--set", f"{key}={value}")]
    assert main(["compile", str(DIGITS), "-t", "vta", *given, "-o", str(program)]) == 0
    done = CliRunner().invoke(cli, ["cosim", str(program), "--json"], standalone_mode=False)
    launches = json.loads(done.stdout)["launches"]
    assert len(launches) == count
    assert all(case["cycles"] == case["rtl_cycles"] and not case["differences"] for case in launches)
    assert {case["mismatched_bytes"] for case in launches} == {0}


def test_the_first_difference_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By instruction, cycle and signal; a byte by the STORE that wrote it last."""
    assert cosim.compare("same", image(STORES), CONFIG, {}, "verilator").differences == ()
    true = run.run

    def late(*arguments: Any) -> Any:
        result, dram = true(*arguments), arguments[2]
        result.start[7:] += 3
        dram["all"][0, touched] ^= 1
        return result

    one = image(STORES)
    before, after = one.dram({}, 1), one.dram({}, 1)
    true(one.insns, CONFIG, after, one.bases)
    touched = int(np.flatnonzero(before["all"][0] != after["all"][0])[0])
    monkeypatch.setattr(cosim, "run", late)
    case = cosim.compare("late", one, CONFIG, {}, "verilator")
    assert case.mismatched_bytes == 1
    assert case.differences[0].startswith("#")
    assert "_starts in cycle" in case.differences[0]
    assert "on the RTL" in case.differences[0]
    assert f"at all[{touched}] on the RTL" in case.differences[-1]
    assert " store out[" in case.differences[-1]


def test_what_has_no_gateware_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "fsim.twp"
    assert main(["compile", str(DIGITS), "-t", "vta", "--set", "semantics=fsim", "-o", str(program)]) == 0
    assert main(["cosim", str(program)]) == 2
    said = capsys.readouterr().err
    assert "VTA gateware: there is none with semantics fsim: it has no memory between compute and store; set" in said
    assert main(["rtl", "vta", "--set", "semantics=fsim", "-o", str(tmp_path)]) == 2
