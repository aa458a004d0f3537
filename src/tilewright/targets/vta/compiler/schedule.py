"""The order of the instructions of one layer, or of several in a row: placed by a simulated clock.

Loads follow the order of the sums. A group whose sums leave as byte planes is shifted as soon as the store of its
last plane is done, and the next group is summed meanwhile, so that shifts and stores of one group overlap the sums of
others. Sorted by start the instructions are a legal order of execution, with each unit's in the order it runs them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.targets.vta.compiler.clock import Clock
from tilewright.targets.vta.compiler.items import Item
from tilewright.targets.vta.compiler.plan import Group, Plan
from tilewright.targets.vta.compiler.regions import Regions
from tilewright.targets.vta.compiler.slots import NO_LIMIT
from tilewright.targets.vta.compiler.work import closing, opening, shift, sums
from tilewright.targets.vta.config import Config


class Stage(NamedTuple):
    """A layer's plan, and of each tensor that layers before it write, their numbers in the order of its channels."""

    plan: Plan
    reads: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class Schedule:
    """(Layer, item) in stream order, the slots of each layer, and when the last item would end."""

    items: tuple[tuple[int, Item], ...]
    regions: tuple[Regions, ...]
    cycles: int


class _Waiting(NamedTuple):
    """A group whose next byte plane may be shifted down from `ready` on."""

    ready: int
    group: Group
    acc: int
    plane: int
    store_cycles: int


def schedule(stages: Sequence[Stage], config: Config, give_up: int = NO_LIMIT) -> Schedule | None:
    """Items of some layers, None when they take `give_up` cycles or more. The plans must fit the config."""
    clock = Clock(stages, config)
    turn = 0
    for stage in stages:
        clock.begin()
        if not _layer(clock, stage.plan, turn, give_up):
            return None
        turn += sum(1 for _ in stage.plan.groups())
        clock.end()
    clock.items.sort(key=lambda item: item[:2])
    items = tuple((layer, item) for _, _, layer, item in clock.items)
    return Schedule(items, tuple(clock.regions), max(clock.time) + clock.commands())


def _layer(clock: Clock, plan: Plan, turn: int, give_up: int) -> bool:
    """Place a layer's instructions; `turn`: accumulator slots are used in turn, through all layers."""
    config, planes, gemm, alu = clock.config, plan.layer.planes, clock.line.gemm, clock.line.alu
    limit = max(1, config.uop.depth // 4)
    listed = limit if gemm == alu else max(1, config.alu_uop.depth // 4)
    waiting: deque[_Waiting] = deque()
    known = [True] * plan.acc  # whether it is known when an accumulator slot is free again

    def shift_first() -> None:
        ready, group, acc, plane, spent = waiting.popleft()
        for step in shift(group.tiles, config.LOG_ACC_WIDTH):
            clock.run(step, ready, acc)
        store(group, acc, plane, clock.time[alu], spent)

    def store(group: Group, acc: int, plane: int, ready: int, spent: int) -> None:
        done = clock.store(group, acc, plane, ready, spent)
        clock.out.free[acc] = done
        if plane + 1 < planes:
            waiting.append(_Waiting(done, group, acc, plane + 1, spent))
        else:
            known[acc] = True
            clock.acc.free[acc] = done if gemm == alu else ready  # one unit writes the results, so it waits for them

    for index, group in enumerate(plan.groups(), turn):
        if clock.time[gemm] >= give_up:
            return False
        acc = index % plan.acc
        while not known[acc]:
            shift_first()
        available = clock.acc.free[acc]
        while waiting and waiting[0].ready <= max(clock.time[alu], available):
            shift_first()
        known[acc] = False
        for step in opening(plan.layer, group):
            clock.run(step, available, acc)
        par = clock.parameters(group)
        for chunk in group.chunks:
            if clock.inputs_stored(group, chunk) > clock.time[clock.line.load]:  # what does not depend on them first
                clock.weights(chunk.weights)
            inp, wgt = clock.inputs(group, chunk), clock.weights(chunk.weights)
            loaded = max(clock.inp.ready[inp], clock.wgt.ready[wgt])
            for step in sums(plan, group, chunk, limit):
                while waiting and waiting[0].ready <= max(clock.time[alu], loaded):
                    shift_first()
                clock.run(step, loaded, acc, inp, wgt)
            clock.inp.free[inp] = clock.wgt.free[wgt] = clock.time[gemm]
        ready = max(clock.time[gemm], clock.out.free[acc])
        if par >= 0:
            ready = max(ready, clock.par.ready[par])
        for step in closing(plan.layer, group, listed, copies=gemm != alu):
            ready = clock.run(step, ready, acc, par=par)
        if par >= 0:
            clock.par.free[par] = ready
        store(group, acc, 0, ready, clock.store_cycles(group))
    while waiting:
        shift_first()
    return True
