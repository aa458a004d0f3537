"""2-D transfers: bursts, placement, beats to tiles with zeros around them, tiles to beats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hdl.simulation import simulate
from tilewright.array import Array
from tilewright.hdl.axi import RowBursts
from tilewright.hdl.memory import BankedMemory, Tiles
from tilewright.hdl.transfers import Placer, TileReceiver, TileSender

BEAT, LONGEST = 8, 4  # bytes; beats


def bursts_of(address: int, rows: int, row_bytes: int, stride: int) -> list[tuple[int, int]]:
    """(address, beats) by the rule: a row at a time, ends at multiples of the longest."""
    found = []
    for row in range(rows):
        first, end = address + row * stride, address + row * stride + row_bytes
        beat = first // BEAT
        while beat * BEAT < end:
            stop = min((beat // LONGEST + 1) * LONGEST, -(-end // BEAT))
            found.append((beat * BEAT, stop - beat))
            beat = stop
    return found


@pytest.mark.parametrize("seed", range(8))
def test_bursts_one_a_cycle_from_the_one_after_the_start(seed: int) -> None:
    rng, block = np.random.default_rng(seed), RowBursts(8 * BEAT, LONGEST)
    address, rows, row_bytes, stride = (
        int(rng.integers(low, high)) for low, high in ((0, 99), (1, 4), (1, 90), (0, 99))
    )
    expected = bursts_of(address, rows, row_bytes, stride)

    async def bench(ctx: Any) -> None:
        ctx.set(block.rows, {"address": address, "rows": rows, "row_bytes": row_bytes, "stride": stride})
        ctx.set(block.start, 1)
        ctx.set(block.bursts.ready, 1)
        await ctx.tick()
        ctx.set(block.start, 0)
        for number, (at, beats) in enumerate(expected):
            assert ctx.get(block.bursts.valid), f"seed {seed}"
            if rng.random() < 0.3:  # not taken: it stays
                ctx.set(block.bursts.ready, 0)
                await ctx.tick()
                ctx.set(block.bursts.ready, 1)
            got = ctx.get(block.bursts.payload.address), ctx.get(block.bursts.payload.beats) + 1
            assert (got, ctx.get(block.last)) == ((at, beats), number == len(expected) - 1), f"seed {seed}"
            await ctx.tick()
        assert not ctx.get(block.active)

    simulate(block, bench)


#: Which sides of a window have zeros.
SIDES = (
    (),
    ("top",),
    ("bottom",),
    ("top", "bottom"),
    ("left",),
    ("right",),
    ("top", "left", "right"),
    ("top", "bottom", "left", "right"),
)


def window(rng: np.random.Generator, tiles: Tiles, sides: tuple[str, ...]) -> dict[str, int]:
    """Random sizes that fit the memory, and tiles that lie anywhere in their beats."""
    padded = bool(sides)
    while True:
        rows, columns = int(rng.integers(0, 4)), int(rng.integers(0, 5))
        pads = {name: int(rng.integers(1, 3)) * (name in sides) for name in ("top", "bottom", "left", "right")}
        height, width = rows + pads["top"] + pads["bottom"], columns + pads["left"] + pads["right"]
        if 0 < height * width <= tiles.depth and (rows * columns or padded):
            index = int(rng.integers(0, tiles.depth - height * width + 1))
            offset, step = (int(rng.integers(tiles.lanes)) for _ in range(2))
            return {"index": index, "rows": rows, "columns": columns, "offset": offset, "step": step, **pads}


def tile_at(w: dict[str, int], place: int) -> tuple[int, int] | None:
    """Row and column of the data that lies at a place of the window; None: a zero."""
    width = w["left"] + w["columns"] + w["right"]
    row, column = place // width - w["top"], place % width - w["left"]
    return (row, column) if 0 <= row < w["rows"] and 0 <= column < w["columns"] else None


@pytest.mark.parametrize("tile", [16, 64, 128])
@pytest.mark.parametrize("seed", range(16))
def test_a_window_is_written_with_its_zeros_in_cycles_without_a_beat(tile: int, seed: int) -> None:
    """And in no more cycles than beats and zeros, where the beats come at once."""
    rng, tiles = np.random.default_rng(seed), Tiles(tile, 8 * BEAT, 64)
    w = window(rng, tiles, SIDES[seed % len(SIDES)])
    placer, receiver = Placer(), TileReceiver([tiles, tiles])
    data = rng.integers(1, 256, (w["rows"], w["columns"], tile // 8), dtype=np.uint8)
    memory = np.full((64, tile // 8), 255, np.uint8)
    beats: list[Array] = []
    for row in range(w["rows"] if w["columns"] else 0):
        offset = (w["offset"] + row * w["step"]) % tiles.lanes
        raw = np.concatenate([np.zeros(offset * tile // 8, np.uint8), data[row].reshape(-1)])
        raw = np.pad(raw, (0, -len(raw) % BEAT))
        beats += list(raw.reshape(-1, BEAT))
    width = w["left"] + w["columns"] + w["right"]
    count = (w["top"] + w["rows"] + w["bottom"]) * width
    zeros = count - w["rows"] * w["columns"]
    cycles = 0

    async def place(ctx: Any) -> None:
        nonlocal cycles
        ctx.set(placer.window, w)
        ctx.set(placer.which, 1)
        ctx.set(receiver.placements.payload.as_value(), ctx.get(placer.placement.as_value()))
        ctx.set(receiver.placements.valid, 1)
        assert ctx.get(placer.padded) == (zeros > 0)
        await ctx.tick()
        ctx.set(receiver.placements.valid, 0)
        while not ctx.get(receiver.idle):
            comes = bool(beats) and rng.random() < 0.8
            ctx.set(receiver.valid, comes)
            if comes:
                ctx.set(receiver.data, int.from_bytes(beats.pop(0).tobytes(), "little"))
            write = receiver.write1
            raw = np.frombuffer(int(ctx.get(write.data)).to_bytes(BEAT, "little"), np.uint8)
            index, part, mask = ctx.get(write.index), ctx.get(write.part), ctx.get(write.mask)
            for lane in range(tiles.lanes):
                if mask >> lane & 1 and ctx.get(write.whole):
                    memory[(index + lane) % 64] = 0
                elif mask >> lane & 1:
                    memory[(index + lane) % 64].reshape(tiles.parts, -1)[part] = raw.reshape(tiles.lanes, -1)[lane]
            cycles += bool(mask)
            assert cycles <= 1000
            await ctx.tick()

    many = len(beats)
    simulate((placer, receiver), place)
    for place_ in range(count):
        at = tile_at(w, place_)
        expected = np.zeros(tile // 8, np.uint8) if at is None else data[at]
        assert memory[w["index"] + place_].tolist() == expected.tolist(), f"seed {seed}: {w}, tile {place_}"
    untouched = np.delete(memory, np.arange(w["index"], w["index"] + count), axis=0)
    assert (untouched == 255).all()
    assert cycles == zeros + many


@pytest.mark.parametrize("tile", [16, 64, 128])
@pytest.mark.parametrize("seed", range(4))
def test_tiles_leave_as_the_beats_of_their_bursts(tile: int, seed: int) -> None:
    rng, tiles = np.random.default_rng(seed), Tiles(tile, 8 * BEAT, 32)
    memory = BankedMemory(tiles, beat_writes=False, tile_writes=True, wide_reads=True)
    sender = TileSender(tiles, LONGEST)
    rows, columns, size = int(rng.integers(1, 4)), int(rng.integers(1, 5)), tile // 8
    index, address = int(rng.integers(0, 32 - rows * columns)), int(rng.integers(0, 9)) * size
    stride = (columns + int(rng.integers(0, 4))) * size
    contents = rng.integers(0, 256, (32, size), dtype=np.uint8)
    dram = np.zeros(1024, np.uint8)
    stalls = seed % 2

    async def bench(ctx: Any) -> None:
        ctx.set(memory.tile.en, 1)
        for number, tile_ in enumerate(contents):
            ctx.set(memory.tile.index, number)
            ctx.set(memory.tile.data, int.from_bytes(tile_.tobytes(), "little"))
            await ctx.tick()
        ctx.set(memory.tile.en, 0)
        packed = {"index": index, "rows": rows, "columns": columns, "address": address, "stride": stride}
        ctx.set(sender.packed, packed)
        ctx.set(sender.start, 1)
        ctx.set(sender.beats.ready, 1)
        await ctx.tick()
        ctx.set(sender.start, 0)
        assert not ctx.get(sender.beats.valid)
        await ctx.tick()
        assert not ctx.get(sender.beats.valid)
        await ctx.tick()  # two cycles after the first read
        for at, beats in bursts_of(address, rows, columns * size, stride):
            for beat in range(beats):
                while stalls and rng.random() < 0.4:
                    ctx.set(sender.beats.ready, 0)
                    await ctx.tick()
                ctx.set(sender.beats.ready, 1)
                assert ctx.get(sender.beats.valid), f"seed {seed}: a beat a cycle"
                payload = sender.beats.payload
                raw = int(ctx.get(payload.data)).to_bytes(BEAT, "little")
                strobes = ctx.get(payload.strobes)
                for byte in range(BEAT):
                    if strobes >> byte & 1:
                        dram[at + beat * BEAT + byte] = raw[byte]
                assert ctx.get(payload.last) == (beat == beats - 1), f"seed {seed}"
                await ctx.tick()
        assert not ctx.get(sender.beats.valid)

    simulate((memory, sender), bench, connections=[(sender.read, memory.read)])
    expected = np.zeros(1024, np.uint8)
    for row in range(rows):
        first = index + row * columns
        expected[address + row * stride :][: columns * size] = contents[first : first + columns].reshape(-1)
    assert dram.tolist() == expected.tolist(), f"seed {seed}"
