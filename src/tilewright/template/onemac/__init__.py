"""OneMac: a DMA unit and a unit that does one multiply-accumulate per cycle, synchronised by token queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.graph.ir import Site
from tilewright.program.program import Launch
from tilewright.targets.base import Change, TimingModel
from tilewright.targets.stream import StreamTarget

from . import codegen, timing
from .config import PRESETS, Config
from .launch import OneMacLaunch


class OneMac(StreamTarget[Config]):
    """The target OneMac. Its methods are documented in tilewright/targets/base.py."""

    name = "onemac"
    kind = Config
    stream = OneMacLaunch
    title = "OneMac: a DMA unit and one multiply-accumulate per cycle, synchronised by token queues"
    presets = tuple(PRESETS)
    timing_models = timing.MODELS.sources

    def describe(self, config: Config) -> dict[str, Any]:
        return {"macs_per_cycle": timing.MACS_PER_CYCLE, **config.to_dict()}

    def lower(self, site: Site, config: Config) -> Launch | str:
        return codegen.lower(site, config)

    def changes(self, config: Config, timing: TimingModel) -> Iterator[Change]:
        yield Change("DRAM port twice as wide", {"bus_bits": 2 * config.bus_bits})
        yield Change("DRAM without latency", {"dram_latency": 0})
        yield Change("buffer twice as large", {"buffer_bytes": 2 * config.buffer_bytes}, recompile=True)


TARGET = OneMac()
