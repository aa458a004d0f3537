"""If nodes of ONNX: the branch of a constant condition, a selection for a computed one, branches that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.model.onnx_nets import onnx, onnxruntime
from tilewright.errors import ModelError, UnsupportedError
from tilewright.model import verify

FLOAT, BOOL = 1, 9


def branch(name: str, nodes: list[Any], out: str, constants: dict[str, Any] | None = None) -> Any:
    given = [onnx.numpy_helper.from_array(np.asarray(value), key) for key, value in (constants or {}).items()]
    return onnx.helper.make_graph(nodes, name, [], [onnx.helper.make_tensor_value_info(out, FLOAT, None)], given)


def saved(path: Path, nodes: list[Any], inputs: dict[str, tuple[int, tuple[int, ...]]], opset: int = 17) -> Path:
    helper = onnx.helper
    declared = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    graph = helper.make_graph(nodes, "g", declared, [helper.make_tensor_value_info("y", FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def choice(condition: str, yes: Any, no: Any) -> Any:
    return onnx.helper.make_node("If", [condition], ["r"], then_branch=yes, else_branch=no)


def sides() -> tuple[Any, Any]:
    """Two branches that read `x` from outside, whose inner values have the same names."""
    node = onnx.helper.make_node
    yes = branch("yes", [node("Add", ["x", "c"], ["t"]), node("Relu", ["t"], ["o"])], "o", {"c": np.float32(-1)})
    no = branch("no", [node("Mul", ["x", "c"], ["t"]), node("Neg", ["t"], ["o"])], "o", {"c": np.float32(3)})
    return yes, no


@pytest.mark.parametrize("rank", [0, 1])
def test_a_computed_condition_selects_as_onnxruntime_does(tmp_path: Path, rank: int) -> None:
    node = onnx.helper.make_node
    yes, no = sides()
    inner = branch("inner", [choice("b", yes, no), node("Abs", ["r"], ["q"])], "q")
    nodes = [choice("a", inner, no), node("Add", ["r", "x"], ["y"])]
    kinds = {"x": (FLOAT, (2, 3)), "a": (BOOL, (1,) * rank), "b": (BOOL, (1,) * rank)}
    path = saved(tmp_path / "m.onnx", nodes, kinds)
    graph = tw.load(path)
    generator = np.random.default_rng(5)
    flags = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], bool)
    feeds = {"x": generator.standard_normal((4, 2, 3)).astype(np.float32)}
    feeds |= {name: flags[:, index].reshape(4, *(1,) * rank) for index, name in enumerate("ab")}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = [session.run(None, {name: value[place, ...] for name, value in feeds.items()})[0] for place in range(4)]
    found = tw.compile(graph, "vta").run(feeds).outputs["y"]
    np.testing.assert_array_equal(found, np.stack(wanted))
    assert verify(path, graph, feeds).passed


def test_a_condition_of_shapes_leaves_one_branch(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    yes = branch("yes", [node("Squeeze", ["x", "a"], ["o"])], "o", {"a": np.array([1])})
    no = branch("no", [node("Identity", ["x"], ["o"])], "o")
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Constant", [], ["i"], value=onnx.numpy_helper.from_array(np.array(1))),
        node("Gather", ["s", "i"], ["e"]),
        node("Equal", ["e", "i"], ["one"]),
        choice("one", yes, no),
        node("Relu", ["r"], ["y"]),
    ]
    narrow = tw.load(saved(tmp_path / "a.onnx", nodes, {"x": (FLOAT, (2, 1))}))
    wide = tw.load(saved(tmp_path / "b.onnx", nodes, {"x": (FLOAT, (2, 5))}))  # its Squeeze would not be valid
    assert (narrow.tensors["y"].shape, wide.tensors["y"].shape) == ((2,), (2, 5))
    assert len(wide.nodes) == 1


@pytest.mark.parametrize("opset", [11, 17])
def test_a_branch_that_does_not_fit_the_shapes_ends_in_an_error_if_it_is_taken(tmp_path: Path, opset: int) -> None:
    node = onnx.helper.make_node
    yes = branch("yes", [node("Add", ["x", "c"], ["o"])], "o", {"c": np.ones(4, np.float32)})  # does not broadcast
    no = branch("no", [node("Neg", ["x"], ["o"])], "o")
    kinds = {"x": (FLOAT, (2, 3)), "a": (BOOL, ())}
    graph = tw.load(saved(tmp_path / "m.onnx", [choice("a", yes, no), node("Relu", ["r"], ["y"])], kinds, opset))
    program, x = tw.compile(graph, "vta"), -np.ones((1, 2, 3), np.float32)
    assert (program.run({"x": x, "a": np.zeros(1, bool)}).outputs["y"] == 1).all()
    with pytest.raises(ModelError, match="only_else_branch_fits"):
        program.run({"x": x, "a": np.ones(1, bool)})


def test_branches_that_are_refused(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    yes, no = sides()
    kinds = {"x": (FLOAT, (2, 3)), "a": (BOOL, ())}
    end = node("Relu", ["r"], ["y"])
    other = branch("other", [node("Flatten", ["x"], ["o"], axis=0)], "o")
    with pytest.raises(UnsupportedError, match=r"branches with results of different types, float32\[2, 3\] and"):
        tw.load(saved(tmp_path / "types.onnx", [choice("a", yes, other), end], kinds))
    with pytest.raises(UnsupportedError, match="computed condition in opset 8"):
        tw.load(saved(tmp_path / "old.onnx", [choice("a", yes, no), end], kinds, 8))
    with pytest.raises(ModelError, match="a condition that is not one bool"):
        tw.load(saved(tmp_path / "real.onnx", [choice("x", yes, no), end], kinds))
