"""The cost of each instruction: one table per timing model, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.program.instruction import Column
from tilewright.sim.timeline import Channel, Costs, Fetch, Simulated
from tilewright.targets import given
from tilewright.targets.base import Number, TimingModel

from .config import Config
from .isa import LAYOUT, Opcode

MACS_PER_CYCLE = 1


@dataclass(frozen=True)
class Timing:
    """The numbers of one timing model. The latency of DRAM comes from the config."""

    dispatch: int  # cycles that every instruction takes before it starts its work
    mac: int  # cycles of one multiply-accumulate
    burst: int  # most beats in one DRAM request
    source: TimingModel


GUESS = Timing(
    dispatch=1,  # assumed: reading the command queue
    mac=1,  # by design: MACS_PER_CYCLE
    burst=256,  # AXI4
    source=TimingModel("guess", "one MAC per cycle by design; everything else assumed, nothing measured"),
)
#: The numbers that `--timing guess,KEY=VALUE` may change, and the least value of each.
LEAST = {"dispatch": 0, "mac": 1, "burst": 1}
MODELS = given.Models(
    [GUESS],
    lambda model: {key: Number(getattr(model, key), least) for key, least in LEAST.items()},
    lambda model, source: Timing(**source.values, source=source),
)


def costs(columns: Mapping[str, Column], config: Config, timing: Timing) -> Costs:
    """Return the cost of each decoded instruction: the bytes it transfers, and the cycles it is busy afterwards."""
    opcode, length, count = columns["opcode"], columns["length"], columns["count"]
    row_bytes = _each(opcode, {Opcode.LOAD: length, Opcode.DOT: 0, Opcode.STORE: 4 * count})
    busy: dict[Opcode, Column | int] = {
        Opcode.LOAD: 0,
        Opcode.DOT: length * count * timing.mac,
        Opcode.STORE: config.dram_latency,  # assumed: the token is sent after the write response
    }
    return Costs.of(
        lead=np.full(len(opcode), timing.dispatch, np.int64),
        busy=_each(opcode, busy),
        rows=(row_bytes > 0).astype(np.int64),
        row_bytes=row_bytes,
        writes=(opcode == Opcode.STORE).astype(np.int64),
    )


def bound(columns: Mapping[str, Column], config: Config, timing: Timing) -> int:
    """Return the least cycles that the instructions can take in any order: the work of the busier unit."""
    own, dot = costs(columns, config, timing), columns["opcode"] == Opcode.DOT
    beats = own.rows * -(-own.row_bytes // (config.bus_bits // 8))
    return max(int((own.lead + own.busy)[dot].sum()), int((own.lead + beats)[~dot].sum()))


def _each(opcode: Column, values: Mapping[Opcode, Column | int]) -> Column:
    """Return, for each instruction, the value of its opcode. Raises KeyError if an opcode has no value."""
    column = np.zeros(len(opcode), np.int64)
    for code in Opcode:
        column = np.where(opcode == code, values[code], column)
    return column


def simulated(columns: Mapping[str, Column], config: Config, timing: Timing) -> Simulated:
    """Return all inputs of the time pass: instruction costs, the DRAM port, and how instructions are fetched."""
    port = Channel(config.bus_bits // 8, config.dram_latency, timing.burst)
    return Simulated(costs(columns, config, timing), port, Fetch(LAYOUT.nbytes, config.queue_depth))
