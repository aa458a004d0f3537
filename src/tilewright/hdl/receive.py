"""From DRAM to tiles on chip: beats of 2-D transfers, and the zeros around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.memory import BeatWrite, Tiles
from tilewright.hdl.placement import INDEX_BITS, PLACEMENT


class TileReceiver(wiring.Component):
    """Writes the beats of one placement after the other to its memories; a zero in each cycle without a beat.

    A placement is taken a cycle before its first beat at the latest. `idle`: there is none. `completes`: this cycle
    writes the last tile of one; the next takes its place at once.
    """

    def __init__(self, memories: Sequence[Tiles]) -> None:
        self.memories = memories
        super().__init__(
            {
                "placements": In(stream.Signature(PLACEMENT)),
                "valid": In(1),
                "data": In(memories[0].beat_bits),
                "idle": Out(1),
                "completes": Out(1),
                **{f"write{i}": Out(BeatWrite(tiles)) for i, tiles in enumerate(memories)},
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        p, new, busy = Signal(PLACEMENT), self.placements.payload, Signal()
        index, offset, row_offset = Signal(INDEX_BITS), Signal(INDEX_BITS), Signal(INDEX_BITS)
        left, part = Signal(INDEX_BITS), Signal(INDEX_BITS)
        lanes, parts = (self._of(p.which, get) for get in (lambda tiles: tiles.lanes, lambda tiles: tiles.parts))
        beat, taken, ends_tile, ends_row, following = (
            Signal(),
            Signal(INDEX_BITS),
            Signal(),
            Signal(),
            Signal(INDEX_BITS),
        )
        m.d.comb += [
            beat.eq(busy & self.valid & (p.rows != 0)),
            taken.eq(Mux(lanes - offset < left, lanes - offset, left)),
            ends_tile.eq(part == parts - 1),
            ends_row.eq(ends_tile & (taken == left)),
            following.eq((row_offset + p.step) & (lanes - 1)),
        ]
        with m.If(beat):
            m.d.sync += part.eq(Mux(ends_tile, 0, part + 1))
            with m.If(ends_tile):
                m.d.sync += [index.eq(index + taken), left.eq(left - taken), offset.eq(0)]
            with m.If(ends_row):
                m.d.sync += [row_offset.eq(following), offset.eq(following), left.eq(p.columns)]
                m.d.sync += [index.eq(index + taken + p.between), p.rows.eq(p.rows - 1)]
        zeroes = Signal()
        m.d.comb += [
            zeroes.eq(busy & ~beat & (p.zeros != 0)),
            self.completes.eq(
                busy
                & ((p.rows == 0) | (beat & ends_row & (p.rows == 1)))
                & ((p.zeros == 0) | (zeroes & (p.zeros == 1) & (p.middle == 0) & (p.behind == 0)))
            ),
            self.idle.eq(~busy),
            self.placements.ready.eq(~busy | self.completes),
        ]
        with m.If(zeroes):
            m.d.sync += [p.zero.eq(p.zero + 1), p.zeros.eq(p.zeros - 1)]
            with m.If(p.zeros == 1):
                with m.If(p.middle != 0):
                    m.d.sync += [p.zero.eq(p.zero + 1 + p.columns), p.zeros.eq(p.between), p.middle.eq(p.middle - 1)]
                with m.Else():
                    m.d.sync += [p.zero.eq(p.zero + 1 + p.skip), p.zeros.eq(p.behind), p.behind.eq(0)]
        with m.If(self.completes):
            m.d.sync += busy.eq(0)
        with m.If(self.placements.valid & self.placements.ready):
            m.d.sync += [p.eq(new), busy.eq(1), part.eq(0), left.eq(new.columns), index.eq(new.index)]
            m.d.sync += [offset.eq(new.offset), row_offset.eq(new.offset)]
        for number, tiles in enumerate(self.memories):
            write = getattr(self, f"write{number}")
            many = (1 << tiles.lanes) - 1
            mine = (p.which == number) if len(self.memories) > 1 else 1
            lanes_taken = ((1 << taken[: tiles.lanes.bit_length()]) - 1) << offset[: tiles.lanes.bit_length()]
            with m.If(mine):
                m.d.comb += [
                    write.index.eq(Mux(beat, index - offset, p.zero)),
                    write.part.eq(part),
                    write.data.eq(Mux(beat, self.data, 0)),
                    write.mask.eq(Mux(beat, lanes_taken & many, Mux(zeroes, 1, 0))),
                    write.whole.eq(zeroes),
                ]
        return m

    def _of(self, which: Value, get: Callable[[Tiles], int]) -> Value:
        """A number of the memory in use."""
        return chosen(which, [get(tiles) for tiles in self.memories])


def chosen(which: Value, options: Sequence[Any]) -> Any:
    """The option of a number; of numbers that there are none of, the last."""
    found = options[-1]
    for number in reversed(range(len(options) - 1)):
        found = Mux(which == number, options[number], found)
    return found
