"""The VGG16 engine on a Zynq-7020: 144 multipliers, a state machine per kind of layer, block RAM that the CPU pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stages
from tilewright.sim.figures import Figures
from tilewright.sim.findings import RACE, Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.walk import Walk
from tilewright.targets import base, given
from tilewright.targets.base import Change, LaunchResult, TimingModel
from tilewright.targets.gateware import OnGateware, tools
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.isa.image import GRAMMAR, LayerImage, launch_of, text_of
from tilewright.targets.zynq.isa.layer import Kind
from tilewright.targets.zynq.timing import service


class Zynq(given.Machine[Config]):
    """The target Zynq (methods: targets/base.py). It has no pass `order`, because the order of work is fixed."""

    name, kind = "zynq", Config
    title = "VGG16 engine on a Zynq-7020: 9 x 16 multipliers, conv / pool / FC state machines, paged block RAM"
    presets = tuple(PRESETS)
    timing_models = tuple(service.MODELS.values())
    passes = frozenset({"time", "values"})
    time_needs_values = False
    no_vectors = "there are no golden vectors, because the engine's design was never released"

    def describe(self, config: base.Config) -> dict[str, Any]:
        machine = self.own(config)
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
        from tilewright.targets.zynq.runtime.driver import engine_header

        return engine_header(self.own(config))

    def compile(self, graph: Graph, config: base.Config, rounding: str, timing: str | None = None) -> Program:
        from tilewright.targets.zynq.compiler.codegen import compile_graph

        return compile_graph(graph, self.own(config), rounding)

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        from tilewright.targets.zynq.events import events

        config = self.config_of(program)
        image = LayerImage.of(launch, config)
        layer = image.layer
        found = self.hazards(program, launch, config) if options.check else ()
        trace, figures = None, Figures(executed_macs=layer.macs)
        if options.timing is not None:
            trace, figures = service.timed(layer, options.timing)
        left = _values(program, launch, image, values) if options.values else {}
        return LaunchResult(left, found, trace, (figures,), figures.bound, partial(events, layer, trace))

    def walk(self, program: Program, launch: Launch, values: Mapping[str, Array], timing: str | None) -> Walk:
        from tilewright.targets.zynq.debug.walk import ZynqWalk

        image = LayerImage.of(launch, self.config_of(program))
        data = _data(program, launch, image, values)[0]
        findings = self.hazards(program, launch, image.layer.config)
        return ZynqWalk(launch, image, data, program.graph, timing or self.timing_models[0].name, findings)

    def changes(self, config: base.Config, timing: TimingModel) -> Iterator[Change]:
        from tilewright.targets.zynq.changes import changes

        return changes(self.own(config))

    def excess(self, config: base.Config) -> str:
        """Return an empty text: a configuration that does not fit its chip is refused (config.py)."""
        return ""

    def rtl(self, config: base.Config) -> Mapping[str, str]:
        with tools():
            from tilewright.targets.zynq.gateware.top import board_files

        return board_files(self.own(config))

    def on_gateware(self, program: Program, launch: Launch, values: Mapping[str, Array]) -> OnGateware:
        with tools():
            from tilewright.targets.zynq.gateware.cosim import compare, waveform

        image = LayerImage.of(launch, self.config_of(program))
        run = image, _data(program, launch, image, values)[0]
        return OnGateware(partial(compare, launch.name, *run), partial(waveform, *run))

    def hazards(self, program: Program, launch: Launch, config: Config) -> tuple[Finding, ...]:
        """Return one finding, a race, if the engine reads sums before they are complete (lat_use=0); otherwise none."""
        layer = LayerImage.of(launch, config).layer
        if layer.config.lat_use or layer.kind == Kind.POOL:
            return ()
        message = (
            f"the accumulator reads each sum one cycle too early, so {layer.outputs} results contain wrong products; "
            "set lat_use=1"
        )
        return (Finding(RACE, message),)

    def disassemble(self, program: Program) -> str:
        config = self.config_of(program)
        return "".join(GRAMMAR.write(text_of(launch, config)) for launch in program.launches)

    def assemble(self, text: str, config: base.Config) -> Program:
        machine = self.own(config)
        return Program.bare(self.name, machine, [launch_of(part, machine) for part in GRAMMAR.read(text)])

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        from tilewright.targets.zynq.compiler.codegen import explain

        return explain(program, self.config_of(program), timing or self.timing_models[0].name)


def _data(program: Program, launch: Launch, image: LayerImage, values: Mapping[str, Array]) -> Array:
    """Return the input codes of a launch, (samples, *input_shape): of a network, or the launch's own."""
    layer = image.layer
    if program.graph is not None:
        with given.untrusted(launch):
            site = program.graph.site(program.graph.node(launch.nodes[0]))
            return values[site.input(0).name].reshape(-1, *layer.input_shape)
    held = np.zeros(layer.inputs, np.uint8) if image.data is None else image.data
    return held.view(np.int8 if layer["x_signed"] else np.uint8).reshape(1, *layer.input_shape)


def _values(program: Program, launch: Launch, image: LayerImage, values: Mapping[str, Array]) -> dict[str, Array]:
    from tilewright.targets.zynq.values import machine

    found = machine.run(image.layer, _data(program, launch, image, values), image.weight, image.bias, image.factor)
    if program.graph is None:
        return given.left_by(program, launch, {"result": found})
    output = program.graph.site(program.graph.node(launch.nodes[0])).output
    return {output.name: found.reshape(-1, *output.shape)}


TARGET = Zynq()
