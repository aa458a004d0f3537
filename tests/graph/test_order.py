"""Nodes that compute real numbers come as late as what reads them allows."""

from __future__ import annotations

import numpy as np

from tilewright.graph import reference
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.ops import Dequantize, Mul, Op, Quantize, Reshape
from tilewright.model.onnx import codes_first

QUANT = Quant((0.25,), (3,))


def graph(*nodes: tuple[str, Op, str]) -> Graph:
    """Nodes (result, op, inputs) from the codes `x`; results that begin with r are real."""
    made = [Node(f"n_{out}", op, tuple(inputs.split()), (out,)) for out, op, inputs in nodes]
    tensors = {
        name: Tensor(name, (4,), "float32" if name.startswith("r") else "int8", None if name.startswith("r") else QUANT)
        for name in ("x", *(out for out, _, _ in nodes))
    }
    read = {name for node in made for name in node.inputs}
    outputs = tuple(name for name in tensors if name not in read)
    return Graph("g", tensors, tuple(made), ("x",), outputs, "ort").validate()


def names(given: Graph) -> list[str]:
    return [node.outputs[0] for node in given.nodes]


def test_what_only_the_outputs_need_comes_last() -> None:
    made = graph(
        ("a", Mul(), "x x"),
        ("r1", Dequantize(), "a"),
        ("r2", Reshape((4,)), "r1"),
        ("b", Mul(), "a x"),
        ("r3", Dequantize(), "b"),
        ("c", Mul(), "b a"),
    )
    assert names(codes_first(made).validate()) == ["a", "b", "c", "r1", "r2", "r3"]


def test_what_codes_are_made_of_comes_before_them_and_no_more() -> None:
    made = graph(
        ("r1", Dequantize(), "x"),
        ("r2", Dequantize(), "x"),
        ("r3", Reshape((4,)), "r2"),
        ("a", Mul(), "x x"),
        ("b", Quantize(), "r3"),
        ("c", Mul(), "b a"),
    )
    after = codes_first(made).validate()
    assert names(after) == ["a", "r2", "r3", "b", "c", "r1"]
    x = np.random.default_rng(0).integers(-128, 128, (3, 4)).astype(np.int8)
    before, now = (reference.run(each, x) for each in (made, after))
    assert before.keys() == now.keys()
    assert all(np.array_equal(before[name], now[name]) for name in before)
