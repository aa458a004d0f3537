"""pow2 files in which an addition reads unrounded sums: which become one node, and that all give the same codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import helper, numpy_helper

import tilewright as tw
from tilewright.graph.ops import Linear
from tilewright.model import load, verify

#: The exponents of x, weights, the residual's codes and the result.
USUAL = (-4, -6, -3, -2)


def file(
    path: Path, kind: str, first: bool = True, exponents: tuple[int, ...] = USUAL, shape: Any = None, relu: bool = True
) -> Path:
    """A Conv or Gemm of x plus codes of `r`; `first`: the product is the addition's first operand."""
    rng = np.random.default_rng(0)
    x, w, y = {"Conv": ([1, 4, 5, 5], [6, 4, 3, 3], [1, 6, 5, 5]), "Gemm": ([2, 9], [9, 6], [2, 6])}[kind]
    constants: dict[str, Any] = {
        "w": rng.integers(-128, 128, w).astype(np.int8),
        "b": rng.integers(-999, 999, 6).astype(np.int32),
        "zero": np.array(0, np.int8),
        "zero32": np.array(0, np.int32),
    }
    constants |= {
        f"s{at}": np.array(2.0**e, np.float32) for at, e in enumerate((*exponents, exponents[0] + exponents[1]))
    }
    node = helper.make_node

    def pair(name: str, scale: str) -> list[Any]:
        quantise = node("QuantizeLinear", [name, scale, "zero"], [f"{name}_q"])
        return [quantise, node("DequantizeLinear", [f"{name}_q", scale, "zero"], [f"{name}_d"])]

    product = ["c", "r_d"] if first else ["r_d", "c"]
    end = "sum" if relu else "y"
    nodes = [
        *pair("x", "s0"),
        *pair("r", "s2"),
        node("DequantizeLinear", ["w", "s1", "zero"], ["w_d"]),
        node("DequantizeLinear", ["b", "s4", "zero32"], ["b_d"]),
        node(kind, ["x_d", "w_d", "b_d"], ["c"], name="product", pads=[1] * 4 if kind == "Conv" else None),
        node("Add", product, [end], name="add"),
        *([node("Relu", ["sum"], ["y"])] if relu else []),
        *pair("y", "s3"),
    ]
    value = helper.make_tensor_value_info
    inputs = [value("x", 1, x), value("r", 1, shape or y)]
    made = [numpy_helper.from_array(data, name) for name, data in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, [value("y_d", 1, y)], made),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    helper.set_model_props(model, {"tilewright.rounding": "pow2"})
    onnx.save(model, path)
    return path


def fused(path: Path) -> bool:
    """Whether the product has the addition in it; and the import must equal onnxruntime, and all targets the import."""
    graph = load(path)
    rng = np.random.default_rng(1)
    given = {name: rng.normal(0, 4, (2, *graph.tensors[name].shape)).astype(np.float32) for name in graph.inputs}
    verification = verify(path, graph, given)
    assert verification.passed, str(verification)
    for target in ("vta", "bm1684x", "zynq", "cfu"):
        result = tw.compile(path, target).run(given)
        assert result.matches_reference and not result.findings, target
    linear = [site for site in graph.sites() if isinstance(site.node.op, Linear)]
    return any(site.node.op.residual(site) for site in linear if isinstance(site.node.op, Linear))


@pytest.mark.parametrize("kind", ["Conv", "Gemm"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_an_addition_to_sums_is_part_of_the_product(tmp_path: Path, kind: str, first: bool, relu: bool) -> None:
    assert fused(file(tmp_path / "m.onnx", kind, first, relu=relu))


@pytest.mark.parametrize("kind", ["Conv", "Gemm"])
def test_a_residual_finer_than_the_sums_stays_apart(tmp_path: Path, kind: str) -> None:
    assert not fused(file(tmp_path / "m.onnx", kind, exponents=(-4, -6, -11, -2)))
    assert fused(file(tmp_path / "m.onnx", kind, exponents=(-4, -6, -10, -2)))


def test_a_residual_that_broadcasts_stays_apart(tmp_path: Path) -> None:
    assert not fused(file(tmp_path / "m.onnx", "Conv", shape=[1, 6, 1, 1]))


def test_without_the_mark_of_pow2_sums_are_real(tmp_path: Path) -> None:
    path = file(tmp_path / "m.onnx", "Conv")
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)
    assert not fused(path)


def test_codes_are_those_of_integer_arithmetic(tmp_path: Path) -> None:
    """Against int64 sums, one by one."""
    path = file(tmp_path / "m.onnx", "Conv")
    graph, rng = load(path), np.random.default_rng(2)
    codes = {name: rng.integers(-128, 128, graph.tensors[name].shape) for name in ("x", "r")}
    given = {
        name: np.ldexp(values, USUAL[at]).astype(np.float32)[None]
        for at, (name, values) in zip((0, 2), codes.items(), strict=True)
    }
    weights = {
        tensor.name: numpy_helper.to_array(tensor).astype(np.int64) for tensor in onnx.load(path).graph.initializer
    }
    x = np.pad(codes["x"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = np.array(
        [
            [[(x[0, :, i : i + 3, j : j + 3] * w).sum() + b for j in range(5)] for i in range(5)]
            for w, b in zip(weights["w"], weights["b"], strict=True)
        ]
    )
    total = total + (codes["r"][0] << 7)  # 2**-3 over 2**-10
    expected = np.clip((total + 128) >> 8, 0, 127)  # 2**-2 over 2**-10
    (found,) = tw.compile(path, "vta").run(given).outputs.values()
    np.testing.assert_array_equal(found[0, 0] / 2.0**-2, expected)
    assert len(np.unique(expected)) > 30
