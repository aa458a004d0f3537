"""Maximum pools on the sums of the convolution before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.vta.networks import Builder
from tests.targets.vta.promises import assert_portable
from tests.targets.vta.random_graphs import in_powers
from tilewright.graph.ir import Graph, Quant
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, MaxPool2D, Window
from tilewright.program.program import Program
from tilewright.run import run
from tilewright.targets.vta.compiler import chain
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.compiler.layer import result_phase
from tilewright.targets.vta.config import PRESETS

MACHINES: tuple[dict[str, str], ...] = ({}, {"stages": "4"}, {"alu": "fused"}, {"alu": "fused", "stages": "4"})
#: Pools whose windows share nothing, and those that share one row, or a row and a column, at every border.
POOLS = (
    Window((2, 2), (2, 2)),
    Window((3, 3), (2, 2), (1, 1, 1, 1)),
    Window((3, 3), (2, 2), (0, 1, 0, 1)),
    Window((3, 2), (2, 2), (1, 0, 0, 0)),
    Window((2, 3), (2, 2), (0, 0, 1, 1)),
    Window((3, 3), (3, 2)),
)


def network(rng: np.random.Generator, pool: Window) -> Graph:
    """A convolution, a pool of its codes, and a convolution that reads what the pool leaves in DRAM."""
    builder = Builder(rng)
    channels, outputs = int(rng.choice([3, 16, 20])), int(rng.choice([16, 17, 40]))
    size = (int(rng.integers(8, 20)), int(rng.integers(8, 20)))
    x = builder.given((1, *size, channels))
    window = Window((3, 3), (1, 1), (1, 1, 1, 1)) if rng.random() < 0.7 else Window((1, 1), (1, 1))
    if rng.random() < 0.2:
        y = builder.linear(DepthwiseConv2D("none", window), x, (1, *window.kernel, channels), 3)
    else:
        y = builder.linear(
            Conv2D("relu" if rng.random() < 0.5 else "none", window), x, (outputs, *window.kernel, channels), 0
        )
    z = builder.layer(MaxPool2D(pool), y, quant=builder.tensors[y].quant)
    builder.linear(Conv2D(), z, (16, 1, 1, builder.tensors[z].shape[3]), 0)
    return in_powers(builder.graph(), int(rng.integers(1, 18)), {y, z})


def joined(program: Program) -> int:
    """How many nodes have no instructions of their own."""
    return sum("computed with" in layer["plan"] for launch in program.launches for layer in launch.meta["layers"])


@pytest.mark.usefixtures("brief_search")
@pytest.mark.parametrize("keys", MACHINES, ids=str)
@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: f"{pool.kernel}/{pool.stride}{pool.padding}")
def test_pooled_sums_equal_the_reference(pool: Window, keys: dict[str, str]) -> None:
    count = 0
    for seed in range(4):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        graph = network(rng, pool)
        small = {"LOG_ACC_BUFF_SIZE": "14", "LOG_INP_BUFF_SIZE": "13"} if seed % 2 else {}  # groups of few rows
        program = compile_graph(graph, PRESETS["pynq"].with_overrides(keys | small), "pow2")
        count += joined(program)
        shape = graph.tensors[graph.inputs[0]].shape
        result = run(program, rng.integers(-128, 128, (2, *shape)).astype(np.int8))
        assert result.matches_reference
        assert not result.findings
        assert all(layer.where == "vta" for layer in result.layers)
        if not keys and not small:
            for launch in program.launches:
                assert_portable(launch)
    assert count >= 3


def test_a_pool_on_sums_takes_fewer_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    builder = Builder(rng)
    x = builder.given((1, 32, 32, 16))
    y = builder.linear(Conv2D("relu", Window((3, 3), (1, 1), (1, 1, 1, 1))), x, (32, 3, 3, 16), 0)
    z = builder.layer(MaxPool2D(Window((3, 3), (2, 2), (1, 1, 1, 1))), y, quant=builder.tensors[y].quant)
    graph = in_powers(builder.graph(), 9, {y, z})
    data = rng.integers(-128, 128, (1, 1, 32, 32, 16)).astype(np.int8)
    found = run(compile_graph(graph, PRESETS["pynq"], "pow2"), data)
    assert found.matches_reference
    assert [layer.cycles == 0 for layer in found.layers] == [False, True]  # the pool has no instructions
    assert sum(layer.macs for layer in found.layers if layer.where == "vta") == 32 * 32 * 32 * 9 * 16
    monkeypatch.setattr(chain, "fused_nodes", lambda *_: {})
    apart = run(compile_graph(graph, PRESETS["pynq"], "pow2"), data)
    assert apart.matches_reference
    # Per pooled tile: bias, shift and clip of 3 more tiles (5 cycles), 5 more comparisons (2), and 4 copies and clears.
    saved = 16 * 16 * 2 * (3 * 5 + 5 * 2 + 2 * 4)
    assert apart.cycles - found.cycles > saved * 3 // 4


def test_a_bias_that_differs_within_a_window_keeps_the_pool_apart() -> None:
    """With a zero point, sums at the border need another bias than those inside."""
    for zero in (0, 7):
        rng = np.random.default_rng(5)
        builder = Builder(rng)
        x = builder.given((1, 12, 12, 16))
        builder.tensors[x] = replace(builder.tensors[x], quant=Quant((0.05,), (zero,)))
        y = builder.linear(Conv2D("relu", Window((3, 3), (1, 1), (1, 1, 1, 1))), x, (16, 3, 3, 16), 0)
        builder.layer(MaxPool2D(Window((2, 2), (2, 2))), y, quant=builder.tensors[y].quant)
        program = compile_graph(builder.graph(), PRESETS["pynq"].with_overrides({"alu": "fused"}), "tflm")
        assert joined(program) == (zero == 0)
        data = rng.integers(-128, 128, (1, 1, 12, 12, 16)).astype(np.int8)
        assert run(program, data).matches_reference


@pytest.mark.parametrize("kernel", range(1, 5))
@pytest.mark.parametrize("stride", range(1, 4))
def test_results_are_left_in_sums_that_one_output_alone_reads(kernel: int, stride: int) -> None:
    """Against a count of the readers of every sum."""
    for before in range(kernel):
        for after in range(kernel):
            for grid in range(kernel, 12):
                out = (grid + before + after - kernel) // stride + 1
                window = Window((kernel, 1), (stride, 1), (before, after, 0, 0))
                tap = result_phase(window, 0, grid, out)
                if tap is None:
                    continue
                reads = [
                    row * stride + k - before
                    for row in range(out)
                    for k in range(kernel)
                    if 0 <= row * stride + k - before < grid
                ]
                for row in range(out):
                    assert 0 <= row * stride + tap - before < grid
                    assert reads.count(row * stride + tap - before) == 1
