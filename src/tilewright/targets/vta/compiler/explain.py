"""The stages of `explain`: where each layer runs and why, its plan, cycles, transferred bytes, counts, buffer use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.array import Array
from tilewright.program.program import Launch, Program
from tilewright.program.stages import Stage, Stages, by_step
from tilewright.targets.vta.compiler import explain_walk
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Fields, Memory, Opcode
from tilewright.targets.vta.isa.stream import decode, image_of
from tilewright.targets.vta.passes import timed


def explain(program: Program, timing: str, short: bool = True) -> Stages:
    """Return a stage for the machine's memories, then a stage per step of a program. `timing`: a timing model.

    `short` as in `explain_walk.walk`. A launch without layers (written by hand, or from C) has one block walk.
    """
    config = Config.from_json(program.config)
    steps = by_step(program, lambda launch: Stage(f"{launch.name}: vta", _launch(launch, config, timing, short)))
    return [explain_walk.memory_map(config), *steps]


def counts(launch: Launch, config: Config) -> dict[str, int]:
    """Return a launch's counts by name: instructions, executed micro-ops, bytes moved, tiles used."""
    stream = decode(launch.arrays["insns"], config)
    mem = stream.mem
    loads = stream.opcode == Opcode.LOAD
    stores = stream.opcode == Opcode.STORE
    gemm = stream.opcode == Opcode.GEMM
    alu = stream.opcode == Opcode.ALU
    reset = stream.gemm.reset_reg == 1
    of = {memory: loads & (mem.memory_type == memory) for memory in (Memory.INP, Memory.WGT, Memory.UOP)}
    of[Memory.OUT] = stores
    tiles = mem.x_size * mem.y_size
    end = mem.sram_base + tiles
    used = {"inp": of[Memory.INP], "wgt": of[Memory.WGT], "acc": stores}  # the highest tile, plus 1
    return {
        "instructions": len(stream),
        "gemm_uops": int(_executed(stream.gemm)[gemm & ~reset].sum()),
        "reset_uops": int(_executed(stream.gemm)[gemm & reset].sum()),
        "alu_uops": int(_executed(stream.alu)[alu].sum()),
        **{
            f"{memory.name.lower()}_bytes": int(tiles[mine].sum()) * config.dram_tile_bytes(memory)
            for memory, mine in of.items()
        },
        **{f"{name}_tiles": int(end[mine].max(initial=0)) for name, mine in used.items()},
    }


def _executed(part: Fields) -> Array:
    return (part.uop_end - part.uop_bgn) * part.iter_out * part.iter_in


def _cycles(launch: Launch, config: Config, timing: str) -> list[Stage]:
    """Return lines with the cycles of a launch and of each node, under a timing model.

    A node's line has the lower bound for the busiest resource of the node's instructions (timing/limits.py), and the
    ratio cycles / bound. If no order of the same instructions can take fewer cycles, a line with the proof follows.
    """
    layers = image_of(launch).layer
    passes = timed(launch, config, timing)
    if not passes.trace:
        return [Stage("no cycles: the launch deadlocks (`tilewright check` names the instructions)")]
    total = f"{passes.trace.cycles} cycles (timing model {timing})"
    if not launch.nodes:
        return [Stage(total)]
    figures = passes.figures(layers, len(launch.nodes))
    single = layers is None  # a launch of one layer has no array `layer`
    stages = []
    for node, layer in zip(launch.nodes, figures, strict=False):
        most = f", {layer.binds} binds" if layer.binds else ""
        met = f", bound {layer.bound}, ratio {layer.cycles / layer.bound:.3f}{most}" if layer.bound else ""
        proof = [f"{'  ' * single}optimal: {layer.optimal}"] if layer.optimal else []
        stages.append(Stage(f"{total if single else f'{node}: {layer.cycles}'}{met}", proof))
    return stages if single else [Stage(total, stages)]


def _launch(launch: Launch, config: Config, timing: str, short: bool) -> list[str | Stage]:
    numbers = counts(launch, config)
    moved = ", ".join(f"{numbers[f'{name}_bytes']} {name}" for name in ("inp", "wgt", "uop", "out"))
    chips = {"inp": config.inp, "wgt": config.wgt, "acc": config.acc}
    used = ", ".join(f"{numbers[f'{name}_tiles']} of {chip.depth} {name}" for name, chip in chips.items())
    # A host in C may keep its micro-ops in any buffer, also beside other data.
    uops = launch.arrays.get("dram.uop")
    listed = f"{uops.size // config.uop.tile_bytes} listed micro-ops, " if uops is not None else ""
    several = len(launch.nodes) > 1
    layers = launch.meta.get("layers", ())
    plans = [(layer, str(layer["plan"]).split("\n")) for layer in layers]
    walks = [
        (layer, explain_walk.walk(launch, config, short, layer=index if several else None))
        for index, layer in enumerate(layers or [{"matrix": True}])
        if layer["matrix"]
    ]
    return [
        *_by_layer(launch, plans),
        *_cycles(launch, config, timing),
        f"{numbers['instructions']} instructions; micro-ops executed: {numbers['gemm_uops']} gemm, "
        f"{numbers['reset_uops']} reset, {numbers['alu_uops']} alu",
        f"buffers used: {used}; {listed}the cache holds {config.uop.depth}{'' if listed else ' micro-ops'}",
        f"bytes moved: {moved}",
        *_by_layer(launch, walks),
    ]


def _by_layer(
    launch: Launch, lines_by_layer: Iterable[tuple[Mapping[str, Any], Sequence[str | Stage]]]
) -> list[str | Stage]:
    if len(launch.nodes) > 1:
        return [Stage(f"{layer['node']}:", lines) for layer, lines in lines_by_layer if lines]
    return [line for _, lines in lines_by_layer for line in lines]
