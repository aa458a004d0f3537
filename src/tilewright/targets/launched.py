"""The driver of a launch: the steps of a run that all machines share.

`Launched` is one launch on its machine. The method `run` packs the tensors of the network into the bytes of DRAM, runs
the machine on blocks of samples, and unpacks and reports the results. A subclass implements the machine. `OnImage` is
a launch that uses a `LaunchImage`, and `ImageWalk` is the debugger's interface to such a launch. `LaunchedTarget` is a
target with launches of the class `Launched`. stream.py has launches of instructions that use the shared passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site, Tensor
from tilewright.graph.ops import Linear
from tilewright.graph.rounding import rounding_mode
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.placement import Placement
from tilewright.program.program import Configuration, Launch, Program
from tilewright.program.stages import Stage, Stages, by_step
from tilewright.sim.findings import Finding
from tilewright.sim.order import Order
from tilewright.sim.passes import LaunchResult, RunOptions
from tilewright.sim.steps import Space, StepTable
from tilewright.sim.walk import PlacedTensor, Range, State, Walk, ranges_by_address
from tilewright.targets import given
from tilewright.targets.base import TimingModel

C = TypeVar("C", bound=Configuration)


class Stored(NamedTuple):
    """A tensor of the network in a segment of DRAM. `node` is the node that computes it ("" for an input).

    If `sums` is true, the segment has the int32 sums of the launch's first node, and the host requantises these sums.
    """

    segment: str
    tensor: Tensor
    placement: Placement
    node: str = ""
    sums: bool = False


class Launched(ABC, Generic[C]):
    """One launch of a program, on the machine `config`, with the timing model `timing`.

    The constructor raises ProgramError if the launch is malformed.
    """

    def __init__(self, program: Program, launch: Launch, config: C, timing: str) -> None:
        self.program = program
        self.launch = launch
        self.config = config
        self.timing = timing

    @property
    def sites(self) -> list[Site]:
        graph = self.program.graph
        return [graph.site(graph.node(name)) for name in self.launch.nodes] if graph else []

    @property
    def together(self) -> int:
        """The largest number of samples that the machine computes at a time."""
        return 1 << 62

    @property
    def stored(self) -> Sequence[Stored]:
        """The tensors that the launch reads and computes, with their places in DRAM; () without a network.

        If placements cannot describe the tensors of a machine, its subclass overrides `pack` and `unpack`.
        """
        return ()

    @abstractmethod
    def compute(self, inputs: Mapping[str, Array], samples: int, options: RunOptions) -> Mapping[str, Array]:
        """Run the machine on S samples. Return the final bytes of each returned segment, uint8 (S or 1, size).

        `inputs` are uint8 (S, size) by segment. Raises HazardError if the launch cannot run to its end.
        """

    @abstractmethod
    def report(self, options: RunOptions) -> LaunchResult:
        """Return the result of the launch without values. Raises HazardError if the launch cannot run to its end."""

    @abstractmethod
    def findings(self) -> Iterable[Finding]:
        """Return the findings of all simulation passes."""

    def lines(self) -> Sequence[str]:
        raise NotImplementedError

    def run(self, values: Mapping[str, Array], options: RunOptions) -> LaunchResult:
        """Run the launch on S samples. `values` are tensors of the network, (S, *shape), by name."""
        with given.named(self.launch):
            if not options.values:
                return self.report(options)
            inputs = self.pack(values)
            samples = max((len(data) for data in inputs.values()), default=1)
            # Blocks limit the memory that the machine uses. The report is the same for all samples.
            parts = []
            for start in range(0, samples, self.together):
                block = {name: data[start : start + self.together] for name, data in inputs.items()}
                parts.append(self.compute(block, min(self.together, samples - start), options))
            left = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            return replace(self.report(options), values=self.unpack(left, values))

    def pack(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the bytes of each segment that the host fills, uint8 (S, size).

        Raises ProgramError if the layout of the launch does not fit the tensors.
        """
        with given.untrusted(self.launch):
            inputs = [part for part in self.stored if not part.node]
            packed = {part.segment: part.placement.pack(values[part.tensor.name]) for part in inputs}
        samples = max((len(data) for data in packed.values()), default=1)  # constants have one row for all samples
        return {name: np.broadcast_to(data, (samples, data.shape[1])) for name, data in packed.items()}  # no copy

    def unpack(self, left: Mapping[str, Array], values: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the tensors that the launch computed; if there is no network, return the bytes of each segment.

        `left` has the bytes of each segment after the launch. `values` are the tensors that `pack` has packed.
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
    """A launch whose content is a `LaunchImage`."""

    @cached_property
    @abstractmethod
    def image(self) -> LaunchImage:
        """The launch's content. Raises ProgramError if the launch is malformed."""

    @abstractmethod
    def execute(self, dram: Dram, samples: int, options: RunOptions) -> None:
        """Run the machine on S samples in DRAM. Raises HazardError if the launch cannot run to its end."""

    def compute(self, inputs: Mapping[str, Array], samples: int, options: RunOptions) -> Mapping[str, Array]:
        with given.untrusted(self.launch):
            dram = self.image.dram(inputs, samples)
        self.execute(dram, samples, options)
        return self.left(dram)

    def left(self, dram: Dram) -> dict[str, Array]:
        return {name: dram[name] for name in self.image.outputs}


def dram_spaces(dram: Dram) -> Sequence[Space]:
    """Return a space for the step table for each segment of DRAM."""
    sizes = [(segment, segment.end - segment.address) for segment in dram.segments]
    return [Space(f"DRAM {segment.name}", size, ((0, size),) if segment.initialised else ()) for segment, size in sizes]


class ImageWalk(Walk):
    """The debugger's interface to a launch with a `LaunchImage`, for one sample, whose inputs are in `dram`.

    In the step table, the spaces from `first` on are the segments of DRAM.
    """

    def __init__(self, launched: OnImage[Any], dram: Dram, table: StepTable, relation: Order, first: int) -> None:
        super().__init__(launched.launch.name, (), table, relation)
        self.launched = launched
        self.before = dram
        self.segments: tuple[Range, ...] = ranges_by_address(map(astuple, launched.image.segments), first)

    @cached_property
    def placements(self) -> Mapping[str, PlacedTensor]:
        address = {segment.name: segment.address for segment in self.launched.image.segments}
        return {
            part.tensor.name: PlacedTensor(
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


class LaunchedTarget(given.Machine[C]):
    """The part of the contract (base.py) that all targets with `Launched` launches share."""

    timing_models: tuple[TimingModel, ...]

    def first_timing(self, config: C) -> str:
        """Return the name of the timing model that a run of the machine uses if the user names none."""
        return self.timing_models[0].name

    def driver(self) -> type[Launched[C]]:
        """Return the class of launches. The method imports this class, so that it is loaded only when needed."""
        raise NotImplementedError

    def launched(self, program: Program, launch: Launch, timing: str | None = None) -> Launched[C]:
        """Return the driver of a launch on its machine. `timing` is the name of a timing model (None: the first)."""
        config = self.config_of(program)
        return self.driver()(program, launch, config, timing or self.first_timing(config))

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        return self.launched(program, launch, options.timing).run(values, options)

    def hazards(self, program: Program, launch: Launch, config: C) -> Iterable[Finding]:
        return self.launched(program, launch).findings()

    def walk(self, program: Program, launch: Launch, values: Mapping[str, Array], timing: str | None) -> Walk:
        launched = self.launched(program, launch, timing)
        with given.named(launch), given.untrusted(launch):
            return self.debugged(launched, values)

    def debugged(self, launched: Any, values: Mapping[str, Array]) -> Walk:
        """Return the `Walk` of a launch. `values` has one sample, (1, *shape), of each tensor that the launch reads."""
        raise NotImplementedError

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        def stage(launch: Launch) -> Stage:
            return Stage(f"{launch.name}: {self.name}", self.launched(program, launch, timing).lines())

        return by_step(program, stage)
