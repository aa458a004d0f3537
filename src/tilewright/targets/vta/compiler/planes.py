"""The order of shifts and stores where each group of results is stored one byte at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.targets.vta.compiler.kernels import Run, Step, runs
from tilewright.targets.vta.compiler.plan import Group, Plan
from tilewright.targets.vta.compiler.work import Compute, Costs, Item, Store, shift


class _Waiting(NamedTuple):
    """A group in accumulator slot `acc`, whose byte plane `plane` may be shifted down from cycle `ready` on."""

    ready: int
    group: Group
    acc: int
    plane: int


class Planes:
    """Orders the ALU shifts for a layer's second and later byte planes: each runs once the previous plane is stored.

    The time of that store is estimated from the cycles of sums, shifts and stores, as if sums never waited for loads.
    """

    def __init__(self, plan: Plan, costs: Costs) -> None:
        self._layer, self._planes, self._costs = plan.layer, plan.layer.planes, costs
        line = costs.config.pipeline
        self._gemm, self._alu, self._store = line.gemm, line.alu, line.store
        self._time = [0] * len(line.units)
        self._waiting: deque[_Waiting] = deque()
        self._free = [0] * plan.acc  # cycle from which each accumulator slot is free

    def before(self, acc: int) -> Iterator[Item]:
        """Yield the shifts and stores before a group in slot `acc`: those that free the slot, and those now ready."""
        while any(waiting.acc == acc for waiting in self._waiting):
            yield from self._shift()
        while self._waiting and self._waiting[0].ready <= max(self._time[self._alu], self._free[acc]):
            yield from self._shift()
        self._time[self._gemm] = max(self._time[self._gemm], self._free[acc])

    def placed(self, sums: Sequence[Run], acc: int, inp: int = -1, wgt: int = -1) -> Iterator[Item]:
        """Yield the GEMM runs of a group, and between them the shifts and stores that are ready."""
        for run in sums:
            while self._waiting and self._waiting[0].ready <= max(self._time[self._gemm], self._time[self._alu]):
                yield from self._shift()
            if self._planes > 1:
                self._time[self._gemm] += sum(map(self._costs.step, run.steps))
            yield Compute(run, acc, inp, wgt)

    def stored(self, group: Group, acc: int, steps: Sequence[Step]) -> Iterator[Item]:
        """Yield the store of a group's first byte plane, which follows the ALU's `steps`."""
        if self._planes > 1:
            self._run(steps, self._time[self._gemm])
        return self._put(group, acc, 0)

    def rest(self) -> Iterator[Item]:
        """Yield all remaining shifts and stores of byte planes."""
        while self._waiting:
            yield from self._shift()

    def _run(self, steps: Sequence[Step], ready: int) -> None:
        self._time[self._alu] = max(self._time[self._alu], ready) + sum(map(self._costs.step, steps))

    def _shift(self) -> Iterator[Item]:
        ready, group, acc, plane = self._waiting.popleft()
        steps = shift(group.tiles, self._costs.config.LOG_ACC_WIDTH)
        self._run(steps, ready)
        for run in runs(steps):
            yield Compute(run, acc)
        yield from self._put(group, acc, plane)

    def _put(self, group: Group, acc: int, plane: int) -> Iterator[Item]:
        yield Store(acc, group, plane)
        if self._planes > 1:
            spent = self._costs.latency + self._costs.box(group.stores(self._layer), self._costs.config.out)
            done = self._time[self._store] = max(self._time[self._store], self._time[self._alu]) + spent
            if plane + 1 < self._planes:
                self._waiting.append(_Waiting(done, group, acc, plane + 1))
            else:  # a single compute unit also writes out: the slot is busy until stored
                self._free[acc] = done if self._gemm == self._alu else self._time[self._alu]
