"""The compiled gateware as a CFU of the simulated CPU."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.hdl.model import Compiled
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.isa.dma import PORT_BYTES

from .bus import MainMemory

#: Cycles that an answer may take: more than the longest launch, which is 1,023 rows, columns and products.
LIMIT = 1 << 25
LOW = (1 << 32) - 1


@lru_cache
def compiled(config: Config, engine: str) -> Compiled:
    """Return the compiled CFU. Raises ConfigError if a tool is missing."""

    def make() -> Any:
        from tilewright.targets.cfu.gateware.top import Cfu

        return Cfu(config)

    return Compiled.remembered(json.dumps(config.to_dict()), Path(__file__).parents[1], engine, make)


class Gateware:
    """One CFU after reset, as compiled gateware. Its `execute` is the CFU that `core.run` calls.

    The CPU takes every answer in its first cycle. `engine` is verilator or cxxrtl. Raises ConfigError if a tool
    is missing.
    """

    def __init__(self, config: Config, engine: str = "verilator") -> None:
        self.model = compiled(config, engine).model()
        self.model["rsp_ready"] = 1
        self.burst = "burst" in config.extension_names
        self.memory: MainMemory | None = None
        if bill.fetches(config):
            self.attach(np.zeros(PORT_BYTES, np.uint8))

    def attach(self, ram: Array) -> None:
        """Let the DMA read main memory `ram`, uint8. A CFU without DMA ignores it."""
        if "dma__valid" in self.model.ports:
            self.memory = MainMemory(self.model, ram, self.burst)

    def advance(self, cycle: int) -> None:
        """Run until a cycle."""
        if self.memory:
            self.memory.advance(cycle)
        else:
            self.model.step(cycle - self.model.cycle)

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        """Give the CFU a command in `cycle`. Return its answer as int32 and the first cycle of the answer.

        Raises MachineError if the CFU does not take the command in this cycle, or does not answer within LIMIT cycles.
        """
        model = self.model
        self.advance(cycle)
        model["cmd_valid"] = 1
        model["cmd_payload_function_id"] = funct7 << 3 | funct3
        model["cmd_payload_inputs_0"], model["cmd_payload_inputs_1"] = a & LOW, b & LOW
        model.run_until("cmd_ready", LIMIT)
        if model.cycle != cycle:
            reason = f"takes the command of cycle {cycle} in cycle {model.cycle}"
            raise MachineError("CFU gateware", reason, "report this: the simulator and the gateware differ")
        self.advance(cycle + 1)
        model["cmd_valid"] = 0
        while self.memory and self.memory.beats and not model["rsp_valid"]:
            self.advance(model.cycle + 1)
        model.run_until("rsp_valid", LIMIT)
        answer = model["rsp_payload_outputs_0"]
        return answer - ((answer & 1 << 31) << 1), model.cycle
