"""A launch for the debugger (`tilewright debug`): the walk, which does not change, and the state at one moment.

The base class `Walk` (tilewright/sim/walk.py) answers all questions that the step table and the times answer. Here are
the memories, the instructions' execution, and where the tensors of the network lie in DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.sim.findings import OUT_OF_RANGE, Finding
from tilewright.sim.passes import Passes, RunOptions
from tilewright.sim.steps import Trace
from tilewright.sim.walk import Placed, Range, Scratchpad, State, Walk

from . import codegen, timing
from .config import Config
from .isa import ISA
from .machine import ACC, BUF, DRAM, Machine


class OneMacState:
    """The memories after some instructions of a launch, for one sample (see sim.walk.State)."""

    def __init__(self, walk: OneMacWalk, machine: Machine) -> None:
        self._walk, self._machine = walk, machine

    def execute(self, steps: Array) -> None:
        self._machine.run(self._walk.columns, steps.tolist())

    def copy(self) -> OneMacState:
        return OneMacState(self._walk, self._machine.copy())

    def memory(self, name: str) -> Array:
        return self._machine.buf[0] if name == "buf" else self._machine.acc[0]

    def dram(self, address: int, size: int) -> Array:
        return self._machine.dram.window(address, 1, size, 0, "DRAM")[0, 0]

    def outputs(self) -> Mapping[str, Array]:
        left = {"acc": self._machine.dram["acc"][:1]}
        return codegen.unpack(self._walk.site, left, self._walk.rounding) if self._walk.site else left

    @property
    def nbytes(self) -> int:
        return self._machine.buf.nbytes + self._machine.acc.nbytes + self._machine.dram.own_bytes


class OneMacWalk(Walk):
    """One launch with its inputs in `dram`, for one sample; `site` is the node that it computes (None: no network)."""

    def __init__(
        self,
        name: str,
        image: LaunchImage,
        config: Config,
        dram: Dram,
        passes: Passes,
        site: Site | None,
        rounding: str,
    ) -> None:
        self.name, self.layers, self.site, self.rounding = name, (name,), site, rounding
        self.columns = ISA.decode(image.insns)
        self._config, self._dram, self._passes = config, dram, passes
        self.table, self.order = passes.table, passes.order
        self.layer = np.zeros(len(self.table), np.int64)
        self.memories = {
            "buf": Scratchpad("buf", config.buffer_bytes, (), "int8", "one byte", BUF),
            "acc": Scratchpad("acc", config.accumulators, (), "int32", "one sum", ACC),
        }
        kinds = {segment.name: segment.kind for segment in image.segments}
        self.segments = tuple(
            Range(own.name, own.address, own.end - own.address, kinds[own.name], DRAM + index, own.address)
            for index, own in enumerate(dram.segments)
        )
        outside = (found for found in self.findings if found.kind == OUT_OF_RANGE and found.steps)
        self.refused = {found.steps[0]: found.message for found in outside}

    @property
    def findings(self) -> Sequence[Finding]:
        return self._passes.findings(RunOptions(next(iter(timing.MODELS)), values=False))

    @property
    def trace(self) -> Trace | None:
        return self._passes.trace

    def start(self) -> OneMacState:
        return OneMacState(self, Machine(self._config, self._dram.copy(), 1))

    @property
    def tensors(self) -> Sequence[str]:
        return (self.site.input(0).name, self.site.output.name) if self.site else ()

    def placed(self, tensor: str) -> Placed:
        """Return where a tensor lies: the codes of the input, or the sums of the output, four bytes each."""
        if self.site is None or tensor not in self.tensors:
            return super().placed(tensor)
        own, node, segment = self.site.output, self.site.node.name, "acc"
        if tensor != own.name:
            own, node, segment = self.site.input(0), "", "x"
        size = 4 if node else 1
        first = next(part.address for part in self.segments if part.name == segment)
        return Placed(tensor, node, first + np.arange(own.size * size).reshape(*own.shape, size), not node)

    def value(self, state: State, tensor: str) -> Array:
        if self.placed(tensor).node:
            return state.outputs()[tensor][0]
        return self._words(state, tensor, "i1")

    def sums(self, state: State, tensor: str) -> tuple[Array, Array] | None:
        """Return the sums of the output. Their offset is 0: the machine subtracts the zero points itself."""
        sums = self._words(state, tensor, "<i4").astype(np.int64)
        return sums, np.zeros_like(sums)

    def _words(self, state: State, tensor: str, dtype: str) -> Array:
        byte = self.placed(tensor).byte
        return state.dram(int(byte.min()), byte.size).view(dtype).reshape(byte.shape[:-1])
