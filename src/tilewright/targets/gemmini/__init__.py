"""Gemmini: a systolic array, scratchpad and accumulator, and three controllers fed by a reservation station."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.program.header import Group, header, macros
from tilewright.program.listing import LaunchText
from tilewright.program.program import Program
from tilewright.sim.walk import Walk
from tilewright.targets.base import Change, ConformCase, TimingModel
from tilewright.targets.gemmini.causes import CAUSES
from tilewright.targets.gemmini.config import PRESETS, UNITS, Config
from tilewright.targets.gemmini.isa.fields import FORMATS
from tilewright.targets.gemmini.isa.text import TEXT
from tilewright.targets.launched import LaunchedTarget
from tilewright.targets.users import Execution

if TYPE_CHECKING:
    from tilewright.targets.gemmini.launch import GemminiLaunch

#: The timing model. The model has no parameters: all numbers that a user may change are in the configuration.
RTL = TimingModel(
    "rtl",
    "cycle by cycle after upstream's Chisel of 2025 (in today's Chipyard), or of 2023 with rtl=2023; compared with RTL"
    " of both under a TileLink responder of our own (docs/gemmini.md), neither with silicon nor with a whole SoC",
)


class GemminiTarget(LaunchedTarget[Config]):
    """The target Gemmini (see targets/base.py). The hardware decides the order, so no pass `order` exists."""

    name = "gemmini"
    kind = Config
    title = "Gemmini: systolic array, scratchpad and accumulator, DMA, hardware loops, a reservation station"
    presets = tuple(PRESETS)
    timing_models = (RTL,)
    passes = frozenset({"time", "values"})
    causes = CAUSES

    def describe(self, config: Config) -> dict[str, Any]:
        return {
            "macs_per_cycle": config.dim * config.dim,
            "clock_mhz": config.clock_mhz,
            "dim": config.dim,
            "spad_kib": config.all_spad_rows * config.dim >> 10,
            "acc_kib": config.acc_rows * config.dim * 4 >> 10,
            "dataflow": config.dataflow,
            "semantics": config.semantics,
            "memory_latency": config.memory_latency,
        }

    def header(self, config: Config) -> str:
        sizes = {key: value for key, value in config.to_dict().items() if isinstance(value, int)}
        groups = [
            Group("sizes", macros("gemmini", sizes)),
            Group("funct of each command", macros("gemmini_funct", {form.name: form.funct for form in FORMATS})),
        ]
        for form in FORMATS:
            places = [(f"rs{number}", place) for number, held in ((1, form.rs1), (2, form.rs2)) for place in held]
            ends = {
                f"{register}_{place.name}_{end}": place.low + end * (place.width - 1)
                for register, place in places
                for end in (0, 1)
            }
            groups.append(Group(f"bits of {form.name}: first, last", macros(f"gemmini_{form.name}", ends)))
        return header("GEMMINI_H_", "The machine Gemmini.", groups)

    def compile(self, graph: Graph, config: Config, rounding: str, timing: str | None = None) -> Program:
        from tilewright.targets.gemmini.compiler import compile_graph

        return compile_graph(graph, config, rounding)

    def driver(self) -> type[GemminiLaunch]:
        from tilewright.targets.gemmini.launch import GemminiLaunch

        return GemminiLaunch

    def debugged(self, launched: GemminiLaunch, values: Mapping[str, Array]) -> Walk:
        from tilewright.targets.gemmini.debug import GemminiWalk

        return GemminiWalk(launched, launched.image.dram(launched.pack(values), 1))

    def changes(self, config: Config, timing: TimingModel) -> Iterator[Change]:
        if config.memory_latency > 1:
            yield Change("memory with half the latency", {"memory_latency": config.memory_latency // 2})
        twice = {"reads_in_flight": 2 * config.reads_in_flight, "writes_in_flight": 2 * config.writes_in_flight}
        yield Change("twice as many requests in flight", twice)
        entries = {f"rs_{name}": 2 * getattr(config, f"rs_{name}") for name in UNITS}
        yield Change("a reservation station of twice as many entries", entries)
        yield Change("array twice as wide", {"dim": 2 * config.dim}, recompile=True)
        yield Change("scratchpad twice as large", {"spad_rows": 2 * config.spad_rows}, recompile=True)

    def text(self, config: Config) -> LaunchText:
        return TEXT

    def host_flags(self, config: Config) -> Mapping[str, Sequence[str]]:
        from tilewright.targets.gemmini.native.hostlib import library

        return library(config).flags()

    def run_c(self, source: Path, config: Config, flags: Sequence[str]) -> Execution:
        from tilewright.targets.gemmini.native.execute import execute

        return execute(source, config, flags, RTL)

    def conform(self, path: Path) -> ConformCase:
        from tilewright.targets.gemmini.conformance import conform

        return conform(path)


TARGET = GemminiTarget()
