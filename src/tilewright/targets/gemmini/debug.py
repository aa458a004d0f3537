"""A launch for the debugger (`tilewright debug`): its primitive commands in the order of the reservation station."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.graph.ir import Site
from tilewright.program.launch_image import Dram, LaunchImage
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE, Finding
from tilewright.sim.order import order
from tilewright.sim.steps import READ, WRITE, Footprints, Space, StepTable, Trace
from tilewright.sim.walk import Placed, Range, Scratchpad, State, Walk
from tilewright.targets.gemmini.compiler import unpack
from tilewright.targets.gemmini.hazards import touch
from tilewright.targets.gemmini.isa.text import lines
from tilewright.targets.gemmini.passes import UNITS, Passes
from tilewright.targets.gemmini.values.machine import Machine

#: Spaces of the step table: rows of the memories, the array as a whole, and bytes of each segment from DRAM on.
SPAD, ACC, ARRAY, DRAM = range(4)


class GemminiState:
    """The memories after some commands of a launch, for one sample (see sim.walk.State)."""

    def __init__(self, walk: GemminiWalk, machine: Machine) -> None:
        self._walk, self._machine = walk, machine

    def execute(self, steps: Array) -> None:
        self._machine.run(self._walk.passes.plan, np.asarray(steps, np.int64))

    def copy(self) -> GemminiState:
        return GemminiState(self._walk, self._machine.copy())

    def memory(self, name: str) -> Array:
        held: Array = getattr(self._machine, name)[0]
        return held.T if name == "array" else held

    def dram(self, address: int, size: int) -> Array:
        return self._machine.dram.window(address, 1, size, 0, "DRAM")[0, 0]

    def outputs(self) -> Mapping[str, Array]:
        walk = self._walk
        left = {name: self._machine.dram[name][:1] for name in walk.image.outputs}
        return unpack(*walk.sites, left, walk.rounding) if walk.sites else left

    @property
    def nbytes(self) -> int:
        machine = self._machine
        return machine.spad.nbytes + machine.acc.nbytes + machine.array.nbytes + machine.dram.own_bytes


class GemminiWalk(Walk):
    """One launch with its inputs in `dram`, for one sample; `sites`: its first and its last node (None: no network)."""

    def __init__(
        self,
        name: str,
        image: LaunchImage,
        passes: Passes,
        dram: Dram,
        sites: tuple[Site, Site] | None,
        rounding: str,
    ) -> None:
        self.name, self.layers, self.sites, self.rounding = name, (name,), sites, rounding
        self.image, self._dram = image, dram
        try:
            passes = Passes(passes.cmds, passes.config, passes.times.order)
        except (
            MachineError
        ):  # it has no time, or does not come to its end: the commands can be walked up to the one that stops
            passes = Passes(passes.cmds, passes.config)
        self.passes = passes
        self.table = self._table()
        self.order = order(self.table)
        self.layer = np.zeros(len(self.table), np.int64)
        config, dim = passes.config, passes.config.dim
        self.memories = {
            "spad": Scratchpad("spad", config.all_spad_rows, (dim,), "int8", "a row of the array's width", SPAD),
            "acc": Scratchpad("acc", config.acc_rows, (dim,), "int32", "a row of the array's width", ACC),
            "array": Scratchpad("array", dim, (dim,), "int32", "weights of an input; of os, sums of a row", -1),
        }
        kinds = {segment.name: segment.kind for segment in image.segments}
        self.segments = tuple(
            Range(own.name, own.address, own.end - own.address, kinds[own.name], DRAM + index, own.address)
            for index, own in enumerate(dram.segments)
        )
        stops = [one for one in passes.hazards.defects if one.kind in (DEADLOCK, OUT_OF_RANGE)]
        self.refused = {one.step: one.reason for one in stops}

    def _table(self) -> StepTable:
        passes, config = self.passes, self.passes.config
        text = lines(passes.prims)
        spaces = [
            Space("spad", config.all_spad_rows, scratchpad="spad"),
            Space("acc", config.acc_rows, scratchpad="acc"),
        ]
        spaces.append(Space("array", 1))
        for segment in self._dram.segments:
            size = segment.end - segment.address
            spaces.append(Space(f"DRAM {segment.name}", size, ((0, size),) if segment.initialised else ()))
        none = np.zeros(len(text), np.int64)
        rows = Footprints.of(self._footprints())
        unit, steps = touch.QUEUES[passes.work.code], np.arange(len(text))
        return StepTable(UNITS, (), tuple(spaces), unit, none, none, steps, rows, lambda step: text[step])

    def _footprints(self) -> list[Array]:
        """Return the footprint of each step: rows (space, mode, base, length, count, stride)."""
        passes, config, computes = self.passes, self.passes.config, self.passes.work.computes
        rows = touch.touched(passes.work, config, preloads=False)
        acc = rows.first >= config.all_spad_rows
        one = np.ones_like(rows.step)
        base = rows.first - acc * config.all_spad_rows
        parts = [np.stack([np.where(acc, ACC, SPAD), rows.mode, base, one, rows.size, rows.stride], axis=1)]
        keeps = READ | WRITE * ((computes.fresh == 1) | (computes.own["dataflow"] == 0))
        mode = np.where((computes.fresh == 1) & (computes.own["dataflow"] == 1), WRITE, keeps)
        whole = np.ones_like(mode)
        parts.append(np.stack([whole * ARRAY, mode, whole * 0, whole, whole, whole * 0], axis=1))
        bytes_ = touch.dram(passes.work, config)
        starts = np.array([segment.address for segment in self._dram.segments], np.int64)
        home = np.maximum(np.searchsorted(starts, bytes_.first, side="right") - 1, 0)
        first = bytes_.first - starts[home] if len(starts) else bytes_.first
        unit = np.ones_like(home)
        parts.append(np.stack([DRAM + home, bytes_.mode, first, bytes_.size, unit, unit * 0], axis=1))
        step = np.concatenate([rows.step, computes.step, bytes_.step])
        by = np.argsort(step, kind="stable")
        cuts = np.searchsorted(step[by], np.arange(1, len(passes.prims)))
        return np.split(np.concatenate(parts)[by], cuts)

    @property
    def findings(self) -> Sequence[Finding]:
        return self.passes.hazards.findings

    @cached_property
    def trace(self) -> Trace | None:
        return self.passes.trace if self.passes.order is not None else None

    def details(self, step: int) -> Sequence[str]:
        """Return the number of the command of the program, and whether a hardware loop issued this one."""
        own = int(self.passes.hazards.source[step])
        loop = self.passes.prims[step, 0] != self.passes.cmds[own, 0]
        return [f"  command {own} of the program{', a hardware loop' if loop else ''}"]

    def start(self) -> GemminiState:
        return GemminiState(self, Machine(self.passes.config, self._dram.copy(), 1))

    @property
    def tensors(self) -> Sequence[str]:
        return (self.sites[0].input(0).name, self.sites[1].output.name) if self.sites else ()

    def placed(self, tensor: str) -> Placed:
        """Return where a tensor lies: codes, or the sums of the output, four bytes each."""
        if self.sites is None or tensor not in self.tensors:
            return super().placed(tensor)
        first, last = self.sites
        own, node, name = last.output, last.node.name, "y"
        if tensor != own.name:
            own, node, name = first.input(0), "", "x"
        segment = next(part for part in self.segments if part.name == name)
        size = segment.size // own.size
        return Placed(tensor, node, segment.address + np.arange(own.size * size).reshape(*own.shape, size), not node)

    def value(self, state: State, tensor: str) -> Array:
        return state.outputs()[tensor][0] if self.placed(tensor).node else self._words(state, tensor, "i1")

    def sums(self, state: State, tensor: str) -> tuple[Array, Array] | None:
        """Return the sums of the output, if it was stored as sums. Their offset is 0: it is in them."""
        if self.placed(tensor).byte.shape[-1] == 1:
            return None
        sums = self._words(state, tensor, "<i4").astype(np.int64)
        return sums, np.zeros_like(sums)

    def _words(self, state: State, tensor: str, dtype: str) -> Array:
        byte = self.placed(tensor).byte
        return state.dram(int(byte.min()), byte.size).view(dtype).reshape(byte.shape[:-1])
