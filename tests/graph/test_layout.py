"""Transposes move down until they cancel; what a network computes does not change."""

from __future__ import annotations

import numpy as np

from tilewright.graph import ops, reference
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.layout import channels_last

NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
Q = Quant((0.05,), (3,))
SEED = 20261121


class Chain:
    """A graph written node by node; every tensor is int8 with one quantisation unless told otherwise."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.tensors = {"x": Tensor("x", shape, "int8", Q)}
        self.nodes: list[Node] = []

    def constant(self, name: str, data: np.ndarray, quant: Quant | None = Q) -> str:
        self.tensors[name] = Tensor(name, data.shape, data.dtype.name, quant, data)
        return name

    def add(self, name: str, op: ops.Op, *inputs: str, shape: tuple[int, ...], quant: Quant = Q) -> str:
        self.tensors[name] = Tensor(name, shape, "int8", quant)
        self.nodes.append(Node(name, op, inputs, (name,)))
        return name

    def graph(self, *outputs: str) -> Graph:
        return Graph("g", self.tensors, tuple(self.nodes), ("x",), outputs).validate()


def transposes(graph: Graph) -> int:
    return sum(isinstance(node.op, ops.Transpose) for node in graph.nodes)


def check(graph: Graph, left: int) -> Graph:
    """The pass leaves so many transposes and the same outputs."""
    after = channels_last(graph).validate()
    x = np.random.default_rng(SEED).integers(-128, 128, (4, *graph.tensors["x"].shape)).astype(np.int8)
    before, now = reference.run(graph, x, "ort"), reference.run(after, x, "ort")
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    for name in graph.outputs:
        np.testing.assert_array_equal(before[name], now[name], err_msg=f"seed {SEED}")
    assert transposes(after) == left, [node.op.kind for node in after.nodes]
    return after


def test_a_pair_cancels() -> None:
    net = Chain((1, 3, 4, 5))
    net.add("a", ops.Transpose(NHWC), "x", shape=(1, 4, 5, 3))
    net.add("b", ops.Transpose(NCHW), "a", shape=(1, 3, 4, 5))
    net.add("y", ops.Clamp(), "b", shape=(1, 3, 4, 5))
    assert len(check(net.graph("y"), 0).nodes) == 1


def test_a_transpose_moves_through_elementwise_operators_with_their_constants() -> None:
    net = Chain((1, 3, 4, 5))
    other = Quant((0.1,), (-4,))
    net.add("a", ops.Transpose(NHWC), "x", shape=(1, 4, 5, 3))
    channel = net.constant("c", np.arange(5, dtype=np.int8).reshape(5, 1))
    net.add("b", ops.Add(), "a", channel, shape=(1, 4, 5, 3))
    net.add("d", ops.Quantize(), "b", shape=(1, 4, 5, 3), quant=other)
    net.add("e", ops.Pad(((0, 0), (1, 2), (3, 0), (0, 4))), "d", shape=(1, 7, 8, 7), quant=other)
    net.add("f", ops.Concat(2), "e", "e", shape=(1, 7, 16, 7), quant=other)
    net.add("y", ops.Transpose(NCHW), "f", shape=(1, 7, 7, 16), quant=other)
    check(net.graph("y"), 0)


def test_a_value_that_is_an_output_keeps_its_name_and_order() -> None:
    net = Chain((1, 3, 4, 5))
    net.add("a", ops.Transpose(NHWC), "x", shape=(1, 4, 5, 3))
    net.add("y", ops.Clamp(), "a", shape=(1, 4, 5, 3))
    check(net.graph("a", "y"), 2)


def test_a_transpose_that_moves_nothing_is_a_reshape() -> None:
    net = Chain((1, 1, 4, 5))
    net.add("y", ops.Transpose(NHWC), "x", shape=(1, 4, 5, 1))
    assert [node.op.kind for node in check(net.graph("y"), 0).nodes] == ["reshape"]


def test_operands_of_two_orders_meet_in_the_model_s_own() -> None:
    net = Chain((1, 4, 4, 4))
    net.add("a", ops.Transpose(NHWC), "x", shape=(1, 4, 4, 4))
    net.add("b", ops.Transpose(NCHW), "x", shape=(1, 4, 4, 4))
    net.add("c", ops.Add(), "a", "b", shape=(1, 4, 4, 4))
    net.add("y", ops.Add(), "c", "x", shape=(1, 4, 4, 4))
    check(net.graph("y"), 2)


def test_flattening_goes_into_the_weights_of_products_alone() -> None:
    rng = np.random.default_rng(SEED)
    for shared in (False, True):
        net = Chain((1, 3, 4, 5))
        net.add("a", ops.Transpose(NHWC), "x", shape=(1, 4, 5, 3))
        net.add("b", ops.Reshape((1, 60)), "a", shape=(1, 60))
        w = net.constant("w", rng.integers(-128, 128, (7, 60)).astype(np.int8))
        net.add("y", ops.FullyConnected(), "b", w, shape=(1, 7))
        net.add(
            "z",
            ops.FullyConnected() if not shared else ops.Clamp(),
            "b",
            *([] if shared else [net.constant("v", rng.integers(-128, 128, (2, 60)).astype(np.int8))]),
            shape=(1, 60) if shared else (1, 2),
        )
        check(net.graph("y", "z"), int(shared))
