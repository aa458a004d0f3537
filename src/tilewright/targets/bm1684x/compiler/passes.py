"""A launch through its passes: elaborate, the shared ones of sim.passes, values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import HazardError, MachineError, ProgramError
from tilewright.sim.findings import Finding
from tilewright.sim.passes import Passes, RunOptions
from tilewright.sim.steps import Footprints, Part, Space, Trace
from tilewright.targets.bm1684x.compiler.image import QueueImage
from tilewright.targets.bm1684x.compiler.touched import footprints, oddity
from tilewright.targets.bm1684x.compiler.values import Machine
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.elaborate import UNITS, Elaborated, elaborate
from tilewright.targets.bm1684x.isa.operations import TIU
from tilewright.targets.bm1684x.timing import estimate, products

LAYERS = "does not say which of its layers each command belongs to"


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is known of a launch without its data."""

    image: QueueImage
    config: Config

    @cached_property
    def program(self) -> Elaborated:
        """Commands in one legal order, their footprints."""
        found = elaborate(self.image.queues, self.config)
        for step in found.steps:
            if reason := oddity(step.command, self.config):
                raise ProgramError(step.name, reason, "compile it again")
        image, end = self.image, len(self.image.constants)
        filled = [(0, end)]
        for segment in (*image.inputs, *image.outputs):
            low = segment.address - DDR_BASE
            high = low + segment.stored.nbytes * image.batch
            end = max(end, high)
            if segment in image.inputs:
                filled.append((low, high))
        spaces, rows = footprints(found.commands, Space("DDR", end, tuple(filled)), self.config)
        return Elaborated(found.steps, replace(found.table, spaces=spaces, footprints=Footprints.of(rows)))

    @cached_property
    def passes(self) -> Passes:
        """The passes that all machines share."""
        program, config = self.program, self.config
        return Passes(program.table, program.order, lambda: estimate.times(program, config))

    def findings(self, options: RunOptions) -> tuple[Finding, ...]:
        """What the passes have found; of a pair of commands one finding, not one a part of lanes."""
        found = {(one.kind, one.steps): one for one in reversed(self.passes.findings(options))}
        return tuple(reversed(found.values()))

    @property
    def trace(self) -> Trace:
        """When each command ran. Raises HazardError."""
        trace = self.passes.trace
        if trace is None:
            raise HazardError("time", "; ".join(str(found) for found in self.passes.findings(RunOptions())))
        return trace

    @property
    def serial(self) -> Trace:
        """The trace without any overlap; the commands are in an order that they allow."""
        assert self.passes.serial is not None
        return self.passes.serial

    @cached_property
    def layers(self) -> Array:
        """The layer of each step. Raises ProgramError."""
        numbers = dict.fromkeys(UNITS, 0)
        tiu = sum(step.engine == TIU for step in self.program.steps)
        found = []
        for step in self.program.steps:
            found.append(numbers[step.engine] + (0 if step.engine == TIU else tiu))
            numbers[step.engine] += 1
        if len(self.image.layers) < len(found):
            raise ProgramError("launch", LAYERS, "compile it again")
        return self.image.layers[np.array(found, np.int64)] if found else np.zeros(0, np.int32)

    @cached_property
    def executed(self) -> Array:
        """Multiply-accumulates of each step, int64 [n]."""
        return products.executed(self.program.commands)

    @cached_property
    def peak(self) -> int:
        """MACs a cycle of the type that the launch multiplies; 0 where it multiplies nothing."""
        return products.peak(self.program.commands, self.config.lanes)

    def run(self, values: Mapping[str, Array], launches: int, options: RunOptions) -> dict[str, Array]:
        """Segments of results, uint8 (L, bytes), from those of inputs. Raises MachineError."""
        machine = Machine(self.image, self.config, launches)
        for segment in self.image.inputs:
            machine.segment(segment.address)[:] = values[segment.name]
        for row in self.passes.sequence(options):
            step = self.program.steps[row]
            try:
                machine.run(step.command)
            except MachineError as error:
                raise MachineError(f"{step.name}, {error.where}", error.reason, error.remedy) from None
        return {segment.name: machine.segment(segment.address) for segment in self.image.outputs}

    def parts(self, count: int) -> tuple[Part, ...]:
        """What each of `count` layers takes of a sample: the compute engine's time, waits included, is its layers'.

        Raises ProgramError.
        """
        self._check_layers(count)
        trace, batch = self.trace, self.image.batch
        mine = np.flatnonzero(trace.table.unit == UNITS.index(TIU))
        spent = np.diff(trace.end[mine], prepend=0)
        cycles = np.bincount(self.layers[mine], spent, count)
        cycles[count - 1] += trace.cycles - spent.sum()
        alone = np.bincount(self.layers, np.diff(self.serial.end, prepend=0), count)
        moved = [np.bincount(self.layers, column, count) for column in (trace.bytes_read, trace.bytes_written)]
        waits = np.bincount(self.layers[mine], trace.wait[mine], count)
        shares = [_shares(column, batch) for column in (cycles, alone, *moved, waits)]
        return tuple(
            Part(own, serial, read, written, {"dma": wait} if wait else {})
            for own, serial, read, written, wait in zip(*shares, strict=True)
        )

    def macs(self, count: int) -> tuple[int, ...]:
        """What each of `count` layers multiplies for a sample. Raises ProgramError."""
        self._check_layers(count)
        return tuple(_shares(np.bincount(self.layers, self.executed, count), self.image.batch))

    def _check_layers(self, count: int) -> None:
        if not ((self.layers >= 0) & (self.layers < count)).all():
            raise ProgramError("launch", LAYERS, "compile it again")


def _shares(column: Array, batch: int) -> list[int]:
    """One sample's part of each number; rounded so that the sum is that of the whole, rounded up."""
    ends = -(-np.cumsum(column).astype(np.int64) // batch)
    return [int(share) for share in np.diff(ends, prepend=0)]
