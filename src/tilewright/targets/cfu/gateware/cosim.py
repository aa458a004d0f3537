"""The compiled gateware as the CFU of the simulated CPU, and a comparison with the model, command by command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.hdl.model import Compiled, Model
from tilewright.program.program import Launch
from tilewright.targets.cfu import bill
from tilewright.targets.cfu.config import RAM_BASE, Config
from tilewright.targets.cfu.firmware_image import FirmwareImage
from tilewright.targets.cfu.isa import custom
from tilewright.targets.cfu.isa.dma import LINE_BYTES, LINE_CYCLES, PORT_BYTES, ROW_CYCLES
from tilewright.targets.cfu.isa.state import notes
from tilewright.targets.cfu.runtime.core import Setup
from tilewright.targets.cfu.runtime.launch import runs
from tilewright.targets.cfu.runtime.seam import ModelUnit
from tilewright.targets.gateware import CosimCase


class MainMemory:
    """Main memory `ram` (uint8), connected to the port `dma` of a compiled CFU. Beats outside of `ram` are errors.

    A request is accepted in its first cycle. There is one beat per cycle. Without `burst`, the last beat comes
    LINE_CYCLES - 1 cycles after the request. With `burst`, the first beat comes ROW_CYCLES cycles after the request.
    """

    def __init__(self, model: Model, ram: Array, burst: bool) -> None:
        self.model = model
        self.ram = ram
        self.burst = burst
        self.address = self.beats = self.first = 0
        model["dma__ready"] = 1

    def advance(self, cycle: int) -> None:
        model = self.model
        # Only one burst is active: wait for a request, then for the first beat, then send a beat in each cycle.
        while model.cycle < cycle:
            if not self.beats:
                try:
                    model.run_until("dma__valid", cycle - model.cycle)
                except MachineError:  # no request
                    return
                if model.cycle < cycle:
                    self.address = model["dma__address"]
                    size = model["dma__bytes"]
                    assert self.burst or size <= LINE_BYTES
                    self.beats = size // PORT_BYTES
                    self.first = model.cycle + (ROW_CYCLES if self.burst else LINE_CYCLES - self.beats)
                    model.step()
            elif model.cycle < self.first:
                model.step(min(self.first, cycle) - model.cycle)
            else:
                self._beat()

    def _beat(self) -> None:
        model = self.model
        at = self.address - RAM_BASE
        inside = 0 <= at < len(self.ram)
        model["dma__data_valid"] = 1
        model["dma__data_error"] = not inside
        model["dma__data"] = int.from_bytes(self.ram[at : at + PORT_BYTES].tobytes(), "little") if inside else 0
        model.step()
        model["dma__data_valid"] = 0
        self.address += PORT_BYTES
        self.beats -= 1


#: The largest number of cycles until an answer. The longest launch, with M = N = K = 1,023, takes less.
LIMIT = 1 << 25
LOW = (1 << 32) - 1


def component(config: Config) -> Any:
    from tilewright.targets.cfu.gateware.top import Cfu

    return Cfu(config)


class Gateware:
    """A CFU after reset, as compiled gateware. `core.run` calls its method `execute`.

    The CPU accepts every answer in its first cycle. `engine` is verilator or cxxrtl. Raises ConfigError if a tool
    is missing.
    """

    def __init__(self, config: Config, engine: str = "verilator") -> None:
        self.model = Compiled.of_machine(component, config, engine).model()
        self.model["rsp_ready"] = 1
        self.burst = "burst" in config.extension_names
        self.memory: MainMemory | None = None
        if bill.fetches(config):
            self.attach(np.zeros(PORT_BYTES, np.uint8))

    def attach(self, ram: Array) -> None:
        """Let the DMA read main memory `ram`, uint8. A CFU without DMA ignores `ram`."""
        if "dma__valid" in self.model.ports:
            self.memory = MainMemory(self.model, ram, self.burst)

    def advance(self, cycle: int) -> None:
        if self.memory:
            self.memory.advance(cycle)
        else:
            self.model.step(cycle - self.model.cycle)

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        """Send a command to the CFU in `cycle`. Return the answer as int32, and the first cycle of the answer.

        Raises MachineError if the CFU does not accept the command in this cycle, or does not answer within LIMIT
        cycles.
        """
        model = self.model
        self.advance(cycle)
        model["cmd_valid"] = 1
        model["cmd_payload_function_id"] = funct7 << 3 | funct3
        model["cmd_payload_inputs_0"] = a & LOW
        model["cmd_payload_inputs_1"] = b & LOW
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


#: The largest number of differences that a comparison reports.
MOST = 20


class Compared:
    """A CFU that runs each command on the gateware and on the model. The CPU gets the gateware's answers.

    `differences` has at most MOST sentences. `bits` counts the differing bits in answers, and `late` the answers with a
    different cycle.
    """

    def __init__(self, config: Config, engine: str = "verilator") -> None:
        self.gateware = Gateware(config, engine)
        self.model = ModelUnit(config)
        self.differences: list[str] = []
        self.bits = self.late = 0
        self.first: int | None = None

    def attach(self, ram: Array) -> None:
        self.gateware.attach(ram)
        self.model.ram = ram

    @property
    def misuses(self) -> set[str]:
        return {note.kind for note in notes(self.model.regs)}

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        modelled, answer = (unit.execute(funct7, funct3, a, b, cycle) for unit in (self.model, self.gateware))
        if modelled != answer:
            self.bits += ((modelled[0] ^ answer[0]) & 0xFFFFFFFF).bit_count()
            self.late += modelled[1] != answer[1]
            self.first = cycle if self.first is None else self.first
            if len(self.differences) < MOST:
                sides = (f"{value} in cycle {ready}" for value, ready in (answer, modelled))
                name = custom.name(funct7 << 3)
                self.differences.append(f"{name} of cycle {cycle} answers {' on the RTL, '.join(sides)} in the model")
        return answer


def compare(launch: Launch, config: Config, values: Mapping[str, Array], engine: str) -> CosimCase:
    """Run the firmware of a launch on one sample: on the simulated CPU with the model, then with the gateware."""
    image = FirmwareImage.of(launch)
    setup = Setup(config)
    both = Compared(config, engine)
    model, gateware = (next(runs(launch.name, image, setup, values, 1, unit)) for unit in (None, lambda: both))
    wrong = 0
    for name, data in model.reads.items():
        left, right = (np.frombuffer(part, np.uint8) for part in (data, gateware.reads[name]))
        wrong += int(np.count_nonzero(left != right))
    differences = list(both.differences)
    if model.cycles != gateware.cycles and not differences:
        differences.append(f"the launch takes {gateware.cycles} cycles with the RTL, {model.cycles} in the simulator")
    return CosimCase(launch.name, model.instret, model.cycles, gateware.cycles, wrong, tuple(differences), both.first)


def waveform(
    launch: Launch, config: Config, values: Mapping[str, Array], path: Path, cycles: tuple[int, int] | None
) -> None:
    image = FirmwareImage.of(launch)
    setup = Setup(config)
    gateware = Gateware(config, "cxxrtl")
    first, last = cycles or (0, next(runs(launch.name, image, setup, values, 1)).cycles)
    gateware.model.wave(path, max(first, 0), last)
    next(runs(launch.name, image, setup, values, 1, lambda: gateware))
