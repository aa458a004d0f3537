"""The FIFO and the token queue: when what goes in comes out, and when there is room again."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from tests.hdl.simulation import simulate
from tilewright.hdl.memory import StreamFifo, TokenQueue


def test_an_element_is_there_the_cycle_after_it_was_written() -> None:
    fifo = StreamFifo(8, 4)

    async def bench(ctx: Any) -> None:
        ctx.set(fifo.i.valid, 1)
        ctx.set(fifo.i.payload, 7)
        assert not ctx.get(fifo.o.valid)
        await ctx.tick()
        assert (ctx.get(fifo.o.valid), ctx.get(fifo.o.payload)) == (1, 7)

    simulate(fifo, bench)


def test_a_full_fifo_takes_an_element_in_the_cycle_that_frees_a_place() -> None:
    fifo = StreamFifo(8, 2)

    async def bench(ctx: Any) -> None:
        ctx.set(fifo.i.valid, 1)
        await ctx.tick().repeat(2)
        assert (ctx.get(fifo.i.ready), ctx.get(fifo.level)) == (0, 2)
        ctx.set(fifo.o.ready, 1)
        assert ctx.get(fifo.i.ready)

    simulate(fifo, bench)


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_order_is_kept_under_random_traffic(depth: int) -> None:
    fifo, rng, held = StreamFifo(16, depth), np.random.default_rng(depth), deque[int]()

    async def bench(ctx: Any) -> None:
        for value in range(400):
            ctx.set(fifo.i.valid, bool(rng.random() < 0.6))
            ctx.set(fifo.i.payload, value)
            ctx.set(fifo.o.ready, bool(rng.random() < 0.5))
            assert ctx.get(fifo.level) == len(held)
            assert ctx.get(fifo.o.valid) == bool(held)
            if held:
                assert ctx.get(fifo.o.payload) == held[0], f"seed {depth}"
            if ctx.get(fifo.o.valid) and ctx.get(fifo.o.ready):
                held.popleft()
            if ctx.get(fifo.i.valid) and ctx.get(fifo.i.ready):
                held.append(value)
            await ctx.tick()

    simulate(fifo, bench)


def test_a_token_is_available_and_its_place_free_the_cycle_after() -> None:
    queue = TokenQueue(2)

    async def bench(ctx: Any) -> None:
        ctx.set(queue.reserve, 1)
        await ctx.tick()
        assert (ctx.get(queue.room), ctx.get(queue.available)) == (1, 0)
        await ctx.tick()
        assert not ctx.get(queue.room)
        ctx.set(queue.reserve, 0)
        ctx.set(queue.push, 1)
        assert not ctx.get(queue.available)
        await ctx.tick()
        ctx.set(queue.push, 0)
        ctx.set(queue.pop, 1)
        assert (ctx.get(queue.room), ctx.get(queue.available)) == (0, 1)
        await ctx.tick()
        assert (ctx.get(queue.room), ctx.get(queue.available)) == (1, 0)

    simulate(queue, bench)
