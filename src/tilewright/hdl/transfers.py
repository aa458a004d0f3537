"""2-D transfers between DRAM and tile memories: positions of data and zero padding on chip, and bus beats.

In a load, `Placer` converts a window to runs of tiles. `TileReceiver` writes the data of each beat that arrives, and
padding in cycles without a beat. In a store, `TileSender` reads tiles and sends beats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.axi import ADDRESS_BITS, beat_of
from tilewright.hdl.memory import BeatWrite, TileRead, Tiles
from tilewright.hdl.parts import Part, drive

INDEX_BITS = 16
WHICH_BITS = 2

#: A window on chip from tile `index` on: `rows` x `columns` tiles of data with zero padding around it. Counts may be 0.
#: The first row starts at tile `offset` of its first beat. Each further row starts `step` tiles later (modulo a beat).
WINDOW = data.StructLayout(
    dict.fromkeys(("index", "rows", "columns", "offset", "step"), INDEX_BITS)
    | dict.fromkeys(("top", "bottom", "left", "right"), 4)
)
#: A window as runs of tiles in memory number `which`. The data starts at tile `index`; `rows` is 0 if there is no data.
#: The padding consists of a run of `zeros` tiles from tile `zero` on, then `middle` runs of `between` tiles, each after
#: a gap of `columns` tiles, and then a run of `behind` tiles after a gap of `skip` tiles.
PLACEMENT = data.StructLayout(
    {"which": WHICH_BITS, "between": 5, "zeros": 22, "behind": 22}
    | dict.fromkeys(("index", "rows", "columns", "offset", "step", "zero", "middle", "skip"), INDEX_BITS)
)
#: A transfer to DRAM: the tiles from `index` on are written to `rows` rows of `columns` tiles. Row i begins at the byte
#: `address + i * stride`.
PACKED = data.StructLayout(
    dict.fromkeys(("index", "rows", "columns"), INDEX_BITS) | dict.fromkeys(("address", "stride"), ADDRESS_BITS)
)


class Placer(Part):
    """Converts a WINDOW (a block of data and its padding, in tiles) to a PLACEMENT (runs of tiles in a memory).

    The output `padded` is high if the window has padding. All outputs are combinational.
    """

    def __init__(self) -> None:
        super().__init__(window=In(WINDOW), which=In(WHICH_BITS), placement=Out(PLACEMENT), padded=Out(1))

    def define(self, m: Module) -> None:
        w = self.window
        p = self.placement
        width = Signal(17)
        first = Signal(22)
        last = Signal(22)
        between = Signal(5)
        from_rows = Signal()
        # In the order of tiles, the padding consists of a run before the first row of data (top and left edge), runs
        # between two rows (right edge, then left edge of the next row), and a run after the last row.
        m.d.comb += [
            width.eq(w.left + w.columns + w.right),
            between.eq(w.left + w.right),
            from_rows.eq((between != 0) & (w.rows > 1)),
            first.eq(Mux(w.rows == 0, (w.top + w.bottom) * width, w.top * width + w.left)),
            last.eq(Mux(w.rows == 0, 0, w.bottom * width + w.right)),
            self.padded.eq((first != 0) | (last != 0)),  # left padding is part of `first`, right padding of `last`
            p.which.eq(self.which),
            p.index.eq(w.index + first),
            p.rows.eq(Mux(w.columns == 0, 0, w.rows)),
            p.columns.eq(w.columns),
            p.offset.eq(w.offset),
            p.step.eq(w.step),
            p.between.eq(between),
            p.skip.eq(Mux(between == 0, w.rows * w.columns, w.columns)),
            p.zero.eq(w.index),
            p.zeros.eq(first),
            p.middle.eq(Mux(from_rows, w.rows - 1, 0)),
            p.behind.eq(last),
        ]
        with m.If(first == 0):  # the padding begins with a run between rows, or after the last row
            with m.If(from_rows):
                m.d.comb += drive(p, zero=w.index + w.columns, zeros=between, middle=w.rows - 2)
            with m.Else():
                m.d.comb += drive(p, zero=w.index + p.skip, zeros=last, behind=0)


class TileReceiver(Part):
    """Writes bus beats to the tiles of a PLACEMENT, and one tile of padding in each cycle without a beat.

    A placement must be accepted at least one cycle before its first beat. `idle` is high if no placement is in
    progress. `completes` is high when the last tile of a placement is written. The next placement is accepted in the
    same cycle.
    """

    def __init__(self, memories: Sequence[Tiles]) -> None:
        self.memories = memories
        super().__init__(
            placements=In(stream.Signature(PLACEMENT)),
            valid=In(1),
            data=In(memories[0].beat_bits),
            idle=Out(1),
            completes=Out(1),
            **{f"write{i}": Out(BeatWrite(tiles)) for i, tiles in enumerate(memories)},
        )

    def define(self, m: Module) -> None:
        p = Signal(PLACEMENT)
        new = self.placements.payload
        busy = Signal()
        index = Signal(INDEX_BITS)
        offset = Signal(INDEX_BITS)
        row_offset = Signal(INDEX_BITS)
        left = Signal(INDEX_BITS)
        part = Signal(INDEX_BITS)
        sizes = ([getattr(tiles, name) for tiles in self.memories] for name in ("lanes", "parts"))
        lanes, parts = (chosen(p.which, size) for size in sizes)
        beat = Signal()
        ends_tile = Signal()
        ends_row = Signal()
        taken = Signal(INDEX_BITS)
        following = Signal(INDEX_BITS)
        # A beat has `taken` tiles of the row, from tile `offset` on. A tile that is wider than a beat needs `parts`
        # beats.
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
            self.idle.eq(~busy),
            # Data and padding progress independently, so the end of either may be the last.
            self.completes.eq(
                busy
                & ((p.rows == 0) | (beat & ends_row & (p.rows == 1)))
                & ((p.zeros == 0) | (zeroes & (p.zeros == 1) & (p.middle == 0) & (p.behind == 0)))
            ),
            self.placements.ready.eq(~busy | self.completes),
        ]
        with m.If(zeroes):
            m.d.sync += drive(p, zero=p.zero + 1, zeros=p.zeros - 1)
            # The next run of padding lies between two rows. After these runs, one run follows the last row.
            with m.If(p.zeros == 1):
                with m.If(p.middle != 0):
                    m.d.sync += drive(p, zero=p.zero + 1 + p.columns, zeros=p.between, middle=p.middle - 1)
                with m.Else():
                    m.d.sync += drive(p, zero=p.zero + 1 + p.skip, zeros=p.behind, behind=0)
        with m.If(self.completes):
            m.d.sync += busy.eq(0)
        with m.If(self.placements.valid & self.placements.ready):
            m.d.sync += [p.eq(new), busy.eq(1), part.eq(0), left.eq(new.columns), index.eq(new.index)]
            m.d.sync += [offset.eq(new.offset), row_offset.eq(new.offset)]
        self._writes(m, p, beat, zeroes, (index, offset, taken, part))

    def _writes(self, m: Module, p: Any, beat: Value, zeroes: Value, place: tuple[Value, ...]) -> None:
        """Write a beat of the placement `p` or, if `zeroes` is high, a tile of padding."""
        index, offset, taken, part = place
        for number, tiles in enumerate(self.memories):
            write = getattr(self, f"write{number}")
            many = (1 << tiles.lanes) - 1
            mine = (p.which == number) if len(self.memories) > 1 else 1
            lanes_taken = ((1 << taken[: tiles.lanes.bit_length()]) - 1) << offset[: tiles.lanes.bit_length()]
            with m.If(mine):
                m.d.comb += drive(
                    write,
                    # The first lane of the beat is `offset` tiles before the first written tile.
                    index=Mux(beat, index - offset, p.zero),
                    part=part,
                    data=Mux(beat, self.data, 0),
                    mask=Mux(beat, lanes_taken & many, Mux(zeroes, 1, 0)),
                    whole=zeroes,
                )


def chosen(which: Value, options: Sequence[Any]) -> Any:
    """Return option number `which`. Larger numbers select the last option."""
    selected = options[-1]
    for number in reversed(range(len(options) - 1)):
        selected = Mux(which == number, options[number], selected)
    return selected


class TileSender(Part):
    """Reads tiles and sends them as beats. `start` loads the transfer from `packed`; reads begin in the next cycle.

    A beat is sent 2 cycles after its read. `active` is high while tiles remain to be read. `last` marks the last beat
    of each burst that RowBursts generates for the same transfer.
    """

    def __init__(self, tiles: Tiles, longest: int) -> None:
        self.tiles = tiles
        self.longest = longest
        super().__init__(
            packed=In(PACKED),
            start=In(1),
            active=Out(1),
            read=Out(TileRead(tiles, tiles.lanes)),
            beats=Out(stream.Signature(beat_of(tiles.beat_bits))),
        )

    def define(self, m: Module) -> None:
        t = self.tiles
        log = ceil_log2(t.beat_bits // 8)
        log_tile = ceil_log2(t.tile_bits // 8)
        within = log + ceil_log2(self.longest)  # the number of address bits in the longest burst
        p = Signal(PACKED)
        part = Signal(range(max(2, t.parts)))
        row = Signal(within)
        left = Signal(INDEX_BITS)
        place = Signal(within - log)  # position of the beat within the longest burst
        offset = Signal(range(t.lanes + 1))
        taken = Signal(INDEX_BITS)
        ends_tile = Signal()
        ends_row = Signal()
        following = Signal(within)
        go = Signal()  # the whole pipeline stops (0) while a beat waits for the bus
        m.d.comb += [
            go.eq(~self.beats.valid | self.beats.ready),
            taken.eq(Mux(t.lanes - offset < left, t.lanes - offset, left)),
            ends_tile.eq(part == t.parts - 1),
            ends_row.eq(ends_tile & (taken == left)),
            following.eq(row + p.stride),
            *drive(self.read, index=p.index - offset, en=self.active & go),
        ]

        def begin(address: Any) -> list[Any]:
            """Return assignments that set the registers to the first beat of the row at `address`."""
            first = address[log_tile:log] if t.lanes > 1 else 0
            return [row.eq(address), place.eq(address[log:within]), offset.eq(first)]

        read = Signal()
        last = Signal()
        part_read = Signal.like(part)
        mask = Signal(t.lanes)
        beat = self.beats.payload
        with m.If(go):
            m.d.sync += drive(
                beat,
                data=self.read.data.word_select(part_read, t.beat_bits),
                strobes=Cat(bit.replicate(t.beat_bits // 8 // t.lanes) for bit in mask),
                last=last,
            )
            m.d.sync += [
                read.eq(self.active),
                mask.eq(((1 << taken[: t.lanes.bit_length()]) - 1) << offset),
                last.eq(ends_row | (place == self.longest - 1)),
                part_read.eq(part),
                self.beats.valid.eq(read),
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
