"""The VGG16 engine on a Zynq-7020: 144 multipliers, layer state machines, paged block RAM that the PS serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import RACE, Finding
from tilewright.sim.passes import RunOptions
from tilewright.targets import base, given
from tilewright.targets.base import ConformCase, LaunchResult
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.isa.descriptor import Kind
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.timing import models as timing


class Zynq:
    """The target; see targets/base.py for the contract. There is one order of work, so `order` is no pass of it."""

    name = "zynq"
    title = "VGG16 engine on a Zynq-7020: 9 x 16 multipliers, conv / pool / FC state machines, paged block RAM"
    presets = tuple(PRESETS)
    timing_models = tuple(timing.MODELS.values())
    passes = frozenset({"time", "values"})

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        return Config.read(source, overrides)

    def describe(self, config: base.Config) -> dict[str, Any]:
        machine = _own(config)
        return {
            "macs_per_cycle": machine.macs_per_cycle,
            "clock_mhz": machine.clock_mhz,
            "dsp": f"{machine.dsp} of {machine.dsp_budget}",
            "bram36": f"{machine.bram36} of {machine.bram_budget}",
            "layout": machine.layout,
            "control": machine.control,
            "cycles_an_iteration": machine.iteration(),
            "frames": machine.frames,
            "outputs": machine.outputs,
        }

    def header(self, config: base.Config) -> str:
        from tilewright.targets.zynq.runtime import header

        return header.text(_own(config))

    def compile(self, graph: Graph, config: base.Config, rounding: str) -> Program:
        from tilewright.targets.zynq.compiler.codegen import compile_graph

        return compile_graph(graph, _own(config), rounding)

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        image = LayerImage.of(launch, _config_of(program))
        layer = image.layer
        found = _findings(image, launch.name) if options.check else ()
        trace, part = timing.timed(layer, options.timing) if options.timing is not None else (None, None)
        left = _values(program, launch, image, values) if options.values else {}
        unit, serial = timing.UNITS[timing.ENGINE], part.serial_cycles if part else 0
        parts = (part,) if part and program.graph else ()
        return LaunchResult(left, found, trace, unit, layer.macs, serial, parts, (layer.macs,) if parts else ())

    def check(self, program: Program) -> Iterator[Finding]:
        config = _config_of(program)
        for launch in program.launches:
            image = LayerImage.of(launch, config)
            yield from (finding.inside(launch.name) for finding in _findings(image, launch.name))

    def disassemble(self, program: Program) -> str:
        from tilewright.targets.zynq.isa import listing

        return listing.disassemble(program, _config_of(program))

    def assemble(self, text: str, config: base.Config) -> Program:
        from tilewright.targets.zynq.isa import listing

        machine = _own(config)
        return Program.bare(self.name, machine, listing.assemble(text, machine))

    def explain(self, program: Program, timing: str | None = None) -> str:
        from tilewright.targets.zynq.compiler import explain

        return explain.text(program, _config_of(program), timing or self.timing_models[0].name)

    def conform(self, path: Path) -> ConformCase:
        return ConformCase(path.stem, False, "the engine was never released: there are no golden vectors of it")


def _findings(image: LayerImage, name: str) -> tuple[Finding, ...]:
    """Sums that are read before they are there."""
    layer = image.layer
    if layer.config.lat_use or layer.kind == Kind.POOL:
        return ()
    message = (
        f"ACC reads the unit one cycle before the sum is there: {layer.outputs} results have the products of other "
        "iterations; set lat_use=1"
    )
    return (Finding(RACE, message),)


def _values(program: Program, launch: Launch, image: LayerImage, values: Mapping[str, Array]) -> dict[str, Array]:
    from tilewright.targets.zynq.compiler import codegen
    from tilewright.targets.zynq.values import machine

    layer, graph = image.layer, program.graph
    if graph is not None:
        with given.untrusted(launch):
            site = graph.site(graph.node(launch.nodes[0]))
            data = codegen.pack(site, layer, values)
            results = machine.run(layer, data, image.weight, image.bias, image.factor)
            return codegen.unpack(site, results)
    held = np.zeros(layer.inputs, np.uint8) if image.data is None else image.data
    shape = (1, layer["r"]) if layer.kind == Kind.FC else (1, layer["rows"], layer["cols"], layer["ic"])
    data = held.view(np.int8 if layer["x_signed"] else np.uint8).reshape(shape)
    results = machine.run(layer, data, image.weight, image.bias, image.factor)
    return {f"{launch.name}/result" if len(program.launches) > 1 else "result": results}


def _own(config: base.Config) -> Config:
    return given.own(Config, config, "zynq")


def _config_of(program: Program) -> Config:
    return given.made_for(program, Config.read(program.config, {}))


TARGET = Zynq()
