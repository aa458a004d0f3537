"""The CFU system: an RV32IM core with a custom function unit, in lock step, and the firmware that runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.ir import Graph
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stages
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.targets import given
from tilewright.targets.base import Change, LaunchResult, TimingModel
from tilewright.targets.cfu.causes import CAUSES
from tilewright.targets.gateware import OnGateware, tools
from tilewright.targets.users import Execution, Firmware

from . import bill
from .compiler.variants import check_machine, variant
from .config import BEYOND, PRESETS, Config
from .timing.costs import MODELS

if TYPE_CHECKING:
    from tilewright.program.listing import LaunchText

    from .compiler.project import Project

DRAM = ("dram_read", "dram_row", "dram_write")
#: The what-ifs with lower costs. In each what-if, the listed costs of the timing model become 0.
FREE = {
    "memory without waits": ("word", "request", "grant", "restart", "redo", "l2_miss", *DRAM),
    "DRAM without waits": DRAM,
    "results that the next instruction can use": ("load_use", "shift_use", "multiply_use"),
    "branches and jumps without cost": ("taken", "mispredicted", "jump", "jump_register"),
    "CFU instructions that do not wait for loads and stores": ("drain",),
}
#: The what-if with larger caches multiplies the size of each cache by TIMES. CACHES has the limits in bytes.
CACHES = {"icache_bytes": 1 << 16, "dcache_bytes": 1 << 16, "l2_bytes": 1 << 24}
TIMES = 4


class CfuSystem(given.Machine[Config]):
    """The target CFU. tilewright/targets/base.py describes the methods."""

    name = "cfu"
    kind = Config
    title = "CFU: RV32IM core (VexRiscv, LiteX) with custom-0 instructions and a 16x16 array, running C firmware"
    presets = tuple(PRESETS)
    timing_models = MODELS.sources
    passes = frozenset({"time", "values"})  # no "order", because a CPU runs in program order
    causes = CAUSES
    time_needs_values = True
    _unit: Callable[[], Any] | None = None  # makes the CFU of a run (None: the model)
    _project: Project | None = None  # the user's firmware (None: a built-in variant)
    _drive: Callable[[Any], Any] | None = None  # the debugger that controls the next run (None: run to the end)
    no_vectors = "cfu has no golden vectors of its own; networks are compared by run"

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        config = super().config(source, overrides)
        variant(config.firmware)
        return config

    def describe(self, config: Config) -> dict[str, Any]:
        system = {key: count for key, count in bill.bill(config).items() if not key.startswith("cfu_")}
        return {"macs_per_cycle": config.macs_per_cycle, **config.to_dict(), **system}

    def header(self, config: Config) -> str:
        from .compiler import firmware

        return firmware.machine_header(config)

    def compile(self, graph: Graph, config: Config, rounding: str, timing: str | None = None) -> Program:
        from .compiler import compile

        chosen = variant(config.firmware)
        if self._project is None:
            check_machine(chosen, config)
        return compile.compile_graph(graph, config, rounding, chosen, project=self._project)

    def launch(
        self, program: Program, launch_: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        """Run one launch. Raises ProgramError without `options.values`, because a CPU's path depends on its data."""
        from .runtime import launch

        if not options.values:
            raise ProgramError(
                f"launch '{launch_.name}'",
                "cannot be timed without values: a CPU's path depends on its data",
                "give inputs",
            )
        return launch.run(program, launch_, values, self.config_of(program), options, self._unit, **self._driven())

    def excess(self, config: Config) -> str:
        return bill.excess(config)

    def rtl(self, config: Config) -> Mapping[str, str]:
        with tools():
            from .gateware.top import board_files

        return board_files(config)

    def on_gateware(self, program: Program, launch: Launch, values: Mapping[str, Array]) -> OnGateware:
        with tools():
            from .gateware.cosim import compare

        return partial(compare, launch, self.config_of(program), values)

    def changes(self, config: Config, timing: TimingModel) -> Iterator[Change]:
        values = timing.values
        for text, keys in FREE.items():
            if costly := {key: 0 for key in keys if values.get(key, 0)}:
                yield Change(text, timing=costly)
        larger = {key: min(most, TIMES * getattr(config, key)) for key, most in CACHES.items()}
        yield Change(f"caches {TIMES} times as large", larger)
        if config.array < 32 and not config.extensions:
            side = 2 * config.array
            yield Change(f"array of {side} x {side}", {"array": side}, recompile=True)
        extended = len(config.extension_names)
        if config.extension_names == BEYOND[:extended]:
            # The machine has the first extensions of BEYOND. Suggest the next extension, and all extensions.
            for count in sorted({extended + 1, len(BEYOND)} - {len(BEYOND) + 1, extended}):
                names = ",".join(BEYOND[:count])
                chosen = {"extensions": names, "firmware": "tuned" if config.firmware == "tuned" else "coupled"}
                yield Change(f"CFU with the extensions {names}", chosen, recompile=True)

    def execute(self, path: Path, config: Config, timing: str | None, limit: int | None) -> Execution:
        from .runtime import execute
        from .runtime.core import Setup

        timing = timing or self.timing_models[0].name
        limit = limit or execute.EXEC_INSTRUCTIONS
        setup = Setup(config, timing, self._unit and self._unit(), limit, **self._driven())
        return execute.execute(path, setup)

    def _driven(self) -> dict[str, Any]:
        # A debugger controls only the next run, so it is removed here.
        drive = self._drive
        self._drive = None
        return {"drive": drive} if drive else {}

    @contextmanager
    def with_gdb(self, port: int) -> Iterator[int]:
        from .runtime.gdb.server import Server

        server = Server(port)
        self._drive = server.drive
        try:
            yield server.port
        finally:
            self._drive = None
            server.close()

    def with_cfu(self, cfu: Sequence[str | Path] | Callable[[], Any], states: int = 0) -> AbstractContextManager[None]:
        from .runtime.rtl import maker

        return self._with(_unit=maker(cfu, states))

    def new_firmware(self, folder: Path, config: Config) -> Sequence[str]:
        from .compiler import project

        return project.write(folder, config)

    def with_firmware(self, path: str | Path) -> AbstractContextManager[None]:
        from .compiler.project import Project

        return self._with(_project=Project.at(path))

    def built_in(self) -> AbstractContextManager[None]:
        return self._with(_project=None, _unit=None)

    @contextmanager
    def _with(self, **parts: Any) -> Iterator[None]:
        before = {name: getattr(self, name) for name in parts}
        vars(self).update(parts)
        try:
            yield
        finally:
            vars(self).update(before)

    def firmware_of(self, program: Program) -> Firmware | None:
        from .firmware_image import FirmwareImage

        kernels = {
            name: kernel
            for step in program.launches
            for name, kernel in zip(step.nodes, FirmwareImage.of(step).kernels, strict=False)
        }
        if not kernels:
            return None
        meta = program.launches[0].meta
        path = str(meta.get("variant", ""))
        compiler = str(meta.get("compiler", ""))
        return Firmware(path, compiler, self.config_of(program).firmware, kernels)

    def hazards(self, program: Program, launch: Launch, config: Config) -> tuple[Finding, ...]:
        # Run on zeros. This finds all misuses, because the commands of compiled firmware do not depend on the data.
        return self._on_zeros(program, launch, self.timing_models[0].name).findings

    def _on_zeros(self, program: Program, step: Launch, timing: str) -> LaunchResult:
        from .firmware_image import FirmwareImage
        from .runtime import launch

        zeros = {area.name: np.zeros((1, area.nbytes), np.int8) for area in FirmwareImage.of(step).inputs}
        return launch.run(program, step, zeros, self.config_of(program), RunOptions(timing=timing))

    def text(self, config: Config) -> LaunchText:
        from .firmware_image import TEXT

        return TEXT

    def explain(self, program: Program, timing: str | None = None) -> Stages:
        from .compiler.compile import explain

        results = {step.name: self._on_zeros(program, step, timing) for step in program.launches} if timing else {}
        return explain(program, timing or "", results)


TARGET = CfuSystem()
