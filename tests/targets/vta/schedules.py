"""Random schedules of a network's layers: legal ones, from the compiler's layers and rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from tilewright.graph.ir import Graph
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import HostStep
from tilewright.targets.vta.compiler.chain import Member, chains
from tilewright.targets.vta.compiler.legal import chunk_count, layer_schedule, violation, whole
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.schedule import Halvings, Schedule, Slots, Tile
from tilewright.targets.vta.timing import DEFAULT

#: Draws of a plan before the searched one is taken, and the most chunks of a layer, which bound a test's time.
TRIES, CHUNKS = 300, 400


def members(graph: Graph, config: Config, rounding: str) -> Iterator[Member]:
    """The layers of a network on a machine."""
    for step in chains(graph, config.plain, rounding_mode(rounding), DEFAULT, Schedule(()), False):
        if not isinstance(step, HostStep):
            yield from step.members


def size(rng: np.random.Generator, most: int) -> int:
    """Any size, now and then the largest or 1."""
    return int(rng.choice([1, most, int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1))]))


def random_plan(rng: np.random.Generator, plan: Plan, config: Config) -> Plan:
    """A legal plan of a layer in a few chunks; the given one where none is found."""
    sizes = whole(plan.layer)
    for _ in range(TRIES):
        tile = Tile(*(size(rng, most) for most in vars(sizes).values()))
        outer_loop: Literal["channels", "space"] = "channels" if rng.random() < 0.5 else "space"
        slots = Slots(*(int(rng.choice([1, 1, 2, 2, 3, 4, 5, 7, 16])) for _ in range(3)))
        made = Plan(plan.layer, tile, outer_loop, slots)
        if rng.random() < 0.5 and made.tapers:
            made = replace(made, halvings=Halvings(int(rng.integers(0, 4)), int(rng.integers(0, 4))))
        if chunk_count(made) <= CHUNKS and violation(made, config) is None:
            return made
    return plan


def random_schedule(rng: np.random.Generator, graph: Graph, config: Config, rounding: str) -> dict[str, Any]:
    """A random legal schedule of most layers as JSON values, as a user would write it."""
    made = []
    for member in members(graph, config, rounding):
        form = member.lowered
        if form.alternatives and rng.random() < 0.5:
            form = form.alternatives[0]
        if rng.random() < 0.9:
            plan = (
                replace(member.plan, layer=form.layer)
                if form is member.lowered
                else Plan(form.layer, Tile(1, 1, 1, 1), "space", Slots())
            )
            nodes = tuple(site.node.name for site in member.sites)
            plan = random_plan(rng, plan, config)
            if violation(plan, config) is None:
                made.append(layer_schedule(plan, form.form, nodes, alone=bool(rng.random() < 0.05)).to_json())
    return {"version": 1, "target": "vta", "layers": made}
