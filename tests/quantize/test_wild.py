"""Features of public models that quantisation meets: If, infinity, scalars, empty operands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

from tilewright.quantize import Options, quantize  # noqa: E402
from tilewright.quantize.report import Report  # noqa: E402

FLOAT = onnx.TensorProto.FLOAT
SCHEMES = pytest.mark.parametrize("scheme", ["affine", "symmetric", "tflm", "pow2"])


def made(
    folder: Path,
    scheme: str,
    nodes: list[Any],
    constants: dict[str, Any],
    shape: tuple[int, ...],
    more: Mapping[str, tuple[int, tuple[int, ...], Any]] | None = None,
) -> Report:
    """Quantise a network of `x` and of further inputs (type, shape, value) to `y`, on 4 random samples."""
    inputs = [helper.make_tensor_value_info("x", FLOAT, shape)]
    inputs += [helper.make_tensor_value_info(name, kind, extents) for name, (kind, extents, _) in (more or {}).items()]
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "wild", inputs, [helper.make_tensor_value_info("y", FLOAT, None)], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), folder / "m.onnx")
    values = {"x": np.random.default_rng(1).standard_normal((4, *shape)).astype(np.float32)}
    values |= {name: np.broadcast_to(value, (4, *extents)) for name, (_, extents, value) in (more or {}).items()}
    np.savez(folder / "x.npz", **values)  # type: ignore[arg-type]
    return quantize(folder / "m.onnx", folder / "x.npz", folder / "q.onnx", Options(scheme))


def weights(*shape: int) -> Any:
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def equal(report: Report) -> bool:
    """Whether the written file was read, and its outputs equal onnxruntime's."""
    return report.verification is not None and report.verification.passed is True


@SCHEMES
def test_a_mask_of_infinity_stays_in_float32(tmp_path: Path, scheme: str) -> None:
    mask = np.where(np.tri(4, dtype=bool), 0, -np.inf).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Mul", ["a", "half"], ["h"], name="scaled"),
        helper.make_node("Add", ["h", "mask"], ["b"], name="masked"),
        helper.make_node("Softmax", ["b"], ["c"], name="softmax"),
        helper.make_node("MatMul", ["c", "v"], ["y"], name="last"),
    ]
    report = made(
        tmp_path, scheme, nodes, {"w": weights(6, 4), "v": weights(4, 3), "mask": mask, "half": np.float32(0.5)}, (4, 6)
    )
    assert equal(report)
    assert report.fidelity.outputs[0].snr_db > 20
    assert "masked" in {node.name for node in report.left}
    if scheme == "pow2":
        assert any("holds infinity or NaN" in node.reason for node in report.left)


@SCHEMES
def test_clips_with_infinity_and_scalar_results(tmp_path: Path, scheme: str) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], name="gemm"),
        helper.make_node("Clip", ["a", "low", "high"], ["b"], name="clip"),
        helper.make_node("ReduceMean", ["b"], ["c"], name="mean", axes=[0, 1], keepdims=0),
        helper.make_node("Add", ["c", "one"], ["y"], name="add"),
    ]
    bounds = {"low": np.float32(0), "high": np.float32(np.inf), "one": np.float32(0.5)}
    report = made(tmp_path, scheme, nodes, {"w": weights(6, 4), **bounds}, (2, 6))
    assert equal(report)
    assert report.fidelity.outputs[0].snr_db > 20


@SCHEMES
def test_an_if_becomes_its_branches(tmp_path: Path, scheme: str) -> None:
    """Of a scalar input that chooses between two products."""

    def branch(name: str, data: Any) -> Any:
        held = [numpy_helper.from_array(data, "v")]
        node = helper.make_node("MatMul", ["a", "v"], ["o"])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info("o", FLOAT, None)], held)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Equal", ["rate", "eight"], ["slow"]),
        helper.make_node(
            "If", ["slow"], ["b"], then_branch=branch("yes", weights(4, 3)), else_branch=branch("no", -weights(4, 3))
        ),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    rate = {"rate": (onnx.TensorProto.INT64, (), np.int64(16))}
    report = made(tmp_path, scheme, nodes, {"w": weights(6, 4), "eight": np.int64(8)}, (2, 6), rate)
    assert equal(report)
    assert report.fidelity.outputs[0].snr_db > 15
    assert not [node for node in onnx.load(tmp_path / "q.onnx").graph.node if node.op_type == "If"]


@SCHEMES
def test_a_concat_with_an_empty_operand_is_read(tmp_path: Path, scheme: str) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Slice", ["a", "at", "at", "axis"], ["none"], name="empty"),
        helper.make_node("Concat", ["none", "a"], ["b"], name="join", axis=1),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="last"),
    ]
    constants = {"w": weights(6, 4), "v": weights(4, 3), "at": np.array([2]), "axis": np.array([1])}
    report = made(tmp_path, scheme, nodes, constants, (2, 6))
    assert equal(report), report.verification
