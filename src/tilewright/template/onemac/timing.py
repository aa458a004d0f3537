"""What each instruction costs: one table a timing model, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.program.instruction import Column
from tilewright.sim.timeline import Channel, Costs, Fetch, Simulated
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
    """The step costs of decoded instructions: bytes that each moves, then cycles that it is busy."""
    opcode, length, count = columns["opcode"], columns["length"], columns["count"]
    row_bytes = _each(opcode, {Opcode.LOAD: length, Opcode.DOT: 0, Opcode.STORE: 4 * count})
    busy: dict[Opcode, Column | int] = {
        Opcode.LOAD: 0,
        Opcode.DOT: length * count * timing.mac,
        Opcode.STORE: config.dram_latency,  # assumed: the write response, before the token
    }
    return Costs.of(
        lead=np.full(len(opcode), timing.dispatch, np.int64),
        busy=_each(opcode, busy),
        rows=(row_bytes > 0).astype(np.int64),
        row_bytes=row_bytes,
        writes=(opcode == Opcode.STORE).astype(np.int64),
    )


def _each(opcode: Column, values: Mapping[Opcode, Column | int]) -> Column:
    """For each instruction the value of its opcode; every opcode must have one."""
    column = np.zeros(len(opcode), np.int64)
    for code in Opcode:
        column = np.where(opcode == code, values[code], column)
    return column


def simulated(columns: Mapping[str, Column], config: Config, timing: Timing) -> Simulated:
    """The instructions' costs; a DRAM port with a read bus and a write bus; commands that are fetched in bursts."""
    port = Channel(config.bus_bits // 8, config.dram_latency, timing.burst)
    return Simulated(costs(columns, config, timing), port, Fetch(LAYOUT.nbytes, config.queue_depth))
