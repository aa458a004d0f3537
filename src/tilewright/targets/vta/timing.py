"""What each VTA instruction costs: one frozen table a timing model, each number with its source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.sim.timeline import Channel, Costs, Fetch
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.elaborate import Elaborated
from tilewright.targets.vta.isa.fields import INSN_BYTES, Memory
from tilewright.targets.vta.kernel import FACTOR_TILES, AluKernel


@dataclass(frozen=True)
class Timing:
    """Cycles. A transfer's latency and the port's width come from the config."""

    gemm: int  # a GEMM micro-op (initiation interval)
    alu: int  # an ALU micro-op
    alu_immediate: int  # an ALU micro-op whose second operand is the immediate
    requantise: int  # a REQ micro-op
    factors: int  # reading the factors of an outer iteration of REQ
    dispatch: int  # any instruction, before it does anything
    pad: int  # a tile of zeros written by a padded LOAD
    burst: int  # beats in one request
    pipelined_rows: bool  # rows of one transfer are requested ahead of their data
    source: TimingModel


MODELS = {
    "hls": Timing(
        gemm=1,  # pragma HLS PIPELINE II=1 on the GEMM micro-op loop
        alu=2,  # the same on the ALU's, II=2: the accumulator is read twice
        alu_immediate=2,  # one loop serves both forms
        requantise=2,  # ours, in the same loop
        factors=FACTOR_TILES,  # ours: the parameter memory has one port
        dispatch=1,  # assumed: reading the command queue
        pad=1,  # assumed: one tile of zeros a cycle
        burst=256,  # AXI4
        pipelined_rows=False,  # assumed: each row is one memcpy, finished before the next
        source=TimingModel(
            "hls",
            "initiation intervals as declared in upstream's HLS source; DRAM latency and width from the config; "
            "dispatch, fetch, padding, rows and write response assumed; not calibrated against hardware",
        ),
    )
}


def micro_op(timing: Timing, alu: bool, immediate: bool, fused: bool) -> int:
    """Cycles of one micro-op."""
    if not alu:
        return timing.gemm
    if fused:
        return timing.requantise
    return timing.alu_immediate if immediate else timing.alu


def costs(program: Elaborated, timing: Timing) -> Costs:
    """The step costs of a stream under a timing model."""
    stream = program.stream
    per_uop, once = [], []
    for item in program.kernels:
        fused = isinstance(item, AluKernel) and item.factors is not None
        per_uop.append(micro_op(timing, isinstance(item, AluKernel), getattr(item, "imm", None) is not None, fused))
        once.append(item.loop.iter_out * timing.factors if fused else 0)
    busy = program.micro_ops * np.array([*per_uop, 0], np.int64)[program.kernel]
    busy += np.array([*once, 0], np.int64)[program.kernel]
    moved = program.moves
    busy += np.where(moved.memory >= 0, moved.tiles - moved.rows * moved.columns, 0) * timing.pad
    store = (moved.memory == Memory.OUT) & moved.transfers
    busy += np.where(store, program.config.dram_latency, 0)  # the write response, before its token is pushed
    return Costs(
        lead=np.full(len(stream), timing.dispatch, np.int64),
        busy=busy,
        rows=np.where(moved.transfers, moved.rows, 0),
        row_bytes=moved.row_bytes,
        writes=store.astype(np.int64),
    )


def channel(config: Config, timing: Timing) -> Channel:
    """The DRAM port of a config under a timing model.

    Upstream's vivado.tcl joins its AXI masters (instructions, micro-ops, three data ports) into one port; reads
    and writes have a data bus each (AXI).
    """
    return Channel(config.bus_bits // 8, config.dram_latency, timing.burst, timing.pipelined_rows)


def fetch(config: Config) -> Fetch:
    return Fetch(INSN_BYTES, config.queue_depth)
