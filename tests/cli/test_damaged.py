"""Saved programs with values that no program has: one precise line. tests/fuzz damages files at random."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright.cli import main
from tilewright.program import file

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


def test_layers_that_instructions_do_not_have_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A launch of several layers says whose each instruction is: an absurd number must not be counted up to."""
    for wrong in (-1, 1 << 40, 3):
        good = tw.compile(DIGITS, overrides={"alu": "fused"})
        launch = next(launch for launch in good.launches if len(launch.nodes) > 1)
        launch.arrays["layer"][0] = wrong if wrong != 3 else len(launch.nodes)
        file.save(good, tmp_path / "odd.twp")
        assert main(["exec", str(tmp_path / "odd.twp")]) == 2
        assert "layers each instruction belongs to; compile it again" in capsys.readouterr().err
