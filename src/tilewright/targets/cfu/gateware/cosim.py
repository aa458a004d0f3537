"""Compare the compiled gateware with the simulator's model: command by command, with or without a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.program.program import Launch
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.firmware_image import FirmwareImage
from tilewright.targets.cfu.isa import custom
from tilewright.targets.cfu.isa.state import notes
from tilewright.targets.cfu.runtime.core import Setup
from tilewright.targets.cfu.runtime.launch import runs
from tilewright.targets.cfu.runtime.unit import ModelUnit
from tilewright.targets.gateware import CosimCase

from .unit import Gateware

#: Differences that a comparison reports.
MOST = 20


class Compared:
    """A CFU of which each command runs on the gateware and on the model. The CPU gets the gateware's answers.

    `differences` are sentences, at most MOST; `bits` counts the bits of answers that differ, `late` the answers that
    differ in their cycle.
    """

    def __init__(self, config: Config, engine: str = "verilator") -> None:
        self.gateware, self.model = Gateware(config, engine), ModelUnit(config)
        self.differences: list[str] = []
        self.bits = self.late = 0
        self.first: int | None = None

    def attach(self, ram: Array) -> None:
        """Let the DMA of both read main memory `ram`, uint8."""
        self.gateware.attach(ram)
        self.model.ram = ram

    @property
    def misuses(self) -> set[str]:
        """The kinds of misuse that the model noted."""
        return {note.kind for note in notes(self.model.regs)}

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
        """Give both CFUs a command in `cycle`, and compare their answers."""
        expected, found = (unit.execute(funct7, funct3, a, b, cycle) for unit in (self.model, self.gateware))
        if expected != found:
            self.bits += ((expected[0] ^ found[0]) & 0xFFFFFFFF).bit_count()
            self.late += expected[1] != found[1]
            self.first = cycle if self.first is None else self.first
            if len(self.differences) < MOST:
                sides = (f"{value} in cycle {ready}" for value, ready in (found, expected))
                name = custom.name(funct7 << 3)
                self.differences.append(f"{name} of cycle {cycle} answers {' on the RTL, '.join(sides)} in the model")
        return found


def compare(launch: Launch, config: Config, values: Mapping[str, Array], engine: str) -> CosimCase:
    """Run the firmware of a launch on one sample, on the simulated CPU, with the model and then with the gateware."""
    image, setup = FirmwareImage.of(launch), Setup(config)
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
    """Write a waveform (VCD) of the CFU in `cycles` of a launch on one sample; None: in all."""
    image, setup = FirmwareImage.of(launch), Setup(config)
    gateware = Gateware(config, "cxxrtl")
    first, last = cycles or (0, next(runs(launch.name, image, setup, values, 1)).cycles)
    gateware.model.wave(path, max(first, 0), last)
    next(runs(launch.name, image, setup, values, 1, lambda: gateware))
