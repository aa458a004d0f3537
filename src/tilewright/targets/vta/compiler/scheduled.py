"""Compile a network with the plans of a user's schedule, or with a search that starts from these plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf
from typing import Any

from tilewright.errors import ConfigError, InputError, shown
from tilewright.graph.ir import Graph
from tilewright.program.program import HostStep, Launch, Program
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.passes import timed
from tilewright.targets.vta.schedule import TARGET, VERSION, Schedule, close_to, read

#: The remedy in an error about a schedule for another machine or another arithmetic.
ANOTHER = "`explain` writes a schedule for this one"


def compile_scheduled(
    graph: Graph, config: Config, rounding: str, timing: str, schedule: Schedule, search: bool
) -> Program:
    """Compile a network with the plans in a schedule. For all other layers, the compiler searches plans.

    With `search`, the search starts from the schedule.

    The same schedule, machine and timing model give the same program. A schedule does not contain the order of
    instructions; the same deterministic search finds this order. Raises InputError if the schedule is of another
    network or machine, or if a plan breaks a rule; ConfigError if token_depth is too small.
    """
    _check(schedule, graph, config, rounding)
    given = compile_graph(graph, config, rounding, timing, schedule)
    _check_used(schedule, given)
    if not search:
        return given
    # Three programs are made: with the schedule's plans, with a search that begins with these plans, and with a search
    # only. The fastest version of each launch is used, so the result is at least as fast as the schedule alone, and as
    # the search alone.
    started = compile_graph(graph, config, rounding, timing, schedule, starts=True)
    return _fastest((given, started, compile_graph(graph, config, rounding, timing)), config, timing)


def schedule_of(program: Program) -> Schedule:
    """Return the schedule of all layers of a compiled program. Raises InputError if the program was damaged."""
    layers = [layer for launch in program.launches for layer in launch.meta.get("schedule", ())]
    head = {"version": VERSION, "target": TARGET, "model": program.graph.name if program.graph else ""}
    return read({**head, "rounding": program.rounding, "config": dict(program.config), "layers": layers})


def _check(schedule: Schedule, graph: Graph, config: Config, rounding: str) -> None:
    """Check that a schedule fits the rounding, the machine and the network. Raises InputError if not."""
    if schedule.rounding not in ("", rounding):
        reason = f"was made for rounding {shown(schedule.rounding)}, not {rounding}"
        raise InputError(schedule.source, reason, f"{ANOTHER}, or remove `rounding` from the file")
    if schedule.config is not None:
        _check_machine(schedule.source, schedule.config, config)
    names = {node.name for node in graph.nodes}
    for layer in schedule.layers:
        if layer.layer not in names:
            origin = f" (made for {shown(schedule.model)})" if schedule.model not in ("", graph.name) else ""
            reason = f"the network {shown(graph.name)} has no layer {shown(layer.layer)}{origin}"
            raise InputError(schedule.source, reason, close_to(layer.layer, names))


def _check_machine(where: str, keys: Mapping[str, Any], config: Config) -> None:
    """Check that a schedule was made for a machine with the same programs and cycles."""
    try:
        made_for = Config.from_json(keys)
    except ConfigError as error:
        raise InputError(where, f"config: {error.reason}", error.remedy) from None
    for key in fields(config):
        wanted, here = (getattr(machine.plain, key.name) for machine in (made_for, config))
        if wanted != here:
            reason = f"was made for a machine with {key.name} {wanted}; this machine has {here}"
            raise InputError(where, reason, f"{ANOTHER}; to try its plans here, remove `config` from the file")


def _check_used(schedule: Schedule, program: Program) -> None:
    """Check that each layer of a schedule is the first node of a layer that VTA runs. Raises InputError if not."""
    used = {layer.layer: layer.nodes for layer in schedule_of(program).layers}
    for layer in schedule.layers:
        name = layer.layer
        if name in used:
            continue
        where = f"{schedule.source}, layer {shown(name)}"
        for step in program.steps:
            if isinstance(step, HostStep) and step.node == name:
                raise InputError(where, f"the host runs it: {step.reason}", "remove it from the schedule")
        first = next((first for first, nodes in used.items() if name in nodes), None)
        if first:
            raise InputError(where, f"it is computed together with {first}", f"schedule the layer {first}")
        raise InputError(where, "it is a view of data in DRAM, without instructions", "remove it from the schedule")


def _fastest(programs: tuple[Program, ...], config: Config, timing: str) -> Program:
    """Combine the fastest launches of several programs for a network. In a tie, the first program's launch is used."""
    nodes = {
        tuple(step.nodes if isinstance(step, Launch) else step.node for step in program.steps) for program in programs
    }
    # Programs with different launches are compared as a whole.
    if len(nodes) > 1:
        return min(programs, key=lambda program: _cycles(program.steps, config, timing))
    candidates = zip(*(program.steps for program in programs), strict=True)
    return replace(
        programs[0], steps=tuple(min(steps, key=lambda step: _cycles((step,), config, timing)) for steps in candidates)
    )


def _cycles(steps: tuple[Launch | HostStep, ...], config: Config, timing: str) -> float:
    total = 0.0
    for launch in steps:
        if isinstance(launch, Launch):
            trace = timed(launch, config, timing).trace
            total += trace.cycles if trace else inf
    return total
