"""The PS's side of an engine's ports: those of the module `Engine`, or registers on AXI4-Lite and a block RAM port.

The user's Verilog may have either. Both classes have the same methods, so that one PS serves both.
"""

from __future__ import annotations

import numpy as np
from amaranth.utils import ceil_log2

from tilewright.array import Array
from tilewright.errors import ConfigError
from tilewright.hdl.model import Model
from tilewright.hdl.verilog import Form, Pin, axi_lite, clocking, plain, same_pins
from tilewright.hdl.verilog import read_register as read
from tilewright.hdl.verilog import write_register as write
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.gateware.engine import beat_bytes
from tilewright.targets.zynq.gateware.top import ADDRESS_BITS, TOP
from tilewright.targets.zynq.gateware.window_engine import engine_of
from tilewright.targets.zynq.runtime.driver import REGISTERS, STATUS_IDLE, STATUS_STORE_SHIFT

#: Cycles between the descriptor and the start, in which the gateware computes the sizes of the layer.
SETTLE = 4
#: The largest number of cycles of a register access.
ACCESS = 1000
#: Cycles from the write of a register to the cycle in which the engine sees it.
SEEN = 1


class EnginePorts:
    """The ports of the module `Engine`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def load(self, descriptor: Array, factors: Array) -> None:
        """Write a descriptor (uint8 [1, n]) and the words of the factors (uint32)."""
        if len(factors):
            ones = np.ones(len(factors), np.uint8)
            rows = {"factor_address": np.arange(len(factors)), "factor_data": factors, "factor_write": ones}
            self.model.play(rows)
            self.model["factor_write"] = 0
        self.model.play({"descriptor": np.repeat(descriptor, SETTLE, 0)})

    def start(self) -> int:
        """Start the layer. Return the model's first cycle of the layer."""
        self.model["start"] = 1
        self.model.step()
        self.model["start"] = 0
        return self.model.cycle

    def request(self) -> tuple[int, int] | None:
        """Return the store and the block that an engine wants, which interrupts; None if it is idle."""
        return None if self.model["idle"] else (self.model["store"], self.model["block"])

    def write(self, store: int, beats: Array) -> None:
        """Write a block, a beat per cycle. `beats` is uint8 [n, bytes]."""
        self.model["page_store"] = store
        self.model["page_write"] = 1
        self.model.play({"page_address": np.arange(len(beats)), "page_data": beats})
        self.model["page_write"] = 0

    def read(self, store: int, count: int) -> Array:
        """Return `count` beats of the result store, a beat per cycle, uint8 [n, bytes]."""
        return self.model.play({"page_address": np.arange(count)}, "page_result")

    def done(self, store: int, end: int) -> None:
        """Report a moved block in the cycle before `end`."""
        self.model.step(max(0, end - 1 - self.model.cycle))
        self.model["done"] = 1
        self.model.step()
        self.model["done"] = 0


class RegisterPorts(EnginePorts):
    """The registers of the driver (runtime/driver.py) on AXI4-Lite, and the port of a block RAM."""

    def __init__(self, model: Model, config: Config) -> None:
        super().__init__(model)
        self.window = _window(config)
        self.beat = beat_bytes(config)

    def load(self, descriptor: Array, factors: Array) -> None:
        for name, words in (("FACTOR", factors), ("DESCRIPTOR", descriptor[0].view("<u4"))):
            for number, word in enumerate(words.tolist()):
                write(self.model, REGISTERS[name] + 4 * number, word, ACCESS)
        self.model.step(SETTLE)

    def start(self) -> int:
        return write(self.model, REGISTERS["CONTROL"], 1, ACCESS) + SEEN + 1

    def request(self) -> tuple[int, int] | None:
        status, block = (read(self.model, REGISTERS[name], ACCESS) for name in ("STATUS", "BLOCK"))
        return None if status & STATUS_IDLE else (status >> STATUS_STORE_SHIFT & len(STORES) - 1, block)

    def write(self, store: int, beats: Array) -> None:
        self.model["bram_en"] = 1
        self.model["bram_we"] = (1 << beats.shape[1]) - 1
        self.model.play({"bram_addr": self._places(store, len(beats)), "bram_wrdata": beats})
        self.model["bram_en"] = self.model["bram_we"] = 0

    def read(self, store: int, count: int) -> Array:
        self.model["bram_en"] = 1
        return self.model.play({"bram_addr": self._places(store, count)}, "bram_rddata")

    def _places(self, store: int, count: int) -> Array:
        return np.arange(store * self.window, store * self.window + count * self.beat, self.beat)

    def done(self, store: int, end: int) -> None:
        self.model.step(max(0, end - 1 - SEEN - self.model.cycle))
        write(self.model, REGISTERS["DONE"], store, ACCESS)


def _window(config: Config) -> int:
    """Return the bytes of a store's addresses: those of the largest block, rounded up to a power of two."""
    return 1 << ceil_log2(max(2 * beat_bytes(config), *(config.block_bytes(store) for store in STORES)))


def forms(config: Config) -> list[Form]:
    """Return the ports that the user's top module may have."""
    beat = beat_bytes(config)
    pins = [
        *clocking("aclk", "aresetn", True),
        *axi_lite(plain("s_axi"), "control", ADDRESS_BITS),
        Pin("interrupt", "interrupt"),
        Pin("bram_wrdata", "bram_wrdata", 8 * beat, driven=True),
        Pin("bram_rddata", "bram_rddata", 8 * beat),
        Pin("bram_addr", "bram_addr", ceil_log2(len(STORES) * _window(config)), driven=True),
        Pin("bram_en", "bram_en", driven=True),
        Pin("bram_we", "bram_we", beat, driven=True),
        *(Pin(f"bram_{name}", name, driven=True, needed=False) for name in ("clk", "rst")),
    ]
    return [Form("Engine", same_pins(engine_of(config))), Form(TOP, pins)]


def ports(model: Model, form: Form | None, config: Config) -> EnginePorts:
    """Return the PS's side of a model. Raises ConfigError if registers are too slow for the configuration."""
    if form is None or form.name == "Engine":
        return EnginePorts(model)
    if config.frames > 1:
        reason = "frames=2 needs the ports of Engine: accesses to registers would delay the pages"
        raise ConfigError(f"ports of {form.name}", reason, "give the module Engine as the top")
    return RegisterPorts(model, config)
