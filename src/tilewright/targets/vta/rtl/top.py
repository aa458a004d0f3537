"""The machine: fetch, three units, their token queues and memories, and one AXI4 port."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.errors import ConfigError
from tilewright.hdl.axi import Bus, ReadMaster, WriteMaster
from tilewright.hdl.fifo import StreamFifo
from tilewright.hdl.memory import BankedMemory
from tilewright.hdl.tokens import TokenQueue
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.rtl.compute import Compute
from tilewright.targets.vta.rtl.fetch import Fetch
from tilewright.targets.vta.rtl.load import Load
from tilewright.targets.vta.rtl.store import Store
from tilewright.targets.vta.rtl.words import INSN_BITS, tiles
from tilewright.targets.vta.timing.tilewright import IN_FLIGHT
from tilewright.targets.vta.timing.tilewright import require as require_timing

REGISTERS = ("uop", "inp", "wgt", "acc", "out")


def require(config: Config) -> None:
    """Raises ConfigError for a machine that there is no gateware of."""
    require_timing(config)
    if config.semantics != "hls":
        raise ConfigError("VTA gateware", f"there is none with semantics {config.semantics}", "set semantics to hls")


class Vta(wiring.Component):
    """`launch` for one cycle runs `insn_count` instructions from byte `insn_base`; `done` after FINISH.

    `starts` and `ends`: bit u in the cycle in which unit u starts an instruction, and in the last cycle of one.
    """

    def __init__(self, config: Config) -> None:
        require(config)
        self.config = config
        super().__init__(
            {
                "launch": In(1),
                "insn_base": In(32),
                "insn_count": In(32),
                **{f"{name}_base": In(32) for name in REGISTERS},
                "bus": Out(Bus(config.bus_bits)),
                "done": Out(1),
                **{f"{unit}_{what}": Out(1) for unit in config.pipeline.units for what in ("starts", "ends")},
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, config = Module(), self.config
        bus, line = config.bus_bits, config.pipeline
        m.submodules.fetch = fetch = Fetch(config)
        m.submodules.load = load = Load(config)
        m.submodules.compute = compute = Compute(config)
        m.submodules.store = store = Store(config)
        m.d.comb += compute.launch.eq(self.launch)
        units: tuple[Any, ...] = (load, compute, store)
        m.d.comb += [fetch.launch.eq(self.launch), fetch.base.eq(self.insn_base), fetch.count.eq(self.insn_count)]
        for name, unit in zip(line.units, units, strict=True):
            m.submodules[f"{name}_queue"] = queue = StreamFifo(INSN_BITS, config.queue_depth)
            wiring.connect(m, getattr(fetch, name), queue.i)
            wiring.connect(m, queue.o, unit.insn)
            m.d.comb += [getattr(self, f"{name}_{what}").eq(getattr(unit, what)) for what in ("starts", "ends")]
        for (producer, consumer), _ in line.links.items():
            m.submodules[f"{line.units[producer]}_to_{line.units[consumer]}"] = queue = TokenQueue(config.token_depth)
            at, of = int(consumer > producer), int(producer > consumer)
            gives, takes = units[producer].tokens, units[consumer].tokens
            m.d.comb += [
                queue.reserve.eq(gives.reserve[at]),
                queue.push.eq(gives.push[at]),
                gives.room[at].eq(queue.room),
                queue.pop.eq(takes.pop[of]),
                takes.available[of].eq(queue.available),
            ]
        for name, unit in (("inp", load), ("wgt", load), ("uop", compute), ("acc", compute), ("out", store)):
            m.d.comb += getattr(unit, f"{name}_base").eq(getattr(self, f"{name}_base"))

        m.submodules.uop = uop = BankedMemory(tiles(config.uop, config))
        m.submodules.inp = inp = BankedMemory(tiles(config.inp, config))
        m.submodules.wgt = wgt = BankedMemory(tiles(config.wgt, config))
        m.submodules.acc = acc = BankedMemory(tiles(config.acc, config), tile_writes=True)
        m.submodules.out = out = BankedMemory(
            tiles(config.out, config), beat_writes=False, tile_writes=True, wide_reads=True
        )
        for ours, theirs in (
            (load.inp, inp.beats),
            (load.wgt, wgt.beats),
            (compute.uop_beats, uop.beats),
            (compute.acc_beats, acc.beats),
            (compute.acc_write, acc.tile),
            (compute.out_write, out.tile),
            (compute.uop, uop.read),
            (compute.inp, inp.read),
            (compute.wgt, wgt.read),
            (compute.acc, acc.read),
            (store.out, out.read),
        ):
            wiring.connect(m, ours, theirs)

        m.submodules.reader = reader = ReadMaster(bus, 3, IN_FLIGHT)
        m.submodules.writer = writer = WriteMaster(bus)
        readers: tuple[Any, ...] = (fetch, compute, load)
        for number, client in enumerate(readers):
            wiring.connect(m, client.client, getattr(reader, f"client{number}"))
            m.d.comb += [client.valid.eq(reader.valid[number]), client.data.eq(reader.data)]
        wiring.connect(m, store.client, writer.client)
        wiring.connect(m, store.beats, writer.beats)
        m.d.comb += [store.granted.eq(writer.granted), store.ended.eq(writer.ended), self.done.eq(compute.done)]
        for name in ("ar", "r"):
            wiring.connect(m, getattr(reader.bus, name), wiring.flipped(getattr(self.bus, name)))
        for name in ("aw", "w", "b"):
            wiring.connect(m, getattr(writer.bus, name), wiring.flipped(getattr(self.bus, name)))
        return m
