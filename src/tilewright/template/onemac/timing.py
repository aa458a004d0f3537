"""The cost of each instruction. Each timing model has one table; each number states its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.program.instruction import Column, by_code
from tilewright.sim.costs import Channel, Costs, Fetch, Simulated
from tilewright.targets import given
from tilewright.targets.base import TimingModel

from .config import Config
from .isa import LAYOUT, Opcode

MACS_PER_CYCLE = 1


@dataclass(frozen=True)
class Timing:
    """The numbers of one timing model. The latency of DRAM is a key of the configuration."""

    dispatch: int  # cycles before an instruction starts its work
    mac: int  # cycles of one multiply-accumulate
    burst: int  # the largest number of beats in one DRAM request
    source: TimingModel


GUESS = Timing(
    dispatch=1,  # assumed: reading the command queue
    mac=1,  # by design: MACS_PER_CYCLE
    burst=256,  # AXI4
    source=TimingModel("guess", "one MAC per cycle by design; everything else assumed, nothing measured"),
)
#: `--timing guess,KEY=VALUE` may change these numbers; each has a minimum.
MODELS = given.Models.of([GUESS], dispatch=0, mac=1, burst=1)


def simulated(columns: Mapping[str, Column], config: Config, timing: Timing) -> Simulated:
    """Return the inputs of the time pass: the cost of each instruction, the DRAM port, and the instruction fetch."""
    opcode = columns["opcode"]
    length = columns["length"]
    count = columns["count"]
    row_bytes = by_code(opcode, {Opcode.LOAD: length, Opcode.DOT: 0, Opcode.STORE: 4 * count})
    responds = config.dram_latency  # assumed: the token of a STORE is sent after the write response
    busy = by_code(opcode, {Opcode.LOAD: 0, Opcode.DOT: length * count * timing.mac, Opcode.STORE: responds})
    costs = Costs.of(
        lead=np.full(len(opcode), timing.dispatch, np.int64),
        busy=busy,
        rows=(row_bytes > 0).astype(np.int64),
        row_bytes=row_bytes,
        writes=(opcode == Opcode.STORE).astype(np.int64),
    )
    port = Channel(config.bus_bits // 8, config.dram_latency, timing.burst)
    return Simulated(costs, port, Fetch(LAYOUT.nbytes, config.queue_depth))
