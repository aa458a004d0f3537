"""Networks quantised by pow2, and their scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import ModelProto, numpy_helper

from tests.quantize.models import save
from tilewright.quantize import model as models
from tilewright.quantize import pow2
from tilewright.quantize import samples as samples_from
from tilewright.quantize.samples import Options, Task


def make(folder: Path, source: ModelProto, data: Any, rounds_residuals: bool = False) -> pow2.Pow2Result:
    path, calibration = save(folder, source, data)
    prepared = models.read(path)
    given = samples_from.read(calibration, models.signature(prepared))
    options = Options("pow2", residuals="rounded" if rounds_residuals else "sums")
    return pow2.quantize(Task(prepared, given, options))


def pairs(made: ModelProto) -> dict[str, tuple[str, float]]:
    """{real tensor: (its dequantised name, scale)} of every QuantizeLinear."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    after = {node.input[0]: node.output[0] for node in made.graph.node if node.op_type == "DequantizeLinear"}
    return {
        node.input[0].removesuffix("_float"): (after[node.output[0]], float(constants[node.input[1]]))
        for node in made.graph.node
        if node.op_type == "QuantizeLinear"
    }
