"""What `explain` says: where each layer runs and why, its plan, cycles, transferred bytes, counts and buffer use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.array import Array
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stage, Stages, by_step
from tilewright.sim.figures import Figures
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.compiler import explain_walk
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.formats import Fields, Stream
from tilewright.targets.vta.isa.stream import decode, image_of
from tilewright.targets.vta.passes import run_passes


def explain(program: Program, timing: str) -> Stages:
    """Return the machine's memories, then a stage for each step of a program; `timing`: the timing model for cycles."""
    config = Config.from_json(program.config)

    def stage(launch: Launch) -> Stage:
        return Stage(f"{launch.name}: vta", _launch(launch, config, timing))

    return [explain_walk.memory_map(config), *by_step(program, stage)]


def counts(launch: Launch, config: Config) -> dict[str, int]:
    """Return a launch's counts by name: instructions, executed and listed micro-ops, bytes moved, tiles used."""
    stream = decode(launch.arrays["insns"], config)
    loads, stores = stream.opcode == Opcode.LOAD, stream.opcode == Opcode.STORE
    gemm, alu = stream.opcode == Opcode.GEMM, stream.opcode == Opcode.ALU
    reset = stream.gemm.reset_reg == 1
    uops = {
        "gemm": int(_executed(stream.gemm)[gemm & ~reset].sum()),
        "reset": int(_executed(stream.gemm)[gemm & reset].sum()),
        "alu": int(_executed(stream.alu)[alu].sum()),
    }
    moved = {
        f"{memory.name.lower()}_bytes": _bytes(stream, loads & (stream.mem.memory_type == memory), memory, config)
        for memory in (Memory.INP, Memory.WGT, Memory.UOP)
    }
    return {
        "instructions": len(stream),
        **{f"{name}_uops": count for name, count in uops.items()},
        **moved,
        "out_bytes": _bytes(stream, stores, Memory.OUT, config),
        **{f"{name}_tiles": count for name, count in _high_water(stream).items()},
        "listed_uops": launch.arrays["dram.uop"].size // config.uop.tile_bytes,
    }


def _executed(part: Fields) -> Array:
    return (part.uop_end - part.uop_bgn) * part.iter_out * part.iter_in


def _bytes(stream: Stream, mine: Array, memory: Memory, config: Config) -> int:
    return int((stream.mem.x_size * stream.mem.y_size)[mine].sum()) * config.dram_tile_bytes(memory)


def _high_water(stream: Stream) -> dict[str, int]:
    """Return, by memory name, the number of the highest tile that the stream loads (for acc: stores), plus 1."""
    end = stream.mem.sram_base + stream.mem.x_size * stream.mem.y_size
    rows = {
        "inp": (stream.opcode == Opcode.LOAD) & (stream.mem.memory_type == Memory.INP),
        "wgt": (stream.opcode == Opcode.LOAD) & (stream.mem.memory_type == Memory.WGT),
        "acc": stream.opcode == Opcode.STORE,
    }
    return {name: int(end[mine].max(initial=0)) for name, mine in rows.items()}


def _cycles(launch: Launch, config: Config, timing: str) -> list[Stage]:
    """Return the cycles of a launch under a timing model, and those of each of its nodes; [] if it cannot be timed.

    A node's line has the bound of its instructions on the busiest resource (timing/limits.py), and cycles / bound. A
    line with an argument follows if no order of its instructions takes fewer cycles (timing/optimal.py).
    """
    image = image_of(launch)
    options = RunOptions(timing=timing, check=False, values=False)
    passes = run_passes(image.insns, config, image.dram({}, 1), image.bases, 1, options)
    if not passes.trace:
        return []
    total = f"{passes.trace.cycles} cycles (timing model {timing})"
    figures = passes.figures(image.layer, len(launch.nodes))
    if image.layer is None:
        return [Stage(total + _met(figures[0]), [f"  {line}" for line in _proof(figures[0])])]
    lines = []
    for node, layer in zip(launch.nodes, figures, strict=False):
        lines.append(Stage(f"{node}: {layer.cycles}{_met(layer)}", _proof(layer)))
    return [Stage(total, lines)]


def _met(figures: Figures) -> str:
    """Return text on how near a layer's cycles are to their bound, and what most of them go to."""
    most = f", {figures.binds} binds" if figures.binds else ""
    bound = figures.bound
    return f", bound {bound}, ratio {figures.cycles / bound:.3f}{most}" if bound else ""


def _proof(figures: Figures) -> list[str]:
    return [f"optimal: {figures.optimal}"] if figures.optimal else []


def _launch(launch: Launch, config: Config, timing: str) -> list[str | Stage]:
    found = counts(launch, config)
    bytes_ = ", ".join(f"{found[f'{name}_bytes']} {name}" for name in ("inp", "wgt", "uop", "out"))
    chips = {"inp": config.inp, "wgt": config.wgt, "acc": config.acc}
    used = ", ".join(f"{found[f'{name}_tiles']} of {chip.depth} {name}" for name, chip in chips.items())
    layers = launch.meta["layers"]
    plans = [(layer, str(layer["plan"]).split("\n")) for layer in layers]
    walks = [(layer, _walk(launch, index, config)) for index, layer in enumerate(layers) if layer["matrix"]]
    return [
        *_by_layer(launch, plans),
        *_cycles(launch, config, timing),
        f"{found['instructions']} instructions; micro-ops executed: {found['gemm_uops']} gemm, "
        f"{found['reset_uops']} reset, {found['alu_uops']} alu",
        f"buffers used: {used}; {found['listed_uops']} listed micro-ops, the cache holds {config.uop.depth}",
        f"bytes moved: {bytes_}",
        *_by_layer(launch, walks),
    ]


def _walk(launch: Launch, index: int, config: Config) -> Sequence[str | Stage]:
    return explain_walk.walk(launch, config, short=True, layer=index if len(launch.nodes) > 1 else None)


def _by_layer(launch: Launch, each: Iterable[tuple[Mapping[str, Any], Sequence[str | Stage]]]) -> list[str | Stage]:
    if len(launch.nodes) > 1:
        return [Stage(f"{layer['node']}:", lines) for layer, lines in each if lines]
    return [line for _, lines in each for line in lines]
