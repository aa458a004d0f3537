"""Networks whose scales are powers of two: stock VTA finishes them alone, by shifts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.vta.networks import Builder
from tests.targets.vta.promises import assert_portable
from tests.targets.vta.random_graphs import in_powers
from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.graph.ops import Add, Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D, Window
from tilewright.graph.rounding import shift_up
from tilewright.run import run
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import PRESETS

pytestmark = pytest.mark.usefixtures("brief_search")

SAME = Window((3, 3), (1, 1), (1, 1, 1, 1))


def network(rng: np.random.Generator, channels: int, shift: int) -> Graph:
    """A residual block, whose sum is halved, a pool and a product."""
    builder = Builder(rng)
    x = builder.given((1, 9, 8, channels))
    inner = builder.linear(Conv2D("relu", SAME), x, (channels, 3, 3, channels), 0)
    inner = builder.linear(DepthwiseConv2D("none", SAME), inner, (1, 3, 3, channels), 3)
    total = builder.layer(Add("relu"), x, inner)
    pooled = builder.layer(MaxPool2D(Window((2, 2), (2, 2))), total, quant=builder.tensors[total].quant)
    builder.linear(FullyConnected(), pooled, (10, 4 * 4 * channels), 0)
    return in_powers(builder.graph(), shift, {total, pooled})


@pytest.mark.parametrize("keys", [{}, {"alu": "rounding"}, {"stages": "4"}, {"alu": "fused"}], ids=str)
@pytest.mark.parametrize("channels", [5, 16, pytest.param(40, marks=pytest.mark.slow)])
def test_shifted_networks_equal_the_reference(keys: dict[str, str], channels: int) -> None:
    for seed, shift in ((1, 1), (2, 9), (3, 15), (4, 16), (5, 20)):
        rng = np.random.default_rng(seed)
        print(f"seed {seed}, shift {shift}")
        graph = network(rng, channels, shift)
        program = compile_graph(graph, PRESETS["pynq"].with_overrides(keys), "pow2")
        shape = graph.tensors[graph.inputs[0]].shape
        result = run(program, rng.integers(-128, 128, (2, *shape)).astype(np.int8))
        assert result.matches_reference
        assert not result.findings
        if not keys:
            assert {layer.op for layer in result.layers if layer.where == "host"} <= {"reshape"}
            for launch in program.launches:
                assert_portable(launch)


@pytest.mark.parametrize("batch", [1, 2])
def test_every_row_of_a_tile_has_the_bias_of_a_shift(batch: int) -> None:
    rng = np.random.default_rng(1)
    program = compile_graph(network(rng, 16, 9), PRESETS["pynq"].with_overrides({"LOG_BATCH": batch}), "pow2")
    result = run(program, rng.integers(-128, 128, (2, 1, 9, 8, 16)).astype(np.int8))
    assert result.matches_reference and not result.findings
    assert {layer.op for layer in result.layers if layer.where == "host"} <= {"reshape"}


def test_the_host_shifts_sums_of_16_bits() -> None:
    """A bias of 32 bits is not loaded into narrow accumulators."""
    builder = Builder(np.random.default_rng(1))
    made = builder.linear(Conv2D("none"), builder.given((1, 3, 3, 1)), (4, 1, 1, 1), 0)
    narrow = PRESETS["pynq"].with_overrides({"LOG_ACC_WIDTH": "4", "LOG_ACC_BUFF_SIZE": "16"})
    program = compile_graph(in_powers(builder.graph(), 3, {made}), narrow, "pow2")
    assert program.launches
    result = run(program, np.arange(9, dtype=np.int8).reshape(1, 1, 3, 3, 1))
    assert result.matches_reference and not result.findings


def test_shifts_round_ties_upwards() -> None:
    values: Array = np.array([-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5])
    assert shift_up(values, -1).tolist() == [-2, -2, -1, -1, 0, 0, 1, 1, 2, 2, 3]
    assert shift_up(values, -2).tolist() == [-1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1]
    assert shift_up(values, 3).tolist() == (values * 8).tolist()
    assert shift_up(values, 0).tolist() == values.tolist()
