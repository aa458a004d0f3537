"""Order the shifts and stores if each group of results is stored one byte at a time.

A STORE writes the lowest byte of each accumulator. Sums that the host requantises have up to four bytes. So the ALU
shifts the sums right by 8 bits after each store. The next store writes the next byte plane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.schedule import Range
from tilewright.targets.vta.compiler.kernels import Run, Step, runs
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.plan import Group, SlotRegion
from tilewright.targets.vta.compiler.work import Costs, Item, RunSteps, StoreResults, plane_steps


class _PendingPlane(NamedTuple):
    """A group of layer number `owner`, in slot `acc`, whose byte plane `plane` may be shifted from cycle `ready` on."""

    ready: int
    owner: int
    group: Group
    acc: int
    plane: int


class PlaneScheduler:
    """Decides when the ALU shifts sums for the second and later byte planes.

    A shift must wait for the store of the previous plane. Directly behind the store, the shift would stall its unit.
    The shift is therefore placed between the sums of later groups. Estimated times of loads, runs and stores decide the
    place. Each unit works in the order of the items. Items are yielded with the index of their layer, because the last
    shifts of a layer may run among the sums of the next layer.
    """

    def __init__(self, costs: Costs) -> None:
        line = costs.config.pipeline
        self._costs = costs
        self._gemm = line.gemm
        self._alu = line.alu
        self._store = line.store
        self._time = [0] * len(line.units)
        self._port = 0  # the cycle in which the last recorded read of the port ends
        self._waiting: deque[_PendingPlane] = deque()
        self._layers: list[Layer] = []
        self._regions: list[SlotRegion] = []  # accumulators of layers with waiting shifts
        # Cycles by layer and slot: when the data arrive, when the last user ends, when an acc slot becomes free.
        self._arrival: dict[tuple[int, str, int], int] = {}
        self._last: dict[tuple[int, str, int], int] = {}
        self._free: dict[tuple[int, int], int] = {}

    def opened(self, layer: Layer, where: SlotRegion) -> Iterator[tuple[int, Item]]:
        """Begin the next layer, with accumulators in region `where`."""
        self._layers.append(layer)
        end = where.at(where.slots)
        # All shifts must run before the layer overwrites accumulators that wait for a shift.
        if layer.planes == 1 or any(where.base < old.at(old.slots) and old.base < end for old in self._regions):
            yield from self.rest()
            self._regions.clear()
        self._regions.append(where)

    def rest(self) -> Iterator[tuple[int, Item]]:
        while self._waiting:
            yield from self._shift()

    def loads(self, index: int, name: str, slot: int, cycles: int) -> None:
        """Record a load of a slot of memory `name` that occupies the DRAM port for `cycles` cycles."""
        self._port = max(self._port, self._last.get((index, name, slot), 0)) + cycles
        self._arrival[index, name, slot] = self._port + self._costs.latency

    def before(self, index: int, acc: int) -> Iterator[tuple[int, Item]]:
        """Yield, before a group in slot `acc`, the shifts and stores that free the slot, then all ready ones."""
        while any(waiting.acc == acc and waiting.owner == index for waiting in self._waiting):
            yield from self._shift(index)
        yield from self._ready(index, max(self._time[self._alu], self._free.get((index, acc), 0)))
        self._time[self._gemm] = max(self._time[self._gemm], self._free.get((index, acc), 0))

    def placed(
        self, index: int, sums: Sequence[Run], acc: int, inp: int = -1, wgt: int = -1, pieces: tuple[Range, ...] = ()
    ) -> Iterator[tuple[int, Item]]:
        """Yield the GEMM runs of a group, and between them the shifts and stores that are ready."""
        slots = (index, "inp", inp), (index, "wgt", wgt)
        arrival = max(self._arrival.get(slot, 0) for slot in slots)
        for run in sums:
            # The run starts when its data have arrived. Shifts that are ready before go first.
            yield from self._ready(index, max(self._time[self._gemm], arrival, self._time[self._alu]))
            if self._layers[index].planes > 1:
                start = max(self._time[self._gemm], arrival)
                self._time[self._gemm] = start + sum(map(self._costs.step, run.steps))
                self._last.update(dict.fromkeys(slots, self._time[self._gemm]))
            yield index, RunSteps(run, acc, inp, wgt, pieces=pieces)

    def stored(self, index: int, group: Group, acc: int, steps: Sequence[Step]) -> Iterator[tuple[int, Item]]:
        """Yield the store of a group's first byte plane, which waits for the ALU steps `steps`."""
        yield index, StoreResults(acc, group, 0)
        if self._layers[index].planes > 1:
            self._run(steps, self._time[self._gemm])
            self._wait(index, group, acc, 0)

    def _ready(self, index: int, cycle: int) -> Iterator[tuple[int, Item]]:
        """Yield the shifts that are ready in `cycle`, or as soon as the earlier shifts have run."""
        while self._waiting and self._waiting[0].ready <= max(cycle, self._time[self._alu]):
            yield from self._shift(index)

    def _shift(self, index: int = -1) -> Iterator[tuple[int, Item]]:
        """Yield the first waiting shift and its store. Record the cycle if this frees a slot of layer `index`."""
        ready, owner, group, acc, plane = self._waiting.popleft()
        config = self._costs.config
        steps = plane_steps(self._layers[owner], group, plane, config.LOG_ACC_WIDTH, config.out.width)
        self._run(steps, ready)
        for run in runs(steps):
            yield owner, RunSteps(run, acc)
        yield owner, StoreResults(acc, group, plane)
        stored = self._wait(owner, group, acc, plane)
        if owner == index and plane + 1 == group.planes(self._layers[index]):
            # With one compute unit, which also writes out, the slot is busy until the store ends.
            self._free[index, acc] = stored if self._gemm == self._alu else self._time[self._alu]

    def _run(self, steps: Sequence[Step], ready: int) -> None:
        self._time[self._alu] = max(self._time[self._alu], ready) + sum(map(self._costs.step, steps))

    def _wait(self, owner: int, group: Group, acc: int, plane: int) -> int:
        """Record a store after the ALU's last step, and return its end cycle. The next plane waits for this store."""
        handover = self._costs.handover
        layer = self._layers[owner]
        start = max(self._time[self._store], self._time[self._alu] + handover.core)
        start += self._costs.store(group.stores(layer, plane))
        self._time[self._store] = start + handover.turn
        if plane + 1 < group.planes(layer):
            self._waiting.append(_PendingPlane(start + handover.stored, owner, group, acc, plane + 1))
        return start + handover.stored
