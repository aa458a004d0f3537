"""A launch of VTA for the debugger: its instructions, memories, tensors and times (see sim/walk.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.program.program import Launch, Program
from tilewright.sim.findings import OUT_OF_RANGE, Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import Trace
from tilewright.sim.walk import Placed, Range, Scratchpad, State, Walk, Wanted
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.debug.slices import backward
from tilewright.targets.vta.debug.state import VtaState
from tilewright.targets.vta.debug.tensors import Tensors
from tilewright.targets.vta.isa.text import instructions
from tilewright.targets.vta.launch.pack import unpack
from tilewright.targets.vta.passes import prepare
from tilewright.targets.vta.steps.micro_kernel import GemmKernel
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
        self.name, self._image, self._launch, self._program = launch.name, image, launch, program
        self._values, self._packed = values, packed
        self._options = RunOptions(timing, values=False, serial=False)
        self._prepared = prepare(image.insns, config, self._dram(), image.bases, self._options)
        self._elaborated = elaborated = self._prepared.elaborated
        self._config = config
        self.table, self.order = elaborated.table, self._prepared.order
        self.layers = launch.nodes or (launch.name,)
        count = len(self.table)
        self.layer = np.zeros(count, np.int64) if image.layer is None else image.layer
        spaces = [space.name for space in self.table.spaces]
        self.memories: Mapping[str, Scratchpad] = {
            chip.name: Scratchpad(
                chip.name,
                chip.depth,
                (3,) if chip.name in ("uop", "alu_uop") else chip.shape,
                f"int{max(8, chip.width)}",
                LAYOUTS[chip.name],
                spaces.index(chip.name),
            )
            for chip in config.chips
        }
        dram = spaces.index("DRAM")
        self.segments = tuple(Range(each.name, each.address, each.size, each.kind, dram) for each in image.segments)
        self.granule = granule(config)
        unsound = (*elaborated.findings, *(self._prepared.passes.outside or ()))
        wrong = (each for each in unsound if each.kind == OUT_OF_RANGE and each.steps)
        self.refused: Mapping[int, str] = {each.steps[0]: each.message for each in wrong}

    @property
    def findings(self) -> Sequence[Finding]:
        return self._prepared.findings

    @cached_property
    def trace(self) -> Trace | None:
        """The times of all instructions; None if the launch cannot run to its end."""
        return self._prepared.trace

    def text(self, step: int) -> str:
        """Return an instruction as `disasm` prints it."""
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
            if isinstance(kernel, GemmKernel):
                operands = f"inp[{src}], wgt[{wgt}]"
            elif kernel.factors is not None:
                operands = f"par[{src}], par[{int(kernel.factors[at])}] and after"
            else:
                operands = f"acc[{src}]" if kernel.imm is None else f"{kernel.imm}"
            words.append(f"  acc[{dst}] with {operands}")
        return [*words, "  ..."] if kernel.size > LISTED else words

    def start(self) -> VtaState:
        """Return the state before the first instruction."""
        return VtaState(self._elaborated, self._dram(), self._unpacked)

    def backward(self, step: int, wanted: Wanted) -> int:
        """Go back over one instruction (see sim.walk.Walk.backward)."""
        return backward(self._elaborated, step, wanted)

    @property
    def tensors(self) -> Sequence[str]:
        """The names of the tensors that the launch reads or computes in DRAM."""
        return self._tensors.names if self._tensors else ()

    def placed(self, tensor: str) -> Placed:
        """Return where a tensor lies. Raises InputError, with the known names, if the launch does not hold it."""
        return self._held.placed(tensor)

    def value(self, state: State, tensor: str) -> Array:
        """Return a tensor's codes as the machine holds them at this moment. Raises InputError as `placed` does."""
        if self.placed(tensor).is_code:
            return self._held.codes(tensor, state.dram)
        return state.outputs()[tensor][0]

    def sums(self, state: State, tensor: str) -> tuple[Array, Array] | None:
        """Return a tensor's sums as they lie in DRAM, and their offset (see sim.walk.Walk.sums)."""
        return self._held.sums(tensor, state.dram)

    @cached_property
    def _tensors(self) -> Tensors | None:
        graph = self._program.graph
        if graph is None:
            return None
        return Tensors(self._launch, graph, self._image, self._elaborated.moves)

    @property
    def _held(self) -> Tensors:
        if self._tensors is None:
            raise InputError("tensors", "this program has no network", "show DRAM by address or segment")
        return self._tensors

    def _dram(self) -> Dram:
        return self._image.dram(self._packed, 1)

    def _unpacked(self, dram: Dram) -> Mapping[str, Array]:
        left = {name: dram[name][:1] for name in self._image.outputs}
        graph = self._program.graph
        return unpack(self._launch, graph, self._values, left, self._program.rounding) if graph else left
