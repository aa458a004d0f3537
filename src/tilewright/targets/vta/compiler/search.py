"""Finds the plan of a layer: every way of cutting it by its bound, the best few by the machine's own time pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.schedule import finalists
from tilewright.targets.vta.compiler.bounds import bound, choices, handovers
from tilewright.targets.vta.compiler.emit import alone
from tilewright.targets.vta.compiler.kernels import OVERHEAD
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.compiler.sequence import sampled
from tilewright.targets.vta.compiler.timed import trace
from tilewright.targets.vta.config import Config

CHOICES = ("rows", "columns", "outs", "sums", "channels", "inp", "wgt", "acc")
#: Instructions of the plans that are timed, and of the best of them with its first and last group in smaller pieces.
EFFORT, REFINING = 1700, 1000
#: Cycles that a chunk and a group are taken to cost besides, to say which plans are timed first: units wait for units.
HANDOVER = 40
#: The best plans that are so refined.
REFINED = 2
#: What another plan must be able to gain, as a part of the best.
WORTH = 0.001
#: Groups that are timed at the end of a layer, and twice as many at its beginning.
FEW = 4


def best(layer: Layer, config: Config, timing: str) -> Plan | None:
    """The plan of the lowest score under a timing model; None where no tile fits the buffers."""
    return next(iter(ranked(layer, config, timing)), None)


def ranked(layer: Layer, config: Config, timing: str) -> tuple[Plan, ...]:
    """The plans that were timed, the lowest score first."""
    return tuple(replace(plan, layer=layer) for plan in _ranked(layer.canonical, config, timing))


@lru_cache(maxsize=1024)
def _ranked(layer: Layer, config: Config, timing: str) -> tuple[Plan, ...]:
    made = finalists(_candidates(layer, config, timing), lambda plan: score(plan, config, timing), EFFORT, WORTH)
    variants = [(0.0, variant) for _, plan in made[:REFINED] for variant in _variants(plan)]
    made += finalists(variants, lambda plan: score(plan, config, timing), REFINING)
    return tuple(plan for _, plan in sorted(made, key=lambda item: item[0]))


def score(plan: Plan, config: Config, timing: str) -> tuple[float, int]:
    """Cycles, with what each instruction costs besides (of equals the shorter program is better), and instructions.

    Of many equal groups only the first and the last are timed.
    """
    groups = tuple(plan.groups())
    first, last = (plan.period * max(least, -(-FEW * least // plan.period)) for least in (2, 1))
    left_out = max(0, len(groups) - first - last)
    if left_out < first + last:
        first, last, left_out = len(groups), 0, 0
    walk = sampled(plan, groups[:first] + groups[len(groups) - last :], config, timing)
    made = alone(plan, walk, config)
    known = trace(made, config, timing)
    ends = np.cumsum(made.instructions)  # of items
    cycles = known.cycles + OVERHEAD * int(ends[-1])
    if left_out:  # each like the last of the first ones
        turn = first // plan.period // 2 * plan.period
        begin, end = (made.listing.work.index(walk.stores[group]) for group in (first - 1 - turn, first - 1))
        spent = known.end[np.searchsorted(made.item, end)] - known.end[np.searchsorted(made.item, begin)]
        cycles += left_out * (spent + OVERHEAD * (ends[end] - ends[begin])) / turn
    return cycles, len(made.item)


def _variants(plan: Plan) -> Iterator[Plan]:
    """The first and last group in smaller pieces."""
    for head, tail in ((False, True), (True, False), (True, True)) if plan.tapers else ():
        yield replace(plan, head=head, tail=tail)


def _candidates(layer: Layer, config: Config, timing: str) -> Iterator[tuple[float, Plan]]:
    """Plans that fit and their bounds, the most promising first; each cut once, with its best order and slots."""
    grid = choices(layer, config)
    bounds = bound(layer, config, timing, grid)
    seen: set[tuple[int, ...]] = set()
    for i in np.argsort(bounds + HANDOVER * handovers(layer, grid), kind="stable").tolist():
        rows, columns, outs, sums, outside, inp, wgt, acc = (int(grid[name][i]) for name in CHOICES)
        if (cut := (rows, columns, outs, sums)) not in seen:
            seen.add(cut)
            plan = Plan(layer, rows, columns, outs, sums, "channels" if outside else "space", inp, wgt, acc)
            yield float(bounds[i]), plan
