"""The choice of a layer's tiles: those that the exact clock finds fastest, among those without a race."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Protocol

from tilewright.sim.passes import RunOptions
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.macros import Commands
from tilewright.targets.gemmini.passes import Passes

#: Layers whose cycles are kept.
KEPT = 4096
#: Streams whose other orders are timed.
FINALISTS = 2
#: The search ends with tiles that take at most this share more than their lower bound.
WORTH = 0.015


class Tiled(Hashable, Protocol):
    """A layer in tiles. `has_borders`: the hardware makes zeros."""

    @property
    def has_borders(self) -> bool: ...
    def tilings(self, config: Config) -> Iterator[Tiled]: ...
    def emit(self, *places: Any) -> Commands: ...


class Timed(NamedTuple):
    """A tiled layer with its cycles, and those that no order of its commands undercuts."""

    cycles: int
    bound: int
    tiled: Tiled

    @property
    def close(self) -> bool:
        """Whether other tiles are not worth a try."""
        return self.cycles <= self.bound * (1 + WORTH)


def fastest(form: Tiled, config: Config, places: Sequence[int]) -> Timed | None:
    """Return the tiles with the fewest cycles, or the first close ones; None if none fits the memories without a race.

    `places`: DRAM addresses of inputs, weights, offsets and results.
    """
    found = list[Timed]()
    if not _search(found, form.tilings(config), config, places):
        best = [one.tiled for one in found[:FINALISTS] if isinstance(one.tiled, Stream)]
        _search(found, chain.from_iterable(tiled.variants() for tiled in best), config, places)
    for one in found:
        if not one.tiled.has_borders or is_clean(one.tiled, config, tuple(places)):
            return one
    return None


def _search(found: list[Timed], tilings: Iterator[Tiled], config: Config, places: Sequence[int]) -> bool:
    """Add timed layers to those that were found, the fastest first; return whether one is close."""
    close = False
    for tiled in tilings:
        found.append(Timed(*cycles(tiled, config, tuple(places)), tiled))
        if close := found[-1].close:
            break
    found.sort(key=lambda one: one.cycles)
    return close


@lru_cache(KEPT)
def cycles(tiled: Tiled, config: Config, places: tuple[int, ...]) -> tuple[int, int]:
    """Return the cycles of a tiled layer, and its lower bound."""
    passes = Passes(tiled.emit(config, *places).array, config)
    return passes.times.cycles, passes.bound


@lru_cache(KEPT)
def is_clean(tiled: Tiled, config: Config, places: tuple[int, ...]) -> bool:
    """Return whether a tiled layer has no race: the zeros of a border overtake data that nothing reads in between."""
    return not Passes(tiled.emit(config, *places).array, config).findings(RunOptions(None, True))
