"""Softmax to uint8, where onnxruntime's integer kernel wraps the largest code to 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.graph import reference
from tilewright.model import load, verify

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
node, value, held = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.numpy_helper.from_array


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("scale", [1 / 256, 1 / 255, 1 / 600, 1 / 128])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_codes_equal_onnxruntime_without_optimisations(count: int, scale: float, dtype: str, tmp_path: Path) -> None:
    low = np.iinfo(dtype).min
    zeros = {"xz": np.array(3, dtype), "yz": np.array(low, dtype)}
    constants = [held(np.array(number, np.float32), name) for name, number in (("xs", 0.3), ("ys", scale))]
    constants += [held(zero, name) for name, zero in zeros.items()]
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xc"]),
        node("DequantizeLinear", ["xc", "xs", "xz"], ["xr"]),
        node("Softmax", ["xr"], ["s"], axis=-1),
        node("QuantizeLinear", ["s", "ys", "yz"], ["yc"]),
        node("DequantizeLinear", ["yc", "ys", "yz"], ["y"]),
    ]
    ends = [value("x", 1, [1, count])], [value("y", 1, [1, count])]
    graph = onnx.helper.make_graph(nodes, "net", *ends, constants)
    path = tmp_path / "softmax.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    samples = (np.random.default_rng(46).normal(size=(20, 1, count)) * 20).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    theirs = np.stack([session.run(None, {"x": sample})[0] for sample in samples])
    steps = np.abs(reference.run(load(path), samples)["y"] - theirs) / scale
    assert steps.max() < 1.5  # the integer kernel's table may be off by one code
    assert verify(path, load(path), samples).passed
