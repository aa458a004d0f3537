"""The DMA: a bus master that reads main memory in bursts, and writes the beats to B, image memory or tables."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, drive
from tilewright.targets.cfu.config import IMAGE_BYTES, Config
from tilewright.targets.cfu.isa.dma import CHANNEL_BYTES, LINE_BYTES, PORT_BYTES, ROW_BYTES
from tilewright.targets.cfu.isa.state import CHANNELS, FIELDS, QUEUE

from .image import ADDRESS

BEAT = 8 * PORT_BYTES  # the bits of a beat
COUNT = 17  # the bits of a counter of beats
#: The kinds of fetches, by destination.
TO_B, TO_IMAGE, TO_TABLES = range(3)
#: A fetch. `address` is in units of beats; `place` is the first row, byte or entry of the destination.
FETCH = data.StructLayout({"kind": 2, "address": 29, "beats": COUNT, "place": ADDRESS})


class BusMaster(wiring.Signature):
    """A port that reads main memory. A burst is requested in a cycle with `valid` and `ready`.

    A burst has `bytes` bytes from `address` on; both are multiples of 8. Its beats of 8 bytes come in order, each in a
    cycle with `data_valid`, and the port always accepts them. A beat with `data_error` is not written. The next burst
    is requested after the last beat.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "address": Out(32),
                "bytes": Out(ceil_log2(ROW_BYTES) + 1),
                "data_valid": In(1),
                "data": In(BEAT),
                "data_error": In(1),
            }
        )


class Dma(Part):
    """Executes fetches one after the other. Up to QUEUE fetches can be unfinished; further fetches are lost.

    `fetch`, `fetch_image`, `fetch_channels` and `put` are high in the cycle of their command. A fetch writes to B from
    row FETCH_ROW (a register in this part) on, to the image memory from `pointer` on, or to the channel tables from
    entry `channel` on. `fetching` is high while a fetch is unfinished, `filling` while a fetch to the image memory is
    unfinished, and `tabling` while a fetch to the tables is unfinished. `waiting` is high from the cycle after `mark`
    until all fetches that were unfinished at `mark` are finished.

    While `to_b`, `to_image` or `to_tables` is high, beat number `beat` of a fetch that begins at `place` is written.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.burst = ROW_BYTES if "burst" in config.extension_names else LINE_BYTES
        commands = ("put", "fetch", "fetch_image", "fetch_channels", "mark")
        told = ("fetching", "filling", "tabling", "waiting", "to_b", "to_image", "to_tables")
        super().__init__(
            **dict.fromkeys(commands, In(1)),
            **dict.fromkeys(told, Out(1)),
            **dict.fromkeys(("first", "second"), In(32)),
            **dict.fromkeys(("pointer", "channel"), In(ADDRESS)),
            bus=Out(BusMaster()),
            beat=Out(COUNT),
            place=Out(ADDRESS),
            data=Out(BEAT),
        )

    def define(self, m: Module) -> None:
        m.submodules.queue = queue = fifo.SyncFIFO(width=FETCH.size, depth=QUEUE)
        entry = Signal(FETCH)
        head = FETCH(queue.r_data)
        row = Signal(ADDRESS, name="fetch_row")
        with m.If(self.put & (self.first == FIELDS["FETCH_ROW"])):
            m.d.sync += row.eq(self.second)
        size = Signal(37)  # in bytes
        most = Mux(self.fetch, self.config.buffer_rows * self.config.array, IMAGE_BYTES)
        most = Mux(self.fetch_channels, CHANNELS * CHANNEL_BYTES, most)
        asks = Signal(name="asks")
        pushes = Signal(name="pushes")
        pops = Signal(name="pops")
        m.d.comb += drive(
            entry,
            kind=Mux(self.fetch_channels, TO_TABLES, self.fetch_image),
            address=self.first >> 3,
            beats=(size + PORT_BYTES - 1) >> 3,
            place=Mux(self.fetch_channels, self.channel, Mux(self.fetch_image, self.pointer, row)),
        )
        m.d.comb += drive(queue, w_data=entry, w_en=pushes, r_en=pops)
        m.d.comb += [
            asks.eq(self.fetch | self.fetch_image | self.fetch_channels),
            size.eq(Mux(self.fetch_channels, self.second << ceil_log2(CHANNEL_BYTES), self.second)),
            pushes.eq(asks & (size != 0) & (size <= most) & queue.w_rdy),
            self.fetching.eq(queue.level != 0),
        ]
        # Fetches end in the order in which they were queued. So a counter shows when the newest fetch of a kind ends.
        # It starts with the number of fetches in the queue, and is decremented at the end of each fetch.
        left = queue.level - pops  # the number of unfinished fetches after this cycle, without the new fetch
        for told, sets, count in (
            (self.filling, pushes & self.fetch_image, left + 1),
            (self.tabling, pushes & self.fetch_channels, left + 1),
            (self.waiting, self.mark, left),
        ):
            remaining = Signal(range(QUEUE + 1), name="remaining")
            m.d.comb += told.eq(remaining != 0)
            with m.If(pops & told):
                m.d.sync += remaining.eq(remaining - 1)
            with m.If(sets):
                m.d.sync += remaining.eq(count)
        self._receive(m, queue.r_rdy, head, pops)

    def _receive(self, m: Module, there: Any, head: Any, pops: Signal) -> None:
        bus = self.bus
        receives = Signal(name="receives")
        most = self.burst // PORT_BYTES
        open_ = Signal(range(most + 1), name="open")  # the number of beats of this burst that have not arrived
        left = Signal(COUNT)
        length = Signal(range(most + 1), name="length")
        arrives = receives & bus.data_valid
        good = arrives & ~bus.data_error
        m.d.comb += drive(bus, valid=there & ~receives, address=(head.address + self.beat) << 3, bytes=length << 3)
        m.d.comb += drive(
            self,
            data=bus.data,
            place=head.place,
            to_b=good & (head.kind == TO_B),
            to_image=good & (head.kind == TO_IMAGE),
            to_tables=good & (head.kind == TO_TABLES),
        )
        m.d.comb += [
            left.eq(head.beats - self.beat),
            length.eq(Mux(left < most, left, most)),
            pops.eq(arrives & (left == 1)),
        ]
        with m.If(bus.valid & bus.ready):
            m.d.sync += [receives.eq(1), open_.eq(length)]
        with m.If(arrives):
            m.d.sync += [open_.eq(open_ - 1), self.beat.eq(Mux(pops, 0, self.beat + 1))]
            with m.If(open_ == 1):
                m.d.sync += receives.eq(0)
