"""ONNX files whose parts make no sense: the error says what is wrong. tests/fuzz damages files at random."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fuzz.networks import kernels, network
from tests.model.onnx_nets import Net, answer, needs_vnni, onnx
from tilewright.cli import main
from tilewright.errors import InputError, ModelError, TilewrightError, UnsupportedError
from tilewright.graph import reference
from tilewright.graph.tensor import MAX_COMPUTED
from tilewright.model import load
from tilewright.model.inputs import random


@needs_vnni
@pytest.mark.parametrize("make", [lambda: network(20261121), kernels])
def test_undamaged_they_equal_onnxruntime(make: Callable[[], Any], tmp_path: Path) -> None:
    path, model = tmp_path / "model.onnx", make()
    path.write_bytes(model.SerializeToString())
    graph = load(path)
    values = random(graph).values
    (ours,) = reference.run(graph, values).values()
    np.testing.assert_allclose(ours[0], answer(path, dict(values))[0][0], rtol=1e-5)


def refused(tmp_path: Path, model: Any, kind: type[TilewrightError], match: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(kind, match=match) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_control_flow_is_refused(tmp_path: Path) -> None:
    net = Net(1)
    inner = onnx.helper.make_graph([], "then", [], [])
    y = net.op("If", net.input((), np.bool_), then_branch=inner, else_branch=inner)
    refused(tmp_path, net.model(y), ModelError, r"op 'If_0': has a branch that has inputs, .* or no results")
    net = Net(1)
    y = net.op("Loop", "", net.input((), np.bool_), body=inner)
    refused(tmp_path, net.model(y), UnsupportedError, r"op 'Loop_0': .*without loops")


def test_what_does_not_exist_is_named(tmp_path: Path) -> None:
    net = Net(1, opset=12)
    refused(tmp_path, net.model(net.op("HardSwish", net.input((4,)))), UnsupportedError, "no HardSwish in opset 12")
    net = Net(1)
    refused(tmp_path, net.model(net.op("Identity", net.input((4,), np.str_))), UnsupportedError, "element type string")


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    net = Net(1)
    net.nodes.append(onnx.helper.make_node("Add", [net.input((2,)), "b"], ["a"]))
    net.nodes.append(onnx.helper.make_node("Relu", ["a"], ["b"]))
    refused(tmp_path, net.model("b"), ModelError, r"op 'Add_0': reads 'b' before anything has written it")


def test_huge_results_are_refused_before_they_are_computed(tmp_path: Path) -> None:
    net = Net(1)
    refused(tmp_path, net.model(net.op("Tile", net.input((1000,)), net.const([1 << 20]))), ModelError, "limit")
    net = Net(1)
    made = net.op("ConstantOfShape", net.const([1 << 30, 1 << 30]))
    refused(tmp_path, net.model(net.op("Add", net.input((1,)), made)), ModelError, "limit")


def test_large_weights_are_read_as_codes_and_never_computed(tmp_path: Path) -> None:
    """The first dense layer of VGG16 has 25,088 x 4,096 weights."""
    net, size = Net(1), 1 + int(MAX_COMPUTED**0.5)
    w = net.weights((size, size), None)
    product = net.quantized(net.op("MatMul", net.quantized(net.input((1, size))), w))
    graph = load(net.save(tmp_path / "large.onnx", product))
    assert any(tensor.size == size**2 and tensor.dtype == "int8" for tensor in graph.tensors.values())
    refused(tmp_path, net.model(net.op("Relu", w)), ModelError, "limit")
    refused(tmp_path, net.model(w), ModelError, "limit")


def test_external_data_stays_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "weights").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    for location, works in (
        ("weights", True),
        ("../secret", False),
        ("link", False),
        (str(tmp_path / "secret"), False),
    ):
        net = Net(1)
        tensor = onnx.TensorProto(name="w", dims=[4], data_type=1, data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        net.constants.append(tensor)
        model = net.model(net.op("Add", net.input((4,)), "w"))
        if works:
            path = folder / "model.onnx"
            path.write_bytes(model.SerializeToString())
            (ours,) = reference.run(load(path), np.ones((1, 4), np.float32)).values()
            np.testing.assert_array_equal(ours[0], np.arange(4) + 1)
        else:
            refused(folder, model, ModelError, "not in the model's folder")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int64", "bool", "float16", "float32"])
def test_constants_are_read_from_the_field_of_their_type(dtype: str, tmp_path: Path) -> None:
    net, values = Net(1), np.array([0, 1, 1], dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
    net.constants.append(onnx.helper.make_tensor("c", kind, [3], values.tolist()))
    graph = load(net.save(tmp_path / "n.onnx", net.op("Gather", "c", net.input((2,), np.int64))))
    np.testing.assert_array_equal(graph.tensors["c"].data, values, strict=True)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(network(1).SerializeToString())
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(UnsupportedError, match=r"package onnx is not installed.*\[onnx\]"):
        load(path)


def test_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    with pytest.raises(InputError, match="not a file"):
        load(path)
    for content in (b"", b"hello, this is no model", bytes(100)):
        path.write_bytes(content)
        with pytest.raises(ModelError):
            load(path)


def test_a_network_whose_input_reaches_no_node_runs(tmp_path: Path) -> None:
    net = Net(1)
    net.input((1, 4))
    path = net.save(tmp_path / "n.onnx", net.op("Relu", net.const(np.ones(3), np.float32)))
    assert main(["run", str(path), "-t", "vta", "--json"]) == 0
