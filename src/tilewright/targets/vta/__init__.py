"""VTA, the Versatile Tensor Accelerator: fetch, load, compute and store units joined by token queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ConfigError, ProgramError
from tilewright.graph.ir import Graph
from tilewright.program.program import Launch, Program
from tilewright.sim.dram import Dram, Segment
from tilewright.sim.findings import Finding
from tilewright.targets import base
from tilewright.targets.base import ConformCase, LaunchResult, RunOptions
from tilewright.targets.vta import timing
from tilewright.targets.vta.config import PRESETS, Config

#: Samples simulated together: enough to fill the matrix products, few enough to stay in the caches.
BLOCK = 16


class Vta:
    """The target; see targets/base.py for the contract."""

    name = "vta"
    title = "Versatile Tensor Accelerator: load / compute / store with token queues, GEMM core and tensor ALU"
    presets = tuple(PRESETS)
    timing_models = tuple(model.source for model in timing.MODELS.values())
    passes = frozenset({"order", "time", "values"})

    def config(self, source: str | Path | Mapping[str, Any] | None, overrides: Mapping[str, str]) -> Config:
        if isinstance(source, str) and not source.endswith(".json"):
            if source not in PRESETS:
                raise ConfigError("--config", f"there is no preset '{source}'", f"choose one of {', '.join(PRESETS)}")
            return PRESETS[source].with_overrides(overrides)
        return (PRESETS["pynq"] if source is None else Config.from_json(source)).with_overrides(overrides)

    def describe(self, config: base.Config) -> dict[str, Any]:
        machine = _own(config)
        chips = (machine.uop, machine.inp, machine.wgt, machine.acc, machine.out)
        return {
            "macs_per_cycle": machine.macs_per_cycle,
            "clock_mhz": machine.clock_mhz,
            "array": f"{machine.batch}x{machine.block}x{machine.block}",
            "bus_bits": machine.bus_bits,
            **{f"{chip.name}_tiles": chip.depth for chip in chips},
            **{f"{chip.name}_kib": chip.depth * chip.tile_bytes // 1024 for chip in chips},
        }

    def compile(self, graph: Graph, config: base.Config, rounding: str) -> Program:
        from tilewright.targets.vta.codegen import compile_graph

        return compile_graph(graph, _own(config), rounding)

    def launch(
        self, program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions
    ) -> LaunchResult:
        from tilewright.targets.vta import codegen
        from tilewright.targets.vta.passes import run_passes

        config = _config_of(program)
        graph = program.graph
        if graph is None:  # a bare stream: memory as saved, nothing enters
            dram = dram_of(launch, {}, 1)
            passes = run_passes(launch.arrays["insns"], config, dram, _bases(launch), 1, options)
            prefix = f"{launch.name}/" if len(program.launches) > 1 else ""
            left: dict[str, Array] = {
                f"{prefix}{segment['name']}": dram[segment["name"]]
                for segment in launch.meta["segments"]
                if segment["kind"] == "output"
            }
            return LaunchResult(left, passes.findings, passes.trace, "compute", passes.macs, passes.serial_cycles)
        packed = codegen.pack(launch, graph, values)
        samples = next(iter(packed.values())).shape[0]
        outputs: dict[str, list[Array]] = {}
        first = None
        for start in range(0, samples, BLOCK):
            block = {name: data[start : start + BLOCK] for name, data in packed.items()}
            count = next(iter(block.values())).shape[0]
            dram = dram_of(launch, block, count)
            passes = run_passes(launch.arrays["insns"], config, dram, _bases(launch), count, options, first)
            first = first or passes
            for segment in launch.meta["segments"]:
                if segment["kind"] == "output":
                    outputs.setdefault(segment["name"], []).append(dram[segment["name"]])
        assert first is not None
        results = codegen.unpack(
            launch, graph, {name: np.concatenate(parts) for name, parts in outputs.items()}, program.rounding
        )
        return LaunchResult(results, first.findings, first.trace, "compute", first.macs, first.serial_cycles)

    def check(self, program: Program) -> Iterator[Finding]:
        from tilewright.targets.vta.passes import run_passes

        for launch in program.launches:
            dram = dram_of(launch, {}, 1)
            options = RunOptions(timing=None, check=True, values=False)
            passes = run_passes(launch.arrays["insns"], _config_of(program), dram, _bases(launch), 1, options)
            yield from (finding.inside(launch.name) for finding in passes.findings)

    def disassemble(self, program: Program) -> str:
        from tilewright.targets.vta import listing

        return listing.disassemble(program, _config_of(program))

    def assemble(self, text: str, config: base.Config) -> Program:
        from tilewright.targets.vta import listing

        machine = _own(config)
        launches = listing.assemble(text, machine)
        return Program(self.name, machine.to_dict(), machine.digest(), "tflm", None, launches)

    def explain(self, program: Program) -> str:
        from tilewright.targets.vta.codegen import explain

        return explain(program)

    def conform(self, path: Path) -> ConformCase:
        from tilewright.targets.vta.conform import conform

        return conform(path)


def _own(config: base.Config) -> Config:
    if not isinstance(config, Config):
        raise ConfigError("config", f"is {type(config).__name__}, not VTA's")
    return config


def _config_of(program: Program) -> Config:
    config = Config.from_json(program.config)
    if config.digest() != program.digest:
        raise ProgramError(
            "program", "its configuration does not have the digest it was saved with", "compile it again"
        )
    return config


def _bases(launch: Launch) -> dict[str, int]:
    return {name: int(address) for name, address in launch.meta["bases"].items()}


def dram_of(launch: Launch, inputs: Mapping[str, Array], samples: int) -> Dram:
    """The DRAM of a launch for S samples: constants shared, inputs (uint8 (S, size)) and outputs one a sample."""
    segments = []
    for item in launch.meta["segments"]:
        name, size, kind = str(item["name"]), int(item["size"]), item["kind"]
        if kind == "const":
            data = np.asarray(launch.arrays[f"dram.{name}"], np.uint8).reshape(1, size)
        elif name in inputs:
            data = np.ascontiguousarray(inputs[name]).reshape(samples, size)
        else:
            data = np.zeros((samples, size), np.uint8)
        segments.append(Segment(name, int(item["address"]), data, initialised=kind != "output"))
    return Dram(segments)


TARGET = Vta()
