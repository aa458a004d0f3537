"""From a graph to a program: launches for the layers that VTA takes, a host step with its reason for the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tilewright.array import Array
from tilewright.errors import ConfigError, ProgramError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import HostStep, Launch, Program
from tilewright.sim.findings import DEADLOCK
from tilewright.targets.base import RunOptions
from tilewright.targets.vta.codegen.chain import Chain, Member, chains, closed, operands, placed
from tilewright.targets.vta.codegen.emit import Code, Names, emit, weight_image
from tilewright.targets.vta.codegen.lowered import Context
from tilewright.targets.vta.codegen.pack import TABLES
from tilewright.targets.vta.codegen.plan import Plan
from tilewright.targets.vta.codegen.schedule import Schedule, Stage, schedule
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.image import Image
from tilewright.targets.vta.passes import run_passes

TARGET = "vta"
#: Tokens that a compiled program may have in one queue.
TOKENS = 2
#: Token queues of so many never filled in thousands of random networks; shorter ones are tried out.
AMPLE = 64


def plan(site: Site, config: Config) -> Plan | str:
    """The plan of a node, or why VTA does not take it."""
    found = placed(site, Context(config, rounding_mode("tflm")))
    return found if isinstance(found, str) else found[1]


def compile_graph(graph: Graph, config: Config, rounding: str) -> Program:
    """The program of a network; steps are in the order of the graph's nodes."""
    if config.token_depth < TOKENS:
        reason = f"token_depth is {config.token_depth}; the compiler keeps up to {TOKENS} tokens in a queue"
        raise ConfigError("VTA config", reason, f"set token_depth to {TOKENS} or more")
    mode = rounding_mode(rounding)
    steps: list[Launch | HostStep] = []
    for step in chains(graph, config, mode):
        steps += [step] if isinstance(step, HostStep) else _launches(step, graph, config)
    return Program(TARGET, config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def launch_with(site: Site, config: Config, chosen: Plan) -> Launch:
    """The launch of a node under a plan of the caller's: `plan(site, config)` with other numbers that fit.

    Raises ProgramError where the node is the host's.
    """
    found = placed(site, Context(config, rounding_mode("tflm")))
    if isinstance(found, str):
        raise ProgramError(f"op '{site.node.name}'", found)
    chain = Chain()
    chain.add(site, found[0], chosen, config.batch)
    return _launch_of(chain, {site.output.name}, config)


def _launches(chain: Chain, graph: Graph, config: Config) -> list[Launch]:
    """One launch for a chain, or one for each member where the token queues are too short for it."""
    launch = _launch(chain, graph, config)
    if len(chain.members) == 1 or config.token_depth >= AMPLE or _ends(launch, config):
        return [launch]
    alone = []
    for member in chain.members:
        single = Chain()
        single.add(member.site, member.lowered, member.plan, config.batch)
        alone.append(_launch(single, graph, config))
    return alone


def _ends(launch: Launch, config: Config) -> bool:
    """Whether no queue fills for good."""
    image = Image.of(launch)
    options = RunOptions(timing="hls", check=False, values=False)
    passes = run_passes(image.insns, config, image.dram({}, 1), image.bases, 1, options)
    return not any(finding.kind == DEADLOCK for finding in passes.findings)


def _launch(chain: Chain, graph: Graph, config: Config) -> Launch:
    """The launch of a chain; what only its own members read stays on the machine."""
    own = {member.site.node.name for member in chain.members}
    wanted = {name for node in graph.nodes if node.name not in own for name in node.inputs} | set(graph.outputs)
    return _launch_of(chain, wanted, config)


def _launch_of(chain: Chain, wanted: set[str], config: Config) -> Launch:
    members = chain.members
    names = [_names(index, member, members) for index, member in enumerate(members)]
    stages = tuple(Stage(member.plan, tuple(r for r in member.reads if r is not None)) for member in members)
    made, code = _code(stages, tuple(names), config)
    kinds = _kinds(members, names, wanted)
    addresses = code.segments.addresses
    segments = [
        {"name": name, "address": addresses[name], "size": size, "kind": kinds[name]}
        for name, size in code.segments.sizes.items()
    ]
    layers = [_layer(member, name, kinds, config) for member, name in zip(members, names, strict=True)]
    meta: dict[str, Any] = {
        "bases": dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0),
        "segments": segments,
        "layers": layers,
        "plan": f"about {made.cycles} cycles (timing model hls)",
    }
    arrays: dict[str, Array] = {"insns": code.insns, "dram.uop": code.uops.reshape(-1)}
    if len(members) > 1:
        arrays["layer"] = code.layer
    for index, (member, name) in enumerate(zip(members, names, strict=True)):
        lowered = member.lowered
        arrays[f"dram.{name.weights}"] = weight_image(member.plan, lowered.tiles)
        if lowered.parameters is not None:
            arrays[f"dram.{name.parameters}"] = lowered.parameters.reshape(-1).view("uint8")
        elif not closed(lowered.layer):
            tables = (lowered.correction, lowered.row_class, lowered.column_class)
            arrays |= {f"{table}.{index}": values for table, values in zip(TABLES, tables, strict=True)}
    nodes = tuple(member.site.node.name for member in members)
    return Launch(nodes[0] if len(nodes) == 1 else f"{nodes[0]}..{nodes[-1]}", nodes, meta, arrays)


@lru_cache(maxsize=256)
def _code(stages: tuple[Stage, ...], names: tuple[Names, ...], config: Config) -> tuple[Schedule, Code]:
    """Equal layers share their code: weights and zero points are data."""
    made = schedule(stages, config)
    assert made  # no limit was given
    return made, emit(stages, names, made, config)


def _names(index: int, member: Member, members: Sequence[Member]) -> Names:
    """The names of a member's segments, numbered where there are several members."""
    number = str(index) if len(members) > 1 else ""
    results = [
        f"{'out' if closed(other.lowered.layer) else 'acc'}{position if number else ''}"
        for position, other in enumerate(members)
    ]
    inputs = []
    for operand, read in enumerate(member.reads):
        inputs.append(f"x{number}{'b' * operand}" if read is None else results[read])
    return Names(f"wgt{number}", f"par{number}", tuple(inputs), results[index])


def _kinds(members: Sequence[Member], names: Sequence[Names], wanted: set[str]) -> dict[str, str]:
    kinds = {"uop": "const"}
    for member, name in zip(members, names, strict=True):
        kinds |= {name.weights: "const", name.parameters: "const"}
        kinds |= {source: "input" for source, read in zip(name.inputs, member.reads, strict=True) if read is None}
        needed = member.site.output.name in wanted or not closed(member.lowered.layer)
        kinds[name.result] = "output" if needed else "scratch"
    return kinds


def _layer(member: Member, names: Names, kinds: dict[str, str], config: Config) -> dict[str, Any]:
    """What the host must know of a layer: how its input and its result lie, and for people its plan."""
    layer = member.lowered.layer
    return {
        "node": member.site.node.name,
        "inputs": [name for name in names.inputs if kinds[name] == "input"],
        "tensors": [
            tensor
            for tensor, name in zip(operands(member.site, layer), names.inputs, strict=True)
            if kinds[name] == "input"
        ],
        "result": names.result if kinds[names.result] == "output" else None,
        "matrix": layer.matrix,
        "codes": closed(layer),
        "batch": config.batch,
        "block": config.block,
        "in_tiles": layer.in_tiles,
        "in_pixels": layer.size[0] * layer.size[1],
        "out_tiles": layer.out_tiles,
        "out_pixels": layer.out_pixels,
        "planes": layer.planes,
        "fold": layer.fold,
        "plan": member.plan.dump(),
    }
