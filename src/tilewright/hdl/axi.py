"""AXI4 masters: read commands of several clients in order of priority, write commands of one."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.bursts import BURST
from tilewright.hdl.queues import StreamFifo
from tilewright.hdl.send import beat_of


class ReadBus(wiring.Signature):
    """AR and R; size, burst type and ID never change, the top names them."""

    def __init__(self, beat_bits: int) -> None:
        beat = data.StructLayout({"data": beat_bits, "last": 1})
        super().__init__({"ar": Out(stream.Signature(BURST)), "r": In(stream.Signature(beat))})


class WriteBus(wiring.Signature):
    """AW, W and B."""

    def __init__(self, beat_bits: int) -> None:
        super().__init__(
            {
                "aw": Out(stream.Signature(BURST)),
                "w": Out(stream.Signature(beat_of(beat_bits))),
                "b": In(stream.Signature(1)),
            }
        )


class Bus(wiring.Signature):
    """Both."""

    def __init__(self, beat_bits: int) -> None:
        super().__init__({**ReadBus(beat_bits).members, **WriteBus(beat_bits).members})


class ReadMaster(wiring.Component):
    """Grants a burst a cycle, of equal ones the lowest client's, at most `in_flight` that have not ended.

    Beats reach the client whose bit of `valid` is set, a cycle after the bus; clients are always ready for them.
    """

    def __init__(self, beat_bits: int, clients: int, in_flight: int) -> None:
        self.clients, self.in_flight = clients, in_flight
        super().__init__(
            {
                "bus": Out(ReadBus(beat_bits)),
                "valid": Out(clients),
                "data": Out(beat_bits),
                **{f"client{i}": In(stream.Signature(BURST)) for i in range(clients)},
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.owners = owners = StreamFifo(range(max(2, self.clients)), self.in_flight)
        ar, r = self.bus.ar, self.bus.r
        may = Signal()
        m.d.comb += may.eq((~ar.valid | ar.ready) & (owners.level != self.in_flight))
        with m.If(ar.ready):
            m.d.sync += ar.valid.eq(0)
        taken: Any = 0
        for number in range(self.clients):
            client = getattr(self, f"client{number}")
            m.d.comb += client.ready.eq(may & ~taken)
            with m.If(client.valid & client.ready):
                m.d.sync += [ar.valid.eq(1), ar.payload.eq(client.payload)]
                m.d.comb += [owners.i.valid.eq(1), owners.i.payload.eq(number)]
            taken = taken | client.valid
        beat, last = Signal(), Signal()
        m.d.comb += [
            r.ready.eq(1),
            self.valid.eq(beat << owners.o.payload),
            owners.o.ready.eq(beat & last),
        ]
        m.d.sync += [beat.eq(r.valid), last.eq(r.payload.last), self.data.eq(r.payload.data)]
        return m


class WriteMaster(wiring.Component):
    """Passes commands on, one a cycle. `granted` and `ended` count bursts, modulo 2^16."""

    def __init__(self, beat_bits: int) -> None:
        super().__init__(
            {
                "bus": Out(WriteBus(beat_bits)),
                "client": In(stream.Signature(BURST)),
                "beats": In(stream.Signature(beat_of(beat_bits))),
                "granted": Out(16),
                "ended": Out(16),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        aw = self.bus.aw
        wiring.connect(m, wiring.flipped(self.bus.w), wiring.flipped(self.beats))
        m.d.comb += [self.client.ready.eq(~aw.valid | aw.ready), self.bus.b.ready.eq(1)]
        with m.If(self.client.ready):
            m.d.sync += [aw.valid.eq(self.client.valid), aw.payload.eq(self.client.payload)]
        m.d.sync += [
            self.granted.eq(self.granted + (self.client.valid & self.client.ready)),
            self.ended.eq(self.ended + self.bus.b.valid),
        ]
        return m
