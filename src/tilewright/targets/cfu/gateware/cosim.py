"""Compare the compiled gateware with the simulator's model: command by command, with or without a CPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.program.program import Launch
from tilewright.targets.base import CosimCase
from tilewright.targets.cfu.config import Config
from tilewright.targets.cfu.image import FirmwareImage
from tilewright.targets.cfu.isa import custom
from tilewright.targets.cfu.isa.custom import (
    DOT,
    GET,
    GET_IMAGE,
    OFF_MAXMIN,
    PUSH_IMAGE,
    PUT,
    RDBPOT,
    SET_A,
    SET_B,
    START,
)
from tilewright.targets.cfu.isa.state import FIELDS, notes
from tilewright.targets.cfu.runtime import core
from tilewright.targets.cfu.runtime.launch import runs
from tilewright.targets.cfu.runtime.unit import ModelUnit
from tilewright.targets.cfu.timing.costs import SOURCED

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


class Command(NamedTuple):
    """A command of a sequence: it is given `wait` cycles after the CFU can take it."""

    funct7: int
    funct3: int
    a: int
    b: int
    wait: int


#: How often a random sequence has an instruction. 9, 99: unknown ones.
OFTEN = {SET_A: 6, SET_B: 6, START: 3, 3: 3, GET: 6, 5: 2, 6: 2, RDBPOT: 2, OFF_MAXMIN: 2, 9: 1, 99: 1}


def random_commands(config: Config, rng: np.random.Generator, count: int) -> Iterator[Command]:
    """Yield `count` random commands: most of them meaningful, some misuses of each kind.

    Launches are at most three tiles high and wide. None is endless with start=blocking: the CPU would wait for ever.
    """
    also = {PUT: 4, PUSH_IMAGE: 4, GET_IMAGE: 4, DOT: 4} if config.extensions else {}
    numbers = list(OFTEN | also)
    often = np.array(list((OFTEN | also).values()), np.float64)
    chosen = rng.choice(numbers, count, p=often / often.sum()).tolist()
    edges = [-(1 << 31), (1 << 31) - 1, 0, -1, 1 << 30]
    least = 1 if config.start == "blocking" else 0
    for funct7 in chosen:
        a, b = rng.integers(-(1 << 31), 1 << 31, 2).tolist()
        likely = rng.random() < 0.8
        if funct7 == START:
            m, n, k = rng.integers(least if rng.random() < 0.1 else 1, 3 * config.array, 3).tolist()
            a = int(rng.integers(2)) << 30 | m << 20 | n << 10 | k
            b = int(rng.integers(-256, 256)) if likely else b
        elif funct7 == RDBPOT:
            b = int(rng.integers(0, 33)) if likely else b
        elif funct7 in (SET_A, SET_B) and config.transfer == "addressed" and likely:
            a = int(rng.integers(config.buffer_rows * config.array // 4))
        elif funct7 == PUT and likely:
            a, b = FIELDS[rng.choice(["POINTER", "POINTER", "DOT"])], int(rng.integers(64))
        elif funct7 == GET and likely:
            a, b = rng.integers(0, 3 * config.array, 2).tolist()
        elif not likely:
            a, b = rng.choice(edges, 2).tolist()
        wait = int(rng.integers(1, 40 * config.array)) if rng.random() < 0.05 else int(rng.integers(0, 3))
        yield Command(funct7, int(rng.integers(8)), a, b, wait)


def run(unit: core.Unit, commands: Iterable[Command]) -> int:
    """Give a CFU commands from cycle 0 on, each when it can take it and its wait is over. Return the cycles."""
    cycle = 0
    for command in commands:
        _, ready = unit.execute(*command[:4], cycle + command.wait)
        cycle = ready + 1
    return cycle


def compare(launch: Launch, config: Config, values: Mapping[str, Array], engine: str) -> CosimCase:
    """Run the firmware of a launch on one sample, on the simulated CPU, with the model and then with the gateware."""
    image, timing = FirmwareImage.of(launch), SOURCED.source.name
    both = Compared(config, engine)
    model, gateware = (next(runs(launch.name, image, config, values, 1, timing, cfu)) for cfu in (None, both))
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
    image, timing = FirmwareImage.of(launch), SOURCED.source.name
    gateware = Gateware(config, "cxxrtl")
    first, last = cycles or (0, next(runs(launch.name, image, config, values, 1, timing)).cycles)
    gateware.model.wave(path, max(first, 0), last)
    next(runs(launch.name, image, config, values, 1, timing, gateware))
