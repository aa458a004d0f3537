"""Matrix products and convolutions by explicit commands.

The scratchpad contains a copy of a tile's input for each pair of a kernel column and a phase of the row stride. A copy
has no gaps, so each product reads consecutive rows, and blocks of A are full for every width of the image. Weights use
a ring buffer in the scratchpad. Sums alternate between the halves of the accumulator.

`shape.py` derives tiles, jobs and steps from a layer. `stage.py` loads a job's inputs and offsets into rows that
`places.py` assigns. `issue.py` gives each command a time, and sorts the program by these times. `_Emission` drives all
of these modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, cycle, product

import numpy as np

from tilewright.array import Array
from tilewright.schedule import ranges
from tilewright.targets.gemmini.compiler.convolutions import MOST, MOST_POOLED, NO_POOL
from tilewright.targets.gemmini.compiler.requantise import RequantisingStore
from tilewright.targets.gemmini.compiler.streams.issue import SCALED, WEIGHTS, Group, Issue
from tilewright.targets.gemmini.compiler.streams.places import InputBuffer, Ring
from tilewright.targets.gemmini.compiler.streams.shape import Job, Shape, Tile
from tilewright.targets.gemmini.compiler.streams.stage import Addresses, Inputs, Sums
from tilewright.targets.gemmini.config import ACC_BYTES, Config
from tilewright.targets.gemmini.isa.macros import WEIGHT_STATIONARY, Commands, acc

#: If the array uses the weights of a load for at least SLOW cycles, fewer loads of weights are issued ahead.
SLOW = 128
#: The number of loads of weights that are issued ahead of the products, for each number of lanes: for loads with few
#: products, then with many (see SLOW). With these numbers, no load writes to a lane that the array reads.
AHEAD = {2: (5, 3), 3: (5, 2)}
#: Without `eager`, no inputs are prefetched during this number of cycles at the end of a group of products. The writes
#: of such loads would occupy the port of banks that the next group reads.
SPARED = 64


class _Emission:
    """The jobs of a convolution (`work`), and the modelled state of the scratchpad, the accumulator and the units."""

    def __init__(self, shape: Shape, to: Addresses) -> None:
        self.shape = shape
        self.to = to
        self.issue = Issue(shape.config)
        self.input_buffer = InputBuffer(shape.lanes[0], shape.chunk)
        self.ring = Ring(shape.lanes[1])
        self.stored = np.zeros(shape.config.acc_rows)
        self.arrives: dict[int, float] = {}  # for each load of weights, the cycle of its arrival
        self.pooling: tuple[int, ...] = ()
        self.inputs = [
            Inputs(shape, self.issue, self.input_buffer, to.x, turn, *which) for turn, which in enumerate(shape.turns)
        ]
        halves = cycle((0, shape.config.acc_rows // 2))
        last = self.inputs[-1]
        self.work = [
            (inputs, Sums(shape, self.issue, self.stored, to.d, job, next(halves)))
            for inputs in self.inputs
            for job in shape.jobs(inputs.part, inputs.tile, inputs is last)
        ]
        unit = shape.units[0]
        served = max(shape.most[0] * shape.most[1], shape.config.dim) * min(shape.blocks, unit.blocks) * unit.steps
        self.ahead = AHEAD[len(shape.lanes[1])][served >= SLOW]
        self.coming = self._weights()
        self.loading = 1
        self.before = -1

    def run(self) -> Array:
        """Return the commands after the initial config commands, uint64 [n, 3]."""
        for nth, (inputs, sums) in enumerate(self.work):
            after = self.work[nth + 1] if nth + 1 < len(self.work) else None
            self._job(inputs, sums, after)
            self._store_results(inputs.tile, sums)
        return self.issue.array()

    def _job(self, inputs: Inputs, sums: Sums, after: tuple[Inputs, Sums] | None) -> None:
        shape = self.shape
        issue = self.issue
        job = sums.job
        below = (job.group - inputs.part.first) * shape.layer.group[0] // shape.config.dim
        ends = after is None or after[0] is not inputs  # the last job of the tile
        self.input_buffer.keep = inputs.chunk(0)
        sums.complete()
        for index, step in enumerate(shape.steps):
            channels = below + step.block
            # Only the last job of a tile can release chunks after use, because all jobs of the tile read the same
            # chunks.
            if ends:
                self.input_buffer.keep = inputs.chunk(channels)
            for block in range(job.first, job.first + job.blocks):
                load = shape.load_of(job.group, block, index)
                ready = max(sums.ready, self._arrival(load), inputs.ready(job, step, channels))
                unit = shape.units[block]
                # A load contains the weights of unit.steps steps x unit.blocks blocks.
                weights = index % unit.steps * unit.blocks + block - unit.first
                group = Group(
                    0.0,
                    self.ring.place[load] + weights * shape.config.dim,
                    inputs.place(channels, step.area) + step.below * inputs.tile.out[3] + job.pixel,
                    sums.row(block),
                    step.inner,
                    shape.width(job.group, block),
                    int(index > 0 or shape.biased),
                )
                issue.compute(ready, sums.blocks, group)
                self.ring.used[load] = issue.computed
                self.input_buffer.use(inputs.chunk(channels), issue.computed)
                self._prefetch(inputs, after)

    def _prefetch(self, inputs: Inputs, after: tuple[Inputs, Sums] | None) -> None:
        """Load while the DMA is idle: the next job's offsets, the rest of this tile's input, the next tiles' input."""
        issue = self.issue
        turn = inputs.turn + 1
        while issue.loaded < issue.computed - (0 if self.shape.eager else SPARED):
            if (after and after[1].prefetch(issue.began)) or inputs.prefetch(issue.began):
                continue
            if not inputs.complete or turn == len(self.inputs) or not self.inputs[turn].prefetch(issue.began):
                return

    def _weights(self) -> Iterator[int]:
        shape = self.shape
        before = -1
        for _, sums in self.work:
            job = sums.job
            for index, block in product(range(len(shape.steps)), range(job.first, job.first + job.blocks)):
                load = shape.load_of(job.group, block, index)
                if load != before:
                    before = load
                    yield load

    def _arrival(self, load: int) -> float:
        """Return the cycle in which weights arrive. Also issue the following loads of weights that are due."""
        if load != self.before:
            self.before = load
            self.loading -= 1
            while self.loading < self.ahead and (next_load := next(self.coming, None)) is not None:
                self._load_weights(next_load)
                self.loading += 1
            self._load_weights(load)  # a later load may have overwritten these weights in the ring
        return self.arrives[load]

    def _load_weights(self, load: int) -> None:
        """Load weights, unless they are in the ring. Load a layer's first weights block by block."""
        if load in self.ring.place:
            return
        shape = self.shape
        config = self.shape.config
        issue = self.issue
        within = load % shape.loads
        unit = next(unit for unit in reversed(shape.units) if unit.load <= within)
        blocks = min(unit.steps, len(shape.steps) - (within - unit.load) * unit.steps) * unit.blocks
        free = self.ring.take(load, unit.steps * unit.blocks * config.dim)
        width = config.dim * config.spad_blocks
        dram = self.to.w + load * config.dim * width
        place = self.ring.place[load]
        cuts = ranges(blocks, blocks if self.arrives or unit.steps > 1 else 1)
        for cut in cuts:
            columns = cut.size * config.dim
            beats = -(-columns // config.bus_bytes)
            at = dram + cut.first * config.dim, place + cut.first * config.dim
            arrived = issue.load(max(free, issue.began), WEIGHTS, *at, columns, config.dim, beats)
            self.arrives[load] = self.arrives.get(load, arrived) if cut.first else arrived

    def _store_results(self, tile: Tile, sums: Sums) -> None:
        layer = self.shape.layer
        job = sums.job
        config = self.shape.config
        full = layer.store.scale is None
        y, x, _, width = tile.out
        for block in range(job.first, job.first + job.blocks):
            columns = self.shape.width(job.group, block)
            row = sums.row(block)
            channel = job.group * layer.group[1] + block * config.dim
            if layer.pool != NO_POOL:
                self._pool(tile, job, row, columns, channel)
                continue
            for pixel, rows in ranges(job.pixels, config.dim):  # a tile consists of whole rows, or of a part of one row
                line, column = divmod(job.pixel + pixel, width)
                place = (tile.image * layer.out[0] + y + line) * layer.out[1] + x + column
                address = self.to.y + (place * layer.channels[1] + channel) * layer.store.nbytes
                cost = SCALED * rows * (ACC_BYTES if full else 1)
                self.issue.store(address, acc(row + pixel, full=full), columns, rows, cost)
                self.stored[row + pixel : row + pixel + rows] = self.issue.stored

    def _pool(self, tile: Tile, job: Job, row: int, columns: int, channel: int) -> None:
        layer = self.shape.layer
        pool = self.shape.layer.pool
        image = *tile.pooled[2:], *tile.out[2:], *tile.pads
        if image != self.pooling:
            self.pooling = image
            config_st = Commands(self.shape.config)
            scale = layer.store.scale
            assert scale is not None, "sums are not pooled"
            sizes = pool.stride[0], pool.kernel[0], layer.pooled[1]
            config_st.gemmini_extended2_config_st(layer.channels[1], layer.store.activation, scale, *sizes, *image)
            self.issue.configure(config_st.array)
        place = (tile.image * layer.pooled[0] + tile.pooled[0]) * layer.pooled[1] + tile.pooled[1]
        reads = image[0] * image[1] * pool.kernel[0] * pool.kernel[1]
        self.issue.store(self.to.y + place * layer.channels[1] + channel, acc(row), columns, 0, reads * SCALED)
        self.stored[row : row + job.pixels] = self.issue.stored


class Stream(Shape):
    """A convolution by explicit commands, in tiles."""

    def __str__(self) -> str:
        outputs = min(self.blocks * self.config.dim, self.layer.group[1])
        return f"commands, tiles of {self.rows} x {self.columns} x {outputs} results{self.layer.extras}"

    @property
    def has_borders(self) -> bool:
        return any(self.layer.window.padding)

    @property
    def inputs(self) -> int:
        return self.layer.inputs

    @property
    def store(self) -> RequantisingStore:
        return self.layer.store

    def tilings(self, config: Config) -> Iterator[Stream]:
        """Yield tilings of several shapes, in which the sums of a tile fit half of the accumulator."""
        # Pooling windows of neighbouring tiles overlap, so some results are computed twice. Large tiles come first,
        # because they compute the fewest results twice.
        half = config.acc_rows // 2
        tilings = dict[Stream, None]()
        sizes = sorted({max(half // share, 1) for share in (1, 2, 4, 8)})
        for pixels in sizes if self.layer.pool == NO_POOL else reversed(sizes):
            rows, columns = self._rectangle(pixels)
            tile = replace(self, rows=rows, columns=columns)
            taken = tile.most[0] * tile.most[1]
            if taken > half:
                continue
            most = min(self.all_blocks, half // taken)
            for blocks in (most, min(most, config.spad_blocks)):
                whole = blocks == self.all_blocks or blocks < config.spad_blocks
                tiling = replace(tile, blocks=blocks if whole else blocks - blocks % config.spad_blocks)
                if tiling.lanes[0] and tiling.fits_registers:
                    tilings[tiling] = None
        yield from tilings

    @property
    def fits_registers(self) -> bool:
        pooled = self.layer.pool == NO_POOL or max(*self.most, self.layer.pooled[1]) <= MOST_POOLED
        return self.places[-1] <= MOST and pooled

    def variants(self) -> Iterator[Stream]:
        """Yield streams with the same tiles but a different order of the commands."""
        yield replace(self, eager=False)
        yield replace(self, ends=False)
        yield replace(self, ends=False, eager=False)

    def _rectangle(self, pixels: int) -> tuple[int, int]:
        """Return the rows and columns of tiles in which a block of results has about `pixels` accumulator rows."""
        layer = self.layer
        dim = self.config.dim
        if layer.pool == NO_POOL:
            columns = min(layer.pooled[1], pixels)
            rows = min(layer.pooled[0], pixels // columns)
            columns = -(-layer.pooled[1] // -(-layer.pooled[1] // columns))
            if layer.pooled[0] == 1:
                columns = min(layer.pooled[1], -(-columns // dim) * dim)
        else:
            for side in count(1):
                rows, columns = min(side, layer.pooled[0]), min(side, layer.pooled[1])
                larger = replace(self, rows=min(side + 1, layer.pooled[0]), columns=min(side + 1, layer.pooled[1]))
                if larger.most[0] * larger.most[1] > pixels or (larger.rows, larger.columns) == (rows, columns):
                    break
        return -(-layer.pooled[0] // -(-layer.pooled[0] // rows)), columns

    def emit(self, config: Config, x: int, w: int, d: int, y: int) -> Commands:
        """Return the commands. `x`, `w`, `d` and `y` are the DRAM addresses of inputs, weights, offsets and results."""
        out = Commands(config)
        layer = self.layer
        out.gemmini_config_ex(WEIGHT_STATIONARY, 0, 0)
        out.gemmini_extended4_config_ld(layer.window.stride[1] * layer.channels[0], 1.0, False, self.places[-1], 0)
        out.gemmini_extended3_config_ld(config.dim * config.spad_blocks, 1.0, False, 1)
        out.gemmini_extended3_config_ld(0, 1.0, False, 2)
        if layer.pool == NO_POOL:
            layer.store.configure(out, layer.channels[1])
        out.extend(_Emission(self, Addresses(x, w, d, y)).run())
        out.gemmini_fence()
        return out
