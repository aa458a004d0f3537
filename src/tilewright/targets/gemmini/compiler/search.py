"""The choice of a layer's tiles: those that the exact clock finds fastest, among those without a race."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tilewright.sim.passes import RunOptions
from tilewright.targets.gemmini.compiler.layers import Layer
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.passes import Passes

#: Layers whose cycles are kept.
KEPT = 4096


def fastest(form: Layer, config: Config, places: Sequence[int]) -> tuple[Layer, int] | None:
    """Return the tiles with the fewest cycles, and these; None if no tile fits the memories without a race.

    `places`: DRAM addresses of inputs, weights, offsets and results.
    """
    found = [(tiled, cycles(tiled, config, tuple(places))) for tiled in form.tilings(config)]
    for tiled, count in sorted(found, key=lambda pair: pair[1]):
        if not tiled.has_borders or is_clean(tiled, config, tuple(places)):
            return tiled, count
    return None


@lru_cache(KEPT)
def cycles(tiled: Layer, config: Config, places: tuple[int, ...]) -> int:
    """Return the cycles of a tiled layer."""
    return Passes(tiled.emit(config, *places).array, config).times.cycles


@lru_cache(KEPT)
def is_clean(tiled: Layer, config: Config, places: tuple[int, ...]) -> bool:
    """Return whether a tiled layer has no race: the zeros of a border overtake data that nothing reads in between."""
    return not Passes(tiled.emit(config, *places).array, config).findings(RunOptions(None, True))
