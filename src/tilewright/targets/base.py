"""The contract of a target's object `TARGET` (see docs/new-target.md), and optional protocols.

The command line checks for an optional protocol by `isinstance`, and refuses a command if the target lacks the
protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.program.program import Configuration, Launch, Program
from tilewright.program.stages import Stages
from tilewright.sim.findings import Finding
from tilewright.sim.passes import LaunchResult, RunOptions
from tilewright.sim.walk import Walk

__all__ = ["Config", "ConformCase", "LaunchResult", "Target", "TimingModel"]

Config: TypeAlias = Configuration


class Number(NamedTuple):
    """A number of a timing model. A what-if may set it to `least` or more; an integer must remain an integer."""

    value: float
    least: float


@dataclass(frozen=True)
class TimingModel:
    """A named table of cycle counts, with evidence. A what-if may change the values in `numbers`.

    The what-if called "NAME,KEY=VALUE,..." is the model NAME with changed numbers.
    """

    name: str
    evidence: str
    numbers: Mapping[str, Number] = field(default_factory=dict, compare=False)

    @property
    def values(self) -> dict[str, Any]:
        return {key: number.value for key, number in self.numbers.items()}


@dataclass(frozen=True)
class ConformCase:
    """The outcome of one golden vector. If the vector did not pass, `reason` describes the difference.

    `counts` has more comparisons by name, each as (number of equal values, number of compared values).
    """

    name: str
    passed: bool
    reason: str = ""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Target(Protocol):
    """A machine: its configurations, compiler, simulation passes and golden vectors.

    `passes` has the names of the supported simulation passes: a subset of "order", "time" and "values". All arguments
    called `config` are results of the method `config`, so a target may use its own class.
    """

    name: str
    title: str
    presets: tuple[str, ...]
    timing_models: tuple[TimingModel, ...]
    passes: frozenset[str]

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        """Read a preset, a JSON file or a mapping (None: the default preset). Raises ConfigError for illegal values."""

    def describe(self, config: Any) -> dict[str, Any]:
        """Return sizes and peak for display, including `macs_per_cycle` and `clock_mhz`."""

    def header(self, config: Any) -> str:
        """Return a C header for gateware, drivers and runtimes: sizes, codes and instruction bit fields."""

    def compile(self, graph: Graph, config: Any, rounding: str, timing: str | None = None) -> Program:
        """Compile a network. The compiler plans for the timing model `timing` (None: the first).

        Raises UnsupportedError if a node can run neither on the target nor on the host.
        """

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        """Run one launch on S samples. Raises MachineError if the program cannot run to its end."""

    def check(self, program: Program) -> Iterator[Finding]:
        """Yield findings, without running the program: hazards, and behaviour that differs between implementations."""

    def disassemble(self, program: Program) -> str:
        """Return the program as text that `assemble` reads back exactly."""

    def assemble(self, text: str, config: Any) -> Program:
        """Assemble text into a bare program. Raises ProgramError, with line and column, if the text is wrong."""

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        """Return each compile stage: plans, volumes, counts and cycles per layer.

        `timing` is the name of a timing model (None: the first). If cycles depend on the data, the stages have the
        cycles of a sample of zeros if `timing` is given, else no cycles.
        """

    def conform(self, path: Path) -> ConformCase | Iterator[ConformCase]:
        """Replay one golden vector file; a file with many cases yields one outcome per case."""


@dataclass(frozen=True)
class Change:
    """A change of a machine that may save cycles. `text` describes the change.

    `set` has the changed configuration keys, and `timing` the changed numbers of the timing model. If `recompile` is
    true, the network must be compiled again. Otherwise the change affects only the time of a program.
    """

    text: str
    set: Mapping[str, int | str] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    recompile: bool = False


@runtime_checkable
class TimesByMachine(Protocol):
    """A target whose machines differ in their first timing model. Other targets have one first timing model."""

    def first_timing(self, config: Any) -> str:
        """Return the name of the timing model that a run of the machine uses if the user names none."""


@runtime_checkable
class ExplainsAll(Protocol):
    """A target whose `explain` shortens its tables."""

    def explain_all(self, program: Program, timing: str | None = None) -> Stages:
        """Return the stages of `explain` with whole tables (`explain --all`)."""


@runtime_checkable
class Walks(Protocol):
    """A target whose launches can be run instruction by instruction, forwards and back (`tilewright debug`)."""

    def walk(self, program: Program, launch: Launch, values: Mapping[str, Array], timing: str | None) -> Walk:
        """Return a launch with its inputs. `values` has one sample, (1, *shape), of each tensor that the launch reads.

        `timing` names the timing model (None: the first). Raises ProgramError if the launch is malformed. Hazards are
        allowed: the launch can be run up to the instruction that cannot run.
        """
