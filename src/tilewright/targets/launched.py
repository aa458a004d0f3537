"""One launch on its machine: what happens to every launch, and what machines that run streams of instructions share.

`Launched` is the driver: it checks, packs, runs, unpacks and reports a launch. `OnImage` is a launch that is a launch
image. `Stream` is one whose instructions go through the shared passes (sim/passes.py): the target gives their step
table, their costs and their meaning. `LaunchedTarget` and `StreamTarget` are targets with such launches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph, Site, Tensor
from tilewright.graph.ops import Linear
from tilewright.graph.rounding import rounding_mode
from tilewright.program.header import Group, bit_ranges, header, macros
from tilewright.program.instruction import InstructionSet, rows
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.listing import ImageText
from tilewright.program.placement import Placement
from tilewright.program.program import Configuration, HostStep, Launch, Program
from tilewright.program.stages import Stage, Stages, by_step
from tilewright.sim.costs import Simulated, least
from tilewright.sim.findings import Finding
from tilewright.sim.order import Order, order
from tilewright.sim.passes import LaunchResult, Passes, RunOptions
from tilewright.sim.steps import Footprints, Space, StepTable, TokenQueue, Trace
from tilewright.sim.timeline import times
from tilewright.sim.walk import Placed, Range, Scratchpad, State, Walk, by_name, own_spaces
from tilewright.targets import base, given
from tilewright.targets.base import TimingModel

C = TypeVar("C", bound=Configuration)


class Stored(NamedTuple):
    """A tensor of the network in a segment of DRAM. `node` computes it ("": an input of the launch).

    With `sums`, the machine leaves sums of the launch's first node, which the host finishes to codes.
    """

    segment: str
    tensor: Tensor
    placement: Placement
    node: str = ""
    sums: bool = False


class Launched(ABC, Generic[C]):
    """One launch of a program, whose machine is `config`, in the timing model `timing`.

    Making one raises ProgramError if the launch is malformed.
    """

    def __init__(self, program: Program, launch: Launch, config: C, timing: str) -> None:
        self.program, self.launch, self.config, self.timing = program, launch, config, timing

    @property
    def sites(self) -> list[Site]:
        """The nodes that the launch computes; [] for a program without a network."""
        graph = self.program.graph
        return [graph.site(graph.node(name)) for name in self.launch.nodes] if graph else []

    @property
    @abstractmethod
    def stored(self) -> Sequence[Stored]:
        """Where the tensors of the network that the launch reads and computes lie; () without a network."""

    @abstractmethod
    def compute(self, inputs: Mapping[str, Array], samples: int, options: RunOptions) -> Mapping[str, Array]:
        """Run the machine on S samples. Return the bytes of each segment that it leaves, uint8 (S or 1, size).

        `inputs` are uint8 (S, size) by segment. Raises HazardError if the launch cannot run to its end.
        """

    @abstractmethod
    def report(self, options: RunOptions) -> LaunchResult:
        """Return the result of the launch without values. Raises HazardError if it cannot run to its end."""

    @abstractmethod
    def findings(self) -> Iterable[Finding]:
        """Return the findings of all passes."""

    @abstractmethod
    def walk(self, values: Mapping[str, Array]) -> Walk:
        """Return the launch as a debugger sees it; `values` has one sample, (1, *shape), of each tensor it reads."""

    def run(self, values: Mapping[str, Array], options: RunOptions) -> LaunchResult:
        """Run the launch on S samples: `values` are tensors of the network (S, *shape)."""
        with given.named(self.launch):
            if not options.values:
                return self.report(options)
            inputs = self.pack(values)
            samples = max((len(data) for data in inputs.values()), default=1)
            left = self.unpack(self.compute(inputs, samples, options), values)
            return replace(self.report(options), values=left)

    def pack(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the bytes of each segment that the host fills, uint8 (S, size). Raises ProgramError if none fit."""
        with given.untrusted(self.launch):
            inputs = [part for part in self.stored if not part.node]
            packed = {part.segment: part.placement.pack(values[part.tensor.name]) for part in inputs}
        samples = max((len(data) for data in packed.values()), default=1)  # a constant is there once
        return {name: np.broadcast_to(data, (samples, data.shape[1])) for name, data in packed.items()}

    def unpack(self, left: Mapping[str, Array], values: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the tensors that the launch computed, or without a network the bytes that it left, by segment.

        `values` are the tensors that `pack` was given.
        """
        if not self.program.graph:
            return given.left_by(self.program, self.launch, left)
        with given.untrusted(self.launch):
            return {part.tensor.name: self._finished(part, left) for part in self.stored if part.node}

    def _finished(self, part: Stored, left: Mapping[str, Array]) -> Array:
        """Return the codes of a tensor. The host requantises sums."""
        values = part.placement.unpack(left[part.segment])
        if not part.sums:
            return values
        site = self.sites[0]
        assert isinstance(site.node.op, Linear)
        return site.node.op.finish(site, values, rounding_mode(self.program.rounding))


class OnImage(Launched[C]):
    """A launch that is a launch image, with instructions of `nbytes` bytes. It runs `together` samples at a time."""

    nbytes: int
    together: ClassVar[int] = 1 << 62

    def __init__(self, program: Program, launch: Launch, config: C, timing: str) -> None:
        super().__init__(program, launch, config, timing)
        self.image = LaunchImage.of(launch, self.nbytes)

    @abstractmethod
    def execute(self, dram: Dram, samples: int, options: RunOptions) -> None:
        """Run the machine on S samples in DRAM. Raises HazardError if the launch cannot run to its end."""

    def compute(self, inputs: Mapping[str, Array], samples: int, options: RunOptions) -> Mapping[str, Array]:
        parts = []
        for start in range(0, samples, self.together):
            block = {name: data[start : start + self.together] for name, data in inputs.items()}
            count = min(self.together, samples - start)
            with given.untrusted(self.launch):
                dram = self.image.dram(block, count)
            self.execute(dram, count, options)
            parts.append(self.left(dram))
        return {name: np.concatenate([part[name] for part in parts]) for name in self.image.outputs}

    def left(self, dram: Dram) -> dict[str, Array]:
        """Return the segments that the launch gives back to the host, uint8 (S or 1, size)."""
        return {name: dram[name] for name in self.image.outputs}


def dram_spaces(dram: Dram) -> Sequence[Space]:
    """Return the spaces of a step table that stand for the segments of DRAM."""
    sizes = [(segment, segment.end - segment.address) for segment in dram.segments]
    return [Space(f"DRAM {segment.name}", size, ((0, size),) if segment.initialised else ()) for segment, size in sizes]


class ImageWalk(Walk):
    """A launch that is an image, for one sample, with its inputs in `dram`.

    The step table has a space for each segment of DRAM, from the space `first` on.
    """

    def __init__(self, launched: OnImage[Any], dram: Dram, table: StepTable, relation: Order, first: int) -> None:
        super().__init__(launched.launch.name, (), table, relation)
        self.launched, self.before = launched, dram
        self.segments: tuple[Range, ...] = own_spaces(map(astuple, launched.image.segments), first)

    @cached_property
    def placements(self) -> Mapping[str, Placed]:
        address = {segment.name: segment.address for segment in self.launched.image.segments}
        return {
            part.tensor.name: Placed(
                part.tensor.name,
                part.node,
                address[part.segment] + part.placement.where,
                not part.sums,
                np.dtype(part.placement.dtype).str,
            )
            for part in self.launched.stored
        }

    def unpacked(self, state: State) -> Mapping[str, Array]:
        left = {name: data[:1] for name, data in self.launched.left(state.machine.dram).items()}
        return self.launched.unpack(left, {})


class Stream(OnImage[C]):
    """A launch of instructions on units that run concurrently, with tokens between them.

    `units` names the units, and `unit_of` has the number of the unit that executes an opcode. `works` names the unit
    that does the multiply-accumulates.
    """

    isa: ClassVar[InstructionSet]
    units: ClassVar[tuple[str, ...]]
    unit_of: ClassVar[Mapping[Any, int]]
    works: ClassVar[str]

    def __init__(self, program: Program, launch: Launch, config: C, timing: str) -> None:
        self.nbytes = self.isa.layout.nbytes
        super().__init__(program, launch, config, timing)
        self.columns = self.isa.decode(self.image.insns)

    @property
    @abstractmethod
    def queues(self) -> tuple[TokenQueue, ...]:
        """The queues of tokens between the units."""

    @abstractmethod
    def tokens(self, unit: Array) -> tuple[Array, Array]:
        """Return the tokens that each instruction pops and pushes, as bits by queue; `unit` is its unit, int64 [n]."""

    @abstractmethod
    def touches(self, row: Mapping[str, int], dram: tuple[int, int]) -> Sequence[tuple[int, int, int, int]]:
        """Return what an instruction touches: memory, READ or WRITE, first element, number of elements.

        `dram` has the memory and the element of its address in DRAM.
        """

    @abstractmethod
    def simulated(self) -> Simulated:
        """Return what the time pass needs: the instructions' costs, the DRAM port, and how they are fetched."""

    @abstractmethod
    def machine(self, dram: Dram, samples: int) -> Any:
        """Return a machine: `dram`, an attribute (S, depth, ..) for each of `memories`, and `execute(row, where)`.

        `execute` executes one decoded instruction, which its errors call `where`.
        """

    @property
    @abstractmethod
    def memories(self) -> Sequence[Scratchpad]:
        """The machine's on-chip memories. DRAM's segments have the spaces of the step table that follow theirs."""

    @property
    @abstractmethod
    def macs(self) -> int:
        """The multiply-accumulates that the instructions request."""

    @property
    def bound(self) -> int:
        """The least cycles that the instructions can take in any order: the work of the busiest unit."""
        busy = np.bincount(self.passes.table.unit, least(self._simulated), len(self.units))
        return int(busy.max())

    @cached_property
    def passes(self) -> Passes:
        """The shared simulation passes: order, hazards and time."""
        table = self._table(self.image.dram({}, 1))
        relation = order(table)
        return Passes(table, relation, lambda: times(table, relation, self._simulated))

    @cached_property
    def _simulated(self) -> Simulated:
        return self.simulated()

    def _table(self, dram: Dram) -> StepTable:
        """Return the step table: the unit, the tokens and the footprint of each instruction."""
        instructions = rows(self.columns)
        unit = np.array([self.unit_of[code] for code in self.isa.codes], np.int64)[self.columns[self.isa.opcode]]
        pops, pushes = self.tokens(unit)
        spaces = [Space(chip.name, chip.depth, scratchpad=chip.name) for chip in self.memories]
        footprints = []
        for row in instructions:
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
        """Execute the instructions `steps`, int64 [k], in this order."""
        instructions = rows({name: column[steps] for name, column in self.columns.items()})
        for step, row in zip(steps.tolist(), instructions, strict=True):
            machine.execute(row, f"instruction {step}")

    def findings(self) -> tuple[Finding, ...]:
        return self.passes.findings(RunOptions(timing=self.timing, values=False))

    def walk(self, values: Mapping[str, Array]) -> Walk:
        return _StreamWalk(self, self.image.dram(self.pack(values), 1))


class _StreamState(State):
    """The memories after some instructions of a launch."""

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


class LaunchedTarget(given.Machine[C]):
    """The part of the contract (base.py) that targets share whose launches are `Launched`."""

    timing_models: tuple[TimingModel, ...]

    def driver(self) -> type[Launched[C]]:
        """Return the class of a launch; it is imported when it is needed."""
        raise NotImplementedError

    def launched(self, program: Program, launch: Launch, timing: str | None = None) -> Launched[C]:
        """Return a launch on its machine, in a timing model (None: the first)."""
        return self.driver()(program, launch, self.config_of(program), timing or self.timing_models[0].name)

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        return self.launched(program, launch, options.timing).run(values, options)

    def hazards(self, program: Program, launch: Launch, config: C) -> Iterable[Finding]:
        return self.launched(program, launch).findings()

    def walk(self, program: Program, launch: Launch, values: Mapping[str, Array], timing: str | None) -> Walk:
        launched = self.launched(program, launch, timing)
        with given.named(launch), given.untrusted(launch):
            return launched.walk(values)


class StreamTarget(LaunchedTarget[C]):
    """The part of the contract (base.py) that targets share whose launches are streams of instructions.

    `stream` is the class of a launch.
    """

    title: str
    stream: type[Stream[C]]
    passes = frozenset({"order", "time", "values"})
    time_needs_values = False

    def driver(self) -> type[Stream[C]]:
        return self.stream

    def lower(self, site: Site, config: C) -> Launch | str:
        """Return the launch that computes a node of a network, or the reason why the host does."""
        raise NotImplementedError

    def compile(self, graph: Graph, config: Configuration, rounding: str, timing: str | None = None) -> Program:
        steps: list[Launch | HostStep] = []
        for site in graph.sites():
            lowered = self.lower(site, self.own(config))
            steps.append(HostStep(site.node.name, lowered) if isinstance(lowered, str) else lowered)
        mode = rounding_mode(rounding).name
        return Program(self.name, config.to_dict(), config.digest(), mode, graph, tuple(steps))

    def header(self, config: Configuration) -> str:
        """Return a C header for gateware and drivers: sizes, opcodes and instruction bit fields."""
        isa, title = self.stream.isa, self.title.partition(":")[0]
        groups = [
            Group("sizes", macros(self.name, self.own(config).to_dict())),
            Group("opcodes", macros(f"{self.name}_opcode", {code.name: int(code) for code in isa.codes})),
            Group("bits of each instruction field: first, last", bit_ranges(f"{self.name}_INSN".upper(), isa.layout)),
        ]
        return header(f"{self.name.upper()}_H_", f"The machine {title}.", groups)

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        config, model = self.config_of(program), timing or self.timing_models[0].name

        def stage(launch: Launch) -> Stage:
            launched = self.stream(program, launch, config, model)
            count = f"{len(launched.image.insns)} instructions"
            if trace := launched.passes.trace:
                count += f", {trace.cycles} cycles (timing model {model})"
            return Stage(f"{launch.name}: {self.name}", [launch.meta["plan"], count])

        return by_step(program, stage)

    def disassemble(self, program: Program) -> str:
        return ImageText.of(self.stream.isa).write(program.launches)

    def assemble(self, text: str, config: base.Config) -> Program:
        return Program.bare(self.name, config, ImageText.of(self.stream.isa).read(text))
