"""AXI4 gateware: bursts of 2-D transfers, a read master, a write master, and AXI4-Lite registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.memory import StreamFifo
from tilewright.hdl.parts import Part, drive

ADDRESS_BITS = 32

#: A burst command: the byte address of its first beat, and its number of beats minus 1, as AXI encodes it.
BURST = data.StructLayout({"address": ADDRESS_BITS, "beats": 8})
#: A 2-D transfer: `rows` rows of `row_bytes` bytes; row i begins at `address + i * stride`. No count may be 0.
ROWS = data.StructLayout({"address": ADDRESS_BITS, "stride": ADDRESS_BITS, "rows": 16, "row_bytes": ADDRESS_BITS})
LITE_ADDRESS_BITS = 12  # 4 KiB, the smallest address range that interconnects assign
#: A word to write; bit i of `strobes` enables byte i.
WORD = data.StructLayout({"data": 32, "strobes": 4})


def beat_of(bits: int) -> data.StructLayout:
    """Return the layout of a write beat of `bits` data bits. Bit i of the field `strobes` enables byte i."""
    return data.StructLayout({"data": bits, "strobes": bits // 8, "last": 1})


class RowBursts(Part):
    """Splits a 2-D transfer into AXI bursts, one per cycle. `start` loads the transfer from `rows`.

    The first burst is offered one cycle after `start`. Bursts end at multiples of `longest` beats (a power of two, at
    most 4 KiB), so that no burst crosses a 4 KiB page, as AXI requires. `active` is high while bursts remain. `last` is
    high when the last burst is accepted.
    """

    def __init__(self, beat_bits: int, longest: int) -> None:
        self.beat_bytes = beat_bits // 8
        self.longest = longest
        super().__init__(rows=In(ROWS), start=In(1), active=Out(1), last=Out(1), bursts=Out(stream.Signature(BURST)))

    def define(self, m: Module) -> None:
        log = ceil_log2(self.beat_bytes)
        edge = ceil_log2(self.longest)
        row, stride, row_bytes, following = (Signal(ADDRESS_BITS, name=n) for n in ("row", "stride", "size", "next"))
        rows = Signal(16)
        beat = Signal(ADDRESS_BITS - log)
        left = Signal(ADDRESS_BITS - log)
        to_edge = Signal(range(self.longest + 1))
        beats = Signal(range(self.longest + 1))
        ends = Signal()
        # `left` beats of this row remain, beginning at beat `beat`. A burst ends at the next multiple of `longest`, or
        # at the end of the row.
        m.d.comb += [
            to_edge.eq(self.longest - beat[:edge]),
            ends.eq(left <= to_edge),
            beats.eq(Mux(ends, left, to_edge)),
            self.bursts.valid.eq(self.active),
            *drive(self.bursts.payload, address=beat << log, beats=beats - 1),
            self.last.eq(self.active & self.bursts.ready & ends & (rows == 1)),
            following.eq(row + stride),
        ]

        def begin(address: Any, size: Any) -> list[Any]:
            # A row may begin and end in the middle of a beat.
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


class ReadBus(wiring.Signature):
    """The AXI4 read channels AR and R. Size, burst type and ID are constants, which the top module sets."""

    def __init__(self, beat_bits: int) -> None:
        beat = data.StructLayout({"data": beat_bits, "last": 1})
        super().__init__({"ar": Out(stream.Signature(BURST)), "r": In(stream.Signature(beat))})


class WriteBus(wiring.Signature):
    """The AXI4 write channels AW, W and B, without the constant signals (see ReadBus)."""

    def __init__(self, beat_bits: int) -> None:
        super().__init__(
            {
                "aw": Out(stream.Signature(BURST)),
                "w": Out(stream.Signature(beat_of(beat_bits))),
                "b": In(stream.Signature(1)),
            }
        )


class Bus(wiring.Signature):
    """All five AXI4 channels: ReadBus and WriteBus."""

    def __init__(self, beat_bits: int) -> None:
        super().__init__({**ReadBus(beat_bits).members, **WriteBus(beat_bits).members})


class ReadMaster(Part):
    """Reads over AXI4 for several clients. In each cycle, the requesting client with the lowest number starts a burst.

    At most `in_flight` bursts are unfinished. One cycle after a beat arrives on the bus, it appears on `data`, and the
    bit of its client in `valid` is high. Clients must always be ready for a beat.
    """

    def __init__(self, beat_bits: int, clients: int, in_flight: int) -> None:
        self.clients = clients
        self.in_flight = in_flight
        super().__init__(
            bus=Out(ReadBus(beat_bits)),
            valid=Out(clients),
            data=Out(beat_bits),
            **{f"client{i}": In(stream.Signature(BURST)) for i in range(clients)},
        )

    def define(self, m: Module) -> None:
        # All bursts have the same ID, so AXI returns beats in the order of the requests. The queue `owners` has the
        # clients in this order, so its first entry is the client of the next beat.
        m.submodules.owners = owners = StreamFifo(range(max(2, self.clients)), self.in_flight)
        ar = self.bus.ar
        r = self.bus.r
        may = Signal()
        m.d.comb += may.eq((~ar.valid | ar.ready) & (owners.level != self.in_flight))
        with m.If(ar.ready):
            m.d.sync += ar.valid.eq(0)
        taken: Any = 0
        for number in range(self.clients):
            client = getattr(self, f"client{number}")
            m.d.comb += client.ready.eq(may & ~taken)
            with m.If(client.valid & client.ready):
                m.d.sync += drive(ar, valid=1, payload=client.payload)
                m.d.comb += drive(owners.i, valid=1, payload=number)
            taken = taken | client.valid
        beat = Signal()
        last = Signal()
        m.d.comb += [
            r.ready.eq(1),
            self.valid.eq(beat << owners.o.payload),
            owners.o.ready.eq(beat & last),
        ]
        m.d.sync += [beat.eq(r.valid), last.eq(r.payload.last), self.data.eq(r.payload.data)]


class WriteMaster(Part):
    """Writes over AXI4 for one client. `granted` counts forwarded bursts and `ended` finished bursts, modulo 2^16."""

    def __init__(self, beat_bits: int) -> None:
        super().__init__(
            bus=Out(WriteBus(beat_bits)),
            client=In(stream.Signature(BURST)),
            beats=In(stream.Signature(beat_of(beat_bits))),
            granted=Out(16),
            ended=Out(16),
        )

    def define(self, m: Module) -> None:
        aw = self.bus.aw
        wiring.connect(m, wiring.flipped(self.bus.w), wiring.flipped(self.beats))
        m.d.comb += [self.client.ready.eq(~aw.valid | aw.ready), self.bus.b.ready.eq(1)]
        with m.If(self.client.ready):
            m.d.sync += drive(aw, valid=self.client.valid, payload=self.client.payload)
        m.d.sync += drive(
            self, granted=self.granted + (self.client.valid & self.client.ready), ended=self.ended + self.bus.b.valid
        )


class AxiLite(wiring.Signature):
    """The five AXI4-Lite channels. Directions are those of the master. Responses are always OKAY (0)."""

    def __init__(self, address_bits: int = LITE_ADDRESS_BITS) -> None:
        super().__init__(
            {
                "aw": Out(stream.Signature(address_bits)),
                "w": Out(stream.Signature(WORD)),
                "b": In(stream.Signature(2)),
                "ar": Out(stream.Signature(address_bits)),
                "r": In(stream.Signature(32)),
            }
        )


class AxiLiteRegisters(Part):
    """Control registers on AXI4-Lite. Both arguments map byte offsets to names of registers.

    The host can write and read the registers in `written`, and only read those in `read`. A register NAME of `written`
    is an output port; `NAME_strobe` is high in the first cycle in which the port has a new value. A register of `read`
    is an input port. A write is accepted when its address and data are both valid and no response is pending. Other
    offsets read as 0.

    A write to the upper half of the address range goes to a write-only memory outside of this component: for one cycle,
    `memory_write` is high, with the word's index in `memory_address` and its value in `memory_data`.
    """

    def __init__(
        self, written: Mapping[int, str], read: Mapping[int, str], address_bits: int = LITE_ADDRESS_BITS
    ) -> None:
        self.written = dict(written)
        self.read = dict(read)
        super().__init__(
            bus=In(AxiLite(address_bits)),
            memory_address=Out(address_bits - 3),
            memory_data=Out(32),
            memory_write=Out(1),
            **{name: Out(32) for name in written.values()},
            **{f"{name}_strobe": Out(1) for name in written.values()},
            **{name: In(32) for name in read.values()},
        )

    def define(self, m: Module) -> None:
        bus = self.bus
        takes = Signal()
        m.d.comb += drive(
            self,
            memory_address=bus.aw.payload[2:],
            memory_data=bus.w.payload.data,
            memory_write=takes & bus.aw.payload[-1],
        )
        m.d.comb += [
            # A write needs its address, its data, and room for its response.
            takes.eq(bus.aw.valid & bus.w.valid & (~bus.b.valid | bus.b.ready)),
            bus.aw.ready.eq(takes),
            bus.w.ready.eq(takes),
        ]
        with m.If(bus.b.ready):
            m.d.sync += bus.b.valid.eq(0)
        with m.If(takes):
            m.d.sync += bus.b.valid.eq(1)
        for offset, name in self.written.items():
            value = getattr(self, name)
            mine = takes & (bus.aw.payload[2:] == offset >> 2)
            m.d.sync += getattr(self, f"{name}_strobe").eq(mine)
            with m.If(mine):
                for byte in range(4):
                    part = slice(8 * byte, 8 * byte + 8)
                    m.d.sync += value[part].eq(Mux(bus.w.payload.strobes[byte], bus.w.payload.data[part], value[part]))

        # A read is accepted if the register of the answer is free, or becomes free in this cycle.
        m.d.comb += bus.ar.ready.eq(~bus.r.valid | bus.r.ready)
        with m.If(bus.ar.ready):
            m.d.sync += [bus.r.valid.eq(bus.ar.valid), bus.r.payload.eq(0)]
            for offset, name in (self.written | self.read).items():
                with m.If(bus.ar.payload[2:] == offset >> 2):
                    m.d.sync += bus.r.payload.eq(getattr(self, name))
