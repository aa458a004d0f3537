"""The plan of a launch: the addresses of tensors and constants, and the groups of layers that samples run through.

In a group, each of the N samples of a batch runs through all layers before the next sample starts. A tensor inside a
group therefore needs room for one sample; a tensor between groups needs room for all N. The constants of a group stay
in local memory until its last sample has run. If a single layer has too many constants, it forms a group whose
constants are loaded part by part, and all samples run through each part. Constants of tiles are transferred in bundles,
because transfers have a minimum time (timing/estimate.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.schedule import Lived, place
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.tiles import Tiling
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.samples import SampleFormat, plane_bytes
from tilewright.targets.bm1684x.layouts.tensor import LARGEST, Tensor
from tilewright.targets.bm1684x.timing import estimate
from tilewright.targets.bm1684x.values.dtypes import U8

#: If a layer's constants take more than 1 / LARGE of a lane, they do not stay in local memory for all samples.
LARGE = 4
#: A range of layers: the first, and one past the last.
Group = tuple[int, int]


class DoesNotFit(Exception):
    """Raised if tensors or constants exceed local memory, or if a stride is too long for its instruction field."""


class Ring:
    """A ring buffer of blocks of constants in each lane. A new block overwrites the oldest blocks."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self._next = begin
        self._blocks: list[tuple[int, int, Sequence[str]]] = []

    def take(self, names: Sequence[str], size: int, done: Iterable[str]) -> int:
        """Reserve `size` adjacent bytes of each lane for the new blocks `names`. Return the byte offset in a lane.

        `done` has the names of blocks that may be overwritten. Raises DoesNotFit if the blocks are larger than the
        ring, or would overwrite any other block.
        """
        if size > self._end - self._begin:
            raise DoesNotFit(f"its constants need {size} bytes of each lane; {self._end - self._begin} are free")
        # Blocks do not wrap around: if too few bytes are left at the end of the ring, these bytes stay empty.
        if self._next + size > self._end:
            self._next = self._begin
        offset = self._next
        over = set(done)
        overwritten = [block for block in self._blocks if block[0] < offset + size and offset < block[1]]
        for _, _, others in overwritten:
            if needed := [name for name in others if name not in over]:
                raise DoesNotFit(
                    f"the constants of {names[0]} would overwrite those of {needed[0]}, which are still needed"
                )
        self._blocks = [*(block for block in self._blocks if block not in overwritten), (offset, offset + size, names)]
        self._next = offset + size
        return offset


@dataclass(frozen=True)
class Allocation:
    """The bytes of a lane that hold a tensor: `copies` samples, `stride` bytes apart, from byte `offset` on.

    Sample n overwrites sample n - copies.
    """

    offset: int
    copies: int
    stride: int

    def of(self, sample: int) -> int:
        return self.offset + sample % self.copies * self.stride


@dataclass(frozen=True, eq=False)
class Plan:
    """The place in a lane of each tensor, buffer and constant of a launch. Offsets are in bytes.

    `allocations` are the places of tensors by name. `temps` are the offsets of temporary buffers by layer.
    `line_buffers` are offsets of line buffers for inputs and results of one pixel. In a line buffer, all channels of
    the pixel are adjacent and are transferred as one run. `gathered` are the places of gathered inputs by layer.
    `by_parts` are the groups of one layer whose constants are loaded part by part. Constants begin at `values_end`.
    """

    cuts: tuple[Tiling, ...]
    groups: tuple[Group, ...]
    allocations: Mapping[str, Allocation]
    temps: tuple[Mapping[int, int], ...]
    line_buffers: Mapping[str, int]
    gathered: Mapping[int, Allocation]
    by_parts: frozenset[Group]
    values_end: int


def plan(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> Plan:
    """Return the plan with the largest groups that fit into local memory. Raises DoesNotFit if no plan fits."""
    inner = {layer.output for layer in layers}
    outside = {name for layer in layers for name in layer.inputs if name not in inner} | (inner & set(leaving))
    cuts = tuple(Tiling(layer, config) for layer in layers)
    sizes = [sum(block.shape[1] for block in cut.blocks) for cut in cuts]
    # With one sample, grouping has no advantage: each layer is a group, and its constants may be loaded part by part.
    if config.batch == 1:
        alone = [(index, index + 1) for index in range(len(cuts))]
        return _placed(cuts, alone, outside, frozenset(alone))
    limit = config.lane_bytes
    failure = DoesNotFit("no plan was tried")
    # Large groups are tried first. Tensors inside a group need room for one sample only, but the constants of all
    # layers of the group must be in local memory together.
    while limit:
        groups = _groups(sizes, limit)
        try:
            large = config.lane_bytes // LARGE
            parts = frozenset((begin, end) for begin, end in groups if end == begin + 1 and sizes[begin] > large)
            placed = _placed(cuts, groups, outside, parts)
            constants = [sum(sizes[begin:end]) for begin, end in groups if (begin, end) not in parts]
            if placed.values_end + max(constants, default=0) <= config.lane_bytes:
                return placed
        except DoesNotFit as full:
            failure = full
        limit //= 2
    raise failure


def _groups(sizes: Sequence[int], limit: int) -> list[Group]:
    """Return groups of consecutive layers.

    In a group of two or more layers, the constants (`sizes`) fit into `limit` bytes.
    """
    groups = []
    begin = 0
    constants = 0
    for index, size in enumerate(sizes):
        if index > begin and constants + size > limit:
            groups.append((begin, index))
            begin = index
            constants = 0
        constants += size
    return [*groups, (begin, len(sizes))]


def _placed(
    cuts: tuple[Tiling, ...], groups: list[Group], outside: Collection[str], by_parts: frozenset[Group]
) -> Plan:
    config = cuts[0].config
    form, spans = _spans(cuts)
    wholes = _wholes(cuts, form)
    rooms = _rooms(cuts, groups, spans, wholes, by_parts)
    buffers = [Lived(name, room.copies * form[name].lane_bytes(config), *room[1:]) for name, room in rooms.items()]
    line_buffers = [name for name in form if name in outside and form[name].is_pixel]
    for name in line_buffers:
        line = plane_bytes(form[name].c, form[name].dtype, config)
        buffers.append(Lived(f"turned/{name}", line, spans[name][0], spans[name][0]))
    for index, cut in enumerate(cuts):
        buffers += [Lived(f"{index}/{temp}", size, index, index) for temp, size in cut.temps.items()]
    gathered = {index: cut.layer.shapes[0].lane_bytes(config) for index, cut in enumerate(cuts) if cut.layer.gather}
    samples = {index: config.batch if (index, index + 1) in by_parts else 1 for index in gathered}
    buffers += [Lived(f"gathered/{index}", samples[index] * size, index, index) for index, size in gathered.items()]
    offsets, end_of_all = place(buffers)
    if end_of_all > config.lane_bytes:
        raise DoesNotFit(f"its tensors need {end_of_all} bytes of each lane, which has {config.lane_bytes}")
    allocations = {}
    for name, (whole, slots) in wholes.items():
        size = form[whole].lane_bytes(config)
        allocations[name] = Allocation(offsets[whole] + slots * form[whole].plane(config), rooms[whole].copies, size)
    return Plan(
        cuts,
        tuple(groups),
        allocations,
        tuple({temp: offsets[f"{index}/{temp}"] for temp in cut.temps} for index, cut in enumerate(cuts)),
        {name: offsets[f"turned/{name}"] for name in line_buffers},
        {index: Allocation(offsets[f"gathered/{index}"], samples[index], size) for index, size in gathered.items()},
        by_parts,
        end_of_all,
    )


class _Room(NamedTuple):
    """The number of samples of a tensor to keep at a time, and the first and the last layer that use the tensor."""

    copies: int
    first: int
    last: int


def _rooms(
    cuts: Sequence[Tiling],
    groups: Sequence[Group],
    spans: Mapping[str, tuple[int, int]],
    wholes: Mapping[str, tuple[str, int]],
    by_parts: frozenset[Group],
) -> dict[str, _Room]:
    batch = cuts[0].config.batch
    computed = {cut.layer.output for cut in cuts}
    group_of = [group for group in groups for _ in range(*group)]
    rooms = {}
    for whole in dict.fromkeys(holder for holder, _ in wholes.values()):
        names = [name for name, (holder, _) in wholes.items() if holder == whole]
        first, last = min(spans[name][0] for name in names), max(spans[name][1] for name in names)
        # A tensor that is used in one group only, and computed there, needs room for one sample. A tensor used in
        # several groups needs room for the whole batch. The same is true for every tensor of a group that runs all
        # samples with each block of constants.
        begin, end = group_of[first], group_of[last]
        rooms[whole] = _Room(1, first, last)
        if batch > 1 and (begin != end or not computed.issuperset(names) or begin in by_parts):
            all_there = begin != end or begin in by_parts
            copies = batch if all_there else 2  # double buffering: one sample is loaded while the other is read
            rooms[whole] = _Room(copies, begin[0], end[1] - 1)
    return rooms


def _spans(cuts: Sequence[Tiling]) -> tuple[dict[str, SampleFormat], dict[str, tuple[int, int]]]:
    form: dict[str, SampleFormat] = {}
    spans: dict[str, tuple[int, int]] = {}
    for index, cut in enumerate(cuts):
        for name, shape in zip(cut.layer.inputs, cut.layer.shapes, strict=True):
            form.setdefault(name, shape)
            spans[name] = (spans.get(name, (index, index))[0], index)
        form[cut.layer.output] = cut.layer.result
        spans[cut.layer.output] = (index, index)
    return form, spans


def _wholes(cuts: Sequence[Tiling], names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return, for each tensor name, the tensor that contains its memory, and the number of slots before its memory.

    The containing tensor is the tensor itself, or a joined tensor.

    A part of a joined tensor can be computed at its place in the joined tensor if its first channel is in the first
    lane.
    """
    views: dict[str, tuple[str, int]] = {}
    for cut in cuts:
        for name, _, (_, channels, _, _) in cut.layer.joined if cut.layer.axis == 1 else ():
            if channels.start % cut.config.lanes == 0:
                views.setdefault(name, (cut.layer.output, channels.start // cut.config.lanes))
    holders = {}
    for name in names:
        whole = name
        slots = 0
        while whole in views:
            whole, before = views[whole]
            slots += before
        holders[name] = whole, slots
    return holders


#: A layer's index, and the number of one of its blocks of constants.
Key = tuple[int, int]
#: The largest bundle of several blocks, in bytes of a lane. The first block of a bundle is usable only after the last
#: block has arrived.
MOST_BYTES = 1 << 12


@dataclass(frozen=True, eq=False)
class Bundle:
    """Blocks of constants that are transferred together: uint8 (lanes, n). Only the first `used` lanes are transferred.

    `begins` has the first byte of each block by its key.
    """

    used: int
    data: Array
    begins: Mapping[Key, int]

    def transfers(self, address: int, offset: int, config: Config) -> Iterator[Command]:
        lanes, size = self.data.shape
        for part in _parts(lanes, self.used, size, address, config):
            yield copy(Tensor.local(0, offset + part.address - address, part.shape, U8, config), part)


def bundled(
    blocks: Mapping[Key, Array], used: Callable[[Key], int], separate: Callable[[Key, Key], bool], config: Config
) -> list[Bundle]:
    """Return the bundles of all blocks, in order, that take the fewest cycles to transfer.

    `used` returns the number of lanes that a block occupies. `separate` returns whether two neighbouring blocks stay in
    separate bundles. The first block stays alone, because the first layer waits for it.
    """
    keys = list(blocks)
    # Dynamic programming over the number of blocks: best[n] has the fewest cycles for the first n blocks, and the first
    # block of the last bundle. The blocks are a sequence, so the best bundles of a prefix do not depend on later
    # blocks.
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(keys) + 1):
        choices: list[tuple[int, int]] = []
        lanes = size = 0
        for begin in range(end - 1, -1, -1):
            lanes = max(lanes, used(keys[begin]))
            size = size + blocks[keys[begin]].shape[1]
            alone = begin == end - 1
            if not alone and (not begin or size > MOST_BYTES or separate(keys[begin], keys[begin + 1])):
                break
            spent = sum(
                estimate.cycles(copy(part, part), config) for part in _parts(lanes, lanes, size, DDR_BASE, config)
            )
            choices.append((best[begin][0] + spent, begin))
        best.append(min(choices, key=lambda choice: (choice[0], -choice[1])))
    # Walk back from the last block to find the bundles that were chosen.
    bundles = list[Bundle]()
    end = len(keys)
    while end:
        begin = best[end][1]
        members = keys[begin:end]
        parts = [blocks[key] for key in keys[begin:end]]
        *begins, _ = accumulate((block.shape[1] for block in parts), initial=0)
        data = np.concatenate(parts, axis=1)
        bundles.append(Bundle(max(map(used, members)), data, dict(zip(members, begins, strict=True))))
        end = begin
    return bundles[::-1]


def _parts(lanes: int, used: int, size: int, address: int, config: Config) -> list[Tensor]:
    """Divide constants in DDR (lanes, size) into parts for single transfers, which move the first `used` lanes."""
    most = LARGEST - LARGEST % config.eu_bytes
    return [
        Tensor(address + low, Shape(1, used, 1, min(size - low, most)), Stride(lanes * size, size, size, 1), U8, config)
        for low in range(0, size, most)
    ]


def copy(y: Tensor, x: Tensor) -> Command:
    return Command(OPERATIONS["dma_copy"], {"x": x}, {"y": y})
