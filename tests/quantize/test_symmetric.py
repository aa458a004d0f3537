"""The scheme symmetric: no zero points, one scale for the weights of a layer, and ReLUs that only cut codes off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import tilewright as tw  # noqa: E402
from tests.quantize.models import every_kernel, samples, save  # noqa: E402
from tilewright.errors import InputError  # noqa: E402
from tilewright.graph import ops  # noqa: E402
from tilewright.quantize import Options, quantize  # noqa: E402


@pytest.fixture
def made(tmp_path: Path) -> Path:
    report = quantize(*save(tmp_path, every_kernel(), samples(size=16)), tmp_path / "q.onnx", Options("symmetric"))
    assert report.verification is not None and not report.verification.differences
    assert report.fidelity.outputs[0].snr_db > 25
    return tmp_path / "q.onnx"


def test_codes_are_symmetric_and_relus_join_the_layers_before_them(made: Path) -> None:
    graph = tw.load(made)
    coded = [tensor for tensor in graph.tensors.values() if tensor.quant is not None and tensor.dtype == "int8"]
    assert coded and all(
        set(tensor.quant.zero_point) == {0} and not tensor.quant.per_channel for tensor in coded if tensor.quant
    )
    found = [node.op.activation for node in graph.nodes if isinstance(node.op, ops.Linear)]
    assert found == ["relu", "relu", "none", "relu", "none"]
    assert not any(isinstance(node.op, ops.OnnxOp) and node.op.label == "Relu" for node in graph.nodes)


def test_gemmini_computes_what_onnxruntime_does(made: Path) -> None:
    """The file was verified against onnxruntime; all layers with MACs leave the machine as codes."""
    program = tw.compile(made, "gemmini")
    result = program.run({"x": np.random.default_rng(1).standard_normal((3, 1, 3, 16, 16)).astype(np.float32)})
    assert result.matches_reference and not result.findings
    assert result.macs_on_target == result.macs
    on_host = {layer.op for layer in result.layers if layer.where == "host"}
    assert "add" not in on_host and "conv2d" not in on_host, on_host
    assert all("codes" in str(launch.meta["plan"]) for launch in program.launches)


def test_activations_are_int8(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="symmetric has int8"):
        quantize(
            *save(tmp_path, every_kernel(), samples(size=16)),
            tmp_path / "q.onnx",
            Options("symmetric", activations="uint8"),
        )
