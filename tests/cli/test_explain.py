"""`explain` of saved programs: from models, from Python, from text, and from folders of another compiler."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.blocked import SIZE, blocked_gemm
from tests.cli.digits import MODEL
from tests.targets.vta.raw_folders import product
from tilewright import targets
from tilewright.cli import main
from tilewright.program import file
from tilewright.targets.vta.runtime import Runtime

Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=[pytest.mark.slow] * (name == "vta")) for name in targets.names()]
)
def test_a_compiled_program_has_the_explanation_of_its_model(target: str, tmp_path: Path, said: Said) -> None:
    path = str(tmp_path / "p.twp")
    said("compile", MODEL, "-t", target, "-o", path)
    assert said("explain", path) == said("explain", MODEL, "-t", target)
    again = json.loads(said("explain", path, "--json"))
    assert again == json.loads(said("explain", MODEL, "-t", target, "--json"))


def test_a_program_by_hand_has_its_walk_also_from_text(tmp_path: Path, said: Said) -> None:
    """`--all` prints the lines of `Runtime.explain`, with the memory map in front."""
    zeros = np.zeros((SIZE, SIZE), np.int64)
    with Runtime("pynq") as rt:
        _, result = blocked_gemm(rt, zeros, zeros, zeros, 2)
        walk = rt.explain().splitlines()
        file.save(rt.program(), tmp_path / "p.twp")
    path, text = str(tmp_path / "p.twp"), tmp_path / "p.txt"
    whole = said("explain", path, "--all").splitlines()
    indented = [line.strip() for line in whole]
    assert all(line.strip() in indented for line in walk)
    assert len([line for line in walk if line.strip().startswith("row ")]) == 13
    assert f"  {result.cycles} cycles (timing model tilewright)" in whole
    brief = said("explain", path).splitlines()
    assert "    13x13+16 14x14+16 15x15+16 16x16+16" in brief
    assert not [line for line in brief if "first load" in line]

    text.write_text(said("disasm", path))
    said("asm", str(text), "-o", str(tmp_path / "q.twp"))
    assert said("explain", str(tmp_path / "q.twp"), "--all").splitlines() == whole


def test_a_folder_has_its_walk(tmp_path: Path, said: Said) -> None:
    product(tmp_path)
    lines = said("explain", str(tmp_path), "-t", "vta", "--all").splitlines()
    assert "    1x1+1 2x1+2 3x1+3 4x1+4" in lines
    assert "    row 1: dram 0, block 1..4, inp[0..3]" in lines


def test_a_deadlock_is_named(tmp_path: Path, said: Said) -> None:
    text = tmp_path / "p.txt"
    text.write_text("# target vta\n.insn\nload inp y_size=0 x_size=0 pop:compute\nfinish\n")
    said("asm", str(text), "-o", str(tmp_path / "p.twp"))
    assert "no cycles: the launch deadlocks" in said("explain", str(tmp_path / "p.twp"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-t", "vta"], "--target: is not needed"),
        (["--set", "mhz=50"], "--set: is not needed"),
        (["--rounding", "tflm"], "--rounding: is for models only"),
        (["--schedule", "s.json"], "--schedule: is for models only"),
        (["--search"], "--search: is for models only"),
        (["--save-schedule", "s.json"], "--save-schedule: is for models only"),
        (["--firmware", "f.elf"], "--firmware: is for models only"),
        (["--shape", "x=1,1"], "--shape: is for models only"),
        (["--until", "x"], "--until: is for models only"),
        (["-c", "pynq"], "--config: is not needed"),
        (["--all"], "--all: gemmini prints everything without it"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.twp"
    assert main(["compile", MODEL, "-t", "gemmini", "-o", str(path)]) == 0
    assert main(["explain", str(path), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_model_needs_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MODEL]) == 2
    assert "--target: is missing" in capsys.readouterr().err
