"""Launches that are streams of instructions on concurrent units, which synchronise by tokens.

The shared passes (sim/passes.py) simulate the instructions of a `Stream`. The target defines the step table, the costs
and the meaning of the instructions. All launches of a `StreamTarget` are of the class `Stream`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Site
from tilewright.graph.rounding import rounding_mode
from tilewright.program.header import Group, bit_ranges, header, macros
from tilewright.program.instruction import InstructionSet, rows
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.listing import LaunchText, isa_text
from tilewright.program.program import Configuration, HostStep, Launch, Program
from tilewright.sim.costs import Simulated, least_cycles
from tilewright.sim.findings import Finding
from tilewright.sim.order import order
from tilewright.sim.passes import LaunchResult, Passes, RunOptions
from tilewright.sim.steps import Footprints, Space, StepTable, TokenQueue, Trace
from tilewright.sim.timeline import times
from tilewright.sim.walk import Scratchpad, State, Walk, by_name
from tilewright.targets.launched import ImageWalk, LaunchedTarget, OnImage, dram_spaces

C = TypeVar("C", bound=Configuration)


class Stream(OnImage[C]):
    """A launch that is a stream of instructions.

    `units` are the names of the units, and `unit_of` has the number of the unit for each opcode. `works` is the name
    of the unit that does the multiply-accumulates.
    """

    isa: ClassVar[InstructionSet]
    units: ClassVar[tuple[str, ...]]
    unit_of: ClassVar[Mapping[Any, int]]
    works: ClassVar[str]

    def __init__(self, program: Program, launch: Launch, config: C, timing: str) -> None:
        super().__init__(program, launch, config, timing)
        self.columns = self.isa.decode(self.image.insns)

    @cached_property
    def image(self) -> LaunchImage:
        return LaunchImage.of(self.launch, self.isa.layout.nbytes)

    @property
    @abstractmethod
    def queues(self) -> tuple[TokenQueue, ...]:
        """The queues of tokens between the units."""

    @abstractmethod
    def tokens(self, unit: Array) -> tuple[Array, Array]:
        """Return the tokens that each instruction pops and pushes, as masks of queues. `unit` is int64 [n]."""

    @abstractmethod
    def touches(self, row: Mapping[str, int], dram: tuple[int, int]) -> Sequence[tuple[int, int, int, int]]:
        """Return the accesses of an instruction, each as (memory, READ or WRITE, first element, number of elements).

        `dram` is the instruction's address in DRAM, as the number of a space and the number of an element.
        """

    @abstractmethod
    def simulated(self) -> Simulated:
        """Return the input of the time pass: the costs and the fetch of the instructions, and the DRAM port."""

    @abstractmethod
    def machine(self, dram: Dram, samples: int) -> Any:
        """Return an object with the state of the machine for S samples.

        Its attributes are `dram`, and an array (S, depth, ..) for each of `memories`. Its method `execute(row, where)`
        executes one decoded instruction. `where` is the name of this instruction in error messages.
        """

    @property
    @abstractmethod
    def memories(self) -> Sequence[Scratchpad]:
        """The machine's on-chip memories, the first spaces of the step table. Later spaces are segments of DRAM."""

    @property
    @abstractmethod
    def macs(self) -> int:
        """The number of multiply-accumulates that the instructions request."""

    @property
    def bound(self) -> int:
        """A lower bound of the cycles for any order of the instructions: the work of the busiest unit."""
        busy = np.bincount(self.passes.table.unit, least_cycles(self._simulated), len(self.units))
        return int(busy.max())

    @cached_property
    def passes(self) -> Passes:
        table = self._table(self.image.dram({}, 1))
        relation = order(table)
        return Passes(table, relation, lambda: times(table, relation, self._simulated))

    @cached_property
    def _simulated(self) -> Simulated:
        return self.simulated()

    def _table(self, dram: Dram) -> StepTable:
        instructions = rows(self.columns)
        unit = np.array([self.unit_of[code] for code in self.isa.codes], np.int64)[self.columns[self.isa.opcode]]
        pops, pushes = self.tokens(unit)
        spaces = [Space(chip.name, chip.depth, scratchpad=chip.name) for chip in self.memories]
        footprints = []
        for row in instructions:
            # The segment of an address is the last segment that begins at or before the address.
            index = max(0, sum(segment.address <= row["dram"] for segment in dram.segments) - 1)
            place = len(spaces) + index, row["dram"] - dram.segments[index].address
            footprints.append(np.array([(*touch, 1, 0) for touch in self.touches(row, place)], np.int64))
        return StepTable(
            self.units,
            self.queues,
            (*spaces, *dram_spaces(dram)),
            unit,
            pops,
            pushes,
            np.arange(len(unit)),
            Footprints.of(footprints),
            lambda step: self.isa.notation.show(instructions[step]),
        )

    def report(self, options: RunOptions) -> LaunchResult:
        self.passes.refuse(options)
        return LaunchResult.of({}, self.passes, options, self.works, self.macs, self.bound if options.timing else 0)

    def execute(self, dram: Dram, samples: int, options: RunOptions) -> None:
        self.passes.refuse(options)
        self.run_steps(self.machine(dram, samples), self.passes.sequence(options))

    def run_steps(self, machine: Any, steps: Array) -> None:
        instructions = rows({name: column[steps] for name, column in self.columns.items()})
        for step, row in zip(steps.tolist(), instructions, strict=True):
            machine.execute(row, f"instruction {step}")

    def findings(self) -> tuple[Finding, ...]:
        return self.passes.findings(RunOptions(timing=self.timing, values=False))

    def lines(self) -> Sequence[str]:
        count = f"{len(self.image.insns)} instructions"
        if trace := self.passes.trace:
            count += f", {trace.cycles} cycles (timing model {self.timing})"
        plan = [self.launch.meta["plan"]] if "plan" in self.launch.meta else []  # an assembled launch has no plan
        return [*plan, count]


class _StreamState(State):
    walk: _StreamWalk

    def execute(self, steps: Array) -> None:
        self.walk.launched.run_steps(self.machine, steps)


class _StreamWalk(ImageWalk):
    launched: Stream[Any]

    def __init__(self, launched: Stream[Any], dram: Dram) -> None:
        self.memories = by_name(*launched.memories)
        super().__init__(launched, dram, launched.passes.table, launched.passes.order, len(self.memories))

    @property
    def findings(self) -> Sequence[Finding]:
        return self.launched.findings()

    @property
    def trace(self) -> Trace | None:
        return self.launched.passes.trace

    def start(self) -> _StreamState:
        return _StreamState(self, self.launched.machine(self.before.copy(), 1))


class StreamTarget(LaunchedTarget[C]):
    """The part of the contract (base.py) that all targets with launches of the class `Stream` share.

    `stream` is the class of a launch.
    """

    title: str
    stream: type[Stream[C]]
    passes = frozenset({"order", "time", "values"})

    def driver(self) -> type[Stream[C]]:
        return self.stream

    def debugged(self, launched: Stream[C], values: Mapping[str, Array]) -> Walk:
        return _StreamWalk(launched, launched.image.dram(launched.pack(values), 1))

    def lower(self, site: Site, config: C) -> Launch | str:
        """Return the launch that computes a node of a network, or the reason why the host runs the node."""
        raise NotImplementedError

    def compile(self, graph: Graph, config: C, rounding: str, timing: str | None = None) -> Program:
        steps: list[Launch | HostStep] = []
        for site in graph.sites():
            lowered = self.lower(site, config)
            steps.append(HostStep(site.node.name, lowered) if isinstance(lowered, str) else lowered)
        mode = rounding_mode(rounding).name
        return Program(self.name, config.to_dict(), config.digest(), mode, graph, tuple(steps))

    def header(self, config: C) -> str:
        isa = self.stream.isa
        title = self.title.partition(":")[0]
        groups = [
            Group("sizes", macros(self.name, config.to_dict())),
            Group("opcodes", macros(f"{self.name}_opcode", {code.name: int(code) for code in isa.codes})),
            Group("bits of each instruction field: first, last", bit_ranges(f"{self.name}_INSN".upper(), isa.layout)),
        ]
        return header(f"{self.name.upper()}_H_", f"The machine {title}.", groups)

    def text(self, config: C) -> LaunchText:
        return isa_text(self.stream.isa)
