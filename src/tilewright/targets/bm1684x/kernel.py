"""Kernels in Python: a function that issues commands; what they did, how long they took, whether they raced.

    @kernel
    def double(tpu, y, x):
        a, b = tpu.local(x.shape, x.dtype, bank=0), tpu.local(x.shape, x.dtype, bank=1)
        tpu.gdma.copy(a, x)
        tpu.bdc.fp_add(b, a, a)
        tpu.gdma.copy(y, b)

A call names results first, then operands in the order of the operation's description, then attributes. Commands run at
once, in the order of the calls; dependencies follow from it. Inside `with tpu.parallel():` a command waits only for
what was issued before the region, so that engines overlap; commands of a region must not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.errors import InputError, MachineError
from tilewright.sim.findings import OUT_OF_RANGE, RACE, Finding
from tilewright.sim.hazards import hazards
from tilewright.sim.trace import Trace
from tilewright.targets.bm1684x.command import Command, Constant
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.dtypes import F32, I8, I16, I32, DType, rounding_of
from tilewright.targets.bm1684x.elaborate import ENGINES, Elaborated, Step
from tilewright.targets.bm1684x.flat import Flat
from tilewright.targets.bm1684x.memory import Memories
from tilewright.targets.bm1684x.operations import DMA, HAU, OPERATIONS, TIU, Operation
from tilewright.targets.bm1684x.tensor import Operand, Tensor
from tilewright.targets.bm1684x.timing import trace

#: Types of numbers that stand for operands; others have that of the first tensor.
PARAMETERS: Mapping[str, DType] = {"shift": I8, "multiplier": I32, "offset": I32, "zero": I16, "scale": F32}
Body = Callable[..., None]


@dataclass(frozen=True, eq=False)
class Launched:
    """What one launch did."""

    program: Elaborated
    trace: Trace
    findings: tuple[Finding, ...]

    @property
    def cycles(self) -> int:
        return self.trace.cycles


@dataclass(frozen=True)
class Kernel:
    """A function `body(tpu, *arguments)`."""

    name: str
    body: Body

    def launch(self, memories: Memories, *arguments: Any) -> Launched:
        """Run it on a device's memories. Raises MachineError for a refused command, with its place in the kernel."""
        tpu = Tpu(memories)
        knobs = memories.knobs
        memories.forget()
        with one_thread():
            self.body(tpu, *arguments)
            tpu.end()
        program = Elaborated.of(tpu.steps, memories.regions, knobs)
        found = hazards(program.table, program.order) if knobs.detect_races or knobs.forgets else []
        found = [finding for finding in found if knobs.detect_races or finding.kind != RACE]
        return Launched(program, trace(program, memories.config), (*tpu.findings, *found))


def kernel(body: Body) -> Kernel:
    """Decorator: the function as a kernel of its name."""
    return Kernel(body.__name__, body)


class Tpu:
    """The device as a kernel sees it."""

    def __init__(self, memories: Memories) -> None:
        self.config: Config = memories.config
        self.steps: list[Step] = []
        self.findings: list[Finding] = []
        self.bdc, self.gdma, self.hau = Engine(self, TIU, ""), Engine(self, DMA, "dma_"), Engine(self, HAU, "hau_")
        self._memories, self._knobs = memories, memories.knobs
        self._random = None if self._knobs.seed is None else np.random.default_rng(self._knobs.seed)
        self._issued = dict.fromkeys(ENGINES, 0)
        self._held: list[Step] = []
        self._before_region: dict[str, int] | None = None
        self._used = [0] * self.config.banks

    def local(self, shape: tuple[int, ...], dtype: DType, bank: int, kind: str = "aligned", lane: int = 0) -> Tensor:
        """A new tensor in a bank, behind those already there; one too large for it goes on in the next banks.

        Raises MachineError where a bank that it needs is not free.
        """
        if not 0 <= bank < self.config.banks:
            raise MachineError("local memory", f"there is no bank {bank}", f"give 0..{self.config.banks - 1}")
        size = self.config.bank_bytes
        begin = bank * size + self._used[bank]
        try:
            tensor = Tensor.local(lane, begin, shape, dtype, self.config, kind)
        except InputError as error:
            raise MachineError("local memory", f"from bank {bank} on: {error.reason}", error.remedy) from None
        end = tensor.lane_end
        last = (end - 1) // size
        if taken := [other for other in range(bank + 1, last + 1) if self._used[other]]:
            reason = f"{end - begin} bytes from bank {bank} on reach bank {taken[0]}, which is in use"
            raise MachineError("local memory", reason, "begin in another bank, or make it smaller")
        for other in range(bank, last + 1):
            self._used[other] = -(-(min(end, (other + 1) * size) - other * size) // 64) * 64
        return tensor

    def system(self, address: int, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """The tensor (n, c, h, w) without gaps at an address outside of local memory. Raises InputError."""
        return Tensor.ddr(address, shape, dtype, self.config)

    def read(self, tensor: Operand) -> Array:
        """Its values as they are now, to look at while debugging: not a command, and not waited for."""
        return self._memories.read(tensor.addresses, tensor.dtype.storage)

    @contextmanager
    def parallel(self) -> Iterator[None]:
        """A region whose commands wait only for what stands before it. Regions do not nest."""
        self.parallel_start()
        try:
            yield
        except BaseException:
            self._before_region = None
            raise
        self.parallel_end()

    def parallel_start(self) -> None:
        """Begin a region, as `with parallel()` does."""
        if self._before_region is not None:
            raise MachineError("parallel", "a region inside a region", "end the outer one first")
        self.poll()
        self._before_region = dict(self._issued)

    def parallel_end(self) -> None:
        """End it: what follows waits for all of it."""
        if self._before_region is None:
            raise MachineError("parallel", "no region has begun", "begin one first")
        self._before_region = None
        self.poll()

    def end(self) -> None:
        """After the kernel. Raises MachineError inside a region."""
        if self._before_region is not None:
            raise MachineError("parallel", "the kernel ends inside a region", "end it")
        self.poll()

    def poll(self) -> None:
        """Wait for all commands: those held back by the knobs run now."""
        held, self._held = self._held, []
        if self._random is not None:  # each engine in order
            queues = {engine: iter([step for step in held if step.engine == engine]) for engine in ENGINES}
            held = [next(queues[engine]) for engine in self._random.permutation([step.engine for step in held])]
        if self._knobs.defers:
            held.sort(key=lambda step: step.engine == DMA)
        for step in held:
            self._run(step)

    def issue(self, command: Command) -> None:
        """Run a command and queue it. Raises MachineError, naming its place in the kernel."""
        engine = command.operation.engine
        self._issued[engine] += 1
        number = self._issued[engine]
        ended = self._issued if self._before_region is None else self._before_region
        needs = {other: ended[other] for other in ENGINES if other != engine}
        step = Step(engine, number, needs, command, f"{engine} command {number - 1}")
        if self._before_region is None and not (self._knobs.defers and engine == DMA):
            self.poll()
            self._run(step)
        elif self._knobs.defers or self._random is not None:
            self._held.append(step)
        else:
            self._run(step)
        self.steps.append(step)

    def _run(self, step: Step) -> None:
        command = step.command
        try:
            command.run(self._memories)
        except MachineError as error:
            raise MachineError(f"{step.name}, {error.where}", error.reason, error.remedy) from None
        if self._knobs.ignores_bounds:
            for name, operand in (*command.operands.items(), *command.results.items()):
                self._note_outside(step, name, operand)

    def _note_outside(self, step: Step, name: str, operand: Operand | Constant) -> None:
        if isinstance(operand, Constant):
            return
        outside = operand.addresses[~self._memories.inside(operand.addresses, operand.dtype.bytes)]
        if outside.size:
            reason = f"{step}: {outside.size} elements of {name} lie outside of its memory, from {outside.min():#x} on"
            self.findings.append(Finding(OUT_OF_RANGE, reason))


class Engine:
    """One engine's operations as functions: `engine.NAME(results.., operands.., attribute=..)`."""

    def __init__(self, tpu: Tpu, engine: str, prefix: str) -> None:
        self._tpu = tpu
        self._operations = {
            name.removeprefix(prefix): operation
            for name, operation in OPERATIONS.items()
            if operation.engine == engine and name.startswith(prefix)
        }

    def __getattr__(self, name: str) -> Callable[..., None]:
        operation = self._operations.get(name)
        if operation is None:
            raise AttributeError(f"there is no operation {name}; choose one of {', '.join(sorted(self._operations))}")
        return lambda *places, **named: self._tpu.issue(_command(operation, places, named))

    def __dir__(self) -> list[str]:
        return sorted(self._operations)


def _command(operation: Operation, places: tuple[Any, ...], named: Mapping[str, Any]) -> Command:
    """The call as a command; numbers become constants. Raises MachineError for more operands than there are."""
    order = (*operation.outputs, *operation.inputs)
    if len(places) > len(order):
        reason = f"{len(places)} operands are given, it has {', '.join(order)}"
        raise MachineError(operation.name, reason, "name attributes")
    given = dict(zip(order, places, strict=False)) | {name: named[name] for name in named if name in order}
    given = {name: operand for name, operand in given.items() if operand is not None}
    if operation.engine == HAU:
        given = {name: _in_ddr(operation, operand) for name, operand in given.items()}
    results = {name: given[name] for name in operation.outputs if name in given}
    first = next((operand.dtype for operand in given.values() if not isinstance(operand, int | float)), F32)
    floating = "scale" in operation.inputs
    operands: dict[str, Operand | Constant] = {}
    for name in operation.inputs:
        operand = given.get(name)
        if isinstance(operand, int | float):
            dtype = F32 if name == "offset" and floating else PARAMETERS.get(name, _type_of(given, operation, first))
            operands[name] = Constant.of(operand, dtype)
        elif operand is not None:
            operands[name] = operand
    if "y_before" in operation.inputs:  # what is not scattered to stays
        operands.setdefault("y_before", results["y"])
    attributes = {name: value for name, value in named.items() if name not in order}
    if isinstance(attributes.get("mode"), str):
        attributes["mode"] = rounding_of(attributes["mode"])
    return Command(operation, operands, results, attributes)


def _in_ddr(operation: Operation, operand: Any) -> Flat:
    """An operand of the sorting engine. Raises MachineError for one in local memory, or none."""
    if not isinstance(operand, Tensor) or operand.is_local:
        raise MachineError(operation.name, "it works from DDR to DDR", "give tensors outside of local memory")
    return Flat(operand)


def _type_of(given: Mapping[str, Any], operation: Operation, otherwise: DType) -> DType:
    """The type of the first operand that is no number."""
    tensors = (given[name] for name in operation.inputs if name in given)
    return next((operand.dtype for operand in tensors if not isinstance(operand, int | float)), otherwise)
