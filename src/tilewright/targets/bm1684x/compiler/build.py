"""Build one launch from the layers of neighbouring nodes.

`build` keeps all tensors between layers in local memory. If a join has an input outside of the joined tensor, a
transfer moves the input into the joined tensor. `build_in_parts` runs a chain of layers whose tensors do not fit: each
part of the work computes some rows of the last result. A part is a chain of smaller layers, which have only the rows
and the padding that the part needs. Intermediate rows that two parts need are computed twice. Inputs come from DDR, and
results go to DDR. Both are double-buffered, so that transfers overlap with computation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, product

from tilewright.program.program import Launch
from tilewright.schedule import Lived, place
from tilewright.targets.bm1684x.compiler.assembly import JOINS, Assembly, block_name
from tilewright.targets.bm1684x.compiler.folding import fold, gathered
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.plan import DoesNotFit, Key, Plan, copy, plan
from tilewright.targets.bm1684x.compiler.tiles import Tiling
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.launch.image import LocalResult, MemoryTensor
from tilewright.targets.bm1684x.layouts.samples import SampleFormat
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import U8, U16, U32

#: The number of parts in local memory at a time: double buffering.
COPIES = 2


def build(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> Launch:
    """Return one launch that keeps all tensors in local memory. Raises plan.DoesNotFit if the tensors do not fit."""
    folded = _fold_inputs(layers, config)
    try:
        gathering = gathered(folded, leaving, config)
        return ResidentLaunch(gathering, leaving, plan(gathering, leaving, config), config).launch()
    except DoesNotFit:  # gathers need additional memory: try without them
        return ResidentLaunch(folded, leaving, plan(folded, leaving, config), config).launch()


def build_in_parts(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> Launch:
    """Return one launch that computes the last result in parts, with as many rows per part as fit into local memory.

    Raises plan.DoesNotFit if a single row does not fit, or if the layers are not a chain. In a chain, the only input of
    each layer is the result of the previous layer, read with the same number of rows. A chain has no layer that joins
    tensors.
    """
    inner = {layer.output for layer in layers[:-1]}
    links = (
        after.inputs == (before.output,) and after.shapes[0].h == before.result.h for before, after in pairwise(layers)
    )
    if not all(links) or inner & set(leaving) or any(layer.axis for layer in layers):
        raise DoesNotFit("its layers do not form a chain")
    folded = _fold_inputs(layers, config)
    # The largest parts are tried first: the fewer parts there are, the fewer rows are computed twice. Each further
    # attempt has two thirds of the rows.
    rows = layers[-1].result.h
    failure = DoesNotFit("its result has a single row, which does not fit")
    while rows > 1:
        rows = -(-rows * 2 // 3) if rows > 2 else 1
        try:
            return StreamedLaunch(folded, rows, config).launch()
        except DoesNotFit as full:
            failure = full
    raise failure


def fits(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> bool:
    try:
        plan(_fold_inputs(layers, config), leaving, config)
    except DoesNotFit:
        return False
    return True


def _fold_inputs(layers: Sequence[Layer], config: Config) -> list[Layer]:
    read = Counter(name for layer in layers for name in layer.inputs)
    inner = {layer.output for layer in layers}
    return [
        fold(layer, config) if read[layer.inputs[0]] == 1 and layer.inputs[0] not in inner else layer
        for layer in layers
    ]


class ResidentLaunch:
    """Builds a launch that keeps all tensors between its layers in local memory, at the addresses of a plan."""

    def __init__(self, layers: Sequence[Layer], leaving: Collection[str], launch_plan: Plan, config: Config) -> None:
        outputs = {layer.output: layer.result for layer in layers}
        entering = {
            name: form
            for layer in layers
            for name, form in zip(layer.inputs, layer.shapes, strict=True)
            if name not in outputs
        }
        kept = {name: outputs[name] for name in outputs if name in leaving}
        self._layers = layers
        self._plan = launch_plan
        self._config = config
        group = [] if config.batch == 1 else [bounds for bounds in launch_plan.groups for _ in range(*bounds)]

        def separate(before: Key, after: Key) -> bool:
            # A bundle across two groups would load constants of the next group too early: the plan reserves no memory
            # for them while the previous group runs. The same holds for two blocks of a group that is loaded block by
            # block.
            return bool(group) and (group[before[0]] != group[after[0]] or group[before[0]] in launch_plan.by_parts)

        self._assembly = Assembly(layers, launch_plan.cuts, entering, kept, launch_plan.values_end, config, separate)
        self._loaded: set[tuple[str, int]] = set()

    def launch(self) -> Launch:
        batch = self._config.batch
        for group in self._plan.groups:
            by_parts = group in self._plan.by_parts
            # If constants are loaded in parts, each block of constants serves all samples before the next block is
            # loaded. Otherwise each sample runs through all layers of the group.
            for numbers in [range(batch)] if by_parts else [range(number, number + 1) for number in range(batch)]:
                for index in range(*group):
                    self._layer(index, numbers, by_parts)
            for index in range(*group):
                self._assembly.done |= {block_name(index, n) for n in range(len(self._plan.cuts[index].blocks))}
        allocations = self._plan.allocations
        local_results = [_local_result(layer, allocations[layer.output].of(0)) for layer in self._layers]
        return self._assembly.launch([cut.size for cut in self._plan.cuts], self._plan.groups, local_results)

    def _layer(self, index: int, numbers: range, by_parts: bool) -> None:
        for number in numbers:
            self._enter(index, number)
            self._join(index, number)
            self._gather(index, number)
        layer = self._layers[index]
        allocations = self._plan.allocations
        sources = [self._plan.gathered[index]] if layer.gather else [allocations[name] for name in layer.inputs]
        # With `by_parts`, local memory holds the constants of one group of slots at a time. All tiles of a group of
        # slots share a block of constants.
        for part, tiles in groupby(self._plan.cuts[index].tiles(), key=lambda tile: tile.number):
            for tile, number in product(tiles, numbers):
                inputs = [home.of(number) for home in sources]
                result = allocations[layer.output].of(number)
                self._assembly.compute(tile, index, inputs, result, self._plan.temps[index])
            if by_parts:
                self._assembly.done.add(block_name(index, part))
        for number in numbers:
            self._leave(index, number)

    def _gather(self, index: int, number: int) -> None:
        layer = self._layers[index]
        allocations = self._plan.allocations
        if layer.gather:
            source = allocations[layer.inputs[0]].of(number)
            into = self._plan.gathered[index].of(number)
            for command in layer.gather.commands(source, into, self._config):
                self._assembly.stream.compute(command, index)

    def _join(self, index: int, number: int) -> None:
        layer = self._layers[index]
        allocations = self._plan.allocations
        whole = layer.result.local(allocations[layer.output].of(number), self._config)
        for name, form, ranges in layer.joined:
            place = whole[ranges]
            part = form.local(allocations[name].of(number), self._config)
            # The plan may have placed the input inside the result. The stride along n is ignored because n = 1.
            if (place.address, place.stride[1:]) != (part.address, part.stride[1:]):
                self._assembly.stream.move(copy(place, part), index, JOINS)

    def _enter(self, index: int, number: int) -> None:
        for name, form in zip(self._layers[index].inputs, self._layers[index].shapes, strict=True):
            if name in self._assembly.entering and (name, number) not in self._loaded:
                self._loaded.add((name, number))
                local, line = self._places(name, form, number)
                if line:
                    self._assembly.load(name, number, line, index)
                    self._assembly.stream.compute(_transposing_copy(local, line), index)
                    continue
                # The input is loaded in pieces, so that the first tile can start as soon as its own rows are loaded.
                for first, end in pairwise(self._plan.cuts[index].rows_read(form)):
                    self._assembly.load(name, number, local[:, :, first:end], index, first)

    def _leave(self, index: int, number: int) -> None:
        name = self._layers[index].output
        if name in self._assembly.leaving:
            local, line = self._places(name, self._layers[index].result, number)
            if line:
                self._assembly.stream.compute(_transposing_copy(line, local), index)
            self._assembly.store(name, number, line or local, index)

    def _places(self, name: str, form: SampleFormat, number: int) -> tuple[Tensor, Tensor | None]:
        local = form.local(self._plan.allocations[name].of(number), self._config)
        # Adjacent channels of a one-pixel tensor lie in different lanes, and each channel would cost as much as 256
        # bytes (timing/estimate.py). Such a tensor is therefore transferred as one row, through a line buffer in one
        # lane, and a compute command exchanges channels and columns.
        line_buffers = self._plan.line_buffers.get(name)
        if line_buffers is None:
            return local, None
        return local, Tensor.local(0, line_buffers, (1, 1, 1, form.c), form.dtype, self._config)


def _local_result(layer: Layer, offset: int, row: int = 0, computed: int = 0) -> LocalResult:
    return LocalResult(MemoryTensor(layer.output, LOCAL_BASE + offset, layer.result), row, computed)


def _transposing_copy(y: Tensor, x: Tensor) -> Command:
    # The encoding of a move has no sign.
    bits = {1: U8, 2: U16, 4: U32}[x.dtype.bytes]
    return Command(OPERATIONS["wc_trans"], {"x": replace(x, dtype=bits)}, {"y": replace(y, dtype=bits)})


@dataclass(frozen=True, eq=False)
class Slab:
    """A part of a layer: rows of its result from row r0 on, and rows of its inputs from row i0 on."""

    r0: int
    i0: int
    layer: Layer


def slabs(layers: Sequence[Layer], r0: int, r1: int) -> list[Slab]:
    """Reduce each layer of a chain to the rows that are needed for the rows [r0, r1) of the last layer's result."""
    parts: list[Slab] = []
    for layer in reversed(layers):
        # The loop runs from the last layer to the first, because each layer must compute the rows that the next layer
        # reads.
        i0, i1 = (r0, r1)
        window = layer.window
        if window is not None:
            h = layer.shapes[0].h
            low, high = window.rows(r0, r1)
            # at least one row, even if a window covers only padding
            i0 = min(max(0, low), h - 1)
            i1 = max(min(h, high), 1)
            window = window.cut(r0, r1, h)
        shapes = tuple(replace(shape, h=i1 - i0) for shape in layer.shapes)
        result = replace(layer.result, h=r1 - r0)
        parts.append(Slab(r0, i0, replace(layer, window=window, shapes=shapes, result=result)))
        r0 = i0
        r1 = i1
    return parts[::-1]


class StreamedLaunch:
    """Builds a launch that computes a chain of layers in parts: each part computes `rows` rows of the last result."""

    def __init__(self, layers: Sequence[Layer], rows: int, config: Config) -> None:
        h = layers[-1].result.h
        self._layers = layers
        self._rows = rows
        self._config = config
        self._every = [slabs(layers, r0, min(r0 + rows, h)) for r0 in range(0, h, rows)]
        # All parts use the same number of slots per tile, and therefore share their blocks of constants.
        self._slots = [
            min(Tiling(slab.layer, config).size[0] for slab in layer_slabs)
            for layer_slabs in zip(*self._every, strict=True)
        ]
        cuts = [self._cut(index, slab) for index, slab in enumerate(self._every[0])]
        self._offsets, end = place(self._buffers())
        whole = sum(block.shape[1] for cut in cuts for block in cut.blocks)
        if end + whole > config.lane_bytes:
            raise DoesNotFit(
                f"{rows} rows of its result need {end + whole} bytes of each lane; it has {config.lane_bytes}"
            )
        entering = dict(zip(layers[0].inputs, layers[0].shapes, strict=True))
        leaving = {layers[-1].output: layers[-1].result}
        self._assembly = Assembly(layers, cuts, entering, leaving, end, config)
        self._local_results: list[LocalResult] = []

    def _cut(self, index: int, slab: Slab) -> Tiling:
        return Tiling(slab.layer, self._config, self._slots[index])

    def _buffers(self) -> list[Lived]:
        last = len(self._layers) - 1
        sizes = dict[tuple[str, int, int], int]()

        def note(name: str, first: int, end: int, size: int) -> None:
            # The parts differ in size, and a buffer must hold the largest part.
            sizes[name, first, end] = max(sizes.get((name, first, end), 0), size)

        for part in self._every:
            for index, slab in enumerate(part):
                for temp, size in self._cut(index, slab).temps.items():
                    note(f"t{index}/{temp}", index, index, size)
                result = slab.layer.result.lane_bytes(self._config)
                for turn in range(COPIES if index == last else 1):
                    # The last result and the inputs are double-buffered, and stay in use during the whole part.
                    note(f"y{index}/{turn}", *((0, last) if index == last else (index, index + 1)), result)
            for number, shape in enumerate(part[0].layer.shapes):
                for turn in range(COPIES):
                    note(f"x{number}/{turn}", 0, last, shape.lane_bytes(self._config))
        return [Lived(name, size, first, end) for (name, first, end), size in sizes.items()]

    def launch(self) -> Launch:
        turn = 0
        for number in range(self._config.batch):
            for part in self._every:
                self._part(part, number, turn)
                turn = (turn + 1) % COPIES
        sizes = [(slots, slab.layer.result.h) for slots, slab in zip(self._slots, self._every[0], strict=True)]
        return self._assembly.launch(sizes, [(0, len(self._layers))], self._local_results)

    def _part(self, part: Sequence[Slab], number: int, turn: int) -> None:
        """Add the commands of one part of sample `number`. `turn` is 0 or 1, and selects one of the double buffers."""
        assembly = self._assembly
        config = self._config
        inputs = []
        for index, (name, shape) in enumerate(zip(self._layers[0].inputs, part[0].layer.shapes, strict=True)):
            inputs.append(self._offsets[f"x{index}/{turn}"])
            assembly.load(name, number, shape.local(inputs[-1], config), 0, part[0].i0)
        for index, slab in enumerate(part):
            cut = self._cut(index, slab)
            result = self._offsets[f"y{index}/{turn if index == len(part) - 1 else 0}"]
            temps = {temp: self._offsets[f"t{index}/{temp}"] for temp in cut.temps}
            for tile in cut.tiles():
                assembly.compute(tile, index, inputs, result, temps)
            if number == 0:  # the debugger shows the first sample
                self._local_results.append(_local_result(slab.layer, result, slab.r0, assembly.stream.computed))
            inputs = [result]
        store = part[-1].layer.result.local(result, config)
        assembly.store(self._layers[-1].output, number, store, len(part) - 1, part[-1].r0)
