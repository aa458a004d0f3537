"""Run a launch on S samples: pack the samples, find hazards and times (sim.passes), run the commands, unpack."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.array import Array, one_thread
from tilewright.errors import HazardError, MachineError, ProgramError
from tilewright.program.program import Launch, Program
from tilewright.sim.figures import Figures, by_size
from tilewright.sim.findings import Finding
from tilewright.sim.passes import Passes, RunOptions
from tilewright.sim.steps import Footprints, Space, Trace
from tilewright.targets import given
from tilewright.targets.base import LaunchResult
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.events import events
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.elaborate import UNITS, Elaborated, elaborate
from tilewright.targets.bm1684x.isa.operations import TIU
from tilewright.targets.bm1684x.launch.image import QueueImage, footprints, oddity
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Operand, Tensor
from tilewright.targets.bm1684x.timing import estimate
from tilewright.targets.bm1684x.timing.model import DEFAULT, MODELS

#: Launches run together while their simulated local memories take at most this many bytes of the host.
TOGETHER_BYTES = 1 << 26


class Machine:
    """The memories of L launches of one program, which run in lock step on different samples.

    Bytes below `values_end` in a lane are private to each launch; bytes above it are constant and shared. An operand
    (n, c, h, w) is read as (L * n, c, h, w), so that an operation sees one larger batch.
    """

    def __init__(self, image: QueueImage, config: Config, launches: int) -> None:
        self.config, self.launches = config, launches
        self._split = image.values_end
        lanes = config.lanes
        self._own = np.zeros((launches, lanes, image.values_end), np.uint8)
        self._constant = np.zeros((1, lanes, config.lane_bytes - image.values_end), np.uint8)
        self._segments = [(DDR_BASE, image.constants[None])]  # the tensors follow
        for segment in (*image.inputs, *image.outputs):
            data = np.zeros((launches, segment.stored.nbytes * image.batch), np.uint8)
            self._segments.append((segment.address, data))
        self._kernels: dict[tuple[int, tuple[int, ...]], Array] = {}
        self._shared: set[int] = set()  # addresses of DDR segments, and 0 for constants, that a copy has too

    def copy(self) -> Machine:
        """Return a copy. Both share DDR and the constants in local memory until one of them writes there."""
        made = copy(self)
        self._shared = {0, *(address for address, _ in self._segments)}
        made._shared, made._own = set(self._shared), self._own.copy()
        made._segments, made._kernels = list(self._segments), dict(self._kernels)
        return made

    @property
    def nbytes(self) -> int:
        """The bytes of this machine's memories that no copy shares."""
        parts = [(0, self._constant), *self._segments]
        return self._own.nbytes + sum(data.nbytes for address, data in parts if address not in self._shared)

    def local(self) -> Array:
        """Return local memory, uint8 (L, lanes, bytes)."""
        constant = np.broadcast_to(self._constant, (self.launches, *self._constant.shape[1:]))
        return np.concatenate([self._own, constant], axis=2)

    def ddr(self, address: int, size: int) -> Array:
        """Return bytes of DDR, uint8 (L or 1, size). Raises MachineError if they are not within one segment."""
        for base, data in self._segments:
            if base <= address and address + size <= base + data.shape[1]:
                return data[:, address - base : address - base + size]
        raise MachineError("DDR", f"{address:#x}..{address + size:#x} is outside all tensors of the program")

    def segment(self, address: int) -> Array:
        """Return the DDR segment that begins at `address`, of all L launches: uint8 (L, bytes)."""
        return next(data for base, data in self._segments[1:] if base == address)

    def run(self, command: Command) -> None:
        """Run one command of each of the L launches.

        Raises MachineError if compiled networks never have such a command, or if an operand or result does not fit.
        """
        (name, place), *others = command.results.items()
        if others or command.operation.by_data:
            raise MachineError(command.operation.name, "is not an operation of compiled networks")
        result = place.storage
        n, c, h, w = result.shape
        shape = (self.launches * n if self._differs(result) else n, c, h, w)
        _, found = command.computed(self._read, {name: shape})
        try:
            self._write(result, np.broadcast_to(found[name], shape))
        except ValueError as error:
            raise MachineError(command.operation.name, f"its result does not fit: {error}") from None

    def _read(self, operand: Operand) -> Array:
        if isinstance(operand, ConvWeights):
            return self._kernel(operand)
        tensor = operand.storage
        values = self._view(tensor)
        merged = values.reshape(len(values) * tensor.shape.n, -1, *values.shape[4:])  # (L, n, slots, lanes, h, w)
        return merged[:, tensor.start_lane : tensor.start_lane + tensor.shape.c] if tensor.is_local else merged

    def _kernel(self, kernel: ConvWeights) -> Array:
        """Return the values of weights, (oc, ic, kh, kw). They are cached until a command overwrites constants."""
        key = (kernel.address, kernel.shape)
        if key not in self._kernels:
            self._kernels[key] = kernel.unpacked(self._read(kernel.storage)[0])
        return self._kernels[key]

    def _write(self, result: Tensor, values: Array) -> None:
        if result.is_local and not self._differs(result):
            self._kernels.clear()
            if 0 in self._shared:
                self._constant = self._constant.copy()
                self._shared.remove(0)
        elif not result.is_local and (base := self._home(result)[0]) in self._shared:
            self._segments = [(at, data.copy() if at == base else data) for at, data in self._segments]
            self._shared.remove(base)
        view = self._view(result)
        launches, n, (_, c, h, w) = view.shape[0], result.shape.n, result.shape
        given = np.broadcast_to(values, (launches * n, c, h, w)).reshape(launches, n, c, h, w)
        given = given.astype(result.dtype.storage, copy=False)
        if not result.is_local:
            view[:, :, :, 0] = given.reshape(view[:, :, :, 0].shape)
            return
        for slot, (channel, lane, end) in enumerate(result.spans):
            view[:, :, slot, lane:end] = given[:, :, channel : channel + end - lane]

    def _differs(self, operand: Tensor) -> bool:
        """Return whether an operand is private to each launch. Raises MachineError if only some of its bytes are."""
        if not operand.is_local:
            return self._home(operand)[1].shape[0] > 1 or self.launches == 1
        low, high = operand.lane_offset, operand.lane_end
        if low < self._split < high:
            raise MachineError("local memory", f"an operand at bytes {low}..{high} of lanes mixes values and constants")
        return high <= self._split

    def _home(self, tensor: Tensor) -> tuple[int, Array]:
        """Return the address and bytes of the DDR segment that holds a tensor.

        Raises MachineError if the tensor is not within one segment.
        """
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))
        end = tensor.address + (last + 1) * tensor.dtype.bytes
        for base, data in self._segments:
            if base <= tensor.address and end <= base + data.shape[1]:
                return base, data
        raise MachineError("DDR", f"{tensor.address:#x}..{end:#x} is outside all tensors of the program")

    def _view(self, tensor: Tensor) -> Array:
        """Return a view of a tensor's elements: (L, n, slots, lanes, h, w), or (1, ..) if the L launches share them.

        A tensor in DDR has one lane, and each of its channels is a slot.
        """
        size, (n, c, h, w), stride = tensor.dtype.bytes, tensor.shape, tensor.stride
        steps = [step * size for step in stride]
        if tensor.is_local:
            data, base = (self._own, 0) if self._differs(tensor) else (self._constant, self._split)
            start, count = tensor.lane_offset - base, tensor.slots
            first = data[:, :, start:]
            extent = (len(data), n, count, data.shape[1], h, w)
            strides = (data.strides[0], steps[0], steps[1], data.strides[1], steps[2], steps[3])
        else:
            base, data = self._home(tensor)
            first = data[:, tensor.address - base :]
            extent = (len(data), n, c, 1, h, w)
            strides = (data.strides[0], steps[0], steps[1], 0, steps[2], steps[3])
        if (first.ctypes.data % size) or any(step % size for step in strides):
            raise MachineError("memory", f"address {tensor.address:#x} is not a multiple of its elements' {size} bytes")
        element = as_strided(first, (size,), (1,)).view(tensor.dtype.storage)
        return as_strided(element, extent, strides)


@dataclass(frozen=True, eq=False)
class Prepared:
    """The properties of a launch that do not depend on its input data. They are computed when they are needed.

    `timing` names the timing model.
    """

    image: QueueImage
    config: Config
    timing: str

    def on(self, config: Config, timing: str) -> Prepared:
        """Return the properties of the launch on a machine that differs only in time; nothing is elaborated again."""
        found = Prepared(self.image, config, timing)
        found.__dict__["program"] = self.program
        return found

    @cached_property
    def program(self) -> Elaborated:
        """The launch's commands in a legal order, with their footprints (the bytes that each reads and writes).

        Raises ProgramError for a command that the compiler never emits.
        """
        found = elaborate(self.image.queues, self.config)
        for step in found.steps:
            if reason := oddity(step.command, self.config):
                raise ProgramError(step.name, reason, "compile the network again")
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
        """The hazards, order and times of the commands, from the passes that all targets share (sim.passes)."""
        model = MODELS[self.timing].timing
        trace = partial(estimate.trace, self.program, self.config, timing=model)
        return Passes(self.program.table, self.program.order, lambda: (trace(), trace(serial=True)))

    def findings(self, options: RunOptions) -> tuple[Finding, ...]:
        """Return the findings, such as races. A conflict of two commands in several ranges of lanes counts once."""
        found = {(one.kind, one.steps): one for one in reversed(self.passes.findings(options))}
        return tuple(reversed(found.values()))

    @property
    def trace(self) -> Trace:
        """The start and end of each command. Raises HazardError if the launch cannot run to its end."""
        trace = self.passes.trace
        if trace is None:
            raise HazardError("time", "; ".join(str(found) for found in self.passes.findings(RunOptions())))
        return trace

    @property
    def serial(self) -> Trace:
        """The start and end of each command without overlap: one command after the other, in a legal order."""
        assert self.passes.serial is not None
        return self.passes.serial

    @cached_property
    def layers(self) -> Array:
        """The layer index of each step (command of `program`), int32 [steps].

        Raises ProgramError if the launch does not assign every command to a layer.
        """
        unit = self.program.table.unit
        given_layers = self.image.layers[: len(unit)]  # grouped by engine
        if len(given_layers) < len(unit) or not ((given_layers >= 0) & (given_layers < self.image.count)).all():
            raise ProgramError("launch", "does not say which of its layers each command belongs to", "compile it again")
        found = np.empty(len(unit), np.int32)
        found[np.argsort(unit, kind="stable")] = given_layers
        return found

    @cached_property
    def executed(self) -> Array:
        """The number of multiply-accumulates of each step (command of `program`), int64 [steps]."""
        return np.array([estimate.macs(command) for command in self.program.commands], np.int64)

    @property
    def products(self) -> Array:
        """The cycles of each layer's convolutions and matrix products alone, per launch: int64 [layers]."""
        cycles = np.where(self.executed > 0, self.trace.end - self.trace.start, 0)
        return np.bincount(self.layers, cycles, self.image.count).astype(np.int64)

    @cached_property
    def peak(self) -> int:
        """The machine's peak MACs per cycle for the narrowest type that the launch multiplies, or 0 if none."""
        return estimate.peak(self.program.commands, self.config.lanes)

    def run(self, values: Mapping[str, Array], launches: int, options: RunOptions) -> dict[str, Array]:
        """Run L = `launches` launches. Return the DDR segment of each result by name, uint8 (L, bytes).

        `values` has the DDR segment of each input in the same form.
        Raises MachineError, which names the command, if a command cannot run.
        """
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

    def figures(self) -> tuple[Figures, ...]:
        """Return the figures per sample of each layer. Cycles are the compute engine's, with its waits.

        Raises ProgramError if the launch does not assign its commands to layers.
        """
        trace, batch, count = self.trace, self.image.batch, self.image.count
        mine = np.flatnonzero(trace.table.unit == UNITS.index(TIU))
        spent = np.diff(trace.end[mine], prepend=0)
        cycles = np.bincount(self.layers[mine], spent, count)
        cycles[count - 1] += trace.cycles - spent.sum()
        alone = np.bincount(self.layers, np.diff(self.serial.end, prepend=0), count)
        moved = [np.bincount(self.layers, column, count) for column in (trace.bytes_read, trace.bytes_written)]
        waits = np.bincount(self.layers[mine], trace.wait[mine], count)
        shares = [_shares(column, batch) for column in (cycles, alone, *moved, waits)]
        columns = (*shares, self.macs(), self._causes(mine), self._work())
        return tuple(
            Figures(
                cycles=own,
                serial_cycles=serial,
                executed_macs=macs,
                macs_per_cycle=self.peak,
                dram_read_bytes=read,
                dram_write_bytes=written,
                stalls={"dma": wait} if wait else {},
                causes=causes,
                bound=max(work),
            )
            for own, serial, read, written, wait, macs, causes, work in zip(*columns, strict=True)
        )

    def _work(self) -> list[list[int]]:
        """Return the cycles per sample that each layer's commands take on each engine."""
        trace, count = self.trace, self.image.count
        cells = self.layers * len(UNITS) + trace.table.unit
        taken = np.bincount(cells, trace.end - trace.start, count * len(UNITS)).reshape(count, len(UNITS))
        shared: list[list[int]] = np.array(
            [_shares(column, self.image.batch) for column in taken.T], np.int64
        ).T.tolist()
        return shared

    @property
    def bound(self) -> int:
        """The cycles per sample that the busiest engine works."""
        return max(-(-cycles // self.image.batch) for cycles in self.trace.busy().values())

    def _causes(self, mine: Array) -> list[dict[str, int]]:
        """Return the causes of each layer's cycles per sample; `mine` are the steps of the compute engine."""
        trace, batch, count = self.trace, self.image.batch, self.image.count
        assert trace.path is not None
        unit = trace.table.unit[trace.path.step]
        spans = trace.path.charged(unit, len(UNITS), np.append(trace.end[mine], trace.cycles))
        charged = np.zeros((count, len(UNITS)), np.int64)
        np.add.at(charged, np.append(self.layers[mine], count - 1), spans)
        shared = np.array(_shares(charged.reshape(-1), batch), np.int64).reshape(charged.shape)
        return [by_size(dict(zip(UNITS, row, strict=True))) for row in shared.tolist()]

    def macs(self) -> tuple[int, ...]:
        """Return the number of multiply-accumulates per sample of each layer.

        Raises ProgramError if the launch does not assign its commands to layers.
        """
        return tuple(_shares(np.bincount(self.layers, self.executed, self.image.count), self.image.batch))


def _shares(column: Array, batch: int) -> list[int]:
    """Return each number divided by `batch`, as integers. Their total is `sum(column) / batch`, rounded up."""
    ends = -(-np.cumsum(column).astype(np.int64) // batch)
    return [int(share) for share in np.diff(ends, prepend=0)]


#: The properties of each launch, in one timing model of its target.
_KNOWN: WeakKeyDictionary[Launch, Prepared] = WeakKeyDictionary()


def prepared(launch: Launch, config: Config, timing: str = DEFAULT) -> Prepared:
    """Return the properties of a launch that do not depend on its inputs. They are cached while `launch` exists."""
    known = _KNOWN.get(launch)
    if known is None or not given.only_time_differs(known.config, config):
        known = _KNOWN[launch] = Prepared(QueueImage.of(launch, config), config, timing)
    return known if (known.config, known.timing) == (config, timing) else known.on(config, timing)


def run(
    program: Program, launch: Launch, values: Mapping[str, Array], options: RunOptions, config: Config
) -> LaunchResult:
    """Run the passes that `options` asks for, and return the launch's results, findings, times and operation counts."""
    known = prepared(launch, config, options.timing or DEFAULT)
    with given.named(launch):
        known.passes.refuse(options)
    findings = known.findings(options)
    graph = program.graph
    results: dict[str, Array] = {}
    if options.values:
        with given.untrusted(launch), one_thread():
            results = _values(program, known, values, options)
    counted = partial(
        events, known.program, config, known.trace if options.timing else None, known.image.batch if graph else 1
    )
    total = sum(known.macs()) if graph else int(known.executed.sum())
    untimed = Figures(executed_macs=total, macs_per_cycle=known.peak)
    if options.timing is None:
        return LaunchResult(results, findings, None, (untimed,), events=counted)
    if graph:
        return LaunchResult(results, findings, known.trace, known.figures(), known.bound, counted)
    bound = max(known.trace.busy().values())
    figures = known.trace.figures(TIU, total, bound, known.serial.cycles)
    return LaunchResult(results, findings, known.trace, (replace(figures, macs_per_cycle=known.peak),), bound, counted)


def _values(program: Program, known: Prepared, values: Mapping[str, Array], options: RunOptions) -> dict[str, Array]:
    """Run the launch. Return its results by name: tensors (S, *shape), or bytes in DDR if the program has no graph."""
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
