"""Commands of a 2-D transfer: rows as bursts that end at multiples of the longest one."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

ADDRESS_BITS = 32

#: A command: bytes from `address`, which is a multiple of a beat; `beats` less one, as AXI counts.
BURST = data.StructLayout({"address": ADDRESS_BITS, "beats": 8})
#: `rows` of `row_bytes`, `stride` bytes apart, from byte `address`; neither count is 0.
ROWS = data.StructLayout({"address": ADDRESS_BITS, "stride": ADDRESS_BITS, "rows": 16, "row_bytes": ADDRESS_BITS})


class RowBursts(wiring.Component):
    """Loaded with `rows` by `start`, it offers a burst from the next cycle on, one a cycle.

    Bursts end at multiples of the `longest`, in beats: a power of two, at most 4 KiB, so that none crosses a page.

    `last` is high in the cycle in which the last burst is taken; `active` until then.
    """

    def __init__(self, beat_bits: int, longest: int) -> None:
        self.beat_bytes, self.longest = beat_bits // 8, longest
        super().__init__(
            {
                "rows": In(ROWS),
                "start": In(1),
                "active": Out(1),
                "last": Out(1),
                "bursts": Out(stream.Signature(BURST)),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        log, edge = ceil_log2(self.beat_bytes), ceil_log2(self.longest)
        row, stride, row_bytes, following = (Signal(ADDRESS_BITS, name=n) for n in ("row", "stride", "size", "next"))
        rows, beat, left = Signal(16), Signal(ADDRESS_BITS - log), Signal(ADDRESS_BITS - log)
        to_edge, beats, ends = Signal(range(self.longest + 1)), Signal(range(self.longest + 1)), Signal()
        m.d.comb += [
            to_edge.eq(self.longest - beat[:edge]),
            ends.eq(left <= to_edge),
            beats.eq(Mux(ends, left, to_edge)),
            self.bursts.valid.eq(self.active),
            self.bursts.payload.address.eq(beat << log),
            self.bursts.payload.beats.eq(beats - 1),
            self.last.eq(self.active & self.bursts.ready & ends & (rows == 1)),
            following.eq(row + stride),
        ]

        def begin(address: Any, size: Any) -> list[Any]:
            beats = (address[:log] + size + self.beat_bytes - 1) >> log
            return [row.eq(address), beat.eq(address >> log), left.eq(beats)]

        with m.If(self.start):
            m.d.sync += [self.active.eq(1), rows.eq(self.rows.rows), row_bytes.eq(self.rows.row_bytes)]
            m.d.sync += [stride.eq(self.rows.stride), *begin(self.rows.address, self.rows.row_bytes)]
        with m.Elif(self.active & self.bursts.ready):
            m.d.sync += [beat.eq(beat + beats), left.eq(left - beats)]
            with m.If(ends):
                m.d.sync += [rows.eq(rows - 1), *begin(following, row_bytes)]
                with m.If(rows == 1):
                    m.d.sync += self.active.eq(0)
        return m
