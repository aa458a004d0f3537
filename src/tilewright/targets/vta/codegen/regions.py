"""Where a layer's slots are on chip."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets.vta.codegen.plan import Plan
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory


class Region(NamedTuple):
    """`slots` slots, `stride` tiles apart, from tile `base`."""

    base: int
    stride: int
    slots: int

    def at(self, slot: int) -> int:
        """The first tile of a slot."""
        return self.base + slot * self.stride

    @property
    def end(self) -> int:
        return self.at(self.slots)


class Regions(NamedTuple):
    """The slots of each memory; `par` is in the accumulators where there is no memory for parameters."""

    inp: Region
    wgt: Region
    acc: Region
    par: Region


def accumulators(config: Config) -> int:
    """Tiles of acc that hold sums: without a memory for parameters, those take a quarter of it."""
    return config.acc.depth - config.acc.depth // 4 if config.alu == "rounding" else config.acc.depth


def parameters(config: Config) -> tuple[Memory, int, int]:
    """The memory that parameters are in, its first tile for them and how many there are."""
    if config.alu == "fused":
        return Memory.PAR, 0, config.par.depth
    return Memory.ACC, accumulators(config), config.acc.depth - accumulators(config)


def regions(plan: Plan, config: Config, half: int | None) -> Regions:
    """The slots of a plan; where `half` is 0 or 1, in that half of each memory, if they fit it.

    Neighbouring layers take turns, so that the second one's first loads need not wait for the first one's sums.
    """
    needs = plan.needs()
    return Regions(
        _region(config.inp.depth, needs.inp, plan.inp, half),
        _region(config.wgt.depth, needs.wgt, plan.wgt, half),
        _region(accumulators(config), needs.acc, plan.acc, None),
        _parameters(plan, needs.par, config, half) if needs.par else Region(0, 0, 0),
    )


def _parameters(plan: Plan, need: int, config: Config, half: int | None) -> Region:
    """As many slots as there are sets of parameters, or as fit."""
    _, first, depth = parameters(config)
    sets = 1 if plan.layer.kind == "add" else -(-plan.layer.out_tiles // plan.outs)
    fit = depth // (1 if half is None else 2) // need
    region = _region(depth, need, max(1, min(sets, fit)), half)
    return region._replace(base=first + region.base)


def _region(depth: int, need: int, count: int, half: int | None) -> Region:
    if half is None or count * need > depth // 2:
        return Region(0, depth // count, count)
    return Region(half * (depth // 2), depth // 2 // count, count)
