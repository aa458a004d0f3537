"""Random float networks through the quantiser: what it writes is read, and run, as the scheme says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime as ort

import tilewright as tw
from tests.model.onnx_nets import answer, exact_cpu
from tests.quantize.float_networks import Network
from tilewright.graph import reference
from tilewright.model import load
from tilewright.quantize import Options, quantize
from tilewright.quantize.pow2.emit import exact

pytestmark = pytest.mark.usefixtures("brief_search")


def check(seed: int, scheme: str, folder: Path) -> None:
    """The reference gives what the scheme's arithmetic gives by onnxruntime, and VTA what the reference gives."""
    print("seed", seed)
    samples = Network(seed).save(folder)
    path = folder / "q.onnx"
    quantize(folder / "f.onnx", folder / "x.npy", path, Options(scheme))
    graph = load(path)
    found = reference.run(graph, samples).values()
    if scheme == "pow2":
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        content = exact(onnx.load(path)).SerializeToString()
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        golden = [session.run(None, {"x": sample}) for sample in samples]
    else:
        golden = answer(path, {"x": samples})
    for values, expected in zip(found, zip(*golden, strict=True), strict=True):
        np.testing.assert_array_equal(values, np.stack(expected))
    result = tw.compile(graph, "vta", overrides={} if scheme == "pow2" else {"alu": "float"}).run(samples[:2])
    assert result.matches_reference
    assert not result.findings


SCHEMES = [
    "pow2",
    pytest.param("affine", marks=pytest.mark.skipif(not exact_cpu(), reason="without VNNI onnxruntime saturates")),
]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_random_networks(scheme: str, tmp_path: Path) -> None:
    for seed in range(8):
        check(seed, scheme, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_many_random_networks(scheme: str, tmp_path: Path) -> None:
    for seed in range(1000, 1200):
        check(seed, scheme, tmp_path)
