"""BM1684X: a 64-lane TPU. Read README.md first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stages
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.walk import Walk
from tilewright.targets import base, given
from tilewright.targets.base import Change, ConformCase, LaunchResult, TimingModel
from tilewright.targets.bm1684x.config import CUBE_MACS, PRESETS, Config
from tilewright.targets.bm1684x.timing.model import MODELS

#: Bytes of one operand of a multiplication, by `precision`. With `host` only int8 codes are multiplied on the machine.
OPERAND_BYTES = {"host": 1, "f16": 2, "bf16": 2, "f32": 4}


class Bm1684x(given.Machine[Config]):
    """The BM1684X as a target of Tilewright. `Target` in targets/base.py documents the methods of all targets."""

    name, kind = "bm1684x", Config
    title = "BM1684X: 64-lane TPU with GDMA, BDC and HAU command queues and 16 MiB of local memory"
    presets = tuple(PRESETS)
    timing_models = MODELS.sources
    passes = frozenset({"order", "time", "values"})
    time_needs_values = False
    offers = ("precision=f16",)

    def describe(self, config: base.Config) -> dict[str, Any]:
        machine = self.own(config)
        return {"macs_per_cycle": machine.lanes * CUBE_MACS[OPERAND_BYTES[machine.precision]], **machine.to_dict()}

    def header(self, config: base.Config) -> str:
        from tilewright.targets.bm1684x.launch.listing import c_header

        return c_header(self.own(config))

    def compile(self, graph: Graph, config: base.Config, rounding: str, timing: str | None = None) -> Program:
        from tilewright.targets.bm1684x.compiler.compile import compile_graph

        return compile_graph(graph, self.own(config), rounding)

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        from tilewright.targets.bm1684x.launch import run

        return run.run(program, launch, values, options, self.config_of(program))

    def walk(self, program: Program, launch: Launch, values: Mapping[str, Array], timing: str | None) -> Walk:
        from tilewright.targets.bm1684x.debug.network import NetworkWalk
        from tilewright.targets.bm1684x.launch.run import prepared

        config = self.config_of(program)
        with given.named(launch), given.untrusted(launch):
            known = prepared(launch, config, timing or self.timing_models[0].name)
            return NetworkWalk(program, launch, known, values, config)

    def changes(self, config: base.Config, timing: TimingModel) -> Iterator[Change]:
        from tilewright.targets.bm1684x.changes import changes

        return changes(self.own(config), timing)

    def hazards(self, program: Program, launch: Launch, config: Config) -> Iterable[Finding]:
        from tilewright.targets.bm1684x.launch import run

        return run.prepared(launch, config).findings(RunOptions(values=False))

    def samples_a_launch(self, program: Program) -> int:
        return self.config_of(program).batch

    def takes_real(self, config: base.Config) -> bool:
        return self.own(config).precision != "host"

    def takes(self, site: Site, config: base.Config, rounding: str) -> bool:
        from tilewright.targets.bm1684x.compiler.compile import lower

        return not isinstance(lower(site, rounding_mode(rounding), self.own(config)), str)

    def approximates(self, program: Program) -> bool:
        """Return whether any launch computes float32 tensors, whose values may differ from onnxruntime's."""
        graph, nodes = program.graph, (node for launch in program.launches for node in launch.nodes)
        outputs = (name for node in nodes for name in (graph.node(node).outputs if graph else ()))
        return graph is not None and any(graph.tensors[name].dtype == "float32" for name in outputs)

    def disassemble(self, program: Program) -> str:
        from tilewright.targets.bm1684x.launch import listing

        return listing.disassemble(program, self.config_of(program))

    def assemble(self, text: str, config: base.Config) -> Program:
        from tilewright.targets.bm1684x.launch import listing

        machine = self.own(config)
        return Program.bare(self.name, machine, listing.assemble(text, machine))

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        from tilewright.targets.bm1684x.launch.listing import explain

        return explain(program, self.config_of(program), timing or self.timing_models[0].name)

    def conform(self, path: Path) -> Iterator[ConformCase]:
        """Yield the result of every test case in one file of golden vectors (recorded from the vendor's model)."""
        from tilewright.targets.bm1684x.conformance.ops import conform

        return conform(path)

    def host_flags(self, config: base.Config) -> Mapping[str, Sequence[str]]:
        """Return the compiler's arguments for a host in C. Raises InputError for a machine other than the default."""
        from tilewright.targets.bm1684x.native.build import LIBRARY

        if config != self.config(None, {}):
            raise InputError("config", "a host in C does not choose the machine", "set TILEWRIGHT_BM1684X_SET")
        return LIBRARY.flags()


TARGET = Bm1684x()
