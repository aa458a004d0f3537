"""A launch of VTA for the debugger: its instructions, memories, tensors and times (see sim/walk.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from tilewright.array import Array, one_thread
from tilewright.graph.ir import Graph
from tilewright.program.launch_image import Dram
from tilewright.program.placement import NOWHERE, Placement
from tilewright.sim.findings import Finding
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import StepTable, Trace
from tilewright.sim.walk import PlacedTensor, Range, Scratchpad, SliceBits, State, Walk, by_name, refusals
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.debug.slices import backward
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory
from tilewright.targets.vta.isa.text import instructions
from tilewright.targets.vta.launch.layouts import NodeLayout, given_back
from tilewright.targets.vta.launch.pack import Result, filled, result_of
from tilewright.targets.vta.passes import VtaLaunch, prepare
from tilewright.targets.vta.steps.elaborate import Elaborated, fill
from tilewright.targets.vta.steps.moves import granule
from tilewright.targets.vta.values.actions import Action, plan
from tilewright.targets.vta.values.machine import Machine, matrices

#: The description of a tile of each memory.
LAYOUTS = {
    "uop": "one micro-op: the tiles dst, src, wgt",
    "alu_uop": "one micro-op: the tiles dst, src, wgt",
    "inp": "batch x input channel",
    "wgt": "output channel x input channel",
    "acc": "batch x output channel",
    "out": "batch x output channel",
    "par": "one row of output channels",
}
#: The maximum number of micro-ops that `details` lists.
LISTED = 8


def scratchpads(config: Config, table: StepTable) -> Mapping[str, Scratchpad]:
    """Return the on-chip memories of a machine by name, each with its space in the step table."""
    spaces = [space.name for space in table.spaces]
    chips = []
    for chip in config.chips:
        shape = (3,) if chip.name in ("uop", "alu_uop") else chip.shape
        dtype = f"int{max(8, chip.width)}"
        space = spaces.index(chip.name)
        chips.append(Scratchpad(chip.name, chip.depth, shape, dtype, LAYOUTS[chip.name], space))
    return by_name(*chips)


class Held(NamedTuple):
    """A tensor in DRAM: its placement, the address where it begins, and the layer's result (None: an input)."""

    place: Placement
    first: int
    result: Result | None = None


class VtaWalk(Walk):
    """One launch of a program with its inputs `values`, one sample (see sim.walk.Walk)."""

    def __init__(self, launched: VtaLaunch, values: Mapping[str, Array]) -> None:
        image = launched.image
        launch = launched.launch
        config = launched.config
        self._launched = launched
        self._image = image
        self._launch = launch
        self._values = values
        self._packed = launched.pack(values)
        options = RunOptions(launched.timing, values=False, serial=False)
        self._prepared = prepare(image.insns, config, self._dram(), image.bases, options)
        self._elaborated = self._prepared.elaborated
        super().__init__(launch.name, launch.nodes, self._elaborated.table, self._prepared.order)
        if image.layer is not None:
            self.layer = image.layer
        self.memories = scratchpads(config, self.table)
        dram = [space.name for space in self.table.spaces].index("DRAM")
        self.segments = tuple(
            Range(segment.name, segment.address, segment.size, segment.kind, dram) for segment in image.segments
        )
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
        return instructions(self._image.insns[step : step + 1], self._launched.config)[0]

    def details(self, step: int) -> list[str]:
        """Return a line for each of the first micro-ops that an instruction executes, loops included."""
        index = int(self._elaborated.kernel[step])
        if index < 0:
            return []
        kernel = self._elaborated.kernels[index]
        words = [f"{kernel.size} micro-ops"]
        for at in range(min(LISTED, kernel.size)):
            dst = int(kernel.dst[at])
            src = int(kernel.src[at])
            wgt = int(kernel.wgt[at])
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

    def backward(self, step: int, wanted: SliceBits) -> int:
        return backward(self._elaborated, step, wanted)

    @property
    def tensors(self) -> Sequence[str]:
        return tuple(self._held)

    def place(self, tensor: str) -> PlacedTensor:
        place, first, result = self._held[tensor]
        where = place.where.reshape(*self._graph.tensors[tensor].shape, -1)
        byte = np.where(where == NOWHERE, NOWHERE, first + where)
        return PlacedTensor(tensor, result.form.node if result else "", byte, result is None or result.form.codes)

    def value(self, state: State, tensor: str) -> Array:
        if not self.placed(tensor).is_code:
            return super().value(state, tensor)
        place, first, _ = self._held[tensor]
        codes = place.unpack(state.dram(first, place.nbytes)[None])[0]
        described = self._graph.tensors[tensor]
        return given_back(np.ascontiguousarray(codes.reshape(described.shape)), described)

    def sums(self, state: State, tensor: str) -> tuple[Array, Array] | None:
        self.placed(tensor)
        _, first, result = self._held[tensor]
        if result is None or result.form.codes or result.correction is None or result.clamped:
            return None
        sums = result.read(state.dram(first, result.place.nbytes)[None])[0]
        return sums.astype(np.int64), np.broadcast_to(result.correction, sums.shape).astype(np.int64)

    def unpacked(self, state: State) -> Mapping[str, Array]:
        left = {name: data[:1] for name, data in self._launched.left(state.machine.dram).items()}
        return self._launched.unpack(left, self._values)

    @property
    def _graph(self) -> Graph:
        assert self._launched.program.graph is not None
        return self._launched.program.graph

    @cached_property
    def _held(self) -> Mapping[str, Held]:
        """The tensors of the launch in DRAM: its inputs, then the results that layers store."""
        if self._launched.program.graph is None:
            return {}
        address = {segment.name: segment.address for segment in self._image.segments}
        held = {
            content.tensor: Held(content.place, address[content.segment])
            for content in filled(self._launch, self._graph)
            if content.kind == "input"
        }
        forms = NodeLayout.all_of(self._launch)
        for index, form in enumerate(forms):
            if form.result is None:
                first = self._stored_at(index, forms)
            else:
                first = address[form.result] + form.first * form.tile_bytes
            if first is not None:
                result = result_of(self._launch, self._graph, index, form)
                held[result.site.output.name] = Held(result.place, first, result)
        return held

    def _stored_at(self, index: int, forms: Sequence[NodeLayout]) -> int | None:
        """Return the first byte of codes that a layer stores for later layers; None if its result is not in DRAM."""
        form = forms[index]
        moved = self._elaborated.moves
        if not form.codes or any(later.computed_with == form.node for later in forms):
            return None  # a later node is computed together with this node, so only the later node's result is stored
        if form.computed_with:  # if there are several such nodes, the result of the last node is stored
            if any(later.computed_with == form.computed_with for later in forms[index + 1 :]):
                return None
            index = next(at for at, later in enumerate(forms) if later.node == form.computed_with)
        # The tiles of a result ascend in DRAM, from the first tile on.
        stores = moved.stores & (self.layer == index)
        return int(moved.address[stores].min()) if stores.any() else None

    def _dram(self) -> Dram:
        return self._image.dram(self._packed, 1)


#: Minimum micro-ops of an instruction that is worth a separate plan.
MANY = 1000


class VtaState(State):
    """The memories of one VTA after some instructions of a launch (see sim.walk.State).

    A single instruction or many instructions run by a plan of the value pass, so a long jump is as fast as a run.
    """

    machine: Machine

    def __init__(self, walk: Walk, program: Elaborated, dram: Dram) -> None:
        config = program.config
        super().__init__(walk, Machine(config, dram, 1))
        self._program = program
        self._caches = {memory: np.zeros((config.sram(memory).depth, 3), np.int64) for memory in UOP_MEMORIES}
        # Every reset is executed in full: unlike a run, the debugger shows the out memory even if no STORE reads it.
        # Exception: a reset whose operands lie outside their memories has no sum.
        _, inp, wgt = program.kernels.spans[1]
        resets = program.kernels.resets & (inp <= config.inp.depth) & (wgt <= config.wgt.depth)
        every = config.gemm_writes_out and config.rules.reset_writes_out and resets.any()
        self._resets = np.append(resets, False)[program.kernel] if every else np.zeros(len(program.kernel), np.bool_)

    def execute(self, steps: Array) -> None:
        program = self._program
        moves = self._program.moves
        # The debugger shows the micro-op caches, which the value pass does not keep.
        for step in steps[moves.of_uops[steps]].tolist():
            (move,) = moves.of(np.array([step]))
            fill(self._caches[Memory(move.memory)], program.config, self.machine.dram, move, step)
        with one_thread():
            if len(steps) == 1 and program.micro_ops[steps[0]] < MANY:
                self._execute_one(int(steps[0]))
            elif len(steps):
                stored = dict.fromkeys(steps[self._resets[steps]].tolist(), np.zeros(0, np.int64))
                self.machine.run(plan(program, steps, stored, 1))

    def _execute_one(self, step: int) -> None:
        """Execute one instruction. The plan of a single instruction would take longer than the instruction."""
        program = self._program
        kernel = int(program.kernel[step])
        if kernel >= 0:
            work = program.kernels[kernel]
            # A GEMM without micro-ops does nothing.
            if not (work.is_alu or work.size):
                return
            self.machine.run([Action(work, f"instruction {step}", bool(self._resets[step]))])
        elif program.moves.memory[step] >= 0 and not program.moves.of_uops[step]:
            self.machine.run([Action(program.moves.of(np.array([step]))[0], f"instruction {step}")])

    def copy(self) -> Self:
        copied = super().copy()
        copied._caches = {memory: cache.copy() for memory, cache in self._caches.items()}
        return copied

    def memory(self, name: str) -> Array:
        machine = self.machine
        config = self._program.config
        match name:
            case "uop" | "alu_uop":
                return self._caches[Memory.UOP if name == "uop" else Memory.ALU_UOP]
            case "inp":
                return machine.inp[0, : config.inp.depth]
            case "wgt":
                return matrices(machine.wgt)[0].swapaxes(-1, -2)
            case "out":
                tiles = machine.stored_tiles()[0]
                spare = config.acc.width - config.out.width  # bits that a STORE leaves out
                return (tiles << spare >> spare).astype(f"int{max(8, config.out.width)}")
            case "acc":
                return machine.acc[0]
            case _:
                return machine.par[0]
