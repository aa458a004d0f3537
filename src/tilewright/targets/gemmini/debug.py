"""A launch for the debugger (`tilewright debug`): its primitive commands in the order of the reservation station."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.program.launch_image import Dram
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE, Finding
from tilewright.sim.order import order
from tilewright.sim.steps import READ, WRITE, Footprints, Space, StepTable, Trace
from tilewright.sim.walk import Scratchpad, State, by_name
from tilewright.targets.gemmini.config import UNITS
from tilewright.targets.gemmini.hazards import touch
from tilewright.targets.gemmini.isa.text import lines
from tilewright.targets.gemmini.isa.work import QUEUES
from tilewright.targets.gemmini.launch import GemminiLaunch
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.gemmini.values.machine import Machine
from tilewright.targets.launched import ImageWalk, dram_spaces

#: Spaces of the step table. SPAD and ACC have rows, ARRAY has one element, and the spaces from DRAM on have bytes.
SPAD, ACC, ARRAY, DRAM = range(4)


class GemminiState(State):
    """The memories after some steps of a launch."""

    walk: GemminiWalk
    machine: Machine

    def execute(self, steps: Array) -> None:
        self.machine.run(self.walk.passes.plan, np.asarray(steps, np.int64))

    def memory(self, name: str) -> Array:
        content = super().memory(name)
        return content.T if name == "array" else content


class GemminiWalk(ImageWalk):
    """A launch for one sample, whose inputs are in `dram`."""

    def __init__(self, launched: GemminiLaunch, dram: Dram) -> None:
        passes = launched.passes
        try:
            self.passes = Passes(passes.cmds, passes.config, passes.times.order)
        except MachineError:  # without times, step in program order up to the command that stops the machine
            self.passes = Passes(passes.cmds, passes.config)
        table = self._table(dram)
        super().__init__(launched, dram, table, order(table), DRAM)
        config = passes.config
        dim = passes.config.dim
        self.memories = by_name(
            Scratchpad("spad", config.all_spad_rows, (dim,), "int8", "a row of the array's width", SPAD),
            Scratchpad("acc", config.acc_rows, (dim,), "int32", "a row of the array's width", ACC),
            Scratchpad("array", dim, (dim,), "int32", "weights of an input; of os, sums of a row", -1),
        )

    @cached_property
    def refused(self) -> Mapping[int, str]:
        stops = (defect for defect in self.passes.hazards.defects if defect.kind in (DEADLOCK, OUT_OF_RANGE))
        return {defect.step: defect.reason for defect in stops}

    def _table(self, dram: Dram) -> StepTable:
        passes = self.passes
        config = self.passes.config
        text = lines(passes.prims)
        spaces = (
            Space("spad", config.all_spad_rows, scratchpad="spad"),
            Space("acc", config.acc_rows, scratchpad="acc"),
            Space("array", 1),
            *dram_spaces(dram),
        )
        none = np.zeros(len(text), np.int64)
        rows = Footprints.of(self._footprints(dram))
        unit = QUEUES[passes.work.code]
        steps = np.arange(len(text))
        return StepTable(UNITS, (), spaces, unit, none, none, steps, rows, lambda step: text[step])

    def _footprints(self, dram: Dram) -> list[Array]:
        """Return the footprint of each step, as rows (space, mode, base, length, count, stride)."""
        passes = self.passes
        config = self.passes.config
        computes = self.passes.work.computes
        rows = touch.touched(passes.work, config, preloads=False)
        acc = rows.first >= config.all_spad_rows
        ones = np.ones_like(rows.step)
        base = rows.first - acc * config.all_spad_rows
        parts = [np.stack([np.where(acc, ACC, SPAD), rows.mode, base, ones, rows.size, rows.stride], axis=1)]
        # The array counts as one element. A compute with fresh weights writes this element; other computes read it.
        keeps = READ | WRITE * ((computes.fresh == 1) | (computes.settings["dataflow"] == 0))
        mode = np.where((computes.fresh == 1) & (computes.settings["dataflow"] == 1), WRITE, keeps)
        whole = np.ones_like(mode)
        parts.append(np.stack([whole * ARRAY, mode, whole * 0, whole, whole, whole * 0], axis=1))
        bytes_ = touch.dram(passes.work)
        starts = np.array([segment.address for segment in dram.segments], np.int64)
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
        """Return text with the index of the program's command, which may be a hardware loop."""
        command = int(self.passes.hazards.source[step])
        loop = self.passes.prims[step, 0] != self.passes.cmds[command, 0]
        return [f"  command {command} of the program{', a hardware loop' if loop else ''}"]

    def start(self) -> GemminiState:
        return GemminiState(self, Machine(self.passes.config, self.before.copy(), 1))
