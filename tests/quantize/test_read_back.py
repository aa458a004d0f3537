"""What `quantize` writes, read again and run: shifts as in the file's arithmetic, on the reference and on stock VTA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx

import tilewright as tw
from tests.quantize.models import integers, residual, samples
from tests.quantize.pow2_models import make, pairs


@pytest.mark.parametrize("seed", range(4))
def test_a_pow2_file_is_run_by_shifts(tmp_path: Path, seed: int) -> None:
    data = samples(8, seed + 100)
    made = make(tmp_path, residual(seed), data)
    onnx.save(made.model, tmp_path / "pow2.onnx")
    program = tw.compile(tmp_path / "pow2.onnx", "vta")
    assert program.rounding == "pow2"
    result = program.run(data[:4])
    assert result.matches_reference
    assert not result.findings
    _, scale = pairs(made.model)["scores"]
    for sample, scores in zip(data[:4], next(iter(result.outputs.values())), strict=True):
        codes = integers(made.model, sample[None])["scores"]
        np.testing.assert_array_equal(scores.reshape(codes.shape) / scale, codes, err_msg=f"seed {seed}")
    where = {layer.op: layer.where for layer in result.layers}
    assert where["conv2d"] == where["depthwise_conv2d"] == where["fully_connected"] == "vta"
