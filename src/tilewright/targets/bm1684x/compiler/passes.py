"""The passes of a launch: order and hazards from footprints, time, values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.findings import Finding
from tilewright.sim.hazards import hazards, out_of_range
from tilewright.sim.order import random_sequence
from tilewright.sim.steps import READ, WRITE, Footprints, Space
from tilewright.sim.trace import Part, Trace
from tilewright.targets.base import RunOptions
from tilewright.targets.bm1684x import timing
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.compiler.image import Image
from tilewright.targets.bm1684x.compiler.spans import as_tensor
from tilewright.targets.bm1684x.compiler.values import Machine
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.elaborate import UNITS, Elaborated, elaborate
from tilewright.targets.bm1684x.layout import slots
from tilewright.targets.bm1684x.operations import TIU
from tilewright.targets.bm1684x.tensor import Operand

#: Memories as hazards see them. A byte of local memory has the number byte * lanes + lane: tensors are runs then.
LOCAL, DDR = 0, 1


@dataclass(frozen=True, eq=False)
class Passes:
    """What is known of a launch without its data."""

    image: Image
    config: Config

    @cached_property
    def program(self) -> Elaborated:
        """Commands in one legal order, their footprints in the memories LOCAL and DDR."""
        found = elaborate(self.image.queues, self.config)
        rows = [_footprint(command, self.config) for command in found.commands]
        image, end = self.image, DDR_BASE + len(self.image.constants)
        filled = [(0, len(image.constants))]
        for segment in image.inputs:
            low = segment.address - DDR_BASE
            filled.append((low, low + segment.stored.nbytes * image.batch))
        end = max([end, *(s.address + s.stored.nbytes * image.batch for s in (*image.inputs, *image.outputs))])
        local = f"local memory (byte * {self.config.lanes} + lane)"
        spaces = (Space(local, self.config.local_bytes), Space("DDR", end - DDR_BASE, tuple(filled)))
        table = replace(found.table, spaces=spaces, footprints=Footprints.of(rows))
        return Elaborated(found.steps, table)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        table = self.program.table
        outside = out_of_range(table)
        if outside:
            return tuple(outside)
        return (*self.program.order.findings, *hazards(table, self.program.order))

    @cached_property
    def trace(self) -> Trace:
        return timing.trace(self.program, self.config)

    @cached_property
    def serial(self) -> Trace:
        return timing.trace(self.program, self.config, serial=True)

    @cached_property
    def layers(self) -> Array:
        """The layer of each step."""
        numbers = dict.fromkeys(UNITS, 0)
        tiu = sum(step.engine == TIU for step in self.program.steps)
        found = []
        for step in self.program.steps:
            found.append(numbers[step.engine] + (0 if step.engine == TIU else tiu))
            numbers[step.engine] += 1
        return self.image.layers[np.array(found, np.int64)] if found else np.zeros(0, np.int32)

    def run(self, values: Mapping[str, Array], launches: int, options: RunOptions) -> dict[str, Array]:
        """Segments of results, uint8 (L, bytes), from those of inputs. Raises MachineError."""
        machine = Machine(self.image, self.config, launches)
        for segment in self.image.inputs:
            machine.segment(segment.address)[:] = values[segment.name]
        for row in self._sequence(options):
            step = self.program.steps[row]
            try:
                machine.run(step.command)
            except MachineError as error:
                raise MachineError(f"{step.name}, {error.where}", error.reason, error.remedy) from None
        return {segment.name: machine.segment(segment.address) for segment in self.image.outputs}

    def _sequence(self, options: RunOptions) -> Array:
        order = self.program.order
        if options.order == "random":
            return random_sequence(self.program.table, order, options.seed)
        if options.order == "time":
            by_time = np.lexsort((self.trace.end, self.trace.start))
            return np.array(by_time, np.int64)
        return order.sequence

    def parts(self, count: int) -> tuple[Part, ...]:
        """What each of `count` layers takes of a sample: the compute engine's time, waits included, is its layers'."""
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


def _shares(column: Array, batch: int) -> list[int]:
    """One sample's part of each number; rounded so that the sum is that of the whole, rounded up."""
    ends = -(-np.cumsum(column).astype(np.int64) // batch)
    return [int(share) for share in np.diff(ends, prepend=0)]


def _footprint(command: Command, config: Config) -> Array:
    """Rows of sim.steps.Footprints."""
    rows: list[tuple[int, ...]] = []
    for operand in command.operands.values():
        if not isinstance(operand, Constant):
            rows += _rows(READ, operand, config)
    for result in command.results.values():
        rows += _rows(WRITE, result, config)
    return np.array(rows, np.int64).reshape(-1, 6)


def _rows(mode: int, operand: Operand, config: Config) -> Iterator[tuple[int, ...]]:
    """Runs of bytes of one operand."""
    tensor = as_tensor(operand)
    size, (n, c, h, w), stride = tensor.dtype.bytes, tensor.shape, tensor.stride
    lanes = config.lanes if tensor.is_local else 1
    channel = 1 if stride.w == 0 else (w - 1) * stride.w + 1
    dense = stride.w <= 1 and (h == 1 or stride.h in (w, 0))
    lines = 1 if dense else h
    length = channel if stride.h == 0 or not dense else channel * h
    for sample in range(n if stride.n else 1):
        if not tensor.is_local:
            for index in range(c):
                for line in range(lines):
                    first = sample * stride.n + index * stride.c + line * stride.h
                    yield DDR, mode, tensor.address - DDR_BASE + first * size, length * size, 1, 0
            continue
        for slot in range(slots(tensor.start_lane, c, config)):
            low = tensor.start_lane if slot == 0 else 0
            high = min(lanes, tensor.start_lane + c - slot * lanes)
            for line in range(lines):
                first = tensor.lane_offset + (sample * stride.n + slot * stride.c + line * stride.h) * size
                if high - low == lanes:
                    yield LOCAL, mode, first * lanes, length * size * lanes, 1, 0
                else:
                    yield LOCAL, mode, first * lanes + low, high - low, length * size, lanes
