"""OneMac: a DMA unit and a unit that does one multiply-accumulate per cycle, synchronised by token queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.program.header import Group, bit_ranges, header, macros
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stage, Stages, by_step
from tilewright.sim.findings import Finding
from tilewright.sim.order import order
from tilewright.sim.passes import Passes, RunOptions
from tilewright.sim.timeline import times
from tilewright.sim.walk import Walk
from tilewright.targets import base, given
from tilewright.targets.base import Change, LaunchResult, TimingModel

from . import codegen, timing
from .config import PRESETS, Config
from .isa import GRAMMAR, ISA, LAYOUT, Opcode, image_of, launch_of, text_of
from .machine import Machine, steps


class OneMac(given.Machine[Config]):
    """The target OneMac. Its methods are documented in tilewright/targets/base.py."""

    name, kind = codegen.NAME, Config
    title = "OneMac: a DMA unit and one multiply-accumulate per cycle, synchronised by token queues"
    presets = tuple(PRESETS)
    timing_models = timing.MODELS.sources
    passes = frozenset({"order", "time", "values"})
    time_needs_values = False
    no_vectors = "onemac has no golden vectors; implement `conform` to replay your own"

    def describe(self, config: base.Config) -> dict[str, Any]:
        return {"macs_per_cycle": timing.MACS_PER_CYCLE, **self.own(config).to_dict()}

    def header(self, config: base.Config) -> str:
        groups = [
            Group("sizes", macros("onemac", self.own(config).to_dict())),
            Group("opcodes", macros("onemac_opcode", {opcode.name: int(opcode) for opcode in Opcode})),
            Group("bits of each instruction field: first, last", bit_ranges("ONEMAC_INSN", LAYOUT)),
        ]
        return header("ONEMAC_H_", "The machine OneMac.", groups)

    def compile(self, graph: Graph, config: base.Config, rounding: str, timing: str | None = None) -> Program:
        return codegen.compile_graph(graph, self.own(config), rounding)

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        config, image = self.config_of(program), image_of(launch)
        columns = ISA.decode(image.insns)
        site = program.graph.site(program.graph.node(launch.nodes[0])) if program.graph else None
        with given.untrusted(launch):
            inputs = codegen.pack(site, values) if site and options.values else {}
            samples = next((array.shape[0] for array in inputs.values()), 1)
            dram = image.dram(inputs, samples)
        known = _passes(image, config, dram, options)
        with given.named(launch):
            known.refuse(options)
        if options.values:
            Machine(config, dram, samples).run(columns, known.sequence(options).tolist())
        left = {name: dram[name] for name in image.outputs} if options.values else {}
        if site and options.values:
            with given.untrusted(launch):
                left = codegen.unpack(site, left, program.rounding)
        else:
            left = given.left_by(program, launch, left)
        macs = int((columns["length"] * columns["count"]).sum())
        bound = timing.bound(columns, config, timing.MODELS[options.timing]) if options.timing else 0
        return LaunchResult.of(left, known, options, "mac", macs, bound=bound)

    def walk(self, program: Program, launch: Launch, values: Mapping[str, Array], timing: str | None) -> Walk:
        from .walk import OneMacWalk

        config, image = self.config_of(program), image_of(launch)
        site = program.graph.site(program.graph.node(launch.nodes[0])) if program.graph else None
        with given.named(launch), given.untrusted(launch):
            dram = image.dram(codegen.pack(site, values) if site else {}, 1)
            known = _passes(image, config, dram, RunOptions(timing))
            return OneMacWalk(launch.name, image, config, dram, known, site, program.rounding)

    def changes(self, config: base.Config, timing: TimingModel) -> Iterator[Change]:
        machine = self.own(config)
        yield Change("DRAM port twice as wide", {"bus_bits": 2 * machine.bus_bits})
        yield Change("DRAM without latency", {"dram_latency": 0})
        yield Change("buffer twice as large", {"buffer_bytes": 2 * machine.buffer_bytes}, recompile=True)

    def hazards(self, program: Program, launch: Launch, config: Config) -> tuple[Finding, ...]:
        options, image = RunOptions(timing=self.timing_models[0].name, values=False), image_of(launch)
        return _passes(image, config, image.dram({}, 1), options).findings(options)

    def disassemble(self, program: Program) -> str:
        return "".join(GRAMMAR.write(text_of(launch)) for launch in program.launches)

    def assemble(self, text: str, config: base.Config) -> Program:
        return Program.bare(self.name, config, map(launch_of, GRAMMAR.read(text)))

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        model = timing or self.timing_models[0].name
        options, config = RunOptions(timing=model, check=False, values=False), self.config_of(program)

        def stage(launch: Launch) -> Stage:
            image = image_of(launch)
            trace = _passes(image, config, image.dram({}, 1), options).trace
            taken = f", {trace.cycles} cycles (timing model {model})" if trace else ""
            count = f"{len(launch.arrays['insns'])} instructions{taken}"
            return Stage(f"{launch.name}: {self.name}", [launch.meta["plan"], count])

        return by_step(program, stage)


def _passes(image: LaunchImage, config: Config, dram: Dram, options: RunOptions) -> Passes:
    """Return the shared simulation passes (order, hazards and time), prepared for one launch."""
    model = timing.MODELS[options.timing or next(iter(timing.MODELS))]
    table = steps(ISA.decode(image.insns), config, dram)
    relation = order(table)
    return Passes(
        table, relation, lambda: times(table, relation, timing.simulated(ISA.decode(image.insns), config, model))
    )


TARGET = OneMac()
