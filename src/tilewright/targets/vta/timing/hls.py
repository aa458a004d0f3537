"""Two models beside our own: upstream's HLS design as its sources intend it, nothing measured; and a lower bound."""

from __future__ import annotations

import numpy as np

from tilewright.sim.timeline import Channel, Costs, Fetch, Simulated
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.isa.fields import INSN_BYTES
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.timing.model import Timing, compute, stores, zeros

#: Assumed: a tile of zeros a cycle, after the data.
PAD = 1


def _hls(program: Elaborated, timing: Timing) -> Simulated:
    """Rows of a transfer one after the other (assumed: each is a memcpy); the write response ends a STORE.

    Upstream's vivado.tcl joins its AXI masters (instructions, micro-ops, three data ports) into one port; reads
    and writes have a data bus each (AXI).
    """
    config, moved, store = program.config, program.moves, stores(program)
    costs = Costs.of(
        lead=np.full(len(program.stream), timing.dispatch, np.int64),
        busy=compute(program, timing) + PAD * zeros(program) + np.where(store, config.dram_latency, 0),
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=store.astype(np.int64),
    )
    return Simulated(costs, timing.channel(config), Fetch(INSN_BYTES, config.queue_depth))


HLS = Timing(
    gemm=1,  # pragma HLS PIPELINE II=1 on the GEMM micro-op loop
    alu=2,  # the same on the ALU's, II=2: the accumulator is read twice
    alu_immediate=2,  # one loop serves both forms
    requantise=2,  # ours: the same loop
    dispatch=1,  # assumed: reading the command queue
    pipeline=0,  # assumed: filling and draining hidden
    source=TimingModel(
        "hls",
        "initiation intervals as declared in upstream's HLS source; DRAM latency and width from the config; "
        "dispatch, fetch, padding, rows and write response assumed; not calibrated against hardware",
    ),
    channel=lambda config: Channel(config.bus_bits // 8, config.dram_latency),
    simulated=_hls,
)


def _ideal(program: Elaborated, timing: Timing) -> Simulated:
    """A lower bound for any schedule of the same instructions: units bound by their own throughput and by tokens.

    Left out: latencies, dispatch, fetch, pipelines, command and token queues that fill, the write response, and that
    the units share a port: each has one to itself. A transfer takes a cycle a beat, each row a whole number of them,
    and one a tile of zeros.
    """
    config, moved = program.config, program.moves
    beat = config.bus_bits // 8
    none, rows = np.zeros(len(program.stream), np.int64), np.where(moved.transfers, moved.rows, 0)
    costs = Costs.of(
        lead=none,
        busy=compute(program, timing) + zeros(program) + rows * -(-moved.row_bytes // beat),
        rows=rows,
        row_bytes=moved.row_bytes,
        writes=stores(program).astype(np.int64),
    )
    return Simulated(costs, timing.channel(config), Fetch(INSN_BYTES, depth=0))


IDEAL = Timing(
    gemm=1,  # one tile operation a cycle; the config's lanes and ports may make it more
    alu=1,
    alu_immediate=1,
    requantise=1,
    dispatch=0,
    pipeline=0,
    source=TimingModel(
        "ideal",
        "a lower bound, no machine: throughput of each unit and tokens only; no latency, dispatch, fetch, "
        "queue limits or sharing of the DRAM port",
    ),
    channel=lambda config: Channel(config.bus_bits // 8, 0, burst=0),
    simulated=_ideal,
    tokens_wait=False,
)
