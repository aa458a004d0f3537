"""Gemmini: a systolic array with a scratchpad, an accumulator and three controllers behind a reservation station."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.graph.ir import Graph
from tilewright.program.header import Group, header, macros
from tilewright.program.listing import LaunchText
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stage, Stages, by_step
from tilewright.targets import base
from tilewright.targets.base import Change, ConformCase, TimingModel
from tilewright.targets.gemmini.config import PRESETS, UNITS, Config
from tilewright.targets.gemmini.isa.fields import FORMATS
from tilewright.targets.gemmini.isa.text import TEXT
from tilewright.targets.launched import LaunchedTarget
from tilewright.targets.users import Execution

if TYPE_CHECKING:
    from tilewright.targets.gemmini.launch import GemminiLaunch

#: The only timing model. Its numbers are rules of the hardware; what may change are keys of the configuration.
RTL = TimingModel(
    "rtl",
    "cycle by cycle after the units of the Chisel source; compared with two builds of generated RTL under a TileLink"
    " responder of our own (docs/gemmini.md), neither with silicon nor with a whole SoC",
)


class GemminiTarget(LaunchedTarget[Config]):
    """The target Gemmini (methods: targets/base.py). There is no pass `order`: the hardware decides it."""

    name, kind = "gemmini", Config
    title = "Gemmini: systolic array, scratchpad and accumulator, DMA, hardware loops, a reservation station"
    presets = tuple(PRESETS)
    timing_models = (RTL,)
    passes = frozenset({"time", "values"})

    def describe(self, config: base.Config) -> dict[str, Any]:
        machine = self.own(config)
        return {
            "macs_per_cycle": machine.dim * machine.dim,
            "clock_mhz": machine.clock_mhz,
            "dim": machine.dim,
            "spad_kib": machine.all_spad_rows * machine.dim >> 10,
            "acc_kib": machine.acc_rows * machine.dim * 4 >> 10,
            "dataflow": machine.dataflow,
            "semantics": machine.semantics,
            "memory_latency": machine.memory_latency,
        }

    def header(self, config: base.Config) -> str:
        machine = self.own(config)
        sizes = {key: value for key, value in machine.to_dict().items() if isinstance(value, int)}
        groups = [
            Group("sizes", macros("gemmini", sizes)),
            Group("funct of each command", macros("gemmini_funct", {own.name: own.funct for own in FORMATS})),
        ]
        for own in FORMATS:
            places = [(f"rs{number}", place) for number, held in ((1, own.rs1), (2, own.rs2)) for place in held]
            ends = {
                f"{register}_{place.name}_{end}": place.low + end * (place.width - 1)
                for register, place in places
                for end in (0, 1)
            }
            groups.append(Group(f"bits of {own.name}: first, last", macros(f"gemmini_{own.name}", ends)))
        return header("GEMMINI_H_", "The machine Gemmini.", groups)

    def compile(self, graph: Graph, config: base.Config, rounding: str, timing: str | None = None) -> Program:
        from tilewright.targets.gemmini.compiler import compile_graph

        return compile_graph(graph, self.own(config), rounding)

    def driver(self) -> type[GemminiLaunch]:
        from tilewright.targets.gemmini.launch import GemminiLaunch

        return GemminiLaunch

    def changes(self, config: base.Config, timing: TimingModel) -> Iterator[Change]:
        machine = self.own(config)
        if machine.memory_latency > 1:
            yield Change("memory with half the latency", {"memory_latency": machine.memory_latency // 2})
        twice = {"reads_in_flight": 2 * machine.reads_in_flight, "writes_in_flight": 2 * machine.writes_in_flight}
        yield Change("twice as many requests in flight", twice)
        entries = {f"rs_{name}": 2 * getattr(machine, f"rs_{name}") for name in UNITS}
        yield Change("a reservation station of twice as many entries", entries)
        yield Change("array twice as wide", {"dim": 2 * machine.dim}, recompile=True)
        yield Change("scratchpad twice as large", {"spad_rows": 2 * machine.spad_rows}, recompile=True)

    def text(self, config: Config) -> LaunchText:
        return TEXT

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        config, model, driver = self.config_of(program), timing or RTL.name, self.driver()

        def stage(launch: Launch) -> Stage:
            passes = driver(program, launch, config, model).passes
            plan = [launch.meta["plan"]] if "plan" in launch.meta else []
            count = f"{len(passes.cmds)} commands, {len(passes.prims)} primitive commands"
            taken = f"{count}, {passes.times.cycles} cycles (timing model {model})"
            return Stage(f"{launch.name}: {self.name}", [*plan, taken])

        return by_step(program, stage)

    def host_flags(self, config: base.Config) -> Mapping[str, Sequence[str]]:
        from tilewright.targets.gemmini.native.hostlib import library

        return library(self.own(config)).flags()

    def run_c(self, source: Path, config: base.Config, flags: Sequence[str]) -> Execution:
        from tilewright.targets.gemmini.native.execute import execute

        return execute(source, self.own(config), flags, RTL)

    def conform(self, path: Path) -> ConformCase:
        from tilewright.targets.gemmini.conformance import conform

        return conform(path)


TARGET = GemminiTarget()
