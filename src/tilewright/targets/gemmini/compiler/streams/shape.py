"""The elements of a tiled convolution: tiles, jobs, the steps of a sum, copies of the input, and loads of weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.schedule import Range, ranges
from tilewright.targets.gemmini.compiler.convolutions import NO_POOL, Convolution
from tilewright.targets.gemmini.compiler.streams.places import Lane
from tilewright.targets.gemmini.config import Config


class Area(NamedTuple):
    """A copy of a tile's input: the pixels that one kernel column reads.

    The copy has every stride-th input row, from row `phase` on, and has `extra` more rows than the result.
    """

    phase: int
    column: int
    extra: int


class Step(NamedTuple):
    """One product of a sum: a block of channels of A times a block of weights.

    A begins `below` result rows after the start of its area. The weights begin at (`channel`, `row`, `column`) of the
    kernel. A row of A has `inner` numbers.
    """

    block: int
    area: int
    below: int
    channel: int
    row: int
    column: int
    inner: int


class Unit(NamedTuple):
    """The loads of weights for several blocks of outputs, from block `first` on.

    A row of DRAM contains the weights of `blocks` blocks for each of `steps` steps. `row` is the index of the first row
    in DRAM, and `load` is the index of the first load.
    """

    first: int
    blocks: int
    steps: int
    row: int
    load: int


class Tile(NamedTuple):
    """A rectangle of the result, before pooling (`out`) and after pooling: first row, first column, rows, columns.

    `pads` has the number of rows above the image, and of columns left of the image, that the pooling windows cover.
    """

    image: int
    out: tuple[int, int, int, int]
    pooled: tuple[int, int, int, int]
    pads: tuple[int, int]


class Job(NamedTuple):
    """Sums that are computed together, for several blocks of a group's outputs and several pixels of a tile."""

    group: int
    first: int
    blocks: int
    pixel: int
    pixels: int


@dataclass(frozen=True)
class Shape:
    """A convolution in tiles of `rows` x `columns` (pooled) results, and jobs of `blocks` blocks of outputs.

    With `ends`, the first and the last jobs are small, so that the array starts early and the last store is short. With
    `eager`, inputs are loaded as early as possible. With `biased`, the layer has offsets.
    """

    layer: Convolution
    config: Config
    rows: int = 1
    columns: int = 1
    blocks: int = 1
    ends: bool = True
    eager: bool = True
    biased: bool = True

    def width(self, group: int, block: int) -> int:
        outputs = self.layer.group[1]
        dim = self.config.dim
        return min(dim, outputs - block * dim, self.layer.channels[1] - group * outputs)

    @property
    def all_blocks(self) -> int:
        return -(-self.layer.group[1] // self.config.dim)

    @cached_property
    def parts(self) -> list[Range]:
        """Ranges of groups, each small enough that one load covers the inputs of all its groups."""
        many = self.layer.groups > 1 and self.layer.group[0] == self.config.dim
        return ranges(self.layer.groups, self.config.spad_blocks if many else 1)

    @cached_property
    def _phases(self) -> list[tuple[int, int]]:
        """The distance of each kernel row from the first kernel row, as whole result rows and a phase of the stride."""
        # Example: with a stride of 2, kernel row 3 reads the rows of phase 1, and begins one result row below.
        window = self.layer.window
        return [divmod(row * window.dilation[0], window.stride[0]) for row in range(window.kernel[0])]

    @cached_property
    def areas(self) -> tuple[Area, ...]:
        extra = {
            phase: max(below for below, row_phase in self._phases if row_phase == phase) for _, phase in self._phases
        }
        columns = range(0, self.layer.window.kernel[1], self.layer.pixels)
        return tuple(Area(phase, column, extra[phase]) for phase in sorted(extra) for column in columns)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The products of a group's sums, in order. Channels and blocks are counted from the start of the group."""
        layer = self.layer
        dim = self.config.dim
        steps = list[Step]()
        for wide, (index, area) in product(
            ranges(-(-layer.group[0] // dim), self.config.spad_blocks), enumerate(self.areas)
        ):
            # Within an area, kernel rows are in ascending order, because the lines of the input arrive in this order.
            rows = [(row, below) for row, (below, phase) in enumerate(self._phases) if phase == area.phase]
            for (row, below), block in product(rows, range(wide.first, wide.first + wide.size)):
                inner = min(dim, layer.group[0] - block * dim)
                if layer.pixels > 1:
                    inner = min(layer.pixels, layer.window.kernel[1] - area.column) * layer.group[0]
                steps.append(Step(block, index, below, block * dim, row, area.column, inner))
        return tuple(steps)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        units = list[Unit]()
        row = 0
        load = 0
        for blocks in ranges(self.all_blocks, self.config.spad_blocks):
            steps = self.config.spad_blocks // blocks.size
            units += blocks.size * [Unit(*blocks, steps, row, load)]
            count = -(-len(self.steps) // steps)
            row = row + count * self.config.dim
            load = load + count
        return tuple(units)

    @property
    def loads(self) -> int:
        last = self.units[-1]
        return last.load - (-len(self.steps) // last.steps)

    def load_of(self, group: int, block: int, step: int) -> int:
        """Return the index of the load with the weights of a block of outputs for a step."""
        unit = self.units[block]
        return group * self.loads + unit.load + step // unit.steps

    def weights(self, codes: Array, config: Config) -> Array:
        """Return weights in their DRAM layout, one load after the other: int8 [groups, rows, dim * blocks of a load].

        `codes` have a shape that `Convolution.weights` accepts, or (outputs, inputs) for a matrix product.
        """
        layer = self.layer
        dim = self.config.dim
        outputs = self.layer.group[1]
        held = codes.T[None, None, None] if codes.ndim == 2 else layer.weights(codes, config)
        whole = np.zeros((layer.groups, len(self.steps), dim, self.all_blocks * dim), np.int8)
        for index, step in enumerate(self.steps):
            columns = slice(step.column, step.column + layer.pixels)
            taken = held[:, step.row, columns, step.channel : step.channel + dim]
            whole[:, index, : step.inner, :outputs] = taken.reshape(layer.groups, -1, outputs)
        image = np.zeros((layer.groups, self.loads * dim, dim * self.config.spad_blocks), np.int8)
        for (first, blocks, beside, row, _), index in product(dict.fromkeys(self.units), range(len(self.steps))):
            rows = slice(row + index // beside * dim, row + index // beside * dim + dim)
            columns = slice(index % beside * blocks * dim, (index % beside + 1) * blocks * dim)
            image[:, rows, columns] = whole[:, index, :, first * dim : (first + blocks) * dim]
        return image

    @property
    def most(self) -> tuple[int, int]:
        """The number of rows and of columns of the largest tile before pooling."""
        pool = self.layer.pool
        sizes = (self.rows, self.columns)
        rows, columns = (
            min(extent, (count - 1) * stride + size)
            for extent, count, stride, size in zip(self.layer.out, sizes, pool.stride, pool.kernel, strict=True)
        )
        return rows, columns

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The first row of each area within a block of channels, then the total number of rows of all areas."""
        rows, columns = self.most
        return (0, *np.cumsum([(rows + area.extra) * columns for area in self.areas]).tolist())

    @property
    def channels(self) -> int:
        """The number of blocks of input channels in a part."""
        depth = min(self.parts[0].size * self.layer.group[0], self.layer.channels[0])
        return -(-depth // self.config.dim)

    @property
    def chunks(self) -> int:
        """The number of chunks of a tile's input. A chunk contains the blocks of channels that one load covers."""
        return -(-self.channels // self.config.spad_blocks)

    @property
    def chunk(self) -> int:
        return min(self.channels, self.config.spad_blocks) * self.places[-1]

    @cached_property
    def lanes(self) -> tuple[tuple[Lane, ...], tuple[Lane, ...]]:
        """The lanes for inputs and weights, in separate banks if possible; no lanes if the scratchpad is too small."""
        # If the inputs fit half of a bank, the weights get three banks.
        bank = self.config.spad_rows
        banks = self.config.spad_banks
        rows = self.config.all_spad_rows
        load = self.config.spad_blocks * self.config.dim
        lanes = tuple(Lane(row, bank) for row in range(0, rows, bank))
        if banks >= 4 and bank >= 4 * load:
            if self.chunks * self.chunk * len(self.turns) <= bank // 2:
                return lanes[:1], lanes[1:4]
            if self.chunks <= bank // self.chunk * 2:
                return lanes[:2], lanes[2:4]
        # On small machines, inputs and weights share banks. The two lanes of the inputs take at least a quarter of the
        # scratchpad each, and the two lanes of the weights take the rest.
        needed = -(-self.chunks // 2) * self.chunk
        for share in (rows // 4, rows * 3 // 8):
            rest = rows // 2 - share
            if needed <= share and rest >= 4 * load:
                return (Lane(0, share), Lane(share, share)), (Lane(2 * share, rest), Lane(2 * share + rest, rest))
        return (), ()

    @cached_property
    def turns(self) -> list[tuple[Range, Tile]]:
        """The pairs of a part and a tile, in execution order."""
        first, last = self.parts[0], self.parts[-1]
        return [(part, tile) for part in self.parts for tile in self._tiles(part is first, part is last)]

    def _tiles(self, begins: bool, ends: bool) -> Iterator[Tile]:
        """Yield the tiles of a part. With `begins` and `ends`, the first tile and the last tile are small."""
        layer = self.layer
        images = self.layer.images
        for image in range(images):
            every = [ranges(layer.pooled[0], self.rows), ranges(layer.pooled[1], self.columns)]
            every[self.flat] = self._cut(begins and image == 0, ends and image == images - 1)
            for rows, columns in product(*every):
                y, x = layer.results(0, *rows), layer.results(1, *columns)
                pooled = rows.first, columns.first, rows.size, columns.size
                yield Tile(image, (y.first, x.first, y.size, x.size), pooled, (y.before, x.before))

    @property
    def flat(self) -> bool:
        """Whether the result is a single row. A single row is cut into tiles by columns, other results by rows."""
        return self.layer.pooled[0] == 1

    @property
    def few(self) -> int:
        """The number of rows (columns if `flat`) of the small first and last tiles, or 0 without small tiles."""
        few = 2 * self.config.dim if self.flat else -(-2 * self.config.dim // self.columns)
        size = (self.rows, self.columns)[self.flat]
        return few if self.ends and 3 * few <= size and 4 * few <= self.layer.pooled[self.flat] else 0

    def _cut(self, begins: bool, ends: bool) -> list[Range]:
        few = self.few
        extent = self.layer.pooled[self.flat]
        head, tail = few * begins, few * ends
        inner = extent - head - tail
        size = -(-inner // -(-inner // (self.rows, self.columns)[self.flat]))
        size = -(-size // self.config.dim) * self.config.dim if self.flat else size
        middle = [Range(head + first, count) for first, count in ranges(inner, size)]
        return [*ranges(head, few or 1), *middle, *(Range(extent - tail, tail) for _ in range(tail > 0))]

    def jobs(self, part: Range, tile: Tile, last: bool) -> Iterator[Job]:
        """Yield the jobs of a tile for a part. With `last`, cut the last job into smaller jobs."""
        pixels = prod(tile.out[2:])
        for group in range(part.first, part.first + part.size):
            for first, size in ranges(self.all_blocks, self.blocks):
                job = Job(group, first, size, 0, pixels)
                ends = last and group == part.first + part.size - 1 and first + size == self.all_blocks
                yield from self._falling(job) if self.ends and ends and not self.few else (job,)

    def _keeps(self, block: int) -> bool:
        """Return whether several jobs can share a block's weights, which need room for all steps at once."""
        rows = len(self.steps) * self.units[block].blocks * self.config.dim
        return rows <= sum(lane.rows for lane in self.lanes[1])

    def _falling(self, job: Job) -> Iterator[Job]:
        """Cut the last job into ever smaller jobs, so that few sums remain to be stored at the end."""
        while job.blocks > 1:
            taken = -(-job.blocks // 2)
            yield job._replace(blocks=taken)
            job = job._replace(first=job.first + taken, blocks=job.blocks - taken)
        dim = self.config.dim
        while self.layer.pool == NO_POOL and job.pixels > dim and self._keeps(job.first):
            taken = max(dim, job.pixels // 2 // dim * dim)
            yield job._replace(pixels=taken)
            job = job._replace(pixel=job.pixel + taken, pixels=job.pixels - taken)
        yield job


def split(pixels: int, dim: int) -> tuple[int, ...]:
    """Return the number of rows of each block of A: blocks of about equal size, then a full block."""
    # During the last block, the array loads the next weights, which takes as many cycles as a full block.
    rest = max(pixels - dim, 0)
    count = -(-rest // dim)
    sizes = [rest // count + (nth < rest % count) for nth in range(count)]
    return (*sizes, min(pixels, dim))
