"""The plan of a layer: its tiling into groups and chunks, the order of groups, and the slots in each memory.

A group is a set of output tiles that are summed together. A chunk is one load of inputs and weights for a group. A
layer divides its tiles of an on-chip memory into equal slots. A slot of inp or wgt contains the data of one chunk. A
slot of acc contains the sums of one group. With several slots, loads and stores overlap with sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count, repeat
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from tilewright.array import Array
from tilewright.program.placement import NOWHERE
from tilewright.schedule import Range, ranges, to_and_fro
from tilewright.targets.vta.compiler.layer import (
    LARGEST_SIZE,
    NARROW,
    Layer,
    Span,
    TileTransfer,
    covered,
    pieces,
    pooled_span,
    spans,
    transfers,
)
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.schedule import Halvings, Slots, Tile


class Chunk(NamedTuple):
    """One load of inputs and weights: a range of input channel tiles, and an index into `Plan.weight_chunks`."""

    inputs: Range
    weights: int


class SlotSizes(NamedTuple):
    """The size of a slot of each memory, in tiles.

    `more_inp`: the size of one more slot of inp, for a residual or for the input of offsets (see narrow.py).
    """

    inp: int
    wgt: int
    acc: int
    par: int
    more_inp: int = 0


class Group(NamedTuple):
    """The output tiles that are summed together in one accumulator slot.

    `first`: the place of the group in DRAM, in tiles, if results are stored in the order of the groups.
    """

    rows: Span
    columns: Span
    outs: Range
    chunks: tuple[Chunk, ...]
    first: int = 0

    @property
    def pixels(self) -> int:
        return self.rows.extent * self.columns.extent

    @property
    def box(self) -> int:
        """The number of input pixels that the group reads."""
        return self.rows.size * self.columns.size

    @property
    def tiles(self) -> int:
        """The number of output tiles of the group, which are stored together."""
        return self.outs.size * self.pixels

    @property
    def sums(self) -> int:
        """The number of tiles with sums of the group."""
        return self.outs.size * self.rows.held * self.columns.held

    def loads(self, layer: Layer, inputs: Range) -> tuple[TileTransfer, ...]:
        return transfers(layer.size, *inputs, self.rows.first, self.rows.size, self.columns.first, self.columns.size)

    def shifted(self, layer: Layer, plane: int) -> int:
        """Return the number of tiles that have byte plane `plane`: the first tiles of the group."""
        wide = layer.out_tiles - layer.narrow * (plane >= NARROW) - self.outs.first
        return self.pixels * min(max(0, wide), self.outs.size)

    def stored(self, layer: Layer, plane: int) -> int:
        """Return the number of tiles to store for byte plane `plane`, of which two tiles may share one."""
        return -(-self.shifted(layer, plane) // (1 + (layer.paired and plane >= NARROW)))

    def planes(self, layer: Layer) -> int:
        """Return the number of byte planes of the group's results."""
        return layer.planes if self.stored(layer, layer.planes - 1) else NARROW

    def stores(self, layer: Layer, plane: int = 0) -> tuple[TileTransfer, ...]:
        """Return the transfers that store a byte plane of the group's results."""
        if not layer.by_group:
            return self.results(layer)
        sizes = ranges(self.stored(layer, plane), LARGEST_SIZE)
        return tuple(TileTransfer(at, self.first + at, 1, size, size) for at, size in sizes)

    def results(self, layer: Layer) -> tuple[TileTransfer, ...]:
        """Return the transfers between the group's accumulators and a tensor [channel tile][row][column]."""
        rows, columns = self.rows, self.columns
        return transfers(layer.out, *self.outs, rows.start, rows.extent, columns.start, columns.extent)


@dataclass(frozen=True)
class Plan:
    """How a layer is cut into groups and chunks, their order, and the slots (for the fields, see LayerSchedule)."""

    layer: Layer
    tile: Tile
    outer_loop: Literal["space", "channels"]
    slots: Slots
    halvings: Halvings = Halvings()

    @classmethod
    def of(cls, layer: Layer, saved: list[Any]) -> Self:
        tile, outer_loop, slots, halvings = saved
        return cls(layer, Tile(**tile), outer_loop, Slots(**slots), Halvings(**halvings))

    def to_json(self) -> list[Any]:
        """Return the plan as JSON values, without its layer."""
        return [vars(self.tile), self.outer_loop, vars(self.slots), vars(self.halvings)]

    @property
    def tapers(self) -> bool:
        return self.layer.pool is None and (self.tile.columns if self._axis else self.tile.rows) > 2

    @property
    def _axis(self) -> int:
        """The axis along which groups are cut: 0 for rows, 1 for columns."""
        return int(self.layer.matrix or (self.layer.planes > 1 and self.tile.rows <= 2))

    @property
    def keeps(self) -> bool:
        """Whether rows of sums that two groups share are only computed once.

        The windows of a pool overlap if the kernel is larger than the stride. If rows are kept, they stay in the slot
        of the group above, and the group below reads them from there.
        """
        pool = self.layer.pool
        # The group above must be the previous group, in another slot: groups must advance along the rows of an image.
        inside = self.outer_loop == "channels" or self.tile.output_tiles >= self.layer.out_tiles
        return pool is not None and pool.kernel[0] > pool.stride[0] and self.slots.acc > 1 and inside

    @cached_property
    def weight_chunks(self) -> tuple[tuple[Range, Range], ...]:
        """The ranges of output and input channel tiles of each weight chunk, in DRAM order."""
        if self.layer.shared:
            return ((Range(0, 1), Range(0, 1)),)
        return tuple(
            (outs, sums)
            for outs in ranges(self.layer.out_tiles, self.tile.output_tiles)
            for sums in ranges(self._depth(outs), self.tile.input_tiles)
        )

    def weight_tiles(self, chunk: int) -> int:
        outs, sums = self.weight_chunks[chunk]
        return outs.size * sums.size * (1 if self.layer.shared else self.layer.taps)

    @cached_property
    def weight_starts(self) -> list[int]:
        """The first tile of each weight chunk in DRAM, followed by the number of all tiles."""
        counts = [self.weight_tiles(chunk) for chunk in range(len(self.weight_chunks))]
        # Other weights follow the chunks, and then the input of offsets.
        more = [self.layer.more_weights] if self.layer.more_weights else []
        return [*accumulate((*counts, *more, *[1] * (self.layer.narrow > 0)), initial=0)]

    def _depth(self, outs: Range) -> int:
        if self.layer.link == "banded":
            low, high = self.layer.bands[outs.first]
            return high - low
        return self.layer.depth

    def groups(self) -> Iterator[Group]:
        burst = self.layer.by_group
        first = 0
        for group in self._groups():
            if burst and first % burst + group.tiles > -(-group.tiles // burst) * burst:
                first += -first % burst  # one burst less
            yield group._replace(first=first)
            first += group.tiles

    def _groups(self) -> Iterator[Group]:
        layer = self.layer
        rows, columns = self._rows(), spans(layer, 1, self.tile.columns)
        tiles = [(r, c) for c in columns for r in rows] if self.keeps else [(r, c) for r in rows for c in columns]
        channels = ranges(layer.out_tiles, self.tile.output_tiles)
        numbers = repeat(0) if layer.shared else count()
        chunks = [self._chunks(outs, numbers) for outs in channels]
        # The inner loop alternates in direction, and the chunks of a group alternate too. Each iteration begins with
        # the data that the previous iteration loaded last. These data are still on chip.
        if self.outer_loop == "space":
            pairs = [(s, o) for s in range(len(tiles)) for o in to_and_fro(len(channels), s)]
        else:
            pairs = [(s, o) for o in range(len(channels)) for s in to_and_fro(len(tiles), 0 if self.keeps else o)]
        for turn, (s, o) in enumerate(pairs):
            group = Group(*tiles[s], channels[o], chunks[o][:: -1 if turn % 2 else 1])
            if turn == 0 and self.halvings.first:
                yield from self._cut(group, growing=True)
            elif turn == len(pairs) - 1 and self.halvings.last:
                yield from self._cut(group, growing=False)
            else:
                yield group

    def _rows(self) -> list[Span]:
        rows = spans(self.layer, 0, self.tile.rows)
        if self.keeps:
            return [pooled_span(self.layer, 0, row.start, row.extent, kept=row.start > 0) for row in rows]
        return rows

    @cached_property
    def stored_tiles(self) -> int:
        """The number of tiles from the start of a byte plane of the result, in DRAM, to the start of the next."""
        layer = self.layer
        if not layer.by_group:
            return layer.out_tiles * layer.out_pixels
        *_, last = self.groups()
        return -(-(last.first + last.tiles) // layer.by_group) * layer.by_group

    @property
    def period(self) -> int:
        """The number of groups after which the pattern of loads and sums repeats, except at image borders."""
        tile = self.tile
        columns = -(-self.layer.out[1] // tile.columns)
        if self.outer_loop == "space":
            return columns * -(-self.layer.out_tiles // tile.output_tiles)
        return columns * -(-self.layer.out[0] // tile.rows)

    def _cut(self, group: Group, growing: bool) -> Iterator[Group]:
        """Yield a group in pieces: a half, a quarter and so on; the two smallest pieces are equal.

        If `growing`, the smallest piece comes first and each piece loads its own inputs, so that sums start early.
        Otherwise the smallest piece comes last, so that the final store is short, and all pieces share one load.
        """
        # Rows are halved, so that pieces are contiguous in DRAM. Columns are halved only if there are too few rows.
        axis = self._axis
        whole = group.columns if axis else group.rows
        sizes = []
        left = whole.extent
        for _ in range(self.halvings.first if growing else self.halvings.last):
            sizes.append(-(-left // 2))
            left -= sizes[-1]
        parts = tuple(size for size in (*sizes, left) if size)
        for part in pieces(self.layer, axis, whole, parts[::-1] if growing else parts, shared=not growing):
            yield group._replace(columns=part) if axis else group._replace(rows=part)

    def _chunks(self, outs: Range, numbers: Iterator[int]) -> tuple[Chunk, ...]:
        """Return the chunks of some output channel tiles. `numbers` yields weight chunk numbers."""
        layer = self.layer
        if layer.link == "diagonal":
            return (Chunk(outs, next(numbers)),)
        low = layer.bands[outs.first][0] if layer.link == "banded" else 0
        parts = ranges(self._depth(outs), self.tile.input_tiles)
        return tuple(Chunk(Range(low + part.first, part.size), next(numbers)) for part in parts)

    def slot_sizes(self) -> SlotSizes:
        layer = self.layer
        outs = self.tile.output_tiles
        rows = self._rows()
        columns = spans(self.layer, 1, self.tile.columns)
        box = max(row.size for row in rows) * max(column.size for column in columns)
        pixels = max(row.held for row in rows) * max(column.held for column in columns)
        # A depthwise layer (diagonal) reads and writes the same channel tiles.
        carried = outs if layer.link == "diagonal" else self.tile.input_tiles
        # A maximum also needs room for the codes to compare. An addition that multiplies needs room for both operands.
        held = {"max": pixels + box, "add": pixels if layer.shifts else 2 * pixels}.get(layer.kind, pixels)
        weights = 1 if layer.shared else outs * self.tile.input_tiles * layer.taps
        more_inp = pixels * outs if layer.residual is not None else int(layer.narrow > 0)
        par = layer.parameter_tiles(outs)
        return SlotSizes(box * carried * layer.operands, weights, held * outs, par, more_inp)

    def dump(self) -> str:
        layer = self.layer
        tile = self.tile
        halvings = self.halvings
        pooled = ""
        if layer.pool:
            shared = "; rows of sums that two groups share are computed once" if self.keeps else ""
            pooled = f"; largest of {layer.pool.kernel[0]}x{layer.pool.kernel[1]} sums, then requantised{shared}"
        return (
            f"packed as {layer.packing}; {layer.planes} byte plane{'s' if layer.planes > 1 else ''}"
            f"{f', {NARROW} of {layer.narrow} output channel tiles, which are clamped' if layer.narrow else ''}"
            f"{'; two tiles share a byte of the third' if layer.paired else ''}\n"
            f"tile {tile.rows}x{tile.columns} pixels x {tile.output_tiles} of {layer.out_tiles} output channel tiles, "
            f"{tile.input_tiles} of {layer.depth} input channel tiles per chunk, outer loop over {self.outer_loop}"
            f"{pooled}\n"
            f"{f'first group halved {halvings.first} times; ' if halvings.first else ''}"
            f"{f'last group halved {halvings.last} times; ' if halvings.last else ''}"
            f"slots: {self.slots.inp} inp, {self.slots.wgt} wgt, {self.slots.acc} acc"
            f"{'; a residual is added to the sums' if layer.residual else ''}"
        )


def carried(plan: Plan) -> Array:
    """Return, for each result tile, the earlier result tile included in its sums: int64 [tiles], -1 for no tile.

    A layer with `carries` does not clear accumulators that an earlier group used. These accumulators still contain the
    earlier group's sums, shifted right by all byte planes but the last. So each sum of the later group includes the top
    byte plane of a sum of the earlier group. The host subtracts this byte plane.
    """
    layer = plan.layer
    earlier = np.full(layer.out_tiles * layer.out_pixels, -1)
    if layer.carries:
        # For each slot of acc, the result tiles whose shifted sums are in the slot.
        left = np.full((plan.slots.acc, plan.slot_sizes().acc), -1)
        for turn, group in enumerate(plan.groups()):
            tiles = _results(layer, group)
            slot = left[turn % plan.slots.acc, : len(tiles)]
            earlier[tiles] = slot
            slot[:] = tiles
    return earlier


def stored(plan: Plan) -> Array:
    """Return the place in DRAM of each result tile [channel tile][row][column], int32 [planes, tiles].

    The place is NOWHERE if a byte plane of a tile is not stored.
    """
    layer = plan.layer
    places = np.full((layer.planes, layer.out_tiles * layer.out_pixels), NOWHERE, np.int32)
    for group in plan.groups():
        tiles = _results(layer, group)
        for plane, row in enumerate(places):
            count = group.shifted(layer, plane)
            turn = np.arange(count) % max(1, group.stored(layer, plane))
            row[tiles[:count]] = plane * plan.stored_tiles + group.first + turn
    return places


def paired(plan: Plan) -> Array:
    """Return, for each result tile in the upper half of a byte (Layer.paired), the tile in the lower half, int32."""
    lower = np.full(plan.layer.out_tiles * plan.layer.out_pixels, NOWHERE, np.int32)
    for group in plan.groups():
        tiles = _results(plan.layer, group)[: group.shifted(plan.layer, NARROW)]
        count = group.stored(plan.layer, NARROW)
        lower[tiles[count:]] = tiles[: len(tiles) - count]
    return lower


def _results(layer: Layer, group: Group) -> Array:
    return np.concatenate([covered(part) for part in group.results(layer)])


class SlotRegion(NamedTuple):
    """A region of a memory: `slots` slots from tile `base` on, at a distance of `stride` tiles.

    One more slot, number `slots`, has `extra` tiles for a residual, for the input of offsets, or for their weights.
    """

    base: int
    stride: int
    slots: int
    extra: int = 0

    def at(self, slot: int) -> int:
        return self.base + min(slot, self.slots) * self.stride + (self.extra if slot > self.slots else 0)

    def ends(self, slot: int) -> tuple[int, int]:
        return self.at(slot), self.at(slot + 1)

    @property
    def tiles(self) -> list[slice]:
        """The tiles of each slot; the extra slot comes last."""
        return [slice(*self.ends(slot)) for slot in range(self.slots + 1)]


class Regions(NamedTuple):
    """The slots of a layer in each memory. If the machine has no parameter memory, `par` is a part of acc.

    With ParameterRoom.in_slots, the tiles of `par` are counted from the start of a slot of `acc`.
    """

    inp: SlotRegion
    wgt: SlotRegion
    acc: SlotRegion
    par: SlotRegion


class ParameterRoom(NamedTuple):
    """The memory of a layer's parameters: `tiles` tiles of `memory`, from tile `first` on.

    `in_slots`: parameters lie in the slots of acc, after the sums. With four stages, two units share the banks of acc.
    The ALU can read parameters only from the banks of its current sums.
    """

    memory: Memory
    first: int
    tiles: int
    in_slots: bool = False


def parameter_room(config: Config) -> ParameterRoom:
    """Return the memory of parameters: the parameter memory if the machine has one, else acc."""
    if config.has_parameters:
        return ParameterRoom(Memory.PAR, 0, config.par.depth)
    depth = config.acc.depth
    if config.stages == 4:
        return ParameterRoom(Memory.ACC, 0, depth, in_slots=True)
    quarter = config.acc.depth // 4  # a quarter of acc is for parameters, the rest for sums
    return ParameterRoom(Memory.ACC, depth - quarter, quarter)


def accumulator_tiles(config: Config, layer: Layer) -> int:
    """Return the number of acc tiles to divide into slots: all tiles of acc without the room for parameters."""
    first = parameter_room(config).first
    return first if layer.parameters and first else config.acc.depth


def memory_of(name: str, config: Config) -> Memory:
    return parameter_room(config).memory if name == "par" else Memory[name.upper()]


class RegionAllocator:
    """Assigns regions of the on-chip memories to consecutive layers.

    The regions of two layers are placed side by side if both fit, so that the loads of the next layer need not wait for
    the last sums of the current layer. A memory is used as a ring: if a region does not fit after the previous region,
    it starts at tile 0. A layer that is alone in a launch gets the whole of each memory.
    """

    def __init__(self, config: Config, alone: bool) -> None:
        self._config = config
        self._alone = alone
        self._next = dict.fromkeys(("inp", "wgt", "par", "acc"), 0)

    def allocate(self, plan: Plan) -> Regions:
        config = self._config
        slot_sizes = plan.slot_sizes()
        room = parameter_room(config)
        par = SlotRegion(0, 0, 0)
        tiles = accumulator_tiles(config, plan.layer)
        slots = plan.slots
        acc = tiles // slots.acc
        if self._alone or plan.layer.planes == 1 or config.stages > 3:
            accumulators = SlotRegion(0, acc, slots.acc)
        else:  # the previous layer may still have byte planes to store, so its slots are kept
            accumulators = self._region("acc", tiles, slot_sizes.acc, slots.acc)
        if slot_sizes.par and room.in_slots:
            sets = -(-plan.layer.out_tiles // plan.tile.output_tiles)
            par = SlotRegion(slot_sizes.acc, slot_sizes.par, min(sets, (acc - slot_sizes.acc) // slot_sizes.par))
        elif slot_sizes.par:
            sets = 1 if plan.layer.kind == "add" else -(-plan.layer.out_tiles // plan.tile.output_tiles)
            # Half of the room is for the next layer.
            fit = room.tiles // slot_sizes.par if self._alone else max(1, room.tiles // 2 // slot_sizes.par)
            par = self._region("par", room.tiles, slot_sizes.par, min(sets, fit))
        return Regions(
            self._region("inp", config.inp.depth, slot_sizes.inp, slots.inp, slot_sizes.more_inp),
            self._region(
                "wgt",
                config.wgt.depth,
                slot_sizes.wgt,
                min(slots.wgt, len(plan.weight_chunks)),
                plan.layer.more_weights,
            ),
            accumulators,
            par._replace(base=room.first + par.base),
        )

    def _region(self, name: str, depth: int, need: int, count: int, extra: int = 0) -> SlotRegion:
        if self._alone:
            return SlotRegion(0, (depth - extra) // count, count, extra)
        size = count * need + extra
        base = self._next[name] if self._next[name] + size <= depth else 0
        self._next[name] = base + size
        return SlotRegion(base, need, count, extra)
