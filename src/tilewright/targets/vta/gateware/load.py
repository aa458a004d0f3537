"""The load unit: INP, WGT and PAR, commands ahead of data."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from tilewright.hdl.axi import BURST, RowBursts
from tilewright.hdl.memory import BeatWrite
from tilewright.hdl.queues import StreamFifo
from tilewright.hdl.transfers import PLACEMENT, WHICH_BITS, Placer, TileReceiver
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.dispatch import Dispatcher, joined
from tilewright.targets.vta.gateware.moving import address_of, place, rows_of
from tilewright.targets.vta.gateware.words import INSN_BITS, Neighbours, fields, tiles
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.semantics import SEMANTICS
from tilewright.targets.vta.timing.tilewright import LONGEST, OUTSTANDING


class Load(wiring.Component):
    """A LOAD without padding lets the next one in when its last burst is granted; loads end in order."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.memories = {"inp": config.inp, "wgt": config.wgt}
        if config.has_parameters:
            self.memories["par"] = config.par
        super().__init__(
            {
                "insn": In(stream.Signature(INSN_BITS)),
                "tokens": Out(Neighbours()),
                "client": Out(stream.Signature(BURST)),
                "valid": In(1),
                "data": In(config.bus_bits),
                **{f"{name}_base": In(32) for name in self.memories},
                **{name: Out(BeatWrite(tiles(sram, config))) for name, sram in self.memories.items()},
                "starts": Out(1),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config, memories = Module(), self.config, list(self.memories.values())
        rules = SEMANTICS[config.semantics]
        m.submodules.dispatch = dispatch = Dispatcher(config, (False, True))
        m.submodules.placer = placer = Placer()
        m.submodules.bursts = bursts = RowBursts(config.bus_bits, LONGEST)
        m.submodules.placements = placements = StreamFifo(PLACEMENT, OUTSTANDING + 2)
        m.submodules.receiver = receiver = TileReceiver([tiles(sram, config) for sram in memories])
        m.submodules.leaving = leaving = StreamFifo(3, OUTSTANDING)
        wiring.connect(m, dispatch.insn, wiring.flipped(self.insn))
        wiring.connect(m, bursts.bursts, wiring.flipped(self.client))
        wiring.connect(m, placements.o, receiver.placements)
        for number, name in enumerate(self.memories):
            wiring.connect(m, getattr(receiver, f"write{number}"), wiring.flipped(getattr(self, name)))

        mem, bases = fields(dispatch.current, config.formats.mem), [getattr(self, f"{n}_base") for n in self.memories]
        which, transfers, works, address = Signal(WHICH_BITS), Signal(), Signal(), Signal(32)
        with m.Switch(mem["memory_type"]):
            for number, memory in enumerate((Memory.INP, Memory.WGT, Memory.PAR)[: len(memories)]):
                with m.Case(memory):
                    m.d.comb += which.eq(number)
        m.d.comb += [
            transfers.eq((mem["x_size"] != 0) & (mem["y_size"] != 0)),
            works.eq(transfers | (placer.padded & ((mem["x_size"] != 0) | rules.empty_loads_pad))),
            address.eq(address_of(mem, bases, memories, which)),
        ]
        m.d.comb += place(
            placer, mem, address, mem["y_size"], config, memories, which, padded=(which == 0) | rules.full_loads
        )
        m.d.comb += rows_of(bursts.rows, mem, address, mem["y_size"], memories, which)

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
