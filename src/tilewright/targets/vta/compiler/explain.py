"""A program as text: where each layer runs and why, its plan, cycles, transferred bytes, counts and buffer use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.array import Array
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.figures import Figures
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.compiler import explain_walk
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.formats import Fields, Stream
from tilewright.targets.vta.isa.stream import decode, image_of
from tilewright.targets.vta.passes import run_passes


def explain(program: Program, timing: str) -> str:
    """Return text: the machine's memories, then a paragraph per program step; `timing`: the timing model for cycles."""
    config = Config.from_json(program.config)
    parts = explain_walk.memory_map(config)
    for step in program.steps:
        if isinstance(step, HostStep):
            parts.append(f"{step.node}: host, {step.reason}")
        else:
            parts.append("\n  ".join([f"{step.name}: vta", *_launch(step, config, timing)]))
    return "\n".join(parts) + "\n"


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


def cycles(launch: Launch, config: Config, timing: str) -> Iterator[str]:
    """Yield lines of text: the cycles of a launch under a timing model, then those of each of its nodes.

    A node's line has the bound of its instructions on the busiest resource (timing/limits.py), and cycles / bound. A
    line with an argument follows if no order of its instructions takes fewer cycles (timing/optimal.py).
    """
    image = image_of(launch)
    options = RunOptions(timing=timing, check=False, values=False)
    found = run_passes(image.insns, config, image.dram({}, 1), image.bases, 1, options)
    if not found.trace:
        return
    figures = found.figures(image.layer, len(launch.nodes))
    alone = _met(figures[0]) if image.layer is None else ""
    yield f"{found.trace.cycles} cycles (timing model {timing}){alone}"
    if image.layer is None:
        yield from _proof(figures[0])
        return
    for node, layer in zip(launch.nodes, figures, strict=False):
        yield f"  {node}: {layer.cycles}{_met(layer)}"
        yield from _proof(layer)


def _met(figures: Figures) -> str:
    """Return text on how near a layer's cycles are to their bound, and what most of them go to."""
    most = f", {figures.binds} binds" if figures.binds else ""
    bound = figures.bound
    return f", bound {bound}, ratio {figures.cycles / bound:.3f}{most}" if bound else ""


def _proof(figures: Figures) -> Iterator[str]:
    if figures.optimal:
        yield f"    optimal: {figures.optimal}"


def _launch(launch: Launch, config: Config, timing: str) -> list[str]:
    found = counts(launch, config)
    bytes_ = ", ".join(f"{found[f'{name}_bytes']} {name}" for name in ("inp", "wgt", "uop", "out"))
    chips = {"inp": config.inp, "wgt": config.wgt, "acc": config.acc}
    used = ", ".join(f"{found[f'{name}_tiles']} of {chip.depth} {name}" for name, chip in chips.items())
    return [
        *(line for layer in launch.meta["layers"] for line in _plan(layer, len(launch.nodes) > 1)),
        *cycles(launch, config, timing),
        f"{found['instructions']} instructions; micro-ops executed: {found['gemm_uops']} gemm, "
        f"{found['reset_uops']} reset, {found['alu_uops']} alu",
        f"buffers used: {used}; {found['listed_uops']} listed micro-ops, the cache holds {config.uop.depth}",
        f"bytes moved: {bytes_}",
        *(line for index, _ in enumerate(launch.meta["layers"]) for line in _walk(launch, index, config)),
    ]


def _plan(layer: Mapping[str, Any], named: bool) -> list[str]:
    return _under(layer, str(layer["plan"]).split("\n"), named)


def _walk(launch: Launch, index: int, config: Config) -> list[str]:
    """Return the lines of layer `index`'s block walk (see explain_walk); none unless it is a matrix product."""
    layer = launch.meta["layers"][index]
    if not layer["matrix"]:
        return []
    named = len(launch.nodes) > 1
    lines = explain_walk.walk(launch, config, short=True, layer=index if named else None).splitlines()
    return _under(layer, lines, named) if lines else []


def _under(layer: Mapping[str, Any], lines: list[str], named: bool) -> list[str]:
    """Return the lines of text about a layer; if `named`, after a line with the layer's name, and indented."""
    return [f"{layer['node']}:", *(f"  {line}" for line in lines)] if named else lines
