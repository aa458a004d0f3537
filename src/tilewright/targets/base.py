"""The contract that a target's object `TARGET` satisfies (see docs/new-target.md), and optional protocols.

The command line tests for an optional protocol by `isinstance`, and refuses a command whose protocol is missing.
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
    """A number of a timing model that a what-if may change, to no less than `least`. An integer stays an integer."""

    value: float
    least: float


@dataclass(frozen=True)
class TimingModel:
    """A named table of cycle counts, and the evidence for them. A what-if may change `numbers`, by key.

    The what-if "NAME,KEY=VALUE,..." is the model NAME with these numbers; this text is its name.
    """

    name: str
    evidence: str
    numbers: Mapping[str, Number] = field(default_factory=dict, compare=False)

    @property
    def values(self) -> dict[str, Any]:
        return {key: number.value for key, number in self.numbers.items()}


@dataclass(frozen=True)
class ConformCase:
    """The outcome of one golden vector; `reason` describes the difference, if it did not pass.

    `counts` are further comparisons by name: (values that are exactly equal, compared values).
    """

    name: str
    passed: bool
    reason: str = ""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Target(Protocol):
    """A machine: its configurations, compiler, simulation passes and golden vectors.

    `passes` names its simulation passes: some of "order", "time" and "values". A request for another pass is refused.
    Arguments called `config` are results of the method `config`, so a target may declare a class of its own.
    """

    name: str
    title: str
    presets: tuple[str, ...]
    timing_models: tuple[TimingModel, ...]
    passes: frozenset[str]

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        """Read a preset, a JSON file or a mapping (None: the default preset). Raises ConfigError if it is invalid."""

    def describe(self, config: Any) -> dict[str, Any]:
        """Return sizes and peak for display, including `macs_per_cycle` and `clock_mhz`."""

    def header(self, config: Any) -> str:
        """Return a C header for gateware, drivers and runtimes: sizes, codes and instruction bit fields."""

    def compile(self, graph: Graph, config: Any, rounding: str, timing: str | None = None) -> Program:
        """Compile a network. Plans that depend on timing use the timing model `timing` (None: the first).

        Raises UnsupportedError only if neither the target nor the host can run a node.
        """

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        """Run one launch on S samples. Raises MachineError if the program cannot run to its end."""

    def check(self, program: Program) -> Iterator[Finding]:
        """Yield findings without running the program: hazards, and behaviour that differs between implementations."""

    def disassemble(self, program: Program) -> str:
        """Return the program as text that `assemble` reads back exactly."""

    def assemble(self, text: str, config: Any) -> Program:
        """Assemble text into a bare program. Raises ProgramError, with line and column, if the text is wrong."""

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        """Return each compile stage: plans, volumes, counts and cycles per layer.

        `timing` names the timing model (None: the first). If cycles depend on the data, None gives no cycles, and a
        named timing model gives the cycles of a sample of zeros.
        """

    def conform(self, path: Path) -> ConformCase | Iterator[ConformCase]:
        """Replay one golden vector file; a file with many cases yields one outcome per case."""


@dataclass(frozen=True)
class Change:
    """A change of a machine that may save cycles; `text` describes it.

    `set` are configuration keys to set, `timing` numbers of the timing model. With `recompile`, the network must be
    compiled for the changed machine; otherwise all keys in `set` only change time.
    """

    text: str
    set: Mapping[str, int | str] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    recompile: bool = False


@runtime_checkable
class Walks(Protocol):
    """A target whose launches can be run instruction by instruction, forwards and back (`tilewright debug`)."""

    def walk(self, program: Program, launch: Launch, values: Mapping[str, Array], timing: str | None) -> Walk:
        """Return a launch with its inputs: `values` has one sample, (1, *shape), of each tensor that it reads.

        `timing` names the timing model (None: the first). Raises ProgramError if the launch is malformed. A launch with
        hazards is no error: it can be walked up to the instruction that cannot run.
        """
