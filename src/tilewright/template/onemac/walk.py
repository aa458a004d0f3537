"""A launch for the debugger (`tilewright debug`): the walk, which does not change, and the state at one moment.

The base class `Walk` (tilewright/sim/walk.py) answers all questions that the step table and the times answer. Here are
the memories, the instructions' execution, and where the tensors of the network lie in DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import cached_property

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.sim.findings import Finding
from tilewright.sim.passes import Passes, RunOptions
from tilewright.sim.steps import Trace
from tilewright.sim.walk import Placed, Scratchpad, State, Walk, by_name, in_order, own_spaces

from . import codegen, timing
from .config import Config
from .isa import ISA
from .machine import ACC, BUF, DRAM, Machine


class OneMacState(State):
    """The memories after some instructions of a launch."""

    walk: OneMacWalk
    machine: Machine

    def execute(self, steps: Array) -> None:
        self.machine.run(self.walk.columns, steps.tolist())


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
        super().__init__(name, (), passes.table, passes.order)
        self.columns = ISA.decode(image.insns)
        self.memories = by_name(
            Scratchpad("buf", config.buffer_bytes, (), "int8", "one byte", BUF),
            Scratchpad("acc", config.accumulators, (), "int32", "one sum", ACC),
        )
        self.segments = own_spaces(map(astuple, image.segments), DRAM)
        self._config, self._dram, self._passes = config, dram, passes
        self._site, self._rounding = site, rounding

    @property
    def findings(self) -> Sequence[Finding]:
        return self._passes.findings(RunOptions(next(iter(timing.MODELS)), values=False))

    @property
    def trace(self) -> Trace | None:
        return self._passes.trace

    def start(self) -> OneMacState:
        return OneMacState(self, Machine(self._config, self._dram.copy(), 1))

    @cached_property
    def placements(self) -> Mapping[str, Placed]:
        """Where the tensors lie: the codes of the input, and the sums of the output."""
        if self._site is None:
            return {}
        x, y, parts = self._site.input(0), self._site.output, {part.name: part for part in self.segments}
        sums = in_order(y.name, self._site.node.name, y.shape, parts["acc"])
        return {x.name: in_order(x.name, "", x.shape, parts["x"]), y.name: sums}

    def unpacked(self, state: State) -> Mapping[str, Array]:
        assert self._site is not None
        return codegen.unpack(self._site, {"acc": state.machine.dram["acc"][:1]}, self._rounding)
