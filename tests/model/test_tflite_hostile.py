"""Damaged .tflite files of every operator: they load, or one error says what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.model.tflite_cases import EACH, KINDS, Case, written
from tests.model.tflite_stream import Stream
from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.graph import reference
from tilewright.model import inputs, load

TRIALS = 25


def survives(content: Array, path: Path, rng: np.random.Generator) -> bool:
    """Change a few bytes, or cut the file; return whether it still loads. What loads must run."""
    damaged = content.copy()
    at = rng.integers(0, len(damaged), rng.integers(1, 6))
    damaged[at] = rng.choice(np.array([int(rng.integers(0, 256)), 0, 1, 255, 127]), len(at))
    path.write_bytes(damaged[: len(damaged) if rng.random() < 0.9 else rng.integers(8, len(damaged))].tobytes())
    try:
        graph = load(path)
        if sum(tensor.size for tensor in graph.tensors.values()) < 1 << 16:
            reference.run(graph, inputs.random(graph).values)
        return True
    except TilewrightError as error:
        assert "\n" not in str(error)
        return False


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_damaged_operators_load_or_are_refused(name: str, dtype: str, seed: int, tmp_path: Path) -> None:
    content = np.frombuffer(written(name, dtype, seed, tmp_path / "whole.tflite").read_bytes(), np.uint8)
    rng = np.random.default_rng(seed)
    for trial in range(TRIALS):
        try:
            survives(content, tmp_path / "damaged.tflite", rng)
        except Exception as error:
            raise AssertionError(f"seed {seed}, trial {trial}") from error


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_damaged_streams_load_or_are_refused(seed: int, tmp_path: Path) -> None:
    content = np.frombuffer(Stream().written_to(tmp_path / "whole.tflite").read_bytes(), np.uint8)
    rng = np.random.default_rng(seed)
    loaded = [survives(content, tmp_path / "damaged.tflite", rng) for _ in range(4 * TRIALS)]
    assert any(loaded) and not all(loaded)


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
