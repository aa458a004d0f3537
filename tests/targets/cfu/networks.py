"""A small network for tests of firmware."""

from __future__ import annotations

import numpy as np

from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.ops import Add, AveragePool2D, Conv2D, DepthwiseConv2D, MaxPool2D, Op, Window


def network(seed: int) -> Graph:
    """What the document's kernels take and what they do not: windows, strides, channels, zero points, ranges."""
    rng = np.random.default_rng(seed)
    tensors = {"x": Tensor("x", (1, 8, 8, 16), "int8", Quant((0.05,), (-128,)))}
    nodes: list[Node] = []

    def add(name: str, op: Op, inputs: tuple[str, ...], shape: tuple[int, ...], zero: int, *weights: int) -> None:
        operands = list(inputs)
        if weights:
            channels = shape[-1]
            scales = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, channels))
            axis = 3 if isinstance(op, DepthwiseConv2D) else 0
            data = rng.integers(-127, 128, weights).astype(np.int8)
            bias = rng.integers(-3000, 3000, channels).astype(np.int32)
            tensors[f"{name}/w"] = Tensor(f"{name}/w", weights, "int8", Quant(scales, (0,) * channels, axis), data)
            tensors[f"{name}/b"] = Tensor(f"{name}/b", bias.shape, "int32", None, bias)
            operands += [f"{name}/w", f"{name}/b"]
        source = tensors[operands[0]].quant
        quant = source if "pool" in name else Quant((float(np.float32(rng.uniform(0.3, 0.9))),), (zero,))
        tensors[name] = Tensor(name, shape, "int8", quant)
        nodes.append(Node(f"node {name}", op, tuple(operands), (name,)))

    same = Window.same
    add("same", Conv2D("relu", same((8, 8), (3, 3), (1, 1), (1, 1))), ("x",), (1, 8, 8, 16), -128, 16, 3, 3, 16)
    add("half", Conv2D("relu", same((8, 8), (3, 3), (2, 2), (1, 1))), ("same",), (1, 4, 4, 48), -128, 48, 3, 3, 16)
    add("short", Conv2D("none", Window(stride=(2, 2))), ("same",), (1, 4, 4, 48), 11, 48, 1, 1, 16)
    add("sum", Add("relu"), ("half", "short"), (1, 4, 4, 48), -128)
    add("other", Add("none"), ("short", "sum"), (1, 4, 4, 48), -9)
    add("point", Conv2D("relu6", Window()), ("other",), (1, 4, 4, 10), -100, 10, 1, 1, 48)
    add("again", Conv2D("none", Window()), ("point",), (1, 4, 4, 10), 3, 10, 1, 1, 10)
    add(
        "dilated",
        Conv2D("none", Window((3, 2), (1, 2), (2, 2, 1, 0), (2, 1))),
        ("again",),
        (1, 4, 2, 5),
        3,
        5,
        3,
        2,
        10,
    )
    add(
        "deep",
        DepthwiseConv2D("none", same((4, 2), (3, 3), (1, 1), (1, 1))),
        ("dilated",),
        (1, 4, 2, 10),
        0,
        1,
        3,
        3,
        10,
    )
    add("grouped", Conv2D("none", Window()), ("deep",), (1, 4, 2, 6), 5, 6, 1, 1, 5)
    add("last", Conv2D("none", same((4, 2), (3, 3), (1, 1), (1, 1))), ("grouped",), (1, 4, 2, 6), 5, 6, 3, 3, 6)
    add("pool mean", AveragePool2D(same((4, 2), (3, 2), (2, 1), (1, 1))), ("last",), (1, 2, 2, 6), 5)
    add("pool most", MaxPool2D(Window((2, 2))), ("pool mean",), (1, 1, 1, 6), 5)
    return Graph("mixed", tensors, tuple(nodes), ("x",), ("pool most", "other")).validate()
