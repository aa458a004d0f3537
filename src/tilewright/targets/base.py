"""The contract of a target: an object `TARGET` that satisfies it. See docs/new-target.md. abilities.py has extras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

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
