"""The extended ALU's lanes against the integer rules that they are built from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hdl.packing import packed, unpacked
from tests.hdl.simulation import simulate
from tilewright.array import Array
from tilewright.graph.rounding import (
    INT32_MAX,
    INT32_MIN,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from tilewright.hdl.rescale import RESCALE_LATENCY, SCALE_LATENCY, FloatScale, Rescale, Rescaler
from tilewright.targets.vta.isa.alu import requantise, requantise_float

EXTREME = np.array([INT32_MIN, INT32_MIN + 1, -1, 0, 1, 2, INT32_MAX - 1, INT32_MAX, 1 << 30, -(1 << 30)])


def words(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """int32 values of all magnitudes, extreme ones among them."""
    plain = rng.integers(INT32_MIN, INT32_MAX, shape, endpoint=True) >> rng.integers(0, 32, shape)
    return np.where(rng.random(shape) < 0.3, rng.choice(EXTREME, shape), plain).astype(np.int32)


def multipliers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """float32 from too small to too large, subnormal and infinite ones among them, powers of two for ties; as int32."""
    values = rng.standard_normal(shape).astype(np.float32) * np.exp2(rng.integers(-40, 10, shape)).astype(np.float32)
    powers = np.exp2(rng.integers(-33, 3, shape)).astype(np.float32)
    odd = rng.choice(np.array([0.0, -0.0, 1e-45, 1e-39, 3e38, -3e38, 0.5, -0.5, 1.5], np.float32), shape)
    chosen: Array = np.choose(rng.integers(0, 4, shape), [values, values, powers, odd]).astype(np.float32)
    return chosen.view(np.int32)


@pytest.mark.parametrize("seed", range(3))
def test_an_integer_times_a_float_is_rounded_twice(seed: int) -> None:
    rng, block = np.random.default_rng(seed), FloatScale()
    value, factor = words(rng, (600,)), multipliers(rng, (600,))
    value[0], factor[:1] = 3, np.array([np.inf], np.float32).view(np.int32)
    zero = np.zeros_like(value)
    crossed = np.full_like(value, 1)  # smallest 1, largest 0: no bounds
    expected = requantise_float(value, zero, factor, zero, crossed).tolist()

    async def bench(ctx: Any) -> None:
        for cycle in range(len(value) + SCALE_LATENCY):
            if cycle < len(value):
                ctx.set(block.value, int(value[cycle]))
                ctx.set(block.factor, int(factor[cycle]) & 0xFFFFFFFF)
            if (done := cycle - SCALE_LATENCY) >= 0:
                operands = value[done], factor[done : done + 1].view(np.float32)
                assert ctx.get(block.result) == expected[done], f"seed {seed}: {operands}"
            await ctx.tick()

    simulate(block, bench)


def result_of(op: Rescale, first: Array, second: Array, factors: Array, is_float: bool) -> Array:
    wide, amount = first.astype(np.int64), np.abs(second) & 31
    if op == Rescale.MULH:
        return saturating_rounding_doubling_high_mul(wide, second.astype(np.int64))
    if op == Rescale.RSHR:
        return np.where(second < 0, first << amount, rounding_divide_by_pot(wide, amount))
    return (requantise_float if is_float else requantise)(first, second, *factors)


@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_operations_one_a_cycle_and_factors_that_change_between_them(seed: int, is_float: bool) -> None:
    """Three cycles of new factors, then operations at once, each with those that were there when it began."""
    rng, (rows, columns), count = np.random.default_rng(seed), (2, 2), 120
    block = Rescaler(rows, columns, is_float)
    expected: dict[int, Array] = {}

    async def bench(ctx: Any) -> None:
        factors = np.zeros((3, columns), np.int32)
        number = 0
        for cycle in range(count + RESCALE_LATENCY):
            if number == 3 and (rng.random() < 0.3 or cycle >= count):
                number = 0
            ctx.set(block.op, Rescale.NONE)
            if number < 3:  # the next of the factors, in the cycle behind this one
                kind = multipliers if is_float and number == 0 else words
                factors[number] = kind(rng, (columns,))
                if number == 2 and rng.random() < 0.7:
                    factors[2] = rng.integers(-200, 0, columns) & 0xFFFF | rng.integers(0, 200, columns) << 16
            elif cycle < count:
                first, second = words(rng, (rows, columns)), words(rng, (rows, columns))
                if rng.random() < 0.3:
                    second = rng.integers(-40, 40, second.shape).astype(np.int32)
                op = Rescale(int(rng.integers(1, 4)))
                ctx.set(block.first, packed(first, 32))
                ctx.set(block.second, packed(second, 32))
                ctx.set(block.op, op)
                expected[cycle + RESCALE_LATENCY] = result_of(op, first, second, factors, is_float)
            if (result := expected.get(cycle)) is not None:
                got = unpacked(ctx.get(block.result), 32, rows * columns)
                assert got.tolist() == result.reshape(-1).tolist(), f"seed {seed}, cycle {cycle}"
            await ctx.tick()
            if number < 3:
                name = ("multiplier", "scaling", "bounds")[number]
                ctx.set(getattr(block, name), packed(factors[number], 32))
                number += 1

    simulate(block, bench)
    assert len(expected) > count // 3
