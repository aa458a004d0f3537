"""Put the items of layers (loads, runs of instructions, stores; see work.py) in order, without timing them.

The compute and store units work in the order of the plans. Each load is placed as early as possible: after the last use
of the data that the load overwrites, and after the stores whose results the load reads. The load's slot (see plan.py)
is the data to overwrite.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.schedule import Held, Range
from tilewright.targets.vta.compiler.epilogue import residual_steps, split_shift
from tilewright.targets.vta.compiler.kernels import Run, Step, runs
from tilewright.targets.vta.compiler.layer import Residual, Span, covered
from tilewright.targets.vta.compiler.plan import Chunk, Group, Plan, RegionAllocator, Regions, memory_of, parameter_room
from tilewright.targets.vta.compiler.planes import PlaneScheduler
from tilewright.targets.vta.compiler.work import (
    ANYTHING,
    CLIPPED,
    SUMS,
    Costs,
    Item,
    LoadTiles,
    PlacedLoad,
    RunSteps,
    add_offsets,
    clear,
    close_group,
    copy,
    costs_of,
    input_load,
    offset_loads,
    open_group,
    parameter_load,
    sums,
    weight_load,
    weight_loads,
)
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Opcode

#: Maximum number of accumulator tiles to clear while a launch's first loads arrive.
IDLE = 256


class Stage(NamedTuple):
    """A layer's plan. `fixed`: the plan is the user's, and must stay.

    `reads`: for each tensor that the layer loads as input tiles (see chain.operands), the indices of the layers that
    write the tensor, in the order of the tensor's channels; () if the host writes the tensor.
    """

    plan: Plan
    reads: tuple[tuple[int, ...], ...] = ()
    fixed: bool = False


@dataclass(frozen=True, eq=False)
class StreamOrder:
    """The items of all layers in stream order: loads merged with the work of the compute and store units."""

    items: list[tuple[int, Item]]  # (layer index, item)
    work: list[int]  # the index of each item in `WorkList.work`, -1 for a load
    regions: tuple[Regions, ...]  # the slots of each layer


class _StartedGroup(NamedTuple):
    """A group whose accumulators were started, but whose sums are not added yet."""

    number: int  # the group's number in the launch, from 1 on
    group: Group
    acc: int  # the accumulator slot of the group
    before: int  # the accumulator slot of the previous group
    par: int  # the group's parameter slot, or -1
    above: Span | None  # the rows of the previous group


@dataclass(frozen=True, eq=False)
class _LayerState:
    """The state of a layer in a `WorkList`."""

    index: int
    plan: Plan
    where: Regions
    held: dict[str, Held]  # the data in the slots of each memory
    first: int  # the number of the layer's first group
    cleared: list[int]  # with `carries`: the number of cleared tiles in each accumulator slot
    slots: dict[str, list[slice]]  # the tiles of the slots of each memory
    pieces: dict[int, tuple[Range, ...]] = field(default_factory=dict)  # the tiles of pieces, by weight slot
    chunk_runs: dict[Hashable, tuple[Run, ...]] = field(default_factory=dict)  # a cache, by shapes
    sources: dict[int, Array] = field(default_factory=dict)  # by tensor: the group that stores each tile
    joined: list[int] = field(default_factory=list)  # groups whose residual was added, or the first with offsets


class WorkList:
    """The work of the compute and store units for consecutive layers, in order, and the loads that this work needs.

    The layers are appended one by one (`layer`), then `end` is called. Groups are numbered over all layers.
    """

    def __init__(self, costs: Costs, regions: tuple[Regions, ...], by_step: bool = False) -> None:
        """Make an empty list. With `by_step`, each GEMM or ALU step is an item, so a load may go before any step."""
        self.costs = costs
        self._config = costs.config
        self.regions = regions
        self.by_step = by_step
        self._alone = len(regions) == 1
        self.line = self._config.pipeline
        self.work: list[tuple[int, Item]] = []
        self.loads: list[PlacedLoad] = []
        self.items: list[tuple[int, Item]] = []  # after `end`: all work, then all loads; the numbers stay
        config = self._config
        depth = max(config.acc.depth, config.inp.depth, config.wgt.depth, config.par.depth)
        #: By tile: the index in `work` after the tile's last user.
        self._used = {name: np.zeros(depth, np.int64) for name in ("inp", "wgt", "par")}
        self._stored: list[Array] = []  # by layer: the group that stores each tile of its result
        self._content = np.full(config.acc.depth, ANYTHING, np.int8)  # for each acc tile: ANYTHING, SUMS or CLIPPED
        self._cleared: list[int] = []  # by group: the index in `work` after the steps that start its accumulators
        self.stores: list[int] = []  # by group: the index in `work` of its first store
        self._groups = 0
        self._planes = PlaneScheduler(costs)
        #: The maximum length of the micro-op lists of GEMM and ALU instructions.
        self._limit = max(1, config.uop.depth // 4)
        self._alu_limit = self._limit if self.line.gemm == self.line.alu else max(1, config.alu_uop.depth // 4)
        self._loaded: list[PlacedLoad] = []  # loads not yet passed to the PlaneScheduler
        #: The last group, if its sums are not appended yet: its first tile, its end tile, its layer, and the group.
        self._last: tuple[int, int, _LayerState, _StartedGroup] | None = None
        self._state: _LayerState

    def layer(self, stage: Stage, where: Regions, groups: Iterable[Group]) -> None:
        """Append the work and loads of a layer, or of some of its groups.

        The sums of the last group may be left for `finish` to append: with four stages, the ALU starts the accumulators
        of the next group before it finishes the current group, so that GEMM need not wait.
        """
        layer = stage.plan.layer
        acc_slots = stage.plan.slots.acc
        regions = {"inp": where.inp, "wgt": where.wgt, "par": where.par}
        held = {name: Held(region.slots) for name, region in regions.items()}
        slots = {name: region.tiles for name, region in regions.items()}
        self._stored.append(np.zeros(stage.plan.stored_tiles if not self._alone else 0, np.int64))
        index = len(self._stored) - 1
        state = _LayerState(index, stage.plan, where, held, self._groups + 1, [0] * acc_slots, slots)
        self.work.extend(self._planes.opened(layer, where.acc))
        groups = list(groups)
        ahead = self.line.gemm != self.line.alu and layer.start != "zero"
        above: Span | None = None
        for group in groups:
            acc = self._groups % acc_slots
            before = (self._groups - 1) % acc_slots
            self._groups += 1
            place = where.acc.ends(acc)
            # A group must not start accumulators in which another group is unfinished.
            if not ahead or (self._last and self._last[0] < place[1] and place[0] < self._last[1]):
                self.finish()
            self._state = state
            task = _StartedGroup(self._groups, group, acc, before, self._open(group, acc), above)
            self.finish(state, task)
            if self._groups == 1 and layer.carries:  # the machine waits for its first loads, and has time to clear
                self._clear(groups)
            if not state.sources:
                for tensor, writers in enumerate(stage.reads):
                    if writers:
                        state.sources[tensor] = np.concatenate([self._stored[writer] for writer in writers])
            self._last = *place, state, task
            if not ahead:
                self.finish()
            above = group.rows
        self._state = state

    def end(self) -> None:
        self.finish()
        self.work.extend(self._planes.rest())
        self.items = [*self.work, *((load.layer, load.item) for load in self.loads)]

    def finish(self, after: _LayerState | None = None, following: _StartedGroup | None = None) -> None:
        """Append the sums and the end of the last group, if missing. `following`: the next group, of layer `after`."""
        if self._last:
            _, _, self._state, task = self._last
            self._last = None
            self._close(task, following if after is self._state else None)

    def _open(self, group: Group, acc: int) -> int:
        """Append the steps that start a group in slot `acc`. Return the parameter slot that these steps read, or -1."""
        state = self._state
        layer = self._state.plan.layer
        base = state.where.acc.at(acc)
        par = -1
        self.work.extend(self._planes.before(state.index, acc))
        if layer.start == "bias":
            par = self._parameters(group, acc)
        content = int(self._content[base : base + group.sums].min())  # the content of all tiles
        done = state.cleared[acc]
        if layer.carries:  # if an earlier group of the layer used a tile, the tile keeps its top byte plane
            run = runs((clear(group.tiles - done, done),) if group.tiles > done else ())
            state.cleared[acc] = max(done, group.tiles)
        else:
            run = runs(open_group(layer, group, content, self._alu_limit))
        if layer.start == "bias":
            self._put(RunSteps(part, acc, par=par if part.steps[0].parameters else -1) for part in run)
        else:
            self.work.extend(self._planes.placed(state.index, run, acc))
        if layer.start == "zero":
            self._content[base : state.where.acc.at(acc + 1)] = ANYTHING
        else:
            self._content[base : base + group.sums] = SUMS
        self._cleared.append(len(self.work))
        return par

    def _close(self, task: _StartedGroup, following: _StartedGroup | None) -> None:
        """Append a group's loads, sums, last ALU steps and store. `following`: the layer's next group, if started."""
        state = self._state
        group = task.group
        layer = self._state.plan.layer
        by_step = self.by_step or layer.planes > 1
        par = task.par if layer.start == "bias" else self._parameters(group, task.acc)
        last = close_group(layer, group, task.above, self._alu_limit, copies=self.line.gemm != self.line.alu)
        residual = layer.residual
        if residual is None or residual.after is None:
            self._add_sums(task, following, last, by_step)
            if layer.narrow:
                self._add_offsets(task)
            self._put_steps(last, task, par, by_step)
        else:  # the residual is added in the middle of the right shift
            self._add_sums(task, None, last, by_step)
            first, rest = split_shift(last, residual.after)
            self._put_steps(first, task, par, by_step)
            self._add_residual(task, residual)
            self._put_steps(rest, task, par, by_step)
        if par >= 0 and not parameter_room(self._config).in_slots:
            self._use("par", par)
        self.work.extend(self._planes.stored(state.index, group, task.acc, last))
        if layer.requantisation:
            base = state.where.acc.at(task.acc)
            self._content[base : base + group.tiles] = CLIPPED
        self.stores.append(len(self.work) - 1)
        if not self._alone:
            for part in group.stores(layer):
                self._stored[state.index][covered(part)] = len(self.stores) - 1

    def _add_sums(
        self, task: _StartedGroup, following: _StartedGroup | None, last: tuple[Step, ...], by_step: bool
    ) -> None:
        """Append the sums of a group, and a residual that is added before the products.

        `last`: the ALU steps at the end of a group. The left shift of a residual takes ALU time. To hide this time,
        GEMM adds the residual of the group `following` between products of the current group, once the ALU has had time
        to finish the previous group and to start `following`.
        """
        state = self._state
        group = task.group
        acc = task.acc
        residual = state.plan.layer.residual
        if residual and residual.after is not None:
            residual = None
        if residual and task.number not in state.joined:
            self._add_residual(task, residual)
        following = following if residual and residual.left else None
        # The cycles of products after which the residual of `following` is added.
        left = sum(map(self.costs.step, (*last, copy(group.tiles)))) if following else 0
        for chunk in group.chunks:
            if residual and following and left <= 0:
                self._add_residual(following, residual)
                following = None
            inp = self._inputs(group, chunk)
            if task.number == state.first and self._in_pieces(chunk):
                wgt = self._begin(group, chunk, acc, inp)
            else:
                wgt = self._weights(chunk.weights)
                self._note_loads()
                key = group.rows.shape, group.columns.shape, group.outs.size, chunk.inputs.size
                if key not in state.chunk_runs:
                    # Most chunks of a layer have the same shape, so the micro-ops are made once.
                    state.chunk_runs[key] = runs(sums(state.plan, group, chunk, self._limit), by_step)
                pieces = state.pieces.get(wgt, ())
                self.work.extend(self._planes.placed(state.index, state.chunk_runs[key], acc, inp, wgt, pieces))
                if left > 0:
                    left -= sum(self.costs.step(step) for run in state.chunk_runs[key] for step in run.steps)
            self._use("inp", inp)
            self._use("wgt", wgt)
        if residual and following:
            self._add_residual(following, residual)

    def _clear(self, groups: Sequence[Group]) -> None:
        cleared = self._state.cleared
        left = IDLE - cleared[0]
        for slot in range(1, len(cleared)):
            tiles = max((group.tiles for group in groups[slot :: len(cleared)]), default=0)
            if 0 < tiles <= left:
                left -= tiles
                cleared[slot] = tiles
                self._put(RunSteps(run, slot) for run in runs((clear(tiles),)))

    def _in_pieces(self, chunk: Chunk) -> bool:
        """Return whether to load a chunk's weights in pieces. A piece is a row of the kernel, contiguous in DRAM."""
        plan = self._state.plan
        layer = plan.layer
        rows = plan.layer.window.kernel[0]
        if layer.planes == 1 or rows == 1 or layer.shared or plan.weight_tiles(chunk.weights) != layer.taps:
            return False
        fits = plan.slots.inp + plan.slots.wgt * rows <= self._config.token_depth  # each load may push one token
        return fits and self._state.held["wgt"].find(chunk.weights) is None

    def _begin(self, group: Group, chunk: Chunk, acc: int, inp: int) -> int:
        """Append the sums of a chunk for the first group, one kernel row at a time. Each row waits for its own weights.

        Products start once the first row of weights has arrived. Return the weight slot.
        """
        state = self._state
        slot = state.held["wgt"].take(chunk.weights)
        height, width = state.plan.layer.window.kernel
        pieces = state.pieces[slot] = tuple(Range(y * width, width) for y in range(height))
        used = {
            # for each kernel row, the outputs that have this row inside the image
            taps.first + k: taps._replace(first=taps.first + k, size=1)
            for taps in group.rows.taps
            for k in range(taps.size)
        }
        # Kernel rows that only multiply padding in this group come last.
        for y in sorted(range(height), key=lambda y: (y not in used, y)):
            self._load(weight_load(state.plan, slot, chunk.weights, pieces[y], piece=True))
            self._note_loads()
            if y in used:
                row = group._replace(rows=group.rows._replace(taps=(used[y],)))
                run = runs(sums(state.plan, row, chunk, self._limit), True)
                self.work.extend(self._planes.placed(state.index, run, acc, inp, slot, (pieces[y],)))
        return slot

    def _note_loads(self) -> None:
        for load in self._loaded:
            self._planes.loads(self._state.index, load.item.memory, load.item.slot, self.load_cycles(load.item))
        self._loaded.clear()

    def _put_steps(self, steps: tuple[Step, ...], task: _StartedGroup, par: int, by_step: bool) -> None:
        for run in runs(steps, by_step):
            above = task.before if run.steps[0].above else -1
            self._put([RunSteps(run, task.acc, par=par, above=above)])

    def _add_residual(self, task: _StartedGroup, residual: Residual) -> None:
        state = self._state
        group = task.group
        inp = state.where.inp.slots
        wgt = state.where.wgt.slots
        if not state.joined:
            self._load(weight_load(state.plan, wgt, len(state.plan.weight_chunks), Range(0, 1)))
        codes = tuple((state.plan.layer.operands, part) for part in group.results(state.plan.layer))
        self._load(LoadTiles("inp", inp, codes))
        first, *rest = runs(residual_steps(residual, group.tiles))
        self.work.extend(self._planes.placed(state.index, (first,), task.acc, inp, wgt))
        self._use("inp", inp)
        self._use("wgt", wgt)
        self._put(RunSteps(run, task.acc) for run in rest)
        state.joined.append(task.number)

    def _add_offsets(self, task: _StartedGroup) -> None:
        state = self._state
        inp, wgt = state.where.inp.slots, state.where.wgt.slots
        for run in runs(add_offsets(state.plan.layer, task.group, self._limit), True):
            for item in offset_loads(state.plan, inp, wgt, self._config) if not state.joined else ():
                self._load(item)
                state.joined.append(task.number)
            self._note_loads()
            self.work.extend(self._planes.placed(state.index, (run,), task.acc, inp, wgt))
            self._use("inp", inp)
            self._use("wgt", wgt)

    def _put(self, items: Iterable[Item]) -> None:
        self.work.extend((self._state.index, item) for item in items)

    def _inputs(self, group: Group, chunk: Chunk) -> int:
        key = (group.rows.first, group.rows.size, group.columns.first, group.columns.size, chunk.inputs)
        slot = self._state.held["inp"].find(key)
        if slot is None:
            slot = self._state.held["inp"].take(key)
            self._load(input_load(self._state.plan.layer, slot, group, chunk))
        return slot

    def _weights(self, chunk: int) -> int:
        slot = self._state.held["wgt"].find(chunk)
        if slot is None:
            slot = self._state.held["wgt"].take(chunk)
            self._state.pieces.pop(slot, None)
            for item in weight_loads(self._state.plan, slot, chunk, self.costs):
                self._load(item)
        return slot

    def _parameters(self, group: Group, acc: int) -> int:
        """Return the slot with a group's parameters, or -1 if the group has no parameters; append a load if needed.

        `acc`: the group's accumulator slot. If parameters lie in accumulator slots, each accumulator slot has separate
        parameter slots.
        """
        layer = self._state.plan.layer
        if not layer.parameters:
            return -1
        key: Hashable = "all" if layer.kind == "add" else group.outs  # an add has one set
        state = self._state
        room = parameter_room(self._config)
        par = state.where.par
        held = state.held.setdefault(f"par{acc}", Held(par.slots)) if room.in_slots else state.held["par"]
        slot = held.find(key)
        if slot is None:
            slot = held.take(key)
            item = parameter_load(layer, slot, group.outs, acc if room.in_slots else -1)
            if room.in_slots:
                base = state.where.acc.at(acc) + par.at(slot)
                self._content[base : base + par.stride] = ANYTHING
            # If the compute unit itself runs a load, the load is an item of its work. The load unit runs all other
            # loads.
            if room.in_slots or self.line.unit_of(Opcode.LOAD, room.memory) != self.line.load:
                self._put([item])
            else:
                self._load(item)
        return slot

    def _load(self, item: LoadTiles) -> None:
        """Append a load.

        A load that reads the results of a group must wait for the group's store. The next work that starts the group's
        slot in acc also waits for this store. So the load is placed after this work, and needs no further token.
        """
        sources = self._state.sources
        writers = (sources[tensor][covered(part)].max() for tensor, part in item.parts if tensor in sources)
        group = int(max(writers, default=-1))
        free = int(self._used[item.memory][self._state.slots[item.memory][item.slot]].max())
        need = len(self.work)
        at = self._cleared[0]  # after the first clearing, so that the micro-ops of the clearing are loaded first
        stored = -1
        if group >= 0:
            again = group + self._state.plan.slots.acc
            stored = self.stores[group]
            at = max(stored + 1, self._cleared[again] if again < len(self._cleared) else need)
        self.loads.append(PlacedLoad(max(free, at), need, self._state.index, item, free, stored))
        self._loaded.append(self.loads[-1])

    def _use(self, name: str, slot: int) -> None:
        self._used[name][self._state.slots[name][slot]] = len(self.work)

    @property
    def steps(self) -> int:
        return sum(len(item.run.steps) for _, item in self.work if isinstance(item, RunSteps))

    def load_cycles(self, item: LoadTiles) -> int:
        """Return the number of cycles for which a load occupies the DRAM port."""
        chip = self._config.sram(memory_of(item.memory, self._config))
        return self.costs.load((part for _, part in item.parts), chip)


def list_work(stages: Sequence[Stage], config: Config, timing: str, by_step: bool = False) -> WorkList:
    """Return the work and loads of layers. `timing`: the timing model with which planes.py places shifts."""
    places = RegionAllocator(config, len(stages) == 1)
    work_list = WorkList(costs_of(config, timing), tuple(places.allocate(stage.plan) for stage in stages), by_step)
    for stage, where in zip(stages, work_list.regions, strict=True):
        work_list.layer(stage, where, stage.plan.groups())
    work_list.end()
    return work_list


def stream_order(work_list: WorkList, loads: Iterable[PlacedLoad]) -> StreamOrder:
    """Merge the work of a work list with `loads`. Each load comes before item number `at` of the work."""
    merged = StreamOrder([], [], work_list.regions)
    at = 0
    for load in loads:
        merged.items.extend(work_list.work[at : load.at])
        merged.work.extend(range(at, load.at))
        at = max(at, load.at)
        merged.items.append((load.layer, load.item))
        merged.work.append(-1)
    merged.items.extend(work_list.work[at:])
    merged.work.extend(range(at, len(work_list.work)))
    return merged
