"""From tiles on chip to DRAM: the beats of 2-D transfers, one a cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.bursts import ADDRESS_BITS
from tilewright.hdl.memory import TileRead, Tiles
from tilewright.hdl.placement import INDEX_BITS

#: Tiles from `index` on, `columns` to a row, which go to `rows` that are `stride` bytes apart from `address`.
PACKED = data.StructLayout(
    dict.fromkeys(("index", "rows", "columns"), INDEX_BITS) | dict.fromkeys(("address", "stride"), ADDRESS_BITS)
)


def beat_of(bits: int) -> data.StructLayout:
    """A beat as AXI writes it; `strobes`: which bytes are."""
    return data.StructLayout({"data": bits, "strobes": bits // 8, "last": 1})


class TileSender(wiring.Component):
    """Reads the tiles of `packed`, given with `start`, from the next cycle on; each beat leaves two cycles later.

    `active` while there are tiles to read. Bursts end as in RowBursts.
    """

    def __init__(self, tiles: Tiles, longest: int) -> None:
        self.tiles, self.longest = tiles, longest
        super().__init__(
            {
                "packed": In(PACKED),
                "start": In(1),
                "active": Out(1),
                "read": Out(TileRead(tiles, tiles.lanes)),
                "beats": Out(stream.Signature(beat_of(tiles.beat_bits))),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, t = Module(), self.tiles
        log, log_tile = ceil_log2(t.beat_bits // 8), ceil_log2(t.tile_bits // 8)
        within = log + ceil_log2(self.longest)  # bits of an address within the longest burst
        p, part = Signal(PACKED), Signal(range(max(2, t.parts)))
        row, left = Signal(within), Signal(INDEX_BITS)
        place = Signal(within - log)  # of the beat within the longest burst
        offset, taken = Signal(range(t.lanes + 1)), Signal(INDEX_BITS)
        ends_tile, ends_row, following, go = Signal(), Signal(), Signal(within), Signal()
        m.d.comb += [
            go.eq(~self.beats.valid | self.beats.ready),
            taken.eq(Mux(t.lanes - offset < left, t.lanes - offset, left)),
            ends_tile.eq(part == t.parts - 1),
            ends_row.eq(ends_tile & (taken == left)),
            following.eq(row + p.stride),
            self.read.index.eq(p.index - offset),
            self.read.en.eq(self.active & go),
        ]

        def begin(address: Any) -> list[Any]:
            """At the first beat of a row."""
            first = address[log_tile:log] if t.lanes > 1 else 0
            return [row.eq(address), place.eq(address[log:within]), offset.eq(first)]

        read, last, part_read, mask = Signal(), Signal(), Signal.like(part), Signal(t.lanes)
        beat = self.beats.payload
        with m.If(go):
            m.d.sync += [
                read.eq(self.active),
                mask.eq(((1 << taken[: t.lanes.bit_length()]) - 1) << offset),
                last.eq(ends_row | (place == self.longest - 1)),
                part_read.eq(part),
                self.beats.valid.eq(read),
                beat.data.eq(self.read.data.word_select(part_read, t.beat_bits)),
                beat.strobes.eq(Cat(bit.replicate(t.beat_bits // 8 // t.lanes) for bit in mask)),
                beat.last.eq(last),
            ]
        with m.If(self.active & go):
            m.d.sync += [place.eq(place + 1), part.eq(Mux(ends_tile, 0, part + 1))]
            with m.If(ends_tile):
                m.d.sync += [p.index.eq(p.index + taken), left.eq(left - taken), offset.eq(0)]
            with m.If(ends_row):
                m.d.sync += [left.eq(p.columns), p.rows.eq(p.rows - 1), *begin(following)]
                with m.If(p.rows == 1):
                    m.d.sync += self.active.eq(0)
        with m.If(self.start):
            m.d.sync += [self.active.eq(1), p.eq(self.packed), part.eq(0), left.eq(self.packed.columns)]
            m.d.sync += begin(self.packed.address)
        return m
