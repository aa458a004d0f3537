"""A float VGG in ONNX, quantised, on the engine: onnxruntime's outputs bit for bit, and the bench that says so."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from click.testing import CliRunner
from onnx import helper

from tests.conftest import ROOT
from tests.model.onnx_nets import needs_vnni
from tests.quantize.models import model, save
from tilewright.quantize import Options, quantize


@pytest.fixture(scope="module", params=["int8", pytest.param("uint8", marks=needs_vnni)])
def quantised(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and samples."""
    folder, draw = tmp_path_factory.mktemp("vgg"), np.random.default_rng(4).standard_normal
    node = helper.make_node
    shapes = {"w0": (16, 3, 3, 3), "b0": (16,), "w1": (32, 16, 3, 3), "b1": (32,), "w2": (40, 512), "b2": (40,)}
    shapes |= {"w3": (10, 40), "b3": (10,)}
    constants = {name: (0.2 * draw(shape)).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1] * 4),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p0", "w1", "b1"], ["c1"], pads=[1] * 4),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p1"], ["flat"]),
        node("Gemm", ["flat", "w2", "b2"], ["g0"], transB=1),
        node("Relu", ["g0"], ["r2"]),
        node("Gemm", ["r2", "w3", "b3"], ["y"], transB=1),
    ]
    network = model(nodes, constants, [1, 3, 16, 16], {"y": [1, 10]})
    data = draw((8, 3, 16, 16)).astype(np.float32)
    path, samples = save(folder, network, data)
    quantize(path, samples, folder / "q.onnx", Options("affine", activations=request.param))
    return folder / "q.onnx", Path(samples)


@pytest.mark.parametrize("preset", ["repaired", "fast", "literal"])
def test_outputs_are_onnxruntimes(quantised: tuple[Path, Path], preset: str) -> None:
    bench = runpy.run_path(str(ROOT / "bench" / "zynq_speed.py"))
    arguments = [*map(str, quantised), "-c", preset, "--rounds", "1", "--json"]
    done = CliRunner().invoke(bench["main"], arguments)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["matches_reference"], summary["differing"], summary["on_host"]) == (True, 0, [])
    assert summary["cycles"] > 0
    assert summary["ratio"] == pytest.approx(summary["simulate_cpu_seconds"] / summary["onnxruntime_cpu_seconds"])
