"""The shapes of inputs whose extents an ONNX file leaves open: given, by symbol, and of the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.model.onnx_nets import onnx, onnxruntime
from tilewright.cli import main
from tilewright.errors import InputError, UnsupportedError
from tilewright.model.shapes import InputDeclaration, fixed_shapes


def saved(path: Path, *axes: tuple[Any, ...] | None) -> Path:
    """Write a model that adds 1 to each input; `axes` are their extents (-1: as a number; None: of unknown rank)."""
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    names = [f"x{index}" for index in range(len(axes))]
    inputs = []
    for name, shape in zip(names, axes, strict=True):
        value = helper.make_tensor_value_info(name, real, None if shape is None else [e or None for e in shape])
        for dim, extent in zip(value.type.tensor_type.shape.dim, shape or (), strict=False):
            if extent == -1:
                dim.dim_value = -1
        inputs.append(value)
    nodes = [helper.make_node("Add", [name, "one"], [f"y{name}"]) for name in names]
    outputs = [helper.make_tensor_value_info(f"y{name}", real, None) for name in names]
    one = onnx.numpy_helper.from_array(np.float32(1), "one")
    graph = helper.make_graph(nodes, "adds", inputs, outputs, [one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def shapes(path: Path, given: dict[str, tuple[int, ...]] | None = None) -> list[tuple[int, ...]]:
    graph = tw.load(path, given)
    return [graph.tensors[name].shape for name in graph.inputs]


@pytest.mark.parametrize("batch", ["N", "batch", "", -1, 0])
def test_an_open_batch_axis_is_one(tmp_path: Path, batch: Any) -> None:
    assert shapes(saved(tmp_path / "m.onnx", (batch, 3, 4))) == [(1, 3, 4)]


def test_symbols_and_given_shapes(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", ("batch", "time", 8), (2, "batch", 4), ("b", "time"))
    with pytest.raises(UnsupportedError, match=r"input 'x0': has the open extent 'time' at axis 1.*shapes="):
        tw.load(path)
    assert shapes(path, {"x0": (1, 5, 8)}) == [(1, 5, 8), (2, 1, 4), (1, 5)]  # `time` is known, `batch` is 1
    assert shapes(path, {"x0": (3, 5, 8)}) == [(3, 5, 8), (2, 3, 4), (1, 5)]
    assert shapes(saved(tmp_path / "r.onnx", None), {"x0": (2, 3)}) == [(2, 3)]
    with pytest.raises(UnsupportedError, match="has no shape in the file"):
        tw.load(tmp_path / "r.onnx")
    program = tw.compile(path, "vta", shapes={"x0": (1, 5, 8)})
    assert program.graph is not None
    feeds = {name: np.zeros((2, *program.graph.tensors[name].shape), np.float32) for name in program.graph.inputs}
    assert {array.shape for array in program.run(feeds).outputs.values()} == {(2, 1, 5, 8), (2, 2, 1, 4), (2, 1, 5)}
    runtime = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert runtime.run(None, {name: array[0] for name, array in feeds.items()})[0].shape == (1, 5, 8)


def test_an_anonymous_extent_of_another_axis_is_not_the_batch() -> None:
    declaration = InputDeclaration("x", ("", 3, "", ""))
    with pytest.raises(UnsupportedError, match="has the open extent of no name at axis 2; give numbers for them"):
        fixed_shapes([declaration])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"y": (1, 2)}, "the model has no input 'y'; choose one of x0, x1"),
        ({"x0": (1, 2, 3)}, r"is \[1, 2, 3\], but the model declares \[N,W\]"),
        ({"x1": (2, 2)}, r"is \[2, 2\], but the model declares \[1,W\]"),
        ({"x0": (1, 0)}, "give at most 8 extents of 1 or more"),
        ({"x0": (1, 2), "x1": (1, 3)}, "gives 'W' the extents 2 and 3"),
    ],
)
def test_shapes_that_do_not_fit(tmp_path: Path, given: dict[str, tuple[int, ...]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        tw.load(saved(tmp_path / "m.onnx", ("N", "W"), (1, "W")), given)


def test_the_command_line_names_its_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(tmp_path / "m.onnx", ("N", 3, "H", "W")))
    assert main(["run", path, "-t", "vta"]) == 2
    said = "input 'x0': has the open extent 'H' at axis 2; give numbers for them: --shape x0=1,3,H,W"
    assert said in capsys.readouterr().err
    assert main(["run", path, "-t", "vta", "--shape", "x0=1,3,4,4", "--verify"]) == 0
    capsys.readouterr()
    for wrong in ("x0", "=1,2", "x0=a"):
        assert main(["run", path, "-t", "vta", "--shape", wrong]) == 2
        assert "is not NAME=1,3,224,224" in capsys.readouterr().err
