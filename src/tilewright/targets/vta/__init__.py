"""VTA, the Versatile Tensor Accelerator: fetch, load, compute and store units joined by token queues."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.array import Array
from tilewright.errors import ProgramError, option
from tilewright.graph.ir import Graph, Site
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stages
from tilewright.sim.events import Events
from tilewright.sim.walk import Walk
from tilewright.targets.base import Change, ConformCase, TimingModel
from tilewright.targets.gateware import OnGateware, tools
from tilewright.targets.launched import LaunchedTarget
from tilewright.targets.users import Loaded
from tilewright.targets.vta.causes import CAUSES
from tilewright.targets.vta.changes import SPACES, changes
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.timing import MODELS, Intervals, first
from tilewright.targets.vta.timing.model import ports

if TYPE_CHECKING:
    from tilewright.targets.vta.passes import VtaLaunch
    from tilewright.targets.vta.schedule import Schedule


class VtaTarget(LaunchedTarget[Config]):
    """The target `vta`. For its methods, see the protocol Target in targets/base.py."""

    name = "vta"
    kind = Config
    title = "Versatile Tensor Accelerator: load / compute / store with token queues, GEMM core and tensor ALU"
    presets = tuple(PRESETS)
    timing_models = MODELS.sources
    passes = frozenset({"order", "time", "values"})
    causes = CAUSES
    offers = ("alu=rounding", "alu=fused", "alu=float")
    spaces = SPACES

    def first_timing(self, config: Config) -> str:
        return first(config)

    def describe(self, config: Config) -> dict[str, Any]:
        forms = [form for form in Intervals._fields if form != "requantise" or config.has_parameters]
        models = {name: model.intervals(config) for name, model in MODELS.items()}
        return {
            "macs_per_cycle": config.macs_per_cycle,
            "clock_mhz": config.mhz,
            "bus_bits": config.bus_bits,
            "dram_bytes_per_cycle": 2 * config.bus_bits // 8,  # reads and writes have separate data buses
            "array": f"{config.batch}x{config.block}x{config.block}",
            "units": ", ".join(config.pipeline.units),
            "alu": ", ".join(name.upper() for name in config.opcodes.values()),
            "memories": {chip.name: f"{chip.depth} x {chip.tile_bytes} B" for chip in config.chips},
            "on_chip_kib": round(sum(config.storage.values()) / 1024, 1),
            "ports": {
                key.removesuffix("_bits").replace("_", " "): f"{port.provided} bits per cycle, {port.needed} needed"
                for key, port in ports(config).items()
            },
            "cycles_a_micro_op": {
                name: ", ".join(f"{form.replace('_', ' ')} {getattr(intervals, form)}" for form in forms)
                for name, intervals in models.items()
            },
        }

    def with_code(self, program: Program, config: Config) -> Program:
        """Return a program with the code of own ALU operations. Raises ProgramError if the machine differs."""
        if difference := self.config_of(program).difference(config):
            remedy = "give the file that the program was made with, or make the program again"
            raise ProgramError(option("--config"), f"is another machine than the program's: {difference}", remedy)
        return replace(program, config=config.to_dict(), digest=config.digest())

    def header(self, config: Config) -> str:
        from tilewright.targets.vta.gateware import header

        return header.text(config)

    def compile(self, graph: Graph, config: Config, rounding: str, timing: str | None = None) -> Program:
        from tilewright.targets.vta.compiler.compiler import compile_graph

        return compile_graph(graph, config, rounding, timing or self.first_timing(config))

    def schedule(self, source: object) -> Schedule:
        from tilewright.targets.vta.schedule import read

        return read(source)

    def compile_scheduled(
        self,
        graph: Graph,
        config: Config,
        rounding: str,
        timing: str | None,
        schedule: object,
        search: bool = False,
    ) -> Program:
        from tilewright.targets.vta.compiler.scheduled import compile_scheduled

        return compile_scheduled(
            graph, config, rounding, timing or self.first_timing(config), self.schedule(schedule), search
        )

    def schedule_of(self, program: Program) -> Schedule:
        from tilewright.targets.vta.compiler.scheduled import schedule_of

        return schedule_of(program)

    def load(self, folder: Path, config: Config) -> Loaded:
        from tilewright.targets.vta import raw

        return raw.read(folder, config)

    def dump(self, program: Program, launch: Launch, values: Mapping[str, Array], end: str) -> Mapping[str, bytes]:
        from tilewright.targets.vta import raw

        launched = self.launched(program, launch)
        return raw.files(launch.name, image_of(launch), launched.config, launched.pack(values), end)

    def remembering(self, folder: Path) -> AbstractContextManager[None]:
        from tilewright.targets.vta.compiler.scores import remembering

        return remembering(folder)

    def takes(self, site: Site, config: Config, rounding: str) -> bool:
        from tilewright.targets.vta.compiler.lower import lower
        from tilewright.targets.vta.compiler.lowered import Context

        return not isinstance(lower(site, Context(config, rounding_mode(rounding), self.first_timing(config))), str)

    def driver(self) -> type[VtaLaunch]:
        from tilewright.targets.vta.passes import VtaLaunch

        return VtaLaunch

    def debugged(self, launched: VtaLaunch, values: Mapping[str, Array]) -> Walk:
        from tilewright.targets.vta.debug.walk import VtaWalk

        return VtaWalk(launched, values)

    def changes(self, config: Config, timing: TimingModel) -> Iterator[Change]:
        return changes(config, timing)

    def floor(self, graph: Graph, config: Config, rounding: str, timing: str, host: Collection[str]) -> Events:
        from tilewright.targets.vta.compiler.floor import floor

        return floor(graph, config, rounding_mode(rounding), timing, frozenset(host))

    def disassemble(self, program: Program) -> str:
        from tilewright.targets.vta.isa.text import disassemble

        return disassemble(program, self.config_of(program))

    def assemble(self, text: str, config: Config) -> Program:
        from tilewright.targets.vta.isa.text import assemble

        launches = assemble(text, config)
        for launch in launches:
            image_of(launch)
        return Program.bare(self.name, config, launches)

    def explain(self, program: Program, timing: str | None = None, short: bool = True) -> Stages:
        from tilewright.targets.vta.compiler.explain import explain

        return explain(program, timing or self.first_timing(self.config_of(program)), short)

    def explain_all(self, program: Program, timing: str | None = None) -> Stages:
        return self.explain(program, timing, short=False)

    def conform(self, path: Path) -> ConformCase:
        from tilewright.targets.vta.conform import conform

        return conform(path)

    def excess(self, config: Config) -> str:
        from tilewright.targets.vta.gateware import area

        return area.excess(config)

    def area(self, config: Config) -> dict[str, Any]:
        from tilewright.targets.vta.gateware.area import area

        return area(config)

    def host_flags(self, config: Config) -> Mapping[str, Sequence[str]]:
        from tilewright.targets.vta.native.hostlib import library

        return library(config).flags()

    def rtl(self, config: Config) -> Mapping[str, str]:
        with tools():
            from tilewright.targets.vta.gateware.top import board_files

        return board_files(config)

    def on_gateware(self, program: Program, launch: Launch, values: Mapping[str, Array]) -> OnGateware:
        with tools():
            from tilewright.targets.vta.gateware.cosim import compare

        launched = self.launched(program, launch)
        return partial(compare, launch.name, image_of(launch), launched.config, launched.pack(values))


TARGET = VtaTarget()
