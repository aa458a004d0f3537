"""Predicted cycles of single instructions, for choices only; the machine's timing has the last word."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.vta.codegen.step import Step
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp
from tilewright.targets.vta.timing import MODELS, Timing, micro_op


@dataclass(frozen=True)
class Cycles:
    """Under timing model `timing`: no contention for the port, no wait for commands."""

    config: Config
    timing: Timing = MODELS["hls"]

    def step(self, step: Step) -> int:
        fused = step.op == AluOp.REQ
        per_uop = micro_op(self.timing, step.op is not None, step.imm is not None, fused)
        once = step.kernel.outer.extent * self.timing.factors if fused else 0
        return self.timing.dispatch + per_uop * step.kernel.micro_ops + once

    def load(self, rows: int, row_bytes: int) -> int:
        beats = -(-row_bytes * 8 // self.config.bus_bits)
        return self.timing.dispatch + rows * (self.config.dram_latency + beats)

    def store(self, rows: int, row_bytes: int) -> int:
        return self.load(rows, row_bytes) + self.config.dram_latency
