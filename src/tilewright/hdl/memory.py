"""On-chip tile memories, and queues.

Ports of memories are one tile or one bus beat wide. Unaligned accesses are as fast as aligned accesses. A BankedMemory
has one user. A PartedMemory has several users and several parts; at any time, each part belongs to one user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, drive, ram


@dataclass(frozen=True)
class Tiles:
    """The shape of a memory: `depth` tiles of `tile_bits` bits, on a bus of `beat_bits` bits (powers of two)."""

    tile_bits: int
    beat_bits: int
    depth: int

    @property
    def lanes(self) -> int:
        """The number of tiles in a bus beat, at least 1."""
        return max(1, self.beat_bits // self.tile_bits)

    @property
    def parts(self) -> int:
        """The number of bus beats in a tile, at least 1."""
        return max(1, self.tile_bits // self.beat_bits)

    @property
    def index_bits(self) -> int:
        return ceil_log2(self.depth)


class BeatWrite(wiring.Signature):
    """The signals that write one bus beat. Tile l of `data` is written to tile `index + l` if bit l of `mask` is set.

    If a tile is wider than a beat, `data` is written to part number `part` of the tile, or to all parts if `whole`.
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
    """The signals that write one tile: `data` is written to tile `index` while `en` is high."""

    def __init__(self, tiles: Tiles) -> None:
        super().__init__({"index": Out(tiles.index_bits), "en": Out(1), "data": Out(tiles.tile_bits)})


class TileRead(wiring.Signature):
    """The signals that read `lanes` tiles from `index` on. `data` is valid a cycle after `en`, until the next read."""

    def __init__(self, tiles: Tiles, lanes: int = 1) -> None:
        super().__init__({"index": Out(tiles.index_bits), "en": Out(1), "data": In(lanes * tiles.tile_bits)})


class BankedMemory(Part):
    """A memory with a bank for each tile of a beat, so that a beat can start at any tile. Indices wrap.

    The write ports are `beats` (a BeatWrite) and, with `tile_writes`, `tile` (a TileWrite). Only one of them may write
    in a cycle. The port `read` returns one tile, or all tiles of a beat with `wide_reads`. A read in the cycle of a
    write returns the new data.
    """

    def __init__(self, tiles: Tiles, beat_writes: bool = True, tile_writes: bool = False, wide_reads: bool = False):
        self.tiles = tiles
        ports: dict[str, Any] = {"read": In(TileRead(tiles, tiles.lanes if wide_reads else 1))}
        if beat_writes:
            ports["beats"] = In(BeatWrite(tiles))
        if tile_writes:
            ports["tile"] = In(TileWrite(tiles))
        self.beat_writes = beat_writes
        self.tile_writes = tile_writes
        self.wide_reads = wide_reads
        super().__init__(**ports)

    def define(self, m: Module) -> None:
        t = self.tiles
        log = ceil_log2(t.lanes)
        granularity = t.tile_bits // t.parts if t.parts > 1 else None
        outputs = []
        # Tile i is in bank i mod lanes. A read begins in bank `first`, so the outputs of the banks are rotated.
        first = Signal(range(max(2, t.lanes)))
        with m.If(self.read.en):
            m.d.sync += first.eq(self.read.index[:log])
        for bank in range(t.lanes):
            depth = max(1, t.depth // t.lanes)
            write, read = ram(m, f"bank{bank}", t.tile_bits, depth, granularity, transparent=True)
            m.d.comb += drive(read, addr=row_of(self.read.index, bank, log, self.wide_reads), en=self.read.en)
            outputs.append(read.data)
            if self.beat_writes:
                data, masked, parts = _of_lane(self.beats, bank, t)
                row = row_of(self.beats.index, bank, log, True)
                m.d.comb += drive(write, addr=row, data=data, en=Mux(masked, parts, 0))
            if self.tile_writes:
                mine = self.tile.index[:log] == bank if log else 1
                with m.If(self.tile.en):
                    m.d.comb += drive(
                        write, addr=self.tile.index >> log, data=self.tile.data, en=Mux(mine, (1 << t.parts) - 1, 0)
                    )
        everything = Cat(outputs)
        count = t.lanes if self.wide_reads else 1
        m.d.comb += self.read.data.eq(Cat(lane_of(everything, (first + lane)[:log], t) for lane in range(count)))


def _of_lane(beats: Any, lane: int, tiles: Tiles) -> tuple[Value, Value, Value | int]:
    """Return the write to bank `lane` of a BeatWrite: (data, mask bit, enable bits of the parts of the tile)."""
    log = ceil_log2(tiles.lanes)
    # A beat may begin at any tile: bank l gets tile number (l - index) modulo the number of banks.
    distance = (lane - beats.index[:log])[:log]
    parts = Mux(beats.whole, (1 << tiles.parts) - 1, 1 << beats.part) if tiles.parts > 1 else 1
    if not log:
        return beats.data.replicate(tiles.parts), beats.mask, parts
    return lane_of(beats.data, distance, tiles), beats.mask.bit_select(distance, 1), parts


def lane_of(data: Value, lane: Value, tiles: Tiles) -> Value:
    return data.word_select(lane, tiles.tile_bits) if tiles.lanes > 1 else data


def row_of(index: Value, bank: int, log: int, wide: bool) -> Value:
    """Return the row of tile `index` in its bank. If `wide`, return the row of the next tile in `bank`."""
    # In the banks before the bank of `index`, the first such tile is one row later.
    row = index >> log
    return row + (index[:log] > bank) if wide and log else row


class PartedMemory(Part):
    """A memory of tiles in `parts` equal parts. User u reads at the port `read{u}` and writes at the port `tile{u}`.

    Bus beats are written at the port `beats`. Users that access different parts in one cycle each have full bandwidth.
    If two users access the same part in a cycle, or if a part is written twice, the result is undefined.
    """

    def __init__(self, tiles: Tiles, parts: int, users: int) -> None:
        self.tiles = tiles
        self.users = users
        self.rows = max(1, tiles.depth // tiles.lanes)  # rows of each lane
        self.parts = min(parts, self.rows)  # a part has at least one row of each lane
        super().__init__(
            beats=In(BeatWrite(tiles)),
            **{f"read{user}": In(TileRead(tiles)) for user in range(users)},
            **{f"tile{user}": In(TileWrite(tiles)) for user in range(users)},
        )

    def define(self, m: Module) -> None:
        t = self.tiles
        log = ceil_log2(t.lanes)
        granularity = t.tile_bits // t.parts if t.parts > 1 else None
        reads = [getattr(self, f"read{user}") for user in range(self.users)]
        writes = [getattr(self, f"tile{user}") for user in range(self.users)]
        beats = self.beats
        outputs = []
        for lane in range(t.lanes):
            data, masked, enables = _of_lane(beats, lane, t)
            row = Signal(range(max(2, self.rows)), name=f"row{lane}")
            m.d.comb += row.eq(row_of(beats.index, lane, log, True))
            # Each part of a bank is a memory of its own, so that users of different parts do not wait for each other.
            for part in range(self.parts):
                name = f"part{part}_{lane}"
                depth = self.rows // self.parts
                write, read = ram(m, name, t.tile_bits, depth, granularity, transparent=True)
                outputs.append(read.data)
                m.d.comb += drive(write, addr=row, data=data, en=Mux(masked & (self._part(row) == part), enables, 0))
                for user in writes:
                    with m.If(user.en & self._mine(user.index, lane, part)):
                        m.d.comb += drive(write, addr=user.index >> log, data=user.data, en=(1 << t.parts) - 1)
                for user in reads:
                    with m.If(user.en & self._mine(user.index, lane, part)):
                        m.d.comb += drive(read, addr=user.index >> log, en=1)
        for user in reads:
            place = Signal(range(max(2, len(outputs))))
            lane_bits = user.index[:log] if log else 0
            with m.If(user.en):
                # The data come one cycle after the request, so the place of the request is stored.
                m.d.sync += place.eq(lane_bits * self.parts + self._part(user.index >> log))
            m.d.comb += user.data.eq(Array(outputs)[place])

    def _part(self, row: Value) -> Value | int:
        within = ceil_log2(self.rows // self.parts)
        return row[within : within + ceil_log2(self.parts)] if self.parts > 1 else 0

    def _mine(self, index: Value, lane: int, part: int) -> Value | int:
        """Return whether tile `index` is in bank number `lane` and in part number `part`."""
        log = ceil_log2(self.tiles.lanes)
        in_lane: Any = (index[:log] == lane) if log else 1
        in_part: Any = self._part(index >> log) == part if self.parts > 1 else 1
        return in_lane & in_part


class StreamFifo(Part):
    """A FIFO of `depth` elements (at least 1) of `shape`.

    An element written in cycle t can be read in t + 1. A full FIFO accepts an element in the cycle of a read.
    """

    def __init__(self, shape: ShapeLike, depth: int) -> None:
        self.shape = shape
        self.depth = depth
        super().__init__(i=In(stream.Signature(shape)), o=Out(stream.Signature(shape)), level=Out(range(depth + 1)))

    def define(self, m: Module) -> None:
        write, read = ram(m, "memory", self.shape, self.depth, transparent=True)
        first, last = Signal(range(self.depth)), Signal(range(self.depth))
        takes = Signal()
        gives = Signal()
        # A read takes one cycle, so each cycle reads the element that will be first in the next cycle. This element may
        # be written in the same cycle; therefore the port is transparent.
        m.d.comb += [
            *drive(self.o, valid=self.level != 0, payload=read.data),
            gives.eq(self.o.valid & self.o.ready),
            self.i.ready.eq((self.level != self.depth) | gives),
            takes.eq(self.i.valid & self.i.ready),
            *drive(write, addr=last, data=self.i.payload, en=takes),
            read.addr.eq(first),
        ]
        following = Signal.like(first)
        m.d.comb += following.eq(_next(first, self.depth))
        with m.If(gives):
            m.d.sync += first.eq(following)
            m.d.comb += read.addr.eq(following)
        with m.If(takes):
            m.d.sync += last.eq(_next(last, self.depth))
        m.d.sync += self.level.eq(self.level + takes - gives)


def _next(pointer: Signal, depth: int) -> Value:
    return Mux(pointer == depth - 1, 0, pointer + 1)


class TokenQueue(Part):
    """A queue of at most `depth` dependency tokens. Tokens carry no data, so the queue consists of two counters.

    The producer first reserves a place, and later pushes a token into this place. `room` is high if a place is free,
    and `available` is high if a token is present. A push or a pop in cycle t changes them in cycle t + 1, because
    outputs depend only on registers.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        super().__init__(reserve=In(1), push=In(1), pop=In(1), room=Out(1), available=Out(1))

    def define(self, m: Module) -> None:
        tokens = Signal(range(self.depth + 1))
        places = Signal(range(self.depth + 1), init=self.depth)
        m.d.sync += [tokens.eq(tokens + self.push - self.pop), places.eq(places + self.pop - self.reserve)]
        m.d.comb += drive(self, available=tokens != 0, room=places != 0)
