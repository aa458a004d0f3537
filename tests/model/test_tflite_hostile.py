"""Options of .tflite operators that make no sense: the error names them. tests/fuzz damages files at random."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.tflite_cases import KINDS, Case
from tilewright.errors import TilewrightError
from tilewright.model import load


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("leaky_relu", "alpha", float("nan"), "scaled by"),
        ("softmax", "beta", float("inf"), "beta = inf"),
        ("softmax", "beta", -1.0, "beta = -1"),
        ("lstm", "cellClip", float("nan"), "limits its cell state"),
        ("lstm", "fusedActivationFunction", 1, "activation is not tanh"),
        ("split", "numSplits", 7, ""),
    ],
)
def test_impossible_options_are_named(name: str, option: str, value: float, message: str, tmp_path: Path) -> None:
    case = Case(3, "int8")
    ends = KINDS[name].make(case)
    setattr(case.w.graphs[0].operators[0].builtinOptions, option, value)
    path = case.w.written(tmp_path / "option.tflite", *ends)
    if message:
        with pytest.raises(TilewrightError, match=message):
            load(path)
    else:  # the number of outputs says it
        load(path)
