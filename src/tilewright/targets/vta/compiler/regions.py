"""Where a layer's slots are on chip."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.plan import Plan
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


def accumulators(config: Config, layer: Layer) -> int:
    """Tiles of acc that hold sums: without a memory for parameters, those take a quarter of it."""
    taken = layer.parameters > 0 and not config.has_parameters
    return config.acc.depth - config.acc.depth // 4 if taken else config.acc.depth


def parameters(config: Config) -> tuple[Memory, int, int]:
    """The memory that parameters are in, its first tile for them and how many there are."""
    if config.has_parameters:
        return Memory.PAR, 0, config.par.depth
    size = config.acc.depth // 4
    return Memory.ACC, config.acc.depth - size, size


class Places:
    """The regions of one layer after another: beside each other, so that the next one's loads need not wait.

    A layer that stands alone has each memory whole.
    """

    def __init__(self, config: Config, alone: bool) -> None:
        self._config, self._alone = config, alone
        self._next = dict.fromkeys(("inp", "wgt", "par"), 0)

    def take(self, plan: Plan) -> Regions:
        """The slots of the next layer."""
        config, needs = self._config, plan.needs()
        _, first, depth = parameters(config)
        par = Region(0, 0, 0)
        if needs.par:
            sets = 1 if plan.layer.kind == "add" else -(-plan.layer.out_tiles // plan.outs)
            fit = depth // needs.par if self._alone else max(1, depth // 2 // needs.par)
            par = self._region("par", depth, needs.par, min(sets, fit))
        return Regions(
            self._region("inp", config.inp.depth, needs.inp, plan.inp),
            self._region("wgt", config.wgt.depth, needs.wgt, min(plan.wgt, len(plan.weight_chunks))),
            Region(0, accumulators(config, plan.layer) // plan.acc, plan.acc),
            par._replace(base=first + par.base),
        )

    def _region(self, name: str, depth: int, need: int, count: int) -> Region:
        if self._alone:
            return Region(0, depth // count, count)
        base = self._next[name] if self._next[name] + count * need <= depth else 0
        self._next[name] = base + count * need
        return Region(base, need, count)
