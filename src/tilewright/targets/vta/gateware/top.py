"""The machine in gateware: fetch, units, token queues, memories and an AXI4 port; and the design for a board.

`board_files` returns a design for a board: the Verilog, a wrapper with AXI port names, a synthesis script, a clock
constraint and a README.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl import board
from tilewright.hdl.axi import LITE_ADDRESS_BITS, AxiLite, AxiLiteRegisters, Bus, ReadMaster, WriteMaster
from tilewright.hdl.memory import BankedMemory, PartedMemory, StreamFifo, TokenQueue
from tilewright.hdl.modules import verilog_files
from tilewright.hdl.parts import Part, add, drive, expose, ports
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware import area
from tilewright.targets.vta.gateware.compute import ComputeUnit
from tilewright.targets.vta.gateware.core import lane_ports
from tilewright.targets.vta.gateware.header import MAP
from tilewright.targets.vta.gateware.moving import LoadUnit, StoreUnit
from tilewright.targets.vta.gateware.units import INSN_BITS, Fetch, tiles
from tilewright.targets.vta.isa.fields import REGIONS
from tilewright.targets.vta.timing.model import IN_FLIGHT, LONGEST

CORE = "VtaSystem"
TOP = "vta_axi"


class Vta(Part):
    """The machine. A one-cycle pulse on `launch` starts `insn_count` instructions at byte address `insn_base`.

    `done` is high after FINISH. For each unit, UNIT_starts is high in the cycle in which it starts an instruction,
    UNIT_ends in the last cycle of an instruction.
    """

    def __init__(self, config: Config) -> None:
        area.require(config)
        for operation in config.own_alu:
            lane = operation.component()
            lane._MustUse__silence = True  # prevents a warning of Amaranth: only the ports are used
            lane_ports(operation, lane)
        self.config = config
        super().__init__(
            launch=In(1),
            insn_base=In(32),
            insn_count=In(32),
            **{f"{name}_base": In(32) for name in REGIONS},
            bus=Out(Bus(config.bus_bits)),
            done=Out(1),
            **{f"{unit}_{what}": Out(1) for unit in config.pipeline.units for what in ("starts", "ends")},
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        config = self.config
        bus = config.bus_bits
        line = config.pipeline
        fetch = Fetch(config)
        add(m, "fetch", fetch, launch=self.launch, base=self.insn_base, count=self.insn_count)
        load = add(m, "load", LoadUnit(config))
        store = add(m, "store", StoreUnit(config))
        cores = {number: ComputeUnit(config, number) for number in dict.fromkeys((line.gemm, line.alu))}
        gemm = cores[line.gemm]
        alu = cores[line.alu]
        for number, core in cores.items():
            add(m, line.units[number], core)
        m.d.comb += [alu.launch.eq(self.launch), self.done.eq(alu.done)]
        units: tuple[Any, ...] = (load, *cores.values(), store)
        for name, unit in zip(line.units, units, strict=True):
            queue = add(m, f"{name}_queue", StreamFifo(INSN_BITS, config.queue_depth))
            wiring.connect(m, getattr(fetch, name), queue.i)
            wiring.connect(m, queue.o, unit.insn)
            m.d.comb += [getattr(self, f"{name}_{what}").eq(getattr(unit, what)) for what in ("starts", "ends")]
        self._tokens(m, units)
        for unit, names in ((load, load.memories), (gemm, gemm.loads), (alu, alu.loads), (store, ("out",))):
            for name in names:
                # Parameters have no base register of their own: they lie in the region of acc.
                register = "acc" if name == "par" else name
                m.d.comb += getattr(unit, f"{name}_base").eq(getattr(self, f"{register}_base"))
        self._memories(m, load, gemm, alu, store)

        # The read port serves clients in this order: fetch, compute, load (as in timing/model.py).
        readers: tuple[Any, ...] = (fetch, *cores.values(), load)
        reader = add(m, "reader", ReadMaster(bus, len(readers), IN_FLIGHT))
        writer = add(m, "writer", WriteMaster(bus))
        for number, client in enumerate(readers):
            wiring.connect(m, client.client, getattr(reader, f"client{number}"))
            m.d.comb += drive(client, valid=reader.valid[number], data=reader.data)
        wiring.connect(m, store.client, writer.client)
        wiring.connect(m, store.beats, writer.beats)
        m.d.comb += drive(store, **ports(writer, "granted", "ended"))
        for master, channels in ((reader, ("ar", "r")), (writer, ("aw", "w", "b"))):
            for name in channels:
                expose(m, getattr(master.bus, name), getattr(self.bus, name))
        return m

    def _tokens(self, m: Module, units: Sequence[Any]) -> None:
        line = self.config.pipeline
        for producer, consumer in line.links:
            # Index 0 of token signals is for the previous unit, index 1 for the next unit.
            at = int(consumer > producer)
            of = int(producer > consumer)
            gives = units[producer].tokens
            takes = units[consumer].tokens
            queue = TokenQueue(self.config.token_depth)
            name = f"{line.units[producer]}_to_{line.units[consumer]}"
            add(m, name, queue, reserve=gives.reserve[at], push=gives.push[at], pop=takes.pop[of])
            m.d.comb += [gives.room[at].eq(queue.room), takes.available[of].eq(queue.available)]

    def _memories(self, m: Module, load: LoadUnit, gemm: ComputeUnit, alu: ComputeUnit, store: StoreUnit) -> None:
        """Add the on-chip memories. Loading units write DRAM beats; cores and the store unit access tiles."""
        config = self.config
        # GEMM reads inp and wgt, the ALU reads the parameters.
        readers = dict.fromkeys(("inp", "wgt"), gemm) | {"par": alu}
        for name, sram in load.memories.items():
            memory = add(m, name, BankedMemory(tiles(sram, config)))
            wiring.connect(m, getattr(load, name), memory.beats)
            wiring.connect(m, getattr(readers[name], name), memory.read)
        out = BankedMemory(tiles(config.out, config), beat_writes=False, tile_writes=True, wide_reads=True)
        add(m, "out", out)
        wiring.connect(m, alu.out_write, out.tile)
        wiring.connect(m, store.out, out.read)
        cores = [gemm] if gemm is alu else [gemm, alu]
        for core in cores:
            micro_ops = add(m, core.loads["uop"].name, BankedMemory(tiles(core.loads["uop"], config)))
            wiring.connect(m, core.uop_beats, micro_ops.beats)
            wiring.connect(m, core.uop, micro_ops.read)
        acc: Any
        if gemm is alu:
            acc = add(m, "acc", BankedMemory(tiles(config.acc, config), tile_writes=True))
            ends = [(acc.read, acc.tile)]
        else:
            acc = add(m, "acc", PartedMemory(tiles(config.acc, config), config.acc_banks, len(cores)))
            ends = [(acc.read0, acc.tile0), (acc.read1, acc.tile1)]
        wiring.connect(m, gemm.acc_beats, acc.beats)
        for core, (read, write) in zip(cores, ends, strict=True):
            wiring.connect(m, core.acc, read)
            wiring.connect(m, core.acc_write, write)


WRITTEN = {register.offset: register.name for register in MAP if register.written}
READ = {register.offset: register.name for register in MAP if not register.written}


class VtaSystem(Part):
    """The machine with control registers. `control` is the host's port, `bus` the DRAM port.

    `size` and `burst` are the AXI burst size and type for both command channels of `bus`.
    """

    def __init__(self, config: Config) -> None:
        area.require(config)
        self.config = config
        super().__init__(
            control=In(AxiLite()),
            bus=Out(Bus(config.bus_bits)),
            size=Out(3, init=ceil_log2(config.bus_bits // 8)),
            burst=Out(2, init=1),  # incrementing addresses
            interrupt=Out(1),
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        registers = add(m, "registers", AxiLiteRegisters(WRITTEN, READ))
        arguments = ports(registers, *(name for name in WRITTEN.values() if name != "control"))
        vta = add(m, "vta", Vta(self.config), **arguments)
        expose(m, registers.bus, self.control)
        expose(m, vta.bus, self.bus)
        cycles = Signal(32)
        runs = Signal()
        m.d.comb += [
            vta.launch.eq(registers.control_strobe & registers.control[0]),
            *drive(registers, status=vta.done, cycles=cycles),
            self.interrupt.eq(vta.done),
        ]
        # The register `cycles` counts from the launch to the end of FINISH, and keeps its value until the next launch.
        with m.If(vta.launch):
            m.d.sync += [cycles.eq(0), runs.eq(1)]
        with m.Elif(vta.done):
            m.d.sync += runs.eq(0)
        with m.Elif(runs):
            m.d.sync += cycles.eq(cycles + 1)
        return m


def board_files(config: Config) -> dict[str, str]:
    """Return the files of a design for a board, {name: text}. Raises ConfigError if the machine cannot be built."""
    size = config.bus_bits // 8
    names = {
        "clock": "aclk",
        "register": LITE_ADDRESS_BITS - 1,
        "bits": config.bus_bits,
        "data": config.bus_bits - 1,
        "strobes": size,
        "bytes": size - 1,
        "last": config.bus_bits + size,
        "name": config.bitstream,
        "longest": LONGEST,
        "flight": IN_FLIGHT,
        "registers": "\n".join(f"| {r.offset:#04x} | {r.name} | {r.access} | {r.meaning} |" for r in MAP),
        "multipliers": _multipliers(config),
    }
    verilog = verilog_files(VtaSystem(config), CORE)
    return board.board_files(config, verilog, CORE, TOP, Path(__file__).parent, names, config.mhz)


def _multipliers(config: Config) -> str:
    """Return a sentence with the number of multiplier blocks of the design, and whether the board has enough."""
    chip = area.CHIPS.get(config.TARGET)
    parts = area.bill(config)
    counted = ", ".join(f"{count} {part}" for part, count in parts.items() if count) or "none"
    text = f"Multiplier blocks (DSP48): {sum(parts.values())} ({counted})"
    if excess := area.excess(config):
        return f"**This design does not fit its board.** It {excess}."
    return f"{text}, of the {chip.dsp} of the {chip.name}." if chip else f"{text}."
