"""Cycles of single instructions under a timing model, waiting for nothing: for bounds, and shifts between sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from tilewright.targets.vta.compiler.step import Run, Step
from tilewright.targets.vta.compiler.tile_kernels import ONE, Kernel
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import RESCALING
from tilewright.targets.vta.timing import MODELS, Intervals, Timing


@dataclass(frozen=True, eq=False)
class Costs:
    """Of a machine under timing model `name`."""

    config: Config
    name: str
    _joined: dict[Run, tuple[Step, ...]] = field(default_factory=dict)

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

    def joined(self, run: Run) -> tuple[Step, ...]:
        """One step that takes as long as those of a run and lists as many micro-ops; it computes nothing.

        What rescales stays as it is: its time depends on its operands.
        """
        if run not in self._joined:
            self._joined[run] = self._join(run.steps)
        return self._joined[run]

    def _join(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        first, listed = steps[0], sum(len(step.kernel.dst) for step in steps)
        memory = self.config.pipeline.uop_memory(alu=first.op is not None)
        room = self.config.sram(memory).depth // 4
        if len(steps) < 2 or listed > room or any(step.op in RESCALING for step in steps):
            return steps
        cycles = sum(map(self.step, steps)) // self.intervals.of(first.op, first.imm is not None)
        nothing = np.zeros(listed, np.int64)
        return (first._replace(kernel=Kernel(nothing, nothing, nothing, ONE, ONE, cycles)),)


@lru_cache(maxsize=16)
def costs_of(config: Config, name: str) -> Costs:
    """The costs of a machine, whose runs are joined once."""
    return Costs(config, name)
