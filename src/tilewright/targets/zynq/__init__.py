"""The VGG16 engine on a Zynq-7020: 144 multipliers, a state machine per kind of layer, and block RAM.

The CPU (PS) moves blocks ("pages") between DDR and block RAM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.array import Array
from tilewright.graph.ir import Graph
from tilewright.program.listing import LaunchText
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stages
from tilewright.sim.walk import Walk
from tilewright.targets.base import Change, TimingModel
from tilewright.targets.gateware import OnGateware, tools
from tilewright.targets.launched import LaunchedTarget
from tilewright.targets.zynq.causes import CAUSES
from tilewright.targets.zynq.config import PRESETS, Config
from tilewright.targets.zynq.isa.image import GRAMMAR, launch_of, text_of
from tilewright.targets.zynq.timing import service

if TYPE_CHECKING:
    from tilewright.targets.zynq.launch import ZynqLaunch

#: The change to the preset `fast`, except for the clock frequency. The text of this change lists the changed keys.
PRESET = "the preset fast"
#: Changes of an engine that may save cycles: a text, new values of keys, and whether the network is compiled again.
#: config.py has the sources. bench/zynq_whatif.py has more changes, with their costs.
CHANGES: tuple[tuple[str, dict[str, int | str], bool], ...] = (
    ("page services without handshake", {"handshake": 0}, False),
    ("stores that are read in all block RAMs at once", {"banked": 1, "ports": 2}, False),
    ("no control states", {"control": "pipelined"}, False),
    ("stores read at once and no control states", {"banked": 1, "ports": 2, "control": "pipelined"}, False),
    ("results written while the next ones are computed", {"write_behind": 1}, False),
    ("two frames per store", {"frames": 2, "weight_bits": 16, "result_bits": 16, "block_bits": 11}, True),
    ("one sweep over the data for the kernels of a weight block", {"oc_blocking": 1}, True),
    ("two products per DSP48", {"outputs": 2, "macs_per_dsp": 2, "fetch": "full"}, True),
    (PRESET, {key: value for key, value in PRESETS["fast"].items() if key != "clock_mhz"}, True),
)


class Zynq(LaunchedTarget[Config]):
    """The target Zynq. See targets/base.py for the methods. The order of work is fixed, so no pass `order` exists."""

    name = "zynq"
    kind = Config
    title = "VGG16 engine on a Zynq-7020: 9 x 16 multipliers, conv / pool / FC state machines, paged block RAM"
    presets = tuple(PRESETS)
    timing_models = tuple(service.MODELS.values())
    passes = frozenset({"time", "values"})
    causes = CAUSES
    no_vectors = "there are no golden vectors, because the engine's design was never released"

    def describe(self, config: Config) -> dict[str, Any]:
        return {
            "macs_per_cycle": config.macs_per_cycle,
            "clock_mhz": config.clock_mhz,
            "dsp": f"{config.dsp} of {config.dsp_budget}",
            "bram36": f"{config.bram36} of {config.bram_budget}",
            "layout": config.layout,
            "control": config.control,
            "cycles_an_iteration": config.iteration(),
            "frames": config.frames,
            "outputs": config.outputs,
        }

    def header(self, config: Config) -> str:
        from tilewright.targets.zynq.runtime.driver import engine_header

        return engine_header(config)

    def compile(self, graph: Graph, config: Config, rounding: str, timing: str | None = None) -> Program:
        from tilewright.targets.zynq.compiler.codegen import compile_graph

        return compile_graph(graph, config, rounding)

    def driver(self) -> type[ZynqLaunch]:
        from tilewright.targets.zynq.launch import ZynqLaunch

        return ZynqLaunch

    def debugged(self, launched: ZynqLaunch, values: Mapping[str, Array]) -> Walk:
        from tilewright.targets.zynq.debug.walk import ZynqWalk

        return ZynqWalk(launched, launched.codes(launched.pack(values))[0])

    def changes(self, config: Config, timing: TimingModel) -> Iterator[Change]:
        if config.axi_bytes < 64:
            width = min(64, 4 * config.axi_bytes)
            yield Change(f"a PS that moves {width} bytes per cycle", {"axi_bytes": width})
        for text, keys, recompile in CHANGES:
            if changed := {key: value for key, value in keys.items() if getattr(config, key) != value}:
                named = ", ".join(f"{key}={value}" for key, value in changed.items())
                yield Change(f"{text}: {named}" if text == PRESET else text, changed, recompile=recompile)

    def excess(self, config: Config) -> str:
        """Return "": every configuration fits the chip, because config.py refuses all others."""
        return ""

    def rtl(self, config: Config) -> Mapping[str, str]:
        with tools():
            from tilewright.targets.zynq.gateware.top import board_files

        return board_files(config)

    def on_gateware(self, program: Program, launch: Launch, values: Mapping[str, Array]) -> OnGateware:
        with tools():
            from tilewright.targets.zynq.gateware.cosim import compare

        launched = self.driver()(program, launch, self.config_of(program), self.timing_models[0].name)
        return partial(compare, launch.name, launched.image, launched.codes(launched.pack(values))[0])

    def text(self, config: Config) -> LaunchText:
        return LaunchText(GRAMMAR, partial(text_of, config=config), partial(launch_of, config=config))

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        from tilewright.targets.zynq.compiler.codegen import explain

        return explain(program, self.config_of(program), timing or self.timing_models[0].name)


TARGET = Zynq()
