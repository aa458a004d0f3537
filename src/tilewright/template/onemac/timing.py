"""What each instruction costs: one table a timing model, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.program.instruction import Column
from tilewright.sim.timeline import Channel, Costs, Fetch
from tilewright.targets.base import TimingModel

from .config import Config
from .isa import LAYOUT, Opcode

MACS_PER_CYCLE = 1


@dataclass(frozen=True)
class Timing:
    """Cycles; the latency of DRAM comes from the config."""

    dispatch: int  # any instruction, before it does anything
    mac: int  # a multiply-accumulate
    burst: int  # beats in one request
    source: TimingModel


MODELS = {
    "guess": Timing(
        dispatch=1,  # assumed: reading the command queue
        mac=1,  # by design: MACS_PER_CYCLE
        burst=256,  # AXI4
        source=TimingModel("guess", "one MAC a cycle by design; everything else assumed, nothing measured"),
    )
}


def costs(columns: Mapping[str, Column], config: Config, timing: Timing) -> Costs:
    """The step costs of decoded instructions."""
    opcode = columns["opcode"]
    dot, store = opcode == Opcode.DOT, opcode == Opcode.STORE
    busy = np.where(dot, columns["length"] * columns["count"] * timing.mac, 0)
    busy += np.where(store, config.dram_latency, 0)  # assumed: the write response, before the token
    return Costs(
        lead=np.full(len(opcode), timing.dispatch, np.int64),
        busy=busy,
        rows=np.where(dot, 0, 1),
        row_bytes=np.where(store, 4 * columns["count"], columns["length"]),
        writes=store.astype(np.int64),
    )


def channel(config: Config, timing: Timing) -> Channel:
    """The DRAM port: a read bus and a write bus."""
    return Channel(config.bus_bits // 8, config.dram_latency, timing.burst)


def fetch(config: Config) -> Fetch:
    return Fetch(LAYOUT.nbytes, config.queue_depth)
