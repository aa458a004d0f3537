"""Arrange a chain: tune it (see tune.py), or repeat what is remembered of a chain that was tuned before.

What is remembered are the layers' plans and the order of the items, by their numbers in `Walk.items`. The order costs
most of a compile to find, and one draft to repeat.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule import Range
from tilewright.targets.vta.compiler.emit import Draft, Names, draft
from tilewright.targets.vta.compiler.plan import Plan
from tilewright.targets.vta.compiler.recall import recalled
from tilewright.targets.vta.compiler.sequence import Listing, Stage, Walk, walked
from tilewright.targets.vta.compiler.tune import Timed, tuned
from tilewright.targets.vta.compiler.work import Item, LoadTiles
from tilewright.targets.vta.config import Config


def arranged(
    stages: tuple[Stage, ...], names: tuple[Names, ...], config: Config, timing: str
) -> tuple[tuple[Stage, ...], Draft]:
    """Return the stages of a chain with their final plans, and the draft to emit.

    Raises HazardError if a full token queue causes a deadlock.
    """
    new: list[Timed] = []

    def make() -> dict[str, Any]:
        new.append(tuned(stages, names, config, timing))
        return _noted(new[0])

    layers = tuple(stage.plan.layer for stage in stages)
    others = tuple((stage.plan.cut, *stage[1:]) for stage in stages)
    known = recalled("order", (*layers, others, names, config, timing), make)
    if new:
        best = new[0]
        return best.stages, best.draft if best.walk.apart else draft(best.stages, names, best.draft.listing, config)
    stages = tuple(
        stage._replace(plan=Plan(stage.plan.layer, *cut)) for stage, cut in zip(stages, known["cuts"], strict=True)
    )
    return stages, draft(
        stages, names, _listing(walked(stages, config, timing, known["apart"]), known["order"]), config
    )


def _noted(best: Timed) -> dict[str, Any]:
    """Return a tuned chain as a JSON value: whether steps are apart, the plans, and the order.

    The order has the number of each item, or [number, first tile, tiles] for a part of a load of weights.
    """
    items = best.walk.items
    numbers = {(layer, id(item)): number for number, (layer, item) in enumerate(items)}
    whole = {
        (layer, item.slot, item.chunk): number
        for number, (layer, item) in enumerate(items)
        if isinstance(item, LoadTiles) and item.chunk >= 0 and not item.piece
    }
    order: list[int | tuple[int, int, int]] = []
    for layer, item in best.draft.listing.items:
        number = numbers.get((layer, id(item)))
        if number is None:
            assert isinstance(item, LoadTiles)
            order.append((whole[layer, item.slot, item.chunk], *item.tiles))
        else:
            order.append(number)
    return {"apart": best.walk.apart, "cuts": [stage.plan.cut for stage in best.stages], "order": order}


def _listing(walk: Walk, order: list[Any]) -> Listing:
    """Return the items of a walk in an order that `_noted` returned."""
    found: list[tuple[int, Item]] = []
    work = []
    for entry in order:
        number, *tiles = entry if isinstance(entry, list) else (entry,)
        layer, item = walk.items[number]
        if tiles:
            assert isinstance(item, LoadTiles)
            item = item.some(Range(*tiles))
        found.append((layer, item))
        work.append(number if number < len(walk.work) else -1)
    return Listing(found, work, walk.regions)
