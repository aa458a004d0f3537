"""On-chip memory that several users share by parts: each part belongs to one of them at a time."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from tilewright.hdl.memory import BeatWrite, TileRead, Tiles, TileWrite, lane_of, row_of


class PartedMemory(wiring.Component):
    """A BankedMemory of `parts` equal parts. User u reads by `read{u}` and writes by `tile{u}`; beats come besides.

    In one cycle users reach parts of their own, each with full bandwidth; no part may be written twice. What two users
    find who are in one part is not defined.
    """

    def __init__(self, tiles: Tiles, parts: int, users: int) -> None:
        self.tiles, self.users = tiles, users
        self.rows = max(1, tiles.depth // tiles.lanes)  # of each lane
        self.parts = min(parts, self.rows)  # smaller ones are told apart by their lanes
        super().__init__(
            {
                "beats": In(BeatWrite(tiles)),
                **{f"read{user}": In(TileRead(tiles)) for user in range(users)},
                **{f"tile{user}": In(TileWrite(tiles)) for user in range(users)},
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, t = Module(), self.tiles
        log = ceil_log2(t.lanes)
        reads = [getattr(self, f"read{user}") for user in range(self.users)]
        writes = [getattr(self, f"tile{user}") for user in range(self.users)]
        beats, outputs = self.beats, []
        for lane in range(t.lanes):
            distance = (lane - beats.index[:log])[:log]
            data = lane_of(beats.data, distance, t) if log else beats.data.replicate(t.parts)
            masked = beats.mask.bit_select(distance, 1) if log else beats.mask
            whole = (1 << t.parts) - 1
            enables = Mux(beats.whole, whole, 1 << beats.part) if t.parts > 1 else 1
            row = Signal(range(max(2, self.rows)), name=f"row{lane}")
            m.d.comb += row.eq(row_of(beats.index, lane, log, True))
            for part in range(self.parts):
                memory = Memory(shape=t.tile_bits, depth=self.rows // self.parts, init=[])
                m.submodules[f"part{part}_{lane}"] = memory
                write = memory.write_port(granularity=t.tile_bits // t.parts if t.parts > 1 else None)
                read = memory.read_port(transparent_for=(write,))
                outputs.append(read.data)
                m.d.comb += [
                    write.addr.eq(row),
                    write.data.eq(data),
                    write.en.eq(Mux(masked & (self._part(row) == part), enables, 0)),
                ]
                for user in writes:
                    with m.If(user.en & self._mine(user.index, lane, part)):
                        m.d.comb += [
                            write.addr.eq(user.index >> log),
                            write.data.eq(user.data),
                            write.en.eq(whole),
                        ]
                for user in reads:
                    with m.If(user.en & self._mine(user.index, lane, part)):
                        m.d.comb += [read.addr.eq(user.index >> log), read.en.eq(1)]
        for user in reads:
            place = Signal(range(max(2, len(outputs))))
            lane_bits = user.index[:log] if log else 0
            with m.If(user.en):
                m.d.sync += place.eq(lane_bits * self.parts + self._part(user.index >> log))
            m.d.comb += user.data.eq(Array(outputs)[place])
        return m

    def _part(self, row: Value) -> Value | int:
        """The part that a row of a lane is in."""
        within = ceil_log2(self.rows // self.parts)
        return row[within : within + ceil_log2(self.parts)] if self.parts > 1 else 0

    def _mine(self, index: Value, lane: int, part: int) -> Value | int:
        """Whether a tile is in that part of that lane."""
        log = ceil_log2(self.tiles.lanes)
        in_lane: Any = (index[:log] == lane) if log else 1
        in_part: Any = self._part(index >> log) == part if self.parts > 1 else 1
        return in_lane & in_part
