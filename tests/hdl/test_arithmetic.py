"""The MAC array and the ALU lanes against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hdl.packing import packed, unpacked
from tests.hdl.simulation import simulate
from tilewright.errors import ConfigError
from tilewright.hdl.mac import MAC_LATENCY, MacArray, Operation, TensorAlu
from tilewright.hdl.multipliers import MULTIPLIERS


@pytest.mark.parametrize("multipliers", MULTIPLIERS)
@pytest.mark.parametrize(("batch", "block", "inp", "wgt"), [(1, 4, 8, 8), (2, 2, 4, 8), (1, 1, 2, 2), (1, 8, 16, 1)])
def test_sums_come_two_cycles_after_their_operands_one_a_cycle(
    batch: int, block: int, inp: int, wgt: int, multipliers: str
) -> None:
    mac, rng = MacArray(batch, block, inp, wgt, multipliers), np.random.default_rng(block)
    lefts = rng.integers(-(1 << (inp - 1)), 1 << (inp - 1), (20, batch, block))
    rights = rng.integers(-(1 << (wgt - 1)), 1 << (wgt - 1), (20, block, block))
    lefts[0], rights[0] = -(1 << (inp - 1)), -(1 << (wgt - 1))  # the largest sum
    lefts[1], rights[1] = (1 << (inp - 1)) - 1, -(1 << (wgt - 1))  # and the least

    async def bench(ctx: Any) -> None:
        for cycle in range(20 + MAC_LATENCY):
            if cycle >= MAC_LATENCY:
                expected = lefts[cycle - MAC_LATENCY] @ rights[cycle - MAC_LATENCY].T
                got = unpacked(ctx.get(mac.sums), mac.sum_bits, batch * block)
                assert got.tolist() == expected.reshape(-1).tolist()
            if cycle < 20:
                ctx.set(mac.inp, packed(lefts[cycle], inp))
                ctx.set(mac.wgt, packed(rights[cycle], wgt))
            await ctx.tick()

    simulate(mac, bench)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_what_no_array_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="two products of 16 and 8 bits do not fit a block of 25x18; choose single"):
        MacArray(1, 2, 16, 8, "packed")
    with pytest.raises(ConfigError, match="unknown multipliers 'soft'; choose single, packed, logic"):
        MacArray(1, 2, 8, 8, "soft")


@pytest.mark.parametrize("log_bits", [3, 4, 5])
def test_alu_lanes(log_bits: int) -> None:
    bits, lanes, rng = 1 << log_bits, 4, np.random.default_rng(log_bits)
    alu, low, wrap = TensorAlu(lanes, log_bits), -(1 << (bits - 1)), 1 << bits

    def shifted(a: int, b: int) -> int:
        amount = b & (bits - 1)
        return a >> amount if amount < bits // 2 else a << (bits - amount)

    def expected(op: Operation, a: int, b: int) -> int:
        value = {
            Operation.MIN: min(a, b),
            Operation.MAX: max(a, b),
            Operation.ADD: a + b,
            Operation.SHR: shifted(a, b),
            Operation.NONE: a,
        }[op]
        return (value - low) % wrap + low

    async def bench(ctx: Any) -> None:
        for _ in range(60):
            a, b = (rng.choice([low, -low - 1, -1, 0, 1, int(rng.integers(low, -low))], lanes) for _ in range(2))
            ctx.set(alu.first, packed(a, bits))
            ctx.set(alu.second, packed(b, bits))
            for op in Operation.__members__.values():
                ctx.set(alu.op, op)
                got = unpacked(ctx.get(alu.result), bits, lanes).tolist()
                pairs = zip(a.tolist(), b.tolist(), strict=True)
                assert got == [expected(op, x, y) for x, y in pairs], f"seed {log_bits}, {op} {a} {b}"
            await ctx.tick()

    simulate(alu, bench)
