"""The operands that a job loads before its products: the tile's input, and offsets in the accumulator."""

from __future__ import annotations

from collections import deque
from itertools import accumulate, pairwise
from typing import NamedTuple

from tilewright.array import Array
from tilewright.schedule import Range, ranges
from tilewright.targets.gemmini.compiler.streams.issue import INPUTS, OFFSETS, Issue
from tilewright.targets.gemmini.compiler.streams.places import InputBuffer
from tilewright.targets.gemmini.compiler.streams.shape import Job, Shape, Step, Tile, split
from tilewright.targets.gemmini.config import ACC_BYTES
from tilewright.targets.gemmini.isa.macros import acc


class Addresses(NamedTuple):
    """DRAM addresses of inputs, weights, offsets and results."""

    x: int
    w: int
    d: int
    y: int


class Inputs:
    """The input of a tile for the groups of a part, loaded by lines (rows of areas).

    The first chunks of a layer are loaded block by block, so that products begin early. Later loads have the full
    width. `turn` is the index of the (part, tile) pair.
    """

    def __init__(
        self, shape: Shape, issue: Issue, input_buffer: InputBuffer, x: int, turn: int, part: Range, tile: Tile
    ) -> None:
        self.shape = shape
        self.part = part
        self.tile = tile
        self.turn = turn
        self._issue = issue
        self._input_buffer = input_buffer
        self._x = x
        inputs = shape.layer.group[0]
        every = shape.layer.channels[0]
        self._depth = min(part.size * inputs, every - part.first * inputs)
        #: For each line, the scratchpad row of the first pixel, and the cycle in which the line arrives.
        self._arrived: dict[tuple[int, int, int], list[tuple[int, float]]] = {}
        self._wanted = deque(
            (block, area, line)
            for block in range(0, -(-self._depth // shape.config.dim), shape.config.spad_blocks)
            for area, copy in enumerate(shape.areas)
            for line in range(tile.out[2] + copy.extra)
        )

    def chunk(self, block: int) -> int:
        """Return the number of the chunk with a block of channels. Chunks are numbered across all tiles."""
        return self.turn * self.shape.chunks + block // self.shape.config.spad_blocks

    def place(self, block: int, area: int) -> int:
        shape = self.shape
        within = block % shape.config.spad_blocks * shape.places[-1]
        return self._input_buffer.place[self.chunk(block)] + within + shape.places[area]

    def ready(self, job: Job, step: Step, block: int) -> float:
        """Load the lines of a step that are missing, and return the cycle in which the step's products may begin."""
        ready = 0.0
        width = self.tile.out[3]
        first, last = (step.below + pixel // width for pixel in (job.pixel, job.pixel + job.pixels - 1))
        for line in range(first, last + 1):
            if (block, step.area, line) not in self._arrived:
                self._load(block, step.area, line)
            # The array takes one pixel per cycle, so pixel k of the job may arrive k cycles after the start.
            for column, when in self._arrived[block, step.area, line]:
                ready = max(ready, when - max(0, (line - step.below) * width + column - job.pixel))
        return ready

    def prefetch(self, now: float) -> bool:
        """Load the next line if its rows are free in cycle `now`. Return whether the line was loaded."""
        while self._wanted and self._wanted[0] in self._arrived:
            self._wanted.popleft()
        if not self._wanted or not self._input_buffer.take(self.chunk(self._wanted[0][0]), now):
            return False
        self._load(*self._wanted.popleft(), now)
        return True

    @property
    def complete(self) -> bool:
        return not self._wanted

    def _load(self, block: int, index: int, line: int, now: float = 0.0) -> None:
        """Load a line for a block of channels, and for all other blocks that the same load covers."""
        shape = self.shape
        layer = self.shape.layer
        config = self.shape.config
        wide = config.spad_blocks
        area = shape.areas[index]
        window = layer.window
        if self.turn == 0 and block < wide:
            low, high = block, block + 1
        else:
            low = block - block % wide
            high = min(low + wide, -(-self._depth // config.dim))
        self._input_buffer.take(self.chunk(low))
        columns = min((high - low) * config.dim, self._depth - low * config.dim)
        if layer.pixels > 1:
            columns = min(layer.pixels, window.kernel[1] - area.column) * layer.group[0]
        y, x, _, width = self.tile.out
        row = (y + line) * window.stride[0] + area.phase - window.padding[0]
        begin = x * window.stride[1] + area.column * window.dilation[1] - window.padding[2]
        step = window.stride[1]
        inside = range(0)  # the pixels inside the image
        if 0 <= row < layer.size[0]:
            inside = range(max(0, -(begin // step)), min(width, (layer.size[1] - 1 - begin) // step + 1))
        edges = (0, inside.start, inside.stop, width) if inside else (0, 0, 0, width)
        stride = step * layer.channels[0]
        place = self.place(low, index) + line * width
        dram = self._x + ((self.tile.image * layer.size[0] + row) * layer.size[1] + begin) * layer.channels[0]
        dram += self.part.first * layer.group[0] + low * config.dim
        beats = -(-columns // config.bus_bytes) + (stride % config.bus_bytes > 0)
        free = max(now, self._input_buffer.free[self.chunk(low)])
        arrivals = list[tuple[int, float]]()
        for side, (left, right) in enumerate(pairwise(edges)):
            for piece in ranges(right - left, config.dim):
                at = left + piece.first
                address = dram + at * stride if side == 1 else 0
                when = self._issue.load(free, INPUTS, address, place + at, columns, piece.size, beats)
                arrivals.append((at, when))
        for loaded in range(low, high):
            self._arrived[loaded, index, line] = arrivals


class Sums:
    """The sums of a job, which begin at accumulator row `place`. The offsets of the sums arrive in cycle `ready`.

    For each accumulator row, `stored` has the cycle of the last store.
    """

    def __init__(self, shape: Shape, issue: Issue, stored: Array, d: int, job: Job, place: int) -> None:
        self.shape = shape
        self.job = job
        self.place = place
        self.ready = 0.0
        self.blocks = split(job.pixels, shape.config.dim)
        self._issue = issue
        self._stored = stored
        self._d = d
        begins = list(accumulate(self.blocks, initial=0))[:-1]
        self._pieces = deque(
            (block, *piece)
            for block in range(job.first, job.first + job.blocks)
            for piece in zip(begins, self.blocks, strict=True)
        )

    def row(self, block: int) -> int:
        return self.place + (block - self.job.first) * self.job.pixels

    def complete(self) -> None:
        while self._pieces:
            self._load(0.0)

    def prefetch(self, now: float) -> bool:
        """Load the next offsets if their rows are free in cycle `now`. Return whether offsets were loaded."""
        if not self._pieces or not self.shape.biased or self._free() > now:
            return False
        self._load(now)
        return True

    def _free(self) -> float:
        block, first, rows = self._pieces[0]
        at = self.row(block) + first
        return float(self._stored[at : at + rows].max()) + 1

    def _load(self, now: float) -> None:
        free = max(now, self._free())
        block, first, rows = self._pieces.popleft()
        if self.shape.biased:
            group = self.job.group
            address = self._d + (group * self.shape.layer.group[1] + block * self.shape.config.dim) * ACC_BYTES
            columns = self.shape.width(group, block)
            free = self._issue.load(free, OFFSETS, address, acc(self.row(block) + first), columns, rows)
        self.ready = max(self.ready, free)
