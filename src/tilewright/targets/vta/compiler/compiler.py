"""Compile a graph to a program: launches for the nodes that VTA runs, host steps with a reason for the other nodes.

A launch keeps its tensors in DRAM segments. Its `meta` tells the host how they are laid out (see launch/layouts.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
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
from tilewright.targets.vta.compiler.arrange import arranged
from tilewright.targets.vta.compiler.chain import Chain, Joined, Member, View, chains, operands, placed
from tilewright.targets.vta.compiler.emit import Code, Names, Place, draft, emit, weight_image
from tilewright.targets.vta.compiler.legal import noted
from tilewright.targets.vta.compiler.lowered import Context
from tilewright.targets.vta.compiler.plan import Plan, carried
from tilewright.targets.vta.compiler.sequence import Stage, early, listing, walked
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.stream import image_of
from tilewright.targets.vta.launch.layouts import CARRIED, COMPUTED, JOINED, READ, TABLES, NodeLayout
from tilewright.targets.vta.passes import prepare
from tilewright.targets.vta.schedule import NONE, Schedule
from tilewright.targets.vta.timing import DEFAULT

TARGET = "vta"
#: Smallest token_depth: a compiled program keeps up to this many tokens in one queue.
TOKENS = 2
#: Why the host runs a node that needs no instructions in one launch with its neighbours.
MOVES = "moves data only; the layers beside it have launches of their own (small token_depth, or `alone` in a schedule)"
#: Token queues of this depth never filled in thousands of random networks; with shorter ones each launch is checked.
AMPLE = 64


def plan(site: Site, config: Config, timing: str = DEFAULT) -> Plan | str:
    """Return the plan chosen for a node under a timing model, or the reason why the host runs the node."""
    found = placed((site,), Context(config, rounding_mode("tflm"), timing))
    return found if isinstance(found, str) else found[1]


def compile_graph(
    graph: Graph,
    config: Config,
    rounding: str,
    timing: str = DEFAULT,
    schedule: Schedule = NONE,
    starts: bool = False,
) -> Program:
    """Compile a network, with plans chosen under a timing model; launches and host steps are in the order of the nodes.

    Layers in the schedule get its plans; with `starts`, the search starts from them (scheduled.py has the whole rules).
    Raises ConfigError if the config's token queues (token_depth) are too short, InputError if a plan breaks a rule.
    """
    if config.token_depth < TOKENS:
        reason = f"token_depth is {config.token_depth}; compiled programs need {TOKENS} tokens in a queue"
        raise ConfigError("VTA config", reason, f"set token_depth to {TOKENS} or more")
    mode, plain = rounding_mode(rounding), config.plain
    steps: list[Launch | HostStep] = []
    alone = {layer.layer for layer in schedule.layers if layer.alone}
    with uncollected():
        for step in chains(graph, plain, mode, timing, schedule, starts):
            steps += [step] if isinstance(step, HostStep) else _launches(step, graph, plain, timing, alone)
    return Program(TARGET, config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def launch_with(site: Site, config: Config, chosen: Plan) -> Launch:
    """Compile a node with the plan `chosen`: that of `plan(site, config)`, or a changed one that fits the config.

    Raises ProgramError if the node falls back to the host.
    """
    found = placed((site,), Context(config, rounding_mode("tflm"), DEFAULT))
    if isinstance(found, str):
        raise ProgramError(f"op '{site.node.name}'", found)
    chain = Chain()
    chain.add((site,), found[0], chosen, config.batch, given=True)
    return _launch_of(chain, {site.output.name}, config, DEFAULT)


def _launches(
    chain: Chain, graph: Graph, config: Config, timing: str, apart: Collection[str]
) -> list[Launch | HostStep]:
    """Compile a chain to one launch, or to one per member if the token queues are too short for one.

    `apart`: layers, by first node, whose chain is compiled to one launch per member in any case.
    """
    if len(chain.members) == 1 or not any(member.site.node.name in apart for member in chain.members):
        launch = _launch(chain, graph, config, timing)
        if len(chain.members) == 1 or config.token_depth >= AMPLE or _ends(launch, config):
            return [launch]
    alone: list[Launch | HostStep] = []
    for node in chain.nodes:
        if isinstance(node, View):
            alone.append(HostStep(node.site.node.name, MOVES))
            continue
        if isinstance(node, Joined):
            continue  # it is in its member's launch
        single = Chain()
        single.add(node.sites, node.lowered, node.plan, config.batch, node.given)
        alone.append(_launch(single, graph, config, timing, alone=True))
    return alone


def _ends(launch: Launch, config: Config) -> bool:
    """Return whether the launch runs to its end, without a deadlock on a full token queue."""
    image = image_of(launch)
    options = RunOptions(timing="hls", check=False, values=False)
    known = prepare(image.insns, config, image.dram({}, 1), image.bases, options)
    return not any(finding.kind == DEADLOCK for finding in known.findings)


def _launch(chain: Chain, graph: Graph, config: Config, timing: str, alone: bool = False) -> Launch:
    """Compile a chain to one launch; tensors that only the chain's nodes read stay in the machine's DRAM.

    `alone`: whether it is a layer of a longer chain.
    """
    own = {node.site.node.name for node in chain.nodes}
    wanted = {name for node in graph.nodes if node.name not in own for name in node.inputs} | set(graph.results)
    return _launch_of(chain, wanted, config, timing, alone)


def _launch_of(chain: Chain, wanted: set[str], config: Config, timing: str, alone: bool = False) -> Launch:
    members = chain.members
    places = _places(chain)
    names = [_names(index, member, members, places) for index, member in enumerate(members)]
    stages = tuple(map(_stage, members))
    stages, code = _code(stages, tuple(names), config, timing)
    members = chain.replan([stage.plan for stage in stages])
    kinds = _kinds(chain, names, places, wanted)
    addresses = code.segments.addresses
    listed = [
        {"name": name, "address": addresses[name], "size": size, "kind": kinds[name]}
        for name, size in code.segments.sizes.items()
    ]
    meta: dict[str, Any] = {
        "bases": dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0),
        "segments": listed,
        "layers": [form.to_json() for form in _forms(chain, names, places, wanted, config)],
        "schedule": [
            noted(member.plan, member.lowered.form, tuple(site.node.name for site in member.sites), alone).to_json()
            for member in members
        ],
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
            if lowered.layer.carries:
                arrays[f"{CARRIED}.{position}"] = carried(member.plan).astype(np.int32)
            arrays |= {
                f"{name}.{position}": channels
                for name, channels in ((READ, lowered.inputs), (COMPUTED, lowered.outputs))
                if channels is not None
            }
            tables = (lowered.correction, lowered.row_class, lowered.column_class)
            arrays |= {f"{table}.{position}": values for table, values in zip(TABLES, tables, strict=True)}
    nodes = tuple(node.site.node.name for node in chain.nodes)
    return Launch(nodes[0] if len(nodes) == 1 else f"{nodes[0]}..{nodes[-1]}", nodes, meta, arrays)


def _stage(member: Member) -> Stage:
    """Return a member's plan, and the members that write its inputs and its residual."""
    inputs = member.lowered.layer.operands
    residual = (*member.reads[inputs:], ())[0]
    return Stage(member.plan, tuple(filter(None, member.reads[:inputs])), residual, member.given)


@lru_cache(maxsize=256)
def _code(
    stages: tuple[Stage, ...], names: tuple[Names, ...], config: Config, timing: str
) -> tuple[tuple[Stage, ...], Code]:
    """Return the stages (layers of a chain) with their final plans, and the chain's code; equal chains share both.

    Weights and zero points are data in DRAM, so the code does not depend on them.
    """
    try:
        stages, made = arranged(stages, names, config, timing)
    except HazardError:  # deadlock on short token queues: _launches splits such a chain
        walk = walked(stages, config, timing)
        return stages, emit(draft(stages, names, listing(walk, early(walk.loads)), config), config)
    return stages, emit(made, config)


def _places(chain: Chain) -> dict[int, Place]:
    """Return where in DRAM each member (by index) puts its result: in its own segment, or in one with other results."""
    number = len(chain.members) > 1
    found = {}
    for members in chain.segments:
        first = members[0]
        kind = "out" if chain.members[first].lowered.layer.closed else "acc"
        at = 0
        for member in members:
            found[member] = Place(f"{kind}{first if number else ''}", at)
            layer = chain.members[member].lowered.layer
            at += layer.planes * layer.out_tiles * layer.out_pixels
    return found


def _names(index: int, member: Member, members: Sequence[Member], where: Mapping[int, Place]) -> Names:
    """Return the names of a member's DRAM segments; they contain numbers if the chain has several members."""
    number = str(index) if len(members) > 1 else ""
    inputs = tuple(
        where[made[0]] if made else Place(f"x{number}{'b' * operand}") for operand, made in enumerate(member.reads)
    )
    return Names(f"wgt{number}", f"par{number}", inputs, where[index])


def _kinds(chain: Chain, named: Sequence[Names], where: Mapping[int, Place], wanted: set[str]) -> dict[str, str]:
    """Return the kind of each DRAM segment, by name: const, input, scratch, or output (results that the host needs)."""
    found = {"uop": "const"}
    for member, name in zip(chain.members, named, strict=True):
        found |= {name.weights: "input" if member.lowered.tiles is None else "const", name.parameters: "const"}
        found |= {place.segment: "input" for place, made in zip(name.inputs, member.reads, strict=True) if not made}
        found.setdefault(name.result.segment, "scratch")
    for position, node in enumerate(chain.nodes):
        if _needed(chain, node, wanted):
            found[where[_first(chain, position)].segment] = "output"
    return found


def _forms(
    chain: Chain, named: Sequence[Names], where: Mapping[int, Place], wanted: set[str], config: Config
) -> Iterator[NodeLayout]:
    """Yield what the host must know of each node."""
    for position, node in enumerate(chain.nodes):
        first = _first(chain, position)
        place = where[first] if _needed(chain, node, wanted) else None
        if isinstance(node, View):
            form = _view(node, config)
        else:
            form = _layer(chain.members[first], named[first], config, node if isinstance(node, Joined) else None)
        yield replace(
            form,
            node=node.site.node.name,
            result=place.segment if place else None,
            first=place.first if place else 0,
        )


def _first(chain: Chain, position: int) -> int:
    """Return the index of the first member that computes or writes the result of the chain's node number `position`."""
    node = chain.nodes[position]
    if isinstance(node, View):
        return node.made[0]
    return node.member if isinstance(node, Joined) else chain.members.index(node)


def _needed(chain: Chain, node: Member | Joined | View, wanted: set[str]) -> bool:
    """Return whether the host takes a node's result from DRAM; of a member's nodes, only the last one's is there."""
    if isinstance(node, View):
        return node.site.output.name in wanted
    member, last = (chain.members[node.member], node.last) if isinstance(node, Joined) else (node, len(node.sites) == 1)
    return last and (node.site.output.name in wanted or not member.lowered.layer.closed)


def _layer(member: Member, name: Names, config: Config, part: Joined | None) -> NodeLayout:
    """Return what the host must know of a member's first node, or of its part `part`, which reads nothing itself."""
    layer = member.lowered.layer
    chunks = [[*outs, *sums] for outs, sums in member.plan.weight_chunks] if member.lowered.tiles is None else []
    named = [tensor for tensor, _ in operands(member.sites, layer, config.batch)]
    read = [] if part else list(zip(name.inputs, named, member.reads, strict=True))
    inputs, residual = read[: layer.operands], read[layer.operands :]
    return NodeLayout(
        node=member.site.node.name,
        batch=config.batch,
        block=config.block,
        inputs=[place.segment for place, _, made in inputs if not made],
        tensors=[tensor for _, tensor, made in inputs if not made],
        residual=[[place.segment, tensor] for place, tensor, made in residual if not made],
        weights=name.weights if chunks and not part else None,
        chunks=chunks,
        matrix=layer.matrix,
        codes=layer.closed,
        in_tiles=layer.in_tiles,
        in_pixels=layer.size[0] * layer.size[1],
        out_tiles=layer.out_tiles,
        out_pixels=layer.out_pixels,
        planes=layer.planes,
        fold=layer.fold,
        strip=list(member.lowered.strip) if member.lowered.strip else None,
        turned=member.lowered.turned,
        plan=f"{JOINED}{member.site.node.name}" if part else member.plan.dump(),
    )


def _view(view: View, config: Config) -> NodeLayout:
    layout = view.layout
    return NodeLayout(
        node=view.site.node.name,
        batch=config.batch,
        block=config.block,
        in_tiles=layout.channel_tiles,
        in_pixels=layout.pixels,
        out_tiles=layout.channel_tiles,
        out_pixels=layout.pixels,
        plan="a view of data in DRAM, no instructions",
    )
