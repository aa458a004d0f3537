"""Random model files through every machine: each equals its framework and the reference, and none has a hazard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import tilewright as tw
from tests.model.onnx_nets import exact_cpu
from tests.model.tflite_answers import check
from tests.model.tflite_cases import codes
from tests.model.tflite_networks import Network as TFLite
from tests.quantize.float_networks import Network
from tests.quantize.shaped_networks import Shaped
from tilewright import targets
from tilewright.array import Array
from tilewright.model import load
from tilewright.quantize import SCHEMES, Options, quantize

pytestmark = pytest.mark.usefixtures("brief_search")

MODES = ("tflm", "litert", "xnnpack")
#: New seeds, and others than any test that compares one machine alone.
FIRST = 460_000


def runs_on_all_machines(path: Path, samples: dict[str, Array], rounding: str | None = None) -> None:
    """Each machine computes what the reference computes, and finds no hazard."""
    graph = load(path)
    for name in targets.names():
        result = tw.compile(graph, name, rounding=rounding).run(samples)
        assert result.matches_reference, f"{name} differs"
        assert not result.findings, f"{name}: {result.findings}"


def many(gate: int, slow: int) -> list[Any]:
    """Seeds: some in the gate, all others in the slow tier."""
    return [*range(FIRST, FIRST + gate), *(pytest.param(FIRST + n, marks=pytest.mark.slow) for n in range(gate, slow))]


@pytest.mark.parametrize("seed", many(4, 600))
def test_tflite_networks(seed: int, tmp_path: Path) -> None:
    path = TFLite(seed).save(tmp_path / "random.tflite")
    check(path, ("tflm", "litert"), seed)
    runs_on_all_machines(path, codes(load(path), seed), MODES[seed % 3])


@pytest.mark.skipif(not exact_cpu(), reason="without VNNI onnxruntime saturates")
@pytest.mark.parametrize("seed", many(4, 300))
def test_onnx_networks(seed: int, tmp_path: Path) -> None:
    network: Shaped | Network = Shaped(seed) if seed % 2 else Network(seed)
    samples = network.save(tmp_path)
    path = tmp_path / "q.onnx"
    report = quantize(tmp_path / "f.onnx", tmp_path / "x.npy", path, Options(SCHEMES[seed // 2 % len(SCHEMES)]))
    assert report.verification is not None and report.verification.passed, report.verification
    runs_on_all_machines(path, {load(path).inputs[0]: samples[:2]})
