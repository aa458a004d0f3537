"""Names that quantising makes: none is that of a node, tensor or constant of the user's model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import ModelError
from tilewright.model import load

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tilewright.quantize import SCHEMES, Options, quantize  # noqa: E402

node = onnx.helper.make_node
#: Names of a network that uses what each scheme writes: weights, biases, sums, averages, and a HardSwish to expand.
NAMES = ("x", "w", "b", "a", "h", "s", "v", "c", "m", "k", "p", "o", "y")


def network(path: Path, other: Mapping[str, str] | None = None, node_name: str = "") -> Path:
    """Write the network with `other` names for tensors, and `node_name` for the first node."""
    random = np.random.default_rng(7)
    names = {name: (other or {}).get(name, name) for name in NAMES}

    def make(op: str, inputs: str, output: str, title: str, **attributes: object) -> object:
        return node(op, [names[i] for i in inputs.split()], [names[output]], title, **attributes)

    nodes = [
        make("Conv", "x w b", "a", node_name or "first"),
        make("HardSwish", "a", "h", "curve"),
        make("Mul", "h k", "s", "factor"),
        make("Conv", "s v", "c", "second"),
        make("Add", "c s", "m", "sum"),
        make("AveragePool", "m", "p", "average", kernel_shape=[3, 3]),
        make("Concat", "p o", "y", "joined", axis=1),
    ]
    shapes = {"w": (4, 3, 1, 1), "b": (4,), "k": (1, 4, 1, 1), "v": (4, 4, 1, 1), "o": (1, 1, 1, 1)}
    held = [onnx.numpy_helper.from_array(random.normal(size=s).astype(np.float32), names[n]) for n, s in shapes.items()]
    value = onnx.helper.make_tensor_value_info
    ends = [value(names["x"], 1, (1, 3, 3, 3))], [value(names["y"], 1, (1, 5, 1, 1))]
    graph = onnx.helper.make_graph(nodes, "net", *ends, held)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)], ir_version=8), path)
    return path


def run(path: Path, scheme: str, x: Array) -> tuple[Array, list[str], list[str]]:
    """Quantise a network; the results of the written file, its tensors and its nodes."""
    name = onnx.load(path).graph.input[0].name
    samples: dict[str, Any] = {name: x}
    np.savez(path.with_suffix(".npz"), **samples)
    report = quantize(path, path.with_suffix(".npz"), path.with_name("q.onnx"), Options(scheme=scheme))
    assert report.verification is not None and report.verification.passed, report.verification
    import onnxruntime as ort

    model = onnx.load(path.with_name("q.onnx"))
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {name: x[0]})
    tensors = [name for each in model.graph.node for name in (*each.input, *each.output)]
    return result, list(dict.fromkeys(filter(None, tensors))), [each.name for each in model.graph.node]


def made(scheme: str, folder: Path, x: Array) -> Iterator[tuple[str, str]]:
    """The new names of a quantised network: ("tensor" or "node", name)."""
    _, tensors, nodes = run(network(folder / "plain.onnx"), scheme, x)
    own = {each.name for each in onnx.load(folder / "plain.onnx").graph.node}
    yield from (("tensor", name) for name in tensors if name not in NAMES)
    yield from (("node", name) for name in nodes if name not in own)


#: New names that are tried in the gate.
COUNT = 6
SAMPLES = np.random.default_rng(1).normal(size=(2, 1, 3, 3, 3)).astype(np.float32)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_new_names_are_unused(scheme: str, tmp_path: Path) -> None:
    """Each new name in turn is that of an input, a value, a constant, the output, or a node of the model."""
    names = list(made(scheme, tmp_path, SAMPLES))
    expected, *_ = run(network(tmp_path / "plain.onnx"), scheme, SAMPLES)
    seed = np.random.default_rng(46)
    names = [names[i] for i in seed.choice(len(names), min(len(names), COUNT), replace=False)]
    for number, (kind, name) in enumerate(names):
        if kind == "node":
            path = network(tmp_path / "named.onnx", node_name=name)
        else:
            free = [other for other in ("x", "a", "w", "h", "y", "b") if not re.match(rf"{other}(_|$)", name)]
            taken = free[number % len(free)]
            path = network(tmp_path / "named.onnx", {taken: name})
        result, _, nodes = run(path, scheme, SAMPLES)
        assert len(set(nodes)) == len(nodes), name
        np.testing.assert_array_equal(result, expected, err_msg=f"{kind} {name}, seed 46")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_names_that_onnxruntime_gives_to_parts_of_operators(scheme: str, tmp_path: Path) -> None:
    """onnxruntime makes a HardSwish of nodes that it calls Mul_2 and the like, whatever others are called."""
    expected, *_ = run(network(tmp_path / "plain.onnx"), scheme, SAMPLES)
    for name in ("Mul_2", "Mul_1", "HardSigmoid_0", "HardSigmoid_1"):
        result, *_ = run(network(tmp_path / "named.onnx", node_name=name), scheme, SAMPLES)
        np.testing.assert_array_equal(result, expected, err_msg=name)


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    model = onnx.load(network(tmp_path / "plain.onnx"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.save(tmp_path / "x.npy", SAMPLES)
    quantize(tmp_path / "m.onnx", tmp_path / "x.npy", tmp_path / "q.onnx")
    (tmp_path / "weights.bin").unlink()
    for attempt in (
        lambda: quantize(tmp_path / "m.onnx", tmp_path / "x.npy", tmp_path / "q.onnx"),
        lambda: load(tmp_path / "m.onnx"),
    ):
        with pytest.raises(
            ModelError, match=r"m.onnx: constant '\w': has its data in 'weights.bin'.*put the file next"
        ):
            attempt()
