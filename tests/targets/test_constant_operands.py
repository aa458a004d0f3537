"""Operators with a constant operand, on every target with one to three samples: a constant is there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.array import Array
from tilewright.model import load
from tilewright.quantize import Options, quantize
from tilewright.run import run
from tilewright.targets import names

onnx = pytest.importorskip("onnx")
SHAPE = (1, 5, 4, 6)
CHANNEL, LAST = (1, 5, 1, 1), (1, 1, 1, 6)
#: The operator, the shape of the constant, and the operands: x, the constant c, its transposition t by a node.
Case = tuple[str, tuple[int, ...], str]
CASES: tuple[Case, ...] = (
    ("Concat", SHAPE, "xc"),
    ("Concat", SHAPE, "cxt"),
    ("Add", SHAPE, "cx"),
    ("Mul", SHAPE, "xc"),
)
BINARY = "Add", "Sub", "Mul", "Min", "Max"
MORE: tuple[Case, ...] = (
    *(("Concat", SHAPE, order) for order in ("cx", "xcx", "tx", "xct")),
    *((op, shape, order) for op in BINARY for shape in (SHAPE, CHANNEL, LAST) for order in ("xc", "cx", "xt")),
    *(("MatMul", (size, size), order) for size, order in ((6, "xc"), (4, "cx"))),
    ("Div", SHAPE, "xc"),
    ("Pow", (1,), "xc"),
    ("PRelu", (5, 1, 1), "xc"),
)


def model(case: Case, path: Path, rng: np.random.Generator) -> None:
    """Write an ONNX model: a convolution, then the operator on its result."""
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    op, shape, order = case
    constant = np.full(1, 2.0) if op == "Pow" else np.abs(rng.normal(size=shape)) + 0.5
    given: dict[str, Array] = {"c": constant.astype(np.float32), "k": rng.normal(size=(5, 5, 1, 1)).astype(np.float32)}
    names = {"x": "product", "c": "c", "t": "turned"}
    nodes = [helper.make_node("Conv", ["image", "k"], ["product"])]
    if "t" in order:
        nodes.append(helper.make_node("Abs", ["c"], ["turned"]))
    attributes: dict[str, Any] = {"axis": 1} if op == "Concat" else {}
    nodes.append(helper.make_node(op, [names[name] for name in order], ["y"], **attributes))
    out = [1, 5 * len(order), 4, 6] if op == "Concat" else list(SHAPE)
    made = helper.make_graph(
        nodes,
        "constants",
        [helper.make_tensor_value_info("image", number, list(SHAPE))],
        [helper.make_tensor_value_info("y", number, out)],
        [onnx.numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("scheme", ["symmetric", pytest.param("affine", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=str)
def test_any_number_of_samples(case: Case, scheme: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    model(case, tmp_path / "float.onnx", rng)
    images = rng.normal(size=(3, *SHAPE)).astype(np.float32)
    np.save(tmp_path / "images.npy", images[:, 0])
    quantize(
        tmp_path / "float.onnx", tmp_path / "images.npy", tmp_path / "q.onnx", Options(scheme=scheme), verify=False
    )
    graph = load(tmp_path / "q.onnx")
    for target in names():
        program = tilewright.compile(graph, target)
        for count in (1, 2, 3):
            result = run(program, images[:count, 0].reshape(-1, *graph.tensors["image"].shape), timing=None)
            assert result.matches_reference, (target, count)
            assert all(len(output) == count for output in result.outputs.values())
