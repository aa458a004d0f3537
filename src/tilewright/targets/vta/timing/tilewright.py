"""Our own gateware: every number is that of the RTL, which takes it from here. docs/gateware.md states the rules."""

from __future__ import annotations

import numpy as np

from tilewright.errors import ConfigError
from tilewright.sim.timeline import Channel, Costs, Fetch, Units
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.elaborate import Elaborated
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory
from tilewright.targets.vta.timing.model import Simulated, Timing, compute, stores, zeros

LONGEST = 16  # beats of a burst: AXI3's limit, which Zynq-7000 ports have
IN_FLIGHT = 16  # read bursts that have not ended
BATCHES = 4  # that fetch has room for: one handed out, the others on their way
OUTSTANDING = 16  # steps of load or store that have not ended
CORE = 5  # from the issue of a micro-op to its write; compute ends each instruction so much after it is free
LEAD = 2  # start to first request: address, request
ACC_WAIT = 1  # of a LOAD of acc, besides: the core still writes
FILL_LEAD = 3  # start to first zero: placement, receiver
ACC_FILL_LEAD = 6  # when the core has written
NOTHING = 1  # an instruction that has nothing to do
AR_LATENCY, R_LATENCY = 1, 1  # a register in each direction
W_LATENCY = 2  # command granted to first beat: read of out, register
LEAVE = 2  # load and store: from free to the end, where nothing is waited for
READ_AHEAD = 2  # store is free so much before the cycle behind its last beat
ARRIVED = 1  # load: from the cycle behind its last beat to the end
RESPONSE = 1  # store: the same, besides the delay of the memory


def simulated(program: Elaborated, timing: Timing) -> Simulated:
    """Reads compete, compute before load; loads run ahead of their data, stores of their responses."""
    config, moved, store = program.config, program.moves, stores(program)
    require(config)
    latency = max(1, config.dram_latency)  # what the memory takes, a cycle at least
    line = config.pipeline
    mine = program.table.unit
    load, computes, acc = mine == line.load, mine == line.gemm, moved.memory == Memory.ACC
    padding = zeros(program)
    works = moved.transfers | (padding > 0)
    kernel = program.kernel >= 0
    lead = np.where(works, LEAD + ACC_WAIT * acc, np.where(kernel, 0, NOTHING))
    costs = Costs.of(
        lead=lead.astype(np.int64),
        busy=np.where(kernel, np.maximum(compute(program, timing), NOTHING), np.where(store, -READ_AHEAD, 0)),
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=store.astype(np.int64),
        address=moved.address,
        stride=moved.stride,
        priority=np.where(computes, 0, 1),
        fill=np.stack([padding, 0 * padding, 0 * padding], axis=1),
        fill_lead=np.where(acc, ACC_FILL_LEAD, FILL_LEAD),
        tail=np.where(computes, CORE, LEAVE),
        settle=np.where(store, RESPONSE + latency, ARRIVED),
        ahead=(load & moved.transfers & (padding == 0)).astype(np.int64),
    )
    channel = Channel(
        config.bus_bits // 8,
        AR_LATENCY + latency + R_LATENCY,
        LONGEST,
        in_flight=IN_FLIGHT,
        spacing=1,
        write_latency=W_LATENCY,
        steady=True,
    )
    batch = batch_of(config)
    fetch = Fetch(INSN_BYTES, config.queue_depth, batch=batch, buffer=BATCHES * batch)
    return Simulated(costs, channel, fetch, Units(room=1, outstanding=OUTSTANDING))


def require(config: Config) -> None:
    """Raises ConfigError for a machine that there is no gateware of."""
    for key, built in (("stages", 3), ("alu", "upstream")):
        if (value := getattr(config, key)) != built:
            remedy = f"set {key} to {built}, or use another timing model"
            raise ConfigError("VTA gateware", f"there is none with {key} {value}", remedy)


def batch_of(config: Config) -> int:
    """Instructions that fetch asks for at once: the longest burst."""
    return LONGEST * config.bus_bits // 8 // INSN_BYTES


TILEWRIGHT = Timing(
    gemm=1,
    alu=2,  # one port reads acc: src, then dst
    alu_immediate=1,
    requantise=1,
    dispatch=0,
    pipeline=0,  # the core overlaps instructions
    source=TimingModel(
        "tilewright",
        "the cycle rules of this package's gateware, whose compiled RTL is compared with it program by program; "
        "DRAM delay and width from the config",
    ),
    simulated=simulated,
)
