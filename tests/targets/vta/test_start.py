"""How the accumulators of a group start: biases and constants below all that an earlier group leaves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.vta.networks import Builder
from tests.targets.vta.random_graphs import in_powers
from tilewright.graph.ops import Conv2D, MaxPool2D, Window
from tilewright.run import run
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.compiler.epilogue import FLOOR
from tilewright.targets.vta.compiler.explain import counts
from tilewright.targets.vta.compiler.joint import _moved
from tilewright.targets.vta.compiler.layer import Immediates, Requantisation
from tilewright.targets.vta.config import PRESETS

SAME = Window((3, 3), (1, 1), (1, 1, 1, 1))
MACHINES: tuple[dict[str, str], ...] = ({}, {"stages": "4"}, {"alu": "fused", "stages": "4"})


@pytest.mark.parametrize("low", [-128, 0])
def test_a_moved_bias_leaves_the_low_byte_as_it_is(low: int) -> None:
    """Whatever the accumulator held, and for the codes of one reuse after another."""
    rng = np.random.default_rng(low + 128)
    moves = 0
    for shift in range(25):
        for largest in (100, 30_000, 10**6):
            biases = rng.integers(-largest, largest + 1, (1, 1, 1, 16))
            made = _moved(biases, Requantisation((0,), (0,), Immediates(0, low, 127, False, shift), 0))
            if made is None:
                continue
            moves += 1
            moved, immediates = made[0], made[1].immediates
            assert immediates and FLOOR <= immediates.low < immediates.high <= -FLOOR - 1
            held = rng.integers(FLOOR, -FLOOR, (1, 1, 1, 16))
            for _ in range(3):
                sums = rng.integers(-(1 << shift + 8), 1 << shift + 8, held.shape)
                acc = np.minimum(held, moved) + sums
                held = np.clip(acc >> shift, immediates.low, immediates.high)
                expected = np.clip((sums + biases) >> shift, low, 127)
                assert np.array_equal(held.astype(np.int8), expected), (shift, largest)
    assert moves > 40


@pytest.mark.parametrize("keys", MACHINES, ids=str)
def test_only_the_first_groups_are_cleared(keys: dict[str, str]) -> None:
    rng = np.random.default_rng(7)
    builder = Builder(rng)
    x = builder.given((1, 40, 40, 16))
    for _ in range(3):
        x = builder.linear(Conv2D("relu", SAME), x, (32, 3, 3, builder.tensors[x].shape[3]), 0)
    config = PRESETS["pynq"].with_overrides(keys | {"LOG_ACC_BUFF_SIZE": "16"})
    program = compile_graph(in_powers(builder.graph(), 9, set()), config, "pow2")
    (launch,) = program.launches
    assert counts(launch, config)["reset_uops"] <= 2 * config.acc.depth  # not the 9600 output tiles
    data = rng.integers(-128, 128, (1, 1, 40, 40, 16)).astype(np.int8)
    result = run(program, data)
    assert result.matches_reference and not result.findings


@pytest.mark.parametrize("keys", [machine for machine in MACHINES if machine], ids=str)
def test_with_four_stages_gemm_does_nothing_but_products(keys: dict[str, str]) -> None:
    """And a pool's sums, too, start on the ALU."""
    rng = np.random.default_rng(8)
    builder = Builder(rng)
    x = builder.given((1, 48, 48, 32))
    y = builder.linear(Conv2D("relu", SAME), x, (32, 3, 3, 32), 0)
    z = builder.layer(MaxPool2D(Window((3, 3), (2, 2), (1, 1, 1, 1))), y, quant=builder.tensors[y].quant)
    config = PRESETS["pynq"].with_overrides(keys)
    program = compile_graph(in_powers(builder.graph(), 9, {y, z}), config, "pow2")
    (launch,) = program.launches
    found = counts(launch, config)
    assert found["reset_uops"] <= config.acc.depth
    data = rng.integers(-128, 128, (1, 1, 48, 48, 32)).astype(np.int8)
    result = run(program, data)
    assert result.matches_reference and not result.findings
    assert result.cycles < 1.06 * found["gemm_uops"]
