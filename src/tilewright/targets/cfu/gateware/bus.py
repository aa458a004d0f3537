"""The memory at the CFU's bus master port, for co-simulation: it answers in the cycles of the timing model."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.hdl.model import Model
from tilewright.targets.cfu.config import RAM_BASE
from tilewright.targets.cfu.isa.dma import LINE_BYTES, LINE_CYCLES, PORT_BYTES, ROW_CYCLES


class MainMemory:
    """Main memory `ram` (uint8) behind the port `dma` of a compiled CFU. Beats outside of it are answered as errors.

    A request is taken in its first cycle, q. Without `burst` the last beat comes in cycle q + LINE_CYCLES - 1, else the
    first one in cycle q + ROW_CYCLES; a beat per cycle.
    """

    def __init__(self, model: Model, ram: Array, burst: bool) -> None:
        self.model, self.ram, self.burst = model, ram, burst
        self.address = self.beats = self.first = 0
        model["dma__ready"] = 1

    def advance(self, cycle: int) -> None:
        """Run the CFU until a cycle."""
        model = self.model
        while model.cycle < cycle:
            if not self.beats:
                try:
                    model.run_until("dma__valid", cycle - model.cycle)
                except MachineError:  # no request
                    return
                if model.cycle < cycle:
                    self._request()
            elif model.cycle < self.first:
                model.step(min(self.first, cycle) - model.cycle)
            else:
                self._beat()

    def _request(self) -> None:
        model = self.model
        self.address, size = model["dma__address"], model["dma__bytes"]
        assert self.burst or size <= LINE_BYTES
        self.beats = size // PORT_BYTES
        self.first = model.cycle + (ROW_CYCLES if self.burst else LINE_CYCLES - self.beats)
        model.step()

    def _beat(self) -> None:
        model, at = self.model, self.address - RAM_BASE
        inside = 0 <= at < len(self.ram)
        model["dma__data_valid"], model["dma__data_error"] = 1, not inside
        model["dma__data"] = int.from_bytes(self.ram[at : at + PORT_BYTES].tobytes(), "little") if inside else 0
        model.step()
        model["dma__data_valid"] = 0
        self.address += PORT_BYTES
        self.beats -= 1
