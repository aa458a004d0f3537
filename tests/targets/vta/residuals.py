"""Networks whose layers have residuals in their sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.targets.vta.cases import Case
from tests.targets.vta.networks import Builder
from tilewright.array import Array
from tilewright.graph.ir import Graph, Quant, Tensor
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected, Linear, MaxPool2D, Window

SAME = Window((3, 3), (1, 1), (1, 1, 1, 1))
#: (left shift of the residual, right shift of the sums) of each layer in `network`, by seed.
SHIFTS = (
    ((0, 9), (3, 10), (6, 11), (6, 6), (7, 10), (8, 8)),  # weights of up to 64
    ((9, 9), (12, 10), (14, 8), (10, 11), (8, 15), (21, 15)),  # after the shift, or shifted left before it
    ((7, 16), (9, 17), (15, 15), (11, 9), (10, 10), (18, 13)),
)


def add(
    builder: Builder, op: Linear, x: str, shape: tuple[int, ...], axis: int, residual: str, shifts: tuple[int, int]
) -> str:
    """One linear layer with a residual. The residual's scale is 1, whatever that of x is."""
    rng, (lift, shift) = builder.rng, shifts
    builder.tensors[residual] = replace(builder.tensors[residual], quant=Quant((1.0,), (0,)))
    unit = 2.0**-lift
    weights = Tensor("w", shape, "int8", Quant((unit / builder.tensors[x].scale,), (0,)), _codes(rng, shape))
    bias = Tensor("b", (shape[axis],), "int32", None, rng.integers(-4000, 4000, shape[axis]).astype(np.int32))
    name = builder.layer(op, x, constants=(weights, bias), quant=Quant((unit * 2.0**shift,), (0,)))
    builder.nodes[-1] = replace(builder.nodes[-1], inputs=(*builder.nodes[-1].inputs, residual))
    return name


def _codes(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(-128, 128, shape).astype(np.int8)


def network(rng: np.random.Generator, channels: int, shifts: tuple[tuple[int, int], ...]) -> Graph:
    """Layers of all kinds, each with a residual: from outside, or from an earlier layer of the chain."""
    builder = Builder(rng)
    x, y = builder.given((1, 9, 8, channels)), builder.given((1, 9, 8, channels))
    for name in (x, y):
        builder.tensors[name] = replace(builder.tensors[name], quant=Quant((1.0,), (0,)))
    square = (channels, 3, 3, channels)
    a = add(builder, Conv2D("relu", SAME), x, square, 0, y, shifts[0])
    b = add(builder, Conv2D("none", SAME), a, square, 0, x, shifts[1])
    c = add(builder, DepthwiseConv2D("relu", SAME), b, (1, 3, 3, channels), 3, x, shifts[2])
    d = add(builder, Conv2D("relu"), c, (channels, 1, 1, channels), 0, y, shifts[3])
    pooled = builder.layer(MaxPool2D(Window((2, 2), (2, 2))), d, quant=builder.tensors[d].quant)
    add(builder, FullyConnected("relu"), pooled, (20, 4 * 4 * channels), 0, builder.given((1, 20)), shifts[4])
    add(
        builder,
        Conv2D("none", Window((3, 3), (2, 2))),
        d,
        (7, 3, 3, channels),
        0,
        builder.given((1, 4, 3, 7)),
        shifts[5],
    )
    used = {name for node in builder.nodes for name in node.inputs}
    outputs = tuple(node.outputs[0] for node in builder.nodes if node.outputs[0] not in used)
    return Graph("residuals", builder.tensors, tuple(builder.nodes), tuple(builder.inputs), outputs, "pow2").validate()


def case_of(seed: int, channels: int) -> Case:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    graph = network(rng, channels, SHIFTS[seed])
    inputs = {name: _codes(rng, (2, *graph.tensors[name].shape)) for name in graph.inputs}
    return Case(graph, "pow2", inputs)
