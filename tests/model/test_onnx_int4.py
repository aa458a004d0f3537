"""ONNX files with int4 codes: equal to onnxruntime, which computes them on real numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.model.onnx_int4 import INT4, Network, by_onnxruntime, changed, network
from tilewright import targets
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph.reference import run
from tilewright.graph.tensor import Int4
from tilewright.model import load
from tilewright.model.inputs import random
from tilewright.model.onnx_verify import verify
from tilewright.program import file
from tilewright.program.program import HostStep

SAMPLES = 40


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
@pytest.mark.parametrize("last", [INT4, TensorProto.INT8])
def test_the_reference_equals_onnxruntime(seed: int, last: int, tmp_path: Path) -> None:
    """With scales that are powers of two, onnxruntime's real numbers are exact."""
    path = network(tmp_path / "n.onnx", seed, last=last)
    graph = load(path)
    narrow = [tensor.name for tensor in graph.tensors.values() if tensor.code_type == "int4"]
    assert {"a:codes", "d:codes:nhwc", "f:codes:nhwc"} <= set(narrow)
    samples = np.random.default_rng(seed).normal(size=(SAMPLES, 1, 3, 8, 8)).astype(np.float32)
    results = run(graph, samples)[graph.outputs[0]]
    assert np.array_equal(results, by_onnxruntime(path, samples))
    assert len(np.unique(results)) > 8


def test_scales_that_are_no_powers_of_two_verify(tmp_path: Path) -> None:
    path = network(tmp_path / "n.onnx", 5, exact=False)
    graph = load(path)
    verification = verify(path, graph, random(graph).values)
    assert not verification.reason
    assert not verification.differences
    assert verification.tensors >= 6


def test_weights_of_4_bits_are_plain_weights(tmp_path: Path) -> None:
    """With int8 activations, every target takes the int4 weights of a file."""
    path = network(tmp_path / "n.onnx", 3, channels=16, activations=TensorProto.INT8)
    assert not [tensor for tensor in load(path).tensors.values() if isinstance(tensor.quant, Int4)]
    for target in ("vta", "bm1684x", "gemmini"):
        program = tw.compile(path, target)
        assert program.launches, target
        assert program.run(random(load(path)).values).matches_reference is True, target


@pytest.mark.parametrize("target", [name for name in targets.names() if name != "vta"])
def test_other_targets_leave_int4_to_the_host(target: str, tmp_path: Path) -> None:
    path = network(tmp_path / "n.onnx", 4)
    program = tw.compile(path, target)
    assert not program.launches
    assert [step for step in program.steps if isinstance(step, HostStep) and "int4" in step.reason]
    file.save(program, tmp_path / "p.twp")
    again = file.load(tmp_path / "p.twp")
    assert again.graph is not None and program.graph is not None
    for name, tensor in program.graph.tensors.items():
        assert again.graph.tensors[name].quant == tensor.quant
    assert program.run(random(load(path)).values).matches_reference is True


def test_bytes_of_two_values_in_each_form(tmp_path: Path) -> None:
    """`raw_data` and the list of numbers of one constant are read equal; a wrong number of bytes is refused."""
    path = network(tmp_path / "n.onnx", 6)
    model = onnx.load(path)
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == "c:w:codes")
    packed = bytes(value & 255 for value in tensor.int32_data) or tensor.raw_data
    graph = load(path)
    weights = next(t for t in graph.tensors.values() if t.name.startswith("c:w:codes"))
    assert weights.data is not None
    assert weights.data.dtype == np.int8
    assert (weights.data.min(), weights.data.max()) == (-8, 7)
    assert np.array_equal(
        weights.data.transpose(0, 3, 1, 2), np.asarray(onnx.numpy_helper.to_array(tensor)).astype(np.int8)
    )
    other = changed(path, {"raw_data": packed})
    twin = next(t for t in load(other).tensors.values() if t.name.startswith("c:w:codes"))
    assert twin.data is not None
    assert np.array_equal(twin.data, weights.data)
    with pytest.raises(ModelError, match="bytes of data for int4"):
        load(changed(path, {"raw_data": packed[1:]}))


def test_what_is_not_supported_is_named(tmp_path: Path) -> None:
    made = Network(7)
    made.scale("s", 0)
    made.constant("z", np.array(0), INT4)
    x, _ = made.quantised("x", "a", 0)
    made.node("QuantizeLinear", [x, "several", "zeros"], "b", axis=1)
    made.constant("several", np.array([1, 2, 3], np.float32))
    made.constant("zeros", np.zeros(3, np.int64), INT4)
    made.node("DequantizeLinear", ["b", "several", "zeros"], "y", axis=1)
    path = made.save(tmp_path / "n.onnx", "y", (1, 3, 8, 8), (1, 3, 8, 8))
    with pytest.raises(UnsupportedError, match="QuantizeLinear of int4 is not supported"):
        load(path)
    model = onnx.load(network(tmp_path / "m.onnx", 8))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("a:codes", INT4, [1, 3, 8, 8]))
    del model.graph.node[0]
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="input 'a:codes': is int4"):
        load(tmp_path / "m.onnx")
