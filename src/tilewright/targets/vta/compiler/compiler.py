"""Compile a graph to a program: launches for the nodes that VTA runs, host steps with a reason for the other nodes.

A launch keeps its tensors in DRAM segments. Its `meta` has the layout of these tensors (see launch/layouts.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.array import Array, uncollected
from tilewright.errors import ConfigError, HazardError
from tilewright.graph.ir import Graph
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import HostStep, Launch, Program
from tilewright.schedule import Range
from tilewright.sim.findings import DEADLOCK
from tilewright.targets.vta.compiler.chain import Chain, ChainNode, Member, chains
from tilewright.targets.vta.compiler.emit import Code, Draft, Place, TensorPlaces, draft, emit, weight_image
from tilewright.targets.vta.compiler.legal import layer_schedule
from tilewright.targets.vta.compiler.plan import Plan, carried, paired, stored
from tilewright.targets.vta.compiler.scores import kept_on_disk
from tilewright.targets.vta.compiler.sequence import Stage, StreamOrder, WorkList, list_work, stream_order
from tilewright.targets.vta.compiler.tune import TimedChain, tuned
from tilewright.targets.vta.compiler.work import PARAMETERS, RESULT, WEIGHTS, Item, LoadTiles, earliest_loads
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.launch.layouts import CARRIED, COMPUTED, JOINED, PAIRED, READ, STORED, TABLES, NodeLayout
from tilewright.targets.vta.passes import timed
from tilewright.targets.vta.schedule import NONE, Schedule
from tilewright.targets.vta.timing import DEFAULT

TARGET = "vta"
#: The smallest legal token_depth: a compiled program keeps up to this number of tokens in one queue.
TOKENS = 2
#: The reason why a node runs on the host although it would be a view if its neighbours shared a launch.
MOVES = "moves data only; the layers beside it have launches of their own (small token_depth, or `alone` in a schedule)"
#: Token queues of this depth never filled in thousands of random networks. With shorter queues, each launch is checked.
AMPLE = 64


def compile_graph(
    graph: Graph,
    config: Config,
    rounding: str,
    timing: str = DEFAULT,
    schedule: Schedule = NONE,
    starts: bool = False,
) -> Program:
    """Compile a network, with plans chosen under a timing model; launches and host steps are in the order of the nodes.

    Layers in the schedule get the schedule's plans; with `starts`, the search starts from these plans (see
    scheduled.py). Raises ConfigError if the config's token queues (token_depth) are too short, InputError if a plan
    breaks a rule.
    """
    if config.token_depth < TOKENS:
        reason = f"token_depth is {config.token_depth}; compiled programs need {TOKENS} tokens in a queue"
        raise ConfigError("VTA config", reason, f"set token_depth to {TOKENS} or more")
    mode = rounding_mode(rounding)
    plain = config.plain
    steps: list[Launch | HostStep] = []
    alone = {layer.layer for layer in schedule.layers if layer.alone}
    with uncollected():
        for step in chains(graph, plain, mode, timing, schedule, starts):
            steps += [step] if isinstance(step, HostStep) else _launches(step, graph, timing, alone)
    return Program(TARGET, config.to_dict(), config.digest(), mode.name, graph, tuple(steps))


def _launches(chain: Chain, graph: Graph, timing: str, split: set[str]) -> list[Launch | HostStep]:
    """Compile a chain to one launch, or to a launch for each member if the token queues are too short for one launch.

    `split`: node names. A chain with a layer that begins with such a node always becomes one launch per member.
    """
    # Try one launch first. Deep token queues cannot fill; for others, the time pass looks for a deadlock.
    if len(chain.members) == 1 or split.isdisjoint(member.nodes[0] for member in chain.members):
        launch = _launch(chain, graph, timing)
        if len(chain.members) == 1 or chain.config.token_depth >= AMPLE:
            return [launch]
        if all(finding.kind != DEADLOCK for finding in timed(launch, chain.config, "hls").findings):
            return [launch]
    # One launch for each member. A view has no instructions, so the host moves its data.
    alone: list[Launch | HostStep] = []
    for node in chain.nodes:
        if node.view:
            alone.append(HostStep(node.site.node.name, MOVES))
        elif chain.leads(node):
            member = chain.members[node.members[0]]
            single = Chain(chain.config)
            single.add(member.sites, member.lowered, member.plan, member.fixed)
            alone.append(_launch(single, graph, timing, alone=True))
    return alone


def _launch(chain: Chain, graph: Graph, timing: str, alone: bool = False) -> Launch:
    """Compile a chain to one launch; tensors that only the chain's nodes read stay in the machine's DRAM."""
    # A result is an output of the launch if another step of the program, or its user, reads it.
    inside = {node.site.node.name for node in chain.nodes}
    wanted = {name for node in graph.nodes if node.name not in inside for name in node.inputs} | set(graph.results)
    places = _places(chain)
    stages = tuple(Stage(member.plan, member.reads, member.fixed) for member in chain.members)
    stages, code = _code(stages, places, chain.config, timing)
    chain.members = [replace(member, plan=stage.plan) for member, stage in zip(chain.members, stages, strict=True)]
    layers = [_layout_of(chain, places, node, wanted) for node in chain.nodes]
    kinds = _kinds(chain.members, places) | {form.result: "output" for form in layers if form.result}
    meta: dict[str, Any] = {
        "bases": dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0),
        "segments": [
            {"name": name, "address": code.segments.addresses[name], "size": size, "kind": kinds[name]}
            for name, size in code.segments.sizes.items()
        ],
        "layers": [form.to_json() for form in layers],
        "schedule": [
            layer_schedule(part.plan, part.lowered.form, part.nodes, alone).to_json() for part in chain.members
        ],
    }
    nodes = tuple(node.site.node.name for node in chain.nodes)
    return Launch(
        nodes[0] if len(nodes) == 1 else f"{nodes[0]}..{nodes[-1]}", nodes, meta, _arrays(chain, places, code)
    )


def _arrays(chain: Chain, places: tuple[TensorPlaces, ...], code: Code) -> dict[str, Array]:
    # Views, and nodes that are fused with an earlier node, have no instructions.
    positions = [position for position, node in enumerate(chain.nodes) if chain.leads(node)]
    arrays: dict[str, Array] = {"insns": code.insns, "dram.uop": code.uops.reshape(-1)}
    if len(chain.nodes) > 1:
        arrays["layer"] = np.array(positions, np.int64)[code.layer]
    for position, member, tensors in zip(positions, chain.members, places, strict=True):
        lowered = member.lowered
        if lowered.tiles is not None:
            image = weight_image(member.plan, lowered.tiles, lowered.offsets, chain.config)
            arrays[f"dram.{tensors[WEIGHTS].segment}"] = image
        if lowered.parameters is not None:
            arrays[f"dram.{tensors[PARAMETERS].segment}"] = lowered.parameters.reshape(-1).view("uint8")
        elif not lowered.layer.outputs_codes:
            if lowered.layer.by_group:
                arrays[f"{STORED}.{position}"] = stored(member.plan)
            if lowered.layer.paired:
                arrays[f"{PAIRED}.{position}"] = paired(member.plan)
            if lowered.layer.carries:
                arrays[f"{CARRIED}.{position}"] = carried(member.plan).astype(np.int32)
            tables = (lowered.inputs, lowered.outputs, lowered.correction, lowered.row_class, lowered.column_class)
            for table, values in zip((READ, COMPUTED, *TABLES), tables, strict=True):
                if values is not None:
                    arrays[f"{table}.{position}"] = values
    return arrays


@lru_cache(maxsize=256)
def _code(
    stages: tuple[Stage, ...], places: tuple[TensorPlaces, ...], config: Config, timing: str
) -> tuple[tuple[Stage, ...], Code]:
    """Return the stages (layers) of a chain with their final plans, and its code. Equal chains share the result."""
    try:
        # The code does not depend on weights and zero points, which are data in DRAM.
        stages, chain_draft = _arranged(stages, places, config, timing)
    except HazardError:  # deadlock on short token queues: _launches splits such a chain
        work_list = list_work(stages, config, timing)
        return stages, emit(
            draft(stages, places, stream_order(work_list, earliest_loads(work_list.loads)), config), config
        )
    return stages, emit(chain_draft, config)


def _arranged(
    stages: tuple[Stage, ...], places: tuple[TensorPlaces, ...], config: Config, timing: str
) -> tuple[tuple[Stage, ...], Draft]:
    """Return the stages of a chain with their final plans, and the draft to emit, from disk or tuned now.

    Raises HazardError if a full token queue causes a deadlock.
    """
    new: list[TimedChain] = []

    # The search for the order is most of a compile's work. With the order from disk, a compile makes only one draft.
    @kept_on_disk
    def order(*chain: Any) -> dict[str, Any]:
        new.append(tuned(*chain))
        return _saved(new[0])

    saved = order(stages, places, config, timing)
    # A draft with joined steps is only valid for timing, so the final instructions need another draft.
    if new:
        best = new[0]
        return best.stages, best.draft if best.work_list.by_step else draft(
            best.stages, places, best.draft.stream_order, config
        )
    plans = (Plan.of(stage.plan.layer, plan) for stage, plan in zip(stages, saved["plans"], strict=True))
    stages = tuple(stage._replace(plan=plan) for stage, plan in zip(stages, plans, strict=True))
    work_list = list_work(stages, config, timing, saved["by_step"])
    return stages, draft(stages, places, _stream_order(work_list, saved["order"]), config)


def _saved(best: TimedChain) -> dict[str, Any]:
    """Return a tuned chain as a JSON value: the mode `by_step` (see WorkList), the plans, and the order of the items.

    The order is a list of item numbers. A part of a split load of weights is [number, first tile, tiles].
    """
    items = best.work_list.items
    numbers = {(layer, id(item)): number for number, (layer, item) in enumerate(items)}
    # A part of a split load of weights has no number, so the number of the unsplit load is saved, with the tiles.
    whole = {
        (layer, item.slot, item.chunk): number
        for number, (layer, item) in enumerate(items)
        if isinstance(item, LoadTiles) and item.chunk >= 0 and not item.piece
    }
    order: list[int | tuple[int, int, int]] = []
    for layer, item in best.draft.stream_order.items:
        number = numbers.get((layer, id(item)))
        if number is None:
            assert isinstance(item, LoadTiles)
            order.append((whole[layer, item.slot, item.chunk], *item.tiles))
        else:
            order.append(number)
    return {"by_step": best.work_list.by_step, "plans": [stage.plan.to_json() for stage in best.stages], "order": order}


def _stream_order(work_list: WorkList, order: list[Any]) -> StreamOrder:
    items: list[tuple[int, Item]] = []
    work = []
    for entry in order:
        # A part of a split load is [number, first tile, tiles] (see _saved).
        number, *tiles = entry if isinstance(entry, list) else (entry,)
        layer, item = work_list.items[number]
        if tiles:
            assert isinstance(item, LoadTiles)
            item = item.some(Range(*tiles))
        items.append((layer, item))
        # In `WorkList.items`, the loads follow the work.
        work.append(number if number < len(work_list.work) else -1)
    return StreamOrder(items, work, work_list.regions)


def _kinds(members: Sequence[Member], places: tuple[TensorPlaces, ...]) -> dict[str, str]:
    kinds = {"uop": "const"}
    for member, tensors in zip(members, places, strict=True):
        kinds[tensors[WEIGHTS].segment] = "input" if member.lowered.tiles is None else "const"
        kinds[tensors[PARAMETERS].segment] = "const"
        operands = zip(tensors[:RESULT], member.reads, strict=True)
        kinds |= {place.segment: "input" for place, writers in operands if not writers}
        kinds.setdefault(tensors[RESULT].segment, "scratch")
    return kinds


def _places(chain: Chain) -> tuple[TensorPlaces, ...]:
    """Return the places of the members' tensors."""
    members = chain.members
    # With several members, the names of segments contain the member's number.
    numbers = [str(index) if len(members) > 1 else "" for index in range(len(members))]
    results: dict[int, Place] = {}
    for segment in chain.segments:
        kind = "out" if members[segment[0]].lowered.layer.outputs_codes else "acc"
        at = 0  # the results of a concatenation follow each other in one segment
        for index in segment:
            results[index] = Place(f"{kind}{numbers[segment[0]]}", at)
            layer = members[index].lowered.layer
            at += layer.planes * layer.out_tiles * layer.out_pixels
    places = []
    for index, (number, member) in enumerate(zip(numbers, members, strict=True)):
        inputs = tuple(
            results[writers[0]] if writers else Place(f"x{number}{'b' * operand}")
            for operand, writers in enumerate(member.reads)
        )
        places.append((*inputs, results[index], Place(f"par{number}"), Place(f"wgt{number}")))
    return tuple(places)


def _layout_of(chain: Chain, places: tuple[TensorPlaces, ...], node: ChainNode, wanted: set[str]) -> NodeLayout:
    """Return the layout of a node for the host. For fused nodes, the first node has the tensors that are read."""
    index = node.members[0]
    name = node.site.node.name
    member = chain.members[index]
    result = places[index][RESULT]
    layer = member.lowered.layer
    config = chain.config
    needed = node.stored and (node.site.output.name in wanted or not layer.outputs_codes)
    tiles, pixels = (node.view.channel_tiles, node.view.pixels) if node.view else (layer.out_tiles, layer.out_pixels)
    form = NodeLayout(
        node=name,
        batch=config.batch,
        block=config.block,
        result=result.segment if needed else None,
        first=result.first if needed else 0,
        in_tiles=tiles,
        in_pixels=pixels,
        out_tiles=tiles,
        out_pixels=pixels,
        bits=config.inp.width,
        plan="a view of data in DRAM, no instructions",
    )
    if node.view:
        return form
    # The host supplies these weights at every run, so the host needs their order in DRAM.
    chunks = [[*outs, *sums] for outs, sums in member.plan.weight_chunks] if member.lowered.tiles is None else []
    weights = None
    plan = f"{JOINED}{member.nodes[0]}"
    by_host: list[tuple[str, str, bool]] = []
    if chain.leads(node):
        weights = places[index][WEIGHTS].segment if chunks else None
        plan = member.plan.dump()
        operands = enumerate(zip(places[index][:RESULT], member.operands, member.reads, strict=True))
        by_host = [
            (place.segment, tensor, at < layer.operands) for at, (place, tensor, writers) in operands if not writers
        ]
    return replace(
        form,
        inputs=[segment for segment, _, is_input in by_host if is_input],
        tensors=[tensor for _, tensor, is_input in by_host if is_input],
        residual=[[segment, tensor] for segment, tensor, is_input in by_host if not is_input],
        weights=weights,
        chunks=chunks,
        matrix=layer.matrix,
        codes=layer.outputs_codes,
        in_tiles=layer.in_tiles,
        in_pixels=layer.size[0] * layer.size[1],
        planes=layer.planes,
        fold=layer.fold,
        strip=list(member.lowered.strip) if member.lowered.strip else None,
        turned=member.lowered.transposed,
        plan=plan,
    )
