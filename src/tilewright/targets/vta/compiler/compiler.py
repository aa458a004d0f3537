"""From a graph to a program: launches for the layers that VTA takes, a host step with its reason for the others."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.array import Array, uncollected
from tilewright.errors import ConfigError, HazardError, ProgramError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.findings import DEADLOCK
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.compiler import segments
from tilewright.targets.vta.compiler.chain import Chain, Member, View, chains, placed
from tilewright.targets.vta.compiler.emit import Code, Names, draft, emit, weight_image
from tilewright.targets.vta.compiler.lowered import Context
from tilewright.targets.vta.compiler.pack import TABLES
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.compiler.sequence import Stage, early, listing, walked
from tilewright.targets.vta.compiler.tune import tuned
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.passes import prepare
from tilewright.targets.vta.timing import DEFAULT

TARGET = "vta"
#: Tokens that a compiled program may have in one queue.
TOKENS = 2
#: Token queues of so many never filled in thousands of random networks; shorter ones are tried out.
AMPLE = 64


def plan(site: Site, config: Config, timing: str = DEFAULT) -> Plan | str:
    """The plan of a node under a timing model, or why VTA does not take it."""
    found = placed(site, Context(config, rounding_mode("tflm"), timing))
    return found if isinstance(found, str) else found[1]


def compile_graph(graph: Graph, config: Config, rounding: str, timing: str = DEFAULT) -> Program:
    """The program of a network, planned for a timing model; steps are in the order of the graph's nodes."""
    if config.token_depth < TOKENS:
        reason = f"token_depth is {config.token_depth}; the compiler keeps up to {TOKENS} tokens in a queue"
        raise ConfigError("VTA config", reason, f"set token_depth to {TOKENS} or more")
    mode = rounding_mode(rounding)
    steps: list[Launch | HostStep] = []
    with uncollected():
        for step in chains(graph, config, mode, timing):
            steps += [step] if isinstance(step, HostStep) else _launches(step, graph, config, timing)
    return Program(TARGET, config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def launch_with(site: Site, config: Config, chosen: Plan) -> Launch:
    """The launch of a node under a plan of the caller's: `plan(site, config)` with other numbers that fit.

    Raises ProgramError where the node is the host's.
    """
    found = placed(site, Context(config, rounding_mode("tflm"), DEFAULT))
    if isinstance(found, str):
        raise ProgramError(f"op '{site.node.name}'", found)
    chain = Chain()
    chain.add(site, found[0], chosen, config.batch)
    return _launch_of(chain, {site.output.name}, config, DEFAULT, replan=False)


def _launches(chain: Chain, graph: Graph, config: Config, timing: str) -> list[Launch | HostStep]:
    """One launch for a chain, or one for each member where the token queues are too short for it."""
    launch = _launch(chain, graph, config, timing)
    if len(chain.members) == 1 or config.token_depth >= AMPLE or _ends(launch, config):
        return [launch]
    alone: list[Launch | HostStep] = []
    for node in chain.nodes:
        if isinstance(node, View):
            alone.append(HostStep(node.site.node.name, "moves no data between launches of one layer"))
            continue
        single = Chain()
        single.add(node.site, node.lowered, node.plan, config.batch)
        alone.append(_launch(single, graph, config, timing))
    return alone


def _ends(launch: Launch, config: Config) -> bool:
    """Whether no queue fills for good."""
    image = image_of(launch)
    options = RunOptions(timing="hls", check=False, values=False)
    known = prepare(image.insns, config, image.dram({}, 1), image.bases, options)
    return not any(finding.kind == DEADLOCK for finding in known.findings)


def _launch(chain: Chain, graph: Graph, config: Config, timing: str) -> Launch:
    """The launch of a chain; what only its own members read stays on the machine."""
    own = {node.site.node.name for node in chain.nodes}
    wanted = {name for node in graph.nodes if node.name not in own for name in node.inputs} | set(graph.outputs)
    return _launch_of(chain, wanted, config, timing)


def _launch_of(chain: Chain, wanted: set[str], config: Config, timing: str, replan: bool = True) -> Launch:
    members = chain.members
    places = segments.places(chain)
    names = [segments.names(index, member, members, places) for index, member in enumerate(members)]
    stages = tuple(Stage(member.plan, tuple(filter(None, member.reads))) for member in members)
    stages, code = _code(stages, tuple(names), config, timing, replan)
    members = chain.replan([stage.plan for stage in stages])
    kinds = segments.kinds(chain, names, places, wanted)
    addresses = code.segments.addresses
    listed = [
        {"name": name, "address": addresses[name], "size": size, "kind": kinds[name]}
        for name, size in code.segments.sizes.items()
    ]
    meta: dict[str, Any] = {
        "bases": dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0),
        "segments": listed,
        "layers": segments.layers(chain, names, places, wanted, config),
    }
    arrays: dict[str, Array] = {"insns": code.insns, "dram.uop": code.uops.reshape(-1)}
    positions = [position for position, node in enumerate(chain.nodes) if isinstance(node, Member)]
    if len(chain.nodes) > 1:
        arrays["layer"] = np.array(positions, np.int64)[code.layer]
    for position, member, name in zip(positions, members, names, strict=True):
        lowered = member.lowered
        if lowered.tiles is not None:
            arrays[f"dram.{name.weights}"] = weight_image(member.plan, lowered.tiles)
        if lowered.parameters is not None:
            arrays[f"dram.{name.parameters}"] = lowered.parameters.reshape(-1).view("uint8")
        elif not lowered.layer.closed:
            tables = (lowered.correction, lowered.row_class, lowered.column_class)
            arrays |= {f"{table}.{position}": values for table, values in zip(TABLES, tables, strict=True)}
    nodes = tuple(node.site.node.name for node in chain.nodes)
    return Launch(nodes[0] if len(nodes) == 1 else f"{nodes[0]}..{nodes[-1]}", nodes, meta, arrays)


@lru_cache(maxsize=256)
def _code(
    stages: tuple[Stage, ...], names: tuple[Names, ...], config: Config, timing: str, replan: bool
) -> tuple[tuple[Stage, ...], Code]:
    """The stages with their final plans, and their code. Equal layers share it: weights and zero points are data."""
    try:
        best = tuned(stages, names, config, timing, replan)
    except HazardError:  # short token queues: such a chain is divided, see _launches
        walk = walked(stages, config, timing)
        return stages, emit(draft(stages, names, listing(walk, early(walk.loads)), config), config)
    made = best.draft if best.walk.apart else draft(best.stages, names, best.draft.listing, config)
    return best.stages, emit(made, config)
