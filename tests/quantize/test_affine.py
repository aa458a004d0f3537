"""The scheme affine: onnxruntime's quantiser, with the options that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402
from onnxruntime import quantization  # noqa: E402

import tilewright as tw  # noqa: E402
from tests.quantize.models import model, residual, samples, save  # noqa: E402
from tilewright.quantize import Options, quantize  # noqa: E402


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
@pytest.mark.parametrize("activations", ["int8", "uint8"])
def test_weights_are_per_channel_and_activations_as_asked(tmp_path: Path, method: str, activations: str) -> None:
    output = tmp_path / "q.onnx"
    report = quantize(
        *save(tmp_path, residual(), samples()), output, Options("affine", method=method, activations=activations)
    )
    made = onnx.load(output)
    onnx.checker.check_model(made)
    assert {node.op_type for node in made.graph.node} >= {"QuantizeLinear", "DequantizeLinear", "Conv", "Gemm"}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    zeros = [constants[node.input[2]].dtype for node in made.graph.node if node.op_type == "QuantizeLinear"]
    assert zeros
    assert set(zeros) == {np.dtype(activations)}
    weights = {
        node.input[0]: constants[node.input[1]]
        for node in made.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in constants
    }
    assert constants["w0_quantized"].dtype == np.int8
    assert weights["w0_quantized"].shape == (8,)
    assert 20 < report.fidelity.outputs[0].snr_db < 60
    assert not report.shifts


@pytest.mark.parametrize(("method", "expected"), [("minmax", "MinMax"), ("entropy", "Entropy")])
def test_the_method_is_onnxruntimes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, expected: str
) -> None:
    """Its entropy ranges of few samples are those of minmax, so the call is what can be looked at."""
    told: list[Any] = []
    real = quantization.quantize_static

    def spy(*arguments: Any, **settings: Any) -> None:
        told.append(settings["calibrate_method"].name)
        real(*arguments, **settings)

    monkeypatch.setattr("tilewright.quantize.affine.quantize_static", spy)
    quantize(*save(tmp_path, residual(), samples()), tmp_path / "q.onnx", Options(method=method))
    assert told == [expected]


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({}, "mean"),
        ({"auto_pad": "VALID"}, "mean"),
        ({"auto_pad": "SAME_UPPER"}, "real_average_pool_2d"),
        ({"pads": [0, 0, 1, 1]}, "real_average_pool_2d"),
        ({"kernel_shape": [5, 5]}, "real_average_pool_2d"),
    ],
    ids=str,
)
def test_an_average_over_the_whole_image_adds_integers(tmp_path: Path, attributes: dict[str, Any], kind: str) -> None:
    attributes = {"kernel_shape": [6, 6]} | attributes
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("AveragePool", ["c"], ["m"], **attributes),
        helper.make_node("Conv", ["m", "w"], ["y"]),
    ]
    size = 1 if kind == "mean" else 6 if "auto_pad" in attributes else 2
    weight = np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32)
    source, data = save(
        tmp_path, model(nodes, {"w": weight}, [1, 3, 6, 6], {"y": [1, 3, size, size]}), samples(4, 1, 6)
    )
    quantize(source, data, tmp_path / "q.onnx")
    program = tw.compile(tmp_path / "q.onnx", "vta", overrides={"alu": "float"})
    result = program.run(np.load(data))
    assert result.matches_reference
    assert {layer.op: layer.where for layer in result.layers}[kind] == ("vta" if kind == "mean" else "host")
