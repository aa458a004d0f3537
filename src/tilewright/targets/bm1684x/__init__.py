"""BM1684X: a 64-lane TPU. Read README.md first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import Program
from tilewright.program.stages import Stages
from tilewright.sim.walk import Walk
from tilewright.targets.base import Change, ConformCase, TimingModel
from tilewright.targets.bm1684x.causes import CAUSES
from tilewright.targets.bm1684x.config import CUBE_MACS, PRESETS, Config
from tilewright.targets.bm1684x.timing.model import MODELS
from tilewright.targets.launched import LaunchedTarget

if TYPE_CHECKING:
    from tilewright.program.listing import LaunchText
    from tilewright.targets.bm1684x.launch.run import Bm1684xLaunch

#: The size of a factor, in bytes, by `precision`. With `host`, the machine multiplies only 8-bit codes.
OPERAND_BYTES = {"host": 1, "f16": 2, "bf16": 2, "f32": 4}
#: What-ifs change these rates of transfers (in bytes per cycle), and the number of samples per launch.
RATES = ("read_rate", "write_rate", "copy_rate", "matrix_read_rate", "matrix_write_rate", "turn_rate")
BATCH = 4


class Bm1684x(LaunchedTarget[Config]):
    """The BM1684X as a target of Tilewright. `Target` in targets/base.py documents the methods."""

    name = "bm1684x"
    kind = Config
    title = "BM1684X: 64-lane TPU with GDMA, BDC and HAU command queues and 16 MiB of local memory"
    presets = tuple(PRESETS)
    timing_models = MODELS.sources
    passes = frozenset({"order", "time", "values"})
    causes = CAUSES
    offers = ("precision=f16",)

    def describe(self, config: Config) -> dict[str, Any]:
        return {"macs_per_cycle": config.lanes * CUBE_MACS[OPERAND_BYTES[config.precision]], **config.to_dict()}

    def header(self, config: Config) -> str:
        from tilewright.targets.bm1684x.launch.listing import c_header

        return c_header(config)

    def compile(self, graph: Graph, config: Config, rounding: str, timing: str | None = None) -> Program:
        from tilewright.targets.bm1684x.compiler.compile import compile_graph

        return compile_graph(graph, config, rounding)

    def driver(self) -> type[Bm1684xLaunch]:
        from tilewright.targets.bm1684x.launch.run import Bm1684xLaunch

        return Bm1684xLaunch

    def debugged(self, launched: Bm1684xLaunch, values: Mapping[str, Array]) -> Walk:
        from tilewright.targets.bm1684x.debug.network import NetworkWalk

        return NetworkWalk(launched, values)

    def changes(self, config: Config, timing: TimingModel) -> Iterator[Change]:
        values = timing.values
        yield Change("DMA twice as fast", timing={key: 2 * values[key] for key in RATES})
        yield Change("DMA without loss on short runs and small tensors", timing={"shortest_run": 1, "full": 1})
        if values["strided_pool"] > 1:
            yield Change("pooling with stride at full speed", timing={"strided_pool": 1})
        if config.batch < BATCH:
            yield Change(f"{BATCH} samples per launch", {"batch": BATCH}, recompile=True)
        if config.lanes < 64:
            yield Change("twice as many lanes", {"lanes": 2 * config.lanes}, recompile=True)
        if config.banks < 64:
            yield Change("twice as many banks of local memory", {"banks": 2 * config.banks}, recompile=True)

    def samples_a_launch(self, program: Program) -> int:
        return self.config_of(program).batch

    def takes_real(self, config: Config) -> bool:
        return config.precision != "host"

    def takes(self, site: Site, config: Config, rounding: str) -> bool:
        from tilewright.targets.bm1684x.compiler.compile import lower

        return not isinstance(lower(site, rounding_mode(rounding), config), str)

    def approximates(self, program: Program) -> bool:
        """Return whether any launch computes float32 tensors, because their values may differ from onnxruntime's."""
        graph = program.graph
        nodes = (node for launch in program.launches for node in launch.nodes)
        outputs = (name for node in nodes for name in (graph.node(node).outputs if graph else ()))
        return graph is not None and any(graph.tensors[name].dtype == "float32" for name in outputs)

    def text(self, config: Config) -> LaunchText:
        from tilewright.targets.bm1684x.launch import listing

        return listing.launch_text(config)

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        from tilewright.targets.bm1684x.launch.listing import explain

        return explain(program, self.config_of(program), timing or self.timing_models[0].name)

    def conform(self, path: Path) -> Iterator[ConformCase]:
        """Yield the result of each test case in a file of golden vectors, which the vendor's model recorded."""
        from tilewright.targets.bm1684x.conformance.ops import conform

        return conform(path)

    def host_flags(self, config: Config) -> Mapping[str, Sequence[str]]:
        """Return the compiler's arguments for a host in C. Raises InputError if `config` is not the default."""
        from tilewright.targets.bm1684x.native.build import LIBRARY

        if config != self.config(None, {}):
            raise InputError("config", "a host in C does not choose the machine", "set TILEWRIGHT_BM1684X_SET")
        return LIBRARY.flags()


TARGET = Bm1684x()
