"""The contract of a target: an object `TARGET` that satisfies it, see docs/new-target.md; and what some have beside it.

For what some have the command line asks by `isinstance`, and refuses where it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.program.program import Configuration, Launch, Program
from tilewright.sim.findings import Finding
from tilewright.sim.passes import LaunchResult, RunOptions

__all__ = ["Config", "ConformCase", "LaunchResult", "Target", "TimingModel"]

Config: TypeAlias = Configuration


@dataclass(frozen=True)
class TimingModel:
    """A named table of cycle counts, and what it rests on."""

    name: str
    evidence: str


@dataclass(frozen=True)
class ConformCase:
    """One replayed golden vector; `reason` says what differs when it did not pass."""

    name: str
    passed: bool
    reason: str = ""


class Target(Protocol):
    """A machine: its configurations, compiler, passes and golden vectors.

    `passes` is a subset of order, time, values; a pass that is missing is refused, never faked.
    """

    name: str
    title: str
    presets: tuple[str, ...]
    timing_models: tuple[TimingModel, ...]
    passes: frozenset[str]

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        """A preset's, file's or mapping's configuration (None: the default preset). Raises ConfigError."""

    def describe(self, config: Config) -> dict[str, Any]:
        """Sizes and peak, for people: includes `macs_per_cycle` and `clock_mhz`."""

    def header(self, config: Config) -> str:
        """The machine as a C header for gateware, drivers and runtimes: sizes, codes, bits of instructions."""

    def compile(self, graph: Graph, config: Config, rounding: str, timing: str | None = None) -> Program:
        """The program of a network, planned for a timing model (None: the first) where plans depend on one.

        Raises UnsupportedError only where not even the host can run a node.
        """

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        """Run one launch on S samples. Raises MachineError for a program that cannot run to its end."""

    def check(self, program: Program) -> Iterator[Finding]:
        """Hazards of every launch, and where it leaves what all implementations agree on; without values."""

    def disassemble(self, program: Program) -> str:
        """The program as text that `assemble` reads back exactly."""

    def assemble(self, text: str, config: Config) -> Program:
        """A bare program from text. Raises ProgramError with line and column."""

    def explain(self, program: Program, timing: str | None = None) -> str:
        """Each stage's text dump: plans, volumes and counts per layer, cycles by a timing model (None: the first).

        Where time depends on values, None gives no cycles, and a model those of a sample of zeros.
        """

    def conform(self, path: Path) -> ConformCase | Iterator[ConformCase]:
        """Replay one golden vector file; one with many cases gives each."""


class Drawable(Protocol):
    """Something to show."""

    def text(self) -> str: ...
    def svg(self) -> str: ...
    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class LayoutRequest:
    """What to lay out: `kind` is the layout's name; `start` the lane of channel 0; `offset` bytes from the beginning of
    its lane; `stride` of a free layout, in elements; `width` of a matrix, in columns a channel.
    """

    kind: str
    shape: Sequence[int]
    dtype: str
    start: int = 0
    offset: int = 0
    stride: Sequence[int] | None = None
    width: int | None = None


@runtime_checkable
class Layouts(Protocol):
    """A machine whose layouts of tensors can be drawn."""

    def layout(self, wanted: LayoutRequest, config: Config) -> Drawable:
        """Where the elements of a tensor lie. Raises InputError."""


@runtime_checkable
class Approximates(Protocol):
    """A target that can compute real numbers in a type of its own, not bit for bit as the reference does.

    `real_option` is the option of the command line that makes a machine do so.
    """

    real_option: str

    def takes_real(self, config: Config) -> bool:
        """Whether a machine computes real numbers."""

    def approximates(self, program: Program) -> bool:
        """Whether it does so in this program: outputs then have a deviation from the reference instead of a match."""


@runtime_checkable
class Batches(Protocol):
    """A target whose launches can take several samples at a time."""

    def samples_a_launch(self, program: Program) -> int:
        """How many; those that are missing are filled up, so that parts of them cost as much as all."""


@dataclass(frozen=True)
class Execution:
    """What a program for a target's own processor did: for people, as JSON values, and as a speedscope profile."""

    text: str
    data: Mapping[str, Any]
    passed: bool
    speedscope: Mapping[str, Any]


@runtime_checkable
class Executes(Protocol):
    """A target with a processor: it runs ELF files as they are. Not part of every target's contract."""

    def execute(self, path: Path, config: Config, timing: str | None, limit: int | None) -> Execution:
        """Run a file to its end, or to `limit` instructions. Raises ProgramError for one that it cannot load."""


@dataclass(frozen=True)
class CosimCase:
    """One launch on the compiled gateware and on the simulator; `differences`, the first one first, are sentences."""

    name: str
    instructions: int
    cycles: int
    rtl_cycles: int
    mismatched_bytes: int
    differences: tuple[str, ...] = ()
    first_cycle: int | None = None  # of the first difference


@runtime_checkable
class Gateware(Protocol):
    """What a target with gateware has besides. It raises ConfigError where tools or parts of a machine are missing."""

    def excess(self, config: Config) -> str:
        """Why a design does not fit the board that the configuration names, and what to set; empty where it fits."""

    def rtl(self, config: Config) -> Mapping[str, str]:
        """The files of a design for a board, by name: Verilog, constraints, README."""

    def cosim(self, program: Program, launch: Launch, values: Mapping[str, Array], engine: str) -> CosimCase:
        """Compare one launch on one sample."""

    def waveform(
        self,
        program: Program,
        launch: Launch,
        values: Mapping[str, Array],
        path: Path,
        cycles: tuple[int, int] | None,
    ) -> None:
        """Write the gateware's signals (VCD) in some cycles of one launch on one sample; None: in all."""
