"""Changes of a BM1684X that may save cycles, for what-ifs."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.targets.base import Change, TimingModel
from tilewright.targets.bm1684x.config import Config

#: The rates of transfers, in bytes per cycle.
RATES = ("read_rate", "write_rate", "copy_rate", "matrix_read_rate", "matrix_write_rate", "turn_rate")
#: Samples per launch that are tried.
BATCH = 4


def changes(config: Config, timing: TimingModel) -> Iterator[Change]:
    """Yield changes that only change time, then machines for which a network must be compiled again."""
    values = timing.values
    yield Change("DMA twice as fast", timing={key: 2 * values[key] for key in RATES})
    yield Change("DMA without loss on short runs and small tensors", timing={"shortest_run": 1, "full": 1})
    if values["strided_pool"] > 1:
        yield Change("pooling with stride at full speed", timing={"strided_pool": 1})
    if config.batch < BATCH:
        yield Change(f"{BATCH} samples per launch", {"batch": BATCH}, recompile=True)
    if config.lanes < 64:
        yield Change("twice as many lanes", {"lanes": 2 * config.lanes}, recompile=True)
    if config.banks < 64:
        yield Change("twice as many banks of local memory", {"banks": 2 * config.banks}, recompile=True)
