"""The engine with registers on AXI4-Lite, and the files of a design for a board.

runtime/driver.py defines the register map. Blocks move through a second port, a block RAM port for the vendor's AXI
BRAM controller, as in the document.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amaranth.hdl import Cat, Module
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl import board
from tilewright.hdl.axi import AxiLite, AxiLiteRegisters
from tilewright.hdl.modules import verilog_files
from tilewright.hdl.parts import Part, drive, expose
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.gateware.engine import drain, require
from tilewright.targets.zynq.gateware.window_engine import engine_of
from tilewright.targets.zynq.isa.layer import LAYOUT
from tilewright.targets.zynq.runtime import driver
from tilewright.targets.zynq.runtime.driver import REGISTERS

CORE = "ZynqSystem"
TOP = "zynq_axi"
WORDS = LAYOUT.bits // 32
#: The width of a register's byte address. The upper half of the address space is for the factors.
ADDRESS_BITS = ceil_log2(2 * REGISTERS["FACTOR"])
WRITTEN = {
    REGISTERS["CONTROL"]: "control",
    REGISTERS["DONE"]: "moved",
    REGISTERS["JOB"]: "job",
    **{REGISTERS["DESCRIPTOR"] + 4 * word: f"descriptor{word}" for word in range(WORDS)},
}
READ = {REGISTERS["STATUS"]: "status", REGISTERS["BLOCK"]: "request"}


#: The text of the generated README about two frames.
AHEAD = """
- Two frames: `STATUS_WAITING` is never set. The PS knows the order of the pages (`tilewright run --trace` shows it). It
  writes the next page's store to `JOB`, waits for `STATUS_READY`, moves the page, and writes the store to `DONE`. It
  must write the beats of a block in order. `examples/c_driver.py` has no driver for this protocol."""


class ZynqSystem(Part):
    """The engine with its registers, which the PS accesses through `control`."""

    def __init__(self, config: Config) -> None:
        # `interrupt` is 1 if the engine is idle, waits for a page, or (with two frames) is ready for a page. The PS
        # moves blocks through the ports `bram_*`. The low bits of `bram_address` are the beat in a block, and the high
        # bits are the number of the store. If `bram_enable` and `bram_write` are 1, `bram_write_data` is written.
        # `bram_read_data` is the beat of the result store at the address of the previous cycle.
        self.engine = engine_of(config)
        self.ahead = config.frames > 1
        self.lines = len(self.engine.page_address)
        super().__init__(
            control=In(AxiLite(ADDRESS_BITS)),
            interrupt=Out(1),
            bram_address=In(self.lines + ceil_log2(len(STORES))),
            bram_enable=In(1),
            bram_write=In(1),
            bram_write_data=In(self.engine.beat),
            bram_read_data=Out(self.engine.beat),
        )

    def define(self, m: Module) -> None:
        engine = self.engine
        m.submodules.engine = engine
        m.submodules.registers = registers = AxiLiteRegisters(WRITTEN, READ, ADDRESS_BITS)
        expose(m, registers.bus, self.control)
        bits = {driver.STATUS_WAITING: engine.waiting, driver.STATUS_IDLE: engine.idle}
        bits |= {driver.STATUS_WRITE: engine.write} | ({driver.STATUS_READY: engine.ready} if self.ahead else {})
        status: Any = engine.store << driver.STATUS_STORE_SHIFT
        for bit, signal in bits.items():
            status |= Cat(signal) << ceil_log2(bit)
        m.d.comb += drive(
            engine,
            descriptor=Cat(getattr(registers, f"descriptor{word}") for word in range(WORDS)),
            start=registers.control_strobe & registers.control[0],
            job=registers.job,
            done=registers.moved_strobe & (registers.moved == (engine.job if self.ahead else engine.store)),
            factor_address=registers.memory_address,
            factor_data=registers.memory_data,
            factor_write=registers.memory_write,
            page_address=self.bram_address,
            page_store=self.bram_address >> self.lines,
            page_data=self.bram_write_data,
            page_write=self.bram_enable & self.bram_write,
        )
        m.d.comb += drive(registers, status=status, request=engine.block)
        m.d.comb += drive(self, interrupt=engine.interrupt, bram_read_data=engine.page_result)


def board_files(config: Config) -> dict[str, str]:
    """Return {file name: text} of a design for a board. Raises ConfigError for an unsupported configuration."""
    require(config)
    system = ZynqSystem(config)
    beat = system.engine.beat
    lines = system.lines
    byte = ceil_log2(beat // 8)
    window = 1 << (byte + lines)
    names = {
        "clock": "aclk",
        "register": ADDRESS_BITS - 1,
        "data": beat - 1,
        "strobes": beat // 8 - 1,
        "byte": byte,
        "address": byte + lines + 1,
        "beat": beat,
        "settings": ", ".join(f"{key}={value}" for key, value in config.to_dict().items()),
        "handshake": drain(config),
        "protocol": AHEAD if config.frames > 1 else "",
        "stores": "\n".join(
            f"| {i * window:#08x} | {store} | {config.block_bytes(store)} |" for i, store in enumerate(STORES)
        ),
        "bill": "\n".join(f"| {part} | {count} |" for part, count in config.bill.items()),
    }
    return board.board_files(config, verilog_files(system, CORE), CORE, TOP, Path(__file__).parent, names)
