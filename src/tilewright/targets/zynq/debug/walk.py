"""A layer for the debugger, row by row and page by page (see sim/walk.py).

An instruction of the engine is a whole layer. The debugger divides it into *rows* and *services*. A row is the work on
one row of the result for some channels. In a service, the CPU moves one page. The memory `result` contains results in
the order of writing until the CPU moves them to DDR. The memory `frames` contains the page number of each frame of
block RAM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.causes import CAUSE_TOKEN
from tilewright.sim.findings import Finding
from tilewright.sim.order import order
from tilewright.sim.steps import READ, WRITE, Footprints, Space, StepTable, TokenQueue, Trace
from tilewright.sim.walk import PlacedTensor, Range, Scratchpad, State, Walk, by_name
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import STORES
from tilewright.targets.zynq.debug.steps import DDR, FRAMES, RESULTS, PageService, Row, steps
from tilewright.targets.zynq.launch import ZynqLaunch
from tilewright.targets.zynq.timing.service import AWAITED, PAGED, RESULT, UNITS
from tilewright.targets.zynq.values import machine


@dataclass
class Memories:
    """DDR, the page number of each frame of block RAM, int32 [1, frames], and the engine's results, [1, results]."""

    dram: Dram
    frames: Array
    result: Array


class ZynqState(State):
    """The state of a layer after some rows and services."""

    walk: ZynqWalk
    machine: Memories

    def execute(self, steps: Array) -> None:
        walk = self.walk
        machine = self.machine
        for step in steps.tolist():
            done = walk.steps[step]
            if isinstance(done, Row):
                machine.result[0, done.first : done.after] = walk.codes[done.first : done.after]
            elif done.store == RESULT:
                codes = machine.result[0, done.first : done.after].view(np.uint8)
                base = walk.base["result"] + done.first
                machine.dram.writable(1, base, 1, codes.size, 0, "DDR")[0, 0] = codes
            else:
                machine.frames[0, done.frames] = done.blocks


class ZynqWalk(Walk):
    """One layer with its input codes `data`, in the layer's input shape (see sim.walk.Walk)."""

    def __init__(self, launched: ZynqLaunch, data: Array) -> None:
        image = launched.image
        launch = launched.launch
        self._launched = launched
        self._image = image
        self._data = data
        layer = image.layer
        frames = len(STORES) * image.layer.config.frames
        self.steps, self._when = steps(layer, launched.timing == PAGED)
        self._dtype = np.dtype(np.int8 if layer["y_signed"] else np.uint8)
        sizes = {"data": layer.inputs, "weight": image.weight.size, "bias": 4 * image.bias.size}
        ends = np.cumsum([0, *sizes.values(), layer.outputs]).tolist()
        # All operands are contiguous in one space, DDR. `base` has the start of each operand.
        self.base = dict(zip((*sizes, "result"), ends, strict=False))
        kinds = {"data": "input", "weight": "const", "bias": "const", "result": "output"}
        self.segments = tuple(
            Range(name, low, high - low, kinds[name], DDR)
            for name, low, high in zip(kinds, ends, ends[1:], strict=False)
            if high > low
        )
        self.memories = by_name(
            Scratchpad("frames", frames, (), "int32", "page in a frame", FRAMES),
            Scratchpad("result", layer.outputs, (), self._dtype.name, "results as written", RESULTS),
        )
        table = self._table(ends[-1])
        super().__init__(launch.name, launch.nodes, table, order(table))

    @property
    def findings(self) -> Sequence[Finding]:
        return self._launched.findings()

    @cached_property
    def codes(self) -> Array:
        image = self._image
        results = machine.run(image.layer, self._data[None], image.weight, image.bias, image.factor)
        return results.reshape(-1)[placement.writing_order(image.layer)].view(self._dtype)

    @cached_property
    def trace(self) -> Trace | None:
        none = np.zeros(len(self.table), np.int64)
        when = self._when
        cause = np.where(when.wait > 0, when.cause + CAUSE_TOKEN, 0)
        return Trace(self.table, when.start, when.end, when.wait, cause, none, none, none, 0, when.cycles)

    def details(self, step: int) -> Sequence[str]:
        """Return text about the frames and pages of a service, or about the results of a row."""
        work = self.steps[step]
        if isinstance(work, Row):
            return [f"  results {work.first} to {work.after - 1} of {self._image.layer.outputs}"]
        return [f"  frames {work.frames.tolist()}: pages {work.blocks.tolist()}"] if work.frames.size else []

    def start(self) -> ZynqState:
        image = self._image
        outputs = self._image.layer.outputs
        parts = (self._data, image.weight, image.bias.astype("<i4"), np.zeros(outputs, np.uint8))
        content = np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])
        frames = np.full((1, self.memories["frames"].depth), -1, np.int32)
        dram = Dram([Segment("DDR", 0, content[None])])
        return ZynqState(self, Memories(dram, frames, np.zeros((1, outputs), self._dtype)))

    @cached_property
    def placements(self) -> Mapping[str, PlacedTensor]:
        """The placement of tensors in DDR. The input keeps its order, and results are in the order of writing."""
        if not self._launched.sites:
            return {}
        site = self._launched.sites[0]
        x, y = site.input(0), site.output
        read = np.arange(x.size).reshape(*x.shape, 1)
        written = self.base["result"] + placement.result(self._image.layer).where.reshape(*y.shape, 1)
        return {
            x.name: PlacedTensor(x.name, "", read, True, x.dtype, layout="as in the network"),
            y.name: PlacedTensor(y.name, self.layers[0], written, True, y.dtype, layout="in the order of writing"),
        }

    def _table(self, size: int) -> StepTable:
        layer = self._image.layer
        frames = self.memories["frames"].depth
        when = self._when
        held = layer.inputs + self._image.weight.size + 4 * self._image.bias.size
        return StepTable(
            units=UNITS,
            queues=tuple(TokenQueue(name, 1, 0, len(self.steps) + 1) for name in AWAITED),
            spaces=(
                Space("DRAM", size, ((0, held),)),
                Space("frames", frames, scratchpad="frames"),
                Space("result", layer.outputs, scratchpad="result"),
            ),
            unit=np.array([isinstance(step, PageService) for step in self.steps], np.int64),
            pops=when.pops,
            pushes=when.pushes,
            footprint=np.arange(len(self.steps)),
            footprints=Footprints.of(
                [np.array([*self._touched(step)], np.int64).reshape(-1, 6) for step in self.steps]
            ),
            describe=lambda step: str(self.steps[step]),
        )

    def _touched(self, step: Row | PageService) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Yield the footprint of a row or a service. In this model, a row reads operands from DDR instead of frames."""
        layer = self._image.layer
        if isinstance(step, Row):
            yield RESULTS, WRITE, step.first, step.after - step.first, 1, 0
            line = layer.inputs if not (layer.conv or layer.channels == 0) else layer["cols"] * layer["ic"]
            yield DDR, READ, step.top * line, (step.bottom - step.top) * line, 1, 0
            if layer.channels:
                kernels = step.high - step.low
                yield DDR, READ, self.base["weight"] + step.low * layer.kernel, kernels * layer.kernel, 1, 0
                yield DDR, READ, self.base["bias"] + 4 * step.low, 4 * kernels, 1, 0
        elif step.store == RESULT:
            yield RESULTS, READ, step.first, step.after - step.first, 1, 0
            yield DDR, WRITE, self.base["result"] + step.first, step.after - step.first, 1, 0
        else:
            for frame in step.frames.tolist():
                yield FRAMES, WRITE, frame, 1, 1, 0
