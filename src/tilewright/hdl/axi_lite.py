"""Control registers behind AXI4-Lite: 32 bits each, one transfer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

ADDRESS_BITS = 12  # 4 KiB, the smallest window that interconnects map
#: A word to write, and which of its bytes.
WORD = data.StructLayout({"data": 32, "strobes": 4})


class AxiLite(wiring.Signature):
    """The five channels, from the side of the master; responses are always OKAY (0)."""

    def __init__(self) -> None:
        super().__init__(
            {
                "aw": Out(stream.Signature(ADDRESS_BITS)),
                "w": Out(stream.Signature(WORD)),
                "b": In(stream.Signature(2)),
                "ar": Out(stream.Signature(ADDRESS_BITS)),
                "r": In(stream.Signature(32)),
            }
        )


class AxiLiteRegisters(wiring.Component):
    """`written`: names of registers that the host writes, by byte offset; `read`: those that it only reads.

    A written register is a port of its value; `NAME_strobe` is high in the cycle in which the port first has what was
    written. A word is taken when address and data are there, and no response is waiting; other offsets read as 0.
    """

    def __init__(self, written: Mapping[int, str], read: Mapping[int, str]) -> None:
        self.written, self.read = dict(written), dict(read)
        super().__init__(
            {
                "bus": In(AxiLite()),
                **{name: Out(32) for name in written.values()},
                **{f"{name}_strobe": Out(1) for name in written.values()},
                **{name: In(32) for name in read.values()},
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, bus = Module(), self.bus
        takes = Signal()
        m.d.comb += [
            takes.eq(bus.aw.valid & bus.w.valid & (~bus.b.valid | bus.b.ready)),
            bus.aw.ready.eq(takes),
            bus.w.ready.eq(takes),
        ]
        with m.If(bus.b.ready):
            m.d.sync += bus.b.valid.eq(0)
        with m.If(takes):
            m.d.sync += bus.b.valid.eq(1)
        for offset, name in self.written.items():
            value, mine = getattr(self, name), takes & (bus.aw.payload[2:] == offset >> 2)
            m.d.sync += getattr(self, f"{name}_strobe").eq(mine)
            with m.If(mine):
                for byte in range(4):
                    part = slice(8 * byte, 8 * byte + 8)
                    m.d.sync += value[part].eq(Mux(bus.w.payload.strobes[byte], bus.w.payload.data[part], value[part]))

        m.d.comb += bus.ar.ready.eq(~bus.r.valid | bus.r.ready)
        with m.If(bus.ar.ready):
            m.d.sync += [bus.r.valid.eq(bus.ar.valid), bus.r.payload.eq(0)]
            for offset, name in (self.written | self.read).items():
                with m.If(bus.ar.payload[2:] == offset >> 2):
                    m.d.sync += bus.r.payload.eq(getattr(self, name))
        return m
