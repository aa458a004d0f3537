"""The plan of a launch: the addresses of tensors and constants, and the division of the layers into groups.

In a group, each of the N samples of a batch runs through all layers before the next sample starts. A tensor inside a
group therefore needs memory for one sample, but a tensor between groups needs memory for all N samples. The constants
of a group stay in local memory until its last sample has run. A single layer with too many constants forms a group of
its own: its constants are loaded part by part, and all samples run through each part. The blocks of constants are
transferred in bundles, because each transfer has a minimum time (timing/estimate.py).
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

#: A layer alone in its group loads its constants part by part if they take more than 1 / LARGE of a lane.
LARGE = 4
#: A range of layer indices: the first, and one past the last.
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

        The new blocks may overwrite only blocks whose names are in `done`. Raises DoesNotFit if this is not possible.
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
    """The bytes of a lane that hold a tensor.

    There is room for `copies` samples, which begin at byte `offset` and are `stride` bytes apart. Sample n overwrites
    sample n - copies.
    """

    offset: int
    copies: int
    stride: int

    def of(self, sample: int) -> int:
        return self.offset + sample % self.copies * self.stride


@dataclass(frozen=True, eq=False)
class Plan:
    """Where the tensors, buffers and constants of a launch lie.

    All offsets are byte offsets in a lane. `allocations` has the tensors by name, `temps` the offsets of temporary
    buffers by layer, and `gathered` the gathered inputs by layer. `line_buffers` has an offset for each input or result
    of one pixel: in a line buffer, all channels of the pixel are adjacent, and one run transfers them. `by_parts` has
    the groups that load their constants part by part; each has a single layer. Constants begin at `values_end`.
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
    # A single sample gains nothing from larger groups: each layer is a group, and loads its constants part by part.
    if config.batch == 1:
        alone = [(index, index + 1) for index in range(len(cuts))]
        return _placed(cuts, alone, outside, frozenset(alone))
    limit = config.lane_bytes
    failure = DoesNotFit("no plan was tried")
    # Larger groups are tried first. They need less memory for tensors, because a tensor inside a group has room for one
    # sample only. But the constants of all layers of a group must fit into local memory together.
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
    """Divide the layers into groups. The constants of a group fit into `limit` bytes, unless it has a single layer."""
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
    # A buffer lives from its first to its last layer. Buffers that never live at the same time may share memory.
    offsets, end_of_all = place(buffers)
    if end_of_all > config.lane_bytes:
        raise DoesNotFit(f"its tensors need {end_of_all} bytes of each lane, which has {config.lane_bytes}")
    allocations = {}
    for name, (whole, slots) in wholes.items():
        size = form[whole].lane_bytes(config)
        # a tensor inside a joined tensor begins `slots` slots after the joined tensor
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
    """How many samples of a tensor are in local memory at a time, and the first and last layer that use the tensor."""

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
        # A tensor that one group computes and reads needs room for one sample. A tensor needs room for the whole batch
        # if several groups use it, or if its group loads constants part by part.
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
            # a layer may read a tensor in another shape than the layer that computes it, whose format is kept
            form.setdefault(name, shape)
            spans[name] = (spans.get(name, (index, index))[0], index)
        form[cut.layer.output] = cut.layer.result
        spans[cut.layer.output] = (index, index)
    return form, spans


def _wholes(cuts: Sequence[Tiling], names: Iterable[str]) -> dict[str, tuple[str, int]]:
    views: dict[str, tuple[str, int]] = {}
    for cut in cuts:
        for name, _, (_, channels, _, _) in cut.layer.joined if cut.layer.axis == 1 else ():
            # An input of a join can be computed inside the joined tensor if its first channel lies in the first lane.
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


#: A layer's index, and the number of a block among the layer's blocks of constants.
Key = tuple[int, int]
#: The largest size of a bundle of several blocks, in bytes of a lane. A larger bundle would delay its first block,
#: which is usable only after the whole bundle has arrived.
MOST_BYTES = 1 << 12


@dataclass(frozen=True, eq=False)
class Bundle:
    """Blocks of constants that are transferred together: uint8 (lanes, n).

    Transfers move only the first `used` lanes. `begins` has the first byte of each block by its key.
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
    """Combine consecutive blocks into bundles such that the transfers take the fewest cycles in total.

    `used` returns the number of lanes that a block occupies. `separate` returns whether two consecutive blocks must be
    in separate bundles. The first block is always alone in its bundle, because the first layer waits for it.
    """
    keys = list(blocks)
    # Dynamic programming: for the first n blocks, best[n] has the fewest cycles, and the first block of the last
    # bundle.
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(keys) + 1):
        choices: list[tuple[int, int]] = []
        lanes = size = 0
        for begin in range(end - 1, -1, -1):
            lanes = max(lanes, used(keys[begin]))
            size = size + blocks[keys[begin]].shape[1]
            alone = begin == end - 1
            # only a bundle of several blocks has a size limit
            if not alone and (not begin or size > MOST_BYTES or separate(keys[begin], keys[begin + 1])):
                break
            spent = sum(
                estimate.cycles(copy(part, part), config) for part in _parts(lanes, lanes, size, DDR_BASE, config)
            )
            choices.append((best[begin][0] + spent, begin))
        # at equal cost, the last bundle is as small as possible, so that its first block arrives early
        best.append(min(choices, key=lambda choice: (choice[0], -choice[1])))
    # Starting with the last block, find the chosen bundles.
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
    """Divide constants (lanes, size) in DDR into parts that single transfers of the first `used` lanes can move."""
    most = LARGEST - LARGEST % config.eu_bytes
    return [
        Tensor(address + low, Shape(1, used, 1, min(size - low, most)), Stride(lanes * size, size, size, 1), U8, config)
        for low in range(0, size, most)
    ]


def copy(y: Tensor, x: Tensor) -> Command:
    return Command(OPERATIONS["dma_copy"], {"x": x}, {"y": y})
