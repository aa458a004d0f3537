"""One launch of a kernel for the debugger. Its commands run on a copy of the memories from before the launch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from tilewright.array import Array, one_thread
from tilewright.errors import MachineError
from tilewright.sim.findings import Finding
from tilewright.sim.steps import Trace
from tilewright.sim.walk import PlacedTensor, Range
from tilewright.targets.bm1684x.debug.commands import LOCAL, CommandState, CommandWalk, Located, bytes_of, layout_of
from tilewright.targets.bm1684x.isa.elaborate import ElaboratedProgram
from tilewright.targets.bm1684x.layouts.tensor import Operand
from tilewright.targets.bm1684x.runtime.kernel import Kernel, Tpu
from tilewright.targets.bm1684x.runtime.recording import Launched, outcome_of
from tilewright.targets.bm1684x.values.memory import Memories

if TYPE_CHECKING:
    from tilewright.debug.session import Session


class KernelState(CommandState):
    """The memories of a device after some commands of a kernel (see sim.walk.State)."""

    machine: Memories

    def __init__(self, walk: KernelWalk, memories: Memories) -> None:
        super().__init__(walk, copy(memories))
        self._shared = {region.base for region in memories.regions}  # regions that share bytes with other states

    def execute(self, steps: Array) -> None:
        with one_thread():
            for row in steps.tolist():
                command = self.walk.steps[row].command
                for result in command.results.values():
                    self._make_private(int(result.addresses.flat[0]))
                command.run(self.machine)

    def copy(self) -> Self:
        duplicate = copy(self)
        self._shared = {region.base for region in self.machine.regions}
        duplicate._shared = set(self._shared)
        duplicate.machine = copy(self.machine)
        return duplicate

    def local(self) -> Array:
        (region,) = (memory for memory in self.machine.regions if memory.name == LOCAL)
        return region.data

    def dram(self, address: int, size: int) -> Array:
        region = self.machine.region_of(address, address + size)
        return region.data[address - region.base :][:size]

    @property
    def nbytes(self) -> int:
        return sum(len(region.data) for region in self.machine.regions if region.base not in self._shared)

    def _make_private(self, address: int) -> None:
        for region in self.machine.regions:
            if region.base <= address < region.end and region.base in self._shared:
                self._shared.remove(region.base)
                private = replace(region, data=region.data.copy())
                self.machine.regions = [private if memory is region else memory for memory in self.machine.regions]


class KernelWalk(CommandWalk):
    """The commands of one launch of a kernel. `before` are the memories at its start, `named` its arguments by name."""

    def __init__(
        self,
        name: str,
        launched: Launched,
        before: Memories,
        named: Mapping[str, Operand],
        refused: Mapping[int, str],
    ) -> None:
        super().__init__(name, (), launched.program, before.config)
        self._launched = launched
        self._before = before
        self._named = named
        self.refused = refused
        self._regions = launched.program.regions
        self.segments = tuple(self._segments())

    def _segments(self) -> Iterator[Range]:
        argument = {int(operand.addresses.flat[0]): name for name, operand in self._named.items()}
        for space, region in enumerate(self._regions):
            if region.name != LOCAL:
                # a piece of DDR has the name of the argument at its start
                name = argument.get(region.base, f"ddr{space}") if region.name == "DDR" else region.name
                yield Range(name, region.base, len(region.data), "memory", space, region.base)

    @property
    def findings(self) -> Sequence[Finding]:
        return self._launched.findings

    @property
    def trace(self) -> Trace | None:
        return self._launched.trace

    def text(self, step: int) -> str:
        return f"{super().text(step)}  # {self.steps[step].name}"

    def start(self) -> KernelState:
        return KernelState(self, self._before)

    def located(self, addresses: Array) -> Iterator[Located]:
        for space, region in enumerate(self._regions):
            inside = (addresses >= region.base) & (addresses < region.end)
            if inside.all():
                yield space, slice(None), addresses - region.base
                return
            if inside.any():
                yield space, inside, addresses[inside] - region.base

    def shown(self, space: int, element: int) -> str:
        config = self.config
        if self._regions[space].name != LOCAL:
            return super().shown(space, element)
        lane, byte = divmod(element, config.lane_bytes)
        return f"local[{lane}, {byte // config.bank_bytes}, {byte % config.bank_bytes}]"

    @property
    def tensors(self) -> Sequence[str]:
        return tuple(self._named)

    def place(self, tensor: str) -> PlacedTensor:
        operand = self._named[tensor]
        byte = bytes_of(operand.addresses, operand.dtype.bytes)
        dtype = operand.dtype.storage.str
        return PlacedTensor(tensor, "", byte, True, dtype, layout=f"{operand.dtype}, {layout_of(operand)}")


def debug(kernel: Kernel, memories: Memories, *arguments: Any) -> Session:
    """Run a kernel on a device's memories, as a launch does, and return a debugging session of its commands.

    If the machine refuses a command, the session ends at this command. Raises MachineError if the kernel fails in any
    other way.
    """
    memories.forget()
    before = copy(memories)
    before.regions = [replace(region, data=region.data.copy()) for region in memories.regions]
    tpu = Tpu(memories)
    error = None
    try:
        with one_thread():
            kernel.body(tpu, *arguments)
            tpu.end()
    except MachineError as caught:
        error = caught
    # A refused command is the last step of the session.
    ran = [tpu.ran.get((step.engine, step.id)) for step in tpu.steps]
    count = ran.index(None) if None in ran else len(ran)
    if error and count == len(ran):
        raise error
    steps = [step for step in ran if step is not None][:count] + tpu.steps[count : count + 1]
    knobs = replace(memories.knobs, out_of_bounds="ignore") if error else memories.knobs
    program = ElaboratedProgram.of(steps, before.regions, knobs)
    if not error:
        ElaboratedProgram.of(steps, memories.regions, knobs).mark_written()
    walk = KernelWalk(
        kernel.name,
        outcome_of(program, memories, tpu.findings),
        before,
        _named(kernel, arguments),
        {count: str(error)} if error else {},
    )
    session: Session = import_module("tilewright.debug.session").Session.of(walk, f"kernel {kernel.name} on bm1684x")
    return session


def _named(kernel: Kernel, arguments: Sequence[Any]) -> dict[str, Operand]:
    names = [*inspect.signature(kernel.body).parameters][1:]
    return {name: argument for name, argument in zip(names, arguments, strict=False) if hasattr(argument, "addresses")}
