"""The examples run, and say what they are there to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_missing_token_is_named_and_shows_in_the_results() -> None:
    text = run("examples/missing_token.py")
    assert "race in conv2d_3" in text
    assert "a load->compute token pushed by" in text
    as_compiled, without = (int(line.split()[-1]) for line in text.splitlines()[-2:])
    assert as_compiled == 1
    assert without > 1


@pytest.mark.slow
def test_the_demo_explains_what_it_shows(tmp_path: Path) -> None:
    text = run("examples/demo.py", str(tmp_path / "demo.html"))
    assert "99 of 100 right" in text
    assert (tmp_path / "demo.html").read_text(encoding="utf-8").startswith("<!")
    assert (tmp_path / "demo.html").as_uri() in text
    assert len(text.partition("How to read the table:\n")[2].partition("\n\n")[0].splitlines()) == 5
    assert "race in conv2d_3" in text
    tries = [
        line.split()
        for line in text.partition("Try next:\n")[2].splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert len(tries) == 3
    assert all(words[0].endswith("tilewright") for words in tries)
    tutorials = ROOT / text.splitlines()[-1].split()[-1]
    assert tutorials.exists()


def test_the_blocked_gemm_is_right_and_threads_overlap() -> None:
    one, two, ratio = run("examples/blocked_gemm.py").splitlines()[-3:]
    for line in (one, two):
        assert "0 errors in 65536 outputs, 0 hazards" in line
    assert 0.5 < float(ratio.split()[3]) < 0.8


def test_a_hardware_loop_of_gemmini_is_faster_than_primitive_commands() -> None:
    lines = [line.split() for line in run("examples/gemmini_matmul.py").splitlines()]
    assert all(line[-4:] == ["0", "wrong,", "0", "hazards"] for line in lines)
    primitives, loop = (int(line[1]) for line in lines)
    assert loop < primitives


def test_the_digits_are_recognised() -> None:
    text = run(
        "-m", "tilewright", "run", "examples/digits/digits.tflite", "-t", "vta", "-i", "examples/digits/samples.npz"
    )
    assert "99 of 100 right" in text
    assert "all outputs are equal" in text


@pytest.mark.slow
def test_five_machines_are_compared() -> None:
    text = run("examples/vta_machines.py")
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines() if line.strip()}
    assert "all outputs equal the reference, 0 hazards" in text
    assert rows["add_4"][1] == "host"
    assert rows["add_4"][3] != "host"
    cycles = [int(cell.replace(",", "")) for cell in rows["all"][1:]]
    assert cycles[2] < cycles[0]  # fused
    assert float(rows["alu_uop, KiB"][-1]) > 0


def test_the_layer_norm_is_bound_by_transfers() -> None:
    text = run("examples/bm1684x_layer_norm.py")
    assert "dma 100.0%" in text
    assert "races: 0" in text
    assert float(text.split("largest error ")[1].split(",")[0]) < 1e-5


def test_the_matrix_product_overlaps_transfers_and_sums() -> None:
    text = run("examples/bm1684x_matmul.py")
    assert "exact: True, races: 0" in text
    assert float(text.split("% of peak")[0].split()[-1]) > 85


@pytest.mark.parametrize(
    ("name", "right", "engine", "least"),
    [
        ("conv", "exact: True", "tiu", 80),
        ("softmax", "relative error 2.", "dma", 95),
        ("attention", "largest error 3.", "tiu", 80),
        ("nms", "equal: True", "hau", 50),
    ],
)
def test_kernels_keep_their_engine_busy(name: str, right: str, engine: str, least: float) -> None:
    first, last = run(f"examples/bm1684x_{name}.py").splitlines()
    assert right in last
    assert last.endswith("races: 0")
    assert float(first.split(f"{engine} ")[1].split("%")[0]) > least


def test_a_host_program_is_exact_on_a_card_and_on_the_chip() -> None:
    lines = run("examples/bm1684x_host.py").splitlines()
    assert [line.split(";")[0] for line in lines] == [f"{mode}: exact: True, races: 0" for mode in ("pcie", "soc")]


def test_own_alu_operations_are_right() -> None:
    assert run("examples/own_alu/run.py") == "0 errors in 512 values, 0 hazards, 1231 cycles\n"


def test_a_cfu_in_python_is_faster_and_right() -> None:
    plain, custom, ratio = run("examples/own_cfu.py").splitlines()
    assert plain.split()[-1] == custom.split()[-1]
    assert 2.0 < float(ratio.split()[-1]) < 4.0


def test_each_idea_makes_the_product_on_gemmini_faster() -> None:
    lines = run("examples/gemmini_schedule.py").splitlines()
    assert all(line.endswith("cycles, equal, 0 hazards") for line in lines)
    cycles = [int(line.partition(" cycles")[0].split()[-1].replace(",", "")) for line in lines]
    assert cycles == [74_284, 70_508, 67_084, cycles[-1]]
    assert 65_536 < cycles[-1] < 66_300
