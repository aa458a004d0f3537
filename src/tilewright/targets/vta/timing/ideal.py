"""A lower bound for any schedule of the same instructions: units bound by their own throughput and by tokens.

Left out: latencies, dispatch, fetch, pipelines, command and token queues that fill, the write response, and that the
units share a port: each has one to itself.
"""

from __future__ import annotations

import numpy as np

from tilewright.sim.timeline import Channel, Costs, Fetch, Simulated
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.isa.fields import INSN_BYTES
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.timing.model import Timing, compute, stores, zeros


def simulated(program: Elaborated, timing: Timing) -> Simulated:
    """A transfer takes a cycle a beat, each row a whole number of them, and one a tile of zeros."""
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
    return Simulated(costs, Channel(beat, 0, burst=0), Fetch(INSN_BYTES, depth=0))


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
    simulated=simulated,
    tokens_wait=False,
)
