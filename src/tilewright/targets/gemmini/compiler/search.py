"""The choice of a layer's tiles: those that the exact clock finds fastest, among those without a race."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol

from tilewright.sim.passes import RunOptions
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.macros import Commands
from tilewright.targets.gemmini.passes import Passes

#: Layers whose cycles are kept.
KEPT = 4096
#: Streams whose other orders are timed.
FINALISTS = 2


class Tiled(Hashable, Protocol):
    """A layer in tiles. `has_borders`: the hardware makes zeros."""

    @property
    def has_borders(self) -> bool: ...
    def tilings(self, config: Config) -> Iterator[Tiled]: ...
    def emit(self, *places: Any) -> Commands: ...


def fastest(form: Tiled, config: Config, places: Sequence[int]) -> tuple[Tiled, int] | None:
    """Return the tiles with the fewest cycles, and these; None if no tile fits the memories without a race.

    `places`: DRAM addresses of inputs, weights, offsets and results.
    """
    found = _timed(form.tilings(config), config, places)
    best = [tiled for tiled, _ in found[:FINALISTS] if isinstance(tiled, Stream)]
    found += _timed(chain.from_iterable(tiled.variants() for tiled in best), config, places)
    for tiled, count in sorted(found, key=lambda pair: pair[1]):
        if not tiled.has_borders or is_clean(tiled, config, tuple(places)):
            return tiled, count
    return None


def _timed(layers: Iterable[Tiled], config: Config, places: Sequence[int]) -> list[tuple[Tiled, int]]:
    """Return tiled layers with their cycles, the fastest first."""
    found = [(tiled, cycles(tiled, config, tuple(places))) for tiled in layers]
    return sorted(found, key=lambda pair: pair[1])


@lru_cache(KEPT)
def cycles(tiled: Tiled, config: Config, places: tuple[int, ...]) -> int:
    """Return the cycles of a tiled layer."""
    return Passes(tiled.emit(config, *places).array, config).times.cycles


@lru_cache(KEPT)
def is_clean(tiled: Tiled, config: Config, places: tuple[int, ...]) -> bool:
    """Return whether a tiled layer has no race: the zeros of a border overtake data that nothing reads in between."""
    return not Passes(tiled.emit(config, *places).array, config).findings(RunOptions(None, True))
