"""A launch on S samples: packed, through its passes (elaborate, the shared ones of sim.passes, values), unpacked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.errors import HazardError, MachineError, ProgramError
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import Finding
from tilewright.sim.passes import Passes, RunOptions
from tilewright.sim.steps import Footprints, Part, Space, Trace, serial_total
from tilewright.targets import given
from tilewright.targets.base import LaunchResult
from tilewright.targets.bm1684x.compiler.image import QueueImage, footprints, oddity
from tilewright.targets.bm1684x.compiler.values import Machine
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.elaborate import UNITS, Elaborated, elaborate
from tilewright.targets.bm1684x.isa.operations import TIU
from tilewright.targets.bm1684x.timing import estimate

LAYERS = "does not say which of its layers each command belongs to"
#: Bytes of local memory of all launches that run together.
TOGETHER_BYTES = 1 << 26


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
        trace = partial(estimate.trace, self.program, self.config)
        return Passes(self.program.table, self.program.order, lambda: (trace(), trace(serial=True)))

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
        unit = self.program.table.unit
        if len(self.image.layers) < len(unit):
            raise ProgramError("launch", LAYERS, "compile it again")
        found = np.empty(len(unit), np.int32)
        found[np.argsort(unit, kind="stable")] = self.image.layers[: len(unit)]  # those of an engine are together
        return found

    @cached_property
    def executed(self) -> Array:
        """Multiply-accumulates of each step, int64 [n]."""
        return np.array([estimate.macs(command) for command in self.program.commands], np.int64)

    @cached_property
    def peak(self) -> int:
        """MACs a cycle of the type that the launch multiplies; 0 where it multiplies nothing."""
        return estimate.peak(self.program.commands, self.config.lanes)

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


_KNOWN: WeakKeyDictionary[Launch, Prepared] = WeakKeyDictionary()


def prepared(launch: Launch, config: Config) -> Prepared:
    """What is known of a launch, kept while it lives."""
    if launch not in _KNOWN:
        _KNOWN[launch] = Prepared(QueueImage.of(launch, config), config)
    return _KNOWN[launch]


def run(
    program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions, config: Config
) -> LaunchResult:
    """All passes that are asked for."""
    known = prepared(launch, config)
    with given.named(launch):
        known.passes.refuse(options)
    findings = known.findings(options)
    graph = program.graph
    results: dict[str, Array] = {}
    if options.values:
        with given.untrusted(launch), one_thread():
            results = _values(program, known, values, options)
    macs = known.macs(len(launch.nodes)) if graph else ()
    total = sum(macs) if graph else int(known.executed.sum())
    if options.timing is None:
        return LaunchResult(results, findings, None, TIU, total, macs_per_cycle=known.peak)
    parts = known.parts(len(launch.nodes)) if graph else ()
    serial = serial_total(part.serial_cycles for part in parts) if graph else known.serial.cycles
    return LaunchResult(results, findings, known.trace, TIU, total, serial, parts, macs, known.peak)


def _values(program: Program, known: Prepared, values: Mapping[str, Array], options: RunOptions) -> dict[str, Array]:
    """Values of the graph's tensors (S, *shape); of a bare program segments of DDR, as bytes."""
    image, graph = known.image, program.graph
    if graph is None:
        inputs = {
            segment.name: np.zeros((1, segment.stored.nbytes * image.batch), np.uint8) for segment in image.inputs
        }
        return {name: data[0] for name, data in known.run(inputs, 1, options).items()}
    samples = max((len(values[segment.name]) for segment in image.inputs), default=1)
    launches = -(-samples // image.batch)
    together = max(1, TOGETHER_BYTES // max(1, image.values_end * known.config.lanes))
    packed = {}
    for segment in image.inputs:
        given_values = np.broadcast_to(values[segment.name], (samples, *graph.tensors[segment.name].shape))
        data = np.ascontiguousarray(segment.stored.pack(given_values)).view(np.uint8)
        spare = np.zeros((launches * image.batch - samples, data.shape[1]), np.uint8)
        packed[segment.name] = np.concatenate([data, spare]).reshape(launches, -1)
    parts: dict[str, list[Array]] = {segment.name: [] for segment in image.outputs}
    for start in range(0, launches, together):
        block = {name: data[start : start + together] for name, data in packed.items()}
        count = min(together, launches - start)
        for name, found in known.run(block, count, options).items():
            parts[name].append(found)
    left = {}
    for segment in image.outputs:
        stored, data = segment.stored, np.concatenate(parts[segment.name])
        elements = data.view(stored.dtype.storage).reshape(launches * image.batch, -1)[:samples]
        left[segment.name] = stored.unpack(elements, graph.tensors[segment.name])
    return left
