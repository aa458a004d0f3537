"""The order of shifts and stores where each group of results is stored one byte at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.schedule import Range
from tilewright.targets.vta.compiler.kernels import Run, Step, runs
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.plan import Group, Plan, SlotRegion
from tilewright.targets.vta.compiler.work import Costs, Item, RunSteps, StoreResults, shift


class _Waiting(NamedTuple):
    """A group of layer number `owner`, in accumulator slot `acc`: its `plane` may be shifted from `ready` on."""

    ready: int
    owner: int
    layer: Layer
    group: Group
    acc: int
    plane: int


class Pending:
    """The byte planes of all layers that wait for their shifts, and the estimated times of the units.

    Items are yielded with the index of their layer: the last shifts of a layer may run between the sums of the next.
    """

    def __init__(self, costs: Costs) -> None:
        line = costs.config.pipeline
        self.costs = costs
        self.gemm, self.alu, self.store = line.gemm, line.alu, line.store
        self.time = [0] * len(line.units)
        self.port = 0  # cycle in which all reads so far have ended
        self.waiting: deque[_Waiting] = deque()
        self.regions: list[SlotRegion] = []  # the accumulators of layers that may wait

    def rest(self) -> Iterator[tuple[int, Item]]:
        """Yield all remaining shifts and stores of byte planes."""
        while self.waiting:
            yield from self.shift()

    def run(self, steps: Sequence[Step], ready: int) -> None:
        """Note ALU steps whose operands are ready in cycle `ready`."""
        self.time[self.alu] = max(self.time[self.alu], ready) + sum(map(self.costs.step, steps))

    def shift(self) -> Iterator[tuple[int, Item]]:
        """Yield the first waiting shift and its store."""
        ready, owner, layer, group, acc, plane = self.waiting.popleft()
        steps = shift(group.tiles, self.costs.config.LOG_ACC_WIDTH)
        self.run(steps, ready)
        for run in runs(steps):
            yield owner, RunSteps(run, acc)
        yield owner, StoreResults(acc, group, plane)
        self.stored(owner, layer, group, acc, plane)

    def stored(self, owner: int, layer: Layer, group: Group, acc: int, plane: int) -> int:
        """Note a store after the ALU's last step; return the cycle in which it ends."""
        costs = self.costs
        spent = costs.box(group.stores(layer), costs.config.out)
        start = max(self.time[self.store], self.time[self.alu] + costs.handover.core)
        self.time[self.store] = start + spent + costs.handover.turn
        done = start + spent + costs.handover.stored
        if plane + 1 < layer.planes:
            self.waiting.append(_Waiting(done, owner, layer, group, acc, plane + 1))
        return done


class Planes:
    """Orders the ALU shifts for a layer's second and later byte planes: each runs once the previous plane is stored.

    The times of loads, runs and stores are estimated; each unit works in the order in which items are placed.
    """

    def __init__(self, index: int, plan: Plan, pending: Pending) -> None:
        self._index, self._layer, self._pending = index, plan.layer, pending
        self._arrival: dict[tuple[str, int], int] = {}  # by slot: the cycle in which its data arrive
        self._last: dict[tuple[str, int], int] = {}  # by slot: the cycle in which its last user ends
        self._free = [0] * plan.acc  # cycle from which each accumulator slot is free

    def opened(self, where: SlotRegion) -> Iterator[tuple[int, Item]]:
        """Begin the layer, with accumulators `where`. Yield the shifts and stores that cannot wait for its sums."""
        known = self._pending
        end = where.at(where.slots)
        if self._layer.planes == 1 or any(where.base < old.at(old.slots) and old.base < end for old in known.regions):
            yield from known.rest()
            known.regions.clear()
        known.regions.append(where)

    def loads(self, name: str, slot: int, cycles: int) -> None:
        """Note a load of a slot of memory `name` that takes the DRAM port `cycles` cycles."""
        known = self._pending
        known.port = max(known.port, self._last.get((name, slot), 0)) + cycles
        self._arrival[name, slot] = known.port + known.costs.latency

    def before(self, acc: int) -> Iterator[tuple[int, Item]]:
        """Yield the shifts and stores before a group in slot `acc`: those that free the slot, and those now ready."""
        known = self._pending
        while any(waiting.acc == acc and waiting.owner == self._index for waiting in known.waiting):
            yield from self._shift()
        while known.waiting and known.waiting[0].ready <= max(known.time[known.alu], self._free[acc]):
            yield from self._shift()
        known.time[known.gemm] = max(known.time[known.gemm], self._free[acc])

    def placed(
        self, sums: Sequence[Run], acc: int, inp: int = -1, wgt: int = -1, pieces: tuple[Range, ...] = ()
    ) -> Iterator[tuple[int, Item]]:
        """Yield the GEMM runs of a group, and between them the shifts and stores that are ready."""
        known, slots = self._pending, (("inp", inp), ("wgt", wgt))
        arrival = max(self._arrival.get(slot, 0) for slot in slots)
        for run in sums:
            while known.waiting and known.waiting[0].ready <= max(
                known.time[known.gemm], arrival, known.time[known.alu]
            ):
                yield from self._shift()
            if self._layer.planes > 1:
                start = max(known.time[known.gemm], arrival)
                known.time[known.gemm] = start + sum(map(known.costs.step, run.steps))
                self._last.update(dict.fromkeys(slots, known.time[known.gemm]))
            yield self._index, RunSteps(run, acc, inp, wgt, pieces=pieces)

    def stored(self, group: Group, acc: int, steps: Sequence[Step]) -> Iterator[tuple[int, Item]]:
        """Yield the store of a group's first byte plane, which follows the ALU's `steps`."""
        yield self._index, StoreResults(acc, group, 0)
        if self._layer.planes > 1:
            self._pending.run(steps, self._pending.time[self._pending.gemm])
            self._pending.stored(self._index, self._layer, group, acc, 0)

    def _shift(self) -> Iterator[tuple[int, Item]]:
        known, first = self._pending, self._pending.waiting[0]
        yield from known.shift()
        if first.owner == self._index and first.plane + 1 == self._layer.planes:
            # The slot is busy until stored where one compute unit also writes out.
            stored = known.time[known.store] - known.costs.handover.turn + known.costs.handover.stored
            self._free[first.acc] = stored if known.gemm == known.alu else known.time[known.alu]
