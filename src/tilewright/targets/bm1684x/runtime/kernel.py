"""Kernels in Python: functions that issue commands. A launch runs a kernel, and returns times and races.

    @kernel
    def double(tpu, y, x):
        a, b = tpu.local(x.shape, x.dtype, bank=0), tpu.local(x.shape, x.dtype, bank=1)
        tpu.gdma.copy(a, x)
        tpu.bdc.fp_add(b, a, a)
        tpu.gdma.copy(y, b)

`tpu.gdma` (the DMA engine), `tpu.bdc` (compute) and `tpu.hau` (sorting) have a method for each operation. Parameters of
a method are the results and the operands, in the order of the operation's description, then attributes by name.
Commands run immediately, in the order of the calls, and a command waits for all commands before it. In a region
(`with tpu.parallel():`), a command waits only for commands from before the region, so that engines overlap. Commands of
a region must not depend on each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.errors import InputError, MachineError, one_of
from tilewright.sim.findings import OUT_OF_RANGE, Finding
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.elaborate import ENGINES, ElaboratedProgram, Step
from tilewright.targets.bm1684x.isa.operation import ATTRIBUTES
from tilewright.targets.bm1684x.isa.operations import DMA, HAU, OPERATIONS, TIU, Operation
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Flat, Matrix, Operand, Rows, Tensor, sizes_of
from tilewright.targets.bm1684x.runtime.recording import Launched, outcome_of
from tilewright.targets.bm1684x.values.dtypes import F32, DType, rounding_of
from tilewright.targets.bm1684x.values.floats import widen
from tilewright.targets.bm1684x.values.memory import Memories, Region

T = TypeVar("T", Tensor, ConvWeights, Matrix)
#: Alignment of operands in a bank, in bytes.
ALIGNMENT = 64
Body = Callable[..., None]
__all__ = ["Function", "Kernel", "Launched", "Tpu", "kernel"]


@dataclass(frozen=True)
class Kernel:
    """A kernel: the function `body(tpu, *arguments)`, which issues commands through `tpu`."""

    name: str
    body: Body

    def launch(self, memories: Memories, *arguments: Any) -> Launched:
        """Run the kernel, and return its outcome. Raises MachineError if the machine refuses a command."""
        tpu = Tpu(memories)
        memories.forget()
        regions = memories.regions
        try:
            with one_thread():
                self.body(tpu, *arguments)
                tpu.end()
        except BaseException:
            ElaboratedProgram.of(tuple(tpu.ran.values()), regions, memories.knobs).mark_written()
            raise
        # `tpu.steps` has the order of the calls. The steps in `tpu.ran` also have masks of the touched elements.
        steps = [tpu.ran.get((step.engine, step.id), step) for step in tpu.steps]
        program = ElaboratedProgram.of(steps, regions, memories.knobs)
        program.mark_written()
        return outcome_of(program, memories, tpu.findings)


@dataclass(frozen=True)
class Function:
    """A kernel that a host launches by name. `unpacked` decodes its argument of `size` bytes (None: any size)."""

    kernel: Kernel
    size: int | None
    unpacked: Callable[[bytes], Any]

    @property
    def name(self) -> str:
        return self.kernel.name


def _line() -> str:
    """Return the line of user code that called Tilewright, such as kernel.py:12."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_globals.get("__name__", "").startswith("tilewright."):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "?"


def kernel(body: Body) -> Kernel:
    return Kernel(body.__name__, body)


class Engine:
    """The operations of one engine as methods: `engine.NAME(results.., operands.., attribute=..)`."""

    def __init__(self, issue: Callable[[Command], None], engine: str, prefix: str) -> None:
        self._issue = issue
        self._operations = {
            name.removeprefix(prefix): operation
            for name, operation in OPERATIONS.items()
            if operation.engine == engine and name.startswith(prefix)
        }

    def __getattr__(self, name: str) -> Callable[..., None]:
        operation = self._operations.get(name)
        if operation is None:
            raise AttributeError(f"there is no operation {name}; choose one of {', '.join(sorted(self._operations))}")
        return lambda *places, **named: self._issue(_command(operation, places, named))

    def __dir__(self) -> list[str]:
        return sorted(self._operations)


def _command(operation: Operation, places: tuple[Any, ...], named: Mapping[str, Any]) -> Command:
    operands_by_name = _places_of(operation, places, named)
    attributes = {name: value for name, value in named.items() if name not in (*operation.outputs, *operation.inputs)}
    if unknown := sorted(attributes.keys() - ATTRIBUTES.keys()):
        reason = f"there is no attribute {unknown[0]}"
        raise MachineError(operation.name, reason, one_of(unknown[0], sorted(ATTRIBUTES)))
    if isinstance(attributes.get("mode"), str):
        attributes["mode"] = rounding_of(attributes["mode"])
    results = {name: operands_by_name[name] for name in operation.outputs if name in operands_by_name}
    return Command(operation, _operands(operation, operands_by_name), results, attributes)


def _places_of(operation: Operation, places: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    order = (*operation.outputs, *operation.inputs)
    if len(places) > len(order):
        reason = f"{len(places)} operands are given, but it takes {', '.join(order)}"
        raise MachineError(operation.name, reason, "give attributes by name")
    by_name = dict(zip(order, places, strict=False)) | {name: named[name] for name in named if name in order}
    # None stands for an omitted operand
    by_name = {name: place for name, place in by_name.items() if place is not None}
    for name, place in by_name.items():
        if not (isinstance(place, Real | Constant) or hasattr(place, "addresses")):
            raise MachineError(operation.name, f"{name} is a {type(place).__name__}", "give a tensor or a number")
    if "y" not in by_name:
        raise MachineError(operation.name, "no result tensor was given", f"give {', '.join(order)}")
    if operation.engine != HAU:
        return by_name
    if not all(isinstance(operand, Tensor) and not operand.is_local for operand in by_name.values()):
        raise MachineError(operation.name, "it works from DDR to DDR", "give tensors outside of local memory")
    return {name: Flat(operand) for name, operand in by_name.items()}


def _operands(operation: Operation, by_name: Mapping[str, Any]) -> dict[str, Operand | Constant]:
    placed = [by_name[name] for name in (*operation.inputs, *operation.outputs) if name in by_name]
    first = next((operand.dtype for operand in placed if not isinstance(operand, Real)), F32)
    operands = {name: by_name[name] for name in operation.inputs if name in by_name}
    for name, number in operands.items():
        if isinstance(number, Real):
            dtype = operation.numbers.get(name, first)
            value: Any = number.item() if isinstance(number, np.generic) else number
            operands[name] = Constant.of(value, dtype or by_name["y"].dtype)
    if "y_before" in operation.inputs:  # a scatter keeps all other elements
        operands.setdefault("y_before", by_name["y"])
    return operands


class Tpu:
    """The device as a kernel sees it: an object that issues commands, and allocates operands in local memory."""

    def __init__(self, memories: Memories) -> None:
        self.config: Config = memories.config
        self.steps: list[Step] = []
        self.findings: list[Finding] = []
        self.bdc, self.gdma, self.hau = (
            Engine(self.issue, engine, prefix) for engine, prefix in ((TIU, ""), (DMA, "dma_"), (HAU, "hau_"))
        )
        self.place = ""  # the calling line in C, such as kernel.c:12; "" for a kernel in Python
        self.selected = 0  # number of elements selected by the last selection
        self._memories = memories
        self._knobs = memories.knobs
        self._random = None if self._knobs.seed is None else np.random.default_rng(self._knobs.seed)
        self._issued = dict.fromkeys(ENGINES, 0)
        self._held: list[Step] = []
        self.ran: dict[tuple[str, int], Step] = {}  # by (engine, id), in the order of execution
        self._before_region: dict[str, int] | None = None
        self._used = [0] * self.config.banks  # used bytes of each bank

    def local(self, shape: tuple[int, ...], dtype: DType, bank: int, kind: str = "aligned", lane: int = 0) -> Tensor:
        """Allocate a tensor at the first free byte of a bank of local memory.

        A long tensor extends into the next banks. Raises MachineError if a bank that the tensor needs is not free.
        """
        return self._take(bank, lambda offset: Tensor.local(lane, offset, shape, dtype, self.config, kind))

    def weights(self, shape: tuple[int, int, int, int], dtype: DType, bank: int) -> ConvWeights:
        """Allocate convolution weights (oc, ic, kh, kw). Copy `Device.put_weights(..)` to their `storage`."""
        sizes = sizes_of(shape, dtype)
        return self._take(bank, lambda offset: ConvWeights(LOCAL_BASE + offset, sizes, dtype, self.config))

    def matrix(self, rows: int, columns: int, dtype: DType, bank: int, width: int) -> Matrix:
        """Allocate a matrix in local memory with `width` columns per channel. A vector is a matrix with one row."""
        return self._take(bank, lambda offset: Matrix.local(0, offset, (rows, columns), width, dtype, self.config))

    def _take(self, bank: int, make: Callable[[int], T]) -> T:
        if not isinstance(bank, int) or not 0 <= bank < self.config.banks:
            raise MachineError("local memory", f"there is no bank {bank!r}", f"give 0..{self.config.banks - 1}")
        size = self.config.bank_bytes
        begin = bank * size + self._used[bank]
        try:
            operand = make(begin)
            end = operand.lane_end
        except InputError as error:
            raise MachineError("local memory", f"from bank {bank} on: {error.reason}", error.remedy) from None
        last = (end - 1) // size
        if occupied := [number for number in range(bank + 1, last + 1) if self._used[number]]:
            reason = f"{end - begin} bytes from bank {bank} on reach bank {occupied[0]}, which is in use"
            raise MachineError("local memory", reason, "begin in another bank, or make it smaller")
        # A long operand also uses the beginning of the next banks: mark each bank as used up to the operand's end.
        for number in range(bank, last + 1):
            self._used[number] = -(-(min(end, (number + 1) * size) - number * size) // ALIGNMENT) * ALIGNMENT
        return operand

    def system(self, address: int, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Return a tensor without gaps in another memory. Raises InputError for an illegal shape or address."""
        return Tensor.ddr(address, shape, dtype, self.config)

    def region_of(self, address: int) -> Region:
        return self._memories.region_of(address, address + 1)

    def read(self, tensor: Operand) -> Array:
        """Return an operand's current values for debugging, without a command and without waiting for commands."""
        return self._memories.read(tensor.addresses, tensor.dtype.storage)

    def print(self, *things: Any) -> None:
        """Print `things` for debugging. For an operand, print its place and its current values (bf16 as numbers)."""
        shown = list(things)
        for number, thing in enumerate(things):
            if isinstance(thing, Tensor | Matrix | Rows | ConvWeights):
                values = self.read(thing)
                shown[number] = f"{thing!r}\n{widen(values, thing.dtype) if thing.dtype.is_float else values}"
        print(*shown)

    @contextmanager
    def parallel(self) -> Iterator[None]:
        """Open a region whose commands wait only for commands from before the region. Regions cannot be nested."""
        self.parallel_start()
        try:
            yield
        except BaseException:
            self._before_region = None
            raise
        self.parallel_end()

    @property
    def in_region(self) -> bool:
        return self._before_region is not None

    def parallel_start(self) -> None:
        """Begin a region, as `with parallel()` does. Raises MachineError inside a region."""
        if self.in_region:
            raise MachineError("parallel", "a region begins inside another region", "end the outer region first")
        self.poll()
        self._before_region = dict(self._issued)

    def parallel_end(self) -> None:
        """End the region: later commands wait for its commands. Raises MachineError outside of a region."""
        if not self.in_region:
            raise MachineError("parallel", "a region ends, but no region has begun", "call parallel_start first")
        self._before_region = None
        self.poll()

    def end(self) -> None:
        """Finish the kernel by waiting for all commands. Raises MachineError inside a region."""
        if self.in_region:
            raise MachineError("parallel", "the kernel ends inside a region", "end the region first")
        self.poll()

    def poll(self) -> None:
        """Run the commands that `issue` delayed. Raises MachineError if the machine refuses a command."""
        held = self._held
        self._held = []
        # Inside a region, the engines do not wait for each other, so any merge that keeps each engine's order is legal.
        if self._random is not None:  # take a random legal merge
            queues = {engine: iter([step for step in held if step.engine == engine]) for engine in ENGINES}
            held = [next(queues[engine]) for engine in self._random.permutation([step.engine for step in held])]
        # The sort is stable: compute commands come first, transfers as late as possible, and each engine keeps its
        # order.
        if self._knobs.defers:
            held.sort(key=lambda step: step.engine == DMA)
        for step in held:
            self._run(step)

    def issue(self, command: Command) -> None:
        """Run a command, or delay it if the knobs (values.memory.Knobs) require another order.

        Raises MachineError, with the number of the command, if the machine refuses it.
        """
        engine = command.operation.engine
        self._issued[engine] += 1
        number = self._issued[engine]
        ended = self._issued if self._before_region is None else self._before_region
        # In a region, commands wait for the last commands from before the region, as in the vendor's
        # tpu_parallel_start.
        needs = {unit: ended[unit] for unit in ENGINES if unit != engine}
        step = Step(engine, number, needs, command, f"{engine} command {number - 1} ({self.place or _line()})")
        # A command runs immediately, unless the knobs require another legal order. A delayed command stays in `_held`
        # until the next command that waits for all previous commands.
        in_turn = self._before_region is None and not (self._knobs.defers and engine == DMA)
        delayed = not in_turn and (self._knobs.defers or self._random is not None)
        if not delayed:
            self.poll()
        self.steps.append(step)
        if delayed:
            self._held.append(step)
        else:
            self._run(step)

    def _run(self, step: Step) -> None:
        command = step.command
        touched: dict[str, Array] = {}
        try:
            results = command.run(self._memories, touched)
        except MachineError as error:
            raise MachineError(f"{step.name}, {error.where}", error.reason, error.remedy) from None
        self.ran[step.engine, step.id] = step.with_touched(touched)
        if "count" in results:
            self.selected = int(results["count"].item())
        for _, name, operand in command.in_memory * self._knobs.ignores_bounds:
            addresses = operand.addresses
            outside = addresses[~self._memories.inside(addresses, operand.dtype.bytes)]
            if outside.size:
                where = f"lie outside of its memory, from {outside.min():#x} on"
                self.findings.append(Finding(OUT_OF_RANGE, f"{step}: {outside.size} elements of {name} {where}"))
