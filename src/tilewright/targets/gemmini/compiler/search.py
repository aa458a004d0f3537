"""The choice of a layer's tiles: those that the exact clock finds fastest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tilewright.targets.gemmini.compiler.layers import Layer
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops import expand
from tilewright.targets.gemmini.timing import run

#: Layers whose cycles are kept.
KEPT = 4096


def fastest(form: Layer, config: Config, places: Sequence[int]) -> tuple[Layer, int] | None:
    """Return the tiles with the fewest cycles, and these; None if no tile fits the memories.

    `places`: DRAM addresses of inputs, weights, offsets and results.
    """
    found = [(tiled, cycles(tiled, config, tuple(places))) for tiled in form.tilings(config)]
    return min(found, key=lambda pair: pair[1], default=None)


@lru_cache(KEPT)
def cycles(tiled: Layer, config: Config, places: tuple[int, ...]) -> int:
    """Return the cycles of a tiled layer."""
    commands = tiled.emit(config, *places).array
    return run(commands, expand(commands, config), config, config.memory_latency).cycles
