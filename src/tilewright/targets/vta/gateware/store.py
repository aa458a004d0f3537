"""The store unit: out tiles to DRAM, at a beat a cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.axi import BURST, RowBursts, beat_of
from tilewright.hdl.memory import TileRead
from tilewright.hdl.queues import StreamFifo
from tilewright.hdl.transfers import TileSender
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.dispatch import Dispatcher, joined
from tilewright.targets.vta.gateware.moving import address_of, rows_of
from tilewright.targets.vta.gateware.words import INSN_BITS, Neighbours, fields, tiles
from tilewright.targets.vta.timing.tilewright import LONGEST, OUTSTANDING


class Store(wiring.Component):
    """The next STORE starts when the tiles of this one have been read; each ends with its last write response.

    `granted` and `ended` count bursts that were asked for and that were answered.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        out = tiles(config.out, config)
        super().__init__(
            {
                "insn": In(stream.Signature(INSN_BITS)),
                "tokens": Out(Neighbours()),
                "out_base": In(32),
                "client": Out(stream.Signature(BURST)),
                "beats": Out(stream.Signature(beat_of(config.bus_bits))),
                "granted": In(16),
                "ended": In(16),
                "out": Out(TileRead(out, out.lanes)),
                "starts": Out(1),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        m.submodules.dispatch = dispatch = Dispatcher(config, (True, False))
        m.submodules.bursts = bursts = RowBursts(config.bus_bits, LONGEST)
        m.submodules.sender = sender = TileSender(tiles(config.out, config), LONGEST)
        m.submodules.leaving = leaving = StreamFifo(2 + 16, OUTSTANDING)
        wiring.connect(m, dispatch.insn, wiring.flipped(self.insn))
        wiring.connect(m, bursts.bursts, wiring.flipped(self.client))
        wiring.connect(m, sender.beats, wiring.flipped(self.beats))
        wiring.connect(m, sender.read, wiring.flipped(self.out))
        mem, memories = fields(dispatch.current, config.formats.mem), (config.out,)
        prepare, runs, transfers, address = Signal(), Signal(), Signal(), Signal(32)
        m.d.sync += prepare.eq(dispatch.start)
        with m.If(prepare):
            m.d.sync += runs.eq(1)
        with m.If(dispatch.ends):
            m.d.sync += runs.eq(0)
        m.d.comb += [
            transfers.eq((mem["x_size"] != 0) & (mem["y_size"] != 0)),
            address.eq(address_of(mem, (self.out_base,), memories, transfers)),
            bursts.start.eq(prepare & transfers),
            sender.start.eq(prepare & transfers),
            sender.packed.index.eq(mem["sram_base"]),
            sender.packed.columns.eq(mem["x_size"]),
            sender.packed.rows.eq(mem["y_size"]),
            sender.packed.address.eq(address),
            sender.packed.stride.eq(bursts.rows.stride),
            dispatch.finished.eq((prepare & ~transfers) | (runs & ~bursts.active & ~sender.active)),
        ]
        m.d.comb += rows_of(bursts.rows, mem, address, mem["y_size"], memories, transfers)

        # In order: each when all bursts granted before have been answered.
        ends, ticket = Signal(), Signal(16)
        m.d.comb += [
            dispatch.may_end.eq(leaving.level != OUTSTANDING),
            leaving.i.valid.eq(dispatch.ends),
            leaving.i.payload.eq(Cat(dispatch.reserve, self.granted)),
            ticket.eq(leaving.o.payload[2:]),
            ends.eq(leaving.o.valid & ~(self.ended - ticket)[15]),
            leaving.o.ready.eq(ends),
            self.tokens.push.eq(leaving.o.payload[:2] & ends.replicate(2)),
            self.starts.eq(dispatch.start),
            self.ends.eq(ends),
        ]
        m.d.comb += joined(self.tokens, dispatch)
        return m
