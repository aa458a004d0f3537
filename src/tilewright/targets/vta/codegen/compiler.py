"""From a graph to a program: a launch for each layer that VTA takes, a host step with its reason for the others."""

from __future__ import annotations

from functools import lru_cache

from tilewright.errors import ConfigError, ProgramError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import HostStep, Launch, Program
from tilewright.targets.vta.codegen.emit import Code, emit, weight_image
from tilewright.targets.vta.codegen.layer import Layer
from tilewright.targets.vta.codegen.lower import Lowered, lower
from tilewright.targets.vta.codegen.plan import Plan
from tilewright.targets.vta.codegen.schedule import Schedule, schedule
from tilewright.targets.vta.codegen.search import best
from tilewright.targets.vta.config import Config

TARGET = "vta"
KINDS = {"wgt": "const", "x": "input", "acc": "output", "uop": "const"}

#: Tokens that a compiled program may have in one queue.
TOKENS = 2


def supports(site: Site, config: Config) -> str | None:
    """None where VTA takes the node, else the reason for users."""
    lowered = lower(site, config)
    if isinstance(lowered, str):
        return lowered
    return None if best(lowered.layer, config) else _too_large(config)


def plan(site: Site, config: Config) -> Plan | str:
    """The plan of a node, or why VTA does not take it."""
    lowered = lower(site, config)
    if isinstance(lowered, str):
        return lowered
    found = best(lowered.layer, config)
    return found[0] if found else _too_large(config)


def compile_graph(graph: Graph, config: Config, rounding: str) -> Program:
    """The program of a network; steps are the graph's nodes in order."""
    if config.token_depth < TOKENS:
        reason = f"token_depth is {config.token_depth}; the compiler keeps up to {TOKENS} tokens in a queue"
        raise ConfigError("VTA config", reason, f"set token_depth to {TOKENS} or more")
    steps = tuple(_step(site, config) for site in graph.sites())
    return Program(TARGET, config.to_dict(), config.digest(), rounding_mode(rounding).name, graph, steps)


def _step(site: Site, config: Config) -> Launch | HostStep:
    lowered = lower(site, config)
    if isinstance(lowered, str):
        return HostStep(site.node.name, lowered)
    found = best(lowered.layer, config)
    if not found:
        return HostStep(site.node.name, _too_large(config))
    return _launch(site, lowered, *found, _code(lowered.layer, config), config)


def launch_with(site: Site, config: Config, chosen: Plan) -> Launch:
    """The launch of a node under a plan of the caller's: `plan(site, config)` with other numbers that fit.

    Raises ProgramError where the node is the host's.
    """
    lowered = lower(site, config)
    if isinstance(lowered, str):
        raise ProgramError(f"op '{site.node.name}'", lowered)
    made = schedule(chosen, config)
    assert made  # no limit was given
    return _launch(site, lowered, chosen, made, emit(chosen, made, config), config)


@lru_cache(maxsize=256)
def _code(layer: Layer, config: Config) -> Code:
    """Equal layers share their code: weights and zero points are data."""
    found = best(layer, config)
    assert found
    return emit(*found, config)


def _too_large(config: Config) -> str:
    depths = ", ".join(f"{chip.depth} {chip.name}" for chip in (config.inp, config.wgt, config.acc))
    return f"no tile of it fits the buffers ({depths} tiles)"


def _launch(site: Site, lowered: Lowered, chosen: Plan, made: Schedule, code: Code, config: Config) -> Launch:
    layer = lowered.layer
    addresses = code.segments.addresses
    segments = [
        {"name": name, "address": addresses[name], "size": size, "kind": KINDS[name]}
        for name, size in code.segments.sizes.items()
    ]
    layout = {
        "matrix": layer.matrix,
        "batch": config.batch,
        "block": config.block,
        "in_tiles": layer.in_tiles,
        "in_pixels": layer.size[0] * layer.size[1],
        "out_tiles": layer.out_tiles,
        "out_pixels": layer.out_pixels,
        "planes": layer.planes,
        "fold": layer.fold,
    }
    meta = {
        "bases": dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0),
        "segments": segments,
        "layout": layout,
        "plan": f"{chosen.dump()}\nabout {made.cycles} cycles (timing model hls)",
    }
    arrays = {
        "insns": code.insns,
        "dram.uop": code.uops.reshape(-1),
        "dram.wgt": weight_image(chosen, lowered.tiles),
        "correction": lowered.correction,
        "row_class": lowered.row_class,
        "column_class": lowered.column_class,
    }
    return Launch(site.node.name, (site.node.name,), meta, arrays)
