"""The image memory and the dot product, block by block in Amaranth's own simulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hdl.simulation import simulate
from tilewright.targets.cfu.bill import Copies
from tilewright.targets.cfu.gateware.image import DotProduct, ImageMemory
from tilewright.targets.cfu.isa.state import FIELDS


def test_words_are_read_as_they_were_pushed_from_any_word_on() -> None:
    rng = np.random.default_rng(9)
    block, expected = ImageMemory(Copies(2, 4)), np.zeros(16, np.int64)

    async def give(ctx: Any, command: str, first: int = 0, second: int = 0) -> int:
        word = int(ctx.get(block.word))
        for port, value in ((getattr(block, command), 1), (block.first, first), (block.second, second)):
            ctx.set(port, value)
        await ctx.tick()
        ctx.set(getattr(block, command), 0)
        await ctx.tick()  # commands are two cycles apart
        return word

    async def bench(ctx: Any) -> None:
        for _ in range(60):
            at = int(rng.integers(14))
            await give(ctx, "put", FIELDS["POINTER"], 4 * at + int(rng.integers(4)))
            await give(ctx, "put", FIELDS["POINTER"] + 1, 5)  # another register
            expected[at : at + 2] = rng.integers(1 << 32, size=2)
            await give(ctx, "push", *expected[at : at + 2].tolist())
            at = int(rng.integers(14))
            await give(ctx, "put", FIELDS["POINTER"], 4 * at)
            assert [await give(ctx, "get") for _ in range(3)][:2] == expected[at : at + 2].tolist()

    simulate(block, bench)


def test_a_dot_product_adds_to_its_register() -> None:
    rng = np.random.default_rng(10)
    block = DotProduct()

    async def bench(ctx: Any) -> None:
        ctx.set(block.put, 1)
        ctx.set(block.first, FIELDS["DOT"])
        ctx.set(block.second, 1000)
        await ctx.tick()
        ctx.set(block.put, 0)
        ctx.set(block.dot, 1)
        total = 1000
        for codes, weights in rng.integers(-128, 128, (50, 2, 4)):
            total += int((codes + 128) @ weights)
            ctx.set(block.first, int(codes.astype(np.int8).view("<u4")[0]))
            ctx.set(block.second, int(weights.astype(np.int8).view("<u4")[0]))
            assert ctx.get(block.total) == total % (1 << 32)
            await ctx.tick()

    simulate(block, bench)
