"""Predicted cycles of single instructions, for choices only; the machine's timing has the last word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.targets.vta.compiler.step import Step
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.timing import MODELS, Intervals, Timing


@dataclass(frozen=True)
class Cycles:
    """Under timing model `timing`: no contention for the port, no wait for commands."""

    config: Config
    timing: Timing = MODELS["hls"]

    @cached_property
    def intervals(self) -> Intervals:
        return self.timing.intervals(self.config)

    def step(self, step: Step) -> int:
        per_uop = self.intervals.of(step.op, step.imm is not None)
        once = self.timing.once(step.op, step.kernel.outer.extent)
        return self.timing.dispatch + per_uop * step.kernel.micro_ops + once

    def load(self, rows: int, row_bytes: int) -> int:
        beats = -(-row_bytes * 8 // self.config.bus_bits)
        return self.timing.dispatch + rows * (self.config.dram_latency + beats)

    def store(self, rows: int, row_bytes: int) -> int:
        return self.load(rows, row_bytes) + self.config.dram_latency
