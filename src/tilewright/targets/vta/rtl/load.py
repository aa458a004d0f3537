"""The load unit: INP and WGT, commands ahead of data."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.bursts import BURST, RowBursts
from tilewright.hdl.fifo import StreamFifo
from tilewright.hdl.memory import BeatWrite
from tilewright.hdl.placement import PLACEMENT, Placer
from tilewright.hdl.receive import TileReceiver
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.rtl.dispatch import Dispatcher, joined
from tilewright.targets.vta.rtl.moving import address_of, place, rows_of
from tilewright.targets.vta.rtl.words import INSN_BITS, Neighbours, fields, tiles
from tilewright.targets.vta.timing.tilewright import LONGEST, OUTSTANDING


class Load(wiring.Component):
    """A LOAD without padding lets the next one in when its last burst is granted; loads end in order."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "insn": In(stream.Signature(INSN_BITS)),
                "tokens": Out(Neighbours()),
                "inp_base": In(32),
                "wgt_base": In(32),
                "client": Out(stream.Signature(BURST)),
                "valid": In(1),
                "data": In(config.bus_bits),
                "inp": Out(BeatWrite(tiles(config.inp, config))),
                "wgt": Out(BeatWrite(tiles(config.wgt, config))),
                "starts": Out(1),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        m.submodules.dispatch = dispatch = Dispatcher(config, (False, True))
        m.submodules.placer = placer = Placer()
        m.submodules.bursts = bursts = RowBursts(config.bus_bits, LONGEST)
        m.submodules.placements = placements = StreamFifo(PLACEMENT, OUTSTANDING + 2)
        m.submodules.receiver = receiver = TileReceiver([tiles(config.inp, config), tiles(config.wgt, config)])
        m.submodules.leaving = leaving = StreamFifo(3, OUTSTANDING)
        wiring.connect(m, dispatch.insn, wiring.flipped(self.insn))
        wiring.connect(m, bursts.bursts, wiring.flipped(self.client))
        wiring.connect(m, placements.o, receiver.placements)
        wiring.connect(m, receiver.write0, wiring.flipped(self.inp))
        wiring.connect(m, receiver.write1, wiring.flipped(self.wgt))

        mem, memories = fields(dispatch.current, config.formats.mem), (config.inp, config.wgt)
        is_wgt, transfers, works, address = Signal(), Signal(), Signal(), Signal(32)
        m.d.comb += [
            is_wgt.eq(mem["memory_type"] == Memory.WGT),
            transfers.eq((mem["x_size"] != 0) & (mem["y_size"] != 0)),
            works.eq(transfers | placer.padded),
            address.eq(address_of(mem, (self.inp_base, self.wgt_base), memories, is_wgt)),
        ]
        m.d.comb += place(placer, mem, address, mem["y_size"], config, memories, is_wgt, padded=~is_wgt)
        m.d.comb += rows_of(bursts.rows, mem, address, mem["y_size"], memories, is_wgt)

        prepare, runs, padded = Signal(), Signal(), Signal()
        m.d.sync += prepare.eq(dispatch.start)
        with m.If(prepare):
            m.d.sync += [runs.eq(1), padded.eq(placer.padded)]
        with m.If(dispatch.ends):
            m.d.sync += runs.eq(0)
        arrived = (placements.level == 0) & receiver.idle
        m.d.comb += [
            bursts.start.eq(prepare & transfers),
            placements.i.valid.eq(prepare & works),
            placements.i.payload.eq(placer.placement),
            receiver.valid.eq(self.valid),
            receiver.data.eq(self.data),
            dispatch.finished.eq((prepare & ~works) | (runs & ~bursts.active & (~padded | arrived))),
        ]

        # In order: each when its data have come.
        done = Signal(range(2 * OUTSTANDING + 2))
        ends, waits = Signal(), leaving.o.payload[2]
        m.d.comb += [
            dispatch.may_end.eq(leaving.level != OUTSTANDING),
            leaving.i.valid.eq(dispatch.ends),
            leaving.i.payload.eq(Cat(mem["push_prev"], mem["push_next"], works)),
            ends.eq(leaving.o.valid & (~waits | (done != 0))),
            leaving.o.ready.eq(ends),
            self.tokens.push.eq(leaving.o.payload[:2] & ends.replicate(2)),
        ]
        m.d.sync += done.eq(done + receiver.completes - (ends & waits))
        m.d.comb += joined(self.tokens, dispatch)
        m.d.comb += [self.starts.eq(dispatch.start), self.ends.eq(ends)]
        return m
