"""Cycles of single instructions under a timing model, waiting for nothing: for bounds, and shifts between sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from tilewright.targets.vta.compiler.step import Step
from tilewright.targets.vta.compiler.tile_kernels import ONE, Kernel
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import RESCALING
from tilewright.targets.vta.timing import MODELS, Intervals, Timing


@dataclass(frozen=True)
class Costs:
    """Of a machine under timing model `name`."""

    config: Config
    name: str

    @cached_property
    def timing(self) -> Timing:
        return MODELS[self.name]

    @cached_property
    def intervals(self) -> Intervals:
        return self.timing.intervals(self.config)

    @cached_property
    def beat(self) -> int:
        """Bytes that the DRAM port moves in a cycle."""
        return self.timing.channel(self.config).beat_bytes

    @cached_property
    def latency(self) -> int:
        """Cycles before the first data of a transfer."""
        port = self.timing.channel(self.config)
        return port.latency if port.burst else 0

    @cached_property
    def row(self) -> int:
        """Cycles before each row of a transfer: none where the next is requested while one comes."""
        return 0 if self.timing.channel(self.config).in_flight else self.latency

    def step(self, step: Step) -> int:
        """Of a GEMM or ALU instruction."""
        once = self.timing.dispatch + self.timing.once(step.op, step.kernel.outer.extent)
        return self.intervals.of(step.op, step.imm is not None) * step.kernel.micro_ops + once

    def transfer(self, rows: int, tiles: int, tile_bytes: int) -> int:
        """Of the port, for `tiles` in so many rows."""
        return rows * self.row + -(-tiles * tile_bytes // self.beat)


def joined(steps: tuple[Step, ...], costs: Costs) -> tuple[Step, ...]:
    """One step that takes as long as some steps of a unit and lists as many micro-ops; it computes nothing.

    What rescales stays as it is: its time depends on its operands.
    """
    memory = costs.config.pipeline.uop_memory(alu=steps[0].op is not None)
    room = costs.config.sram(memory).depth // 4
    if len(steps) < 2 or any(step.op in RESCALING for step in steps) or sum(len(s.kernel.dst) for s in steps) > room:
        return steps
    return _joined(steps, costs)


@lru_cache(maxsize=4096)
def _joined(steps: tuple[Step, ...], costs: Costs) -> tuple[Step, ...]:
    first = steps[0]
    cycles = sum(map(costs.step, steps)) // costs.intervals.of(first.op, first.imm is not None)
    listed = np.concatenate([step.kernel.dst for step in steps])
    return (first._replace(kernel=Kernel(listed, listed, listed, ONE, ONE, cycles)),)
