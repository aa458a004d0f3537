"""The compiled gateware as the CFU of the simulated CPU, and a comparison with the model, command by command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, MachineError, option
from tilewright.hdl.model import Compiled, Model, Wave
from tilewright.hdl.verilog import Form, Rtl, UserRtl, same_pins
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
        """Run the CFU until a cycle. Raises MachineError if it requests more than a line without extension burst."""
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
                    if not self.burst and size > LINE_BYTES:
                        raise MachineError(
                            "CFU",
                            f"requests {size} bytes; without the extension burst, at most {LINE_BYTES} are allowed",
                        )
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


def form(config: Config) -> Form:
    """Return the ports of the user's Verilog: those of our CFU, with CFU-Playground's name of the reset."""
    from tilewright.targets.cfu.gateware.top import RESET, TOP

    return Form(TOP, same_pins(component(config), RESET))


class Gateware:
    """A CFU after reset, as compiled gateware or the user's Verilog. `core.run` calls its method `execute`.

    The CPU accepts every answer in its first cycle. Raises ConfigError if a tool is missing, or if the ports of the
    user's Verilog are wrong.
    """

    def __init__(self, config: Config, rtl: Rtl = "verilator", wave: Wave | None = None) -> None:
        self.users = isinstance(rtl, UserRtl)
        self.limit = LIMIT
        if isinstance(rtl, UserRtl):
            self.model = rtl.model(rtl.form([form(config)]), wave is not None)
            self.limit = rtl.limit or LIMIT
        else:
            self.model = Compiled.of_machine(component, config, rtl).model()
        self.zero = self.model.cycle
        if wave:
            self.model.wave(*wave)
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
        """Run until a cycle of the model."""
        if self.memory:
            self.memory.advance(cycle)
        else:
            self.model.step(cycle - self.model.cycle)

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        """Send a command to the CFU in `cycle`. Return the answer as int32, and the first cycle of the answer.

        Raises MachineError if our CFU does not accept the command in this cycle, or if a CFU does not accept or answer
        it within LIMIT cycles.
        """
        model = self.model
        cycle += self.zero
        self.advance(cycle)
        model["cmd_valid"] = 1
        model["cmd_payload_function_id"] = funct7 << 3 | funct3
        model["cmd_payload_inputs_0"] = a & LOW
        model["cmd_payload_inputs_1"] = b & LOW
        self._until("cmd_ready")
        if model.cycle != cycle and not self.users:
            reason = f"takes the command of cycle {cycle} in cycle {model.cycle}"
            raise MachineError("CFU gateware", reason, "report this: the simulator and the gateware differ")
        if self.users and model["rsp_valid"]:  # an answer in the cycle of the command
            answer = self._answer()
            self.advance(model.cycle + 1)
            model["cmd_valid"] = 0
            return answer
        self.advance(model.cycle + 1)
        model["cmd_valid"] = 0
        self._until("rsp_valid")
        return self._answer()

    def _answer(self) -> tuple[int, int]:
        """Return the answer at the port as int32, and the cycle."""
        answer = self.model["rsp_payload_outputs_0"]
        return answer - ((answer & 1 << 31) << 1), self.model.cycle - self.zero

    def _until(self, port: str) -> None:
        """Run until a port is 1, also while the memory sends beats. Raises RtlHangs after `limit` cycles."""
        end = self.model.cycle + self.limit
        self.model.step(0)
        while self.memory and self.memory.beats and not self.model[port]:
            self.advance(self.model.cycle + 1)
        self.model.run_until(port, max(1, end - self.model.cycle))


#: The largest number of differences that a comparison reports.
MOST = 20


class Compared:
    """A CFU that runs each command on the gateware and on the model. The CPU gets the gateware's answers.

    `differences` has at most MOST sentences. `bits` counts the differing bits in answers, and `late` the answers with a
    different cycle.
    """

    def __init__(self, config: Config, rtl: Rtl = "verilator", wave: Wave | None = None) -> None:
        self.gateware = Gateware(config, rtl, wave)
        self.model = ModelUnit(config)
        self.differences: list[str] = []
        self.bits = self.late = 0
        self.first: int | None = None
        self.command = ""

    def attach(self, ram: Array) -> None:
        self.gateware.attach(ram)
        self.model.ram = ram

    @property
    def misuses(self) -> set[str]:
        return {note.kind for note in notes(self.model.regs)}

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        """Send a command to both CFUs in `cycle`, and compare their answers."""
        self.command = f"{custom.name(funct7 << 3)} of cycle {cycle}"
        modelled, answer = (unit.execute(funct7, funct3, a, b, cycle) for unit in (self.model, self.gateware))
        if modelled != answer:
            self.bits += ((modelled[0] ^ answer[0]) & 0xFFFFFFFF).bit_count()
            self.late += modelled[1] != answer[1]
            self.first = cycle if self.first is None else self.first
            if len(self.differences) < MOST:
                sides = (f"{value} in cycle {ready}" for value, ready in (answer, modelled))
                self.differences.append(f"{self.command} answers {' on the RTL, '.join(sides)} in the model")
        return answer


def compare(
    launch: Launch, config: Config, values: Mapping[str, Array], rtl: Rtl, wave: Wave | None = None
) -> CosimCase:
    """Run the firmware of a launch on one sample, on the simulated CPU, with the model and then with the RTL.

    Raises InputError for a memory with random delays.
    """
    if isinstance(rtl, UserRtl) and rtl.seed:
        reason = "is not for cfu: what its commands answer depends on the memory's delay"
        raise InputError(option("--memory-seed", "seed"), reason, "leave it out")
    image = FirmwareImage.of(launch)
    setup = Setup(config)
    both = Compared(config, rtl, wave)
    model = next(runs(launch.name, image, setup, values, 1))
    try:
        gateware = next(runs(launch.name, image, setup, values, 1, lambda: both))
    except MachineError as error:
        if not isinstance(rtl, UserRtl):
            raise
        # After a wrong answer, the firmware may fail. A CFU that hangs or stops gives no answer.
        stopped = both.gateware.model.cycle - both.gateware.zero
        reasons = (*both.differences, f"{both.command}: {error.where}: {error.reason}")
        first = stopped if both.first is None else both.first
        return CosimCase(launch.name, model.instret, model.cycles, stopped, 0, reasons, first)
    wrong = 0
    for name, data in model.reads.items():
        left, right = (np.frombuffer(part, np.uint8) for part in (data, gateware.reads[name]))
        wrong += int(np.count_nonzero(left != right))
    differences = list(both.differences)
    if model.cycles != gateware.cycles and not differences:
        differences.append(f"the launch takes {gateware.cycles} cycles with the RTL, {model.cycles} in the simulator")
    return CosimCase(launch.name, model.instret, model.cycles, gateware.cycles, wrong, tuple(differences), both.first)
