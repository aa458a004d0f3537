"""The model of the CFU without a CPU."""

from __future__ import annotations

import numpy as np

from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa.custom import model
from tilewright.targets.cfu.isa.state import Reg, buffers, registers


class ModelUnit:
    """One CFU after reset, as the simulator's compiled model; its fetch sees a main memory of `ram_bytes`.

    `regs` are its registers, indexed by isa.state.Reg; `buffers` are its memories.
    """

    def __init__(self, config: Config, ram_bytes: int = 16) -> None:
        self.regs, self.buffers = registers(config), buffers(config)
        self.ram = np.zeros(ram_bytes, np.uint8)
        self._execute = model(self.regs)

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        """Give the CFU a command in `cycle`. Return its answer as int32 and the cycle of the answer."""
        self._execute(self.regs, self.buffers, self.ram, funct7 << 3 | funct3, a, b, cycle)
        return int(self.regs[Reg.ANSWER]), int(self.regs[Reg.READY])
