"""What makes a timing model: numbers for the compute core, and how the machine around it is simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.sim.timeline import Simulated
from tilewright.targets.base import TimingModel
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp, Memory
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES
from tilewright.targets.vta.steps.micro_kernels import REQUANTISE
from tilewright.targets.vta.timing.ports import Intervals, intervals


@dataclass(frozen=True)
class Timing:
    """Cycles. Intervals are the model's own; lanes and ports of the config may lengthen them (ports.py)."""

    gemm: int  # a GEMM micro-op
    alu: int  # an ALU micro-op
    alu_immediate: int  # an ALU micro-op whose second operand is the immediate
    requantise: int  # a REQ micro-op: ours, reads one accumulator and one bias
    dispatch: int  # an instruction, before it does anything
    pipeline: int  # a GEMM or ALU instruction, besides its micro-ops
    source: TimingModel
    simulated: Callable[[Elaborated, Timing], Simulated]
    tokens_wait: bool = True  # a push waits while its queue is full

    def intervals(self, config: Config) -> Intervals:
        """Cycles a micro-op takes on a machine: the model's own, longer where lanes or ports are short."""
        return intervals(config, self.gemm, self.alu, self.alu_immediate, self.requantise)

    def once(self, op: AluOp | None, outer: int) -> int:
        """Cycles besides the micro-ops: REQ reads the factors of each outer iteration, a tile a cycle."""
        return self.pipeline + (FACTOR_TILES * outer if op == AluOp.REQ else 0)


def compute(program: Elaborated, timing: Timing) -> Array:
    """Cycles of each GEMM and ALU instruction in the core, int64 [n]; 0 for others."""
    kernels = program.kernels
    once = np.full(len(kernels), timing.once(None, 0))
    requantises = kernels.form == REQUANTISE
    once[requantises] = [timing.once(AluOp.REQ, outer) for outer in kernels.column("iter_out")[requantises].tolist()]
    busy = kernels.micro_ops * np.array(timing.intervals(program.config))[kernels.form] + once
    steps: Array = np.append(busy, 0)[program.kernel]
    return steps


def stores(program: Elaborated) -> Array:
    """Which steps write DRAM, bool [n]."""
    mask: Array = (program.moves.memory == Memory.OUT) & program.moves.transfers
    return mask


def zeros(program: Elaborated) -> Array:
    """Tiles of padding that each LOAD writes, int64 [n]."""
    moved = program.moves
    return np.where(moved.memory >= 0, moved.tiles - moved.rows * moved.columns, 0)
