"""The banked memory against an array, at any alignment of beats and tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hdl.simulation import simulate
from tilewright.hdl.memory import BankedMemory, PartedMemory, Tiles

DEPTH = 16
BEAT = 64


def as_int(values: Any) -> int:
    return int.from_bytes(np.asarray(values, np.uint8).tobytes(), "little")


@pytest.mark.parametrize("tile", [8, 32, 64, 256])
def test_beats_in_and_tiles_out(tile: int) -> None:
    tiles, rng = Tiles(tile, BEAT, DEPTH), np.random.default_rng(tile)
    memory = BankedMemory(tiles, tile_writes=True)
    expected = np.zeros((DEPTH, tile // 8), np.uint8)

    async def bench(ctx: Any) -> None:
        for _ in range(300):
            index, part, mask = (int(rng.integers(high)) for high in (DEPTH, tiles.parts, 1 << tiles.lanes))
            data, whole = rng.integers(0, 256, BEAT // 8, dtype=np.uint8), bool(rng.random() < 0.2)
            single, read = bool(rng.random() < 0.3), int(rng.integers(DEPTH))
            ctx.set(memory.beats.index, index)
            ctx.set(memory.beats.part, part)
            ctx.set(memory.beats.mask, 0 if single else mask)
            ctx.set(memory.beats.whole, whole)
            ctx.set(memory.beats.data, as_int(data))
            one = rng.integers(0, 256, tile // 8, dtype=np.uint8)
            ctx.set(memory.tile.index, index)
            ctx.set(memory.tile.en, single)
            ctx.set(memory.tile.data, as_int(one))
            ctx.set(memory.read.index, read)
            ctx.set(memory.read.en, 1)
            if single:
                expected[index] = one
            elif tiles.parts > 1 and mask:
                expected[index].reshape(tiles.parts, -1)[slice(None) if whole else part] = data
            elif tiles.parts == 1:
                for lane in range(tiles.lanes):
                    if mask >> lane & 1:
                        expected[(index + lane) % DEPTH] = data.reshape(tiles.lanes, -1)[lane]
            await ctx.tick()
            assert ctx.get(memory.read.data) == as_int(expected[read]), f"seed {tile}: a read sees the write beside it"

    simulate(memory, bench)


@pytest.mark.parametrize("tile", [8, 32, 64, 256])
def test_tiles_in_and_beats_out(tile: int) -> None:
    tiles, rng = Tiles(tile, BEAT, DEPTH), np.random.default_rng(tile)
    memory = BankedMemory(tiles, beat_writes=False, tile_writes=True, wide_reads=True)
    expected = np.zeros((DEPTH, tile // 8), np.uint8)

    async def bench(ctx: Any) -> None:
        held = None
        for _ in range(300):
            index, read, en = int(rng.integers(DEPTH)), int(rng.integers(DEPTH)), bool(rng.random() < 0.7)
            one = rng.integers(0, 256, tile // 8, dtype=np.uint8)
            ctx.set(memory.tile.index, index)
            ctx.set(memory.tile.en, 1)
            ctx.set(memory.tile.data, as_int(one))
            ctx.set(memory.read.index, read)
            ctx.set(memory.read.en, en)
            expected[index] = one
            if en:
                held = as_int(expected[(read + np.arange(tiles.lanes)) % DEPTH])
            await ctx.tick()
            if held is not None:
                assert ctx.get(memory.read.data) == held, f"seed {tile}: data stay until the next read"

    simulate(memory, bench)


@pytest.mark.parametrize(("tile", "parts"), [(8, 4), (32, 2), (32, 16), (64, 1), (256, 4)])
def test_users_reach_parts_of_their_own_at_once(tile: int, parts: int) -> None:
    """Two read and write in each cycle, and beats come where the first user's part is."""
    tiles, rng = Tiles(tile, BEAT, DEPTH), np.random.default_rng(tile + parts)
    memory = PartedMemory(tiles, parts, users=2)
    expected, size = np.zeros((DEPTH, tile // 8), np.uint8), DEPTH // parts
    users = [(memory.read0, memory.tile0), (memory.read1, memory.tile1)]

    async def bench(ctx: Any) -> None:
        for _ in range(300):
            held = []
            owned = rng.permutation(parts)[:2].tolist()
            beats = len(owned) == 2 and size >= tiles.lanes and bool(rng.random() < 0.5)
            ctx.set(memory.beats.mask, 0)
            for user, (read, write) in enumerate(users):
                own = owned[user] * size if user < len(owned) else 0
                index, place = (own + int(rng.integers(size)) for _ in range(2))
                en = user < len(owned) and not (beats and user == 0)
                data = rng.integers(0, 256, tile // 8, dtype=np.uint8)
                ctx.set(write.index, index)
                ctx.set(write.data, as_int(data))
                ctx.set(write.en, en)
                ctx.set(read.index, place)
                ctx.set(read.en, user < len(owned))
                if en:
                    expected[index] = data
                if beats and user == 0:
                    first = own + int(rng.integers(size - tiles.lanes + 1))
                    part, mask = int(rng.integers(tiles.parts)), int(rng.integers(1, 1 << tiles.lanes))
                    beat = rng.integers(0, 256, BEAT // 8, dtype=np.uint8)
                    ctx.set(memory.beats.index, first)
                    ctx.set(memory.beats.part, part)
                    ctx.set(memory.beats.mask, mask)
                    ctx.set(memory.beats.data, as_int(beat))
                    for lane in range(tiles.lanes):
                        if tiles.parts > 1:
                            expected[first].reshape(tiles.parts, -1)[part] = beat
                        elif mask >> lane & 1:
                            expected[first + lane] = beat.reshape(tiles.lanes, -1)[lane]
                held.append((user < len(owned), read, place))
            await ctx.tick()
            for reads, read, place in held:
                if reads:
                    assert ctx.get(read.data) == as_int(expected[place]), f"seed {tile + parts}"

    simulate(memory, bench)
