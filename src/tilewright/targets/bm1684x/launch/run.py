"""Run a launch: pack the samples, find hazards and times (sim.passes), run the commands, and unpack the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.array import Array, one_thread
from tilewright.errors import HazardError, MachineError, ProgramError
from tilewright.program.launch_image import Dram, Segment
from tilewright.program.program import Launch
from tilewright.sim.figures import Figures, by_size
from tilewright.sim.findings import Finding
from tilewright.sim.passes import LaunchResult, Passes, RunOptions
from tilewright.sim.steps import Footprints, Space, Trace
from tilewright.targets import given
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.events import events
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.elaborate import UNITS, ElaboratedProgram, Step, elaborate
from tilewright.targets.bm1684x.isa.operations import TIU
from tilewright.targets.bm1684x.launch.image import QueueImage, footprints, unsupported
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Operand, Tensor
from tilewright.targets.bm1684x.timing import estimate
from tilewright.targets.bm1684x.timing.model import DEFAULT, MODELS
from tilewright.targets.launched import Launched

#: The limit for the simulated local memories of launches that run together, in bytes of host memory.
TOGETHER_BYTES = 1 << 26


class Machine:
    """The memories of L launches of one program, which run in lock step on different samples.

    In each lane, each launch has its own bytes below `values_end`. The bytes from `values_end` on contain constants,
    which are loaded once and shared by all launches. An operand (n, c, h, w) is read as (L * n, c, h, w), so that an
    operation computes the L launches as one larger batch.
    """

    def __init__(self, image: QueueImage, config: Config, inputs: Mapping[str, Array], launches: int) -> None:
        self.launches = launches
        self._split = image.values_end
        lanes = config.lanes
        self._private = np.zeros((launches, lanes, image.values_end), np.uint8)
        self._constant = np.zeros((1, lanes, config.lane_bytes - image.values_end), np.uint8)
        constants = Segment("", DDR_BASE, image.constants[None], shared=True)
        entering = [Segment(item.name, item.address, inputs[item.name], shared=True) for item in image.inputs]
        leaving = [
            Segment(segment.name, segment.address, np.zeros((launches, segment.form.nbytes * image.batch), np.uint8))
            for segment in image.outputs
        ]
        self.dram = Dram([constants, *entering, *leaving])
        self._kernels: dict[tuple[int, tuple[int, ...]], Array] = {}
        self._shared = False  # whether a copy of this machine shares the constants

    def copy(self) -> Machine:
        """Return a copy, which shares DDR and constants with this machine until one of them writes there."""
        self._shared = True
        duplicate = copy(self)
        duplicate.dram = self.dram.copy()
        duplicate._private = self._private.copy()
        duplicate._kernels = dict(self._kernels)
        return duplicate

    @property
    def nbytes(self) -> int:
        """The number of bytes of memory that this machine does not share with copies."""
        return self._private.nbytes + (0 if self._shared else self._constant.nbytes) + self.dram.own_bytes

    def local(self) -> Array:
        """Return local memory, uint8 (L, lanes, bytes)."""
        constant = np.broadcast_to(self._constant, (self.launches, *self._constant.shape[1:]))
        return np.concatenate([self._private, constant], axis=2)

    def run(self, command: Command) -> None:
        """Run one command in all L launches. Raises MachineError for a command that compiled networks cannot have."""
        (name, place), *others = command.results.items()
        if others or command.operation.by_data:
            raise MachineError(command.operation.name, "is not an operation of compiled networks")
        result = place.storage
        n, c, h, w = result.shape
        shape = (self.launches * n if self._is_private(result) else n, c, h, w)
        _, results = command.computed(self._read, {name: shape})
        try:
            self._write(result, np.broadcast_to(results[name], shape))
        except ValueError as error:
            raise MachineError(command.operation.name, f"its result does not fit: {error}") from None

    def execute(self, steps: Iterable[Step]) -> None:
        """Run commands in the given order. Raises MachineError, with the command's name, if a command cannot run."""
        for step in steps:
            try:
                self.run(step.command)
            except MachineError as error:
                raise MachineError(f"{step.name}, {error.where}", error.reason, error.remedy) from None

    def _read(self, operand: Operand) -> Array:
        if isinstance(operand, ConvWeights):
            return self._kernel(operand)
        tensor = operand.storage
        values = self._view(tensor)
        merged = values.reshape(len(values) * tensor.shape.n, -1, *values.shape[4:])  # (L, n, slots, lanes, h, w)
        return merged[:, tensor.start_lane : tensor.start_lane + tensor.shape.c] if tensor.is_local else merged

    def _kernel(self, kernel: ConvWeights) -> Array:
        # Unpacked weights are cached until a command overwrites constants.
        key = (kernel.address, kernel.shape)
        if key not in self._kernels:
            self._kernels[key] = kernel.unpacked(self._read(kernel.storage)[0])
        return self._kernels[key]

    def _write(self, result: Tensor, values: Array) -> None:
        # A write to the constants makes cached weights stale. Copies of the machine must keep the old constants, so
        # this machine stops sharing them.
        if result.is_local and not self._is_private(result):
            self._kernels.clear()
            if self._shared:
                self._constant = self._constant.copy()
                self._shared = False
        elif not result.is_local:
            home = self._segment(result)
            home.unshare(len(home.data))
        view = self._view(result)
        launches = view.shape[0]
        n = result.shape.n
        _, c, h, w = result.shape
        elements = np.broadcast_to(values, (launches * n, c, h, w)).reshape(launches, n, c, h, w)
        elements = elements.astype(result.dtype.storage, copy=False)
        if not result.is_local:
            view[:, :, :, 0] = elements.reshape(view[:, :, :, 0].shape)
            return
        for slot, (channel, lane, end) in enumerate(result.spans):
            view[:, :, slot, lane:end] = elements[:, :, channel : channel + end - lane]

    def _is_private(self, operand: Tensor) -> bool:
        if not operand.is_local:
            return len(self._segment(operand).data) > 1 or self.launches == 1
        # Only in a damaged file can an operand mix values and constants.
        low, high = operand.lane_offset, operand.lane_end
        if low < self._split < high:
            raise MachineError("local memory", f"an operand at bytes {low}..{high} of lanes mixes values and constants")
        return high <= self._split

    def _segment(self, tensor: Tensor) -> Segment:
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))
        return self.dram.segment(tensor.address, tensor.address + (last + 1) * tensor.dtype.bytes, "DDR")

    def _view(self, tensor: Tensor) -> Array:
        size = tensor.dtype.bytes
        n, c, h, w = tensor.shape
        stride = tensor.stride
        # The view has the axes (launches, n, slots, lanes, h, w). DDR counts as one lane, with one slot per channel.
        steps = [step * size for step in stride]
        if tensor.is_local:
            data, base = (self._private, 0) if self._is_private(tensor) else (self._constant, self._split)
            start = tensor.lane_offset - base
            count = tensor.slots
            first = data[:, :, start:]
            extent = (len(data), n, count, data.shape[1], h, w)
            strides = (data.strides[0], steps[0], steps[1], data.strides[1], steps[2], steps[3])
        else:
            home = self._segment(tensor)
            data = home.data
            first = data[:, tensor.address - home.address :]
            extent = (len(data), n, c, 1, h, w)
            strides = (data.strides[0], steps[0], steps[1], 0, steps[2], steps[3])
        if (first.ctypes.data % size) or any(step % size for step in strides):
            raise MachineError("memory", f"address {tensor.address:#x} is not a multiple of the element size {size}")
        # View one element as its type, then span the tensor by strides in bytes. The whole memory cannot be viewed as
        # this type if its size is not a multiple of the element's size.
        element = as_strided(first, (size,), (1,)).view(tensor.dtype.storage)
        return as_strided(element, extent, strides)


@dataclass(frozen=True, eq=False)
class PreparedLaunch:
    """The properties of a launch that do not depend on its inputs, each computed at its first use."""

    image: QueueImage
    config: Config
    timing: str

    def on(self, config: Config, timing: str) -> PreparedLaunch:
        """Return the properties on a machine that differs only in its times. The program is reused."""
        changed = PreparedLaunch(self.image, config, timing)
        changed.__dict__["program"] = self.program  # the cached property
        return changed

    @cached_property
    def program(self) -> ElaboratedProgram:
        """The launch's commands in a legal order, with their footprints (the bytes that a command reads and writes).

        Raises ProgramError for a command that the compiler never emits.
        """
        decoded = elaborate(self.image.queues, self.config)
        for step in decoded.steps:
            if reason := unsupported(step.command, self.config):
                raise ProgramError(step.name, reason, "compile the network again")
        image = self.image
        end = len(self.image.constants)
        filled = [(0, end)]
        for segment in (*image.inputs, *image.outputs):
            low = segment.address - DDR_BASE
            high = low + segment.form.nbytes * image.batch
            end = max(end, high)
            if segment in image.inputs:
                filled.append((low, high))
        spaces, rows = footprints(decoded.commands, Space("DDR", end, tuple(filled)), self.config)
        return ElaboratedProgram(decoded.steps, replace(decoded.table, spaces=spaces, footprints=Footprints.of(rows)))

    @cached_property
    def passes(self) -> Passes:
        """The hazards, order and times of the commands, computed by the passes of all targets (sim.passes)."""
        model = MODELS[self.timing].numbers
        trace = partial(estimate.trace, self.program, self.config, timing=model)
        return Passes(self.program.table, self.program.order, lambda: (trace(), trace(serial=True)))

    def findings(self, options: RunOptions) -> tuple[Finding, ...]:
        """Return the findings. A conflict of two commands in several ranges of lanes is reported once."""
        unique = {(finding.kind, finding.steps): finding for finding in reversed(self.passes.findings(options))}
        return tuple(reversed(unique.values()))

    @property
    def trace(self) -> Trace:
        """The start and end of each command. Raises HazardError if the launch cannot run to its end."""
        trace = self.passes.trace
        if trace is None:
            raise HazardError("time", "; ".join(str(finding) for finding in self.passes.findings(RunOptions())))
        return trace

    @property
    def serial(self) -> Trace:
        """The start and end of each command without overlap: the commands run one after the other, in a legal order."""
        assert self.passes.serial is not None
        return self.passes.serial

    @cached_property
    def layers(self) -> Array:
        """For each step (command of `program`), the index of its layer: int32 [steps].

        Raises ProgramError if the launch does not assign every command to a layer.
        """
        unit = self.program.table.unit
        given_layers = self.image.layers[: len(unit)]  # grouped by engine
        if len(given_layers) < len(unit) or not ((given_layers >= 0) & (given_layers < self.image.count)).all():
            raise ProgramError("launch", "does not assign each of its commands to a layer", "compile it again")
        # The file lists the layer indices of all compute commands, then those of all transfers, but the steps of both
        # are interleaved. The stable sort by engine gives the steps in the order of the file.
        by_step = np.empty(len(unit), np.int32)
        by_step[np.argsort(unit, kind="stable")] = given_layers
        return by_step

    @cached_property
    def executed(self) -> Array:
        """For each step (command of `program`), its number of multiply-accumulates: int64 [steps]."""
        return np.array([estimate.macs(command) for command in self.program.commands], np.int64)

    @property
    def products(self) -> Array:
        """The cycles of the convolutions and matrix products of each layer of the launch: int64 [layers]."""
        cycles = np.where(self.executed > 0, self.trace.end - self.trace.start, 0)
        return np.bincount(self.layers, cycles, self.image.count).astype(np.int64)

    @cached_property
    def peak(self) -> int:
        """The machine's peak MACs per cycle for the narrowest type that the launch multiplies, or 0."""
        return estimate.peak(self.program.commands, self.config.lanes)

    def figures(self) -> tuple[Figures, ...]:
        """Return, for each layer, the figures per sample.

        A layer's cycles are the cycles of the compute engine, including its waits. Raises ProgramError if the launch
        does not assign its commands to layers.
        """
        trace = self.trace
        batch = self.image.batch
        count = self.image.count
        compute = np.flatnonzero(trace.table.unit == UNITS.index(TIU))
        spent = np.diff(trace.end[compute], prepend=0)
        cycles = np.bincount(self.layers[compute], spent, count)
        # A compute command counts from the end of the previous compute command to its own end. Transfers after the last
        # compute command count towards the last layer.
        cycles[count - 1] += trace.cycles - spent.sum()
        waits = _shares(np.bincount(self.layers[compute], trace.wait[compute], count), batch)
        work = [self._of_layers((trace.end - trace.start) * (trace.table.unit == unit)) for unit in range(len(UNITS))]
        columns = {
            "cycles": _shares(cycles, batch),
            "serial_cycles": self._of_layers(np.diff(self.serial.end, prepend=0)),
            "executed_macs": self.macs(),
            "dram_read_bytes": self._of_layers(trace.bytes_read),
            "dram_write_bytes": self._of_layers(trace.bytes_written),
            "stalls": [{"dma": wait} if wait else {} for wait in waits],
            "causes": self._causes(compute),
            "bound": list(map(max, zip(*work, strict=True))),
        }
        rows = zip(*columns.values(), strict=True)
        return tuple(Figures(macs_per_cycle=self.peak, **dict(zip(columns, row, strict=True))) for row in rows)

    def _of_layers(self, column: Array) -> list[int]:
        return _shares(np.bincount(self.layers, column, self.image.count), self.image.batch)

    @property
    def bound(self) -> int:
        """The cycles per sample during which the busiest engine is busy."""
        return max(-(-cycles // self.image.batch) for cycles in self.trace.busy().values())

    def _causes(self, compute: Array) -> list[dict[str, int]]:
        trace = self.trace
        batch = self.image.batch
        count = self.image.count
        assert trace.path is not None
        unit = trace.table.unit[trace.path.step]
        spans = trace.path.charged(unit, len(UNITS), np.append(trace.end[compute], trace.cycles))
        charged = np.zeros((count, len(UNITS)), np.int64)
        # the time after the last compute command counts towards the last layer
        np.add.at(charged, np.append(self.layers[compute], count - 1), spans)
        shared = np.array(_shares(charged.reshape(-1), batch), np.int64).reshape(charged.shape)
        return [by_size(dict(zip(UNITS, row, strict=True))) for row in shared.tolist()]

    def macs(self) -> list[int]:
        """Return each layer's MACs per sample. Raises ProgramError if the launch does not assign commands to layers."""
        return self._of_layers(self.executed)


def _shares(column: Array, batch: int) -> list[int]:
    # The cumulative sums are rounded instead of the numbers, because rounding errors would add up over the network. The
    # total is `sum(column) / batch` rounded up.
    ends = -(-np.cumsum(column).astype(np.int64) // batch)
    return [int(share) for share in np.diff(ends, prepend=0)]


#: For each launch, its properties with the configuration and timing model that were first used.
_CACHE: WeakKeyDictionary[Launch, PreparedLaunch] = WeakKeyDictionary()


def prepare(launch: Launch, config: Config, timing: str = DEFAULT) -> PreparedLaunch:
    """Return the properties of a launch that do not depend on its inputs, cached as long as `launch` exists."""
    prepared = _CACHE.get(launch)
    if prepared is None or not given.only_time_differs(prepared.config, config):
        prepared = _CACHE[launch] = PreparedLaunch(QueueImage.of(launch, config), config, timing)
    return prepared if (prepared.config, prepared.timing) == (config, timing) else prepared.on(config, timing)


class Bm1684xLaunch(Launched[Config]):
    """One launch of the machine.

    The base class in tilewright/targets/launched.py documents the methods. Samples are packed into launches of `batch`
    samples, and the last launch is padded.
    """

    @cached_property
    def prepared(self) -> PreparedLaunch:
        return prepare(self.launch, self.config, self.timing)

    @property
    def together(self) -> int:
        return max(1, TOGETHER_BYTES // max(1, self.prepared.image.values_end * self.config.lanes))

    def pack(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        image = self.prepared.image
        graph = self.program.graph
        if graph is None:
            return {
                segment.name: np.zeros((1, segment.form.nbytes * image.batch), np.uint8) for segment in image.inputs
            }
        packed = {}
        with given.untrusted(self.launch):
            samples = self._samples(values)
            for segment in image.inputs:
                whole = np.broadcast_to(values[segment.name], (samples, *graph.tensors[segment.name].shape))
                data = np.ascontiguousarray(segment.form.pack(whole)).view(np.uint8)
                spare = np.zeros((-samples % image.batch, data.shape[1]), np.uint8)
                packed[segment.name] = np.concatenate([data, spare]).reshape(-1, data.shape[1] * image.batch)
        return packed

    def _samples(self, values: Mapping[str, Array]) -> int:
        return max((len(values[segment.name]) for segment in self.prepared.image.inputs), default=1)

    def compute(self, inputs: Mapping[str, Array], samples: int, options: RunOptions) -> Mapping[str, Array]:
        prepared = self.prepared
        prepared.passes.refuse(options)
        with given.untrusted(self.launch), one_thread():
            machine = Machine(prepared.image, self.config, inputs, samples)
            machine.execute(prepared.program.steps[row] for row in prepared.passes.sequence(options))
        return {segment.name: machine.dram[segment.name] for segment in prepared.image.outputs}

    def unpack(self, left: Mapping[str, Array], values: Mapping[str, Array]) -> Mapping[str, Array]:
        graph = self.program.graph
        if graph is None:
            return {name: data[0] for name, data in left.items()}
        tensors = {}
        with given.untrusted(self.launch):
            for segment in self.prepared.image.outputs:
                elements = left[segment.name].view(segment.form.dtype.storage)
                samples = elements.reshape(len(elements) * self.prepared.image.batch, -1)[: self._samples(values)]
                tensors[segment.name] = segment.form.unpack(samples, graph.tensors[segment.name])
        return tensors

    def report(self, options: RunOptions) -> LaunchResult:
        prepared = self.prepared
        graph = self.program.graph
        trace = None
        prepared.passes.refuse(options)
        total = sum(prepared.macs()) if graph else int(prepared.executed.sum())
        bound = 0
        figures: tuple[Figures, ...] = (Figures(executed_macs=total, macs_per_cycle=prepared.peak),)
        if options.timing is not None:
            trace = prepared.trace
            bound = prepared.bound if graph else max(prepared.trace.busy().values())
            whole = trace.figures(TIU, total, bound, prepared.serial.cycles)
            figures = prepared.figures() if graph else (replace(whole, macs_per_cycle=prepared.peak),)
        counted = partial(events, prepared.program, self.config, trace, prepared.image.batch if graph else 1)
        return LaunchResult({}, prepared.findings(options), trace, figures, bound, counted)

    def findings(self) -> tuple[Finding, ...]:
        return self.prepared.findings(RunOptions(values=False))
