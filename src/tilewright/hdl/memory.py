"""On-chip memory of tiles with ports a tile wide and ports as wide as the bus, at full speed for any alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2


@dataclass(frozen=True)
class Tiles:
    """`depth` tiles of `tile_bits`, and how they fit into beats of `beat_bits`; all powers of two."""

    tile_bits: int
    beat_bits: int
    depth: int

    @property
    def lanes(self) -> int:
        """Tiles in a beat."""
        return max(1, self.beat_bits // self.tile_bits)

    @property
    def parts(self) -> int:
        """Beats in a tile."""
        return max(1, self.tile_bits // self.beat_bits)

    @property
    def index_bits(self) -> int:
        return ceil_log2(self.depth)


class BeatWrite(wiring.Signature):
    """A beat: lane l goes to tile `index` + l where bit l of `mask` is set; of a tile of several beats, to `part`,
    or to all parts of a `whole` one.
    """

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles
        super().__init__(
            {
                "index": Out(tiles.index_bits),
                "part": Out(range(max(2, tiles.parts))),
                "whole": Out(1),
                "mask": Out(tiles.lanes),
                "data": Out(tiles.beat_bits),
            }
        )


class TileWrite(wiring.Signature):
    """One tile, where `en` is set."""

    def __init__(self, tiles: Tiles) -> None:
        super().__init__({"index": Out(tiles.index_bits), "en": Out(1), "data": Out(tiles.tile_bits)})


class TileRead(wiring.Signature):
    """`lanes` tiles from `index` on; `data` a cycle after `en`, held until the next."""

    def __init__(self, tiles: Tiles, lanes: int = 1) -> None:
        super().__init__({"index": Out(tiles.index_bits), "en": Out(1), "data": In(lanes * tiles.tile_bits)})


class BankedMemory(wiring.Component):
    """Tile i lies in bank i modulo lanes, so that neighbours are reached at once, from any index; indices wrap.

    Writes: `beats` and, with `tile_writes`, `tile` (which goes first; never both in one cycle). `read` gives one tile,
    with `wide_reads` as many as a beat holds. A read in the cycle of a write gives what is written.
    """

    def __init__(self, tiles: Tiles, beat_writes: bool = True, tile_writes: bool = False, wide_reads: bool = False):
        self.tiles = tiles
        ports: dict[str, Any] = {"read": In(TileRead(tiles, tiles.lanes if wide_reads else 1))}
        if beat_writes:
            ports["beats"] = In(BeatWrite(tiles))
        if tile_writes:
            ports["tile"] = In(TileWrite(tiles))
        self.beat_writes, self.tile_writes, self.wide_reads = beat_writes, tile_writes, wide_reads
        super().__init__(ports)

    def elaborate(self, platform: Any) -> Elaboratable:
        m, t = Module(), self.tiles
        log = ceil_log2(t.lanes)
        granularity = t.tile_bits // t.parts
        outputs = []
        first = Signal(range(max(2, t.lanes)))
        with m.If(self.read.en):
            m.d.sync += first.eq(self.read.index[:log])
        for bank in range(t.lanes):
            depth = max(1, t.depth // t.lanes)
            memory = Memory(shape=t.tile_bits, depth=depth, init=[])
            m.submodules[f"bank{bank}"] = memory
            write = memory.write_port(granularity=granularity if t.parts > 1 else None)
            read = memory.read_port(transparent_for=(write,))
            m.d.comb += [read.addr.eq(row_of(self.read.index, bank, log, self.wide_reads)), read.en.eq(self.read.en)]
            outputs.append(read.data)
            if self.beat_writes:
                beats = self.beats
                lane = (bank - beats.index[:log])[:log]
                parts = Mux(beats.whole, (1 << t.parts) - 1, 1 << beats.part) if t.parts > 1 else 1
                m.d.comb += [
                    write.addr.eq(row_of(beats.index, bank, log, True)),
                    write.data.eq(lane_of(beats.data, lane, t) if log else beats.data.replicate(t.parts)),
                    write.en.eq(Mux(beats.mask.bit_select(lane, 1) if log else beats.mask, parts, 0)),
                ]
            if self.tile_writes:
                mine = self.tile.index[:log] == bank if log else 1
                with m.If(self.tile.en):
                    m.d.comb += [
                        write.addr.eq(self.tile.index >> log),
                        write.data.eq(self.tile.data),
                        write.en.eq(Mux(mine, (1 << t.parts) - 1, 0)),
                    ]
        everything, count = Cat(outputs), t.lanes if self.wide_reads else 1
        m.d.comb += self.read.data.eq(Cat(lane_of(everything, (first + lane)[:log], t) for lane in range(count)))
        return m


def lane_of(data: Value, lane: Value, tiles: Tiles) -> Value:
    """One of the tiles of a beat."""
    return data.word_select(lane, tiles.tile_bits) if tiles.lanes > 1 else data


def row_of(index: Value, bank: int, log: int, wide: bool) -> Value:
    """The row of a bank that holds its tile at `index` or, of several tiles, the first behind it."""
    row = index >> log
    return row + (index[:log] > bank) if wide and log else row
