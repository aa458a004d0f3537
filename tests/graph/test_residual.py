"""Residuals of linear nodes: added to the sums before they are rounded, checked with int64 sums, one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected, Linear, Window
from tilewright.graph.ops.linear import MAX_LIFT

SAME = Window((3, 3), (1, 1), (1, 1, 1, 1))


def tensor(name: str, shape: tuple[int, ...], exponent: int, zero: int = 0, dtype: str = "int8") -> Tensor:
    return Tensor(name, shape, dtype, Quant((2.0**exponent,), (zero,)))


def graph_of(op: Linear, lift: int, shift: int, seed: int = 0, zero: int = 0, bias: bool = True) -> Graph:
    """One node whose sums have the scale 2**-4."""
    rng = np.random.default_rng(seed)
    image = not isinstance(op, FullyConnected)
    x, out = ((1, 5, 4, 6),) * 2 if image else ((3, 10), (3, 6))
    shape = (6, 3, 3, 6) if isinstance(op, Conv2D) else (1, 3, 3, 6) if image else (6, 10)
    w = replace(tensor("w", shape, -6), data=rng.integers(-128, 128, shape).astype(np.int8))
    b = Tensor("b", (6,), "int32", None, rng.integers(-999, 999, 6).astype(np.int32))
    tensors = [tensor("x", x, 2, 3), w, b, tensor("r", out, lift - 4, zero), tensor("y", out, shift - 4)]
    node = Node("node", op, ("x", "w", "b" if bias else "", "r"), ("y",))
    return Graph("one", {each.name: each for each in tensors}, (node,), ("x", "r"), ("y",), "pow2").pruned()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "op", [Conv2D("relu", SAME), DepthwiseConv2D("none", SAME), FullyConnected()], ids=lambda op: op.kind
)
def test_a_residual_joins_the_sums(op: Linear, seed: int) -> None:
    print(f"seed {seed}")
    rng, (lift, shift) = np.random.default_rng(seed + 10), ((0, 8), (9, 9), (11, 12))[seed]
    graph = graph_of(op, lift, shift, seed, zero=5 * seed, bias=seed != 1).validate()
    site = next(graph.sites())
    given = {name: rng.integers(-128, 128, (2, *graph.tensors[name].shape)).astype(np.int8) for name in graph.inputs}
    (found,) = reference.run(graph, given).values()
    total = op.accumulate(site, given["x"], site.constant(1)).astype(np.int64)
    total += site.constant(2) if site.optional(2) else 0
    total += (given["r"].astype(np.int64) - 5 * seed) * 2**lift
    low = 0 if op.activation == "relu" else -128
    np.testing.assert_array_equal(found, np.clip((total + (1 << (shift - 1))) >> shift, low, 127))
    assert (found > low).mean() > 0.2 and (found < 127).mean() > 0.5


@pytest.mark.parametrize("lift", [-1, MAX_LIFT + 1])
def test_a_residual_needs_a_small_left_shift(lift: int) -> None:
    with pytest.raises(ModelError, match="residual would be shifted left"):
        graph_of(Conv2D(window=SAME), lift, 9).validate()


def test_other_residuals_are_refused() -> None:
    graph = graph_of(Conv2D(window=SAME), 3, 9)
    for changed, error, message in (
        (replace(graph.tensors["r"], quant=Quant((0.3,), (0,))), ModelError, "not a power of two"),
        (replace(graph.tensors["r"], shape=(1, 5, 4, 1)), ModelError, "its residual has the shape"),
        (replace(graph.tensors["r"], dtype="int32"), UnsupportedError, "not int8, uint8 or int16"),
        (replace(graph.tensors["r"], quant=None), UnsupportedError, "no quantisation parameters"),
    ):
        with pytest.raises(error, match=message):
            replace(graph, tensors={**graph.tensors, "r": changed}).validate()
