"""Signal-to-noise ratios are those of the definition; top-1 counts what it says."""

from __future__ import annotations

from math import log10
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime as ort

from tests.quantize.models import residual, samples, save
from tilewright.quantize import Options, quantize


@pytest.mark.parametrize("scheme", ["affine", "pow2"])
def test_the_output_snr_is_that_of_the_written_file(tmp_path: Path, scheme: str) -> None:
    """The float file and the written file, run here by themselves; ties move pow2's a little."""
    data = samples(12)
    model, calibration = save(tmp_path, residual(4), data)
    report = quantize(model, calibration, tmp_path / "q.onnx", Options(scheme))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    sessions = [ort.InferenceSession(str(path), options) for path in (model, tmp_path / "q.onnx")]
    exact, found = (np.stack([session.run(None, {"x": x[None]})[0] for x in data]) for session in sessions)
    expected = 10 * log10(float((exact**2).sum() / ((exact - found) ** 2).sum()))
    (output,) = report.fidelity.outputs
    assert output.tensor == "scores"
    assert output.snr_db == pytest.approx(expected, abs=0.01 if scheme == "affine" else 1.5)
    assert report.fidelity.samples == 12
    assert report.fidelity.top1 is not None
    agreement = float((exact.argmax(-1) == found.argmax(-1)).mean())
    assert report.fidelity.top1.agreement == pytest.approx(agreement, abs=0 if scheme == "affine" else 0.1)
    assert report.fidelity.top1.accuracy is None


def test_every_quantised_tensor_has_a_row_named_by_its_node(tmp_path: Path) -> None:
    report = quantize(*save(tmp_path, residual(), samples()), tmp_path / "q.onnx", Options("pow2"))
    rows = {row.name: row.op for row in report.fidelity.layers}
    expected = {"conv0": "Conv+Relu", "conv2": "Conv+Add+Clip", "concat": "Concat", "average": "GlobalAveragePool"}
    assert expected.items() <= rows.items()
    assert {"relu0", "relu6", "add"}.isdisjoint(rows)
    assert all(10 < row.snr_db < 80 for row in report.fidelity.layers)


def test_labels_and_other_samples_to_measure_on(tmp_path: Path) -> None:
    model, calibration = save(tmp_path, residual(), samples())
    other = samples(400, 77)
    session = ort.InferenceSession(model)
    classes = np.array([session.run(None, {"x": x[None]})[0].argmax() for x in other])
    classes[:120] += 1  # samples that the float model gets wrong
    np.save(tmp_path / "other.npy", other)
    (tmp_path / "labels.txt").write_text("\n".join(map(str, classes)))
    report = quantize(
        model,
        calibration,
        tmp_path / "q.onnx",
        Options(),
        evaluation=tmp_path / "other.npy",
        labels=tmp_path / "labels.txt",
    )
    assert report.fidelity.top1 is not None
    assert report.fidelity.top1.float_accuracy == 0.7
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(tmp_path / "q.onnx"), options)
    found = np.array([session.run(None, {"x": x[None]})[0].argmax() for x in other])
    assert report.fidelity.top1.accuracy == pytest.approx((found == classes).mean())
    assert report.fidelity.top1.accuracy != 0.7  # else it could be the float model's
    assert report.evaluation.startswith("400 samples from ")
    assert report.calibration.startswith("16 samples from ")
