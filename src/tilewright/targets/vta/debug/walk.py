"""A launch of VTA for the debugger: its instructions, memories, tensors and times (see sim/walk.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from tilewright.array import Array
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import StepTable, Trace
from tilewright.sim.walk import Placed, Range, Scratchpad, State, Walk, Wanted, by_name, refusals
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.debug.slices import backward
from tilewright.targets.vta.debug.state import VtaState
from tilewright.targets.vta.debug.tensors import Tensors
from tilewright.targets.vta.isa.text import instructions
from tilewright.targets.vta.launch.pack import unpack
from tilewright.targets.vta.passes import prepare
from tilewright.targets.vta.steps.moves import granule

#: What a tile of each memory is, in words.
LAYOUTS = {
    "uop": "one micro-op: the tiles dst, src, wgt",
    "alu_uop": "one micro-op: the tiles dst, src, wgt",
    "inp": "batch x input channel",
    "wgt": "output channel x input channel",
    "acc": "batch x output channel",
    "out": "batch x output channel",
    "par": "one row of output channels",
}
#: The most micro-ops that `details` lists.
LISTED = 8


def scratchpads(config: Config, table: StepTable) -> Mapping[str, Scratchpad]:
    """Return the on-chip memories of a machine by name. The step table has each as a space."""
    spaces = [space.name for space in table.spaces]
    chips = []
    for chip in config.chips:
        shape = (3,) if chip.name in ("uop", "alu_uop") else chip.shape
        dtype, space = f"int{max(8, chip.width)}", spaces.index(chip.name)
        chips.append(Scratchpad(chip.name, chip.depth, shape, dtype, LAYOUTS[chip.name], space))
    return by_name(*chips)


class VtaWalk(Walk):
    """One launch of a program with its inputs `packed`, one sample, by segment (see sim.walk.Walk)."""

    def __init__(
        self,
        program: Program,
        launch: Launch,
        image: LaunchImage,
        config: Config,
        values: Mapping[str, Array],
        packed: Mapping[str, Array],
        timing: str | None,
    ) -> None:
        self._image, self._launch, self._program, self._config = image, launch, program, config
        self._values, self._packed = values, packed
        options = RunOptions(timing, values=False, serial=False)
        self._prepared = prepare(image.insns, config, self._dram(), image.bases, options)
        self._elaborated = self._prepared.elaborated
        super().__init__(launch.name, launch.nodes, self._elaborated.table, self._prepared.order)
        if image.layer is not None:
            self.layer = image.layer
        self.memories = scratchpads(config, self.table)
        dram = [space.name for space in self.table.spaces].index("DRAM")
        self.segments = tuple(Range(each.name, each.address, each.size, each.kind, dram) for each in image.segments)
        self.granule = granule(config)

    @property
    def findings(self) -> Sequence[Finding]:
        return self._prepared.findings

    @property
    def trace(self) -> Trace | None:
        return self._prepared.trace

    @cached_property
    def refused(self) -> Mapping[int, str]:
        return refusals([*self._elaborated.findings, *(self._prepared.passes.outside or ())])

    def text(self, step: int) -> str:
        return instructions(self._image.insns[step : step + 1], self._config)[0]

    def details(self, step: int) -> list[str]:
        """Return a line for each of the first micro-ops that an instruction executes, loops included."""
        index = int(self._elaborated.kernel[step])
        if index < 0:
            return []
        kernel = self._elaborated.kernels[index]
        words = [f"{kernel.size} micro-ops"]
        for at in range(min(LISTED, kernel.size)):
            dst, src, wgt = int(kernel.dst[at]), int(kernel.src[at]), int(kernel.wgt[at])
            if not kernel.is_alu:
                operands = f"inp[{src}], wgt[{wgt}]"
            elif kernel.factors is not None:
                operands = f"par[{src}], par[{int(kernel.factors[at])}] and after"
            else:
                operands = f"acc[{src}]" if kernel.imm is None else f"{kernel.imm}"
            words.append(f"  acc[{dst}] with {operands}")
        return [*words, "  ..."] if kernel.size > LISTED else words

    def start(self) -> VtaState:
        return VtaState(self, self._elaborated, self._dram())

    def backward(self, step: int, wanted: Wanted) -> int:
        return backward(self._elaborated, step, wanted)

    @property
    def tensors(self) -> Sequence[str]:
        return self._held.names if self._held else ()

    def place(self, tensor: str) -> Placed:
        assert self._held is not None
        return self._held.placed(tensor)

    def value(self, state: State, tensor: str) -> Array:
        if self._held and self.placed(tensor).is_code:
            return self._held.codes(tensor, state.dram)
        return super().value(state, tensor)

    def sums(self, state: State, tensor: str) -> tuple[Array, Array] | None:
        return self._held.sums(tensor, state.dram) if self._held else None

    def unpacked(self, state: State) -> Mapping[str, Array]:
        assert self._program.graph is not None
        left = {name: state.machine.dram[name][:1] for name in self._image.outputs}
        return unpack(self._launch, self._program.graph, self._values, left, self._program.rounding)

    @cached_property
    def _held(self) -> Tensors | None:
        graph = self._program.graph
        if graph is None:
            return None
        return Tensors(self._launch, graph, self._image, self._elaborated.moves)

    def _dram(self) -> Dram:
        return self._image.dram(self._packed, 1)
