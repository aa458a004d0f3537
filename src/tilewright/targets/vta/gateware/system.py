"""The machine as a block for a board: control registers, and the AXI4 signals that its port leaves constant."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.axi import AxiLite, AxiLiteRegisters, Bus
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.registers import MAP
from tilewright.targets.vta.gateware.top import Vta, require

WRITTEN = {register.offset: register.name for register in MAP if register.written}
READ = {register.offset: register.name for register in MAP if not register.written}
#: AXI4: bursts of incrementing addresses.
INCREMENTING = 1


class VtaSystem(wiring.Component):
    """`control` is the host's port, `bus` DRAM's; `size` and `burst` hold for both of its command channels."""

    def __init__(self, config: Config) -> None:
        require(config)
        self.config = config
        super().__init__(
            {
                "control": In(AxiLite()),
                "bus": Out(Bus(config.bus_bits)),
                "size": Out(3, init=ceil_log2(config.bus_bits // 8)),
                "burst": Out(2, init=INCREMENTING),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.vta = vta = Vta(self.config)
        m.submodules.registers = registers = AxiLiteRegisters(WRITTEN, READ)
        wiring.connect(m, wiring.flipped(self.control), registers.bus)
        wiring.connect(m, vta.bus, wiring.flipped(self.bus))
        for name in WRITTEN.values():
            if name != "control":
                m.d.comb += getattr(vta, name).eq(getattr(registers, name))
        cycles, runs = Signal(32), Signal()
        m.d.comb += [
            vta.launch.eq(registers.control_strobe & registers.control[0]),
            registers.status.eq(vta.done),
            registers.cycles.eq(cycles),
            self.interrupt.eq(vta.done),
        ]
        with m.If(vta.launch):
            m.d.sync += [cycles.eq(0), runs.eq(1)]
        with m.Elif(vta.done):
            m.d.sync += runs.eq(0)
        with m.Elif(runs):
            m.d.sync += cycles.eq(cycles + 1)
        return m
