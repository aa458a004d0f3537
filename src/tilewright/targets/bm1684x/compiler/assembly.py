"""Assemble a launch: lay out DDR, collect the commands of a launch, and build the queues of both engines.

The caller adds commands in a valid sequential order. For each unit of local memory (`UNIT` bytes per lane), the code
records the last commands that accessed the unit. A new command depends on the recorded commands of the other engine.
Compute commands keep their order. Transfers into local memory move ahead as far as they do not overwrite data in use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tilewright.array import ascending
from tilewright.program.program import Launch
from tilewright.sim.steps import WRITE
from tilewright.targets.bm1684x.compiler.layer import Layer
from tilewright.targets.bm1684x.compiler.plan import DoesNotFit, Key, Ring, bundled, copy
from tilewright.targets.bm1684x.compiler.tiles import LaneOffsets, Tile, Tiling
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.meaning import encoded
from tilewright.targets.bm1684x.isa.operations import DMA, TIU
from tilewright.targets.bm1684x.isa.parts import TooFar
from tilewright.targets.bm1684x.isa.stream import queue
from tilewright.targets.bm1684x.launch.image import LocalResult, MemoryTensor
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.samples import SampleFormat
from tilewright.targets.bm1684x.layouts.tensor import Operand, Tensor
from tilewright.targets.bm1684x.timing import estimate

#: Granularity of dependencies, in bytes per lane.
UNIT = 64
#: Alignment of segments in DDR, in bytes.
PAGE = 4096
#: The kinds of transfers. Transfers of one kind keep their order.
CONSTANTS = "constants"
INPUTS = "inputs"
JOINS = "joins"
OUTPUTS = "outputs"


@dataclass(eq=False)
class QueuedCommand:
    """A command of the compute engine or the DMA engine. `layer` is the index of its layer.

    Before this command starts, the first `after` commands of the other engine must have ended. For compute commands,
    `schedule` computes `after`. `needs` lists transfers that must come first, by their index in the order of `move`
    calls: a compute command waits until they have ended, and a transfer stays behind them in the queue.
    """

    command: Command
    layer: int
    kind: str
    after: int = 0
    needs: list[int] = field(default_factory=list)
    before: int = 1 << 60  # deadline: the first compute command that waits for this transfer


class Stream:
    """The commands of both engines with their dependencies. `schedule` orders the transfers."""

    def __init__(self, config: Config) -> None:
        self._config = config
        units = config.lane_bytes // UNIT
        self._touched = np.zeros(units, np.int64)  # for each unit: 1 + index of the last compute command that uses it
        self._written = np.full(units, -1, np.int64)  # for each unit: index of the last transfer that writes it
        self._read = np.full(units, -1, np.int64)  # for each unit: index of the last transfer that reads it
        self._compute: list[QueuedCommand] = []
        self._moves: list[QueuedCommand] = []

    def compute(self, command: Command, layer: int) -> None:
        issued = QueuedCommand(command, layer, TIU)
        number = len(self._compute)
        needs = set()
        # A read waits for the last transfer that wrote the bytes. A write also waits for the last transfer that read
        # the bytes. A compute command need not wait for earlier compute commands, because the engine runs in order.
        for mode, _, operand in command.in_memory:
            needs |= self._transfers(mode, operand)
            low, high = self._units(operand)
            self._touched[low:high] = number + 1
        issued.needs = sorted(needs)
        # The deadline of a transfer is the first compute command that needs the transferred data. `schedule` prefers
        # transfers with early deadlines.
        for move in issued.needs:
            self._moves[move].before = min(self._moves[move].before, number)
        self._compute.append(issued)

    @property
    def computed(self) -> int:
        return len(self._compute)

    def move(self, command: Command, layer: int, kind: str) -> None:
        """Add a transfer for the layer with the index `layer`. Transfers of one `kind` keep their order."""
        issued = QueuedCommand(command, layer, kind)
        local = [(mode, operand) for mode, _, operand in command.in_memory if operand.storage.is_local]
        # Even a read waits for earlier readers of the bytes, because only the last reader is recorded, and `schedule`
        # may reorder transfers of different kinds.
        issued.needs = sorted({transfer for _, operand in local for transfer in self._transfers(WRITE, operand)})
        for mode, operand in local:
            low, high = self._units(operand)
            # A transfer waits for every earlier compute command that accesses the same bytes.
            issued.after = max(issued.after, int(self._touched[low:high].max()))
            (self._written if mode == WRITE else self._read)[low:high] = len(self._moves)
        self._moves.append(issued)

    def schedule(self) -> tuple[dict[str, list[QueuedCommand]], int]:
        """Order the transfers, and return each engine's commands in order and the cycle at which the last command ends.

        This is list scheduling: it repeatedly takes the transfer that can start first and, among equals, has the
        earliest deadline.
        """
        cost = [estimate.cycles(issued.command, self._config) for issued in self._compute]
        # Transfers of one kind keep their order, so only the first waiting transfer of each of the four kinds is a
        # candidate.
        heads: dict[str, deque[int]] = {}
        for number, issued in enumerate(self._moves):
            heads.setdefault(issued.kind, deque()).append(number)
        for waiting in heads.values():  # transfers of one kind keep their order
            for earlier, later in pairwise(reversed(waiting)):
                self._moves[later].before = min(self._moves[later].before, self._moves[earlier].before)
        ended: list[int] = []  # end cycles of the compute commands whose end is known
        arrived: dict[int, int] = {}
        order: list[int] = []
        now = 0
        while any(heads.values()):
            self._advance(cost, ended, arrived)
            # A transfer is ready if its compute commands have a known end, and the transfers that it needs are queued.
            # A ready transfer always exists, because dependencies lead only to commands that were added earlier.
            ready = [
                (max(now, ended[move.after - 1] if move.after else 0), move.before, waiting[0])
                for waiting in heads.values()
                if waiting
                and (move := self._moves[waiting[0]]).after <= len(ended)
                and all(transfer in arrived for transfer in move.needs)
            ]
            start, _, number = min(ready)
            now = start + estimate.cycles(self._moves[number].command, self._config)
            arrived[number] = now
            order.append(number)
            heads[self._moves[number].kind].popleft()
        self._advance(cost, ended, arrived)
        place = {number: index for index, number in enumerate(order, 1)}
        # A compute command can name only one transfer to wait for. Transfers end in queue order, so the command names
        # the last of them.
        for issued in self._compute:
            issued.after = max((place[move] for move in issued.needs), default=0)
        queues = {TIU: self._compute, DMA: [self._moves[number] for number in order]}
        return queues, max(now, ended[-1] if ended else 0)

    def _advance(self, cost: list[int], ended: list[int], arrived: dict[int, int]) -> None:
        while len(ended) < len(self._compute):
            needs = self._compute[len(ended)].needs
            if any(move not in arrived for move in needs):
                return
            start = max(ended[-1] if ended else 0, max((arrived[move] for move in needs), default=0))
            ended.append(start + cost[len(ended)])

    def _transfers(self, mode: int, operand: Operand) -> set[int]:
        low, high = self._units(operand)
        # a write must also wait for transfers that read the old values
        columns = (self._written, self._read) if mode == WRITE else (self._written,)
        return {number for column in columns for number in ascending(column[low:high]).tolist()} - {-1}

    def _units(self, operand: Operand) -> tuple[int, int]:
        tensor = operand.storage
        return tensor.lane_offset // UNIT, -(-tensor.lane_end // UNIT)


class Assembly:
    """A launch under construction.

    `entering` has the input tensors in DDR by name, and `leaving` has the result tensors. `separate` returns whether
    two consecutive blocks of constants must be transferred separately.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        cuts: Sequence[Tiling],
        entering: Mapping[str, SampleFormat],
        leaving: Mapping[str, SampleFormat],
        values_end: int,
        config: Config,
        separate: Callable[[Key, Key], bool] = lambda before, after: False,
    ) -> None:
        self.config = config
        self.stream = Stream(config)
        self.done: set[str] = set()  # names of constant blocks that no later command reads
        self._layers = layers
        self._values_end = values_end
        self._ring = Ring(values_end, config.lane_bytes)
        self._resident: dict[Key, int] = {}
        blocks = {(at, number): block for at, cut in enumerate(cuts) for number, block in enumerate(cut.blocks)}
        self._bundles = bundled(blocks, lambda key: min(config.lanes, layers[key[0]].result.c), separate, config)
        *addresses, end = accumulate((bundle.data.size for bundle in self._bundles), initial=DDR_BASE)
        self._bundle_of = {key: number for number, bundle in enumerate(self._bundles) for key in bundle.begins}
        self._addresses = addresses
        self.entering, end = self._segments(entering, end)
        self.leaving, _ = self._segments(leaving, end)

    def _segments(self, tensors: Mapping[str, SampleFormat], address: int) -> tuple[dict[str, MemoryTensor], int]:
        placed = {}
        for name, form in tensors.items():
            address = -(-address // PAGE) * PAGE
            placed[name] = MemoryTensor(name, address, form)
            address += form.nbytes * self.config.batch
        return placed, address

    def block(self, index: int, number: int) -> int:
        """Return the offset in a lane of constant block `number` of layer `index`, or 0 if there is no such block.

        The first call for a block adds the transfers of its bundle. Raises plan.DoesNotFit if the bundle does not fit.
        """
        key = (index, number)
        # The transfer is added when the first tile needs the block. `schedule` later moves the transfer as early as
        # possible.
        if key in self._bundle_of and key not in self._resident:
            bundle_number = self._bundle_of[key]
            bundle = self._bundles[bundle_number]
            names = [block_name(*member) for member in bundle.begins]
            offset = self._ring.take(names, bundle.data.shape[1], self.done)
            self._resident |= {member: offset + begin for member, begin in bundle.begins.items()}
            for transfer in bundle.transfers(self._addresses[bundle_number], offset, self.config):
                self.stream.move(transfer, index, CONSTANTS)
        return self._resident.get(key, 0)

    def load(self, name: str, number: int, local: Tensor, index: int, first: int = 0) -> None:
        """Add the transfers that fill the tensor `local` with sample `number` of an input, from row `first` on."""
        form = self.entering[name].form
        address = self.entering[name].address + number * form.nbytes
        if form.phases is None:
            self.stream.move(copy(local, self._rows(address, form, local, first)), index, INPUTS)
            return
        phases = form.phases
        _, _, rows, columns = local.shape
        shape = Shape(1, phases.channels, rows, columns)
        plane = phases.rows * phases.columns
        # For each folded tap, one transfer loads the image, shifted by the tap, into the next channels.
        for place, offset in enumerate(phases.offsets):
            begin = address + (offset + first * columns) * form.dtype.bytes
            dram = Tensor(begin, shape, Stride(0, plane, columns, 1), form.dtype, self.config)
            into = local[:, place * phases.channels : (place + 1) * phases.channels]
            self.stream.move(copy(into, dram), index, INPUTS)

    def store(self, name: str, number: int, local: Tensor, index: int, first: int = 0) -> None:
        """Add the transfer that stores the tensor `local` as sample `number` of a result, from row `first` on."""
        form = self.leaving[name].form
        address = self.leaving[name].address + number * form.nbytes
        self.stream.move(copy(self._rows(address, form, local, first), local), index, OUTPUTS)

    def _rows(self, address: int, form: SampleFormat, local: Tensor, first: int) -> Tensor:
        # The rows have the length of the rows of `local`, because two layers may view one tensor with different row
        # lengths.
        columns = local.shape.w
        stride = Stride(0, form.h * form.w if local.shape.c > 1 else 0, columns, 1)
        return Tensor(address + first * columns * form.dtype.bytes, local.shape, stride, form.dtype, self.config)

    def compute(self, tile: Tile, index: int, inputs: Sequence[int], result: int, temps: Mapping[int, int]) -> None:
        """Add the commands of a tile of layer `index`. `inputs`, `result` and `temps` are byte offsets in a lane."""
        for command in tile.commands(LaneOffsets(inputs, result, temps, self.block(index, tile.number))):
            self.stream.compute(command, index)

    def launch(
        self, tiles: Sequence[Sequence[int]], groups: Sequence[tuple[int, int]], local_results: Sequence[LocalResult]
    ) -> Launch:
        """Return the launch with all commands added so far.

        `listing.explain` prints `tiles` and `groups`. The debugger shows `local_results`, the results of layers in
        local memory. Raises DoesNotFit if a stride is too long for its instruction field.
        """
        issued, cycles = self.stream.schedule()
        try:
            queues = {
                engine: queue(engine, [encoded(item.command, at, item.after) for at, item in enumerate(commands)])
                for engine, commands in issued.items()
            }
        except TooFar as far:
            # The strides of a smaller image or batch are shorter, so another split may succeed.
            raise DoesNotFit(far.reason) from None
        meta: dict[str, Any] = {
            "tiu_bytes": len(queues[TIU]),
            "batch": self.config.batch,
            "values_end": self._values_end,
            "scheduled": cycles,
            "inputs": [segment.row for segment in self.entering.values()],
            "outputs": [segment.row for segment in self.leaving.values()],
            "notes": [layer.note for layer in self._layers],
            "tiles": [list(size) for size in tiles],
            "groups": [list(group) for group in groups],
            "held": [
                [result.row, result.computed, *result.tensor.row]
                for result in local_results
                if result.tensor.name not in self.leaving
            ],
        }
        blocks = (bundle.data.reshape(-1) for bundle in self._bundles)
        arrays = {
            "insns": np.concatenate([queues[TIU], queues[DMA]]),
            "constants": np.concatenate([np.zeros(0, np.uint8), *blocks]),
            "layers": np.array([item.layer for commands in issued.values() for item in commands], np.int32),
        }
        names = tuple(layer.name for layer in self._layers)
        return Launch(names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}", names, meta, arrays)


def block_name(index: int, number: int) -> str:
    return f"layer {index}, part {number}"
