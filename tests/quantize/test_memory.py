"""The limits on the activations that a quantisation holds at once."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.quantize.models import residual, samples, save
from tilewright.cli import main
from tilewright.errors import UnsupportedError
from tilewright.quantize import Options, memory, quantize
from tilewright.quantize import model as models

Capture = pytest.CaptureFixture[str]
#: Elements of the activations of `residual` for 8 x 8 pixels: eight of 8 channels, two of 4, a pool, three vectors.
ELEMENTS = 8 * 8 * 64 + 2 * 4 * 64 + 8 * 16 + 8 + 8 + 5


def test_the_activations_of_a_model_are_counted(tmp_path: Path) -> None:
    path, _ = save(tmp_path, residual(), samples(1))
    found = memory.activations(models.read(path))
    assert sum(size for _, size in found.values()) == 4 * ELEMENTS
    assert found["six"] == ((1, 8, 8, 8), 4 * 512)


def test_an_activation_that_run_refuses_is_refused(tmp_path: Path, capsys: Capture) -> None:
    made = residual(1)
    pads = next(item for node in made.graph.node if node.name == "conv0" for item in node.attribute)
    pads.ints[3] = 1 << 20
    path, data = save(tmp_path, made, samples(1))
    assert main(["quantize", path, "--calibration", data, "-o", str(tmp_path / "o.onnx")]) == 2
    said = capsys.readouterr().err
    assert "m.onnx: tensor 'c0' has the shape [1, 8, 8, 1048583]; the limit is 16,777,216 elements; export" in said
    assert "--shape" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_the_sum_of_the_activations_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Two copies, of the float and the quantised model, fit exactly; one byte less is refused before anything runs."""
    path, data = save(tmp_path, residual(), samples(2))
    options, output = Options(method=method), tmp_path / "o.onnx"
    monkeypatch.setattr(memory, "MAX_ACTIVATION_BYTES", 2 * 4 * ELEMENTS)
    quantize(path, data, output, options, verify=False)
    output.unlink()
    monkeypatch.setattr(memory, "MAX_ACTIVATION_BYTES", 2 * 4 * ELEMENTS - 1)
    with pytest.raises(UnsupportedError, match=r"m.onnx: has 14 activations .* \(the largest: 'c0' \[1, 8, 8, 8\]\)"):
        quantize(path, data, output, options, verify=False)
    assert not output.exists()


def test_methods_that_keep_every_sample_are_limited_by_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = save(tmp_path, residual(), samples(6))
    monkeypatch.setattr(memory, "MAX_ACTIVATION_BYTES", 5 * 4 * ELEMENTS)
    quantize(path, data, tmp_path / "o.onnx", verify=False)
    with pytest.raises(UnsupportedError, match=r"keeps those of all 6 samples.*give at most 5 calibration samples"):
        quantize(path, data, tmp_path / "o.onnx", Options(method="percentile"), verify=False)
    path, data = save(tmp_path, residual(), samples(5))
    quantize(path, data, tmp_path / "o.onnx", Options(method="percentile"), verify=False)
