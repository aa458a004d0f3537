"""The parts of a tiled convolution: tiles and jobs, the steps of a sum, copies of the input, loads of weights."""

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
    """A copy of a tile's input: the rows of a phase of the stride, as a column of the kernel sees them.

    It has a row for each row of the result, and `extra` ones for the kernel.
    """

    phase: int
    column: int
    extra: int


class Step(NamedTuple):
    """A product of a sum, of a block of channels of A with a block of weights.

    A comes from an area, `below` rows of results below its first row; the weights begin at this channel, kernel row and
    kernel column. A row of A has `inner` numbers.
    """

    block: int
    area: int
    below: int
    channel: int
    row: int
    column: int
    inner: int


class Unit(NamedTuple):
    """The loads of the weights of some blocks of outputs.

    `first`: the first block; `blocks`, `steps`: how many lie beside each other in a row of DRAM; `row`: the first row
    there; `load`: the number of the first load.
    """

    first: int
    blocks: int
    steps: int
    row: int
    load: int


class Tile(NamedTuple):
    """A rectangle of the result, before pooling (`out`) and after it: first row and column, rows and columns.

    `pads` are the rows and columns of the pooling windows that lie outside of the image, above and left.
    """

    image: int
    out: tuple[int, int, int, int]
    pooled: tuple[int, int, int, int]
    pads: tuple[int, int]


class Job(NamedTuple):
    """Sums that are computed together: blocks of outputs of a group, and pixels of a tile."""

    group: int
    first: int
    blocks: int
    pixel: int
    pixels: int


@dataclass(frozen=True)
class Shape:
    """A convolution in tiles of `rows` x `columns` (pooled) results, and jobs of `blocks` blocks of outputs.

    `ends`: the first and the last jobs are smaller, so that the array starts early and the last store is short.
    `eager`: inputs are loaded as early as possible. `biased`: there are offsets.
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
        """Return the results of a block of outputs."""
        outputs = self.layer.group[1]
        dim = self.config.dim
        return min(dim, outputs - block * dim, self.layer.channels[1] - group * outputs)

    @property
    def all_blocks(self) -> int:
        """Blocks of outputs of a group."""
        return -(-self.layer.group[1] // self.config.dim)

    @cached_property
    def parts(self) -> list[Range]:
        """The parts of the layer: groups whose inputs lie in the scratchpad together, because one load spans them."""
        many = self.layer.groups > 1 and self.layer.group[0] == self.config.dim
        return ranges(self.layer.groups, self.config.spad_blocks if many else 1)

    @cached_property
    def _phases(self) -> list[tuple[int, int]]:
        """The offset of each kernel row from the first one: whole rows of results, and the phase of the stride."""
        # With a stride of 2, row 3 of the kernel needs rows of phase 1, one row of results further below.
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
        """The products of a group's sums, in order. Channels and their blocks count from the group's first one."""
        layer = self.layer
        dim = self.config.dim
        steps = list[Step]()
        for wide, (index, area) in product(
            ranges(-(-layer.group[0] // dim), self.config.spad_blocks), enumerate(self.areas)
        ):
            # Row by row of the kernel within an area, so that products follow the input's lines as they arrive.
            rows = [(row, below) for row, (below, phase) in enumerate(self._phases) if phase == area.phase]
            for (row, below), block in product(rows, range(wide.first, wide.first + wide.size)):
                inner = min(dim, layer.group[0] - block * dim)
                if layer.pixels > 1:
                    inner = min(layer.pixels, layer.window.kernel[1] - area.column) * layer.group[0]
                steps.append(Step(block, index, below, block * dim, row, area.column, inner))
        return tuple(steps)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The loads of the weights of each block of outputs."""
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
        """Loads of all weights of a group."""
        last = self.units[-1]
        return last.load - (-len(self.steps) // last.steps)

    def load_of(self, group: int, block: int, step: int) -> int:
        """Return the number of the load that brings the weights of a block of outputs for a step."""
        unit = self.units[block]
        return group * self.loads + unit.load + step // unit.steps

    def weights(self, codes: Array, config: Config) -> Array:
        """Return weights as they lie in DRAM: int8 [groups, rows, dim * blocks of a load], one load after the other.

        `codes` are those of `Convolution.weights`, or (outputs, inputs) of a matrix product.
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
        """The most rows and columns of a tile's result before pooling."""
        pool = self.layer.pool
        sizes = (self.rows, self.columns)
        rows, columns = (
            min(extent, (count - 1) * stride + size)
            for extent, count, stride, size in zip(self.layer.out, sizes, pool.stride, pool.kernel, strict=True)
        )
        return rows, columns

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The first row of each area in a block of channels, and the rows of all areas."""
        rows, columns = self.most
        return (0, *np.cumsum([(rows + area.extra) * columns for area in self.areas]).tolist())

    @property
    def channels(self) -> int:
        """Blocks of channels of a part."""
        depth = min(self.parts[0].size * self.layer.group[0], self.layer.channels[0])
        return -(-depth // self.config.dim)

    @property
    def chunks(self) -> int:
        """Chunks of a tile's input: blocks of channels that are loaded together."""
        return -(-self.channels // self.config.spad_blocks)

    @property
    def chunk(self) -> int:
        """Rows of a chunk in the scratchpad."""
        return min(self.channels, self.config.spad_blocks) * self.places[-1]

    @cached_property
    def lanes(self) -> tuple[tuple[Lane, ...], tuple[Lane, ...]]:
        """The rows of the scratchpad for inputs and for weights, in separate banks if possible; () if none fit."""
        # Inputs of less than half a bank leave the other banks to the weights.
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
        # Small machines have no banks to spare: inputs take two quarters, or more, and weights the rest, in two lanes
        # each.
        needed = -(-self.chunks // 2) * self.chunk
        for share in (rows // 4, rows * 3 // 8):
            rest = rows // 2 - share
            if needed <= share and rest >= 4 * load:
                return (Lane(0, share), Lane(share, share)), (Lane(2 * share, rest), Lane(2 * share + rest, rest))
        return (), ()

    @cached_property
    def turns(self) -> list[tuple[Range, Tile]]:
        """All tiles of all parts, in order."""
        first, last = self.parts[0], self.parts[-1]
        return [(part, tile) for part in self.parts for tile in self._tiles(part is first, part is last)]

    def _tiles(self, begins: bool, ends: bool) -> Iterator[Tile]:
        """Yield the tiles of a part; with `begins` and `ends`, the first and the last one are small."""
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
        """Whether the result is one row: small tiles then have fewer columns, else fewer rows."""
        return self.layer.pooled[0] == 1

    @property
    def few(self) -> int:
        """The rows, or columns, of the small tiles at the beginning and at the end; 0: there are no small tiles."""
        few = 2 * self.config.dim if self.flat else -(-2 * self.config.dim // self.columns)
        size = (self.rows, self.columns)[self.flat]
        return few if self.ends and 3 * few <= size and 4 * few <= self.layer.pooled[self.flat] else 0

    def _cut(self, begins: bool, ends: bool) -> list[Range]:
        """Cut the rows, or columns, of the result into those of tiles."""
        few = self.few
        extent = self.layer.pooled[self.flat]
        head, tail = few * begins, few * ends
        inner = extent - head - tail
        size = -(-inner // -(-inner // (self.rows, self.columns)[self.flat]))
        size = -(-size // self.config.dim) * self.config.dim if self.flat else size
        middle = [Range(head + first, count) for first, count in ranges(inner, size)]
        return [*ranges(head, few or 1), *middle, *(Range(extent - tail, tail) for _ in range(tail > 0))]

    def jobs(self, part: Range, tile: Tile, last: bool) -> Iterator[Job]:
        """Yield the jobs of a part of a tile; with `last`, the last one is cut into smaller ones."""
        pixels = prod(tile.out[2:])
        for group in range(part.first, part.first + part.size):
            for first, size in ranges(self.all_blocks, self.blocks):
                job = Job(group, first, size, 0, pixels)
                ends = last and group == part.first + part.size - 1 and first + size == self.all_blocks
                yield from self._falling(job) if self.ends and ends and not self.few else (job,)

    def _keeps(self, block: int) -> bool:
        """Return whether the scratchpad holds the weights of a block for all steps: jobs may share them."""
        rows = len(self.steps) * self.units[block].blocks * self.config.dim
        return rows <= sum(lane.rows for lane in self.lanes[1])

    def _falling(self, job: Job) -> Iterator[Job]:
        """Cut the last job into halves, and the last half again: few sums are left to store at the end."""
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
    """Return the rows of the blocks of A: about equal ones, and a full one at the end.

    During the last block, the array takes the weights of the next one, which needs all of its rows.
    """
    rest = max(pixels - dim, 0)
    count = -(-rest // dim)
    sizes = [rest // count + (nth < rest % count) for nth in range(count)]
    return (*sizes, min(pixels, dim))
