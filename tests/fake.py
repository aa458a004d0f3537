"""A target whose launches are the host's own arithmetic on a two-unit machine, for tests of what is above targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ConfigError, MachineError, ProgramError
from tilewright.graph import reference
from tilewright.graph.ir import Graph
from tilewright.program.program import HostStep, Launch, Program
from tilewright.program.stages import Stage, Stages
from tilewright.sim.causes import CAUSE_TOKEN
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import Footprints, StepTable, TokenQueue, Trace
from tilewright.targets import base
from tilewright.targets.base import ConformCase, LaunchResult, TimingModel

RACE = Finding("race", "load #0 and compute #3 touch inp[0:16]", (0, 3))


@dataclass(frozen=True)
class FakeConfig:
    clock: int = 100

    def to_dict(self) -> dict[str, Any]:
        return {"clock": self.clock}

    def digest(self) -> str:
        return str(self.clock)


class FakeTarget:
    """Loads and computes in turn, two of each a launch; `fault` makes it go wrong in a named way."""

    name = "fake"
    title = "Fake machine"
    presets: tuple[str, ...] = ("small", "large")
    timing_models: tuple[TimingModel, ...] = (TimingModel("guess", "nothing at all"),)
    passes = frozenset({"order", "time", "values"})

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> FakeConfig:
        if isinstance(source, str) and source not in self.presets:
            raise ConfigError("--config", f"there is no preset '{source}'", "choose small or large")
        clock = dict(source).get("clock", 100) if isinstance(source, Mapping) else 100
        for key, value in overrides.items():
            if key != "clock":
                raise ConfigError("config", f"unknown key {key}")
            clock = int(value)
        return FakeConfig(clock)

    def describe(self, config: base.Config) -> dict[str, Any]:
        return {"macs_per_cycle": 256, "clock_mhz": config.to_dict()["clock"], "bus_bits": 64}

    def header(self, config: base.Config) -> str:
        return f"#define FAKE_CLOCK {config.to_dict()['clock']}\n"

    def compile(self, graph: Graph, config: base.Config, rounding: str, timing: str | None = None) -> Program:
        steps: list[Launch | HostStep] = []
        for node in graph.nodes:
            if node.op.kind == "softmax":
                steps.append(HostStep(node.name, "no exponential on the array"))
            else:
                steps.append(Launch(node.name, (node.name,), {}, {}))
        return Program(self.name, config.to_dict(), config.digest(), rounding, graph, tuple(steps))

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        if self.fault == "interrupt":
            raise KeyboardInterrupt
        if self.fault == "defect":
            raise AssertionError("impossible")
        if self.fault == "memory":
            raise MemoryError
        if self.fault == "deadlock":
            raise MachineError(f"launch '{launch.name}'", "deadlock:\n  load waits for compute", "push a token")
        results: dict[str, Array] = {}
        if program.graph is not None:
            (node,) = launch.nodes
            results = reference.run_node(program.graph, node, values, program.rounding)
            if self.fault == "mismatch":
                results = {name: array ^ 1 for name, array in results.items()}
        found = (RACE,) if self.fault == "race" and options.check else ()
        return LaunchResult(results, found, trace(), (trace().figures("compute", 64),))

    def check(self, program: Program) -> Iterator[Finding]:
        if self.fault == "race":
            yield RACE

    def disassemble(self, program: Program) -> str:
        return "".join(f"step {launch.name}\n" for launch in program.launches)

    def assemble(self, text: str, config: base.Config) -> Program:
        words = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
        for number, line in enumerate(words, 1):
            if line[0] != "step":
                raise ProgramError(f"line {number}, column 1", f"found '{line[0]}'", "expected step")
        steps = tuple(Launch(word[1], (), {}, {}) for word in words)
        return Program(self.name, config.to_dict(), config.digest(), "tflm", None, steps)

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        return [Stage("plans [with brackets]")]

    def conform(self, path: Path) -> ConformCase:
        if path.stem == "broken":
            raise ProgramError(str(path), "cannot be read")
        return ConformCase(path.stem, path.stem != "bad", "out[0] is 1, not 2" if path.stem == "bad" else "")


def trace() -> Trace:
    """load 0..10, compute 10..30, load 10..22, compute 30..50, and a barrier of no length at 50."""
    unit = np.array([0, 1, 0, 1, 1], np.int64)
    pops, pushes = np.array([0, 1, 0, 1, 0]), np.array([1, 0, 1, 0, 0])
    table = StepTable(
        units=("load", "compute"),
        queues=(TokenQueue("load->compute", 0, 1, 8),),
        spaces=(),
        unit=unit,
        pops=pops.astype(np.int64),
        pushes=pushes.astype(np.int64),
        footprint=np.zeros(5, np.int64),
        footprints=Footprints.of([np.zeros((0, 6), np.int64)]),
        describe=lambda step: ("load inp", "gemm", "load inp", "gemm", "finish")[step],
    )
    return Trace(
        table=table,
        start=np.array([0, 10, 10, 30, 50]),
        end=np.array([10, 30, 22, 50, 50]),
        wait=np.array([0, 10, 0, 0, 0]),
        cause=np.array([0, CAUSE_TOKEN, 0, 0, 0]),
        contention=np.array([0, 0, 2, 0, 0]),
        bytes_read=np.array([160, 0, 160, 0, 0]),
        bytes_written=np.array([0, 0, 0, 32, 0]),
        fetch_bytes=80,
        cycles=50,
    )
