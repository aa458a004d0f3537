"""LOAD and STORE: their fields as the blocks for 2-D transfers take them, the load unit and the store unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.bursts import BURST, RowBursts
from tilewright.hdl.memory import BeatWrite, TileRead
from tilewright.hdl.placement import PLACEMENT, WHICH_BITS, Placer
from tilewright.hdl.queues import StreamFifo
from tilewright.hdl.receive import TileReceiver, chosen
from tilewright.hdl.send import TileSender, beat_of
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.gateware.units import INSN_BITS, Dispatcher, Neighbours, fields, joined, log_bytes, tiles
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.timing.tilewright import LONGEST, OUTSTANDING


def place(
    placer: Placer,
    mem: Mapping[str, Value],
    address: Signal,
    rows: Any,
    config: Config,
    memories: Sequence[Sram],
    which: Value,
    padded: Value,
) -> list[Any]:
    """The window of a LOAD into one of some memories; pads count where `padded`."""

    def offset(sram: Sram) -> Any:
        """Tiles before the first in its beat."""
        lanes = ceil_log2(tiles(sram, config).lanes)
        return address[log_bytes(sram) : log_bytes(sram) + lanes] if lanes else 0

    window = placer.window
    pads = {"top": "y_pad_0", "bottom": "y_pad_1", "left": "x_pad_0", "right": "x_pad_1"}
    return [
        placer.which.eq(which),
        window.index.eq(mem["sram_base"]),
        window.rows.eq(rows),
        window.columns.eq(mem["x_size"]),
        window.offset.eq(chosen(which, [offset(sram) for sram in memories])),
        window.step.eq(mem["x_stride"]),
        *(window[name].eq(Mux(padded, mem[field], 0)) for name, field in pads.items()),
    ]


def rows_of(
    target: Any, mem: Mapping[str, Value], address: Value, rows: Any, memories: Sequence[Sram], which: Value
) -> list[Any]:
    """Assignments to a ROWS."""

    def scaled(name: str) -> Value:
        return chosen(which, [mem[name] << log_bytes(sram) for sram in memories])

    return [
        target.address.eq(address),
        target.stride.eq(scaled("x_stride")),
        target.rows.eq(rows),
        target.row_bytes.eq(scaled("x_size")),
    ]


def address_of(mem: Mapping[str, Value], bases: Sequence[Value], memories: Sequence[Sram], which: Value) -> Value:
    """The byte that a LOAD or STORE begins with."""
    places = zip(bases, memories, strict=True)
    return chosen(which, [base + (mem["dram_base"] << log_bytes(sram)) for base, sram in places])


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
        rules = config.rules
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
